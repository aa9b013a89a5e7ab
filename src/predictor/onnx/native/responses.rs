//! A model of trees in the terms of the table's features, to see what it would say of a row if single features had
//! other values.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::super::inputs::FeatureInputs;
use super::breakpoints::{Below, NumberPath};
use super::cells::{CellId, Plan};
use super::engine::ChangedValue;
use super::layout::SlotSources;
use super::machine::{Machine, TypedModel};
use super::scorer::{Answered, Native};
use super::sweep::{
    Demand, FeatureResponses, MOST_STATES, NodeSplit, OriginalValue, Span, SweepReach, SweepRow,
    SweepScratch, Sweeper, Tops, TreeStep, bits,
};
use super::trees::{Branch, Mode, Need, Raw, Real, TreeNode};
use super::values::Value;
use super::variants::Originals;
use crate::feature::{Cell, NULL_CODE};
use crate::predictor::{self, Values, Variant};

/// Outputs that are compared: the one that is to be greater, and the one that is to be less.
type OutputPair = (Option<usize>, Option<usize>);

/// The trees of a model.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) sweeper: Sweeper,
    /// Per categorical feature what its codes are to the model, the null last.
    states: Vec<Option<Vec<Option<ChangedValue>>>>,
    /// Per output whether any leaf has a weight for it.
    pub(super) weighed: Vec<bool>,
    /// By the outputs that are compared, what nodes add at most: made when first asked for.
    tops: Mutex<HashMap<OutputPair, Tops>>,
}

/// Rows that walk the trees together.
const AT_ONCE: usize = 16;

/// Values of features, and what the model says of them.
type ValuesAnswered<'n> = (Vec<(usize, Values)>, Answered<'n>);

impl Whole {
    /// The trees of a model that is one ensemble and sums its weights; none where branches ask about anything but
    /// single features, or about numbers otherwise than by their order.
    pub(super) fn new(native: &Native, inputs: &FeatureInputs, features: usize) -> Option<Whole> {
        let [submodel] = &native.engine.program.submodels[..] else { return None };
        let states = (0..features).map(|feature| native.sources.states(feature));
        let states: Vec<Option<Vec<Option<ChangedValue>>>> = states.collect::<Option<_>>()?;
        let few = |states: &Vec<Option<ChangedValue>>| states.len() <= MOST_STATES;
        if !states.iter().flatten().all(few) {
            return None;
        }
        let sweeper = Sweeper::default();
        let mut whole = Whole { sweeper, states, weighed: Vec::new(), tops: Mutex::default() };
        (whole.sweeper, whole.weighed) = match &submodel.machine {
            Machine::Single(TypedModel::Trees(forest)) => {
                Reading::new((native, inputs), &whole, &submodel.inputs, forest.raw()?)?
                    .sweeper()?
            }
            Machine::Double(TypedModel::Trees(forest)) => {
                Reading::new((native, inputs), &whole, &submodel.inputs, forest.raw()?)?
                    .sweeper()?
            }
            _ => return None,
        };
        Some(whole)
    }

    /// What a feature's value is to the trees; none for a value that its schema does not list.
    fn original(&self, feature: usize, change: ChangedValue) -> Option<OriginalValue> {
        let states = self.states[feature].as_ref()?;
        let state = states.iter().position(|state| *state == Some(change))?;
        Some(OriginalValue::State(state as u32))
    }

    fn code(&self, feature: usize, code: u32) -> Option<u32> {
        let states = self.states[feature].as_ref()?;
        let at = if code == NULL_CODE { states.len() - 1 } else { code as usize };
        states.get(at)?.map(|_| at as u32)
    }

    /// A need in the terms of the nodes.
    pub(super) fn demand(&self, Need { up, down, plus }: Need) -> Demand {
        let mut known = self.tops.lock();
        let tops = known.entry((up, down)).or_insert_with(|| self.sweeper.tops(up, down));
        Demand { up, down, plus, tops: Tops::clone(tops) }
    }

    /// What a feature may be within a span, in the terms of the table.
    pub(super) fn within(
        &self,
        feature: usize,
        span: Span,
        reach: &SweepReach,
    ) -> predictor::Reach {
        match (span, reach) {
            (Span::Ranks(low, high), SweepReach::Numbers(least, greatest)) => {
                let (low, high) = self.sweeper.numbers(feature, (low, high));
                predictor::Reach::Numbers(low.max(*least), high.min(*greatest))
            }
            (Span::States(states), SweepReach::States(allowed)) => {
                predictor::Reach::Codes(bits(states & allowed).collect())
            }
            _ => predictor::Reach::Fixed,
        }
    }

    /// Whether everything that a feature may become can be told to the model.
    pub(super) fn knows_values(&self, feature: usize, reach: &predictor::Reach) -> bool {
        let known = |code: &u32| self.code(feature, *code).is_some();
        !matches!(reach, predictor::Reach::Codes(codes) if !codes.iter().all(known))
    }

    fn reach(&self, feature: usize, reach: &predictor::Reach) -> SweepReach {
        match reach {
            predictor::Reach::Fixed => SweepReach::Fixed,
            predictor::Reach::Numbers(low, high) => SweepReach::Numbers(*low, *high),
            predictor::Reach::Codes(codes) => {
                let known = codes.iter().filter_map(|code| self.code(feature, *code));
                SweepReach::States(known.fold(0, |states, state| states | 1 << state))
            }
        }
    }
}

/// An ensemble on its way into the terms of the features.
struct Reading<'r, T> {
    native: &'r Native,
    inputs: &'r FeatureInputs,
    whole: &'r Whole,
    raw: &'r Raw<T>,
    /// Per cell that branches ask about, the feature behind it; none behind constants.
    behind: Vec<Option<(usize, Plan)>>,
    cells: &'r [CellId],
    known: HashMap<(u32, u64), Below>,
    values: Vec<Value>,
}

impl<'r, T: Real> Reading<'r, T> {
    fn new(
        (native, inputs): (&'r Native, &'r FeatureInputs),
        whole: &'r Whole,
        cells: &'r [CellId],
        raw: &'r Raw<T>,
    ) -> Option<Reading<'r, T>> {
        let program = &native.engine.program;
        let sources = SlotSources { cells: &program.cells, features: &native.engine.features };
        let behind = |cell: &CellId| {
            let behind = sources.behind(*cell);
            let plan = program.cells.plan([*cell]);
            match behind.len() {
                0 | 1 => Some(behind.first().map(|feature| (*feature, plan))),
                _ => None,
            }
        };
        let behind = cells.iter().map(behind).collect::<Option<_>>()?;
        let values = program.cells.buffer();
        let known = HashMap::new();
        Some(Reading { native, inputs, whole, raw, behind, cells, known, values })
    }

    /// The trees, and which outputs any leaf has a weight for.
    fn sweeper(mut self) -> Option<(Sweeper, Vec<bool>)> {
        if !self.raw.finish.aggregate.sums() {
            return None;
        }
        let mut trees = Vec::with_capacity(self.raw.trees.len());
        for tree in &self.raw.trees {
            let steps = tree.iter().map(|node| match node {
                TreeNode::Branch(branch) => self.branch(branch),
                TreeNode::Leaf(weights) => Some(self.leaf(weights.clone())),
            });
            trees.push(steps.collect::<Option<Vec<_>>>()?);
        }
        let outputs = self.raw.finish.outputs;
        let sweeper = Sweeper::new(&trees, outputs, self.whole.states.len());
        let single = outputs == 1 && self.raw.finish.classifier.is_none();
        let mut weighed = vec![single; outputs];
        for (output, _) in self.raw.weights.iter().filter(|_| !single) {
            weighed[*output as usize] = true;
        }
        Some((sweeper, weighed))
    }

    fn leaf(&self, weights: std::ops::Range<usize>) -> TreeStep {
        let finish = &self.raw.finish;
        let single = finish.outputs == 1 && finish.classifier.is_none();
        let mut sums = vec![0.0; finish.outputs];
        for (output, weight) in &self.raw.weights[weights] {
            sums[if single { 0 } else { *output as usize }] += weight.double();
            if single {
                break;
            }
        }
        TreeStep::Leaf(sums)
    }

    fn branch(&mut self, branch: &Branch<T>) -> Option<TreeStep> {
        let (yes, no) = (branch.yes, branch.no);
        let Some((feature, plan)) = self.behind[branch.feature as usize].clone() else {
            let cell = self.cells[branch.feature as usize];
            self.native
                .engine
                .program
                .cells
                .compute(&self.native.engine.program.cells.plan([cell]), &mut self.values);
            let yes_always = self.holds(branch, self.values[cell as usize]);
            let ways = if yes_always { [yes, no] } else { [no, yes] };
            // Every value of any feature goes the first way.
            let split = match self.whole.states[0] {
                Some(_) => NodeSplit::States(u64::MAX),
                None => NodeSplit::Number { cut: f64::INFINITY, gap_first: true },
            };
            return Some(TreeStep::Branch { feature: 0, split, ways });
        };
        if self.whole.states[feature].is_some() {
            let states = self.states(branch, (feature, &plan));
            return Some(TreeStep::Branch {
                feature,
                split: NodeSplit::States(states),
                ways: [yes, no],
            });
        }
        let (below, first_is_yes) = self.numbers(branch, feature)?;
        let (cut, first_is_yes) = match below {
            Below::UpTo(cut) => (cut, first_is_yes),
            Below::Above(cut) => (cut, !first_is_yes),
            Below::All => (f64::INFINITY, first_is_yes),
            Below::None => (f64::NEG_INFINITY, first_is_yes),
        };
        let way = NumberPath::new(
            self.native,
            self.inputs,
            (feature, self.cells[branch.feature as usize]),
        )?;
        let gap = way.at(f64::NAN, &mut self.values).is_some_and(|gap| self.holds(branch, gap));
        let split = NodeSplit::Number { cut, gap_first: gap == first_is_yes };
        Some(TreeStep::Branch {
            feature,
            split,
            ways: if first_is_yes { [yes, no] } else { [no, yes] },
        })
    }

    fn holds(&self, branch: &Branch<T>, value: Value) -> bool {
        let value = T::of(value);
        let gap = branch.gap_is_true && value.is_gap();
        gap || branch.mode.holds(value, branch.threshold, &self.raw.members)
    }

    /// The states of a feature that go the way of the true.
    fn states(&mut self, branch: &Branch<T>, (feature, plan): (usize, &Plan)) -> u64 {
        let cell = self.cells[branch.feature as usize];
        let states = self.whole.states[feature].iter().flatten().enumerate();
        states.fold(0, |all, (state, change)| {
            let value = change.map(|change| {
                self.native.engine.cell((cell, plan), (feature, change), &mut self.values)
            });
            let holds = value.is_some_and(|value| self.holds(branch, value));
            all | u64::from(holds) << state
        })
    }

    /// The numbers for which a cell is at most at a branch's threshold, and whether those go the way of the true.
    fn numbers(&mut self, branch: &Branch<T>, feature: usize) -> Option<(Below, bool)> {
        let (threshold, yes) = match branch.mode {
            Mode::LessOrEqual => (branch.threshold, true),
            Mode::Less => (branch.threshold.below(), true),
            Mode::Greater => (branch.threshold, false),
            Mode::GreaterOrEqual => (branch.threshold.below(), false),
            Mode::Equal | Mode::NotEqual | Mode::Member(_) => return None,
        };
        let key = (branch.feature, threshold.double().to_bits());
        if let Some(known) = self.known.get(&key) {
            return Some((*known, yes));
        }
        let cell = self.cells[branch.feature as usize];
        let below = NumberPath::new(self.native, self.inputs, (feature, cell))?
            .below(threshold, &mut self.values)?;
        self.known.insert(key, below);
        Some((below, yes))
    }
}

impl<'n> Originals<'n> {
    /// What the model would say of copies if one of their features were anything else that it may become; nothing of
    /// rows that cannot be told to it. None where the model does not show it.
    pub(in super::super) fn responses(
        &mut self,
        copies: &[(Variant<'_>, &[predictor::Reach])],
        (scratch, found): &mut (SweepScratch, Vec<FeatureResponses>),
    ) -> Option<Vec<ValuesAnswered<'n>>> {
        let native = self.native;
        let features = self.encoded_rows.encoded.columns.len();
        let whole = native.whole(self.inputs, features)?;
        let mut answered = Vec::with_capacity(copies.len());
        for copies in copies.chunks(AT_ONCE) {
            let questions: Vec<SweepRow> =
                copies.iter().map(|copy| self.question(whole, copy)).collect();
            whole.sweeper.sweep(&questions, scratch, found);
            for found in found.iter() {
                let (scores, labels) = finished(native, &whole.weighed, found);
                let values = found.values.iter();
                let values = values.map(|(feature, values)| (*feature, (*values).into()));
                answered.push((values.collect(), native.concluded(scores, labels)));
            }
        }
        Some(answered)
    }

    /// A copy in the terms of the trees. Nothing of a row that cannot be told to the model may change.
    fn question(&self, whole: &Whole, asked: &(Variant<'_>, &[predictor::Reach])) -> SweepRow {
        self.known_question(whole, asked).unwrap_or_else(|| {
            let nothing = |states: &Option<_>| match states {
                Some(_) => OriginalValue::State(0),
                None => OriginalValue::Number(f64::NAN),
            };
            let original = whole.states.iter().map(nothing).collect();
            SweepRow { original, reach: vec![SweepReach::Fixed; asked.1.len()] }
        })
    }

    /// The same; none of a row that cannot be told to the model.
    pub(super) fn known_question(
        &self,
        whole: &Whole,
        (copy, reach): &(Variant<'_>, &[predictor::Reach]),
    ) -> Option<SweepRow> {
        let row = copy.row as usize;
        let original = |feature: usize| {
            let edit = copy.edits.iter().find(|edit| edit.feature == feature);
            match edit.map(|edit| edit.cell) {
                Some(Cell::Number(number)) => Some(OriginalValue::Number(number)),
                Some(Cell::Code(code)) => whole.code(feature, code).map(OriginalValue::State),
                None if whole.states[feature].is_none() => {
                    Some(OriginalValue::Number(self.numbers(feature)[row]))
                }
                None => {
                    whole.original(feature, self.encoded_rows.encoded.columns[feature].change(row))
                }
            }
        };
        let original: Option<Vec<OriginalValue>> = (0..reach.len()).map(original).collect();
        let original = original.filter(|_| !self.is_failing(row))?;
        let reach = reach.iter().enumerate();
        let reach = reach.map(|(feature, reach)| whole.reach(feature, reach));
        Some(SweepRow { original, reach: reach.collect() })
    }
}

/// Scores and labels from sums.
fn finished(native: &Native, weighed: &[bool], found: &FeatureResponses) -> (Vec<f64>, Vec<u32>) {
    match native.engine.program.submodels.first().map(|submodel| &submodel.machine) {
        Some(Machine::Single(TypedModel::Trees(forest))) => finish(forest.raw(), weighed, found),
        Some(Machine::Double(TypedModel::Trees(forest))) => finish(forest.raw(), weighed, found),
        _ => (Vec::new(), Vec::new()),
    }
}

fn finish<T: Real>(
    raw: Option<&Raw<T>>,
    weighed: &[bool],
    found: &FeatureResponses,
) -> (Vec<f64>, Vec<u32>) {
    let Some(raw) = raw else { return (Vec::new(), Vec::new()) };
    let outputs = raw.finish.outputs;
    let (mut scores, mut labels) = (Vec::with_capacity(found.sums.len()), Vec::new());
    let (mut row, mut seen) = (Vec::new(), Vec::new());
    for sums in found.sums.chunks_exact(outputs) {
        row.clear();
        row.extend(sums.iter().map(|sum| T::rounded(*sum)));
        seen.clear();
        seen.extend_from_slice(weighed);
        labels.push(raw.finish.row(&mut row, &mut seen, raw.trees.len()));
        scores.extend(row.iter().map(|score| score.double()));
    }
    (scores, labels)
}
