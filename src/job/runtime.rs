//! The `[runtime]` section: what the machine may give. Nothing here but the seed changes results.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the machine may give.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = super::limits::runtime)]
pub struct RuntimeSpec {
    /// Cores to use; 0 means all.
    pub threads: usize,
    /// Memory the query engine may use before it spills, such as `"4GiB"` or `"500MB"`.
    pub memory: String,
    /// Where tensors live: `auto` takes a GPU when libtorch sees one.
    pub device: Device,
    /// Seed of every random stream.
    pub seed: u64,
}

impl Default for RuntimeSpec {
    fn default() -> Self {
        RuntimeSpec { threads: 0, memory: "2GiB".to_string(), device: Device::Auto, seed: 0 }
    }
}

/// Where tensors live.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Device {
    /// A GPU when libtorch sees one, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// A GPU; an error when there is none.
    Cuda,
}

/// What the machine may give, resolved.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RuntimeJob {
    /// Cores; 0 means all.
    pub threads: usize,
    /// Memory limit of the query engine.
    pub memory: Bytes,
    /// Device wanted.
    pub device: Device,
    /// Seed.
    pub seed: u64,
}

/// Threads that may be asked for: more than any machine has cores is a slip.
pub const MOST_THREADS: usize = 1024;

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Bytes(pub u64);

/// Units a size may be given in.
const UNITS: [(&str, u64); 8] = [
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
];

impl Bytes {
    /// Reads a size such as `4GiB` or `500 MB`.
    pub fn parse(text: &str) -> Option<Bytes> {
        let lower = text.trim().to_lowercase();
        let unit = UNITS.iter().find(|(suffix, _)| lower.ends_with(suffix));
        let (suffix, factor) = unit.copied().unwrap_or(("", 1));
        let number: f64 = lower.strip_suffix(suffix)?.trim().parse().ok()?;
        (number.is_finite() && number >= 0.0).then_some(Bytes((number * factor as f64) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_units() {
        assert_eq!(Bytes::parse("4GiB"), Some(Bytes(4 << 30)));
        assert_eq!(Bytes::parse(" 1.5 MB "), Some(Bytes(1_500_000)));
        assert_eq!(Bytes::parse("1024"), Some(Bytes(1024)));
        for bad in ["", "GiB", "-1GB", "many", "inf"] {
            assert_eq!(Bytes::parse(bad), None, "{bad}");
        }
    }
}
