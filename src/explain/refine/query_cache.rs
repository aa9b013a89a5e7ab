//! The requests that are being refined, the model's prediction for every proposal so far, and how many queries are left
//! for each request. A proposal that was predicted before costs no query, so that no step needs to remember its own.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Instant;

use arrow::array::RecordBatch;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::margin::RequiredMargins;
use super::robust::RobustChecks;
use super::{Change, Changes, Proposal};
use crate::constrain::{Conditions, FeasibleSet, RowBounds};
use crate::error::{Error, Result};
use crate::explain::explained::Finding;
use crate::explain::{Stage, StageSeconds, Worker, take};
use crate::feature::{Cell, Rows};
use crate::metrics::Status;
use crate::predictor::{
    Ended, Goal, Outcome, Reach, Region, Responses, Scores, Search, Variant, Variants, Verdict,
};
use crate::stop;
use crate::target::{Targets, is_valid, margins};

/// Proposals that the model is asked about at once: more would not be faster, only larger.
const MOST_AT_ONCE: usize = 16_384;
/// Proposals about a request that there is room for at first.
const USUAL_PROPOSALS: usize = 16;

/// Requests for one counterfactual each, as the refiner needs them.
pub(in crate::explain) struct RequestBatch {
    /// The rows as they were read.
    pub(in crate::explain) originals: Rows,
    /// The same in the table's types.
    pub(in crate::explain) before: RecordBatch,
    /// Their targets.
    pub(in crate::explain) targets: Targets,
    /// What the model decided about them.
    pub(in crate::explain) decided: Scores,
    /// What may change …
    pub(in crate::explain) conditions: Conditions,
    /// … and the rows' own bounds.
    pub(in crate::explain) bounds: RowBounds,
    /// Seeds of their random numbers.
    pub(in crate::explain) seeds: Vec<u64>,
    /// 0 for the first of a row and target, which may change all that is allowed.
    pub(in crate::explain) draws: Vec<u32>,
}

/// Index of a prediction among all of a cache.
pub(in crate::explain) type PredictionIndex = u32;

/// Requests, and predictions for their proposals.
pub(in crate::explain) struct QueryCache<'a> {
    pub(in crate::explain) worker: &'a Worker,
    pub(in crate::explain) batch: &'a RequestBatch,
    /// Times that the model was asked, by request.
    pub(super) queries: Vec<u32>,
    /// Requests whose refinement was cut short by the clock.
    pub(super) cut_short: Vec<bool>,
    /// Requests for which it is proven that nothing reaches the target …
    pub(super) impossible: Vec<bool>,
    /// … and those whose search ended before it was over.
    pub(super) unsearched: Vec<bool>,
    /// Whether the clock counts: the first counterfactuals are asked for in any case.
    pub(super) refining: bool,
    /// Seconds that the model took.
    model_seconds: f64,
    budget: u32,
    deadline: Option<Instant>,
    cached: HashMap<(u32, u64), PredictionIndex>,
    scores: Scores,
    /// Whether counterfactuals are what their requests are held to.
    pub(super) valid: Vec<bool>,
    /// What reaches the target, but is less plausible than a counterfactual must be.
    implausible: Vec<bool>,
    shares: Vec<f32>,
    pub(super) required: RequiredMargins,
    /// What models beside the predictor say.
    pub(super) robust: RobustChecks<'a>,
    /// What takes single cells, if the model can.
    variants: Option<Box<dyn Variants + 'a>>,
}

impl<'a> QueryCache<'a> {
    pub(in crate::explain) fn new(
        worker: &'a Worker,
        batch: &'a RequestBatch,
    ) -> Result<QueryCache<'a>> {
        let requests = batch.originals.len;
        let refiner = &worker.shared.refiner;
        Ok(QueryCache {
            worker,
            batch,
            queries: vec![0; requests],
            cut_short: vec![false; requests],
            impossible: vec![false; requests],
            unsearched: vec![false; requests],
            refining: false,
            model_seconds: 0.0,
            budget: refiner.job.queries_per_row,
            deadline: refiner.deadline,
            cached: HashMap::with_capacity(requests * USUAL_PROPOSALS),
            scores: Scores::empty(worker.shared.predictor.task()),
            valid: Vec::new(),
            implausible: Vec::new(),
            shares: Vec::new(),
            required: RequiredMargins::new(worker, requests),
            robust: RobustChecks::new(worker, (&batch.before, requests))?,
            variants: worker.shared.predictor.variants(&batch.before)?,
        })
    }

    /// Searches what a request's row may become for what reaches its target; counts as one question. None where the
    /// model shows no bounds, or nothing more may be asked.
    pub(super) fn search(
        &mut self,
        request: u32,
        reach: &[Reach],
        (trees, accept): (usize, Accept<'_, 'a>),
    ) -> Result<Option<Ended>> {
        // The model, which looks for requests to stop, is not asked in between.
        stop::check()?;
        let late = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        self.cut_short[request as usize] |= late;
        if self.is_spent(request) {
            return Ok(None);
        }
        let Some(mut variants) = self.variants.take() else { return Ok(None) };
        let goal = goal(&self.batch.targets, request as usize);
        let began = Instant::now();
        let cache: &QueryCache<'a> = self;
        let mut accept = |region: &Region| accept(cache, region);
        let search = Search { trees, accept: &mut accept };
        let copy = Variant { row: request, edits: &[] };
        let searched = variants.search((&copy, reach), goal, search);
        self.model_seconds += began.elapsed().as_secs_f64();
        self.variants = Some(variants);
        let searched = searched?;
        self.queries[request as usize] += u32::from(searched.is_some());
        Ok(searched.map(|searched| searched.ended))
    }

    /// Requests.
    pub(in crate::explain) fn len(&self) -> usize {
        self.batch.originals.len
    }

    /// What a request's row may become.
    pub(in crate::explain) fn feasible(&self, request: u32) -> FeasibleSet<'a> {
        let RequestBatch { conditions, bounds, .. } = self.batch;
        self.worker.shared.constraints.feasible(conditions, bounds, request as usize)
    }

    /// A value of a request's row as it is.
    pub(in crate::explain) fn original(&self, request: u32, feature: usize) -> Cell {
        self.batch.originals.cell(feature, request as usize)
    }

    /// Times that the model may still be asked about a request.
    pub(in crate::explain) fn left(&self, request: u32) -> u32 {
        self.budget - self.queries[request as usize]
    }

    /// Whether nothing more can be asked about a request: for want of questions, or of time.
    pub(in crate::explain) fn is_spent(&self, request: u32) -> bool {
        self.left(request) == 0 || self.cut_short[request as usize]
    }

    /// Whether a counterfactual is what its request wants, with the margin that it is held to, and as plausible as it
    /// must be.
    pub(super) fn is_valid(&self, prediction: PredictionIndex) -> bool {
        self.valid[prediction as usize]
    }

    /// Whether a counterfactual is refused for nothing but its plausibility.
    pub(super) fn is_implausible(&self, prediction: PredictionIndex) -> bool {
        self.implausible[prediction as usize]
    }

    /// Whether the model has said nothing of a proposal.
    pub(super) fn has_failed(&self, prediction: PredictionIndex) -> bool {
        let failures = &self.scores.failures;
        failures.binary_search_by_key(&(prediction as usize), |failure| failure.row).is_ok()
    }

    /// How near a counterfactual is to what its request wants, where the model gives one: the target class's
    /// probability.
    pub(super) fn share(&self, prediction: PredictionIndex) -> Option<f32> {
        Some(self.shares[prediction as usize]).filter(|share| !share.is_nan())
    }

    /// The predictions with these indexes.
    pub(in crate::explain) fn scores(&self, predictions: &[PredictionIndex]) -> Scores {
        self.scores.take(predictions)
    }

    /// The prediction of a proposal that was predicted before.
    pub(in crate::explain) fn cached(
        &self,
        request: u32,
        changes: &[Change],
    ) -> Option<PredictionIndex> {
        self.cached.get(&(request, hash(changes))).copied()
    }

    /// What the model says of proposals; none where one breaks a rule between features, or a request's budget, or
    /// the time, is used up.
    pub(super) fn predict(
        &mut self,
        proposals: &[Proposal],
    ) -> Result<Vec<Option<PredictionIndex>>> {
        let found = self.predict_unprobed(proposals)?;
        if self.required.probes {
            self.probe(proposals, &found)?;
        }
        Ok(found)
    }

    /// The same, without a look at what is near to them.
    pub(in crate::explain) fn predict_unprobed(
        &mut self,
        proposals: &[Proposal],
    ) -> Result<Vec<Option<PredictionIndex>>> {
        let over = |deadline: Instant| Instant::now() >= deadline;
        let late = self.refining && self.deadline.is_some_and(over);
        let (constraints, batch) = (&self.worker.shared.constraints, self.batch);
        let incoherent = |proposal: &Proposal| {
            let row = proposal.request as usize;
            let original = |feature: usize| batch.originals.cell(feature, row);
            !constraints.is_coherent(&proposal.changes, original)
        };
        let mut fresh: Vec<u32> = Vec::with_capacity(proposals.len());
        let mut found = Vec::with_capacity(proposals.len());
        for (index, proposal) in (0u32..).zip(proposals) {
            let next = (self.scores.rows + fresh.len()) as PredictionIndex;
            let queries = &mut self.queries[proposal.request as usize];
            found.push(match self.cached.entry((proposal.request, hash(&proposal.changes))) {
                Entry::Occupied(known) => Some(*known.get()),
                // What breaks a rule is no counterfactual, whatever the model says.
                Entry::Vacant(_) if incoherent(proposal) => None,
                Entry::Vacant(_) if late => {
                    self.cut_short[proposal.request as usize] = true;
                    None
                }
                Entry::Vacant(_) if *queries >= self.budget => None,
                Entry::Vacant(new) => {
                    new.insert(next);
                    *queries += 1;
                    fresh.push(index);
                    Some(next)
                }
            });
        }
        for some in fresh.chunks(MOST_AT_ONCE) {
            self.query(proposals, some)?;
        }
        Ok(found)
    }

    /// Asks the model about some of the proposals.
    fn query(&mut self, proposals: &[Proposal], some: &[u32]) -> Result<()> {
        let proposals: Vec<&Proposal> =
            some.iter().map(|index| &proposals[*index as usize]).collect();
        let requests: Vec<u32> = proposals.iter().map(|proposal| proposal.request).collect();
        let scores = self.ask(None, &proposals, &requests)?;
        let shared = &self.worker.shared;
        let targets = self.batch.targets.take(&requests);
        let reached = is_valid(&scores, &targets);
        let implausible = shared.implausible(
            || self.changed(&proposals, &self.batch.originals.take(&requests)),
            &reached,
        );
        let both = reached.into_iter().zip(&implausible);
        let decides: Vec<bool> =
            both.map(|(reached, implausible)| reached && !implausible).collect();
        let margins = margins(&scores, &targets, &shared.codec);
        self.query_robust(&proposals, &decides)?;
        let valid = self.required.record(&requests, decides, margins);
        let valid = self.record_robust(&proposals, valid);
        self.valid.extend(valid);
        self.implausible.extend(implausible);
        self.shares.extend(shares(&scores, &targets));
        self.scores.append(scores);
        Ok(())
    }

    /// Asks the predictor, or the model beside it with this index.
    pub(super) fn ask(
        &mut self,
        model: Option<usize>,
        proposals: &[&Proposal],
        requests: &[u32],
    ) -> Result<Scores> {
        let by_cells = match model {
            Some(model) => self.robust.variants(model).is_some(),
            None => self.variants.is_some(),
        };
        match by_cells {
            true => self.query_by_cells(model, proposals),
            false => self.query_by_rows(model, proposals, requests),
        }
    }

    /// Asks about the cells that proposals change, which a model can be asked about without a batch of whole rows.
    fn query_by_cells(&mut self, model: Option<usize>, proposals: &[&Proposal]) -> Result<Scores> {
        let (constraints, originals) = (&self.worker.shared.constraints, &self.batch.originals);
        let all: Vec<Cow<'_, [Change]>> = proposals
            .iter()
            .map(|proposal| {
                let original = |feature: usize| originals.cell(feature, proposal.request as usize);
                let followed = constraints.follow(&proposal.changes, original);
                followed.unwrap_or(Cow::Borrowed(&proposal.changes))
            })
            .collect();
        let copies = proposals.iter().zip(&all);
        let copies: Vec<Variant<'_>> =
            copies.map(|(proposal, edits)| Variant { row: proposal.request, edits }).collect();
        let began = Instant::now();
        let variants = match model {
            Some(model) => self.robust.variants(model),
            None => self.variants.as_deref_mut(),
        };
        let scores = variants.map(|variants| variants.predict(&copies));
        self.add_model_time(began);
        scores.unwrap_or_else(|| Err(Error::internal("refining", "the model takes no cells")))
    }

    /// Asks about whole rows in the table's types.
    fn query_by_rows(
        &mut self,
        model: Option<usize>,
        proposals: &[&Proposal],
        requests: &[u32],
    ) -> Result<Scores> {
        let shared = &self.worker.shared;
        let predictor = model.map_or(&shared.predictor, |model| shared.robust.predictor(model));
        let originals = self.batch.originals.take(requests);
        let rows = self.changed(proposals, &originals);
        let before = take(&self.batch.before, requests)?;
        let batch = shared.writer.write(&rows, &originals, &before)?;
        let began = Instant::now();
        let scores = predictor.predict(&batch)?;
        self.add_model_time(began);
        Ok(scores)
    }

    /// The rows of proposals, from their originals.
    fn changed(&self, proposals: &[&Proposal], originals: &Rows) -> Rows {
        let mut rows = originals.clone();
        for (row, proposal) in proposals.iter().enumerate() {
            let original = |feature: usize| originals.cell(feature, row);
            self.worker.shared.constraints.apply(&mut rows, row, &proposal.changes, original);
        }
        rows
    }

    /// What the model would say of requests' rows with changes if one more feature changed, as far as it may; nothing
    /// of requests about which nothing more may be asked. None where the model does not show it. Each counts as one
    /// question.
    pub(super) fn responses(
        &mut self,
        rows: &[(u32, Changes, Vec<Reach>)],
    ) -> Result<Option<Vec<Option<Responses>>>> {
        let Some(variants) = self.variants.as_mut() else { return Ok(None) };
        let mut found: Vec<Option<Responses>> = vec![None; rows.len()];
        let left: Vec<usize> = (0..rows.len())
            .filter(|at| {
                let request = rows[*at].0 as usize;
                let left = self.queries[request] < self.budget && !self.cut_short[request];
                self.queries[request] += u32::from(left);
                left
            })
            .collect();
        let copies = left.iter().map(|at| {
            let (request, changes, reach) = &rows[*at];
            (Variant { row: *request, edits: changes }, &reach[..])
        });
        let copies: Vec<(Variant<'_>, &[Reach])> = copies.collect();
        let began = Instant::now();
        let shown = variants.responses(&copies)?;
        self.model_seconds += began.elapsed().as_secs_f64();
        let Some(shown) = shown else {
            left.iter().for_each(|at| self.queries[rows[*at].0 as usize] -= 1);
            return Ok(None);
        };
        left.into_iter().zip(shown).for_each(|(at, shown)| found[at] = Some(shown));
        Ok(Some(found))
    }

    /// Counts requests without a counterfactual by what kept them from one.
    pub(super) fn count_unsolved(&self, findings: &[Finding], into: &mut BTreeMap<String, u64>) {
        let mut implausible = vec![false; self.len()];
        for (request, refused) in self.required.requests().iter().zip(&self.implausible) {
            implausible[*request as usize] |= refused;
        }
        let unsolved = |finding: &Finding| finding.status == Status::Unsolved;
        let unsolved = (0u32..).zip(findings).filter(|(_, finding)| unsolved(finding));
        for (request, _) in unsolved {
            let cause = match request as usize {
                index if self.cut_short[index] => "time_spent",
                _ if self.left(request) == 0 => "questions_spent",
                index if implausible[index] => "implausible_only",
                index if self.unsearched[index] => "search_spent",
                _ => "nothing_left_to_try",
            };
            *into.entry(cause.to_string()).or_default() += 1;
        }
    }

    /// Adds the time since a moment to what models took.
    pub(super) fn add_model_time(&mut self, began: Instant) {
        self.model_seconds += began.elapsed().as_secs_f64();
    }

    /// Adds the time since a moment to two stages, what was our own work and what the model took.
    pub(super) fn record_time(
        &mut self,
        seconds: &mut StageSeconds,
        (work, model): (Stage, Stage),
        since: &mut Instant,
    ) {
        let took = std::mem::take(&mut self.model_seconds);
        seconds.clock(work, since);
        seconds.add_to(work, -took);
        seconds.add_to(model, took);
    }

    /// The row of a request with changes.
    pub(super) fn row(&self, request: u32, changes: &[Change]) -> Rows {
        let mut row = self.batch.originals.take(&[request]);
        for change in changes {
            row.set(change.feature, 0, change.cell);
        }
        row
    }

    /// Rows with changes, a request's own each.
    pub(super) fn rows<'c>(&self, changes: impl Iterator<Item = &'c Changes>) -> Rows {
        let mut rows = self.batch.originals.clone();
        for (row, changes) in changes.enumerate() {
            let original = |feature: usize| self.batch.originals.cell(feature, row);
            self.worker.shared.constraints.apply(&mut rows, row, changes, original);
        }
        rows
    }
}

/// Decides about regions that reach a target.
pub(super) type Accept<'f, 'a> = &'f mut dyn FnMut(&QueryCache<'a>, &Region) -> Verdict;

/// What the model should say of a request's row.
fn goal(targets: &Targets, request: usize) -> Goal {
    match targets {
        Targets::Classes { classes, .. } | Targets::Distributions { classes, .. } => {
            Goal::Class(classes[request])
        }
        Targets::Ranges { low, high } => Goal::Between(low[request], high[request]),
    }
}

/// A hash of changes; with the request's number as good as the row itself.
pub(super) fn hash(changes: &[Change]) -> u64 {
    let mut seed = changes.len() as u64;
    for change in changes {
        let bits = match change.cell {
            Cell::Number(number) => number.to_bits(),
            Cell::Code(code) => u64::from(code),
        };
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&(change.feature as u64).to_le_bytes());
        bytes[8..].copy_from_slice(&bits.to_le_bytes());
        seed = xxh3_64_with_seed(&bytes, seed);
    }
    seed
}

/// The target class's probability; NaN where the model gives none.
fn shares(scores: &Scores, targets: &Targets) -> Vec<f32> {
    match (&scores.outcome, targets.classes()) {
        (Outcome::Classes { probabilities: Some(all), .. }, Some(classes)) => {
            let width = all.len() / classes.len().max(1);
            let share = |(row, class): (usize, &u32)| all[row * width + *class as usize] as f32;
            classes.iter().enumerate().map(share).collect()
        }
        (Outcome::Values(values), None) => {
            let Targets::Ranges { low, high } = targets else {
                return vec![f32::NAN; values.len()];
            };
            let ends = low.iter().zip(high);
            // The nearer to the range, the greater.
            let off = |(value, (low, high)): (&f64, (&f64, &f64))| {
                let off = (low - value).max(value - high).max(0.0);
                // NaN is not near, though `max` would overlook it.
                if value.is_nan() { f32::NAN } else { -off as f32 }
            };
            values.iter().zip(ends).map(off).collect()
        }
        _ => vec![f32::NAN; scores.rows],
    }
}
