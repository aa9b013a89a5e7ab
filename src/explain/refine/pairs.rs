//! Two changes together, for entries that no single one solves, or only dearly: of the features that bring
//! the model nearest on their own, each with the cheapest value that does so. Needs a model that tells how
//! near it is.

use super::arena::Arena;
use super::pool::{Pool, Single};
use super::{Changes, Trial};
use crate::error::Result;
use crate::explain::Worker;
use crate::metrics::Source;

/// An answer that costs less needs no pair to compete with it.
const DEAR: f64 = 2.5;
/// Features that are paired.
const FEATURES: usize = 4;
/// Share of a feature's greatest gain that a cheaper value must bring.
const NEARLY: f32 = 0.8;

impl Worker {
    pub(super) fn pairs(&self, arena: &mut Arena<'_>, pool: &mut Pool) -> Result<()> {
        let (mut trials, mut means) = (Vec::new(), Vec::new());
        for entry in self.expensive(arena, pool, DEAR) {
            let strong = self.strong(arena, pool, entry);
            for (place, one) in strong.iter().enumerate() {
                for two in &strong[..place] {
                    let mut changes = Changes::from_slice(&[one.change, two.change]);
                    changes.sort_by_key(|change| change.feature);
                    trials.push(Trial { entry, changes });
                    // What takes a neighbour's word is a neighbour's.
                    let own = one.by == two.by;
                    means.push(if own { one.by } else { Source::Neighbour });
                }
            }
        }
        pool.judge_each(arena, trials, &means)
    }

    /// The strongest change of each of the strongest features.
    fn strong(&self, arena: &Arena<'_>, pool: &Pool, entry: u32) -> Vec<Single> {
        let costs = &self.shared.refiner.costs;
        let singles = &pool.singles[entry as usize];
        // About the row as it is the model need not have been asked; some change hardly matters.
        let shares = singles.iter().filter_map(|single| arena.share(single.answer));
        let base = shares.fold(f32::INFINITY, f32::min);
        let gain = |single: &Single| arena.share(single.answer).map(|share| share - base);
        let mut features: Vec<usize> = singles.iter().map(|single| single.change.feature).collect();
        features.sort_unstable();
        features.dedup();
        let mut strong: Vec<(f32, Single)> = Vec::new();
        for feature in features {
            let of = || singles.iter().filter(|single| single.change.feature == feature);
            let most = of().filter_map(gain).fold(0f32, f32::max);
            let enough = of().filter(|one| gain(one).is_some_and(|gain| gain >= NEARLY * most));
            let cost =
                |single: &Single| costs.of(&single.change, arena.own(entry, single.change.feature));
            let cheapest = enough.min_by(|one, two| cost(one).total_cmp(&cost(two)));
            strong.extend(cheapest.filter(|_| most > 0.0).map(|single| (most, *single)));
        }
        strong.sort_by(|(one, _), (two, _)| two.total_cmp(one));
        strong.into_iter().take(FEATURES).map(|(_, single)| single).collect()
    }
}
