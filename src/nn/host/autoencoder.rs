//! Fits an autoencoder in plain memory.

use super::adam::HostAdam;
use super::features::{HostAutoencoder, HostFeatures};
use super::network::{HostNetwork, Pass};
use crate::constrain::NumericRange;
use crate::encode::Layout;
use crate::error::{Error, Result};
use crate::nn::autoencoder::Autoencoder;
use crate::nn::generator::{ActorShape, Form};

/// enc and dec, and their optimisers.
#[derive(Debug)]
pub struct HostAutoencoderFit {
    features: HostFeatures,
    encoder: LearningNetwork,
    decoder: LearningNetwork,
}

/// One of the two, and its memory from step to step.
#[derive(Debug)]
struct LearningNetwork {
    network: HostNetwork,
    adam: HostAdam,
    pass: Pass,
    gradient: Vec<f32>,
}

impl LearningNetwork {
    fn new(network: HostNetwork) -> LearningNetwork {
        let count = network.weights().len();
        let (adam, gradient) = (HostAdam::new(count), vec![0.0; count]);
        LearningNetwork { network, adam, pass: Pass::default(), gradient }
    }

    fn descend(&mut self, rate: f64) {
        let LearningNetwork { network, adam, gradient, .. } = self;
        network.update(|weights| adam.step(weights, gradient, rate));
    }
}

impl HostAutoencoderFit {
    /// Begins with the weights of networks.
    ///
    /// # Errors
    /// When there are none, or they cannot be copied.
    pub fn new(
        autoencoder: &Autoencoder,
        (layout, ranges): (&Layout, &[NumericRange]),
    ) -> Result<HostAutoencoderFit> {
        let HostAutoencoder::Trained { encoder, decoder } = HostAutoencoder::of(autoencoder)?
        else {
            return Err(Error::internal("autoencoder", "has no networks to be trained"));
        };
        let (latent, form) = (autoencoder.latent(), Form::Paper);
        let shape = ActorShape { latent, direct: 0, inputs: 0, hidden: 0, form, outcomes: 0 };
        Ok(HostAutoencoderFit {
            features: HostFeatures::new(layout, ranges, (shape, true)),
            encoder: LearningNetwork::new(encoder),
            decoder: LearningNetwork::new(decoder),
        })
    }

    /// One step on some rows; gives the loss.
    pub fn step<'r>(&mut self, rows: impl ExactSizeIterator<Item = &'r [f32]>, rate: f64) -> f32 {
        let loss = self.descend(rows);
        self.encoder.descend(rate);
        self.decoder.descend(rate);
        loss
    }

    /// The loss on some rows, and both gradients.
    fn descend<'r>(&mut self, rows: impl ExactSizeIterator<Item = &'r [f32]>) -> f32 {
        let HostAutoencoderFit { features, encoder, decoder } = self;
        let (count, width) = (rows.len(), features.width);
        let input = encoder.pass.input(count, width).chunks_exact_mut(width);
        input.zip(rows).for_each(|(input, row)| input.copy_from_slice(row));
        encoder.network.forward(&mut encoder.pass);
        let latents = encoder.pass.output();
        decoder.pass.input(count, latents.len() / count).copy_from_slice(latents);
        decoder.network.forward(&mut decoder.pass);
        let (gradient, decoded) = decoder.pass.gradient_of_output();
        let loss = features.reconstruction_loss(decoded, encoder.pass.latents(), gradient);
        decoder.network.backward(&mut decoder.pass, Some(&mut decoder.gradient), true);
        encoder.pass.gradient_of_output().0.copy_from_slice(decoder.pass.gradient());
        encoder.network.backward(&mut encoder.pass, Some(&mut encoder.gradient), false);
        loss
    }

    /// Weights of encoder and decoder.
    pub fn weights(&self) -> [&[f32]; 2] {
        [self.encoder.network.weights(), self.decoder.network.weights()]
    }

    /// The loss on some rows, and its gradients by the weights of encoder and decoder.
    #[cfg(test)]
    pub(crate) fn gradients(&mut self, rows: &[f32]) -> (f32, [&[f32]; 2]) {
        let loss = self.descend(rows.chunks_exact(self.features.width));
        (loss, [&self.encoder.gradient, &self.decoder.gradient])
    }
}
