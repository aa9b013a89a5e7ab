//! The generator as files: `weights.safetensors`, and `generator.json` with all that is needed to use it
//! and to know where it comes from. Loading checks one against the other.

use std::path::Path;

use tch::{Device, Kind, Tensor};

use super::description::Description;
use super::neighbours;
use super::reference::{self, ReferenceRows};
use crate::error::{Error, Result};
use crate::feature::{FeatureStats, Stats};
use crate::nearest::Points;
use crate::nn::{
    ActorShape, Autoencoder, Generator, Network, Shape, TensorLayout, file_hash, read_in_folder,
    read_verified, refused, tensor, to_numbers, write_tensors,
};
use crate::output::write_synced;

/// The networks' weights.
pub const WEIGHTS_FILE: &str = "weights.safetensors";
/// What they mean.
pub const GENERATOR_FILE: &str = "generator.json";
/// What counterfactuals are compared with.
pub const REFERENCE_FILE: &str = "reference.safetensors";
/// Rows among which counterfactuals are looked for.
pub const NEIGHBOURS_FILE: &str = "neighbours.safetensors";
/// Bytes of `generator.json`: a schema of a hundred thousand values is a tenth of that.
const LARGEST_DESCRIPTION: u64 = 256 << 20;

/// A generator, its critic (to resume training with) and what it is.
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
    let origin = &description.origin;
    let tensors = |name: &str, sha256: &str| {
        let problem = format!("`{name}` is not the file that `{GENERATOR_FILE}` describes");
        let known = read_verified(&folder.join(name), sha256)?;
        known.ok_or_else(|| Error::input(&shown, problem).hint("train the generator again"))
    };
    let weights = folder.join(WEIGHTS_FILE);
    let loaded = tensors(WEIGHTS_FILE, &origin.weights)?;
    let replay = tensors(REFERENCE_FILE, &origin.reference)?;
    restore_statistics(&mut description.stats, tensor(&loaded, "statistics", &weights)?)?;
    let encoder = description.encoder();
    let layout = encoder.layout();
    description.layout = layout.as_ref().clone();
    let reference = reference::read(&replay, &folder.join(REFERENCE_FILE), layout.width)?;
    let network = |name: &str, shape: Shape| {
        let values = to_numbers(tensor(&loaded, name, &weights)?)?;
        if !values.iter().all(|value| value.is_finite()) {
            let problem = format!("the weights of the {name} are not all numbers");
            return Err(Error::input(&shown, problem).hint("train the generator again"));
        }
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
    let tensor_layout = TensorLayout::new(layout, constraints.numeric_ranges(), device);
    let shape = description.actor;
    let codec = &description.targets;
    let inputs = codec.decision_width() + codec.target_width() + constraints.width();
    let fitting =
        ActorShape { inputs: inputs as i64, ..shape }.moving(&autoencoder, &tensor_layout);
    if !description.fits(fitting) {
        let problem = "the networks are not made for its features and decisions";
        return Err(Error::input(shown, problem).hint("train the generator again"));
    }
    let generator = Generator { autoencoder, actor, tensor_layout, shape };
    Ok(Artefact { description, generator, critic, reference })
}

fn read_description(folder: &Path) -> Result<Description> {
    let path = folder.join(GENERATOR_FILE);
    let shown = path.display().to_string();
    let bytes = read_in_folder(&path, LARGEST_DESCRIPTION)
        .map_err(|error| error.hint("a generator is the folder `generator` of a published run"))?;
    let text = String::from_utf8(bytes)
        .map_err(|error| Error::input(&shown, format!("is not JSON: {error}")))?;
    Description::parse(&text).map_err(|error| {
        let fault = error.faults()[0].clone();
        let outcome = Error::input(&shown, fault.problem);
        match fault.hint {
            Some(hint) => outcome.hint(hint),
            None => outcome,
        }
    })
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
