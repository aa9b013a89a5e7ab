//! A network in plain memory and its gradients, written out by hand. On a CPU this is several times as fast as
//! tensors: no operation is looked up, layers are normalised on their way through the cache, and nothing is allocated
//! from step to step.

use pulp::{Arch, NullaryFnOnce};

use super::functions::{dot, sum, tanh};
use super::products::{Left, Right, multiply};
use crate::error::{Error, Result};
use crate::nn::network::{NORM_EPSILON, OutputActivation, Shape};

/// A network and its weights.
#[derive(Debug, Clone)]
pub struct HostNetwork {
    weights: Vec<f32>,
    layers: Vec<HostLayer>,
    ending: OutputActivation,
}

/// A linear layer and what follows it.
#[derive(Debug, Clone)]
struct HostLayer {
    inputs: usize,
    outputs: usize,
    /// Where its weights begin among all.
    first: usize,
    /// Whether it is normalised.
    norm: bool,
    /// Whether a ReLU follows.
    hidden: bool,
    /// The weight, packed for the way there …
    there: Right,
    /// … and back.
    back: Right,
}

/// Rows on their way through a network: what the way back needs. Kept from step to step, so that its memory is.
#[derive(Debug, Default)]
pub struct Pass {
    rows: usize,
    input: Vec<f32>,
    layers: Vec<LayerPass>,
    gradient: Vec<f32>,
    spare: Vec<f32>,
    left: Left,
    right: Right,
}

/// What a layer made of the rows.
#[derive(Debug, Default)]
struct LayerPass {
    /// Normalised, before gain and shift; empty where the layer is not.
    normal: Vec<f32>,
    /// One over each row's deviation.
    scale: Vec<f32>,
    output: Vec<f32>,
}

impl Pass {
    /// Where the input of so many rows is to be written.
    pub fn input(&mut self, rows: usize, width: usize) -> &mut [f32] {
        self.rows = rows;
        self.input.resize(rows * width, 0.0);
        &mut self.input
    }

    /// The input that was written.
    pub fn latents(&self) -> &[f32] {
        &self.input
    }

    /// What the network gave.
    pub fn output(&self) -> &[f32] {
        self.layers.last().map_or(&[], |layer| &layer.output)
    }

    /// Where the gradient of the output is to be written, and the output.
    pub fn gradient_of_output(&mut self) -> (&mut [f32], &[f32]) {
        let output = self.layers.last().map_or(&[][..], |layer| &layer.output);
        self.gradient.resize(output.len(), 0.0);
        (&mut self.gradient, output)
    }

    /// The gradient of the input, once the way back was gone.
    pub fn gradient(&self) -> &[f32] {
        &self.gradient
    }
}

impl HostLayer {
    fn weight(&self) -> std::ops::Range<usize> {
        self.first..self.first + self.inputs * self.outputs
    }

    /// The bias, the gain or the shift.
    fn row(&self, number: usize) -> std::ops::Range<usize> {
        let first = self.weight().end + number * self.outputs;
        first..first + self.outputs
    }
}

impl HostNetwork {
    /// A network with these weights, in the order of [`Shape::sizes`].
    ///
    /// # Errors
    /// When their number does not fit the shape.
    pub fn new(shape: &Shape, weights: &[f32]) -> Result<HostNetwork> {
        if weights.len() != shape.count() {
            let problem = format!("has {} weights, expected {}", weights.len(), shape.count());
            return Err(Error::internal("network", problem));
        }
        let last = shape.widths.len() - 2;
        let mut first = 0;
        let layer = |(layer, pair): (usize, &[i64])| {
            let (inputs, outputs, hidden) = (pair[0] as usize, pair[1] as usize, layer < last);
            let norm = shape.norm && hidden;
            let (there, back) = (Right::default(), Right::default());
            let layer = HostLayer { inputs, outputs, first, norm, hidden, there, back };
            first = layer.row(if norm { 3 } else { 1 }).start;
            layer
        };
        let layers = shape.widths.windows(2).enumerate().map(layer).collect();
        let mut network = HostNetwork { weights: weights.to_vec(), layers, ending: shape.ending };
        network.pack();
        Ok(network)
    }

    /// All weights, in the order of [`Shape::sizes`].
    pub fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// Changes the weights.
    pub fn update(&mut self, change: impl FnOnce(&mut [f32])) {
        change(&mut self.weights);
        self.pack();
    }

    fn pack(&mut self) {
        for layer in &mut self.layers {
            let weight = &self.weights[layer.weight()];
            layer.there.pack_rows(weight, layer.inputs);
            layer.back.pack_columns(weight, layer.inputs);
        }
    }

    /// Takes the input through the network.
    pub fn forward(&self, pass: &mut Pass) {
        let Pass { rows, input, layers, left, .. } = pass;
        layers.resize_with(self.layers.len(), LayerPass::default);
        for (index, layer) in self.layers.iter().enumerate() {
            let (before, rest) = layers.split_at_mut(index);
            let input = before.last().map_or(&input[..], |before| &before.output);
            let of = &mut rest[0];
            of.output.resize(*rows * layer.outputs, 0.0);
            left.pack_rows(input, layer.inputs);
            let bias = Some(&self.weights[layer.row(0)]);
            if layer.norm {
                of.normal.resize(*rows * layer.outputs, 0.0);
                of.scale.resize(*rows, 0.0);
                multiply(left, &layer.there, bias, &mut of.normal);
                let (gain, shift) = (&self.weights[layer.row(1)], &self.weights[layer.row(2)]);
                Arch::new().dispatch(Normalise { of, gain, shift });
            } else {
                multiply(left, &layer.there, bias, &mut of.output);
                let (hidden, ending) = (layer.hidden, self.ending);
                Arch::new().dispatch(Activate { values: &mut of.output, hidden, ending });
            }
        }
    }

    /// Takes the gradient of the output back: to the weights, where it is asked for, in the order of the weights; and to
    /// the input.
    pub fn backward(&self, pass: &mut Pass, mut weights: Option<&mut [f32]>, to_input: bool) {
        for (index, layer) in self.layers.iter().enumerate().rev() {
            let Pass { input, layers, gradient, spare, left, right, rows } = pass;
            let (before, rest) = layers.split_at(index);
            let input = before.last().map_or(&input[..], |before| &before.output);
            let first = layer.row(0).start;
            let rows_of = weights.as_deref_mut().map(|all| &mut all[first..]);
            let back = Back { of: &rest[0], gradient, layer, ending: self.ending };
            Arch::new().dispatch(BackThrough {
                back,
                original: &self.weights[first..],
                rows: rows_of,
            });
            if let Some(all) = weights.as_deref_mut() {
                left.pack_columns(gradient, layer.outputs);
                right.pack_columns(input, layer.inputs);
                multiply(left, right, None, &mut all[layer.weight()]);
            }
            if index > 0 || to_input {
                spare.resize(*rows * layer.inputs, 0.0);
                left.pack_rows(gradient, layer.outputs);
                multiply(left, &layer.back, None, spare);
                std::mem::swap(gradient, spare);
            }
        }
    }
}

/// Normalises rows; ReLU after gain and shift. A NaN stays one, so that it is found.
struct Normalise<'a> {
    of: &'a mut LayerPass,
    gain: &'a [f32],
    shift: &'a [f32],
}

impl NullaryFnOnce for Normalise<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Normalise { of, gain, shift } = self;
        let width = gain.len();
        let rows = of.normal.chunks_exact_mut(width).zip(of.output.chunks_exact_mut(width));
        for ((normal, output), scale) in rows.zip(&mut of.scale) {
            let mean = sum(normal) / width as f32;
            normal.iter_mut().for_each(|value| *value -= mean);
            let variance = dot(normal, normal) / width as f32;
            *scale = 1.0 / (variance + NORM_EPSILON as f32).sqrt();
            let cells = output.iter_mut().zip(normal.iter_mut()).zip(gain.iter().zip(shift));
            for ((output, normal), (gain, shift)) in cells {
                *normal *= *scale;
                let value = *normal * gain + shift;
                *output = if value < 0.0 { 0.0 } else { value };
            }
        }
    }
}

/// What follows a layer that is not normalised.
struct Activate<'a> {
    values: &'a mut [f32],
    hidden: bool,
    ending: OutputActivation,
}

impl NullaryFnOnce for Activate<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        if self.hidden {
            for value in self.values {
                *value = if *value < 0.0 { 0.0 } else { *value };
            }
        } else if self.ending == OutputActivation::Tanh {
            self.values.iter_mut().for_each(|value| *value = tanh(*value));
        }
    }
}

/// A gradient on its way back through what follows a layer.
struct Back<'a> {
    layer: &'a HostLayer,
    of: &'a LayerPass,
    gradient: &'a mut [f32],
    ending: OutputActivation,
}

/// The same with the layer's rows of weights (bias, gain, shift), and where their gradients go.
struct BackThrough<'a> {
    back: Back<'a>,
    original: &'a [f32],
    rows: Option<&'a mut [f32]>,
}

impl NullaryFnOnce for BackThrough<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let BackThrough { back, original, mut rows } = self;
        let Back { layer, of, gradient, ending } = back;
        if layer.hidden {
            for (gradient, output) in gradient.iter_mut().zip(&of.output) {
                *gradient = if *output <= 0.0 { 0.0 } else { *gradient };
            }
        } else if ending == OutputActivation::Tanh {
            for (gradient, output) in gradient.iter_mut().zip(&of.output) {
                *gradient *= 1.0 - output * output;
            }
        }
        let width = layer.outputs;
        if layer.norm {
            if let Some(rows) = rows.as_deref_mut() {
                let (gain, shift) = rows[width..3 * width].split_at_mut(width);
                add_up_norm(gradient, &of.normal, (gain, shift));
            }
            back_through_norm(gradient, of, &original[width..2 * width]);
        }
        if let Some(rows) = rows {
            add_up(gradient, &mut rows[..width]);
        }
    }
}

/// Gradients of gain and shift.
#[inline(always)]
fn add_up_norm(gradient: &[f32], normal: &[f32], (gain, shift): (&mut [f32], &mut [f32])) {
    gain.fill(0.0);
    shift.fill(0.0);
    let width = gain.len();
    for (gradient, normal) in gradient.chunks_exact(width).zip(normal.chunks_exact(width)) {
        let cells = gain.iter_mut().zip(shift.iter_mut()).zip(gradient.iter().zip(normal));
        for ((gain, shift), (gradient, normal)) in cells {
            *gain += gradient * normal;
            *shift += gradient;
        }
    }
}

/// The gradient before normalising: without its mean and without what it has in common with the row.
#[inline(always)]
fn back_through_norm(gradient: &mut [f32], of: &LayerPass, gain: &[f32]) {
    let width = gain.len();
    let rows = gradient.chunks_exact_mut(width).zip(of.normal.chunks_exact(width));
    for ((gradient, normal), scale) in rows.zip(&of.scale) {
        gradient.iter_mut().zip(gain).for_each(|(gradient, gain)| *gradient *= gain);
        let mean = sum(gradient) / width as f32;
        let along = dot(gradient, normal) / width as f32;
        for (gradient, normal) in gradient.iter_mut().zip(normal) {
            *gradient = (*gradient - mean - normal * along) * scale;
        }
    }
}

/// The sum of all rows.
#[inline(always)]
fn add_up(rows: &[f32], total: &mut [f32]) {
    total.fill(0.0);
    for row in rows.chunks_exact(total.len()) {
        total.iter_mut().zip(row).for_each(|(total, value)| *total += value);
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use tch::{Device, Kind, Tensor};

    use super::*;
    use crate::nn::{Network, to_numbers};

    fn numbers(count: usize, salt: f32) -> Vec<f32> {
        (0..count).map(|index| (index as f32 * 0.7 + salt).sin()).collect()
    }

    fn assert_close(found: &[f32], expected: &Tensor, what: &str) {
        let expected = to_numbers(expected).expect("numbers");
        assert_eq!(found.len(), expected.len(), "{what}");
        for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let tolerance = 2e-5 * (1.0 + expected.abs());
            assert!((found - expected).abs() < tolerance, "{what}[{index}]: {found}, {expected}");
        }
    }

    /// Output, and gradients of weights and input, of all kinds of networks against libtorch's.
    #[test]
    fn gradients_agree_with_automatic_ones() {
        let shapes = [
            (vec![7, 20, 20, 5], true, OutputActivation::Tanh),
            (vec![33, 48, 48, 3], true, OutputActivation::Linear),
            (vec![9, 17, 4], false, OutputActivation::Tanh),
            (vec![6, 2], false, OutputActivation::Linear),
        ];
        for (widths, norm, ending) in shapes {
            let shape = Shape { widths, norm, ending };
            let random = &mut ChaCha8Rng::seed_from_u64(4);
            let mut network = Network::new(shape.clone(), random, Device::Cpu).expect("weights");
            let weights = to_numbers(network.flat()).expect("numbers");
            let (width, rows) = (shape.widths[0] as usize, 13);
            let input = numbers(rows * width, 1.0);
            let outer = numbers(rows * shape.widths[shape.widths.len() - 1] as usize, 2.0);

            network.trainable(true);
            let tensor = |values: &[f32]| Tensor::from_slice(values).view([rows as i64, -1]);
            let leaf = tensor(&input).set_requires_grad(true);
            let output = network.forward(&leaf);
            let loss = (&output * tensor(&outer)).sum(Kind::Float);
            let of_input = &Tensor::run_backward(&[&loss], &[&leaf], true, false)[0];
            let of_weights = network.gradient(&loss).expect("gradient");

            let host = HostNetwork::new(&shape, &weights).expect("weights fit");
            let mut pass = Pass::default();
            // The second time it is the memory of the first.
            for _ in 0..2 {
                pass.input(rows, width).copy_from_slice(&input);
                host.forward(&mut pass);
                assert_close(pass.output(), &output, "output");
                pass.gradient_of_output().0.copy_from_slice(&outer);
                let mut gradient = vec![f32::NAN; weights.len()];
                host.backward(&mut pass, Some(&mut gradient), true);
                assert_close(&gradient, &of_weights, "weights");
                assert_close(pass.gradient(), of_input, "input");
            }
        }
    }
}
