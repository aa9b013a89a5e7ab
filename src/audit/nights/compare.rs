//! Two runs beside the rows that both are about.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;

use super::causes::Causes;
use super::groups::Groups;
use super::results::{RecordedResult, RecordedResults, ResultSetup, Slice};
use crate::error::{Error, Result};
use crate::explain::{CurrentRows, Recheck};
use crate::feature::{Cell, Edit, Edits, numbers};
use crate::job::Target;
use crate::metrics::Status;
use crate::predictor::{Outcome, Predictor, Task};
use crate::report::column;

/// Costs that differ by less than this share are the same: they are sums, made in another order.
const SAME_COST: f64 = 1e-9;

/// The model, and how often it may be asked.
pub struct Asking {
    /// The model.
    pub predictor: Arc<dyn Predictor>,
    /// What it should decide.
    pub target: Target,
    /// Share of the previous counterfactuals that it is asked about, chosen by key.
    pub share: f64,
}

/// Compares runs, row by row.
pub struct RunComparison {
    /// How both runs' tables are read.
    pub setup: ResultSetup,
    /// What changed between them.
    pub causes: Causes,
    /// Makes changes once more.
    pub recheck: Recheck,
    /// The model.
    pub asking: Asking,
}

/// Both runs in memory: a slice of all keys.
pub struct Nights {
    /// The previous run.
    pub before: RecordedResults,
    /// This run.
    pub now: RecordedResults,
    /// Which keys.
    pub slice: Slice,
}

impl Nights {
    /// Targets of what only the previous run has: keys that this run has no counterfactual for.
    pub fn vanished(&self) -> impl Iterator<Item = u32> + '_ {
        let gone = self.before.entries.iter().filter(|entry| !self.now.knows(entry.key));
        gone.map(|entry| entry.target)
    }
}

/// What became of a row and target.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// The row, in its batch.
    pub row: u32,
    /// Number of the target.
    pub target: u32,
    /// What changed.
    pub cause: &'static str,
    /// What became of it in the previous run; none if it had another target there.
    pub previous_status: Option<Status>,
    /// What becomes of it now.
    pub status: Status,
    /// Whether there was a valid counterfactual that was needed.
    pub yesterday_valid: bool,
    /// Whether its changes still get the decision.
    pub still_valid: Option<bool>,
    /// Whether they are still allowed.
    pub still_allowed: Option<bool>,
    /// Whether the decision about the row is another.
    pub decision_flip: bool,
    /// Whether both counterfactuals change the same features.
    pub same_features: Option<bool>,
    /// Whether they change them to the same values.
    pub same_answer: Option<bool>,
    /// Features that both change ÷ features that either does.
    pub jaccard: Option<f64>,
    /// What the previous counterfactual cost.
    pub previous_cost: Option<f64>,
    /// What its changes cost now.
    pub carried_cost: Option<f64>,
    /// What the counterfactual costs now.
    pub cost: Option<f64>,
    /// Whether it changed without need.
    pub needless: Option<bool>,
    /// Whether the row made the changes in vain.
    pub broken_promise: bool,
}

impl Compared {
    /// Whether a counterfactual was needed in either run.
    pub fn needed(&self) -> bool {
        let before = self.previous_status.is_some_and(|status| status != Status::AlreadyTarget);
        before || self.status != Status::AlreadyTarget
    }

    /// How much more it costs now.
    pub fn cost_delta(&self) -> Option<f64> {
        self.jaccard?;
        Some(self.cost? - self.previous_cost?)
    }
}

/// A row and target that both runs have.
struct MatchedRow<'a> {
    row: u32,
    now: &'a RecordedResult,
    /// What the previous run says of the row …
    row_before: &'a RecordedResult,
    /// … and of the target.
    before: Option<&'a RecordedResult>,
}

/// Changes of the previous run that were made once more.
#[derive(Default, Clone, Copy)]
struct Carried {
    valid: Option<bool>,
    allowed: bool,
    cost: f64,
    met: bool,
}

impl RunComparison {
    /// Compares the rows of a batch, with the columns that divide them; adds to the counts of groups.
    ///
    /// # Errors
    /// When the model as a whole fails.
    pub fn compare(
        &self,
        nights: &Nights,
        (key, batch): (&RecordBatch, &RecordBatch),
        segments: &[ArrayRef],
        groups: &mut Groups,
    ) -> Result<Vec<Compared>> {
        let hashes = self.setup.hashes(key)?;
        let mut numbers = groups.of(segments)?;
        numbers[0].resize(batch.num_rows(), 0);
        let of_row = |row: u32| numbers.iter().map(move |column| column[row as usize]);
        let mut pairs: Vec<MatchedRow<'_>> = Vec::new();
        for (row, hash) in (0u32..).zip(&hashes) {
            if !nights.slice.has(*hash) {
                continue;
            }
            let before: Vec<&RecordedResult> = nights.before.of(*hash).collect();
            let mut now: Vec<&RecordedResult> = nights.now.of(*hash).collect();
            now.sort_unstable_by_key(|entry| entry.target);
            for now in now {
                let same = before.iter().find(|entry| entry.target == now.target).copied();
                match before.first() {
                    None => groups.appear(of_row(row), now.target),
                    Some(row_before) => {
                        pairs.push(MatchedRow { row, now, row_before, before: same });
                    }
                }
            }
        }
        let carried = self.carry(nights, batch, &pairs)?;
        let compared = pairs.iter().zip(&carried);
        let compared: Vec<Compared> =
            compared.map(|(pair, carried)| self.compared(nights, pair, *carried)).collect();
        compared.iter().for_each(|of| groups.add(of_row(of.row), of));
        Ok(compared)
    }

    /// Makes the previous changes of rows once more; nothing for rows without.
    fn carry(
        &self,
        nights: &Nights,
        batch: &RecordBatch,
        pairs: &[MatchedRow<'_>],
    ) -> Result<Vec<Option<Carried>>> {
        let mut found = vec![None; pairs.len()];
        let promised = pairs
            .iter()
            .enumerate()
            .filter_map(|(index, pair)| Some((index, pair.before?.counterfactual?)));
        let promised: Vec<(usize, u32)> = promised.collect();
        if promised.is_empty() {
            return Ok(found);
        }
        let rows: Vec<u32> = promised.iter().map(|(index, _)| pairs[*index].row).collect();
        let current = self.recheck.read(&taken(batch, rows)?)?;
        let changes: Vec<Edits> = (0..)
            .zip(&promised)
            .map(|(row, (_, counterfactual))| {
                edits(&nights.before, *counterfactual, (&current, row))
            })
            .collect();
        let remade = self.recheck.remake(&current, &changes)?;
        let asked = |(index, _): &(usize, u32)| self.asks(pairs[*index].now.key);
        let asked: Vec<u32> = (0u32..)
            .zip(&promised)
            .filter(|(_, promise)| asked(promise))
            .map(|(row, _)| row)
            .collect();
        let mut valid = vec![None; promised.len()];
        if !asked.is_empty() {
            let scores = self.asking.predictor.predict(&taken(&remade.features, asked.clone())?)?;
            let ranges = self.ranges(batch)?;
            for (at, row) in asked.into_iter().enumerate() {
                let MatchedRow { row: input, now, .. } = pairs[promised[row as usize].0];
                let range = ranges.as_ref().map(|ranges| ranges[input as usize]);
                valid[row as usize] = Some(self.holds(&scores.outcome, at, (now.target, range)));
            }
        }
        for (row, (index, _)) in promised.into_iter().enumerate() {
            found[index] = Some(Carried {
                valid: valid[row],
                allowed: remade.allowed[row],
                cost: remade.costs[row],
                met: changes[row].is_empty(),
            });
        }
        Ok(found)
    }

    /// Whether the model is asked about a row.
    fn asks(&self, key: u128) -> bool {
        self.asking.share >= 1.0 || ((key >> 64) as u64 as f64) < self.asking.share * 2f64.powi(64)
    }

    /// The target range of each row of a regression; none for classes.
    fn ranges(&self, batch: &RecordBatch) -> Result<Option<Vec<(f64, f64)>>> {
        let rows = batch.num_rows();
        match (self.asking.predictor.task(), &self.asking.target) {
            (Task::Regression, Target::Range { low, high }) => Ok(Some(vec![(*low, *high); rows])),
            (Task::Regression, Target::Column { name, tolerance }) => {
                let values = numbers(column(batch, name)?)?;
                // A row without a target was rejected.
                let range = |value: Option<f64>| {
                    let value = value.unwrap_or(f64::NAN);
                    (value - tolerance, value + tolerance)
                };
                Ok(Some(values.iter().map(range).collect()))
            }
            _ => Ok(None),
        }
    }

    /// Whether the model's prediction for a row is the target. A row that it fails on does not hold.
    fn holds(
        &self,
        outcome: &Outcome,
        row: usize,
        (target, range): (u32, Option<(f64, f64)>),
    ) -> bool {
        match (outcome, self.asking.predictor.task()) {
            (Outcome::Classes { labels, .. }, Task::Classification { classes, .. }) => {
                let target = self.setup.targets.get(target as usize);
                classes.get(labels[row] as usize).is_some_and(|class| Some(class) == target)
            }
            (Outcome::Values(values), _) => {
                range.is_some_and(|(low, high)| (low..=high).contains(&values[row]))
            }
            _ => false,
        }
    }

    fn compared(
        &self,
        nights: &Nights,
        pair: &MatchedRow<'_>,
        carried: Option<Carried>,
    ) -> Compared {
        let MatchedRow { row, now, row_before, before } = *pair;
        let promised = before.filter(|entry| entry.counterfactual.is_some());
        let both = promised.and_then(|before| before.counterfactual).zip(now.counterfactual);
        let flip = now.decision != row_before.decision;
        let same = both.map(|(before, now)| sameness(nights, before, now));
        let known = |cost: f64| (!cost.is_nan()).then_some(cost);
        let needless = same.zip(carried).and_then(|(same, carried)| {
            let cheap = carried.cost <= now.cost * (1.0 + SAME_COST);
            Some(carried.valid? && carried.allowed && cheap && !same.counterfactual)
        });
        Compared {
            row,
            target: now.target,
            cause: self.causes.of(now.row == row_before.row, !flip),
            previous_status: before.map(|entry| entry.status),
            status: now.status,
            yesterday_valid: promised.is_some(),
            still_valid: carried.and_then(|carried| carried.valid),
            still_allowed: carried.map(|carried| carried.allowed),
            decision_flip: flip,
            same_features: same.map(|same| same.features),
            same_answer: same.map(|same| same.counterfactual),
            jaccard: same.map(|same| same.jaccard),
            previous_cost: promised.and_then(|before| known(before.cost)),
            carried_cost: carried.map(|carried| carried.cost),
            cost: now.counterfactual.and(known(now.cost)),
            needless,
            broken_promise: now.needed() && carried.is_some_and(|carried| carried.met),
        }
    }
}

/// How alike two counterfactuals are.
#[derive(Debug, Clone, Copy)]
struct Sameness {
    features: bool,
    counterfactual: bool,
    jaccard: f64,
}

fn sameness(nights: &Nights, before: u32, now: u32) -> Sameness {
    let words = nights.before.changed(before).iter().zip(nights.now.changed(now));
    let (mut common, mut all) = (0, 0);
    for (before, now) in words {
        common += (before & now).count_ones();
        all += (before | now).count_ones();
    }
    let value = |feature: &usize| {
        let before = nights.before.rows.cell(*feature, before as usize);
        before == nights.now.rows.cell(*feature, now as usize)
    };
    let features = common == all;
    Sameness {
        features,
        counterfactual: features && nights.before.features(before).all(|feature| value(&feature)),
        // Two that change nothing are alike.
        jaccard: if all == 0 { 1.0 } else { f64::from(common) / f64::from(all) },
    }
}

/// The changes of a counterfactual that a row has not made yet.
fn edits(
    results: &RecordedResults,
    counterfactual: u32,
    (current, row): (&CurrentRows, usize),
) -> Edits {
    let open = |feature: &usize| !is_made(results, counterfactual, (current, row), *feature);
    let edit =
        |feature| Edit { feature, cell: results.rows.cell(feature, counterfactual as usize) };
    results.features(counterfactual).filter(open).map(edit).collect()
}

/// Whether a row has made a change of a counterfactual: a number may have gone further.
fn is_made(
    results: &RecordedResults,
    counterfactual: u32,
    (current, row): (&CurrentRows, usize),
    feature: usize,
) -> bool {
    let target_class = results.rows.cell(feature, counterfactual as usize);
    match (current.rows.cell(feature, row), target_class) {
        (Cell::Number(is), Cell::Number(target_class))
            if results.rises(counterfactual, feature) =>
        {
            is >= target_class
        }
        (Cell::Number(is), Cell::Number(target_class)) => is <= target_class,
        (is, target_class) => is == target_class,
    }
}

fn taken(batch: &RecordBatch, rows: Vec<u32>) -> Result<RecordBatch> {
    take_record_batch(batch, &UInt32Array::from(rows))
        .map_err(|error| Error::internal("audit", "rows cannot be taken").source(error))
}
