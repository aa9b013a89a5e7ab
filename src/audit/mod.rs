//! Who can be helped, at what cost, who cannot, and why: what a run's tables, and questions to its model, say of groups
//! of rows.

pub mod questions;
mod reasons;

pub use reasons::check_codes;
