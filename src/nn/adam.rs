//! The Adam optimiser over a network's flat weights: a handful of operations on one tensor a step. Its
//! state is ours to save, so that a resumed training continues as if it had never stopped.

use tch::{Kind, Tensor, no_grad};

use super::network::Network;

pub(super) const BETA_1: f64 = 0.9;
pub(super) const BETA_2: f64 = 0.999;
pub(super) const EPSILON: f64 = 1e-8;

/// Adam's moments for one network.
#[derive(Debug)]
pub struct Adam {
    /// First and second moment, a row each.
    pub moments: Tensor,
    /// Steps taken.
    pub steps: i64,
}

impl Adam {
    /// An optimiser that has seen nothing.
    pub fn new(network: &Network) -> Adam {
        let count = network.flat().size()[0];
        let moments = Tensor::zeros([2, count], (Kind::Float, network.flat().device()));
        Adam { moments, steps: 0 }
    }

    /// One step against the gradient.
    pub fn step(&mut self, network: &Network, gradient: &Tensor, rate: f64) {
        self.steps += 1;
        let bias_1 = 1.0 - BETA_1.powf(self.steps as f64);
        let bias_2 = 1.0 - BETA_2.powf(self.steps as f64);
        no_grad(|| {
            let (mut first, mut second) = (self.moments.get(0), self.moments.get(1));
            let _ = first.lerp_(gradient, 1.0 - BETA_1);
            let _ = second.lerp_(&gradient.square(), 1.0 - BETA_2);
            let mut divisor = second.sqrt();
            let _ = divisor.g_div_scalar_(bias_2.sqrt()).g_add_scalar_(EPSILON);
            let mut step = first / divisor;
            let _ = step.g_mul_scalar_(-rate / bias_1);
            let _ = network.flat().shallow_clone().g_add_(&step);
        });
    }
}
