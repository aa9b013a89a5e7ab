//! Where a row's allowed space is small, an unsolved row is searched exhaustively: what is found is the
//! cheapest answer there is, and if nothing is, that there is none is proven.

use super::arena::{Answer, Arena};
use super::{Change, Changes, Outcomes, Trial};
use crate::error::Result;
use crate::explain::Worker;
use crate::feature::Cell;
use crate::metrics::{Source, Status};

/// Trials that are made at once, about: spaces of many rows would not fit into memory together.
const PORTION: usize = 65_536;

/// The spaces of some entries, one after the other.
#[derive(Default)]
struct Portion {
    trials: Vec<Trial>,
    /// Entries, and where their trials end.
    ends: Vec<(u32, usize)>,
}

impl Portion {
    fn add(&mut self, entry: u32, space: Vec<Changes>) {
        self.trials.extend(space.into_iter().map(|changes| Trial { entry, changes }));
        self.ends.push((entry, self.trials.len()));
    }
}

impl Worker {
    /// Searches the small spaces of unsolved entries.
    pub(super) fn certify(&self, arena: &mut Arena<'_>, outcomes: &mut Outcomes) -> Result<()> {
        // A further sample may change less than its row may, so nothing is proven by it.
        let open = |entry: &u32| {
            outcomes.status[*entry as usize] == Status::Unsolved
                && arena.asked.draws[*entry as usize] == 0
        };
        let open: Vec<u32> = (0..arena.len() as u32).filter(open).collect();
        let mut portion = Portion::default();
        for entry in open {
            if arena.impossible[entry as usize] {
                self.prove(arena, entry, outcomes);
                continue;
            }
            if let Some(space) = self.space(arena, entry) {
                portion.add(entry, space);
            }
            if portion.trials.len() >= PORTION {
                self.search(arena, std::mem::take(&mut portion), outcomes)?;
            }
        }
        self.search(arena, portion, outcomes)
    }

    /// Tries a portion.
    fn search(
        &self,
        arena: &mut Arena<'_>,
        Portion { trials, ends }: Portion,
        outcomes: &mut Outcomes,
    ) -> Result<()> {
        let answers = arena.judge(&trials)?;
        let mut first = 0;
        for (entry, end) in ends {
            let found = (&trials[first..end], &answers[first..end]);
            self.conclude(arena, entry, found, outcomes);
            first = end;
        }
        Ok(())
    }

    /// All that an entry's row may become; none if that is more than the model may be asked about.
    fn space(&self, arena: &Arena<'_>, entry: u32) -> Option<Vec<Changes>> {
        let most = arena.left(entry) as usize;
        let allowed = self.shared.refiner.job.max_changes.map_or(usize::MAX, |most| most as usize);
        let room = arena.room(entry);
        let mut space: Vec<Changes> = vec![Changes::new()];
        for feature in 0..arena.asked.originals.cells.len() {
            let own: Cell = arena.own(entry, feature);
            let options = room.options(feature, own, most)?;
            let before = space.len();
            for cell in options {
                for place in 0..before {
                    if space[place].len() < allowed {
                        let mut changes = space[place].clone();
                        changes.push(Change { feature, cell });
                        space.push(changes);
                    }
                }
                if space.len() > most + 1 {
                    return None;
                }
            }
        }
        space.swap_remove(0);
        let constraints = &self.shared.constraints;
        space.retain(|changes| {
            constraints.is_coherent(changes, |feature| arena.own(entry, feature))
        });
        Some(space)
    }

    fn conclude(
        &self,
        arena: &Arena<'_>,
        entry: u32,
        (trials, answers): (&[Trial], &[Option<Answer>]),
        outcomes: &mut Outcomes,
    ) {
        let costs = &self.shared.refiner.costs;
        let cost = |trial: &Trial| costs.total(&trial.changes, |feature| arena.own(entry, feature));
        // What the model has not answered proves nothing, nor what is refused though it gets the decision.
        let fails = |answer: Answer| !arena.has_failed(answer) && !arena.is_implausible(answer);
        let known = answers.iter().all(|answer| answer.is_some_and(fails));
        let valid = trials.iter().zip(answers).filter_map(|(trial, answer)| {
            answer.filter(|answer| arena.is_valid(*answer)).map(|answer| (trial, answer))
        });
        let best = valid.min_by(|(one, _), (two, _)| cost(one).total_cmp(&cost(two)));
        let place = entry as usize;
        match best {
            Some((trial, answer)) => {
                outcomes.margins[place] = arena.margin(answer);
                outcomes.show(arena, entry, &trial.changes);
                outcomes.scores.put(&[entry], &arena.scores(&[answer]));
                (outcomes.valid[place], outcomes.status[place]) = (true, Status::Solved);
                outcomes.source[place] = Some(Source::Candidate);
            }
            None if known => self.prove(arena, entry, outcomes),
            None => {}
        }
    }

    /// Notes that nothing reaches an entry's target.
    fn prove(&self, arena: &Arena<'_>, entry: u32, outcomes: &mut Outcomes) {
        outcomes.show(arena, entry, &Changes::new());
        let decided = self.shared.blank(&arena.asked.decided.take(&[entry]));
        outcomes.scores.put(&[entry], &decided);
        let place = entry as usize;
        (outcomes.certified[place], outcomes.status[place]) = (true, Status::Infeasible);
    }
}

impl Outcomes {
    /// Gives an entry's row these changes, and no other.
    fn show(&mut self, arena: &Arena<'_>, entry: u32, changes: &Changes) {
        for feature in 0..self.rows.cells.len() {
            self.rows.set(feature, entry as usize, arena.own(entry, feature));
        }
        let original = |feature: usize| arena.own(entry, feature);
        arena.worker.shared.constraints.apply(&mut self.rows, entry as usize, changes, original);
    }
}
