//! The `[runtime]` section: what the machine may give. Nothing here but the seed changes results.

use std::fmt;

use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What the machine may give.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = super::limits::runtime)]
pub struct RuntimeSpec {
    /// Cores to use; 0 means all.
    pub threads: usize,
    /// Memory the query engine may use before it spills, such as `"4GiB"` or `"500MB"`.
    pub memory: String,
    /// Where tensors live: `auto` takes the first GPU when libtorch sees one, else the CPU; `cpu`; `cuda`, the
    /// first GPU; `cuda:1`, the second, and so on.
    #[schemars(regex(pattern = DEVICES))]
    pub device: String,
    /// Seed of every random stream.
    pub seed: u64,
}

impl Default for RuntimeSpec {
    fn default() -> Self {
        let (memory, device) = ("2GiB".to_string(), Device::Auto.to_string());
        RuntimeSpec { threads: 0, memory, device, seed: 0 }
    }
}

/// Where tensors live.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Device {
    /// The first GPU when libtorch sees one, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The GPU of this number, the first where none is given; an error when it is not there.
    Cuda(Option<usize>),
}

/// What a device may be called, for editors.
const DEVICES: &str = "^(auto|cpu|cuda(:[0-9]{1,2})?)$";

/// Most digits of a GPU's number.
const GPU_DIGITS: usize = 2;

impl Device {
    /// Reads `auto`, `cpu`, `cuda` or `cuda:1`.
    pub fn parse(text: &str) -> Option<Device> {
        match text {
            "auto" => Some(Device::Auto),
            "cpu" => Some(Device::Cpu),
            "cuda" => Some(Device::Cuda(None)),
            _ => {
                let number = text.strip_prefix("cuda:")?;
                let digits = number.bytes().all(|digit| digit.is_ascii_digit());
                let number = number.parse().ok().filter(|_| digits && number.len() <= GPU_DIGITS);
                number.map(|number| Device::Cuda(Some(number)))
            }
        }
    }

    /// The number of the requested GPU.
    pub fn gpu(self) -> Option<usize> {
        match self {
            Device::Auto | Device::Cpu => None,
            Device::Cuda(number) => Some(number.unwrap_or(0)),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Auto => write!(f, "auto"),
            Device::Cpu => write!(f, "cpu"),
            Device::Cuda(None) => write!(f, "cuda"),
            Device::Cuda(Some(number)) => write!(f, "cuda:{number}"),
        }
    }
}

impl Serialize for Device {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Device {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Device, D::Error> {
        let text = String::deserialize(deserializer)?;
        Device::parse(&text).ok_or_else(|| D::Error::custom(format!("`{text}` is no device")))
    }
}

/// What the machine may give, resolved.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct RuntimeJob {
    /// Cores; 0 means all.
    pub threads: usize,
    /// Memory limit of the query engine.
    pub memory: Bytes,
    /// The requested device.
    pub device: Device,
    /// Seed.
    pub seed: u64,
}

/// Threads that may be asked for: more than any machine has cores is a slip.
pub const MOST_THREADS: usize = 1024;

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
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

    #[test]
    fn devices_are_read_as_they_are_written() {
        for (text, device) in [
            ("auto", Device::Auto),
            ("cpu", Device::Cpu),
            ("cuda", Device::Cuda(None)),
            ("cuda:0", Device::Cuda(Some(0))),
            ("cuda:15", Device::Cuda(Some(15))),
        ] {
            assert_eq!(Device::parse(text), Some(device));
            assert_eq!(device.to_string(), text);
        }
        for bad in
            ["", "gpu", "CUDA", "cuda:", "cuda:-1", "cuda:+1", "cuda:100", "cuda: 1", "cpu:0"]
        {
            assert_eq!(Device::parse(bad), None, "{bad}");
        }
    }
}
