//! Requests: the target of each row and how many counterfactuals are to be found for it; and what the generator
//! proposes for them.

use std::time::Instant;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::explained::ExplainedRows;
use super::refine::{RequestBatch, hash_of};
use super::valid_rows::ValidRows;
use super::{ExplainStats, Explainer, Stage, Worker, take};
use crate::constrain::Conditions;
use crate::error::{Error, Result};
use crate::feature::Rows;
use crate::job::{FirstConditions, Target};
use crate::metrics::Status;
use crate::nn::GeneratorInput;
use crate::predictor::{Outcome, Task};
use crate::target::{Targets, is_valid};

/// How the target of a row is determined.
#[derive(Debug, Clone)]
pub(super) enum TargetRule {
    /// This class.
    Class(u32),
    /// The other class of two.
    Flip,
    /// Every class but the one that the model decided, of so many.
    Every(u32),
    /// The value of a column; for a regression with this tolerance.
    Column(f64),
    /// A value between these.
    Range(f64, f64),
}

impl TargetRule {
    pub(super) fn new(target: &Target, task: &Task) -> Result<TargetRule> {
        let classes = match task {
            Task::Classification { classes, .. } => &classes[..],
            Task::Regression => &[],
        };
        Ok(match target {
            Target::Class(name) => {
                let found = (0u32..).zip(classes).find(|(_, class)| *class == name);
                let unknown = || Error::spec("target.class", format!("is `{name}`, no class"));
                TargetRule::Class(found.ok_or_else(unknown)?.0)
            }
            Target::Flip => TargetRule::Flip,
            Target::Every => TargetRule::Every(classes.len() as u32),
            Target::Column { tolerance, .. } => TargetRule::Column(*tolerance),
            Target::Range { low, high } => TargetRule::Range(*low, *high),
        })
    }

    /// The most targets that a row may have.
    pub(super) fn targets_per_row(&self) -> usize {
        if let TargetRule::Every(classes) = self { *classes as usize } else { 1 }.max(1)
    }

    /// How far from a target value still counts.
    pub(super) fn tolerance(&self) -> f64 {
        if let TargetRule::Column(tolerance) = self { *tolerance } else { 0.0 }
    }
}

/// Requests for one counterfactual each.
pub(super) struct Requests {
    /// Index of each request's valid row, ascending.
    rows: Vec<u32>,
    targets: Targets,
    /// 0 for the first of a row and target.
    draws: Vec<u32>,
    /// The status of requests that need no search.
    settled: Vec<Option<Status>>,
    widest: Conditions,
}

impl Explainer {
    /// The requests for valid rows.
    pub(super) fn requests(&self, valid_rows: &ValidRows) -> Result<Requests> {
        let (rows, targets) = self.targets(valid_rows)?;
        let met = is_valid(&valid_rows.scores.take(&rows), &targets);
        let widest = self.constraints.widest(&valid_rows.rows, &valid_rows.bounds);
        let movable = self.constraints.movable(&widest, &valid_rows.rows, &valid_rows.bounds);
        let settled = |(row, met): (&u32, &bool)| match (met, movable[*row as usize]) {
            (true, _) => Some(Status::AlreadyTarget),
            (false, false) => Some(Status::Infeasible),
            (false, true) => None,
        };
        let settled: Vec<Option<Status>> = rows.iter().zip(&met).map(settled).collect();
        let draws = vec![0; rows.len()];
        let requests = Requests { rows, targets, draws, settled, widest };
        Ok(if self.samples > 1 { requests.repeated(self.samples) } else { requests })
    }

    /// One target a row, or one for every other class.
    fn targets(&self, valid_rows: &ValidRows) -> Result<(Vec<u32>, Targets)> {
        let all: Vec<u32> = (0..valid_rows.rows.len as u32).collect();
        let decided = match &valid_rows.scores.outcome {
            Outcome::Classes { labels, .. } => &labels[..],
            Outcome::Values(_) => &[],
        };
        Ok(match (&self.target_rule, &valid_rows.targets) {
            (TargetRule::Column(_), Some(targets)) => (all, targets.clone()),
            (TargetRule::Class(class), _) => {
                let classes = vec![*class; all.len()];
                (all, self.codec.labels(classes))
            }
            (TargetRule::Flip, _) => {
                let classes = decided.iter().map(|class| 1 - class).collect();
                (all, self.codec.labels(classes))
            }
            (TargetRule::Every(classes), _) => {
                let pairs = all.iter().flat_map(|row| {
                    let decided = decided[*row as usize];
                    (0..*classes).filter(move |class| *class != decided).map(|class| (*row, class))
                });
                let (rows, classes) = pairs.unzip();
                (rows, self.codec.labels(classes))
            }
            (TargetRule::Range(low, high), _) => {
                let ranges =
                    Targets::Ranges { low: vec![*low; all.len()], high: vec![*high; all.len()] };
                (all, ranges)
            }
            (TargetRule::Column(_), None) => {
                return Err(Error::internal("target", "its column was not read"));
            }
        })
    }

    /// c of requests: as the job says for the first of a row and target, drawn by the row's key for the others.
    fn conditions(&self, requests: &Requests, open: &[u32], valid_rows: &ValidRows) -> Conditions {
        let rows = requests.rows_of(open);
        let widest = requests.widest.take(&rows);
        let first_too = self.conditions == FirstConditions::Drawn;
        if self.samples == 1 && !first_too {
            return widest;
        }
        let seeds = self.seeds(requests, open, valid_rows);
        let random = |index: usize| {
            let drawn = first_too || requests.draws[open[index] as usize] > 0;
            drawn.then(|| ChaCha8Rng::seed_from_u64(seeds[index]))
        };
        self.constraints.draw_some(&widest, &valid_rows.rows.take(&rows), random)
    }

    /// Seeds of requests, from the row's key, the number of the sample and the target.
    fn seeds(&self, requests: &Requests, open: &[u32], valid_rows: &ValidRows) -> Vec<u64> {
        let seed = self.streams.seed_of("samples");
        let seed_of = |request: &u32| {
            let request = *request as usize;
            let class = requests.targets.classes().map_or(0, |classes| classes[request]);
            let mut bytes = [0; 24];
            let hash = valid_rows.hashes[requests.rows[request] as usize];
            bytes[..16].copy_from_slice(&hash.to_le_bytes());
            bytes[16..20].copy_from_slice(&requests.draws[request].to_le_bytes());
            bytes[20..].copy_from_slice(&class.to_le_bytes());
            xxh3_64_with_seed(&bytes, seed)
        };
        open.iter().map(seed_of).collect()
    }

    /// The open requests as the refiner needs them.
    fn batch(
        &self,
        requests: &Requests,
        open: &[u32],
        valid_rows: &ValidRows,
    ) -> Result<RequestBatch> {
        let rows = requests.rows_of(open);
        let originals = valid_rows.rows.take(&rows);
        let seed = self.streams.seed_of("refine");
        Ok(RequestBatch {
            // By what a row says, not by its key: the same row gets the same counterfactual, also in SQL.
            seeds: (0..originals.len).map(|row| hash_of(&originals, row) as u64 ^ seed).collect(),
            originals,
            before: take(&valid_rows.originals, &rows)?,
            targets: requests.targets.take(open),
            decided: valid_rows.scores.take(&rows),
            conditions: self.conditions(requests, open, valid_rows),
            bounds: valid_rows.bounds.take(&rows),
            draws: open.iter().map(|request| requests.draws[*request as usize]).collect(),
        })
    }
}

impl Requests {
    /// Repeats every open request.
    fn repeated(self, samples: usize) -> Requests {
        let times =
            |request: usize| if self.settled[request].is_none() { samples as u32 } else { 1 };
        let copies = (0..self.rows.len())
            .flat_map(|request| (0..times(request)).map(move |draw| (request as u32, draw)));
        let (copied, draws): (Vec<u32>, Vec<u32>) = copies.unzip();
        Requests {
            rows: copied.iter().map(|copy| self.rows[*copy as usize]).collect(),
            targets: self.targets.take(&copied),
            settled: copied.iter().map(|copy| self.settled[*copy as usize]).collect(),
            draws,
            widest: self.widest,
        }
    }

    /// All requests but the open ones for which `keep` is false.
    fn retained(&self, open: &[u32], keep: &[bool]) -> Vec<u32> {
        let mut gone =
            open.iter().zip(keep).filter(|(_, keep)| !**keep).map(|(request, _)| *request);
        let mut next = gone.next();
        let mut retained = Vec::with_capacity(self.rows.len());
        for request in 0..self.rows.len() as u32 {
            if next == Some(request) {
                next = gone.next();
            } else {
                retained.push(request);
            }
        }
        retained
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Index of each request's valid row, ascending.
    pub(super) fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// The same of some requests.
    pub(super) fn rows_of(&self, requests: &[u32]) -> Vec<u32> {
        requests.iter().map(|request| self.rows[*request as usize]).collect()
    }

    pub(super) fn targets_of(&self, requests: &[u32]) -> Targets {
        self.targets.take(requests)
    }

    /// The requests that need a search.
    pub(super) fn open(&self) -> Vec<u32> {
        let open = |request: &u32| self.settled(*request).is_none();
        (0..self.len() as u32).filter(open).collect()
    }

    /// The status of a request that needs no search.
    pub(super) fn settled(&self, request: u32) -> Option<Status> {
        self.settled[request as usize]
    }
}

impl Worker {
    /// Finds counterfactuals for requests, and what the model says about them.
    pub(super) fn find(
        &self,
        valid_rows: &ValidRows,
        requests: Requests,
        stats: &mut ExplainStats,
    ) -> Result<ExplainedRows> {
        let shared = &self.shared;
        let open = requests.open();
        let batch = shared.batch(&requests, &open, valid_rows)?;
        let generated = self.generate(&batch, stats)?;
        let mut outcomes = self.refine(&batch, &generated, stats)?;
        let mut clock = Instant::now();
        shared.guard(&outcomes.rows, &batch.originals, &batch.bounds)?;
        let retained = requests.retained(&open, &outcomes.distinct(&batch.draws));
        let explained = shared.assemble(valid_rows, &requests, outcomes, &retained)?;
        stats.clock(Stage::Measure, &mut clock);
        Ok(explained)
    }

    /// The generator's proposals after post-processing; the originals if the generator is not used.
    fn generate(&self, batch: &RequestBatch, stats: &mut ExplainStats) -> Result<Rows> {
        let (shared, rows) = (&self.shared, &batch.originals);
        if rows.len == 0 || !shared.refiner.asks_generator() {
            return Ok(rows.clone());
        }
        let mut clock = Instant::now();
        let decoded = self.generator.generate_batch(&GeneratorInput {
            rows: &shared.encoder.encode_rows(rows),
            decisions: &shared.codec.decisions(&batch.decided)?,
            targets: &shared.codec.encode_targets(&batch.targets),
            conditions: &batch.conditions,
            nudges: None,
        })?;
        let found =
            shared.constraints.post_process(&decoded, rows, &batch.conditions, &batch.bounds);
        stats.clock(Stage::Generate, &mut clock);
        Ok(found)
    }
}
