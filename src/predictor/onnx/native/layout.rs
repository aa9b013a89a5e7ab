//! How the features of a row become the cells of a tile: per category the cells that it sets, per number the
//! functions to apply, and the cells that depend on several features.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::cells::{CellGraph, CellId, Op, Plan};
use super::machine::TypedModel;
use super::program::{Program, Submodel};
use super::trees::Real;
use super::values::Value;

/// How a feature enters the inputs.
#[derive(Debug, Clone)]
pub(super) enum FeatureEncoding {
    /// One of a few states, each with the values of its slots.
    States(Vec<Vec<Value>>),
    /// A number, which is the value of its one slot.
    Number,
}

/// A feature and the slots of the inputs that it fills.
#[derive(Debug, Clone)]
pub(super) struct FeatureSlots {
    pub(super) slots: std::ops::Range<u32>,
    pub(super) encoding: FeatureEncoding,
}

/// A cell of a tile that is computed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spot {
    /// Position in the tile.
    pub(super) at: u32,
    pub(super) cell: CellId,
    pub(super) negated: bool,
}

impl Spot {
    /// What the tile holds there.
    pub(super) fn read<T: Real>(self, values: &[Value]) -> T {
        let value = T::of(values[self.cell as usize]);
        if self.negated { -value } else { value }
    }
}

/// The tile of one part.
#[derive(Debug)]
pub(super) struct InputTile<T> {
    /// What most rows have at each position.
    pub(super) template: Vec<T>,
    /// Per feature and state, the positions that differ from the template.
    pub(super) states: Vec<Vec<Vec<(u32, T)>>>,
    /// Positions that are computed: those that depend on one feature by feature, then those that depend on several.
    pub(super) spots: Vec<Spot>,
    /// Per feature, and last for those that depend on several, where their positions end.
    ends: Vec<usize>,
}

/// The slots of each feature, and the features of each slot.
pub(super) struct SlotSources<'a> {
    pub(super) cells: &'a CellGraph,
    pub(super) features: &'a [FeatureSlots],
}

impl SlotSources<'_> {
    /// The features that a cell depends on.
    pub(super) fn behind(&self, cell: CellId) -> BTreeSet<usize> {
        let plan = self.cells.plan([cell]);
        let feature = |slot: u32| self.features.iter().position(|one| one.slots.contains(&slot));
        self.cells.slots(&plan).filter_map(|(slot, _)| feature(slot)).collect()
    }

    /// The values of a plan's cells in a state of a feature.
    fn in_state(&self, plan: &Plan, feature: usize, state: &[Value]) -> Vec<Value> {
        let mut values = self.cells.buffer();
        let first = self.features[feature].slots.start;
        for (slot, cell) in self.cells.slots(plan) {
            let at = slot.checked_sub(first).and_then(|at| state.get(at as usize));
            values[cell as usize] = at.copied().unwrap_or(Value::Bool(false));
        }
        self.cells.compute(plan, &mut values);
        values
    }
}

impl<T: Real> InputTile<T> {
    /// Lays out the tile of a part.
    pub(super) fn new(
        submodel: &Submodel,
        model: &TypedModel<T>,
        sources: &SlotSources<'_>,
    ) -> InputTile<T> {
        let mut layout = InputTile {
            template: vec![T::default(); model.stride()],
            states: vec![Vec::new(); sources.features.len()],
            spots: Vec::new(),
            ends: Vec::new(),
        };
        layout.template[0] = T::NAN;
        let mut stated: BTreeMap<usize, Vec<Spot>> = BTreeMap::new();
        let mut computed: Vec<Vec<Spot>> = vec![Vec::new(); sources.features.len() + 1];
        for ((input, negated), at) in model.looks().iter().zip(1..) {
            let spot = Spot { at, cell: submodel.inputs[*input as usize], negated: *negated };
            let behind = sources.behind(spot.cell);
            let sole = behind.first().copied().filter(|_| behind.len() == 1);
            match sole {
                Some(feature)
                    if matches!(sources.features[feature].encoding, FeatureEncoding::States(_)) =>
                {
                    stated.entry(feature).or_default().push(spot);
                }
                Some(feature) => computed[feature].push(spot),
                None if behind.is_empty() => layout.fix(spot, sources),
                None => computed[sources.features.len()].push(spot),
            }
        }
        for spots in computed {
            layout.spots.extend(spots);
            layout.ends.push(layout.spots.len());
        }
        for (feature, spots) in stated {
            layout.tabulate(feature, &spots, sources);
        }
        layout
    }

    /// Where the positions stand that depend on a feature alone; without one, those that depend on several.
    pub(super) fn spots_of(&self, feature: Option<usize>) -> Range<usize> {
        let index = feature.unwrap_or(self.ends.len() - 1);
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        start..self.ends[index]
    }

    /// A position that is the same in every row.
    fn fix(&mut self, spot: Spot, sources: &SlotSources<'_>) {
        let plan = sources.cells.plan([spot.cell]);
        let mut values = sources.cells.buffer();
        sources.cells.compute(&plan, &mut values);
        self.template[spot.at as usize] = spot.read(&values);
    }

    /// Positions that depend on the state of one feature. The last state, of what is not listed, is taken for
    /// what most rows have.
    fn tabulate(&mut self, feature: usize, spots: &[Spot], sources: &SlotSources<'_>) {
        let FeatureEncoding::States(states) = &sources.features[feature].encoding else { return };
        let plan = sources.cells.plan(spots.iter().map(|spot| spot.cell));
        let read = |state: &Vec<Value>| -> Vec<T> {
            let values = sources.in_state(&plan, feature, state);
            spots.iter().map(|spot| spot.read(&values)).collect()
        };
        let read: Vec<Vec<T>> = states.iter().map(read).collect();
        let Some(usual) = read.last() else { return };
        for (spot, usual) in spots.iter().zip(usual) {
            self.template[spot.at as usize] = *usual;
        }
        let same = |one: &T, two: &T| one == two || (one.is_gap() && two.is_gap());
        let differing = |row: &Vec<T>| {
            let pairs = spots.iter().zip(row).zip(usual);
            let pairs = pairs.filter(|((_, own), usual)| !same(own, usual));
            pairs.map(|((spot, own), _)| (spot.at, *own)).collect()
        };
        self.states[feature] = read.iter().map(differing).collect();
    }
}

/// Whether ONNX Runtime refuses a batch with this state of a feature; none if that hangs on more than states.
pub(super) fn refused(program: &Program, features: &[FeatureSlots]) -> Option<Vec<Vec<bool>>> {
    let sources = SlotSources { cells: &program.cells, features };
    let mut refused: Vec<Vec<bool>> = features
        .iter()
        .map(|feature| match &feature.encoding {
            FeatureEncoding::States(states) => vec![false; states.len()],
            FeatureEncoding::Number => Vec::new(),
        })
        .collect();
    for guard in &program.guards {
        let behind = sources.behind(*guard);
        let feature = *behind.first().filter(|_| behind.len() == 1)?;
        let FeatureEncoding::States(states) = &features[feature].encoding else { return None };
        let plan = program.cells.plan([*guard]);
        for (state, refused) in states.iter().zip(&mut refused[feature]) {
            let values = sources.in_state(&plan, feature, state);
            *refused |= values[*guard as usize] != Value::Bool(true);
        }
    }
    Some(refused)
}

/// Whether a cell comes from nothing but scores and labels.
pub(super) fn is_tail(cells: &CellGraph, plan: &Plan) -> bool {
    !plan.0.iter().any(|cell| matches!(cells.op(*cell), Op::Slot(_)))
}
