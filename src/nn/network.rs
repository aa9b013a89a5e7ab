//! A stack of linear layers: every network of the method is one. Weights live in one flat tensor, of
//! which the layers' weights are views: the optimiser then works on one tensor instead of on ten.

use rand::{Rng, RngExt};
use tch::{Device, Kind, Tensor, no_grad};

use super::bridge::to_tensor;
use crate::error::{Error, Result};

/// As in the paper's reference.
pub(super) const NORM_EPSILON: f64 = 1e-5;

/// What a network looks like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Widths: input, hidden layers, output.
    pub widths: Vec<i64>,
    /// Whether hidden layers are normalised before their ReLU.
    pub norm: bool,
    /// What follows the last layer.
    pub ending: OutputActivation,
}

/// What follows a network's last layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputActivation {
    /// Nothing.
    Linear,
    /// tanh.
    Tanh,
}

/// A network and its weights.
#[derive(Debug)]
pub struct Network {
    shape: Shape,
    flat: Tensor,
    /// Per layer: weight, bias and, where it is normalised, gain and shift.
    weights: Vec<Tensor>,
}

impl Shape {
    /// Sizes of the weights in order: per layer weight, bias and, where normalised, gain and shift.
    pub fn sizes(&self) -> Vec<Vec<i64>> {
        let last = self.widths.len() - 2;
        let mut sizes = Vec::new();
        for (layer, pair) in self.widths.windows(2).enumerate() {
            sizes.extend([vec![pair[1], pair[0]], vec![pair[1]]]);
            if self.norm && layer < last {
                sizes.extend([vec![pair[1]], vec![pair[1]]]);
            }
        }
        sizes
    }

    /// Numbers in all weights together.
    pub fn count(&self) -> usize {
        self.sizes().iter().map(|size| size.iter().product::<i64>() as usize).sum()
    }

    fn weights_per_layer(&self) -> usize {
        if self.norm { 4 } else { 2 }
    }

    /// Weights and biases uniform within ±1/√fan-in, gains one, shifts zero. Drawn here and not by
    /// libtorch, so that a seed means the same on every device.
    fn draw(&self, random: &mut impl Rng) -> Vec<f32> {
        let mut values = Vec::with_capacity(self.count());
        let last = self.widths.len() - 2;
        for (layer, pair) in self.widths.windows(2).enumerate() {
            let bound = 1.0 / (pair[0] as f32).sqrt();
            let count = pair[1] * pair[0] + pair[1];
            values.extend((0..count).map(|_| random.random_range(-bound..=bound)));
            if self.norm && layer < last {
                values.extend((0..pair[1]).map(|_| 1.0));
                values.extend((0..pair[1]).map(|_| 0.0));
            }
        }
        values
    }
}

impl Network {
    /// A network with random weights.
    pub fn new(shape: Shape, random: &mut impl Rng, device: Device) -> Result<Network> {
        let values = shape.draw(random);
        Network::with_weights(shape, &values, device)
    }

    /// A network with these weights, in the order of [`Shape::sizes`].
    ///
    /// # Errors
    /// When their number does not fit the shape.
    pub fn with_weights(shape: Shape, values: &[f32], device: Device) -> Result<Network> {
        if values.len() != shape.count() {
            let problem = format!("has {} weights, expected {}", values.len(), shape.count());
            return Err(Error::internal("network", problem));
        }
        let flat = to_tensor(values, values.len(), device)?.view([-1]);
        let mut first = 0;
        let mut weights = Vec::new();
        for size in shape.sizes() {
            let count: i64 = size.iter().product();
            weights.push(flat.narrow(0, first, count).view(&size[..]).detach());
            first += count;
        }
        Ok(Network { shape, flat, weights })
    }

    /// Its shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// All weights as one row, which the layers see.
    pub fn flat(&self) -> &Tensor {
        &self.flat
    }

    /// Takes other weights.
    pub fn set(&self, flat: &Tensor) {
        no_grad(|| self.flat.shallow_clone().copy_(flat));
    }

    /// Whether gradients reach the weights.
    pub fn trainable(&mut self, yes: bool) {
        for weight in &mut self.weights {
            *weight = weight.set_requires_grad(yes);
        }
    }

    /// Applies the network to rows.
    pub fn forward(&self, rows: &Tensor) -> Tensor {
        let layers = self.shape.widths.len() - 1;
        let per_layer = self.shape.weights_per_layer();
        let mut hidden = rows.shallow_clone();
        for (layer, weights) in self.weights.chunks(per_layer).enumerate() {
            hidden = hidden.linear(&weights[0], Some(&weights[1]));
            if let [_, bias, gain, shift] = weights {
                hidden =
                    hidden.layer_norm(bias.size(), Some(gain), Some(shift), NORM_EPSILON, true);
            }
            if layer + 1 < layers {
                // In place: nothing looks at what it was before.
                hidden = hidden.relu_();
            }
        }
        match self.shape.ending {
            OutputActivation::Linear => hidden,
            OutputActivation::Tanh => hidden.tanh(),
        }
    }

    /// The gradient of a loss, as one row in the order of the flat weights.
    ///
    /// # Errors
    /// When the loss does not depend on the weights.
    pub fn gradient(&self, loss: &Tensor) -> Result<Tensor> {
        let mut gradients = Network::gradients(&[self], loss)?;
        gradients.pop().ok_or_else(|| Error::internal("gradient", "is lost"))
    }

    /// The gradients of a loss in several networks, one backward pass for all.
    ///
    /// # Errors
    /// When the loss does not depend on the weights.
    pub fn gradients(networks: &[&Network], loss: &Tensor) -> Result<Vec<Tensor>> {
        let weights: Vec<&Tensor> = networks.iter().flat_map(|network| &network.weights).collect();
        let gradients = Tensor::f_run_backward(&[loss], &weights, false, false);
        let gradients = gradients
            .map_err(|error| Error::internal("gradient", "cannot be computed").source(error))?;
        let mut rows = gradients.iter().map(|gradient| gradient.reshape([-1]));
        let of_one = |network: &&Network| {
            let original: Vec<Tensor> = rows.by_ref().take(network.weights.len()).collect();
            Tensor::cat(&original, 0)
        };
        Ok(networks.iter().map(of_one).collect())
    }

    /// A second network with the same weights, of its own.
    pub fn replica(&self) -> Result<Network> {
        let values = super::bridge::to_numbers(&self.flat)?;
        Network::with_weights(self.shape.clone(), &values, self.flat.device())
    }

    /// Whether every weight is a finite number. Waits for the device.
    pub fn is_finite(&self) -> bool {
        self.flat.isfinite().all().to_kind(Kind::Int64).int64_value(&[]) == 1
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn shape() -> Shape {
        Shape { widths: vec![3, 4, 4, 2], norm: true, ending: OutputActivation::Tanh }
    }

    #[test]
    fn weights_follow_the_seed_and_their_bounds() {
        let draw = |seed| shape().draw(&mut ChaCha8Rng::seed_from_u64(seed));
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert_eq!(draw(1).len(), shape().count());
        assert!(draw(1)[..16].iter().all(|weight| weight.abs() <= 1.0 / 3f32.sqrt()));
        assert_eq!(draw(1)[16..24], [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn layers_see_what_the_flat_weights_become() {
        let network =
            Network::new(shape(), &mut ChaCha8Rng::seed_from_u64(1), Device::Cpu).expect("built");
        let rows = Tensor::ones([5, 3], (Kind::Float, Device::Cpu));
        let before = network.forward(&rows);
        network.set(&(network.flat() * 2.0));
        assert_ne!(before, network.forward(&rows));
        let replica = network.replica().expect("copied");
        assert_eq!(network.forward(&rows), replica.forward(&rows));
    }

    #[test]
    fn gradients_agree_with_finite_differences() {
        let mut network =
            Network::new(shape(), &mut ChaCha8Rng::seed_from_u64(3), Device::Cpu).expect("built");
        let rows = Tensor::arange(15, (Kind::Float, Device::Cpu)).view([5, 3]).sin();
        let loss = |network: &Network| network.forward(&rows).square().sum(Kind::Float);
        network.trainable(true);
        let gradient = network.gradient(&loss(&network)).expect("computed");
        let flat = network.flat().copy();
        for slot in 0..shape().count() as i64 {
            let moved = |by: f64| {
                let moved = flat.copy();
                let _ = moved.narrow(0, slot, 1).g_add_scalar_(by);
                network.set(&moved);
                f64::try_from(no_grad(|| loss(&network))).expect("a number")
            };
            let expected = (moved(1e-3) - moved(-1e-3)) / 2e-3;
            let found = gradient.double_value(&[slot]);
            let tolerance = 1e-2 * (1.0 + expected.abs());
            assert!((found - expected).abs() < tolerance, "{slot}: {found}, not {expected}");
        }
    }
}
