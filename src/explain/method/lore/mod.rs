//! LORE: local rules. A neighbourhood of the row is bred on both sides of the model's border, a decision tree learns
//! it, and the row moves to the nearest leaf of the target.
//!
//! From Guidotti, Monreale, Ruggieri, Pedreschi, Turini and Giannotti, *Local Rule-Based Explanations of Black Box
//! Decision Systems* (2018), without the code of their package:
//!
//! | taken | |
//! |---|---|
//! | neighbourhood | two populations, each from copies of the row, bred for ten generations: crossover of two points with probability 0.5, mutation with 0.2 to values of training rows; tournaments of three |
//! | fitness | one population I\[not the target\] + (1 − d) − I\[the row itself\], the other I\[the target\] + (1 − d) − I\[the row itself\] |
//! | d | share of features that are categories × share of them that differ, plus share that are numbers × the root of the mean square of differences ÷ training range |
//! | size | up to 1,000 rows in both; the budget of a row (`queries_per_row`) says how many, a fifth of it in each |
//! | tree | binary splits of greatest information gain, at least two rows a leaf |
//! | counterfactual | of the leaves of the target the one of whose conditions the row breaks the fewest; the row with these met by the least move |
//!
//! Here, the tree learns from every row that was predicted on the way and not only from the last generation, what may
//! not change is not varied (the CFRL paper extended LORE in that way), and the counterfactual is predicted: where the
//! model does not agree with the tree, the next rules are tried, ten at most. In the CFRL paper's tables the first rule
//! counts whatever the model says, which is why 18 % of those counterfactuals are valid. The conditions of the leaf are
//! kept as the table's `rule`.

mod neighbourhood;
mod rule;
mod tree;

use std::sync::Arc;

use super::spread::{FeatureSpread, spreads};
use super::{CounterfactualMethod, Proposals};
use crate::error::Result;
use crate::explain::refine::{Changes, Proposal, QueryCache, Refiner};
use crate::feature::FeatureSchema;
use crate::metrics::Source;

use neighbourhood::Neighbourhood;
use rule::MovedRow;

/// Rules that are tried.
const RULES: usize = 10;

/// Learns local rules.
pub(super) struct Lore {
    schema: Arc<FeatureSchema>,
    /// Of numeric features.
    spreads: Vec<Option<FeatureSpread>>,
}

/// The rules of one request, and what came of those that were tried.
struct Tries {
    rules: Vec<MovedRow>,
    next: usize,
    solved: bool,
}

impl Lore {
    pub(super) fn new(schema: &Arc<FeatureSchema>, refiner: &Refiner) -> Lore {
        Lore { schema: Arc::clone(schema), spreads: spreads(refiner) }
    }

    /// The rules of every request.
    fn learn(&self, cache: &mut QueryCache<'_>) -> Result<Vec<Tries>> {
        let mut all: Vec<Neighbourhood> = (0..cache.len() as u32)
            .map(|request| Neighbourhood::new(cache, request, &self.spreads))
            .collect();
        loop {
            let open: Vec<usize> = (0..all.len()).filter(|at| all[*at].is_open(cache)).collect();
            if open.is_empty() {
                break;
            }
            let mut proposals: Vec<Proposal> = Vec::new();
            let mut ends: Vec<usize> = Vec::new();
            for index in &open {
                all[*index].breed(cache, &mut proposals);
                ends.push(proposals.len());
            }
            let predictions = cache.predict_unprobed(&proposals)?;
            let mut first = 0;
            for (index, end) in open.into_iter().zip(ends) {
                all[index].learn(cache, &predictions[first..end]);
                first = end;
            }
        }
        Ok(all.into_iter().map(|one| Tries::new(cache, &self.schema, one)).collect())
    }
}

impl CounterfactualMethod for Lore {
    fn source(&self) -> Source {
        Source::Lore
    }

    fn propose(&self, cache: &mut QueryCache<'_>) -> Result<Proposals> {
        let mut all = self.learn(cache)?;
        loop {
            let open: Vec<u32> = (0..all.len() as u32)
                .filter(|request| all[*request as usize].is_open() && !cache.is_spent(*request))
                .collect();
            if open.is_empty() {
                break;
            }
            let proposal = |request: &u32| {
                let tries = &all[*request as usize];
                Proposal { request: *request, changes: tries.rules[tries.next].changes.clone() }
            };
            let proposals: Vec<Proposal> = open.iter().map(proposal).collect();
            let predictions = cache.predict_unprobed(&proposals)?;
            for (request, prediction) in open.into_iter().zip(predictions) {
                let valid = prediction.is_some_and(|prediction| cache.decides(prediction));
                all[request as usize].tell(valid);
            }
        }
        let (changes, rules) = all.into_iter().map(Tries::answer).unzip();
        Ok(Proposals { changes, rules })
    }
}

impl Tries {
    fn new(cache: &QueryCache<'_>, schema: &FeatureSchema, learnt: Neighbourhood) -> Tries {
        let mut rules = rule::moved_rows(cache, schema, &learnt);
        rules.truncate(RULES);
        Tries { rules, next: 0, solved: false }
    }

    fn is_open(&self) -> bool {
        !self.solved && self.next < self.rules.len()
    }

    fn tell(&mut self, valid: bool) {
        self.solved = valid;
        self.next += usize::from(!valid);
    }

    /// The rule whose row is valid, else the first.
    fn answer(mut self) -> (Option<Changes>, Option<Arc<str>>) {
        if self.rules.is_empty() {
            return (None, None);
        }
        let chosen = self.rules.swap_remove(if self.solved { self.next } else { 0 });
        (Some(chosen.changes), Some(chosen.text))
    }
}
