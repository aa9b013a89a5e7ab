//! Everything made of tensors: networks and their optimiser, the losses, the replay buffer, tensors as files; and in
//! [`host`] the same in plain memory, which a CPU trains with. Knows which slots of an encoded row are what, never a
//! column's name and never a job.

mod adam;
mod autoencoder;
mod bridge;
mod generator;
pub mod host;
mod loss;
mod network;
mod replay;
mod tensor_layout;
mod tensors;

pub use adam::Adam;
pub use autoencoder::Autoencoder;
pub use bridge::{out_of_memory, to_dense, to_tensor};
pub(crate) use bridge::{refused, to_numbers, upload};
pub(crate) use generator::NEARLY_ONE;
pub use generator::{ActorShape, CHUNK_ROWS, Form, Generator, GeneratorInput};
pub use loss::{
    SparsityLoss, consistency_loss, critic_loss, outcome_loss, output_sparsity,
    reconstruction_loss, sparsity_loss,
};
pub use network::{Network, OutputActivation, Shape};
pub use replay::{Experiences, Replay, ReplayShape};
pub use tensor_layout::TensorLayout;
pub use tensors::{TensorEntry, list_tensors};
pub(crate) use tensors::{
    file_hash, read_in_folder, read_tensors, read_verified, tensor, write_tensors,
};
