//! The fitted generator (CFRL): one pass for all requests, post-processed by the constraints. `train/` has the
//! method itself; further proposals are part of the refinement.

use super::{CounterfactualMethod, Proposals};
use crate::error::Result;
use crate::explain::refine::{QueryCache, difference};
use crate::metrics::Source;
use crate::nn::GeneratorInput;

/// Asks the generator.
pub(super) struct GeneratorMethod;

impl CounterfactualMethod for GeneratorMethod {
    fn source(&self) -> Source {
        Source::Generator
    }

    fn asks_often(&self) -> bool {
        false
    }

    fn propose(&self, cache: &mut QueryCache<'_>) -> Result<Proposals> {
        let (worker, batch) = (cache.worker, cache.batch);
        let (shared, rows) = (&worker.shared, &batch.originals);
        if rows.len == 0 {
            return Ok(Proposals::plain(Vec::new()));
        }
        let decoded = worker.generator.generate_batch(&GeneratorInput {
            rows: &shared.encoder.encode_rows(rows),
            decisions: &shared.codec.decisions(&batch.decided)?,
            targets: &shared.codec.encode_targets(&batch.targets),
            conditions: &batch.conditions,
            nudges: None,
        })?;
        let found =
            shared.constraints.post_process(&decoded, rows, &batch.conditions, &batch.bounds);
        let changes = difference(&shared.constraints, &found, rows);
        Ok(Proposals::plain(changes.into_iter().map(Some).collect()))
    }
}
