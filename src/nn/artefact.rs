//! The generator as files: `weights.safetensors`, and `generator.json` with all that is needed to use it
//! and to know where it comes from. Loading checks one against the other.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tch::{Device, Kind, Tensor};

use super::autoencoder::Autoencoder;
use super::bridge::{refused, to_numbers};
use super::generator::{ActorShape, Generator};
use super::neighbours;
use super::network::{Network, Shape};
use super::places::Places;
use super::reference::{self, ReferenceRows};
use crate::constrain::Constraints;
use crate::encode::{Encoder, Layout};
use crate::error::{Error, Result};
use crate::feature::{FeatureSchema, FeatureStats, Stats};
use crate::job::{Method, PredictorJob};
use crate::nearest::Points;
use crate::output::{cannot_write, hex, write_synced};
use crate::target::TargetCodec;

/// The networks' weights.
pub const WEIGHTS_FILE: &str = "weights.safetensors";
/// What they mean.
pub const GENERATOR_FILE: &str = "generator.json";
/// What counterfactuals are compared with.
pub const REFERENCE_FILE: &str = "reference.safetensors";
/// What answers are looked for among.
pub const NEIGHBOURS_FILE: &str = "neighbours.safetensors";
/// Version of the files' format.
const FORMAT: u32 = 5;

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
    /// Where features stand in an encoded row.
    pub layout: Layout,
    /// Decisions and wishes as numbers.
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
    /// The model it was trained against, for those who use it without a job.
    pub predictor: PredictorJob,
    /// Where it comes from: hashes of the model, the training rows and the weights; versions.
    pub origin: Origin,
}

/// Where a generator comes from.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// SHA-256 of the model's file, or of the command that runs it.
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

/// A generator, its critic (to go on training with) and what it is.
#[derive(Debug)]
pub struct Artefact {
    /// What it is.
    pub description: Description,
    /// enc, dec and μ.
    pub generator: Generator,
    /// Q.
    pub critic: Network,
    /// What counterfactuals are compared with.
    pub reference: ReferenceRows,
}

impl Description {
    /// The version of the format that is written.
    pub fn format() -> u32 {
        FORMAT
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
        Ok(Constraints::new(schema, &self.stats, Arc::clone(encoder.layout()), &table))
    }

    /// The feature columns of a table like the one that was trained on.
    ///
    /// # Errors
    /// When a column type is not one.
    pub fn features(&self) -> Result<Vec<Field>> {
        let fields = self.schema.names().zip(&self.column_types).map(|(name, data_type)| {
            let data_type: DataType = data_type.parse().map_err(|error| {
                let problem = format!("gives `{name}` the type `{data_type}`, which is none");
                Error::input(GENERATOR_FILE, problem).source(error)
            })?;
            Ok(Field::new(name, data_type, true))
        });
        fields.collect()
    }
}

/// Writes a generator, and the training rows that go with it, into a folder that is there.
///
/// # Errors
/// When a file cannot be written.
pub fn save(folder: &Path, artefact: &Artefact, neighbours: &Points) -> Result<()> {
    let path = folder.join(WEIGHTS_FILE);
    let mut tensors = vec![
        ("actor", artefact.generator.actor.flat().shallow_clone()),
        ("critic", artefact.critic.flat().shallow_clone()),
        ("statistics", statistics(&artefact.description.stats)),
    ];
    if let Autoencoder::Trained { encoder, decoder } = &artefact.generator.autoencoder {
        tensors.push(("encoder", encoder.flat().shallow_clone()));
        tensors.push(("decoder", decoder.flat().shallow_clone()));
    }
    write_tensors(&path, &tensors)?;
    let mut description = artefact.description.clone();
    description.origin.weights = file_hash(&path)?;
    description.origin.reference =
        reference::save(&folder.join(REFERENCE_FILE), &artefact.reference)?;
    description.origin.neighbours = neighbours::save(&folder.join(NEIGHBOURS_FILE), neighbours)?;
    let json = serde_json::to_string_pretty(&description)
        .map_err(|error| Error::internal("generator", "has no JSON").source(error))?;
    let path = folder.join(GENERATOR_FILE);
    write_synced(&path, json.as_bytes())
}

/// Reads a generator.
///
/// # Errors
/// When a file is missing or broken, or the two do not belong together.
pub fn load(folder: &Path, device: Device) -> Result<Artefact> {
    let shown = folder.display().to_string();
    let mut description = read_description(folder)?;
    let weights = folder.join(WEIGHTS_FILE);
    let origin = &description.origin;
    for (name, expected) in [(WEIGHTS_FILE, &origin.weights), (REFERENCE_FILE, &origin.reference)] {
        if file_hash(&folder.join(name))? != *expected {
            let problem = format!("`{name}` is not the file that `{GENERATOR_FILE}` describes");
            return Err(Error::input(shown, problem).hint("train the generator again"));
        }
    }
    let tensors = read_tensors(&weights)?;
    restore_statistics(&mut description.stats, tensor(&tensors, "statistics", &weights)?)?;
    let encoder = description.encoder();
    let layout = encoder.layout();
    if layout.width != description.layout.width
        || layout.slots.len() != description.layout.slots.len()
    {
        let problem = format!("`{GENERATOR_FILE}` has a layout that its schema does not give");
        return Err(Error::input(shown, problem).hint("train the generator again"));
    }
    let network = |name: &str, shape: Shape| {
        let values = to_numbers(tensor(&tensors, name, &weights)?)?;
        Network::with_weights(shape, &values, device).map_err(|error| {
            Error::input(&shown, format!("the weights of the {name} do not fit")).source(error)
        })
    };
    let latent = description.actor.latent as usize;
    let autoencoder = match &description.autoencoder {
        None => Autoencoder::Projection { width: layout.width as i64 },
        Some(hidden) => {
            let (encoder, decoder) = Autoencoder::shapes(layout.width, hidden, latent);
            Autoencoder::Trained {
                encoder: network("encoder", encoder)?,
                decoder: network("decoder", decoder)?,
            }
        }
    };
    let actor = network("actor", description.actor.actor())?;
    let critic = network("critic", description.actor.critic(layout.width))?;
    let constraints = description.constraints(&encoder)?;
    let places = Places::new(layout, constraints.numeric_ranges(), device);
    let shape = description.actor;
    let generator = Generator { autoencoder, actor, places, shape };
    let reference = reference::load(&folder.join(REFERENCE_FILE))?;
    Ok(Artefact { description, generator, critic, reference })
}

fn read_description(folder: &Path) -> Result<Description> {
    let path = folder.join(GENERATOR_FILE);
    let shown = path.display().to_string();
    let text = fs::read_to_string(&path).map_err(|error| {
        Error::input(&shown, format!("cannot be read: {error}"))
            .hint("a generator is the folder `generator` of a published run")
    })?;
    let value: Value = serde_json::from_str(&text)
        .map_err(|error| Error::input(&shown, format!("is not JSON: {error}")))?;
    match value.get("format").and_then(Value::as_u64) {
        Some(format) if format == u64::from(FORMAT) => {}
        found => {
            let found = found.map_or("no format".into(), |found| format!("format {found}"));
            let problem = format!("has {found}, expected {FORMAT}");
            return Err(Error::input(shown, problem).hint("train the generator again"));
        }
    }
    serde_json::from_value(value)
        .map_err(|error| Error::input(shown, format!("is not a generator: {error}")))
}

/// Least, greatest, mean and deviation of every numeric: other readers of the JSON file need not give back
/// the last bit.
fn statistics(stats: &Stats) -> Tensor {
    let rows = stats.features.iter().filter_map(|seen| match seen {
        FeatureStats::Numeric(seen) => Some([seen.min, seen.max, seen.mean, seen.std]),
        FeatureStats::Categorical(_) => None,
    });
    Tensor::from_slice(&rows.flatten().collect::<Vec<f64>>())
}

fn restore_statistics(stats: &mut Stats, exact: &Tensor) -> Result<()> {
    let exact: Vec<f64> = Vec::try_from(exact.to_kind(Kind::Double)).map_err(refused)?;
    let mut exact = exact.chunks_exact(4);
    for seen in &mut stats.features {
        if let FeatureStats::Numeric(seen) = seen {
            let Some([min, max, mean, std]) = exact.next() else {
                return Err(Error::input(WEIGHTS_FILE, "lacks the statistics of a feature"));
            };
            (seen.min, seen.max, seen.mean, seen.std) = (*min, *max, *mean, *std);
        }
    }
    Ok(())
}

/// Writes named tensors to a file, synced.
pub(crate) fn write_tensors(path: &Path, tensors: &[(&str, Tensor)]) -> Result<()> {
    let plain: Vec<(&str, Tensor)> = tensors
        .iter()
        .map(|(name, tensor)| (*name, tensor.detach().to_device(Device::Cpu).contiguous()))
        .collect();
    Tensor::write_safetensors(&plain, path).map_err(|error| cannot_write(path, error))?;
    File::open(path).and_then(|file| file.sync_all()).map_err(|error| cannot_write(path, error))
}

/// The named tensors of a file.
pub(crate) fn read_tensors(path: &Path) -> Result<Vec<(String, Tensor)>> {
    Tensor::read_safetensors(path).map_err(|error| {
        Error::input(path.display().to_string(), "cannot be read as tensors").source(error)
    })
}

/// One of them.
pub(crate) fn tensor<'a>(
    tensors: &'a [(String, Tensor)],
    name: &str,
    path: &Path,
) -> Result<&'a Tensor> {
    let found = tensors.iter().find(|(found, _)| found == name);
    found.map(|(_, tensor)| tensor).ok_or_else(|| {
        Error::input(path.display().to_string(), format!("lacks the tensor `{name}`"))
    })
}

pub(super) fn file_hash(path: &Path) -> Result<String> {
    let bytes = fs::read(path).map_err(|error| {
        Error::input(path.display().to_string(), format!("cannot be read: {error}"))
    })?;
    Ok(hex(&Sha256::digest(&bytes)))
}
