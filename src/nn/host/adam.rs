//! The Adam optimiser in plain memory: one way through weights, gradient and moments.

use pulp::{Arch, NullaryFnOnce};

use crate::nn::adam::{BETA_1, BETA_2, EPSILON};

/// Adam's moments for one network.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostAdam {
    /// First moments.
    pub first: Vec<f32>,
    /// Second moments.
    pub second: Vec<f32>,
    /// Steps taken.
    pub steps: i64,
}

impl HostAdam {
    /// An optimiser of so many weights that has seen nothing.
    pub fn new(weights: usize) -> HostAdam {
        HostAdam { first: vec![0.0; weights], second: vec![0.0; weights], steps: 0 }
    }

    /// One step against the gradient.
    pub fn step(&mut self, weights: &mut [f32], gradient: &[f32], rate: f64) {
        self.steps += 1;
        let bias_1 = 1.0 - BETA_1.powf(self.steps as f64);
        let bias_2 = 1.0 - BETA_2.powf(self.steps as f64);
        let (rate, divisor) = ((-rate / bias_1) as f32, (1.0 / bias_2.sqrt()) as f32);
        Arch::new().dispatch(AdamStep { adam: self, weights, gradient, factors: (rate, divisor) });
    }
}

struct AdamStep<'a> {
    adam: &'a mut HostAdam,
    weights: &'a mut [f32],
    gradient: &'a [f32],
    factors: (f32, f32),
}

impl NullaryFnOnce for AdamStep<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let (rate, divisor) = self.factors;
        let (beta_1, beta_2) = ((1.0 - BETA_1) as f32, (1.0 - BETA_2) as f32);
        let moments = self.adam.first.iter_mut().zip(&mut self.adam.second);
        for ((weight, gradient), (first, second)) in
            self.weights.iter_mut().zip(self.gradient).zip(moments)
        {
            *first += beta_1 * (gradient - *first);
            *second += beta_2 * (gradient * gradient - *second);
            *weight += rate * (*first / (second.sqrt() * divisor + EPSILON as f32));
        }
    }
}

/// Moves a mean of weights by a share of the way towards them.
pub fn average(mean: &mut [f32], weights: &[f32], share: f64) {
    if share >= 1.0 {
        return mean.copy_from_slice(weights);
    }
    let share = share as f32;
    mean.iter_mut().zip(weights).for_each(|(mean, weight)| *mean += share * (weight - *mean));
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use tch::{Device, Tensor};

    use super::*;
    use crate::nn::{Adam, Network, OutputActivation, Shape, to_numbers};

    #[test]
    fn steps_agree_with_those_on_tensors() {
        let shape = Shape { widths: vec![5, 3], norm: false, ending: OutputActivation::Linear };
        let random = &mut ChaCha8Rng::seed_from_u64(4);
        let network = Network::new(shape, random, Device::Cpu).expect("weights");
        let mut weights = to_numbers(network.flat()).expect("numbers");
        let (mut adam, mut host) = (Adam::new(&network), HostAdam::new(weights.len()));
        for step in 0..20 {
            let gradient: Vec<f32> = (0..18).map(|index| (index * step) as f32 * 1e-3).collect();
            adam.step(&network, &Tensor::from_slice(&gradient), 1e-2);
            host.step(&mut weights, &gradient, 1e-2);
        }
        let expected = to_numbers(network.flat()).expect("numbers");
        for (found, expected) in weights.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-5, "{found} instead of {expected}");
        }
        let mut mean = vec![0.0; 18];
        average(&mut mean, &weights, 0.5);
        assert!((mean[3] - weights[3] / 2.0).abs() < 1e-6);
        average(&mut mean, &weights, 1.0);
        assert_eq!(mean, weights);
    }
}
