//! From an encoded row to its latent representation and back: a trained pair of networks, or (the
//! paper's variant without an autoencoder) tanh and its inverse.

use rand::Rng;
use tch::{Device, Tensor};

use super::network::{Network, OutputActivation, Shape};
use crate::error::Result;

/// tanh in 32 bits is 1 from about 9 on, where its inverse is infinite; this reaches ±7.25 standard
/// deviations, and post-processing clips anyway.
pub(super) const WIDEST: f64 = 1.0 - 1e-6;

/// enc and dec.
#[derive(Debug)]
pub enum Autoencoder {
    /// Two trained networks.
    Trained {
        /// Encoded row → latent, ending in tanh.
        encoder: Network,
        /// Latent → standardised numerics and a logit for every slot of a block.
        decoder: Network,
    },
    /// tanh and its inverse, number by number.
    Projection {
        /// Places of an encoded row, and of the latent.
        width: i64,
    },
}

impl Autoencoder {
    /// Networks with random weights. No hidden layer: one linear layer each way.
    pub fn new(
        width: usize,
        hidden: &[usize],
        latent: usize,
        random: &mut impl Rng,
        device: Device,
    ) -> Result<Autoencoder> {
        let (encoder, decoder) = Autoencoder::shapes(width, hidden, latent);
        Ok(Autoencoder::Trained {
            encoder: Network::new(encoder, random, device)?,
            decoder: Network::new(decoder, random, device)?,
        })
    }

    /// Shapes of the two networks.
    pub fn shapes(width: usize, hidden: &[usize], latent: usize) -> (Shape, Shape) {
        let mut widths = vec![width as i64];
        widths.extend(hidden.iter().map(|width| *width as i64));
        widths.push(latent as i64);
        let mirrored = widths.iter().rev().copied().collect();
        let encoder = Shape { widths, norm: false, ending: OutputActivation::Tanh };
        (encoder, Shape { widths: mirrored, norm: false, ending: OutputActivation::Linear })
    }

    /// z = enc(x).
    pub fn encode(&self, rows: &Tensor) -> Tensor {
        match self {
            Autoencoder::Trained { encoder, .. } => encoder.forward(rows),
            Autoencoder::Projection { .. } => rows.tanh(),
        }
    }

    /// dec(z), as wide as an encoded row. Places of null indicators mean nothing.
    pub fn decode(&self, latent: &Tensor) -> Tensor {
        match self {
            Autoencoder::Trained { decoder, .. } => decoder.forward(latent),
            Autoencoder::Projection { .. } => latent.clamp(-WIDEST, WIDEST).atanh(),
        }
    }

    /// Width of the latent.
    pub fn latent(&self) -> i64 {
        match self {
            Autoencoder::Trained { decoder, .. } => decoder.shape().widths[0],
            Autoencoder::Projection { width } => *width,
        }
    }

    /// Whether it was trained.
    pub fn is_trained(&self) -> bool {
        matches!(self, Autoencoder::Trained { .. })
    }

    /// Whether gradients reach the weights.
    pub fn trainable(&mut self, yes: bool) {
        if let Autoencoder::Trained { encoder, decoder } = self {
            encoder.trainable(yes);
            decoder.trainable(yes);
        }
    }

    /// A copy for another thread.
    ///
    /// # Errors
    /// When the weights cannot be copied.
    pub fn replica(&self) -> Result<Autoencoder> {
        Ok(match self {
            Autoencoder::Trained { encoder, decoder } => {
                Autoencoder::Trained { encoder: encoder.replica()?, decoder: decoder.replica()? }
            }
            Autoencoder::Projection { width } => Autoencoder::Projection { width: *width },
        })
    }
}
