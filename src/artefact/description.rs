//! `generator.json`: what a generator is. Data alone: no command and no path stands in it, and nothing that
//! it says is believed before it was checked.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::files::GENERATOR_FILE;
use crate::constrain::{Constraints, Observed};
use crate::encode::{Encoder, Layout, Slots};
use crate::error::{Error, Result};
use crate::feature::{FeatureKind, FeatureSchema, FeatureStats, Numeric, Stats};
use crate::job::{
    MOST_CLASSES, Method, OnnxInputs, PredictorJob, PredictorKind, ProbabilitiesSpec, TaskSpec,
};
use crate::nn::ActorShape;
use crate::target::TargetCodec;

/// Version of the files' format.
const FORMAT: u32 = 7;
/// Width of a layer, or of a row: beyond what can be trained.
const WIDEST: i64 = 1 << 20;
/// Numbers of one network.
const MOST_WEIGHTS: i64 = 1 << 32;
/// Hidden layers of the autoencoder.
const MOST_LAYERS: usize = 64;

/// All that is needed to use a generator, and where it comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// Version of the format.
    pub format: u32,
    /// What the columns mean.
    pub schema: FeatureSchema,
    /// Their types in the table that was trained on.
    pub column_types: Vec<String>,
    /// What was seen in them.
    pub stats: Stats,
    /// What holds between them in all training rows.
    pub observed: Observed,
    /// Where features stand in an encoded row.
    pub layout: Layout,
    /// Decisions and targets as numbers.
    pub targets: TargetCodec,
    /// Widths of the autoencoder's hidden layers; none if the row itself is used.
    pub autoencoder: Option<Vec<usize>>,
    /// The actor's and the critic's shape.
    pub actor: ActorShape,
    /// Whether the networks were trained: not where training rows alone are asked for.
    pub learnt: bool,
    /// The numbers of the method.
    pub method: Method,
    /// How training went.
    pub figures: Value,
    /// How the model that it was trained against is asked; not where it is.
    pub model: ModelForm,
    /// Where it comes from: hashes of the model, the training rows and the weights; versions.
    pub origin: Origin,
}

/// How a model is asked, without where it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelForm {
    /// What the model predicts.
    pub task: TaskSpec,
    /// Class labels in score order; empty if the model tells.
    pub classes: Vec<String>,
    /// Whether scores are probabilities.
    pub probabilities: ProbabilitiesSpec,
    /// How features become inputs of an ONNX model; none for a program.
    pub inputs: Option<OnnxInputs>,
    /// What a null text becomes in an ONNX model.
    pub null_text: String,
}

/// Where a generator comes from.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// SHA-256 of the model: of its files, or of the command that runs it and of the files that it names.
    pub model: String,
    /// Hash of the encoded training rows.
    pub training_rows: String,
    /// SHA-256 of the weights' file.
    pub weights: String,
    /// SHA-256 of the reference rows' file.
    pub reference: String,
    /// SHA-256 of the neighbours' file.
    pub neighbours: String,
    /// Seed of the job.
    pub seed: u64,
    /// Versions of the program and its libraries.
    pub versions: Value,
}

impl ModelForm {
    /// What of a job's model may stand in an artefact.
    pub fn of(job: &PredictorJob) -> ModelForm {
        let (inputs, null_text) = match &job.kind {
            PredictorKind::Onnx(model) => (Some(model.inputs.clone()), model.null_text.clone()),
            PredictorKind::Subprocess(_) => (None, String::new()),
        };
        ModelForm {
            task: job.task,
            classes: job.classes.clone(),
            probabilities: job.probabilities,
            inputs,
            null_text,
        }
    }
}

impl Description {
    /// The version of the format that is written.
    pub fn format() -> u32 {
        FORMAT
    }

    /// Reads a description, and checks that its parts go together. Any text will do.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Description> {
        let wrong = |problem: String| Error::input(GENERATOR_FILE, problem);
        let value: Value =
            serde_json::from_str(text).map_err(|error| wrong(format!("is not JSON: {error}")))?;
        match value.get("format").and_then(Value::as_u64) {
            Some(format) if format == u64::from(FORMAT) => {}
            found => {
                let found = found.map_or("no format".into(), |found| format!("format {found}"));
                let problem = format!("has {found}, expected {FORMAT}");
                return Err(wrong(problem).hint("train the generator again"));
            }
        }
        let description: Description = serde_json::from_value(value)
            .map_err(|error| wrong(format!("is not a generator: {error}")))?;
        description.check().map_err(|problem| wrong(format!("is not a generator: {problem}")))?;
        Ok(description)
    }

    /// The encoder that goes with the networks.
    pub fn encoder(&self) -> Encoder {
        Encoder::new(Arc::new(self.schema.clone()), &self.stats)
    }

    /// What may change in a table like the one that was trained on.
    ///
    /// # Errors
    /// When a column type is not one.
    pub fn constraints(&self, encoder: &Encoder) -> Result<Constraints> {
        let table = arrow::datatypes::Schema::new(self.features()?);
        let schema = Arc::new(self.schema.clone());
        let constraints =
            Constraints::new(schema, &self.stats, Arc::clone(encoder.layout()), &table);
        Ok(constraints.with_observed(&self.observed))
    }

    /// The feature columns of a table like the one that was trained on.
    ///
    /// # Errors
    /// When a column type is not one.
    pub fn features(&self) -> Result<Vec<Field>> {
        let fields = self.schema.names().zip(&self.column_types).map(|(name, data_type)| {
            let data_type: DataType = data_type.parse().map_err(|error| {
                let problem = format!(
                    "gives `{name}` the type `{data_type}`, expected the name of a column type"
                );
                Error::input(GENERATOR_FILE, problem).source(error)
            })?;
            Ok(Field::new(name, data_type, true))
        });
        fields.collect()
    }

    /// Whether the networks have the inputs and outputs that schema and decisions ask for: `fitting` is the
    /// shape that they must have.
    pub(super) fn fits(&self, fitting: ActorShape) -> bool {
        let outcomes = match &self.targets {
            TargetCodec::Classes { classes, .. } => classes.len() as i64 + 1,
            TargetCodec::Range { .. } => 0,
        };
        self.actor == fitting && (self.actor.outcomes == 0 || self.actor.outcomes == outcomes)
    }

    fn check(&self) -> Result<(), String> {
        self.check_features()?;
        self.check_networks()?;
        let usual = |number: f64| number.is_finite();
        match &self.targets {
            TargetCodec::Classes { classes, .. } if classes.len() > MOST_CLASSES => {
                Err(format!("it has {} classes, at most {MOST_CLASSES} may be", classes.len()))
            }
            TargetCodec::Classes { classes, .. } if classes.is_empty() => {
                Err("it has no classes".to_string())
            }
            TargetCodec::Range { mean, std } if !usual(*mean) || !usual(*std) || *std <= 0.0 => {
                Err("its decisions cannot be standardised".to_string())
            }
            _ => Ok(()),
        }
    }

    fn check_features(&self) -> Result<(), String> {
        let features = &self.schema.features;
        let counts = [self.column_types.len(), self.stats.features.len(), self.layout.slots.len()];
        if features.is_empty() || counts.iter().any(|count| *count != features.len()) {
            let problem = "features, types, statistics and layout do not go together";
            return Err(format!("{} {problem}", features.len()));
        }
        let names: std::collections::HashSet<&str> = self.schema.names().collect();
        if names.len() != features.len() {
            return Err("two features have the same name".to_string());
        }
        for (feature, seen) in features.iter().zip(&self.stats.features) {
            let best_snapshot = feature.cost.is_finite()
                && feature.cost >= 0.0
                && match (&feature.kind, seen) {
                    (FeatureKind::Numeric(numeric), FeatureStats::Numeric(seen)) => {
                        sound(numeric) && seen.multiples.is_none_or(|of| of.is_sound())
                    }
                    (FeatureKind::Categorical(of), FeatureStats::Categorical(_)) => {
                        let count = of.values.len();
                        let unique: std::collections::HashSet<&String> = of.values.iter().collect();
                        let fill = of.fill.is_none_or(|code| (code as usize) < count);
                        let ranks = of.ranks.as_ref().is_none_or(|ranks| is_order(ranks, count));
                        let lists = unique.len() == count && of.allowed.len() == count;
                        count > 0 && lists && fill && ranks
                    }
                    _ => false,
                };
            if !best_snapshot {
                return Err(format!("the feature `{}` contradicts itself", feature.name));
            }
        }
        let layout = Layout::new(&self.schema, &self.stats);
        let same = layout.width == self.layout.width
            && layout.slots.iter().zip(&self.layout.slots).all(|(left, right)| same(left, right));
        if same { Ok(()) } else { Err("it has a layout that its schema does not give".to_string()) }
    }

    fn check_networks(&self) -> Result<(), String> {
        let ActorShape { latent, direct, inputs, hidden, outcomes, .. } = self.actor;
        let layers = self.autoencoder.as_deref().unwrap_or_default();
        let row = self.layout.width as i64;
        let mut widths: Vec<i64> =
            layers.iter().map(|width| i64::try_from(*width).unwrap_or(i64::MAX)).collect();
        widths.extend([latent, hidden, inputs, row]);
        let possible = widths.iter().all(|width| (1..=WIDEST).contains(width))
            && [direct, outcomes].iter().all(|width| (0..=WIDEST).contains(width))
            && layers.len() <= MOST_LAYERS;
        if !possible {
            return Err(format!("it has networks of widths that are not from 1 to {WIDEST}"));
        }
        let input = latent + inputs + direct + row;
        let coder = [&[row][..], &widths[..layers.len()], &[latent]].concat();
        let numbers: i64 = coder.windows(2).map(|pair| pair[0] * pair[1]).sum();
        if numbers.max(hidden * (input + hidden + latent + direct + outcomes)) > MOST_WEIGHTS {
            return Err("it has networks that are too large".to_string());
        }
        if self.autoencoder.is_none() && latent != row {
            return Err(format!("it has no autoencoder, but a latent of {latent} beside {row}"));
        }
        Ok(())
    }
}

/// Whether ranks are an order of so many values.
fn is_order(ranks: &[u32], values: usize) -> bool {
    let mut sorted = ranks.to_vec();
    sorted.sort_unstable();
    sorted.len() == values && sorted.into_iter().eq(0..values as u32)
}

/// Whether the numbers of a feature are some that its schema could have had.
fn sound(numeric: &Numeric) -> bool {
    let range =
        numeric.range.is_none_or(|(low, high)| low.is_finite() && high.is_finite() && low <= high);
    let step = numeric.step.is_none_or(|step| step.is_finite() && step > 0.0);
    let tolerance = numeric.tolerance.is_none_or(|tolerance| tolerance >= 0.0);
    let limit = numeric.limit.is_none_or(|limit| limit.down >= 0.0 && limit.up >= 0.0);
    range && step && tolerance && limit && numeric.fill.is_none_or(f64::is_finite)
}

/// Whether two features stand at the same places; by what they are standardised need not be the same digits.
fn same(left: &Slots, right: &Slots) -> bool {
    match (left, right) {
        (Slots::Numeric(left), Slots::Numeric(right)) => {
            left.value == right.value && left.null == right.null
        }
        (Slots::Categorical(left), Slots::Categorical(right)) => left == right,
        _ => false,
    }
}
