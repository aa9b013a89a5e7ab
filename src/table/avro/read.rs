//! Reading: nothing of a file is believed, neither its lengths nor its counts.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;

use flate2::read::DeflateDecoder;

use super::{Datum, Shape};

/// How a file begins.
const MAGIC: &[u8] = b"Obj\x01";
/// Bytes between blocks that are the same throughout a file.
const MARKER: usize = 16;
/// Bytes of a block when it is unpacked, at most: a manifest of a million files has fewer.
const MOST_BYTES: u64 = 1 << 30;

/// Reads a file row by row; gives its metadata.
///
/// # Errors
/// What is wrong with it, and what `each` says, which ends it.
pub fn read(
    file: &[u8],
    each: &mut dyn FnMut(Datum) -> Result<(), String>,
) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let rest = file.strip_prefix(MAGIC).ok_or("is no Avro file")?;
    let mut cursor = Cursor(rest);
    let Datum::Map(pairs) = cursor.datum(&Shape::Map(Box::new(Shape::Bytes)))? else {
        return Err("has no metadata".to_string());
    };
    let bytes = |(name, value): (String, Datum)| match value {
        Datum::Bytes(bytes) => (name, bytes),
        _ => (name, Vec::new()),
    };
    let metadata: BTreeMap<String, Vec<u8>> = pairs.into_iter().map(bytes).collect();
    let schema = metadata.get("avro.schema").ok_or("has no schema")?;
    let schema = serde_json::from_slice(schema).map_err(|_| "has a schema that is no JSON")?;
    let shape = Shape::of(&schema, &mut HashMap::new())?;
    let codec = metadata.get("avro.codec").map_or(&b"null"[..], Vec::as_slice);
    let marker = cursor.take(MARKER)?;
    while !cursor.0.is_empty() {
        let (rows, size) = (cursor.long()?, cursor.length()?);
        let block = unpacked(codec, cursor.take(size)?)?;
        if cursor.take(MARKER)? != marker {
            return Err("is damaged: a block does not end where it should".to_string());
        }
        let mut block = Cursor(&block);
        // Each row takes a byte at least: every record of Iceberg has a field that cannot be null.
        if rows < 0 || rows as u64 > block.0.len() as u64 {
            return Err("is damaged: a block has fewer bytes than rows".to_string());
        }
        for _ in 0..rows {
            each(block.datum(&shape)?)?;
        }
    }
    Ok(metadata)
}

fn unpacked(codec: &[u8], block: &[u8]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = match codec {
        b"null" => return Ok(block.to_vec()),
        b"deflate" => DeflateDecoder::new(block).take(MOST_BYTES + 1).read_to_end(&mut bytes),
        b"zstandard" => zstd::Decoder::new(block)
            .and_then(|decoder| decoder.take(MOST_BYTES + 1).read_to_end(&mut bytes)),
        other => {
            let other = String::from_utf8_lossy(other);
            return Err(format!(
                "is compressed by `{other}`, expected `deflate`, `zstandard` or `null`"
            ));
        }
    };
    match read {
        Ok(read) if read as u64 <= MOST_BYTES => Ok(bytes),
        Ok(_) => Err(format!("has a block of more than {MOST_BYTES} bytes")),
        Err(error) => Err(format!("is damaged: {error}")),
    }
}

/// What is left of a block.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or("has been cut short")?;
        self.0 = rest;
        Ok(taken)
    }

    /// Seven bits a byte, the sign in the lowest.
    fn long(&mut self) -> Result<i64, String> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        Err("is damaged: a number does not end".to_string())
    }

    fn length(&mut self) -> Result<usize, String> {
        let length = self.long()?;
        usize::try_from(length).map_err(|_| format!("is damaged: a length is {length}"))
    }

    fn text(&mut self) -> Result<String, String> {
        let length = self.length()?;
        let text = std::str::from_utf8(self.take(length)?);
        text.map(str::to_string).map_err(|_| "is damaged: a text is not UTF-8".to_string())
    }

    fn datum(&mut self, shape: &Shape) -> Result<Datum, String> {
        Ok(match shape {
            Shape::Null => Datum::Null,
            Shape::Boolean => Datum::Boolean(self.take(1)?[0] != 0),
            Shape::Long => Datum::Long(self.long()?),
            Shape::Float => Datum::Double(f32::from_le_bytes(self.array()?).into()),
            Shape::Double => Datum::Double(f64::from_le_bytes(self.array()?)),
            Shape::Bytes => {
                let length = self.length()?;
                Datum::Bytes(self.take(length)?.to_vec())
            }
            Shape::Text => Datum::Text(self.text()?),
            Shape::Fixed(size) => Datum::Bytes(self.take(*size)?.to_vec()),
            Shape::List(item) => {
                let mut items = Vec::new();
                self.blocks(&mut |cursor| {
                    items.push(cursor.datum(item)?);
                    Ok(())
                })?;
                Datum::List(items)
            }
            Shape::Map(value) => {
                let mut pairs = Vec::new();
                self.blocks(&mut |cursor| {
                    pairs.push((cursor.text()?, cursor.datum(value)?));
                    Ok(())
                })?;
                Datum::Map(pairs)
            }
            Shape::Union(branches) => {
                let index = self.length()?;
                let branch = branches.get(index);
                self.datum(branch.ok_or("is damaged: a value has no type of its union")?)?
            }
            Shape::Record(fields) => {
                let field = |(number, shape): &(i32, Shape)| Ok((*number, self.datum(shape)?));
                Datum::Record(fields.iter().map(field).collect::<Result<_, String>>()?)
            }
        })
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        self.take(N)?.try_into().map_err(|_| "has been cut short".to_string())
    }

    /// Items of a list or map, which come in blocks; a negative count is followed by the block's size.
    fn blocks(
        &mut self,
        item: &mut dyn FnMut(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        loop {
            let count = self.long()?;
            if count < 0 {
                self.long()?;
            }
            let count = count.unsigned_abs();
            if count == 0 {
                return Ok(());
            }
            if count > self.0.len() as u64 {
                return Err("is damaged: a list has fewer bytes than items".to_string());
            }
            for _ in 0..count {
                item(self)?;
            }
        }
    }
}
