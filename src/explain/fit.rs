//! Whether a generator was made for a table, a schema and a model.

use std::sync::Arc;

use crate::artefact::Description;
use crate::error::{Error, Fault, Kind, Result};
use crate::feature::{Feature, FeatureKind, FeatureSchema};
use crate::job::Target;
use crate::predictor::Task;
use crate::target::TargetCodec;

/// Holds a generator against the schema and the model it is to be used with. What may change, how far and
/// in which direction may be others than in training: they are an input of the generator.
///
/// # Errors
/// Every way in which they do not go together.
pub fn check_fit(
    description: &Description,
    schema: &Arc<FeatureSchema>,
    task: &Task,
    shown: &str,
) -> Result<()> {
    let mut problems: Vec<String> = Vec::new();
    let (old, new) = (&description.schema.features, &schema.features);
    if old.len() != new.len() {
        problems.push(format!("was made for {} features, the schema has {}", old.len(), new.len()));
    }
    problems.extend(old.iter().zip(new).filter_map(|(old, new)| difference(old, new)));
    problems.extend(other_decisions(&description.targets, task));
    let fault =
        |problem| Fault::new(shown, problem).hint("train a generator for this schema and model");
    Error::from_faults(Kind::Input, problems.into_iter().map(fault).collect())
}

/// What of a feature is built into the networks.
fn difference(old: &Feature, new: &Feature) -> Option<String> {
    if old.name != new.name {
        return Some(format!("has the feature `{}` where the schema has `{}`", old.name, new.name));
    }
    let same = old.nulls == new.nulls
        && match (&old.kind, &new.kind) {
            (FeatureKind::Numeric(_), FeatureKind::Numeric(_)) => true,
            (FeatureKind::Categorical(old), FeatureKind::Categorical(new)) => {
                old.values == new.values && old.unseen == new.unseen
            }
            _ => false,
        };
    (!same).then(|| {
        format!("has other values or policies for the feature `{}` than the schema", new.name)
    })
}

fn other_decisions(targets: &TargetCodec, task: &Task) -> Option<String> {
    match (targets, task) {
        (TargetCodec::Range { .. }, Task::Regression) => None,
        (TargetCodec::Classes { classes: old, .. }, Task::Classification { classes, .. }) => {
            (old[..] != classes[..])
                .then(|| format!("decides between {old:?}, the model between {classes:?}"))
        }
        _ => Some("was made for another task than the model's".to_string()),
    }
}

/// What reports call the targets, in the order of their numbers.
pub fn target_names(target: &Target, task: &Task) -> Vec<String> {
    match (task, target) {
        (Task::Classification { classes, .. }, _) => classes.to_vec(),
        (Task::Regression, Target::Range { low, high }) => vec![range_name(*low, *high)],
        (Task::Regression, _) => vec!["by row".to_string()],
    }
}

/// A target range in words.
pub(super) fn range_name(low: f64, high: f64) -> String {
    format!("{low}..{high}")
}
