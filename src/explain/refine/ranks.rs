//! Ordered categories move back towards the original: where an answer passes several values of an order,
//! those between are tried, the nearest to the original first.

use super::arena::Arena;
use super::pool::Pool;
use super::{Change, Trial};
use crate::error::Result;
use crate::explain::Worker;
use crate::feature::Cell;

/// Values between that are tried for one change.
const BETWEEN: usize = 4;

impl Worker {
    /// Tries the values between of every ordered category that an entry's best answer changes.
    pub(super) fn nearer_ranks(&self, arena: &mut Arena<'_>, pool: &mut Pool) -> Result<()> {
        let costs = &self.shared.refiner.costs;
        let (mut trials, mut means) = (Vec::new(), Vec::new());
        for entry in 0..arena.len() as u32 {
            let Some(best) = self.best(arena, pool, entry as usize) else { continue };
            let room = arena.room(entry);
            for change in &best.changes {
                let Change { feature, cell: Cell::Code(new) } = *change else { continue };
                let Cell::Code(own) = arena.own(entry, feature) else { continue };
                let between = costs.between(feature, own, new).into_iter();
                let between = between.filter(|code| room.allows(feature, *code, own));
                for code in between.take(BETWEEN) {
                    let mut changes = best.changes.clone();
                    let nearer = Change { feature, cell: Cell::Code(code) };
                    changes.iter_mut().filter(|one| *one == change).for_each(|one| *one = nearer);
                    trials.push(Trial { entry, changes });
                    means.push(best.by);
                }
            }
        }
        pool.judge_each(arena, trials, &means)
    }
}
