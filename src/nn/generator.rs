//! The counterfactual generator: autoencoder and actor, from encoded rows and targets to decoded
//! counterfactuals, before any constraint is applied.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tch::{Tensor, no_grad};

use super::autoencoder::Autoencoder;
use super::bridge::{to_dense, to_tensor};
use super::network::{Network, OutputActivation, Shape};
use super::tensor_layout::TensorLayout;
use crate::constrain::Conditions;
use crate::encode::Dense;
use crate::error::Result;

/// Keeps the inverse of tanh finite where a latent is at its end.
pub(crate) const NEARLY_ONE: f64 = 1.0 - 1e-4;

/// What the original category's slot is ahead of the others in a row left as it is, and so how far moves must go
/// to change it. Small enough for the softmax to pass a gradient on.
pub(super) const SHARPNESS: f64 = 3.0;

/// Moves of a numeric are less by so many standard deviations: one that would be smaller is none.
const MOVE_TOLERANCE: f64 = 0.1;

/// Rows that go through the networks at a time: enough for the matrix products, few enough for what lies
/// between two of them to stay in the second-level cache.
pub const CHUNK_ROWS: usize = 1024;

/// The same on a GPU, which the host waits for after each: a hundred megabytes of device memory for hidden layers of
/// a few hundred numbers.
const GPU_ROWS: usize = 1 << 15;

/// How the networks work together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// As in the paper: the actor gives the counterfactual's latent, the decoder its features, and the
    /// critic evaluates the latent.
    Paper,
    /// The actor gives how far the latent moves, the decoder how far features move: an actor that does
    /// nothing leaves every feature exactly as it was, however badly the autoencoder reconstructs. Beside
    /// the latent the actor moves each numeric by up to a standard deviation, and each category's slot,
    /// since a single small change is hard to hit through the decoder. Numerics that move by less than a tolerance stay.
    /// (Where targets are no labels, categories are the decoder's, and small moves count.) The critic is shown the
    /// post-processed row, which is what the model will see.
    Relative,
}

/// Shape of an actor and its critic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActorShape {
    /// Width of z.
    pub latent: i64,
    /// Numbers by which the actor moves single features beside it.
    pub direct: i64,
    /// Widths of y_M, y_T and c together.
    #[serde(rename = "wishes")]
    pub inputs: i64,
    /// Width of both hidden layers.
    pub hidden: i64,
    /// How the networks work together.
    pub form: Form,
    /// Outcomes that the critic predicts; 0 where it gives R itself.
    pub outcomes: i64,
}

/// enc, dec and μ.
#[derive(Debug)]
pub struct Generator {
    /// enc and dec.
    pub autoencoder: Autoencoder,
    /// μ.
    pub actor: Network,
    /// Where features stand.
    pub tensor_layout: TensorLayout,
    /// Their shape, and how they work together.
    pub shape: ActorShape,
}

/// What counterfactuals are asked for, in plain memory: a row each.
#[derive(Debug, Clone, Copy)]
pub struct GeneratorInput<'a> {
    /// Encoded rows.
    pub rows: &'a Dense,
    /// y_M.
    pub decisions: &'a [f32],
    /// y_T.
    pub targets: &'a [f32],
    /// c.
    pub conditions: &'a Conditions,
    /// What is added to the actor's action, if anything: as wide as [`Generator::action_width`].
    pub nudges: Option<&'a [f32]>,
}

impl ActorShape {
    /// Classes of the model, where the critic predicts outcomes: each of them, and no prediction.
    pub fn classes(self) -> Option<usize> {
        (self.outcomes > 0).then(|| self.outcomes as usize - 1)
    }

    /// The same with the numbers by which the actor moves single features: numerics and, where the critic tells
    /// outcomes apart, the slots of categories, unless they are moved in the latent itself.
    #[must_use]
    pub fn moving(self, autoencoder: &Autoencoder, tensor_layout: &TensorLayout) -> ActorShape {
        let direct = match self.form {
            Form::Paper => 0,
            Form::Relative if self.outcomes > 0 && autoencoder.is_trained() => {
                tensor_layout.numerics + tensor_layout.block_slots
            }
            Form::Relative => tensor_layout.numerics,
        };
        ActorShape { direct, ..self }
    }

    /// What numerics move less: nothing where a value, and not a class, must be hit.
    pub(super) fn tolerance(self) -> f64 {
        if self.outcomes > 0 { MOVE_TOLERANCE } else { 0.0 }
    }

    /// Width of what the actor gives: z_cf, and moves of single features.
    pub fn action(self) -> i64 {
        self.latent + self.direct
    }

    /// The actor's network. What it gives is squashed by tanh: by the network, or by [`Generator::act`]
    /// after the latent was moved.
    pub fn actor(self) -> Shape {
        let widths = vec![self.latent + self.inputs, self.hidden, self.hidden, self.action()];
        let ending = match self.form {
            Form::Paper => OutputActivation::Tanh,
            Form::Relative => OutputActivation::Linear,
        };
        Shape { widths, norm: true, ending }
    }

    /// The critic's network, for encoded rows of this width.
    pub fn critic(self, row: usize) -> Shape {
        let row = row as i64;
        let (input, output) = match self.form {
            Form::Paper => (self.latent + self.inputs + self.action(), 1),
            // The model's decision depends on nothing but the row it is shown.
            Form::Relative if self.outcomes > 0 => (row, self.outcomes),
            Form::Relative => (self.latent + self.inputs + self.action() + row, 1),
        };
        let widths = vec![input, self.hidden, self.hidden, output];
        Shape { widths, norm: true, ending: OutputActivation::Linear }
    }
}

impl Generator {
    /// μ(s), where s begins with z: z_cf, and moves of single features.
    pub fn act(&self, state: &Tensor) -> Tensor {
        let moved = self.actor.forward(state);
        match self.shape.form {
            Form::Paper => moved,
            Form::Relative => {
                let z = state.narrow(1, 0, self.autoencoder.latent());
                let z = z.clamp(-NEARLY_ONE, NEARLY_ONE).atanh();
                // The moves of features start from zero.
                let direct = moved.size()[1] - z.size()[1];
                let start = z.pad([0, direct], "constant", 0.0);
                (start + moved).tanh()
            }
        }
    }

    /// z_cf of what the actor gave.
    pub fn latent_of(&self, action: &Tensor) -> Tensor {
        action.narrow(1, 0, self.autoencoder.latent())
    }

    /// dec(z_cf) for encoded rows whose own decoding is `base` (see [`Generator::base`]), with what the actor
    /// moved features by itself.
    pub fn decode(&self, action: &Tensor, rows: &Tensor, base: &Tensor) -> Tensor {
        let decoded = self.autoencoder.decode(&self.latent_of(action));
        if self.shape.form == Form::Paper {
            return decoded;
        }
        let (tensor_layout, latent) = (&self.tensor_layout, self.autoencoder.latent());
        let moves = action.narrow(1, latent, tensor_layout.numerics);
        let moved = tensor_layout.numerics_of(&decoded) - tensor_layout.numerics_of(base) + moves;
        // Trifles are no moves at all. The gradient passes as if they were: a number can start to move.
        let tolerance = self.shape.tolerance();
        let below_tolerance = moved.detach().clamp(-tolerance, tolerance);
        let moved = moved - below_tolerance;
        let numerics = tensor_layout.numerics_of(rows) + moved;
        let logits = if self.shape.outcomes == 0 {
            tensor_layout.blocks_of(&decoded)
        } else if self.autoencoder.is_trained() {
            let moves =
                action.narrow(1, latent + tensor_layout.numerics, tensor_layout.block_slots);
            let before = base.narrow(1, tensor_layout.numerics, tensor_layout.block_slots);
            (tensor_layout.blocks_of(rows) + tensor_layout.shares(&decoded) - before + moves)
                * SHARPNESS
        } else {
            tensor_layout.blocks_of(&decoded) * SHARPNESS
        };
        let between = rows.size()[1] - tensor_layout.numerics - tensor_layout.block_slots;
        let indicators = rows.narrow(1, tensor_layout.numerics, between);
        Tensor::cat(&[numerics, indicators, logits], 1)
    }

    /// Rows as the autoencoder gives them back, dec(z): numerics, and probabilities of categories.
    pub fn base(&self, latent: &Tensor) -> Tensor {
        // Without an autoencoder a number far out lies at the latent's end, which an action never quite reaches.
        let decoded = if self.autoencoder.is_trained() {
            self.autoencoder.decode(latent)
        } else {
            self.autoencoder.decode(&latent.clamp(-NEARLY_ONE, NEARLY_ONE))
        };
        Tensor::cat(
            &[self.tensor_layout.numerics_of(&decoded), self.tensor_layout.shares(&decoded)],
            1,
        )
    }

    /// Decoded counterfactuals of encoded rows; `decisions` is y_M, `targets` y_T and c side by side.
    pub fn generate(&self, rows: &Tensor, decisions: &Tensor, targets: &Tensor) -> Tensor {
        self.generate_near(rows, decisions, targets, None)
    }

    /// The same from actions that are nudged.
    fn generate_near(
        &self,
        rows: &Tensor,
        decisions: &Tensor,
        targets: &Tensor,
        nudges: Option<Tensor>,
    ) -> Tensor {
        no_grad(|| {
            let z = self.autoencoder.encode(rows);
            let mut action = self.act(&Tensor::cat(&[&z, decisions, targets], 1));
            if let Some(nudges) = nudges {
                action = (action + nudges).clamp(-1.0, 1.0);
            }
            self.decode(&action, rows, &self.base(&z))
        })
    }

    /// Numbers in an action.
    pub fn action_width(&self) -> usize {
        self.shape.action() as usize
    }

    /// The same from plain memory to plain memory.
    ///
    /// # Errors
    /// When the input is not of one number of rows.
    pub fn generate_batch(&self, input: &GeneratorInput<'_>) -> Result<Dense> {
        let layout = &input.rows.layout;
        let mut values = Vec::with_capacity(input.rows.values.len());
        let mut first = 0;
        let most = if self.actor.flat().device().is_cuda() { GPU_ROWS } else { CHUNK_ROWS };
        while first < input.rows.rows {
            let rows = most.min(input.rows.rows - first);
            values.extend(to_dense(&self.generate_some(input, first, rows)?, layout)?.values);
            first += rows;
        }
        let (rows, width) = (input.rows.rows, input.rows.width);
        Ok(Dense { rows, width, values, layout: Arc::clone(layout) })
    }

    /// The counterfactuals of some rows of the input.
    fn generate_some(
        &self,
        input: &GeneratorInput<'_>,
        first: usize,
        rows: usize,
    ) -> Result<Tensor> {
        let device = self.actor.flat().device();
        let matrix = |values: &[f32]| {
            let width = values.len() / input.rows.rows;
            to_tensor(&values[first * width..(first + rows) * width], width, device)
        };
        let conditioning = [matrix(input.targets)?, matrix(&input.conditions.values)?];
        Ok(self.generate_near(
            &matrix(&input.rows.values)?,
            &matrix(input.decisions)?,
            &Tensor::cat(&conditioning, 1),
            input.nudges.map(matrix).transpose()?,
        ))
    }

    /// A copy for another thread: tensors can be sent to one, but not shared with it.
    ///
    /// # Errors
    /// When the weights cannot be copied.
    pub fn replica(&self) -> Result<Generator> {
        Ok(Generator {
            autoencoder: self.autoencoder.replica()?,
            actor: self.actor.replica()?,
            tensor_layout: self.tensor_layout.replica(),
            shape: self.shape,
        })
    }
}

#[cfg(test)]
impl Generator {
    /// Networks that have learnt nothing, without an autoencoder: their proposals are as good as any.
    pub(crate) fn untrained(
        shape: ActorShape,
        constraints: &crate::constrain::Constraints,
    ) -> Generator {
        use rand::SeedableRng;
        let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(1);
        let (layout, device) = (constraints.layout(), tch::Device::Cpu);
        Generator {
            autoencoder: Autoencoder::Projection { width: layout.width as i64 },
            actor: Network::new(shape.actor(), &mut random, device).expect("weights"),
            tensor_layout: TensorLayout::new(layout, constraints.numeric_ranges(), device),
            shape,
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use tch::{Device, Kind};

    use super::*;
    use crate::constrain::NumericRange;
    use crate::encode::{CategoricalSlots, Layout, NumericSlots, Slots};

    /// However badly the autoencoder reconstructs: this one has learnt nothing.
    #[test]
    fn an_actor_that_does_nothing_leaves_every_feature_as_it_was() {
        let number = |value| {
            Slots::Numeric(NumericSlots { value, null: None, mean: 0.0, std: 1.0, cut: f32::MAX })
        };
        let block = |first| {
            Slots::Categorical(CategoricalSlots { first, values: 3, null: None, unseen: None })
        };
        let layout = Layout { width: 8, slots: vec![number(0), number(1), block(2), block(5)] };
        let ranges = [0, 1].map(|_| NumericRange { slot: 0, low: -20.0, high: 20.0 });
        let random = &mut ChaCha8Rng::seed_from_u64(2);
        let rows = [
            [0.3f32, -2.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0],
            [13.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0],
        ];
        let rows = Tensor::from_slice(&rows.concat()).view([2, 8]);
        let targets = Tensor::zeros([2, 1], (Kind::Float, Device::Cpu));
        let trained = Autoencoder::new(8, &[6], 4, random, Device::Cpu).expect("weights");
        for autoencoder in [trained, Autoencoder::Projection { width: 8 }] {
            let tensor_layout = TensorLayout::new(&layout, &ranges, Device::Cpu);
            let shape = ActorShape {
                latent: autoencoder.latent(),
                direct: 0,
                inputs: 2,
                hidden: 3,
                form: Form::Relative,
                outcomes: 3,
            };
            let shape = shape.moving(&autoencoder, &tensor_layout);
            let idle = vec![0.0; shape.actor().count()];
            let actor = Network::with_weights(shape.actor(), &idle, Device::Cpu).expect("weights");
            let generator = Generator { autoencoder, actor, tensor_layout, shape };
            let found = generator.generate(&rows, &targets, &targets);
            let numerics = generator.tensor_layout.numerics_of(&found);
            assert_eq!(numerics, generator.tensor_layout.numerics_of(&rows), "to the last bit");
            let chosen = generator.tensor_layout.logits(&found).argmax(-1, false);
            let original = generator.tensor_layout.one_hots(&rows).argmax(-1, false);
            assert_eq!(chosen, original);
        }
    }
}
