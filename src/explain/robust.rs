//! Models beside the predictor under which counterfactuals must hold too.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::predictor::{Outcome, Predictor, Scores, Task};
use crate::target::{TargetCodec, Targets, margins};

/// Models beside the predictor, and how many of them must predict the target.
#[derive(Clone, Default)]
pub struct RobustModels {
    models: Vec<RobustModel>,
    needed: u32,
}

/// A model beside the predictor.
#[derive(Clone)]
pub(super) struct RobustModel {
    pub(super) predictor: Arc<dyn Predictor>,
    /// Its number for each of the predictor's classes; empty for a regression.
    classes: Vec<u32>,
}

impl RobustModels {
    /// Models that decide what the predictor does, in whatever order their classes are.
    ///
    /// # Errors
    /// When one of them decides something else.
    pub fn new(models: Vec<Arc<dyn Predictor>>, needed: u32, task: &Task) -> Result<RobustModels> {
        let model = |predictor: Arc<dyn Predictor>| {
            let classes = numbers(task, predictor.task()).ok_or_else(|| {
                let problem = format!("is {:?}, expected {task:?}", predictor.task());
                Error::spec("robust.models", problem)
            })?;
            Ok(RobustModel { predictor, classes })
        };
        Ok(RobustModels { models: models.into_iter().map(model).collect::<Result<_>>()?, needed })
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.models.is_empty()
    }

    pub(super) fn models(&self) -> &[RobustModel] {
        &self.models
    }

    /// One of them, by its index.
    pub(super) fn predictor(&self, model: usize) -> &Arc<dyn Predictor> {
        &self.models[model].predictor
    }

    /// How many of them must predict the target.
    pub(super) fn needed(&self) -> u32 {
        self.needed
    }

    /// The models.
    pub fn predictors(&self) -> impl Iterator<Item = &dyn Predictor> {
        self.models.iter().map(|model| model.predictor.as_ref())
    }

    /// Gives up whatever is still being computed.
    pub fn stop(&self) {
        self.models.iter().for_each(|model| model.predictor.stop());
    }
}

impl RobustModel {
    /// Whether its predictions are the targets. A row that it fails on is not.
    pub(super) fn holds(&self, scores: &Scores, targets: &Targets) -> Vec<bool> {
        match (&scores.outcome, targets) {
            (Outcome::Classes { labels, .. }, targets) => {
                let classes = targets.classes().unwrap_or_default();
                let own = |class: &u32| self.classes.get(*class as usize);
                labels.iter().zip(classes).map(|(label, class)| own(class) == Some(label)).collect()
            }
            (Outcome::Values(values), Targets::Ranges { low, high }) => {
                let ranges = low.iter().zip(high);
                values
                    .iter()
                    .zip(ranges)
                    .map(|(of, (low, high))| (*low..=*high).contains(of))
                    .collect()
            }
            _ => vec![false; scores.rows],
        }
    }

    /// How far inside the targets its predictions are; NaN where it does not tell.
    pub(super) fn margins(
        &self,
        scores: &Scores,
        targets: &Targets,
        codec: &TargetCodec,
    ) -> Vec<f64> {
        let own = |classes: &[u32]| {
            let number = |class: &u32| self.classes.get(*class as usize).copied().unwrap_or(0);
            codec.labels(classes.iter().map(number).collect())
        };
        let targets_here = targets.classes().map(own);
        margins(scores, targets_here.as_ref().unwrap_or(targets), codec)
    }
}

/// The numbers that a model has for another's classes; none where they decide different things.
fn numbers(task: &Task, other: &Task) -> Option<Vec<u32>> {
    match (task, other) {
        (Task::Regression, Task::Regression) => Some(Vec::new()),
        (Task::Classification { classes, .. }, Task::Classification { classes: others, .. })
            if classes.len() == others.len() =>
        {
            let number = |class: &String| others.iter().position(|other| other == class);
            classes.iter().map(|class| number(class).map(|number| number as u32)).collect()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(classes: &[&str]) -> Task {
        let classes = classes.iter().map(ToString::to_string).collect();
        Task::Classification { classes, probabilities: true }
    }

    #[test]
    fn classes_may_stand_in_another_order() {
        assert_eq!(numbers(&task(&["a", "b"]), &task(&["b", "a"])), Some(vec![1, 0]));
        assert_eq!(numbers(&task(&["a", "b"]), &task(&["a", "c"])), None);
        assert_eq!(numbers(&task(&["a", "b"]), &task(&["a", "b", "c"])), None);
        assert_eq!(numbers(&task(&["a", "b"]), &Task::Regression), None);
    }
}
