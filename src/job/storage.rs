//! The `[storage]` section.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::{KeyPositions, Literal};
use crate::error::Fault;
use crate::storage::{StoreOptions, Stores, option_faults};

/// Options of object stores, by bucket: `[storage."s3://lake"]` with the names that the `object_store` library has for
/// them, such as `endpoint`, `region`, `allow_http` or `timeout`. They count before those of the environment.
/// Credentials are taken from the environment only.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct StorageSpec(BTreeMap<String, BTreeMap<String, Literal>>);

impl StorageSpec {
    /// The stores, and all that is wrong with their options.
    pub(super) fn resolve(self, positions: &KeyPositions) -> (Stores, Vec<Fault>) {
        let text = |(name, value): (String, Literal)| (name, value.to_string());
        let named = |(bucket, options): (String, BTreeMap<String, Literal>)| {
            (bucket, options.into_iter().map(text).collect())
        };
        let options: StoreOptions = self.0.into_iter().map(named).collect();
        let found = options.iter().flat_map(|(bucket, options)| option_faults(bucket, options));
        let faults = found.map(|(key, problem, hint)| positions.fault(&key, problem).hint(hint));
        let faults = faults.collect();
        (Stores::new(options), faults)
    }
}
