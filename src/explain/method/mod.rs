//! Which counterfactual is proposed for each request? One trait, one file a method. A method asks the model through
//! the [`QueryCache`], which keeps every request to its budget and every proposal to the rules between features;
//! what a feature may become it learns from the request's feasible set. So constraints are the same code for all.
//!
//! Refinement works on what any method proposes, and is off by default for all but the generator and the search.

mod dice_genetic;
mod dice_random;
mod generator;
mod lore;
mod nearest;
mod sparsity;
mod spread;
#[cfg(test)]
mod tests;
mod variables;

use std::sync::Arc;

use super::refine::{Changes, QueryCache, Refiner};
use crate::error::Result;
use crate::feature::FeatureSchema;
use crate::job::{ExplainJob, ExplainMethod};
use crate::metrics::Source;

use dice_genetic::DiceGenetic;
use dice_random::DiceRandom;
use generator::GeneratorMethod;
use lore::Lore;
use nearest::NearestRow;

/// Proposes counterfactuals for all requests of a batch.
pub(super) trait CounterfactualMethod: Send + Sync {
    /// What found its counterfactuals, as written to the table.
    fn source(&self) -> Source;

    /// Whether it asks the model again and again. Then the clock counts from the start, and blocks have fewer rows.
    fn asks_often(&self) -> bool {
        true
    }

    /// One proposal for each request, or none. What is proposed was either predicted through the cache, or costs
    /// one more question. Depends on nothing but each request's own row, target, conditions and seed.
    ///
    /// # Errors
    /// When the model as a whole fails.
    fn propose(&self, cache: &mut QueryCache<'_>) -> Result<Proposals>;
}

/// What a method proposes, by request.
pub(super) struct Proposals {
    /// Changes of each request's row.
    pub(super) changes: Vec<Option<Changes>>,
    /// The rule that each proposal follows from, for methods that learn rules; else empty.
    pub(super) rules: Vec<Option<Arc<str>>>,
}

impl Proposals {
    /// Proposals that follow from no rule.
    pub(super) fn plain(changes: Vec<Option<Changes>>) -> Proposals {
        Proposals { changes, rules: Vec::new() }
    }

    /// The rules, one for each request.
    pub(super) fn rules(self) -> Vec<Option<Arc<str>>> {
        if self.rules.is_empty() { vec![None; self.changes.len()] } else { self.rules }
    }
}

/// The method of a job, `auto` decided.
pub(super) fn method_of(
    job: &ExplainJob,
    schema: &Arc<FeatureSchema>,
    refiner: &Refiner,
) -> Box<dyn CounterfactualMethod> {
    match job.method {
        ExplainMethod::Auto | ExplainMethod::Cfrl => Box::new(GeneratorMethod),
        ExplainMethod::Search | ExplainMethod::Nearest => Box::new(NearestRow),
        ExplainMethod::DiceRandom => Box::new(DiceRandom::new(job, refiner)),
        ExplainMethod::DiceGenetic => Box::new(DiceGenetic::new(job, refiner)),
        ExplainMethod::Lore => Box::new(Lore::new(schema, refiner)),
    }
}
