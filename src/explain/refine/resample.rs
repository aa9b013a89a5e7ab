//! Further proposals of the generator for requests still unsolved: under narrower conditions, and from actions
//! that are nudged a little. Only for those that need them, more boldly from round to round.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::candidate_set::CandidateSet;
use super::query_cache::QueryCache;
use super::{Proposal, difference};
use crate::error::Result;
use crate::explain::Worker;
use crate::metrics::Source;
use crate::nn::GeneratorInput;

/// Standard deviation of the nudges, round by round.
const NUDGES: [f32; 3] = [0.1, 0.2, 0.4];
/// Counterfactuals for each request in a round; every other one has a narrower condition, the others are nudged.
const EACH: usize = 4;

impl Worker {
    pub(super) fn resample(
        &self,
        cache: &mut QueryCache<'_>,
        candidates: &mut CandidateSet,
    ) -> Result<()> {
        for round in 0..NUDGES.len() {
            let open = candidates.open(cache);
            if open.is_empty() {
                break;
            }
            let proposals = self.resampled(cache, &open, round)?;
            candidates.evaluate(cache, proposals, Source::Candidate)?;
        }
        Ok(())
    }

    fn resampled(
        &self,
        cache: &QueryCache<'_>,
        open: &[u32],
        round: usize,
    ) -> Result<Vec<Proposal>> {
        let (shared, batch) = (&self.shared, cache.batch);
        let of: Vec<u32> = open.iter().flat_map(|request| [*request; EACH]).collect();
        let (rows, bounds) = (batch.originals.take(&of), batch.bounds.take(&of));
        let random = |index: usize| {
            let number = (round * EACH + index % EACH) as u64;
            let seed = batch.seeds[of[index] as usize];
            ChaCha8Rng::seed_from_u64(xxh3_64_with_seed(&number.to_le_bytes(), seed))
        };
        let narrower = |index: usize| index.is_multiple_of(2).then(|| random(index));
        let widest = batch.conditions.take(&of);
        let conditions = shared.constraints.draw_some(&widest, &rows, narrower);
        let width = self.generator.action_width();
        let mut nudges = vec![0f32; of.len() * width];
        for (index, nudge) in nudges.chunks_exact_mut(width).enumerate() {
            if !index.is_multiple_of(2) {
                let mut random = random(index);
                for number in nudge {
                    let normal: f32 = StandardNormal.sample(&mut random);
                    *number = NUDGES[round] * normal;
                }
            }
        }
        let decoded = self.generator.generate_batch(&GeneratorInput {
            rows: &shared.encoder.encode_rows(&rows),
            decisions: &shared.codec.decisions(&batch.decided.take(&of))?,
            targets: &shared.codec.encode_targets(&batch.targets.take(&of)),
            conditions: &conditions,
            nudges: Some(&nudges),
        })?;
        let found = shared.constraints.post_process(&decoded, &rows, &conditions, &bounds);
        let lists = difference(&shared.constraints, &found, &rows);
        let proposals =
            of.into_iter().zip(lists).map(|(request, changes)| Proposal { request, changes });
        Ok(proposals.filter(|proposal| !proposal.changes.is_empty()).collect())
    }
}
