//! Further answers of the generator for entries still unsolved: under narrower conditions, and from actions
//! that are nudged a little. Only for those that need them, more boldly from round to round.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::arena::Arena;
use super::pool::Pool;
use super::{Trial, difference};
use crate::error::Result;
use crate::explain::Worker;
use crate::metrics::Source;
use crate::nn::Request;

/// Standard deviation of the nudges, round by round.
const NUDGES: [f32; 3] = [0.1, 0.2, 0.4];
/// Answers for each entry in a round; every other one has a narrower condition, the others are nudged.
const EACH: usize = 4;

impl Worker {
    pub(super) fn candidates(&self, arena: &mut Arena<'_>, pool: &mut Pool) -> Result<()> {
        for round in 0..NUDGES.len() {
            let open = pool.open(arena);
            if open.is_empty() {
                break;
            }
            let trials = self.further(arena, &open, round)?;
            pool.judge(arena, trials, Source::Candidate)?;
        }
        Ok(())
    }

    fn further(&self, arena: &Arena<'_>, open: &[u32], round: usize) -> Result<Vec<Trial>> {
        let (shared, asked) = (&self.shared, arena.asked);
        let of: Vec<u32> = open.iter().flat_map(|entry| [*entry; EACH]).collect();
        let (rows, bounds) = (asked.originals.take(&of), asked.bounds.take(&of));
        let random = |place: usize| {
            let number = (round * EACH + place % EACH) as u64;
            let seed = asked.seeds[of[place] as usize];
            ChaCha8Rng::seed_from_u64(xxh3_64_with_seed(&number.to_le_bytes(), seed))
        };
        let narrower = |place: usize| place.is_multiple_of(2).then(|| random(place));
        let widest = asked.conditions.take(&of);
        let conditions = shared.constraints.draw_some(&widest, &rows, narrower);
        let width = self.generator.action_width();
        let mut nudges = vec![0f32; of.len() * width];
        for (place, nudge) in nudges.chunks_exact_mut(width).enumerate() {
            if !place.is_multiple_of(2) {
                let mut random = random(place);
                for number in nudge {
                    let normal: f32 = StandardNormal.sample(&mut random);
                    *number = NUDGES[round] * normal;
                }
            }
        }
        let decoded = self.generator.answer(&Request {
            rows: &shared.encoder.encode_rows(&rows),
            decisions: &shared.codec.decisions(&asked.decided.take(&of))?,
            wishes: &shared.codec.wishes(&asked.wishes.take(&of)),
            conditions: &conditions,
            nudges: Some(&nudges),
        })?;
        let found = shared.constraints.post_process(&decoded, &rows, &conditions, &bounds);
        let lists = difference(&shared.constraints, &found, &rows);
        let trials = of.into_iter().zip(lists).map(|(entry, changes)| Trial { entry, changes });
        Ok(trials.filter(|trial| !trial.changes.is_empty()).collect())
    }
}
