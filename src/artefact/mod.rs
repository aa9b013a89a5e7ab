//! What a fitted generator is on disk: its networks' weights, a description of what they were trained for, and the
//! training rows that go with it. Loading checks each file against the others and takes nothing for granted.

mod description;
mod files;
mod neighbours;
mod reference;

pub use description::{Description, ModelForm, Origin};
pub use files::{
    Artefact, GENERATOR_FILE, NEIGHBOURS_FILE, REFERENCE_FILE, WEIGHTS_FILE, load, save,
};
pub use neighbours::load_neighbours;
pub use reference::{DecidedRows, ReferenceRows};
