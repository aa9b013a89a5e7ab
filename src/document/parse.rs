//! TOML text → plain tree and the line of every key.

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Map, Number, Value};
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::{Fill, KeyPositions, join};
use crate::error::{Error, Fault, Kind, Result};

/// Parses the text. Syntax errors end it; faults of single values are returned beside the tree.
pub(super) fn parse(
    text: &str,
    file: &Path,
    fill: Fill,
) -> Result<(Value, KeyPositions, Vec<Fault>)> {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut reader = TomlReader {
        fill,
        breaks: text
            .bytes()
            .zip(0..)
            .filter(|(byte, _)| *byte == b'\n')
            .map(|(_, at)| at)
            .collect(),
        positions: KeyPositions {
            file: file.to_path_buf(),
            lines: HashMap::new(),
            overridden: Vec::new(),
        },
        faults: Vec::new(),
    };
    let syntax = errors.iter().map(|error| reader.syntax_fault(error)).collect();
    Error::from_faults(Kind::Spec, syntax)?;
    let tree = reader.table(table.get_ref(), "");
    Ok((tree, reader.positions, reader.faults))
}

struct TomlReader<'a> {
    /// Where lines end.
    breaks: Vec<usize>,
    fill: Fill<'a>,
    positions: KeyPositions,
    faults: Vec<Fault>,
}

impl TomlReader<'_> {
    fn syntax_fault(&self, error: &toml::de::Error) -> Fault {
        let file = self.positions.file.display();
        let line = error.span().map_or(1, |span| self.line(span.start));
        Fault::new(format!("{file}:{line}"), format!("is not TOML: {}", error.message()))
    }

    fn line(&self, offset: usize) -> usize {
        1 + self.breaks.partition_point(|end| *end < offset)
    }

    fn table(&mut self, table: &DeTable, path: &str) -> Value {
        let mut map = Map::new();
        for (key, value) in table {
            let name = key.get_ref().to_string();
            let path = join(path, &name);
            self.positions.lines.insert(path.clone(), self.line(key.span().start));
            map.insert(name, self.value(value, &path));
        }
        Value::Object(map)
    }

    fn value(&mut self, value: &Spanned<DeValue>, path: &str) -> Value {
        match value.get_ref() {
            DeValue::String(text) => self.text(text, path),
            DeValue::Integer(number) => {
                match i64::from_str_radix(number.as_str(), number.radix()) {
                    Ok(number) => Value::from(number),
                    Err(_) => self.refuse(path, format!("is {number}, which is too large")),
                }
            }
            DeValue::Float(number) => match number.as_str().parse().ok().and_then(Number::from_f64)
            {
                Some(number) => Value::Number(number),
                None => self.refuse(path, format!("is {number}, expected a finite number")),
            },
            DeValue::Boolean(value) => Value::Bool(*value),
            DeValue::Datetime(value) => Value::String(value.to_string()),
            DeValue::Array(array) => self.array(array, path),
            DeValue::Table(table) => self.table(table, path),
        }
    }

    fn text(&mut self, text: &str, path: &str) -> Value {
        match (self.fill)(text.to_string(), path) {
            Ok(filled) => Value::String(filled),
            Err(fault) => {
                let hint = fault.hint;
                self.faults.push(Fault { hint, ..self.positions.fault(path, fault.problem) });
                Value::Null
            }
        }
    }

    fn array(&mut self, array: &DeArray, path: &str) -> Value {
        let mut values = Vec::with_capacity(array.len());
        for (index, value) in array.iter().enumerate() {
            let path =
                format!("{path}[{}]", entry_name(value.get_ref()).unwrap_or(index.to_string()));
            self.positions.lines.insert(path.clone(), self.line(value.span().start));
            values.push(self.value(value, &path));
        }
        Value::Array(values)
    }

    fn refuse(&mut self, path: &str, problem: String) -> Value {
        self.faults.push(self.positions.fault(path, problem));
        Value::Null
    }
}

/// An entry of a list of tables is spoken of by its name where it has one.
fn entry_name(value: &DeValue) -> Option<String> {
    Some(value.as_table()?.get("name")?.get_ref().as_str()?.to_string())
}
