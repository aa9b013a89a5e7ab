//! Training rows of the wanted decision as answers: those that keep to the constraints as they are, else
//! what the constraints let through of the nearest; and their values, feature by feature, as single changes.

use super::arena::Arena;
use super::{COMPETITORS, Change, Changes, Refiner};
use crate::encode::Slots;
use crate::feature::{Cell, NULL_CODE, UNSEEN_CODE};
use crate::nearest::{Index, Measure, NULL_POINT, PointColumn, Points, Query, UNSEEN_POINT};
use crate::target::Wishes;

/// Rows of every decision among which neighbours are looked for where there is an answer already: as good
/// as all rows for that, and quicker.
const SAMPLE_ROWS: usize = 256;
/// Values of one feature that are proposed as single changes.
const VALUES: usize = 2;

/// Which rows count as neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fit {
    /// Those that an entry's row may become.
    Whole,
    /// All of the wanted decision.
    Any,
}

/// Training rows to look for neighbours among.
pub(super) struct Neighbours {
    all: Index,
    /// Some rows of every decision.
    some: Index,
}

/// What is near to an entry's row.
#[derive(Debug, Clone, Default)]
pub(super) struct Near {
    /// What would make it like each of its nearest neighbours, as far as it may.
    pub(super) rows: Vec<Changes>,
    /// Single changes that neighbours suggest: of every feature the first …
    pub(super) firsts: Changes,
    /// … and the second.
    pub(super) seconds: Changes,
    /// As far as every number may go, either way: what no neighbour has may be what the model wants to see.
    pub(super) ends: Changes,
}

impl Neighbours {
    /// Decisions are so many classes; with none, they are values.
    pub(super) fn new(points: Points, classes: u32) -> Neighbours {
        Neighbours { some: Index::new(sample(&points, classes)), all: Index::new(points) }
    }
}

/// The first rows of every decision. Values of a regression count as one decision.
fn sample(points: &Points, classes: u32) -> Points {
    let mut counts = hashbrown::HashMap::new();
    let mut rows: Vec<usize> = Vec::new();
    for (row, decision) in points.decisions.iter().enumerate() {
        let count: &mut usize =
            counts.entry(if classes > 0 { *decision as i64 } else { 0 }).or_default();
        *count += 1;
        if *count <= SAMPLE_ROWS {
            rows.push(row);
        }
    }
    let column = |column: &PointColumn| match column {
        PointColumn::Numbers(all) => {
            PointColumn::Numbers(rows.iter().map(|row| all[*row]).collect())
        }
        PointColumn::Codes(all) => PointColumn::Codes(rows.iter().map(|row| all[*row]).collect()),
    };
    Points {
        len: rows.len(),
        columns: points.columns.iter().map(column).collect(),
        decisions: rows.iter().map(|row| points.decisions[*row]).collect(),
        // Nobody becomes one of these as a whole, to the last bit.
        exact: Vec::new(),
    }
}

impl Refiner {
    /// What is near to an entry's row that has no answer yet: among all rows, those that it may become, or,
    /// if there is none, others as far as it may become them.
    pub(super) fn near(&self, arena: &Arena<'_>, entry: u32) -> Near {
        let Some(neighbours) = &self.neighbours else { return Near::default() };
        self.look(neighbours, &neighbours.all, (arena, entry), self.job.neighbours)
    }

    /// What is near to an entry's row that has one.
    pub(super) fn near_some(&self, arena: &Arena<'_>, entry: u32) -> Near {
        let Some(neighbours) = &self.neighbours else { return Near::default() };
        self.look(neighbours, &neighbours.some, (arena, entry), COMPETITORS)
    }

    /// What would make an entry's row like the nearest one that it may become.
    pub(super) fn nearest(&self, arena: &Arena<'_>, entry: u32) -> Option<Changes> {
        let index = &self.neighbours.as_ref()?.all;
        let found = index.search(&self.query(arena, entry, Fit::Whole), 1);
        found.first().map(|found| self.changes_toward(index, arena, entry, found.row))
    }

    /// Looks at an entry's neighbours; of the first few all changes are told. Rows whose values are
    /// transplanted need not be the nearest of all.
    fn look(
        &self,
        neighbours: &Neighbours,
        among: &Index,
        (arena, entry): (&Arena<'_>, u32),
        rows: usize,
    ) -> Near {
        let k = self.job.neighbours;
        let mut index = among;
        let mut found = index.search(&self.query(arena, entry, Fit::Whole), k);
        if found.is_empty() {
            index = &neighbours.some;
            found = index.search(&self.query(arena, entry, Fit::Any), k);
        }
        if found.is_empty() {
            index = &neighbours.all;
            found = index.search(&self.query(arena, entry, Fit::Any), k);
        }
        let found: Vec<u32> = found.into_iter().map(|found| found.row).collect();
        let changes = |row: &u32| self.changes_toward(index, arena, entry, *row);
        let mut lists: Vec<Changes> = found.iter().take(rows).map(changes).collect();
        lists.retain(|changes| !changes.is_empty());
        let [firsts, seconds] = self.singles_of(index, arena, entry, &found);
        let ends = if self.asks_generator() { Changes::new() } else { self.ends(arena, entry) };
        Near { rows: lists, firsts, seconds, ends }
    }

    /// Both ends of what every number of an entry's row may become.
    fn ends(&self, arena: &Arena<'_>, entry: u32) -> Changes {
        let room = arena.room(entry);
        let of = |feature: usize| {
            let Cell::Number(own) = arena.own(entry, feature) else { return None };
            let (low, high) = room.interval(feature, own)?;
            Some([low, high].map(|end| (feature, room.number(feature, end, own), own)))
        };
        let ends = (0..self.layout.slots.len()).filter_map(of).flatten();
        let ends = ends.filter(|(_, end, own)| end != own && end.is_finite());
        ends.map(|(feature, end, _)| Change { feature, cell: Cell::Number(end) }).collect()
    }

    /// Of every feature the values that neighbours have most to say for.
    fn singles_of(
        &self,
        index: &Index,
        arena: &Arena<'_>,
        entry: u32,
        rows: &[u32],
    ) -> [Changes; VALUES] {
        let room = arena.room(entry);
        let mut ranked: [Changes; VALUES] = Default::default();
        for (feature, slots) in self.layout.slots.iter().enumerate() {
            let own = arena.own(entry, feature);
            let wanted: Vec<Cell> = match (slots, own) {
                (Slots::Numeric(slots), Cell::Number(number)) => {
                    let found = rows.iter().map(|row| index.number(feature, *row));
                    let told = telling(found, slots.standardised(number));
                    let plain = |number: f32| f64::from(number) * slots.std + slots.mean;
                    told.into_iter().map(|number| Cell::Number(plain(number))).collect()
                }
                _ => commonest(rows.iter().map(|row| index.code(feature, *row)), own),
            };
            let cells = wanted.into_iter().map(|wanted| room.toward(feature, wanted, own));
            let mut cells: Vec<Cell> = cells.filter(|cell| *cell != own).collect();
            cells.dedup();
            for (cell, into) in cells.into_iter().zip(&mut ranked) {
                into.push(Change { feature, cell });
            }
        }
        ranked
    }

    fn query(&self, arena: &Arena<'_>, entry: u32, fit: Fit) -> Query {
        let wanted = match &arena.asked.wishes {
            Wishes::Ranges { low, high } => (low[entry as usize], high[entry as usize]),
            Wishes::Classes { classes, .. } | Wishes::Distributions { classes, .. } => {
                let class = f64::from(classes[entry as usize]);
                (class, class)
            }
        };
        let measure =
            |(feature, slots): (usize, &Slots)| self.measure(arena, (entry, feature), slots, fit);
        let features = self.layout.slots.iter().enumerate().map(measure).collect();
        Query { features, wanted }
    }

    fn measure(
        &self,
        arena: &Arena<'_>,
        (entry, feature): (u32, usize),
        slots: &Slots,
        fit: Fit,
    ) -> Measure {
        let room = arena.room(entry);
        let whole = fit == Fit::Whole;
        match (slots, arena.own(entry, feature)) {
            (Slots::Numeric(slots), Cell::Number(own)) => {
                let reach = room.interval(feature, own).unwrap_or((own, own));
                // What follows from others is whatever they make it.
                let whole = whole && !arena.worker.shared.constraints.is_derived(feature);
                Measure::Number {
                    own: slots.standardised(own),
                    scale: self.costs.scale(feature) as f32,
                    low: slots.standardised(reach.0),
                    high: slots.standardised(reach.1),
                    outside: if whole { f32::INFINITY } else { 0.0 },
                }
            }
            (Slots::Categorical(slots), Cell::Code(own)) => {
                let plain = |code: u32| self.costs.category(feature, code, own) as f32;
                let cost = |code: u32| match code {
                    code if code == own => 0.0,
                    code if !whole || room.allows(feature, code, own) => plain(code),
                    _ => f32::INFINITY,
                };
                let beyond = |code: u32| if whole { f32::INFINITY } else { plain(code) };
                let state = |code: u32| if code == own { 0.0 } else { beyond(code) };
                Measure::Codes {
                    costs: (0..slots.values as u32).map(cost).collect(),
                    other_null: state(NULL_CODE),
                    other_unseen: state(UNSEEN_CODE),
                }
            }
            _ => unreachable!("rows and layout are of one schema"),
        }
    }

    /// What an entry's row has to change to be like a training row, as far as it may.
    fn changes_toward(&self, index: &Index, arena: &Arena<'_>, entry: u32, row: u32) -> Changes {
        let room = arena.room(entry);
        let change = |(feature, slots): (usize, &Slots)| {
            let own = arena.own(entry, feature);
            let wanted = match slots {
                Slots::Numeric(slots) => {
                    let number = index.number(feature, row);
                    // Where the numbers are the same, so are the values, whatever rounding says.
                    let same =
                        matches!(own, Cell::Number(own) if slots.standardised(own) == number);
                    if same {
                        return None;
                    }
                    let near = || f64::from(number) * slots.std + slots.mean;
                    Cell::Number(index.exact(feature, row).unwrap_or_else(near))
                }
                Slots::Categorical(_) => match index.code(feature, row) {
                    NULL_POINT | UNSEEN_POINT => return None,
                    code => Cell::Code(u32::from(code)),
                },
            };
            let cell = room.toward(feature, wanted, own);
            (cell != own).then_some(Change { feature, cell })
        };
        self.layout.slots.iter().enumerate().filter_map(change).collect()
    }
}

/// Of numbers on the side of the own one where most are: the farthest, and the one in the middle.
fn telling(numbers: impl Iterator<Item = f32>, own: f32) -> Vec<f32> {
    let mut off: Vec<f32> =
        numbers.map(|number| number - own).filter(|off| off.abs() > 0.0).collect();
    let up = off.iter().filter(|off| **off > 0.0).count();
    let side = if 2 * up >= off.len() { 1.0 } else { -1.0 };
    off.retain(|off| off * side > 0.0);
    off.sort_unstable_by(|one, two| (one * side).total_cmp(&(two * side)));
    match off[..] {
        [] => Vec::new(),
        _ => vec![own + off[off.len() - 1], own + off[off.len() / 2]],
    }
}

/// The commonest codes beside the own one.
fn commonest(codes: impl Iterator<Item = u16>, own: Cell) -> Vec<Cell> {
    let mut counts: Vec<(u16, usize)> = Vec::new();
    let other = |code: &u16| {
        !matches!(*code, NULL_POINT | UNSEEN_POINT) && Cell::Code(u32::from(*code)) != own
    };
    for code in codes.filter(other) {
        match counts.iter_mut().find(|(known, _)| *known == code) {
            Some((_, count)) => *count += 1,
            None => counts.push((code, 1)),
        }
    }
    // Of equally common ones that of the nearer neighbour.
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts.iter().take(VALUES).map(|(code, _)| Cell::Code(u32::from(*code))).collect()
}
