//! Scores rows: features to tiles, tiles through trees and linear functions, scores to the model's outputs.

use super::cells::{CellId, Op, Plan};
use super::layout::{self, FeatureEncoding, FeatureSlots, InputTile, SlotSources, Spot};
use super::machine::{Machine, TypedModel};
use super::program::Program;
use super::trees::{ForestSums, LANES, Lanes, Real};
use super::values::{ElementType, Value};

/// A recognised model, ready to score.
#[derive(Debug)]
pub(super) struct NativeEngine {
    pub(super) program: Program,
    pub(super) features: Vec<FeatureSlots>,
    layouts: Vec<SubmodelLayout>,
    /// Per feature and state, whether ONNX Runtime refuses a batch with it.
    pub(super) refused: Vec<Vec<bool>>,
    /// Per numeric feature, what follows from it alone.
    numbers: Vec<Formula>,
    /// What follows from several features.
    shared: Formula,
    /// Whether ONNX Runtime refuses any state of any feature.
    strict: bool,
    tail: Tail,
}

/// Cells to compute, and where features stand among them.
#[derive(Debug)]
struct Formula {
    plan: Plan,
    slots: Vec<SlotCell>,
}

/// A cell that holds a slot of a feature.
#[derive(Debug, Clone, Copy)]
struct SlotCell {
    feature: usize,
    /// Which of the feature's slots.
    at: usize,
    cell: CellId,
}

#[derive(Debug)]
enum SubmodelLayout {
    Single(InputTile<f32>),
    Double(InputTile<f64>),
}

/// The model's outputs from the scores of its parts.
#[derive(Debug)]
struct Tail {
    plan: Plan,
    scores: Vec<CellId>,
    label: Option<CellId>,
    /// Where the scores are those of the only part, as they are.
    direct: bool,
}

/// One feature's values of some rows, as they enter the inputs.
#[derive(Debug, Clone)]
pub(super) enum InputColumn {
    /// Positions among the feature's states.
    States(Vec<u32>),
    Numbers(Vec<Value>),
}

/// One feature's changed value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum ChangedValue {
    State(u32),
    Number(Value),
}

/// Rows in the model's terms.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) columns: Vec<InputColumn>,
    /// Per part and computed position, a cell for each row.
    spots: Vec<Spots>,
}

#[derive(Debug)]
enum Spots {
    Single(Vec<Vec<f32>>),
    Double(Vec<Vec<f64>>),
}

/// Answers for some rows.
#[derive(Debug, Default)]
pub(super) struct EngineScores {
    /// By row and score.
    pub(super) scores: Vec<f64>,
    /// Labels as values of the model.
    pub(super) labels: Vec<Value>,
}

/// Memory that is used again from question to question.
#[derive(Debug, Default)]
pub(super) struct NativeScratch {
    values: Vec<Value>,
    single: Tiles<f32>,
    double: Tiles<f64>,
    /// Per part, by row and output.
    scores: Vec<Vec<f64>>,
    labels: Vec<Vec<u32>>,
}

#[derive(Debug, Default)]
struct Tiles<T> {
    cells: Vec<Lanes<T>>,
    sums: ForestSums<T>,
}

/// A row to score: its position among the encoded ones, and what differs.
pub(super) type RowVariant<'q> = (usize, &'q [(usize, ChangedValue)]);

impl NativeEngine {
    /// Makes a recognised graph ready; `scores` and `label` are the names of its outputs. None where it uses the
    /// features in a way that is not known.
    pub(super) fn new(
        program: Program,
        features: Vec<FeatureSlots>,
        scores: Option<&str>,
        label: Option<&str>,
    ) -> Option<NativeEngine> {
        let refused = layout::refused(&program, &features)?;
        let sources = SlotSources { cells: &program.cells, features: &features };
        let layouts: Vec<SubmodelLayout> = program
            .submodels
            .iter()
            .map(|submodel| match &submodel.machine {
                Machine::Single(model) => {
                    SubmodelLayout::Single(InputTile::new(submodel, model, &sources))
                }
                Machine::Double(model) => {
                    SubmodelLayout::Double(InputTile::new(submodel, model, &sources))
                }
            })
            .collect();
        let of = |feature: Option<usize>| {
            let template_slots = layouts.iter().flat_map(|layout| layout.spots(feature));
            let plan = program.cells.plan(template_slots.map(|spot| spot.cell));
            let slots = slot_cells(&program, &features, &plan);
            Formula { plan, slots }
        };
        let numbers = (0..features.len()).map(|feature| of(Some(feature))).collect();
        let shared = of(None);
        let strict = refused.iter().flatten().any(|refused| *refused);
        let tail = Tail::new(&program, scores, label)?;
        Some(NativeEngine { layouts, refused, numbers, shared, strict, tail, program, features })
    }

    /// Rows in the model's terms.
    pub(super) fn encode(&self, columns: Vec<InputColumn>, rows: usize) -> Encoded {
        let mut values = self.program.cells.buffer();
        let mut spots: Vec<Spots> = self.layouts.iter().map(|one| one.buffer(rows)).collect();
        for (feature, formula) in self.numbers.iter().enumerate() {
            let (InputColumn::Numbers(numbers), false) = (&columns[feature], formula.is_empty())
            else {
                continue;
            };
            for (row, number) in numbers.iter().enumerate() {
                self.compute(formula, &mut values, |_, _| *number);
                self.note(&mut spots, row, Some(feature), &values);
            }
        }
        for row in if self.shared.is_empty() { 0..0 } else { 0..rows } {
            let slot = |feature: usize, at: usize| self.slot(&columns, feature, at, row);
            self.compute(&self.shared, &mut values, slot);
            self.note(&mut spots, row, None, &values);
        }
        Encoded { columns, spots }
    }

    /// Whether ONNX Runtime refuses any state of any feature.
    pub(super) fn is_strict(&self) -> bool {
        self.strict
    }

    /// Computes a formula's cells, given the value of a feature's slot.
    fn compute(
        &self,
        formula: &Formula,
        values: &mut [Value],
        slot: impl Fn(usize, usize) -> Value,
    ) {
        for SlotCell { feature, at, cell } in &formula.slots {
            values[*cell as usize] = slot(*feature, *at);
        }
        self.program.cells.compute(&formula.plan, values);
    }

    fn slot(&self, columns: &[InputColumn], feature: usize, at: usize, row: usize) -> Value {
        let change = match &columns[feature] {
            InputColumn::States(states) => ChangedValue::State(states[row]),
            InputColumn::Numbers(numbers) => ChangedValue::Number(numbers[row]),
        };
        self.changed_slot(feature, at, change)
    }

    fn changed_slot(&self, feature: usize, at: usize, change: ChangedValue) -> Value {
        match (change, &self.features[feature].encoding) {
            (ChangedValue::State(state), FeatureEncoding::States(states)) => {
                states[state as usize][at]
            }
            (ChangedValue::Number(number), _) => number,
            (ChangedValue::State(_), FeatureEncoding::Number) => Value::Bool(false),
        }
    }

    fn note(&self, spots: &mut [Spots], row: usize, of: Option<usize>, values: &[Value]) {
        for (layout, spots) in self.layouts.iter().zip(spots) {
            match (layout, spots) {
                (SubmodelLayout::Single(layout), Spots::Single(cells)) => {
                    layout.note(cells, row, of, values);
                }
                (SubmodelLayout::Double(layout), Spots::Double(cells)) => {
                    layout.note(cells, row, of, values);
                }
                _ => {}
            }
        }
    }

    /// Answers questions about encoded rows, in their order.
    pub(super) fn answer<'q>(
        &self,
        encoded: &Encoded,
        questions: impl Iterator<Item = RowVariant<'q>> + Clone,
        scratch: &mut NativeScratch,
    ) -> EngineScores {
        scratch.values.resize(self.program.cells.0.len(), Value::Bool(false));
        scratch.scores.resize_with(self.layouts.len(), Vec::new);
        scratch.labels.resize_with(self.layouts.len(), Vec::new);
        for submodel in 0..self.layouts.len() {
            let mut single = std::mem::take(&mut scratch.single);
            let mut double = std::mem::take(&mut scratch.double);
            match (
                &self.layouts[submodel],
                &encoded.spots[submodel],
                &self.program.submodels[submodel].machine,
            ) {
                (SubmodelLayout::Single(layout), Spots::Single(spots), Machine::Single(model)) => {
                    let run = SubmodelRun { engine: self, layout, spots, model, encoded, submodel };
                    run.score(questions.clone(), &mut single, scratch);
                }
                (SubmodelLayout::Double(layout), Spots::Double(spots), Machine::Double(model)) => {
                    let run = SubmodelRun { engine: self, layout, spots, model, encoded, submodel };
                    run.score(questions.clone(), &mut double, scratch);
                }
                _ => {}
            }
            (scratch.single, scratch.double) = (single, double);
        }
        self.finish(scratch)
    }

    /// Whether scores, and labels if there are classes, are those of the only part, as they are.
    pub(super) fn is_direct(&self, classifies: bool) -> bool {
        let label = self.tail.label.map(|cell| self.program.cells.op(cell));
        let plain = if classifies { matches!(label, Some(Op::Label(_))) } else { label.is_none() };
        self.tail.direct && plain
    }

    /// The answers from the scores and labels of the only part.
    pub(super) fn conclude(
        &self,
        (scores, labels): (Vec<f64>, Vec<u32>),
        scratch: &mut NativeScratch,
    ) -> EngineScores {
        scratch.values.resize(self.program.cells.0.len(), Value::Bool(false));
        (scratch.scores, scratch.labels) = (vec![scores], vec![labels]);
        self.finish(scratch)
    }

    /// The value of a cell that depends on one feature alone.
    pub(super) fn cell(
        &self,
        (cell, plan): (CellId, &Plan),
        (feature, change): (usize, ChangedValue),
        values: &mut [Value],
    ) -> Value {
        for SlotCell { feature: of, at, cell } in slot_cells(&self.program, &self.features, plan) {
            values[cell as usize] = match of == feature {
                true => self.changed_slot(feature, at, change),
                false => Value::Bool(false),
            };
        }
        self.program.cells.compute(plan, values);
        values[cell as usize]
    }

    fn finish(&self, scratch: &mut NativeScratch) -> EngineScores {
        let rows = scratch.labels.first().map_or(0, Vec::len);
        let label = self.tail.label.map(|cell| self.program.cells.op(cell));
        let plain = match label {
            None => Some(None),
            Some(Op::Label(submodel)) => Some(Some(*submodel as usize)),
            Some(_) => None,
        };
        if let (true, Some(submodel)) = (self.tail.direct, plain) {
            let labels = submodel.map(|submodel| {
                let known = &self.program.submodels[submodel].labels;
                scratch.labels[submodel].iter().map(|label| known[*label as usize]).collect()
            });
            let first = scratch.scores.first_mut().filter(|_| !self.tail.scores.is_empty());
            let scores = first.map(std::mem::take).unwrap_or_default();
            return EngineScores { scores, labels: labels.unwrap_or_default() };
        }
        let mut answers = EngineScores::default();
        for row in 0..rows {
            self.finish_row(row, scratch, &mut answers);
        }
        answers
    }

    fn finish_row(&self, row: usize, scratch: &mut NativeScratch, answers: &mut EngineScores) {
        for cell in &self.tail.plan.0 {
            let value = match self.program.cells.op(*cell) {
                Op::Score { model, output } => {
                    let scores = &scratch.scores[*model as usize];
                    let width = scores.len() / scratch.labels[*model as usize].len().max(1);
                    let score = scores[row * width + *output as usize];
                    match self.program.cells.kind(*cell) {
                        ElementType::Double => Value::Double(score),
                        _ => Value::Float(score as f32),
                    }
                }
                Op::Label(model) => {
                    let label = scratch.labels[*model as usize][row];
                    self.program.submodels[*model as usize].labels[label as usize]
                }
                _ => continue,
            };
            scratch.values[*cell as usize] = value;
        }
        self.program.cells.compute(&self.tail.plan, &mut scratch.values);
        let at = |cell: &CellId| scratch.values[*cell as usize];
        answers.scores.extend(self.tail.scores.iter().map(|cell| at(cell).real()));
        answers.labels.extend(self.tail.label.iter().map(at));
    }
}

impl Tail {
    fn new(program: &Program, scores: Option<&str>, label: Option<&str>) -> Option<Tail> {
        let scores = match scores {
            Some(name) => {
                let rows = program.outputs.get(name)?;
                if !rows.kind.is_real() {
                    return None;
                }
                rows.cells.clone()
            }
            None => Vec::new(),
        };
        let label = match label {
            Some(name) => match &program.outputs.get(name)?.cells[..] {
                [cell] => Some(*cell),
                _ => return None,
            },
            None => None,
        };
        let plan = program.cells.plan(scores.iter().chain(&label).copied());
        let as_it_is = |(at, cell): (u32, &CellId)| {
            let score =
                matches!(program.cells.op(*cell), Op::Score { output, .. } if *output == at);
            score && program.submodels.len() == 1
        };
        let outputs = program.submodels.first().map_or(0, |submodel| match &submodel.machine {
            Machine::Single(model) => model.outputs(),
            Machine::Double(model) => model.outputs(),
        });
        let whole = scores.is_empty() || scores.len() == outputs;
        let direct = whole && (0..).zip(&scores).all(as_it_is);
        layout::is_tail(&program.cells, &plan).then_some(Tail { plan, scores, label, direct })
    }
}

impl Formula {
    fn is_empty(&self) -> bool {
        self.plan.0.is_empty()
    }
}

/// The slots of features among a plan's cells.
fn slot_cells(program: &Program, features: &[FeatureSlots], plan: &Plan) -> Vec<SlotCell> {
    let slot_cell = |(slot, cell): (u32, CellId)| {
        let feature = features.iter().position(|one| one.slots.contains(&slot))?;
        let at = (slot - features[feature].slots.start) as usize;
        Some(SlotCell { feature, at, cell })
    };
    program.cells.slots(plan).filter_map(slot_cell).collect()
}

impl SubmodelLayout {
    /// The positions that depend on a feature alone, or on several.
    fn spots(&self, of: Option<usize>) -> &[Spot] {
        match self {
            SubmodelLayout::Single(layout) => &layout.spots[layout.spots_of(of)],
            SubmodelLayout::Double(layout) => &layout.spots[layout.spots_of(of)],
        }
    }

    fn buffer(&self, rows: usize) -> Spots {
        match self {
            SubmodelLayout::Single(layout) => {
                Spots::Single(vec![vec![0.0; rows]; layout.spots.len()])
            }
            SubmodelLayout::Double(layout) => {
                Spots::Double(vec![vec![0.0; rows]; layout.spots.len()])
            }
        }
    }
}

impl<T: Real> InputTile<T> {
    fn note(&self, cells: &mut [Vec<T>], row: usize, of: Option<usize>, values: &[Value]) {
        let range = self.spots_of(of);
        for (spot, cells) in self.spots[range.clone()].iter().zip(&mut cells[range]) {
            cells[row] = spot.read(values);
        }
    }
}

/// One submodel's share of a question.
struct SubmodelRun<'a, T: Real> {
    engine: &'a NativeEngine,
    layout: &'a InputTile<T>,
    spots: &'a [Vec<T>],
    model: &'a TypedModel<T>,
    encoded: &'a Encoded,
    submodel: usize,
}

impl<T: Real> SubmodelRun<'_, T> {
    fn score<'q>(
        &self,
        mut questions: impl Iterator<Item = RowVariant<'q>>,
        tiles: &mut Tiles<T>,
        scratch: &mut NativeScratch,
    ) {
        let (stride, most) = (self.model.stride(), self.model.rows());
        let submodel = &self.engine.program.submodels[self.submodel];
        let single = matches!(submodel.machine, Machine::Single(_));
        let halved = !single && self.is_float();
        let (mut scores, mut labels) = (
            std::mem::take(&mut scratch.scores[self.submodel]),
            std::mem::take(&mut scratch.labels[self.submodel]),
        );
        scores.clear();
        labels.clear();
        loop {
            let mut rows = 0;
            while let Some((row, changes)) = (rows < most).then(|| questions.next()).flatten() {
                let (tile, lane) = (rows / LANES, rows % LANES);
                if lane == 0 {
                    tiles.cells.resize((tile + 1) * stride, [T::default(); LANES]);
                    let template = self.layout.template.iter();
                    let cells = &mut tiles.cells[tile * stride..];
                    cells
                        .iter_mut()
                        .zip(template)
                        .for_each(|(cell, usual)| *cell = [*usual; LANES]);
                }
                let cells = &mut tiles.cells[tile * stride..(tile + 1) * stride];
                self.fill(cells, lane, row);
                self.change(cells, lane, (row, changes), &mut scratch.values);
                rows += 1;
            }
            if rows == 0 {
                break;
            }
            let write = |_: usize, row: &[T], label: u32| {
                scores.extend(row.iter().map(|score| match halved {
                    true => f64::from(score.single()),
                    false => score.double(),
                }));
                labels.push(label);
            };
            let cells = &tiles.cells[..rows.div_ceil(LANES) * stride];
            self.model.score(cells, &mut tiles.sums, rows, write);
        }
        scratch.scores[self.submodel] = scores;
        scratch.labels[self.submodel] = labels;
    }

    /// Whether the scores are single numbers.
    fn is_float(&self) -> bool {
        let cells = &self.engine.program.cells;
        let is_score =
            |op: &Op| matches!(op, Op::Score { model, .. } if *model as usize == self.submodel);
        let found = cells.0.iter().find(|cell| is_score(&cell.op));
        found.is_some_and(|cell| cell.kind == ElementType::Float)
    }

    /// A row as it was encoded.
    fn fill(&self, tile: &mut [Lanes<T>], lane: usize, row: usize) {
        for (states, column) in self.layout.states.iter().zip(&self.encoded.columns) {
            if let (InputColumn::States(column), false) = (column, states.is_empty()) {
                for (at, cell) in &states[column[row] as usize] {
                    tile[*at as usize][lane] = *cell;
                }
            }
        }
        for (spot, cells) in self.layout.spots.iter().zip(self.spots) {
            tile[spot.at as usize][lane] = cells[row];
        }
    }

    /// What differs from it.
    fn change(
        &self,
        tile: &mut [Lanes<T>],
        lane: usize,
        (row, changes): RowVariant<'_>,
        values: &mut [Value],
    ) {
        for (feature, change) in changes {
            match change {
                ChangedValue::State(state) => self.set_state(tile, lane, (row, *feature), *state),
                ChangedValue::Number(number) => {
                    let formula = &self.engine.numbers[*feature];
                    self.engine.compute(formula, values, |_, _| *number);
                    self.set_spots(tile, lane, Some(*feature), values);
                }
            }
        }
        if changes.is_empty() || self.engine.shared.is_empty() {
            return;
        }
        let slot = |feature: usize, at: usize| match changes
            .iter()
            .find(|(changed, _)| *changed == feature)
        {
            Some((_, change)) => self.engine.changed_slot(feature, at, *change),
            None => self.engine.slot(&self.encoded.columns, feature, at, row),
        };
        self.engine.compute(&self.engine.shared, values, slot);
        self.set_spots(tile, lane, None, values);
    }

    fn set_state(
        &self,
        tile: &mut [Lanes<T>],
        lane: usize,
        (row, feature): (usize, usize),
        state: u32,
    ) {
        let states = &self.layout.states[feature];
        let InputColumn::States(column) = &self.encoded.columns[feature] else { return };
        if states.is_empty() {
            return;
        }
        for (at, _) in &states[column[row] as usize] {
            tile[*at as usize][lane] = self.layout.template[*at as usize];
        }
        for (at, cell) in &states[state as usize] {
            tile[*at as usize][lane] = *cell;
        }
    }

    fn set_spots(&self, tile: &mut [Lanes<T>], lane: usize, of: Option<usize>, values: &[Value]) {
        for spot in &self.layout.spots[self.layout.spots_of(of)] {
            tile[spot.at as usize][lane] = spot.read(values);
        }
    }
}
