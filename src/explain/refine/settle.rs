//! Rows without an answer where the model shows bounds of what it says: everything that they may become is searched,
//! region by region, until one reaches the target or it is proven that none does.

use super::arena::Arena;
use super::plateaus::Plateau;
use super::pool::Pool;
use super::{Change, Changes, MULTIPLES, Trial};
use crate::error;
use crate::explain::Worker;
use crate::feature::Cell;
use crate::metrics::Source;
use crate::predictor::{Ended, Reach, Region, Verdict};

/// Trees that are looked through for one row, at most: what 800 regions of a forest of 50 trees take, some
/// milliseconds. Most rows need a few regions.
const TREES: usize = 40_000;
/// Numbers that are gone through, at most, to be certain that none of a region is allowed.
const NUMBERS: usize = 4_096;

impl Worker {
    /// Finds answers for entries that have none, or proves that there is none.
    pub(super) fn settle(&self, arena: &mut Arena<'_>, pool: &mut Pool) -> error::Result<()> {
        if self.follows_formulas() {
            return Ok(());
        }
        let mut trials = Vec::new();
        for entry in pool.open(arena) {
            let reach = self.reach(arena, entry, |_| true);
            let mut found = None;
            let mut accept = |arena: &Arena<'_>, region: &Region| {
                let (verdict, changes) = self.nearest_in(arena, entry, region);
                found = changes;
                verdict
            };
            let Some(ended) = arena.search(entry, &reach, (TREES, &mut accept))? else {
                continue;
            };
            arena.impossible[entry as usize] = ended == Ended::Impossible;
            arena.unsearched[entry as usize] = ended == Ended::Unknown;
            trials.extend(found.map(|changes| Trial { entry, changes }));
        }
        let entries: Vec<u32> = trials.iter().map(|trial| trial.entry).collect();
        pool.judge(arena, trials, Source::Candidate)?;
        self.reduce_some(arena, pool, &entries)?;
        self.shrink_of(arena, pool, &entries, (MULTIPLES, usize::MAX))?;
        self.polish(arena, pool, &entries)
    }

    /// The changes that bring an entry's row into a region at the least cost, if rules let it be there.
    fn nearest_in(
        &self,
        arena: &Arena<'_>,
        entry: u32,
        region: &Region,
    ) -> (Verdict, Option<Changes>) {
        let change = |(feature, within): &(usize, Reach)| {
            self.nearest_change(arena, entry, (*feature, within))
        };
        let changes: Changes = match region.iter().map(change).collect::<Result<_, _>>() {
            Ok(changes) => changes,
            Err(verdict) => return (verdict, None),
        };
        let most = self.shared.refiner.job.max_changes;
        let few = most.is_none_or(|most| changes.len() <= most as usize);
        if few && self.is_coherent(arena, entry, &changes) {
            (Verdict::Taken, Some(changes))
        } else {
            (Verdict::Refused, None)
        }
    }

    /// The least change of a feature to an allowed value of a region; else whether it is certain that none is allowed.
    fn nearest_change(
        &self,
        arena: &Arena<'_>,
        entry: u32,
        (feature, within): (usize, &Reach),
    ) -> Result<Change, Verdict> {
        match (within, arena.own(entry, feature)) {
            (Reach::Numbers(low, high), Cell::Number(own)) => {
                let plateau = Plateau { low: low.next_down(), high: *high };
                let room = arena.room(entry);
                if let Some(number) = plateau.nearest_to(room, feature, own) {
                    return Ok(Change { feature, cell: Cell::Number(number) });
                }
                // A proof needs more than that the nearest numbers lie outside.
                let allowed = room.options(feature, Cell::Number(own), NUMBERS);
                let inside =
                    |cell: &Cell| matches!(cell, Cell::Number(one) if plateau.contains(*one));
                match allowed {
                    Some(all) if !all.iter().any(inside) => Err(Verdict::Empty),
                    _ => Err(Verdict::Refused),
                }
            }
            (Reach::Codes(codes), _) => {
                let changes = codes.iter().map(|code| Change { feature, cell: Cell::Code(*code) });
                let cost = |change: &Change| self.cost(arena, entry, change);
                let least = changes.min_by(|one, two| cost(one).total_cmp(&cost(two)));
                least.ok_or(Verdict::Empty)
            }
            _ => Err(Verdict::Refused),
        }
    }
}
