//! What is wanted of each row, how often it is asked for, and the generator's answers to it.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::time::Instant;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::admit::Usable;
use super::refine::{Asked, Outcomes, hash_of};
use super::{Explainer, Ledger, Stage, Worker, take};
use crate::constrain::{Conditions, RowBounds};
use crate::error::{Error, Result};
use crate::feature::Rows;
use crate::job::{FirstConditions, Target};
use crate::metrics::{Distances, Source, Status, distances};
use crate::nn::Request;
use crate::predictor::{Outcome, Scores, Task};
use crate::target::{Wishes, is_valid};
use arrow::array::RecordBatch;

/// What is wanted of every row.
#[derive(Debug, Clone)]
pub(super) enum Goal {
    /// This class.
    Class(u32),
    /// The other class of two.
    Flip,
    /// Every class but the row's own, of so many.
    Every(u32),
    /// What a column says, for a regression give or take.
    Column(f64),
    /// A value between these.
    Range(f64, f64),
}

impl Goal {
    pub(super) fn new(target: &Target, task: &Task) -> Result<Goal> {
        let classes = match task {
            Task::Classification { classes, .. } => &classes[..],
            Task::Regression => &[],
        };
        Ok(match target {
            Target::Class(name) => {
                let found = (0u32..).zip(classes).find(|(_, class)| *class == name);
                let unknown = || Error::spec("target.class", format!("is `{name}`, no class"));
                Goal::Class(found.ok_or_else(unknown)?.0)
            }
            Target::Flip => Goal::Flip,
            Target::Every => Goal::Every(classes.len() as u32),
            Target::Column { tolerance, .. } => Goal::Column(*tolerance),
            Target::Range { low, high } => Goal::Range(*low, *high),
        })
    }

    /// Wishes for a row, at most.
    pub(super) fn wishes(&self) -> usize {
        if let Goal::Every(classes) = self { *classes as usize } else { 1 }.max(1)
    }

    /// How far from a wanted value still counts.
    pub(super) fn tolerance(&self) -> f64 {
        if let Goal::Column(tolerance) = self { *tolerance } else { 0.0 }
    }
}

/// What is asked for: one counterfactual each.
pub(super) struct Entries {
    /// The usable row of each, ascending.
    rows: Vec<u32>,
    wishes: Wishes,
    /// 0 for the first of a row and wish.
    draws: Vec<u32>,
    /// What is known without asking.
    known: Vec<Option<Status>>,
    widest: Conditions,
}

/// What was asked for and what came of it, row by row of the table.
pub(super) struct Answers {
    /// The usable row of each.
    pub(super) rows: Vec<u32>,
    /// What was wanted.
    pub(super) wishes: Wishes,
    /// Number within the row.
    pub(super) samples: Vec<i32>,
    pub(super) status: Vec<Status>,
    /// What found the counterfactuals of solved rows.
    pub(super) source: Vec<Option<Source>>,
    pub(super) valid: Vec<bool>,
    /// The rows as they were.
    pub(super) originals: Rows,
    /// As they would have to be.
    pub(super) counterfactuals: Rows,
    /// The same in the table's types, before and after.
    pub(super) before: RecordBatch,
    pub(super) after: RecordBatch,
    /// What the model says before and after.
    pub(super) decided: Scores,
    pub(super) scores: Scores,
    pub(super) distances: Distances,
    /// What the changes of solved rows cost; NaN for others.
    pub(super) costs: Vec<f64>,
    /// How plausible they are; NaN where there is no answer, or nothing to compare with.
    pub(super) plausibility: Vec<f64>,
    /// Times that the model was asked.
    pub(super) queries: Vec<u32>,
    /// Whether it is proven that there is no answer.
    pub(super) certified: Vec<bool>,
    /// How far inside the target valid answers are; NaN where unknown.
    pub(super) margins: Vec<f64>,
}

impl Explainer {
    /// What is asked for about usable rows.
    pub(super) fn ask(&self, usable: &Usable) -> Result<Entries> {
        let (rows, wishes) = self.wishes(usable)?;
        let met = is_valid(&usable.scores.take(&rows), &wishes);
        let widest = self.constraints.widest(&usable.rows, &usable.bounds);
        let movable = self.constraints.movable(&widest, &usable.rows, &usable.bounds);
        let known = |(row, met): (&u32, &bool)| match (met, movable[*row as usize]) {
            (true, _) => Some(Status::AlreadyTarget),
            (false, false) => Some(Status::Infeasible),
            (false, true) => None,
        };
        let known: Vec<Option<Status>> = rows.iter().zip(&met).map(known).collect();
        let draws = vec![0; rows.len()];
        let entries = Entries { rows, wishes, draws, known, widest };
        Ok(if self.samples > 1 { entries.repeated(self.samples) } else { entries })
    }

    /// One wish a row, or one for every other class.
    pub(super) fn wishes(&self, usable: &Usable) -> Result<(Vec<u32>, Wishes)> {
        let all: Vec<u32> = (0..usable.rows.len as u32).collect();
        let own = match &usable.scores.outcome {
            Outcome::Classes { labels, .. } => &labels[..],
            Outcome::Values(_) => &[],
        };
        Ok(match (&self.goal, &usable.wanted) {
            (Goal::Column(_), Some(wanted)) => (all, wanted.clone()),
            (Goal::Class(class), _) => {
                let classes = vec![*class; all.len()];
                (all, self.codec.labels(classes))
            }
            (Goal::Flip, _) => (all, self.codec.labels(own.iter().map(|own| 1 - own).collect())),
            (Goal::Every(classes), _) => {
                let pairs = all.iter().flat_map(|row| {
                    let own = own[*row as usize];
                    (0..*classes).filter(move |class| *class != own).map(|class| (*row, class))
                });
                let (rows, classes) = pairs.unzip();
                (rows, self.codec.labels(classes))
            }
            (Goal::Range(low, high), _) => {
                let ranges =
                    Wishes::Ranges { low: vec![*low; all.len()], high: vec![*high; all.len()] };
                (all, ranges)
            }
            (Goal::Column(_), None) => {
                return Err(Error::internal("target", "its column was not read"));
            }
        })
    }

    /// c of entries: as the job says for the first of a row and wish, drawn by the row's key for the others.
    fn conditions(&self, entries: &Entries, asked: &[u32], usable: &Usable) -> Conditions {
        let rows = entries.rows_of(asked);
        let widest = entries.widest.take(&rows);
        let first_too = self.conditions == FirstConditions::Drawn;
        if self.samples == 1 && !first_too {
            return widest;
        }
        let seeds = self.seeds(entries, asked, usable);
        let random = |place: usize| {
            let drawn = first_too || entries.draws[asked[place] as usize] > 0;
            drawn.then(|| ChaCha8Rng::seed_from_u64(seeds[place]))
        };
        self.constraints.draw_some(&widest, &usable.rows.take(&rows), random)
    }

    /// Seeds of entries, from the row's key, the number of the answer and what is wanted.
    fn seeds(&self, entries: &Entries, asked: &[u32], usable: &Usable) -> Vec<u64> {
        let seed = self.streams.seed_of("samples");
        let seed_of = |entry: &u32| {
            let entry = *entry as usize;
            let class = entries.wishes.classes().map_or(0, |classes| classes[entry]);
            let mut bytes = [0; 24];
            let hash = usable.hashes[entries.rows[entry] as usize];
            bytes[..16].copy_from_slice(&hash.to_le_bytes());
            bytes[16..20].copy_from_slice(&entries.draws[entry].to_le_bytes());
            bytes[20..].copy_from_slice(&class.to_le_bytes());
            xxh3_64_with_seed(&bytes, seed)
        };
        asked.iter().map(seed_of).collect()
    }

    /// What is asked about entries, for those who look for answers.
    fn asked(&self, entries: &Entries, asked: &[u32], usable: &Usable) -> Result<Asked> {
        let rows = entries.rows_of(asked);
        let originals = usable.rows.take(&rows);
        let seed = self.streams.seed_of("refine");
        Ok(Asked {
            // By what a row says, not by its key: the same row gets the same answer, also in SQL.
            seeds: (0..originals.len).map(|row| hash_of(&originals, row) as u64 ^ seed).collect(),
            originals,
            before: take(&usable.originals, &rows)?,
            wishes: entries.wishes.take(asked),
            decided: usable.scores.take(&rows),
            conditions: self.conditions(entries, asked, usable),
            bounds: usable.bounds.take(&rows),
            draws: asked.iter().map(|entry| entries.draws[*entry as usize]).collect(),
        })
    }
}

impl Entries {
    /// Every open entry so many times.
    fn repeated(self, samples: usize) -> Entries {
        let times = |entry: usize| if self.known[entry].is_none() { samples as u32 } else { 1 };
        let copies = (0..self.rows.len())
            .flat_map(|entry| (0..times(entry)).map(move |draw| (entry as u32, draw)));
        let (places, draws): (Vec<u32>, Vec<u32>) = copies.unzip();
        Entries {
            rows: places.iter().map(|place| self.rows[*place as usize]).collect(),
            wishes: self.wishes.take(&places),
            known: places.iter().map(|place| self.known[*place as usize]).collect(),
            draws,
            widest: self.widest,
        }
    }

    /// All entries but the open ones that are not to be kept.
    fn kept(&self, open: &[u32], keep: &[bool]) -> Vec<u32> {
        let mut gone = open.iter().zip(keep).filter(|(_, keep)| !**keep).map(|(entry, _)| *entry);
        let mut next = gone.next();
        let mut kept = Vec::with_capacity(self.rows.len());
        for entry in 0..self.rows.len() as u32 {
            if next == Some(entry) {
                next = gone.next();
            } else {
                kept.push(entry);
            }
        }
        kept
    }

    fn rows_of(&self, kept: &[u32]) -> Vec<u32> {
        kept.iter().map(|entry| self.rows[*entry as usize]).collect()
    }
}

impl Worker {
    /// Counterfactuals for what is asked for, and what the model says about them.
    pub(super) fn answer(
        &self,
        usable: &Usable,
        entries: Entries,
        ledger: &mut Ledger,
    ) -> Result<Answers> {
        let shared = &self.shared;
        let open: Vec<u32> = (0..entries.rows.len() as u32)
            .filter(|entry| entries.known[*entry as usize].is_none())
            .collect();
        let asked = shared.asked(&entries, &open, usable)?;
        let generated = self.generate(&asked, ledger)?;
        let mut outcomes = self.refine(&asked, &generated, ledger)?;
        let mut clock = Instant::now();
        shared.guard(&outcomes.rows, &asked.originals, &asked.bounds)?;
        let kept = entries.kept(&open, &outcomes.distinct(&asked.draws));
        let answers = shared.put_together(usable, &entries, (&open, outcomes), &kept)?;
        ledger.clock(Stage::Measure, &mut clock);
        Ok(answers)
    }

    /// What the constraints make of the generator's answers; the rows as they are if it is not asked.
    fn generate(&self, asked: &Asked, ledger: &mut Ledger) -> Result<Rows> {
        let (shared, rows) = (&self.shared, &asked.originals);
        if rows.len == 0 || !shared.refiner.asks_generator() {
            return Ok(rows.clone());
        }
        let mut clock = Instant::now();
        let decoded = self.generator.answer(&Request {
            rows: &shared.encoder.encode_rows(rows),
            decisions: &shared.codec.decisions(&asked.decided)?,
            wishes: &shared.codec.wishes(&asked.wishes),
            conditions: &asked.conditions,
            nudges: None,
        })?;
        let found =
            shared.constraints.post_process(&decoded, rows, &asked.conditions, &asked.bounds);
        ledger.clock(Stage::Generate, &mut clock);
        Ok(found)
    }
}

impl Explainer {
    /// The answers to entries: what was known of them, and what came of the open ones.
    fn put_together(
        &self,
        usable: &Usable,
        entries: &Entries,
        (open, outcomes): (&[u32], Outcomes),
        kept: &[u32],
    ) -> Result<Answers> {
        let places = Places::new(entries.rows.len(), open);
        let known = |entry: &u32| entries.known[*entry as usize];
        let status: Vec<Status> = kept
            .iter()
            .map(|entry| known(entry).unwrap_or_else(|| outcomes.status[places.of(*entry)]))
            .collect();
        let source = kept.iter().map(|entry| match known(entry) {
            Some(_) => None,
            None => outcomes.source[places.of(*entry)],
        });
        let source: Vec<Option<Source>> = source.collect();
        // What is as wanted already is so by the decision, whatever else is known of it.
        let valid = kept.iter().zip(&status).map(|(entry, status)| match known(entry) {
            Some(_) => *status == Status::AlreadyTarget,
            None => outcomes.valid[places.of(*entry)],
        });
        let certified = kept.iter().zip(&status).map(|(entry, status)| match known(entry) {
            Some(_) => *status == Status::Infeasible,
            None => outcomes.certified[places.of(*entry)],
        });
        let queries = kept.iter().map(|entry| match known(entry) {
            Some(_) => 0,
            None => outcomes.queries[places.of(*entry)],
        });
        let margins = kept.iter().map(|entry| match known(entry) {
            Some(_) => f64::NAN,
            None => outcomes.margins[places.of(*entry)],
        });
        let margins = margins.collect();
        let (valid, certified, queries) = (valid.collect(), certified.collect(), queries.collect());
        let mut all = usable.rows.take(&entries.rows);
        all.put(open, outcomes.rows);
        let mut scores = self.blank(&usable.scores.take(&entries.rows));
        scores.put(open, &outcomes.scores);
        let whole = kept.len() == entries.rows.len();
        let (counterfactuals, scores) =
            if whole { (all, scores) } else { (all.take(kept), scores.take(kept)) };
        let rows = entries.rows_of(kept);
        let originals = usable.rows.take(&rows);
        let before = take(&usable.originals, &rows)?;
        Ok(Answers {
            samples: numbered(&rows),
            wishes: entries.wishes.take(kept),
            after: self.writer.write(&counterfactuals, &originals, &before)?,
            decided: usable.scores.take(&rows),
            distances: distances(
                &self.constraints.without_derived(&counterfactuals, &originals),
                &originals,
                self.encoder.layout(),
            ),
            costs: self.costs_of(&counterfactuals, &originals, &status),
            plausibility: self.plausibility_of(&counterfactuals, &status),
            rows,
            status,
            source,
            valid,
            originals,
            counterfactuals,
            before,
            scores,
            queries,
            certified,
            margins,
        })
    }
}

impl Explainer {
    /// What the changes of solved rows cost; NaN for others.
    fn costs_of(&self, rows: &Rows, originals: &Rows, status: &[Status]) -> Vec<f64> {
        let mut costs = self.refiner.costs_of(rows, originals, &self.constraints);
        for (cost, status) in costs.iter_mut().zip(status) {
            if *status != Status::Solved {
                *cost = f64::NAN;
            }
        }
        costs
    }
}

/// Where entries stand among the open ones.
struct Places(Vec<u32>);

impl Places {
    fn new(entries: usize, open: &[u32]) -> Places {
        let mut places = vec![u32::MAX; entries];
        (0u32..).zip(open).for_each(|(place, entry)| places[*entry as usize] = place);
        Places(places)
    }

    fn of(&self, entry: u32) -> usize {
        self.0[entry as usize] as usize
    }
}

impl Explainer {
    /// What was decided, with room for probabilities: a score table has none.
    pub(super) fn blank(&self, decided: &Scores) -> Scores {
        let mut scores = decided.clone();
        if let (
            Outcome::Classes { labels, probabilities: probabilities @ None },
            Task::Classification { classes, probabilities: true },
        ) = (&mut scores.outcome, self.predictor.task())
        {
            *probabilities = Some(vec![f64::NAN; labels.len() * classes.len()]);
        }
        scores
    }

    /// Holds every counterfactual against the schema's words once more: a bug must not reach a table.
    fn guard(&self, found: &Rows, rows: &Rows, bounds: &RowBounds) -> Result<()> {
        match self.constraints.violations(found, rows, bounds).first() {
            None => Ok(()),
            Some(violation) => Err(Error::internal("counterfactual", violation.to_string())),
        }
    }
}

/// Numbers from 0 on within each row.
fn numbered(rows: &[u32]) -> Vec<i32> {
    let mut numbers: Vec<i32> = Vec::with_capacity(rows.len());
    for (place, row) in rows.iter().enumerate() {
        let same = place > 0 && rows[place - 1] == *row;
        numbers.push(if same { numbers[place - 1] + 1 } else { 0 });
    }
    numbers
}
