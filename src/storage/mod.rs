//! Object stores: from a URL to bytes. A job's paths may be URLs (`s3://`, `gs://`, `az://`); what they mean, with
//! which options and credentials a store is opened, and what its errors say in plain words is decided here, once.
//!
//! Requests run on threads of their own, so that a core that is busy with a model delays no connection. Functions
//! of [`Store`] are async; [`wait`] runs them from code that is not.

mod cache;
mod error;
mod location;
mod options;
mod pinned;
mod ranges;
mod redact;
mod store;
mod stores;
mod threads;

pub use cache::{Cache, cache_folder};
pub use error::{refused, translate};
pub use location::{Location, ObjectUrl, Scheme, is_url};
pub use options::option_faults;
pub use pinned::Pinned;
pub use redact::redact;
pub use store::{Created, Listed, Store, Version};
pub use stores::{StoreOptions, Stores};
pub use threads::wait;
