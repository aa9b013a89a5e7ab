//! DiCE, random sampling: copies of a row get random values, one feature more in every round.
//!
//! From Mothilal, Sharma and Tan, *Explaining Machine Learning Classifiers through Diverse Counterfactual
//! Explanations* (2020), and version 0.12 of the authors' package (`method = "random"`), without its code:
//!
//! | taken | |
//! |---|---|
//! | copies | up to 1,000 a row (`sample_size`) |
//! | a round | every copy gets a random value in one feature, drawn with replacement from those that may vary; a feature that was drawn before keeps its value. Numbers are uniform over the permitted range, categories over the permitted values |
//! | end | at least two rounds, then as soon as a copy is valid; at most one round for each feature |
//! | counterfactual | one of the different valid copies of all rounds, at random |
//! | after the fact | linear search over small changes of numbers ([`super::sparsity`]) |
//!
//! Here, the permitted range is what the constraints allow the single row; copies that break a rule between features
//! are repaired first. The budget is the row's `queries_per_row`: an eighth is kept for the search after the fact,
//! the rest is divided by the rounds, which limits the copies. A row's random numbers are drawn by what it says, so
//! that it gets the same counterfactual in any batch. Labels alone decide, so soft and hard labels are the same.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::sparsity::{KEPT_PART, PosthocSparsity};
use super::spread::spreads;
use super::variables::{VariableValues, Variables, stream};
use super::{CounterfactualMethod, Proposals};
use crate::error::Result;
use crate::explain::refine::{Changes, PredictionIndex, Proposal, QueryCache, Refiner};
use crate::job::{ExplainJob, SparsitySearch};
use crate::metrics::Source;

/// Copies of a row.
const COPIES: u32 = 1_000;
/// Rounds before a valid copy ends the search.
const LEAST_ROUNDS: usize = 2;

/// Samples features incrementally.
pub(super) struct DiceRandom {
    sparsity: PosthocSparsity,
}

/// The copies of one request's row.
struct RandomCopies {
    variables: Variables,
    random: ChaCha8Rng,
    copies: Vec<VariableValues>,
    found: Vec<(PredictionIndex, Changes)>,
    rounds: usize,
    /// Questions that are kept.
    kept: u32,
}

impl DiceRandom {
    pub(super) fn new(job: &ExplainJob, refiner: &Refiner) -> DiceRandom {
        let search = job.dice.sparsity.unwrap_or(SparsitySearch::Linear);
        DiceRandom { sparsity: PosthocSparsity::new(search, &spreads(refiner)) }
    }
}

impl CounterfactualMethod for DiceRandom {
    fn source(&self) -> Source {
        Source::DiceRandom
    }

    fn propose(&self, cache: &mut QueryCache<'_>) -> Result<Proposals> {
        let mut all: Vec<RandomCopies> =
            (0..cache.len() as u32).map(|request| RandomCopies::new(cache, request)).collect();
        loop {
            let mut proposals: Vec<Proposal> = Vec::new();
            let mut ends: Vec<(usize, usize)> = Vec::new();
            for (index, copies) in all.iter_mut().enumerate() {
                if copies.is_open(cache) {
                    copies.vary(cache, &mut proposals);
                    ends.push((index, proposals.len()));
                }
            }
            if ends.is_empty() {
                break;
            }
            let predictions = cache.predict_unprobed(&proposals)?;
            let mut predictions_left = proposals.into_iter().zip(predictions);
            let mut first = 0;
            for (index, end) in ends {
                let of_request = predictions_left.by_ref().take(end - first);
                all[index].learn(cache, of_request);
                first = end;
            }
        }
        let mut found: Vec<Option<Changes>> = all.iter_mut().map(RandomCopies::pick).collect();
        self.sparsity.apply(cache, &mut found)?;
        Ok(Proposals::plain(found))
    }
}

impl RandomCopies {
    fn new(cache: &QueryCache<'_>, request: u32) -> RandomCopies {
        let variables = Variables::new(cache, request);
        let budget = cache.left(request);
        let kept = budget / KEPT_PART;
        let rounds = variables.all.len().max(1) as u32;
        let count = ((budget - kept) / rounds).clamp(1, COPIES) as usize;
        RandomCopies {
            copies: vec![variables.originals(); count],
            random: stream(cache, request),
            found: Vec::new(),
            rounds: 0,
            variables,
            kept,
        }
    }

    /// Whether there is another round.
    fn is_open(&self, cache: &QueryCache<'_>) -> bool {
        let request = self.variables.request;
        let found = self.rounds >= LEAST_ROUNDS && !self.found.is_empty();
        let asks = cache.left(request) > self.kept && !cache.is_spent(request);
        !found && asks && self.rounds < self.variables.all.len()
    }

    /// Gives every copy a value in one more feature; proposes as many copies as may be asked about.
    fn vary(&mut self, cache: &QueryCache<'_>, into: &mut Vec<Proposal>) {
        let RandomCopies { variables, random, copies, .. } = self;
        let request = variables.request;
        for copy in copies.iter_mut() {
            let index = random.random_range(0..variables.all.len());
            if copy[index] == variables.all[index].original {
                copy[index] = variables.draw(cache, index, random);
            }
        }
        let most = (cache.left(request) - self.kept) as usize;
        for copy in copies.iter().take(most) {
            let changes = variables.changes(&variables.coherent(cache, copy.clone()));
            if !changes.is_empty() {
                into.push(Proposal { request, changes });
            }
        }
        self.rounds += 1;
    }

    /// Keeps the valid copies.
    fn learn(
        &mut self,
        cache: &QueryCache<'_>,
        predictions_left: impl Iterator<Item = (Proposal, Option<PredictionIndex>)>,
    ) {
        for (proposal, prediction) in predictions_left {
            let valid = prediction.filter(|prediction| cache.decides(*prediction));
            let new = valid.filter(|one| self.found.iter().all(|(known, _)| known != one));
            self.found.extend(new.map(|prediction| (prediction, proposal.changes)));
        }
    }

    /// One of the valid copies.
    fn pick(&mut self) -> Option<Changes> {
        let RandomCopies { found, random, .. } = self;
        (!found.is_empty()).then(|| found.swap_remove(random.random_range(0..found.len())).1)
    }
}
