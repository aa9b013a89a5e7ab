//! Networks, losses and what lies between them in plain memory, with gradients written out by hand: what a CPU trains
//! with. On a GPU the same is done with tensors; tests hold the one against the other.

mod adam;
mod autoencoder;
mod features;
mod functions;
mod losses;
mod network;
mod products;
mod replay;

pub use adam::{HostAdam, average};
pub use autoencoder::HostAutoencoderFit;
pub use features::{Decoding, HostAutoencoder, HostFeatures, HostRows, PostProcessing};
pub use functions::{atanh_all, tanh_all};
pub use losses::{HostSparsity, consistency_loss, critic_loss, outcome_loss};
pub use network::{HostNetwork, Pass};
pub use replay::HostReplay;
