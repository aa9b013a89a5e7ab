//! From where to where a number of a file may be, and how its JSON Schema says so.

use schemars::Schema;
use serde_json::{Number, Value, json};

/// From where to where a number may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NumberLimit {
    /// The key, dotted; of a list, each of its entries.
    pub key: &'static str,
    /// Lowest value.
    pub low: Low,
    /// Highest value.
    pub high: f64,
    /// Why.
    pub why: &'static str,
}

/// The lower end of a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Low {
    /// This or more.
    From(f64),
    /// More than this.
    Above(f64),
}

/// Hidden layers, at most.
const MOST_LAYERS: usize = 16;

/// Writes the limits of a section into its schema: those whose keys are the section's, dotted.
pub fn write_limits(section: &str, limits: &[NumberLimit], schema: &mut Schema) {
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else {
        return;
    };
    for (name, property) in properties {
        let key = format!("{section}.{name}");
        if let Some(limit) = limits.iter().find(|limit| limit.key == key) {
            limit.write(property);
        }
    }
}

impl NumberLimit {
    /// Writes the limit into the schema of a number, or of a list of numbers.
    fn write(&self, property: &mut Value) {
        let Value::Object(map) = property else { return };
        if let Some(items) = map.get_mut("items") {
            self.write(items);
            map.entry("maxItems").or_insert(json!(MOST_LAYERS));
            return;
        }
        let whole = map.get("type").is_some_and(|kind| kind.to_string().contains("integer"));
        let number = |value: f64| {
            let exact = || Number::from(value as i64);
            if whole { Some(exact()) } else { Number::from_f64(value) }
                .map_or(Value::Null, Value::Number)
        };
        map.remove("minimum");
        match self.low {
            Low::From(low) => map.insert("minimum".to_string(), number(low)),
            Low::Above(low) => map.insert("exclusiveMinimum".to_string(), number(low)),
        };
        map.insert("maximum".to_string(), number(self.high));
        map.insert("x-reason".to_string(), json!(self.why));
    }
}
