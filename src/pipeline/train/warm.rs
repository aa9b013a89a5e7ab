//! Last night's generator as tonight's start, if it was made for the same features and decisions.

use super::super::Inputs;
use super::Loaded;
use crate::artefact::{Artefact, Description, load};
use crate::error::{Error, Fault, Kind, Result};
use crate::feature::{FeatureStats, Stats};
use crate::job::{AutoencoderJob, AutoencoderKind, Job};
use crate::runtime::Runtime;
use crate::target::TargetCodec;

/// How far the mean of a feature may have moved, in standard deviations, for the earlier standardisation
/// to be used again.
const FARTHEST_DRIFT: f64 = 0.5;

/// The generator that `train.from` names. Its statistics are used again, so that its layout is the same.
///
/// # Errors
/// Every way in which it does not fit.
pub(super) fn start(
    job: &Job,
    inputs: &Inputs,
    loaded: &Loaded,
    runtime: &Runtime,
) -> Result<Option<Artefact>> {
    let Some(folder) = &job.train.from else { return Ok(None) };
    let artefact = load(folder, runtime.device)?;
    let mut reasons = Vec::new();
    let made = &artefact.description;
    if made.schema != *inputs.schema {
        reasons.push(different_feature(&made.schema.features, &inputs.schema.features));
    }
    let codec = TargetCodec::new(&loaded.task, job.train.method.targets, &loaded.sample.scores)?;
    if let (
        TargetCodec::Classes { classes: old, kind: before },
        TargetCodec::Classes { classes, kind },
    ) = (&made.targets, &codec)
    {
        if old != classes {
            reasons.push(format!("decides between {old:?}, the model between {classes:?}"));
        }
        if before != kind {
            reasons.push("was trained with other `train.targets`".to_string());
        }
    } else if std::mem::discriminant(&made.targets) != std::mem::discriminant(&codec) {
        reasons.push("was made for another task than the model's".to_string());
    }
    if made.method.hidden != job.train.method.hidden
        || made.method.preset != job.train.method.preset
    {
        reasons.push("has networks of another form (`train.hidden`, `train.preset`)".to_string());
    }
    reasons.extend(other_autoencoder(made, &job.autoencoder));
    if !made.learnt {
        reasons
            .push("has learnt nothing: it was made by a run that needed no training".to_string());
    }
    reasons.extend(drift(&made.schema.features, &made.stats, &loaded.check.stats));
    let shown = folder.display().to_string();
    let fault = |reason| {
        Fault::new(&shown, format!("cannot be started from: it {reason}"))
            .hint("remove `train.from` to train from scratch")
    };
    Error::from_faults(Kind::Input, reasons.into_iter().map(fault).collect())?;
    Ok(Some(artefact))
}

/// What the job says of the autoencoder, which is used as it is.
fn other_autoencoder(made: &Description, job: &AutoencoderJob) -> Option<String> {
    let (hidden, latent) = (made.autoencoder.as_ref(), made.actor.latent as usize);
    match (job.kind, hidden) {
        (AutoencoderKind::Always, None) => {
            Some("has no autoencoder, which `autoencoder.kind` asks for".to_string())
        }
        (AutoencoderKind::Never, Some(_)) => {
            Some("has an autoencoder, where `autoencoder.kind` is `never`".to_string())
        }
        (_, Some(hidden)) if job.hidden.as_ref().is_some_and(|requested| requested != hidden) => {
            Some(format!("has hidden layers of {hidden:?}, other than `autoencoder.hidden`"))
        }
        (_, Some(_)) if job.latent.is_some_and(|requested| requested != latent) => {
            Some(format!("has a latent of {latent}, other than `autoencoder.latent`"))
        }
        _ => None,
    }
}

fn different_feature(old: &[crate::feature::Feature], new: &[crate::feature::Feature]) -> String {
    let pair = old.iter().zip(new).find(|(old, new)| old != new);
    match pair {
        Some((old, new)) if old.name == new.name => {
            format!("describes the feature `{}` otherwise than the schema", new.name)
        }
        Some((old, new)) => {
            format!("has the feature `{}` where the schema has `{}`", old.name, new.name)
        }
        None => format!("has {} features, the schema {}", old.len(), new.len()),
    }
}

fn drift<'a>(
    features: &'a [crate::feature::Feature],
    old: &'a Stats,
    new: &'a Stats,
) -> impl Iterator<Item = String> + 'a {
    let pairs = features.iter().zip(&old.features).zip(&new.features);
    pairs.filter_map(|((feature, old), new)| {
        let (FeatureStats::Numeric(old), FeatureStats::Numeric(new)) = (old, new) else {
            return None;
        };
        let moved = (new.mean - old.mean).abs() / old.std.max(f64::MIN_POSITIVE);
        (moved > FARTHEST_DRIFT && old.std > 0.0).then(|| {
            format!(
                "was made when `{}` was {:.4} on average, which has moved by {moved:.1} standard \
                 deviations to {:.4}",
                feature.name, old.mean, new.mean
            )
        })
    })
}
