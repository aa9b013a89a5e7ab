//! Everything made of tensors: networks and their optimiser, the losses, the replay buffer, and the
//! fitted generator as a file. Knows slots and places of an encoded row, never a column's name.

mod adam;
mod artefact;
mod autoencoder;
mod bridge;
mod description;
mod generator;
mod loss;
mod neighbours;
mod network;
mod places;
mod reference;
mod replay;
mod tensors;

pub use adam::Adam;
pub use artefact::{
    Artefact, GENERATOR_FILE, NEIGHBOURS_FILE, REFERENCE_FILE, WEIGHTS_FILE, load, save,
};
pub use autoencoder::Autoencoder;
pub(crate) use bridge::to_numbers;
pub(crate) use bridge::upload;
pub use bridge::{out_of_memory, to_dense, to_tensor};
pub use description::{Description, ModelForm, Origin};
pub use generator::{ActorShape, CHUNK_ROWS, Form, Generator, Request};
pub use loss::{
    Sparsity, consistency_loss, critic_loss, outcome_loss, output_sparsity, reconstruction_loss,
    sparsity_loss,
};
pub use neighbours::load_neighbours;
pub use network::{Ending, Network, Shape};
pub use places::Places;
pub use reference::{DecidedRows, ReferenceRows};
pub use replay::{Experiences, Replay, ReplayShape};
pub use tensors::{TensorEntry, list_tensors};
pub(crate) use tensors::{read_tensors, tensor, write_tensors};
