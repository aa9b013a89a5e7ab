//! What is wanted of each row, how often it is asked for, and the generator's answers to it.

use hashbrown::HashSet;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::time::Instant;
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

use super::admit::{Usable, put};
use super::{Explainer, Ledger, Stage, Worker, take};
use crate::constrain::{Conditions, RowBounds};
use crate::error::{Error, Result};
use crate::feature::{Cells, Rows};
use crate::job::Target;
use crate::metrics::{Distances, Status, distances};
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
    /// 0 for the first of a row and wish, whose condition is the widest.
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
    /// Whether it is the first for its row and wish.
    pub(super) first: Vec<bool>,
    pub(super) status: Vec<Status>,
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
    fn wishes(&self, usable: &Usable) -> Result<(Vec<u32>, Wishes)> {
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

    /// c of entries: the widest for the first of a row and wish, drawn by the row's key for the others.
    fn conditions(&self, entries: &Entries, asked: &[u32], usable: &Usable) -> Conditions {
        let rows = entries.rows_of(asked);
        let widest = entries.widest.take(&rows);
        if self.samples == 1 {
            return widest;
        }
        let seed = self.streams.seed_of("samples");
        let random = |place: usize| {
            let entry = asked[place] as usize;
            let draw = entries.draws[entry];
            let class = entries.wishes.classes().map_or(0, |classes| classes[entry]);
            let mut bytes = [0; 24];
            bytes[..16].copy_from_slice(&usable.hashes[rows[place] as usize].to_le_bytes());
            bytes[16..20].copy_from_slice(&draw.to_le_bytes());
            bytes[20..].copy_from_slice(&class.to_le_bytes());
            (draw > 0).then(|| ChaCha8Rng::seed_from_u64(xxh3_64_with_seed(&bytes, seed)))
        };
        self.constraints.draw_some(&widest, &usable.rows.take(&rows), random)
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

    /// Entries whose counterfactual is none of those before for the same row and wish.
    fn distinct(&self, counterfactuals: &Rows) -> Vec<u32> {
        let mut seen = HashSet::new();
        let mut kept = Vec::with_capacity(self.rows.len());
        for entry in 0..self.rows.len() {
            if self.draws[entry] == 0 {
                seen.clear();
            }
            if seen.insert(hash_of(counterfactuals, entry)) {
                kept.push(entry as u32);
            }
        }
        kept
    }

    fn rows_of(&self, kept: &[u32]) -> Vec<u32> {
        kept.iter().map(|entry| self.rows[*entry as usize]).collect()
    }
}

fn hash_of(rows: &Rows, row: usize) -> u128 {
    let mut hash = Xxh3::new();
    for cells in &rows.cells {
        match cells {
            Cells::Numbers(numbers) => hash.update(&numbers[row].to_le_bytes()),
            Cells::Codes(codes) => hash.update(&codes[row].to_le_bytes()),
        }
    }
    hash.digest128()
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
        let mut clock = Instant::now();
        let asked: Vec<u32> = (0..entries.rows.len() as u32)
            .filter(|entry| entries.known[*entry as usize].is_none())
            .collect();
        let mut all = usable.rows.take(&entries.rows);
        self.generate(usable, &entries, &asked, &mut all)?;
        let kept: Vec<u32> = if shared.samples > 1 {
            entries.distinct(&all)
        } else {
            (0..entries.rows.len() as u32).collect()
        };
        let (rows, wishes) = (entries.rows_of(&kept), entries.wishes.take(&kept));
        let known: Vec<Option<Status>> =
            kept.iter().map(|entry| entries.known[*entry as usize]).collect();
        let counterfactuals = if kept.len() < all.len { all.take(&kept) } else { all };
        let originals = usable.rows.take(&rows);
        let before = take(&usable.originals, &rows)?;
        let after = shared.writer.write(&counterfactuals, &originals, &before)?;
        ledger.clock(Stage::Generate, &mut clock);
        let decided = usable.scores.take(&rows);
        let scores = self.score(&decided, &after, &known)?;
        ledger.clock(Stage::Score, &mut clock);
        // What is as wanted already is so by the decision, whatever else is known of it.
        let met = |known: &Option<Status>| *known == Some(Status::AlreadyTarget);
        let valid: Vec<bool> = is_valid(&scores, &wishes)
            .into_iter()
            .zip(&known)
            .map(|(valid, known)| valid || met(known))
            .collect();
        let status = known.iter().zip(&valid).map(|(known, valid)| match (known, valid) {
            (Some(known), _) => *known,
            (None, true) => Status::SolvedByGenerator,
            (None, false) => Status::Unsolved,
        });
        let distances = distances(&counterfactuals, &originals, shared.encoder.layout());
        Ok(Answers {
            samples: numbered(&rows),
            first: kept.iter().map(|entry| entries.draws[*entry as usize] == 0).collect(),
            status: status.collect(),
            rows,
            wishes,
            valid,
            originals,
            counterfactuals,
            before,
            after,
            decided,
            scores,
            distances,
        })
    }

    /// Asks the generator, and puts what the constraints make of its answers into the rows.
    fn generate(
        &self,
        usable: &Usable,
        entries: &Entries,
        asked: &[u32],
        into: &mut Rows,
    ) -> Result<()> {
        if asked.is_empty() {
            return Ok(());
        }
        let shared = &self.shared;
        let at = entries.rows_of(asked);
        let (rows, bounds) = (usable.rows.take(&at), usable.bounds.take(&at));
        let conditions = shared.conditions(entries, asked, usable);
        let decoded = self.generator.answer(&Request {
            rows: &shared.encoder.encode_rows(&rows),
            decisions: &shared.codec.decisions(&usable.scores.take(&at))?,
            wishes: &shared.codec.wishes(&entries.wishes.take(asked)),
            conditions: &conditions,
        })?;
        let found = shared.constraints.post_process(&decoded, &rows, &conditions, &bounds);
        shared.guard(&found, &rows, &bounds)?;
        into.put(asked, found);
        Ok(())
    }

    /// The model's answers about counterfactuals; about rows that are left as they are it has answered.
    fn score(
        &self,
        decided: &Scores,
        after: &RecordBatch,
        known: &[Option<Status>],
    ) -> Result<Scores> {
        let open: Vec<u32> = (0u32..)
            .zip(known)
            .filter(|(_, known)| known.is_none())
            .map(|(entry, _)| entry)
            .collect();
        let predictor = &self.shared.predictor;
        if open.len() == known.len() {
            return predictor.predict(after);
        }
        let mut scores = self.shared.blank(decided);
        if !open.is_empty() {
            let answers = predictor.predict(&take(after, &open)?)?;
            put(&mut scores.outcome, &open, &answers.outcome);
        }
        Ok(scores)
    }
}

impl Explainer {
    /// What was decided, with room for probabilities: a score table has none.
    fn blank(&self, decided: &Scores) -> Scores {
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
