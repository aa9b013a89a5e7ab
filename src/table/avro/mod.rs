//! Avro files, as far as the metadata of Iceberg tables goes: values of the writer's own schema, fields told apart by
//! the numbers that Iceberg gives them. A library for all of Avro would bring a dozen packages; this is a few pages.

mod read;
mod write;

use std::collections::HashMap;

use serde_json::Value;

pub use read::read;
pub use write::write;

/// A field without a number.
const UNNUMBERED: i32 = -1;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub enum Datum {
    /// None.
    Null,
    /// A truth value.
    Boolean(bool),
    /// A whole number of 32 or 64 bits, or the position of an enumeration's symbol.
    Long(i64),
    /// A number of 32 or 64 bits.
    Double(f64),
    /// Bytes, of any or of a fixed length.
    Bytes(Vec<u8>),
    /// A text.
    Text(String),
    /// A list. Maps whose keys are no texts are lists of records.
    List(Vec<Datum>),
    /// A map.
    Map(Vec<(String, Datum)>),
    /// Fields with their numbers.
    Record(Vec<(i32, Datum)>),
}

impl Datum {
    /// The field of a record with a number; null where there is none.
    pub fn get(&self, field: i32) -> &Datum {
        const NONE: &Datum = &Datum::Null;
        let Datum::Record(fields) = self else { return NONE };
        fields.iter().find(|(number, _)| *number == field).map_or(NONE, |(_, value)| value)
    }

    /// As a whole number.
    pub fn long(&self) -> Option<i64> {
        if let Datum::Long(value) = self { Some(*value) } else { None }
    }

    /// As a text.
    pub fn text(&self) -> Option<&str> {
        if let Datum::Text(value) = self { Some(value) } else { None }
    }

    /// Whether it is none.
    pub fn is_null(&self) -> bool {
        *self == Datum::Null
    }
}

/// What a value of a schema looks like.
#[derive(Debug, Clone)]
enum Shape {
    Null,
    Boolean,
    /// Both widths are written alike.
    Long,
    Float,
    Double,
    Bytes,
    Text,
    Fixed(usize),
    List(Box<Shape>),
    Map(Box<Shape>),
    Union(Vec<Shape>),
    Record(Vec<(i32, Shape)>),
}

impl Shape {
    /// Reads a schema. Types that refer to themselves are no part of Iceberg.
    fn of(schema: &Value, named: &mut HashMap<String, Shape>) -> Result<Shape, String> {
        match schema {
            Value::String(name) => Shape::by_name(name, named),
            Value::Array(branches) => {
                let shapes = branches.iter().map(|branch| Shape::of(branch, named));
                Ok(Shape::Union(shapes.collect::<Result<_, _>>()?))
            }
            Value::Object(_) => Shape::of_object(schema, named),
            other => Err(format!("its schema has `{other}` for a type")),
        }
    }

    fn by_name(name: &str, named: &HashMap<String, Shape>) -> Result<Shape, String> {
        Ok(match name {
            "null" => Shape::Null,
            "boolean" => Shape::Boolean,
            "int" | "long" => Shape::Long,
            "float" => Shape::Float,
            "double" => Shape::Double,
            "bytes" => Shape::Bytes,
            "string" => Shape::Text,
            other => {
                let known = named.get(other.rsplit('.').next().unwrap_or(other));
                known
                    .cloned()
                    .ok_or_else(|| format!("its schema has the unknown type `{other}`"))?
            }
        })
    }

    fn of_object(schema: &Value, named: &mut HashMap<String, Shape>) -> Result<Shape, String> {
        let part = |key: &str| {
            schema.get(key).ok_or_else(|| format!("its schema has a type without `{key}`"))
        };
        let shape = match part("type")? {
            Value::String(kind) => match kind.as_str() {
                "record" => {
                    let fields = part("fields")?.as_array().cloned().unwrap_or_default();
                    let field = |field: &Value| {
                        let number = field.get("field-id").and_then(Value::as_i64);
                        let number = number.map_or(UNNUMBERED, |number| number as i32);
                        let none = Value::Null;
                        let shape = Shape::of(field.get("type").unwrap_or(&none), named)?;
                        Ok((number, shape))
                    };
                    Shape::Record(fields.iter().map(field).collect::<Result<_, String>>()?)
                }
                "array" => Shape::List(Box::new(Shape::of(part("items")?, named)?)),
                "map" => Shape::Map(Box::new(Shape::of(part("values")?, named)?)),
                "enum" => Shape::Long,
                "fixed" => {
                    let size = part("size")?.as_u64().and_then(|size| usize::try_from(size).ok());
                    Shape::Fixed(size.ok_or("its schema has a fixed type without a size")?)
                }
                other => Shape::by_name(other, named)?,
            },
            nested => Shape::of(nested, named)?,
        };
        if let Some(name) = schema.get("name").and_then(Value::as_str) {
            named.insert(name.rsplit('.').next().unwrap_or(name).to_string(), shape.clone());
        }
        Ok(shape)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        let field = |name: &str, number: i32, kind: Value| json!({ "name": name, "field-id": number, "type": kind });
        let pair = json!({ "type": "record", "name": "pair", "fields": [field("key", 7, json!("int")),
            field("value", 8, json!("bytes"))] });
        json!({ "type": "record", "name": "row", "fields": [
            field("number", 1, json!("long")),
            field("maybe", 2, json!(["null", "string"])),
            field("bounds", 3, json!(["null", { "type": "array", "items": pair }])),
            field("share", 4, json!("double")),
            field("known", 5, json!("boolean")),
            field("id", 6, json!({ "type": "fixed", "name": "four", "size": 4 })),
            field("facts", 9, json!({ "type": "map", "values": "string" })),
        ] })
    }

    prop_compose! {
        fn row()(
            number in any::<i64>(), maybe in proptest::option::of(".{0,8}"), share in -1e9..1e9f64, known in any::<bool>(),
            pairs in proptest::option::of(proptest::collection::vec((any::<i32>(), any::<[u8; 3]>()), 0..4)),
            id in any::<[u8; 4]>(), facts in proptest::collection::vec(("[a-z]{1,4}", ".{0,4}"), 0..3),
        ) -> Datum {
            let pair = |(key, value): (i32, [u8; 3])| {
                Datum::Record(vec![(7, Datum::Long(key.into())), (8, Datum::Bytes(value.to_vec()))])
            };
            let pairs = pairs.map_or(Datum::Null, |pairs| Datum::List(pairs.into_iter().map(pair).collect()));
            let facts = facts.into_iter().map(|(name, value)| (name, Datum::Text(value))).collect();
            Datum::Record(vec![
                (1, Datum::Long(number)), (2, maybe.map_or(Datum::Null, Datum::Text)), (3, pairs),
                (4, Datum::Double(share)), (5, Datum::Boolean(known)), (6, Datum::Bytes(id.to_vec())),
                (9, Datum::Map(facts)),
            ])
        }
    }

    fn rows_of(bytes: &[u8]) -> Result<Vec<Datum>, String> {
        let mut rows = Vec::new();
        read(bytes, &mut |row| {
            rows.push(row);
            Ok(())
        })?;
        Ok(rows)
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(rows in proptest::collection::vec(row(), 0..9)) {
            let bytes = write(&schema(), &[("content", "data".to_string())], &rows).expect("written");
            prop_assert_eq!(rows_of(&bytes).expect("read"), rows);
        }

        #[test]
        fn spoilt_files_are_refused_or_read_but_never_end_the_program(
            rows in proptest::collection::vec(row(), 1..5), at in any::<prop::sample::Index>(), byte in any::<u8>(),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = write(&schema(), &[], &rows).expect("written");
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = rows_of(&bytes);
            let _ = rows_of(&bytes[..cut.index(bytes.len())]);
        }
    }

    #[test]
    fn what_does_not_fit_its_schema_is_not_written() {
        let found = write(&schema(), &[], &[Datum::Record(vec![(1, Datum::Null)])]);
        assert!(found.is_err_and(|problem| problem.contains("fields")));
        assert!(rows_of(b"PAR1").is_err_and(|problem| problem.contains("no Avro file")));
    }
}
