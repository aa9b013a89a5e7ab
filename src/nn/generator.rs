//! The counterfactual generator: autoencoder and actor, from encoded rows and wishes to decoded
//! counterfactuals, before any constraint is applied.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tch::{Tensor, no_grad};

use super::autoencoder::Autoencoder;
use super::bridge::{to_dense, to_tensor};
use super::network::{Ending, Network, Shape};
use super::places::Places;
use crate::constrain::Conditions;
use crate::encode::Dense;
use crate::error::Result;

/// Keeps the inverse of tanh finite where a latent is at its end.
const NEARLY_ONE: f64 = 1.0 - 1e-4;

/// Rows that go through the networks at a time: enough for the matrix products, few enough for what lies
/// between two of them to stay in the second-level cache.
pub const CHUNK_ROWS: usize = 1024;

/// How the networks work together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// As in the paper: the actor gives the counterfactual's latent, the decoder its features, and the
    /// critic judges the latent.
    Paper,
    /// The actor gives how far the latent moves, the decoder how far numerics move: an actor that does
    /// nothing leaves every numeric exactly as it was, however badly the autoencoder reconstructs. Beside
    /// the latent the actor moves each numeric by up to a standard deviation, since a small step of a
    /// numeric is hard to hit through the decoder. The critic is also shown the post-processed row, which
    /// is what the model will see.
    Relative,
}

/// Shape of an actor and its critic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActorShape {
    /// Width of z.
    pub latent: i64,
    /// Numerics that the actor moves beside it.
    pub numerics: i64,
    /// Widths of y_M, y_T and c together.
    pub wishes: i64,
    /// Width of both hidden layers.
    pub hidden: i64,
    /// How the networks work together.
    pub form: Form,
}

/// enc, dec and μ.
#[derive(Debug)]
pub struct Generator {
    /// enc and dec.
    pub autoencoder: Autoencoder,
    /// μ.
    pub actor: Network,
    /// Where features stand.
    pub places: Places,
    /// How they work together.
    pub form: Form,
}

/// What counterfactuals are asked for, in plain memory: a row each.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Encoded rows.
    pub rows: &'a Dense,
    /// y_M.
    pub decisions: &'a [f32],
    /// y_T.
    pub wishes: &'a [f32],
    /// c.
    pub conditions: &'a Conditions,
    /// What is added to the actor's action, if anything: as wide as [`Generator::action_width`].
    pub nudges: Option<&'a [f32]>,
}

impl ActorShape {
    /// Width of what the actor gives: z_cf, and moves of numerics.
    pub fn action(self) -> i64 {
        self.latent + self.numerics
    }

    /// The actor's network. What it gives is squashed by tanh: by the network, or by [`Generator::act`]
    /// after the latent was moved.
    pub fn actor(self) -> Shape {
        let widths = vec![self.latent + self.wishes, self.hidden, self.hidden, self.action()];
        let ending = match self.form {
            Form::Paper => Ending::Tanh,
            Form::Relative => Ending::Linear,
        };
        Shape { widths, norm: true, ending }
    }

    /// The critic's network, for encoded rows of this width.
    pub fn critic(self, row: usize) -> Shape {
        let seen = match self.form {
            Form::Paper => 0,
            Form::Relative => row as i64,
        };
        let input = self.latent + self.wishes + self.action() + seen;
        let widths = vec![input, self.hidden, self.hidden, 1];
        Shape { widths, norm: true, ending: Ending::Linear }
    }
}

impl Generator {
    /// μ(s), where s begins with z: z_cf, and moves of numerics.
    pub fn act(&self, state: &Tensor) -> Tensor {
        let moved = self.actor.forward(state);
        match self.form {
            Form::Paper => moved,
            Form::Relative => {
                let z = state.narrow(1, 0, self.autoencoder.latent());
                let z = z.clamp(-NEARLY_ONE, NEARLY_ONE).atanh();
                // The moves of numerics start from zero.
                let start = z.pad([0, self.places.numerics], "constant", 0.0);
                (start + moved).tanh()
            }
        }
    }

    /// z_cf of what the actor gave.
    pub fn latent_of(&self, action: &Tensor) -> Tensor {
        action.narrow(1, 0, self.autoencoder.latent())
    }

    /// dec(z_cf) for encoded rows whose own decoding has the numerics `base` (see [`Generator::base`]), with
    /// what the actor moved numerics by itself.
    pub fn decode(&self, action: &Tensor, rows: &Tensor, base: &Tensor) -> Tensor {
        let decoded = self.autoencoder.decode(&self.latent_of(action));
        if self.form == Form::Paper || self.places.numerics == 0 {
            return decoded;
        }
        let moves = action.narrow(1, self.autoencoder.latent(), self.places.numerics);
        let moved = self.places.numerics_of(&decoded) - base + moves;
        let numerics = self.places.numerics_of(rows) + moved;
        let rest = decoded.size()[1] - self.places.numerics;
        Tensor::cat(&[numerics, decoded.narrow(1, self.places.numerics, rest)], 1)
    }

    /// The numerics of rows as the autoencoder gives them back: those of dec(z).
    pub fn base(&self, latent: &Tensor) -> Tensor {
        self.places.numerics_of(&self.autoencoder.decode(latent))
    }

    /// Decoded counterfactuals of encoded rows; `decisions` is y_M, `wishes` y_T and c side by side.
    pub fn generate(&self, rows: &Tensor, decisions: &Tensor, wishes: &Tensor) -> Tensor {
        self.generate_near(rows, decisions, wishes, None)
    }

    /// The same from actions that are nudged.
    fn generate_near(
        &self,
        rows: &Tensor,
        decisions: &Tensor,
        wishes: &Tensor,
        nudges: Option<Tensor>,
    ) -> Tensor {
        no_grad(|| {
            let z = self.autoencoder.encode(rows);
            let mut action = self.act(&Tensor::cat(&[&z, decisions, wishes], 1));
            if let Some(nudges) = nudges {
                action = (action + nudges).clamp(-1.0, 1.0);
            }
            self.decode(&action, rows, &self.base(&z))
        })
    }

    /// Numbers in an action.
    pub fn action_width(&self) -> usize {
        let numerics = if self.form == Form::Paper { 0 } else { self.places.numerics };
        (self.autoencoder.latent() + numerics) as usize
    }

    /// The same from plain memory to plain memory.
    ///
    /// # Errors
    /// When the request is not of one number of rows.
    pub fn answer(&self, request: &Request<'_>) -> Result<Dense> {
        let layout = &request.rows.layout;
        let mut values = Vec::with_capacity(request.rows.values.len());
        let mut first = 0;
        while first < request.rows.rows {
            let rows = CHUNK_ROWS.min(request.rows.rows - first);
            values.extend(to_dense(&self.answer_some(request, first, rows)?, layout)?.values);
            first += rows;
        }
        let (rows, width) = (request.rows.rows, request.rows.width);
        Ok(Dense { rows, width, values, layout: Arc::clone(layout) })
    }

    /// The answers to a stretch of a request.
    fn answer_some(&self, request: &Request<'_>, first: usize, rows: usize) -> Result<Tensor> {
        let device = self.actor.flat().device();
        let matrix = |values: &[f32]| {
            let width = values.len() / request.rows.rows;
            to_tensor(&values[first * width..(first + rows) * width], width, device)
        };
        let asked = [matrix(request.wishes)?, matrix(&request.conditions.values)?];
        Ok(self.generate_near(
            &matrix(&request.rows.values)?,
            &matrix(request.decisions)?,
            &Tensor::cat(&asked, 1),
            request.nudges.map(matrix).transpose()?,
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
            places: self.places.replica(),
            form: self.form,
        })
    }
}

#[cfg(test)]
impl Generator {
    /// Networks that have learnt nothing, without an autoencoder: their answers are as good as any.
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
            places: Places::new(layout, constraints.numeric_ranges(), device),
            form: shape.form,
        }
    }
}
