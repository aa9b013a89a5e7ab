//! The nearest training row of the target that a row may become: what the paper calls *Minimum Observable*, and
//! where a search begins. The distance is that of the refinement's costs, a sum over changed features.

use super::{CounterfactualMethod, Proposals};
use crate::error::Result;
use crate::explain::refine::QueryCache;
use crate::metrics::Source;

/// Takes the nearest row.
pub(super) struct NearestRow;

impl CounterfactualMethod for NearestRow {
    fn source(&self) -> Source {
        Source::Neighbour
    }

    fn asks_often(&self) -> bool {
        false
    }

    fn propose(&self, cache: &mut QueryCache<'_>) -> Result<Proposals> {
        let refiner = &cache.worker.shared.refiner;
        let nearest = |request: u32| refiner.nearest(cache, request);
        Ok(Proposals::plain((0..cache.len() as u32).map(nearest).collect()))
    }
}
