//! Named tensors as files, in the safetensors format. Reading takes nothing for granted: sizes are checked
//! against the file before anything of that size is made.

use std::fs::File;
use std::path::Path;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use tch::{Device, Kind, Tensor};

use super::bridge::refused;
use crate::document::{inside, read_regular};
use crate::error::{Error, Result};
use crate::output::{cannot_write, hex};

/// Bytes of a file of tensors: beyond what a generator or a checkpoint has.
const LARGEST_FILE: u64 = 16 << 30;
/// Bytes of the list of tensors at its beginning.
const LARGEST_HEADER: u64 = 1 << 20;
/// Tensors of a file.
const MOST_TENSORS: usize = 256;
/// Sides of a tensor.
const MOST_SIDES: usize = 8;

/// A tensor as it stands in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorEntry {
    /// Its name.
    pub name: String,
    /// Sizes of its sides.
    pub shape: Vec<usize>,
    /// Where its bytes are.
    bytes: std::ops::Range<usize>,
    kind: Kind,
}

/// The tensors that the bytes of a file hold. Any bytes will do.
///
/// # Errors
/// What is wrong with them.
pub fn list_tensors(file: &[u8]) -> Result<Vec<TensorEntry>, String> {
    let (length, rest) = file.split_first_chunk::<8>().ok_or("is shorter than 8 bytes")?;
    let length = u64::from_le_bytes(*length);
    if length > LARGEST_HEADER || length > rest.len() as u64 {
        return Err(format!("says that its list of tensors has {length} bytes"));
    }
    let (header, data) = rest.split_at(length as usize);
    let header: Map<String, Value> = serde_json::from_slice(header)
        .map_err(|error| format!("has no list of tensors: {error}"))?;
    if header.len() > MOST_TENSORS {
        return Err(format!("has {} tensors, expected at most {MOST_TENSORS}", header.len()));
    }
    let start = file.len() - data.len();
    let tensors = header.into_iter().filter(|(name, _)| name != "__metadata__");
    tensors.map(|(name, entry)| read_entry(name, &entry, start, data.len())).collect()
}

fn read_entry(
    name: String,
    entry: &Value,
    start: usize,
    data: usize,
) -> Result<TensorEntry, String> {
    let wrong = |what: &str| format!("has {what} of the tensor `{}`", name.escape_default());
    let (kind, width) = match entry["dtype"].as_str() {
        Some("F32") => (Kind::Float, 4),
        Some("F64") => (Kind::Double, 8),
        Some("I64") => (Kind::Int64, 8),
        Some("I32") => (Kind::Int, 4),
        Some("I16") => (Kind::Int16, 2),
        Some("I8") => (Kind::Int8, 1),
        Some("U8") => (Kind::Uint8, 1),
        Some("BOOL") => (Kind::Bool, 1),
        _ => return Err(wrong("no usable type")),
    };
    let whole = |value: &Value| value.as_u64().and_then(|number| usize::try_from(number).ok());
    let list = |key: &str| -> Option<Vec<usize>> {
        let numbers = entry[key].as_array().filter(|numbers| numbers.len() <= MOST_SIDES)?;
        numbers.iter().map(whole).collect()
    };
    let shape = list("shape").ok_or_else(|| wrong("no usable shape"))?;
    let offsets = list("data_offsets").ok_or_else(|| wrong("no usable offsets"))?;
    let size = shape.iter().try_fold(width, |size: usize, side| size.checked_mul(*side));
    let [first, last] = offsets[..] else { return Err(wrong("no usable offsets")) };
    if first > last || last > data || size != Some(last - first) {
        return Err(wrong("offsets that do not fit the shape"));
    }
    // Sides are given to libtorch as signed numbers.
    if shape.iter().any(|side| i64::try_from(*side).is_err()) {
        return Err(wrong("no usable shape"));
    }
    Ok(TensorEntry { name, shape, bytes: start + first..start + last, kind })
}

/// Writes named tensors to a file, synced.
pub(crate) fn write_tensors(path: &Path, tensors: &[(&str, Tensor)]) -> Result<()> {
    let plain: Vec<(&str, Tensor)> = tensors
        .iter()
        .map(|(name, tensor)| (*name, tensor.detach().to_device(Device::Cpu).contiguous()))
        .collect();
    Tensor::write_safetensors(&plain, path).map_err(|error| cannot_write(path, error))?;
    File::open(path).and_then(|file| file.sync_all()).map_err(|error| cannot_write(path, error))
}

/// The named tensors of a file.
pub(crate) fn read_tensors(path: &Path) -> Result<Vec<(String, Tensor)>> {
    tensors_of(path, &read_bytes(path)?)
}

/// The same, of a file whose SHA-256 is known; none if it has another.
pub(crate) fn read_verified(path: &Path, sha256: &str) -> Result<Option<Vec<(String, Tensor)>>> {
    let bytes = read_bytes(path)?;
    (hex(&Sha256::digest(&bytes)) == sha256).then(|| tensors_of(path, &bytes)).transpose()
}

fn tensors_of(path: &Path, bytes: &[u8]) -> Result<Vec<(String, Tensor)>> {
    let entries = list_tensors(bytes).map_err(|problem| {
        let problem = format!("cannot be read as tensors: it {problem}");
        Error::input(path.display().to_string(), problem)
    })?;
    let tensor = |entry: TensorEntry| {
        let size: Vec<i64> = entry.shape.iter().map(|side| *side as i64).collect();
        let tensor = Tensor::f_from_data_size(&bytes[entry.bytes], &size, entry.kind);
        Ok((entry.name, tensor.map_err(refused)?))
    };
    entries.into_iter().map(tensor).collect()
}

/// The content of a file, which must lie in its folder and be of a possible size.
fn read_bytes(path: &Path) -> Result<Vec<u8>> {
    read_in_folder(path, LARGEST_FILE)
}

/// The content of a file of a generator.
pub(crate) fn read_in_folder(path: &Path, most: u64) -> Result<Vec<u8>> {
    let (folder, name) = (path.parent().unwrap_or(Path::new("")), path.file_name());
    let true_path = inside(folder, Path::new(name.unwrap_or_default()));
    let content = true_path.and_then(|path| read_regular(&path, most));
    content.map_err(|error| {
        let problem = match error.kind() {
            std::io::ErrorKind::InvalidInput => error.to_string(),
            _ => format!("cannot be read: {error}"),
        };
        Error::input(path.display().to_string(), problem)
    })
}

/// One of some tensors.
pub(crate) fn tensor<'a>(
    tensors: &'a [(String, Tensor)],
    name: &str,
    path: &Path,
) -> Result<&'a Tensor> {
    let found = tensors.iter().find(|(found, _)| found == name);
    found.map(|(_, tensor)| tensor).ok_or_else(|| {
        Error::input(path.display().to_string(), format!("lacks the tensor `{name}`"))
    })
}

/// SHA-256 of a file that was just written.
pub(crate) fn file_hash(path: &Path) -> Result<String> {
    Ok(hex(&Sha256::digest(read_bytes(path)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let length = (header.len() as u64).to_le_bytes();
        [&length[..], header.as_bytes(), data].concat()
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("t");
        let written = Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0]).view([2, 2]);
        write_tensors(&path, &[("a", written.copy()), ("b", Tensor::from_slice(&[7i16]))])
            .expect("written");
        let read = read_tensors(&path).expect("readable");
        assert_eq!(tensor(&read, "a", &path).expect("there"), &written);
        assert_eq!(tensor(&read, "b", &path).expect("there").kind(), Kind::Int16);
        let sha256 = file_hash(&path).expect("readable");
        assert!(read_verified(&path, &sha256).expect("readable").is_some());
        assert!(read_verified(&path, "another").expect("readable").is_none());
    }

    #[test]
    fn sizes_are_checked_before_they_are_believed() {
        for (bytes, said) in [
            (vec![], "is shorter than 8 bytes"),
            (
                u64::MAX.to_le_bytes().to_vec(),
                "says that its list of tensors has 18446744073709551615",
            ),
            (file("[[[[", b""), "has no list of tensors"),
            (file(&"[".repeat(100_000), b""), "has no list of tensors"),
            (file("{\"a\":{}}", b""), "has no usable type of the tensor `a`"),
            (
                file(
                    r#"{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}"#,
                    b"",
                ),
                "offsets that do not fit the shape",
            ),
            (
                file(r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#, b"123"),
                "offsets that do not fit the shape",
            ),
            (
                file(r#"{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}"#, b"1234"),
                "no usable shape",
            ),
            (
                file(
                    r#"{"a":{"dtype":"U8","shape":[0,9223372036854775808],"data_offsets":[0,0]}}"#,
                    b"",
                ),
                "no usable shape",
            ),
        ] {
            let problem = list_tensors(&bytes).expect_err("must be refused");
            assert!(problem.contains(said), "{problem}");
        }
    }
}
