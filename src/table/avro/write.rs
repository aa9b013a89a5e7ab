//! Writing: one block, deflated. The same rows give the same bytes.

use std::collections::HashMap;
use std::io::Write;

use flate2::Compression;
use flate2::write::DeflateEncoder;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{Datum, Shape};

/// Writes a file of rows, with further metadata.
///
/// # Errors
/// When a row does not fit the schema.
pub fn write(
    schema: &Value,
    metadata: &[(&str, String)],
    rows: &[Datum],
) -> Result<Vec<u8>, String> {
    let shape = Shape::of(schema, &mut HashMap::new())?;
    let mut block = Vec::new();
    for row in rows {
        put(&mut block, &shape, row)?;
    }
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    let packed = encoder.write_all(&block).and_then(|()| encoder.finish());
    let packed = packed.map_err(|error| error.to_string())?;
    let mut facts =
        vec![("avro.schema", schema.to_string()), ("avro.codec", "deflate".to_string())];
    facts.extend(metadata.iter().map(|(name, value)| (*name, value.clone())));
    let mut file = b"Obj\x01".to_vec();
    long(&mut file, facts.len() as i64);
    for (name, value) in &facts {
        bytes(&mut file, name.as_bytes());
        bytes(&mut file, value.as_bytes());
    }
    long(&mut file, 0);
    let hash = Sha256::digest(&packed);
    let marker = &hash[..16];
    file.extend(marker);
    if !rows.is_empty() {
        long(&mut file, rows.len() as i64);
        bytes(&mut file, &packed);
        file.extend(marker);
    }
    Ok(file)
}

fn long(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn bytes(out: &mut Vec<u8>, value: &[u8]) {
    long(out, value.len() as i64);
    out.extend(value);
}

fn put(out: &mut Vec<u8>, shape: &Shape, datum: &Datum) -> Result<(), String> {
    match (shape, datum) {
        (Shape::Null, Datum::Null) => {}
        (Shape::Boolean, Datum::Boolean(value)) => out.push((*value).into()),
        (Shape::Long, Datum::Long(value)) => long(out, *value),
        (Shape::Float, Datum::Double(value)) => out.extend((*value as f32).to_le_bytes()),
        (Shape::Double, Datum::Double(value)) => out.extend(value.to_le_bytes()),
        (Shape::Bytes, Datum::Bytes(value)) => bytes(out, value),
        (Shape::Text, Datum::Text(value)) => bytes(out, value.as_bytes()),
        (Shape::Fixed(size), Datum::Bytes(value)) if value.len() == *size => out.extend(value),
        (Shape::List(item), Datum::List(items)) => {
            if !items.is_empty() {
                long(out, items.len() as i64);
                items.iter().try_for_each(|datum| put(out, item, datum))?;
            }
            long(out, 0);
        }
        (Shape::Map(value), Datum::Map(pairs)) => {
            if !pairs.is_empty() {
                long(out, pairs.len() as i64);
                for (name, datum) in pairs {
                    bytes(out, name.as_bytes());
                    put(out, value, datum)?;
                }
            }
            long(out, 0);
        }
        (Shape::Union(branches), datum) => {
            let fits = |branch: &&Shape| matches!(branch, Shape::Null) == datum.is_null();
            let found = branches.iter().enumerate().find(|(_, branch)| fits(branch));
            let (index, branch) = found.ok_or("a value has no type of its union")?;
            long(out, index as i64);
            put(out, branch, datum)?;
        }
        (Shape::Record(shapes), Datum::Record(fields)) => {
            let numbers = shapes.iter().map(|(number, _)| number);
            if !numbers.eq(fields.iter().map(|(number, _)| number)) {
                return Err("a record has other fields than its schema".to_string());
            }
            let pairs = shapes.iter().zip(fields);
            pairs.into_iter().try_for_each(|((_, shape), (_, datum))| put(out, shape, datum))?;
        }
        (shape, datum) => return Err(format!("{datum:?} is no {shape:?}")),
    }
    Ok(())
}
