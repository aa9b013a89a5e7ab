//! Fits the autoencoder, and says how well it reconstructs rows that it has not seen.

use serde::{Deserialize, Serialize};
use tch::{Device, Kind, Tensor, no_grad};

use super::checkpoint::Saved;
use super::rows::RowMatrix;
use super::{Event, TrainSetup};
use crate::encode::Layout;
use crate::error::{Error, Result};
use crate::job::AutoencoderKind;
use crate::nn::host::HostAutoencoderFit;
use crate::nn::{Adam, Autoencoder, Network, TensorLayout, reconstruction_loss, to_numbers};
use crate::target::RowOrder;

/// Steps between two words to the listener.
const TALK_EVERY: usize = 100;

/// How well rows are reconstructed that were not trained on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AutoencoderFigures {
    /// Whether it is used; else the standardised row itself is, through tanh.
    pub used: bool,
    /// Widths of the hidden layers.
    pub hidden: Vec<usize>,
    /// Width of the latent.
    pub latent: usize,
    /// Steps.
    pub steps: usize,
    /// Seconds.
    pub seconds: f64,
    /// Mean squared error of standardised numerics.
    pub squared_error: f64,
    /// Share of categoricals whose most probable value is the right one.
    pub accuracy: f64,
    /// 1 is perfect, 0 no better than each feature's mean or most frequent value.
    pub quality: f64,
}

/// Hidden layers and latent for a table, by the paper's choices for its own: 15 for tables of few
/// features, 50 for the 57 numerics of Spambase, one layer for the categoricals of Breast Cancer.
pub(super) fn sizes(
    setup: &TrainSetup<'_>,
    layout: &Layout,
    numerics: usize,
) -> (Vec<usize>, usize) {
    let features = layout.slots.len();
    let bare = numerics == 0 && layout.width <= 128;
    let hidden = if bare { Vec::new() } else { vec![128] };
    let latent = match () {
        () if bare => (layout.width * 7 / 8).clamp(2, 70),
        () if features < 18 => 15,
        () => (features * 7).div_ceil(8).min(128),
    };
    let job = setup.autoencoder;
    (job.hidden.clone().unwrap_or(hidden), job.latent.unwrap_or(latent))
}

/// Trains an autoencoder, unless the job wants none; gives up on one that reconstructs too badly.
///
/// # Errors
/// When the job insists on an autoencoder and none is good enough.
pub(super) fn fit(
    setup: &TrainSetup<'_>,
    rows: &[f32],
    held_out: &Tensor,
    tensor_layout: &TensorLayout,
) -> Result<(Autoencoder, AutoencoderFigures)> {
    let layout = setup.encoder.layout();
    let projection = Autoencoder::Projection { width: layout.width as i64 };
    if setup.autoencoder.kind == AutoencoderKind::Never {
        let figures = AutoencoderFigures { latent: layout.width, ..Default::default() };
        return Ok((projection, figures));
    }
    let began = std::time::Instant::now();
    let (hidden, latent) = sizes(setup, layout, tensor_layout.numerics as usize);
    let random = &mut setup.streams.random("autoencoder");
    let mut autoencoder = Autoencoder::new(layout.width, &hidden, latent, random, setup.device)?;
    (setup.listener)(Event::Stage("autoencoder", setup.autoencoder.steps as u64));
    if setup.device == Device::Cpu {
        learn_on_host(setup, &autoencoder, rows)?;
    } else {
        let rows = RowMatrix::of(rows, layout.width, setup.device)?;
        learn(setup, &mut autoencoder, &rows, tensor_layout)?;
    }
    refuse_diverged(&autoencoder)?;
    let mut figures = evaluate(&autoencoder, held_out, tensor_layout);
    figures.steps = setup.autoencoder.steps;
    (figures.hidden, figures.latent) = (hidden, latent);
    figures.seconds = began.elapsed().as_secs_f64();
    tracing::info!(
        quality = figures.quality,
        accuracy = figures.accuracy,
        squared_error = figures.squared_error,
        latent,
        "autoencoder trained"
    );
    if figures.quality >= setup.autoencoder.min_quality {
        figures.used = true;
        return Ok((autoencoder, figures));
    }
    refuse(setup, &figures)?;
    Ok((projection, figures))
}

/// The autoencoder of a checkpoint.
pub(super) fn restore(saved: &Saved, layout: &Layout, device: Device) -> Result<Autoencoder> {
    let figures = &saved.state.autoencoder;
    if !figures.used {
        return Ok(Autoencoder::Projection { width: layout.width as i64 });
    }
    let (encoder, decoder) = Autoencoder::shapes(layout.width, &figures.hidden, figures.latent);
    let network =
        |shape, name| Network::with_weights(shape, &to_numbers(saved.tensor(name)?)?, device);
    Ok(Autoencoder::Trained {
        encoder: network(encoder, "encoder")?,
        decoder: network(decoder, "decoder")?,
    })
}

fn refuse(setup: &TrainSetup<'_>, figures: &AutoencoderFigures) -> Result<()> {
    let least = setup.autoencoder.min_quality;
    let problem = format!(
        "reconstructs {:.3} of what there is to reconstruct, expected at least {least} (accuracy {:.3}, \
         squared error {:.3})",
        figures.quality, figures.accuracy, figures.squared_error
    );
    if setup.autoencoder.kind == AutoencoderKind::Always {
        return Err(Error::training("autoencoder", problem).hint(
            "raise `autoencoder.latent` or `autoencoder.steps`, or set `autoencoder.kind = \"auto\"` \
             to do without it",
        ));
    }
    tracing::warn!("the autoencoder {problem}; continuing without it");
    Ok(())
}

fn learn(
    setup: &TrainSetup<'_>,
    autoencoder: &mut Autoencoder,
    rows: &RowMatrix,
    tensor_layout: &TensorLayout,
) -> Result<()> {
    let job = setup.autoencoder;
    let mut random = setup.streams.random("autoencoder rows");
    let mut order = RowOrder::new(rows.len(), None, &mut random);
    autoencoder.trainable(true);
    let mut optimisers = networks(autoencoder).map(Adam::new);
    each_step(setup, |rate| {
        let indexes: Vec<i64> = order.next(job.batch).into_iter().map(i64::from).collect();
        let batch = rows.take(&Tensor::from_slice(&indexes))?;
        let decoded = autoencoder.decode(&autoencoder.encode(&batch));
        let loss = reconstruction_loss(&decoded, &batch, tensor_layout);
        let gradients = Network::gradients(&networks(autoencoder), &loss)?;
        for ((network, optimiser), gradient) in
            networks(autoencoder).into_iter().zip(&mut optimisers).zip(&gradients)
        {
            optimiser.step(network, gradient, rate);
        }
        Ok(())
    })?;
    autoencoder.trainable(false);
    Ok(())
}

/// The same in plain memory, with gradients by hand: on a CPU.
fn learn_on_host(setup: &TrainSetup<'_>, autoencoder: &Autoencoder, rows: &[f32]) -> Result<()> {
    let (job, layout) = (setup.autoencoder, setup.encoder.layout());
    let ranges = setup.constraints.numeric_ranges();
    let mut learner = HostAutoencoderFit::new(autoencoder, (layout, ranges))?;
    let mut random = setup.streams.random("autoencoder rows");
    let mut order = RowOrder::new(rows.len() / layout.width, None, &mut random);
    each_step(setup, |rate| {
        let batch = order.next(job.batch);
        learner.step(
            batch.iter().map(|row| {
                let first = *row as usize * layout.width;
                &rows[first..first + layout.width]
            }),
            rate,
        );
        Ok(())
    })?;
    let [encoder, decoder] = networks(autoencoder);
    let [of_encoder, of_decoder] = learner.weights();
    encoder.set(&Tensor::from_slice(of_encoder));
    decoder.set(&Tensor::from_slice(of_decoder));
    Ok(())
}

/// Takes the autoencoder's steps, each with its learning rate.
fn each_step(setup: &TrainSetup<'_>, mut take: impl FnMut(f64) -> Result<()>) -> Result<()> {
    let job = setup.autoencoder;
    for step in 0..job.steps {
        take(job.learning_rate * cosine(step as f64 / job.steps as f64))?;
        if (step + 1) % TALK_EVERY == 0 {
            super::stopped(setup)?;
            (setup.listener)(Event::Steps(TALK_EVERY as u64));
        }
    }
    Ok(())
}

fn refuse_diverged(autoencoder: &Autoencoder) -> Result<()> {
    let finite = networks(autoencoder).iter().all(|network| network.is_finite());
    let diverged = || {
        Error::training("autoencoder", "diverged: its weights are NaN or infinite")
            .hint("lower `autoencoder.learning_rate`")
    };
    if finite { Ok(()) } else { Err(diverged()) }
}

fn networks(autoencoder: &Autoencoder) -> [&Network; 2] {
    match autoencoder {
        Autoencoder::Trained { encoder, decoder } => [encoder, decoder],
        Autoencoder::Projection { .. } => unreachable!("only networks are trained"),
    }
}

/// From 1 to 0 along half a cosine.
pub(super) fn cosine(share: f64) -> f64 {
    0.5 * (1.0 + (std::f64::consts::PI * share.clamp(0.0, 1.0)).cos())
}

fn evaluate(
    autoencoder: &Autoencoder,
    rows: &Tensor,
    tensor_layout: &TensorLayout,
) -> AutoencoderFigures {
    no_grad(|| {
        let decoded = autoencoder.decode(&autoencoder.encode(rows));
        let mut shares = Vec::new();
        let mut figures = AutoencoderFigures { accuracy: 1.0, ..Default::default() };
        if tensor_layout.numerics > 0 {
            let original = tensor_layout.numerics_of(rows);
            let errors = (tensor_layout.numerics_of(&decoded) - &original).square().mean_dim(
                0,
                false,
                Kind::Float,
            );
            let spread = original.var_dim(0, false, false);
            figures.squared_error = errors.mean(Kind::Float).double_value(&[]);
            for (error, spread) in numbers(&errors).into_iter().zip(numbers(&spread)) {
                // A constant column has nothing to reconstruct.
                if spread > 1e-6 {
                    shares.push(1.0 - error / spread);
                }
            }
        }
        if tensor_layout.blocks > 0 {
            let original = tensor_layout.one_hots(rows);
            let right = tensor_layout
                .logits(&decoded)
                .argmax(-1, false)
                .eq_tensor(&original.argmax(-1, false));
            let right = right.to_kind(Kind::Float).mean_dim(0, false, Kind::Float);
            let frequent = original.mean_dim(0, false, Kind::Float).amax(-1, false);
            figures.accuracy = right.mean(Kind::Float).double_value(&[]);
            for (right, frequent) in numbers(&right).into_iter().zip(numbers(&frequent)) {
                if frequent < 1.0 - 1e-6 {
                    shares.push((right - frequent) / (1.0 - frequent));
                }
            }
        }
        // A feature that is reconstructed worse than by its mean is no worse than lost.
        let total: f64 = shares.iter().map(|share| share.max(0.0)).sum();
        figures.quality = if shares.is_empty() { 1.0 } else { total / shares.len() as f64 };
        figures
    })
}

fn numbers(row: &Tensor) -> Vec<f64> {
    (0..row.size()[0]).map(|slot| row.double_value(&[slot])).collect()
}
