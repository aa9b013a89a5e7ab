//! What a Delta table demands of its readers, and what of it we give.

use deltalake_core::kernel::{Metadata, Protocol};

/// Features of a table's protocol under which rows are what the files hold: we read them as they are. Deletion vectors
/// are among them, as files that have one are refused by themselves.
const READ: [&str; 5] =
    ["deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "columnMapping"];

/// The highest version of the reader protocol that there is: 3 lists its features by name.
const READER_VERSION: i32 = 3;

/// What keeps us from reading a table's rows as its files hold them, in words.
pub fn unsupported(protocol: &Protocol, metadata: &Metadata) -> Option<String> {
    let version = protocol.min_reader_version();
    if version > READER_VERSION {
        return Some(format!("reader version {version}"));
    }
    let features = protocol.reader_features().unwrap_or_default().iter().map(ToString::to_string);
    if let Some(feature) = features.into_iter().find(|feature| !READ.contains(&feature.as_str())) {
        return Some(format!("the reader feature `{feature}`"));
    }
    let mode = metadata.configuration().get("delta.columnMapping.mode");
    let mapped = mode.filter(|mode| mode.as_str() != "none");
    mapped.map(|mode| format!("column mapping (`delta.columnMapping.mode` is `{mode}`)"))
}
