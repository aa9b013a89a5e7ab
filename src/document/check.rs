//! A plain tree against the JSON Schema of its type: unknown and missing keys, wrong types, values
//! outside an enumeration, all of them. Covers the part of JSON Schema that our types generate.

use serde_json::{Map, Value};

use super::{KeyPositions, join};
use crate::error::{Fault, MOST_FAULTS};

/// Checks the tree and adds what is wrong with it to `faults`.
/// Numbers outside their limits are returned apart: a tree with such is still whole.
pub(super) fn check(
    tree: &Value,
    schema: &Value,
    positions: &KeyPositions,
    faults: &mut Vec<Fault>,
) -> Vec<Fault> {
    let mut checker = Checker { root: schema, positions, faults, out_of_range: Vec::new() };
    checker.value(tree, schema, "");
    checker.out_of_range
}

struct Checker<'a> {
    root: &'a Value,
    positions: &'a KeyPositions,
    faults: &'a mut Vec<Fault>,
    out_of_range: Vec<Fault>,
}

impl<'a> Checker<'a> {
    fn value(&mut self, value: &Value, schema: &'a Value, path: &str) {
        // A null stands for a value that was already refused.
        if value.is_null() {
            return;
        }
        let schema = self.resolve(schema);
        if !self.accepts(value, schema) {
            return self.wrong(value, schema, path);
        }
        match (value, self.structure(value, schema)) {
            (Value::Object(map), Some(schema)) => self.table(map, schema, path),
            (Value::Array(values), Some(schema)) => self.list(values, schema, path),
            (Value::Number(number), _) => self.range(number, schema, path),
            _ => {}
        }
    }

    /// Follows a reference, and the one branch of an optional value that is not null.
    fn resolve(&self, schema: &'a Value) -> &'a Value {
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            let name = reference.trim_start_matches("#/$defs/");
            return self.resolve(&self.root["$defs"][name]);
        }
        let branches: Vec<&Value> = branches(schema).filter(|branch| !is_null(branch)).collect();
        match branches[..] {
            [only] => self.resolve(only),
            _ => schema,
        }
    }

    /// Whether the value has the right type, or is one of the listed values.
    fn accepts(&self, value: &Value, schema: &'a Value) -> bool {
        let choices = self.choices(schema);
        if !choices.is_empty() {
            let former = |text| branches(schema).any(|branch| branch["x-also"] == text);
            return value.as_str().is_some_and(|text| choices.contains(&text) || former(text));
        }
        let mut branches = branches(schema).peekable();
        if branches.peek().is_some() {
            return branches.any(|branch| self.accepts(value, self.resolve(branch)));
        }
        types(schema).any(|name| has_type(value, name)) || types(schema).next().is_none()
    }

    /// The texts of an enumeration.
    fn choices(&self, schema: &'a Value) -> Vec<&'a str> {
        let listed = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
        let constants = branches(schema).filter_map(|branch| branch.get("const"));
        listed.chain(constants).chain(schema.get("const")).filter_map(Value::as_str).collect()
    }

    /// What a list or section consists of: of several forms, the one that the value has.
    fn structure(&self, value: &Value, schema: &'a Value) -> Option<&'a Value> {
        let nested = |schema: &&Value| {
            ["properties", "additionalProperties", "items"]
                .iter()
                .any(|key| schema.get(key).is_some())
        };
        Some(schema).filter(nested).or_else(|| {
            let mut forms = branches(schema).map(|branch| self.resolve(branch));
            forms.find(|form| nested(form) && self.accepts(value, form))
        })
    }

    fn table(&mut self, map: &Map<String, Value>, schema: &'a Value, path: &str) {
        let none = Map::new();
        let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
        for (key, value) in map {
            let path = join(path, key);
            match (
                schema.get("properties").and_then(|all| all.get(key)),
                schema.get("additionalProperties"),
            ) {
                (Some(property), _) => self.value(value, property, &path),
                (None, Some(any)) if any.is_object() => self.value(value, any, &path),
                _ => self.unknown(&path, key, properties),
            }
        }
        for key in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
            if let Some(key) = key.as_str().filter(|key| !map.contains_key(*key)) {
                let expected = self.describe(self.resolve(&schema["properties"][key]));
                self.faults.push(
                    self.positions
                        .fault(&join(path, key), format!("is missing, expected {expected}")),
                );
            }
        }
    }

    fn list(&mut self, values: &[Value], schema: &'a Value, path: &str) {
        let bound = |key| schema.get(key).and_then(Value::as_u64).map(|bound| bound as usize);
        let least = bound("minItems").unwrap_or(0);
        let most = bound("maxItems").unwrap_or(usize::MAX);
        if !(least..=most).contains(&values.len()) {
            let entries = if values.len() == 1 { "entry" } else { "entries" };
            let expected = if least == 0 { format!("at most {most}") } else { least.to_string() };
            let problem = format!("has {} {entries}, expected {expected}", values.len());
            self.faults.push(self.positions.fault(path, problem));
        }
        if let Some(items) = schema.get("items") {
            for (index, value) in values.iter().enumerate() {
                let name = value.get("name").and_then(Value::as_str).map(str::to_string);
                self.value(value, items, &format!("{path}[{}]", name.unwrap_or(index.to_string())));
            }
        }
    }

    fn range(&mut self, number: &serde_json::Number, schema: &Value, path: &str) {
        let Some(found) = number.as_f64() else { return };
        let bound = |key: &str| Some((schema.get(key)?.as_f64()?, schema.get(key)?));
        let expected = match (bound("minimum"), bound("exclusiveMinimum"), bound("maximum")) {
            (Some((least, shown)), _, _) if found < least => format!("at least {}", plain(shown)),
            (_, Some((end, shown)), _) if found <= end => format!("more than {}", plain(shown)),
            (_, _, Some((most, shown))) if found > most => format!("at most {}", plain(shown)),
            _ => return,
        };
        let mut fault = self.positions.fault(path, format!("is {number}, expected {expected}"));
        fault.hint = schema.get("x-reason").and_then(Value::as_str).map(str::to_string);
        self.out_of_range.push(fault);
    }

    fn unknown(&mut self, path: &str, key: &str, properties: &Map<String, Value>) {
        let formerly =
            |schema: &Value| schema.get("x-formerly").and_then(Value::as_str) == Some(key);
        if let Some((new, _)) = properties.iter().find(|(_, schema)| formerly(schema)) {
            let fault = self.positions.fault(path, format!("was renamed, expected `{new}`"));
            return self.faults.push(fault.hint(format!("write `{new}` instead of `{key}`")));
        }
        let fault = self.positions.fault(path, "is not a known key");
        // Nobody reads further hints, and looking for them takes its time.
        if self.faults.len() >= MOST_FAULTS {
            return self.faults.push(fault);
        }
        let known: Vec<&str> = properties.keys().map(String::as_str).collect();
        self.faults.push(
            fault.hint(
                did_you_mean(key, known.iter().copied())
                    .unwrap_or_else(|| format!("known here: {}", list_of(&known, "and"))),
            ),
        );
    }

    fn wrong(&mut self, value: &Value, schema: &'a Value, path: &str) {
        let problem = format!("is {}, expected {}", found(value), self.describe(schema));
        let mut fault = self.positions.fault(path, problem);
        if let Some(text) = value.as_str() {
            fault.hint = did_you_mean(text, self.choices(schema).into_iter());
        }
        self.faults.push(fault);
    }

    /// What would have been right, in words.
    fn describe(&self, schema: &'a Value) -> String {
        let choices = self.choices(schema);
        if !choices.is_empty() {
            return list_of(&choices, "or");
        }
        let mut words: Vec<&str> = Vec::new();
        for branch in branches(schema).chain([schema]) {
            for word in types(self.resolve(branch)).filter_map(type_word) {
                if !words.contains(&word) {
                    words.push(word);
                }
            }
        }
        join_words(&words, "or")
    }
}

/// A limit without the fraction that a whole number has in JSON.
fn plain(limit: &Value) -> String {
    let text = limit.to_string();
    text.strip_suffix(".0").map_or(text.clone(), str::to_string)
}

pub(super) fn branches(schema: &Value) -> impl Iterator<Item = &Value> {
    ["anyOf", "oneOf"].into_iter().filter_map(|key| schema.get(key)?.as_array()).flatten()
}

pub(super) fn is_null(schema: &Value) -> bool {
    schema.get("type").and_then(Value::as_str) == Some("null")
}

pub(super) fn types(schema: &Value) -> impl Iterator<Item = &str> {
    let (one, many) = match schema.get("type") {
        Some(Value::String(name)) => (Some(name.as_str()), None),
        Some(Value::Array(names)) => (None, Some(names)),
        _ => (None, None),
    };
    one.into_iter().chain(many.into_iter().flatten().filter_map(Value::as_str))
}

fn has_type(value: &Value, name: &str) -> bool {
    match name {
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}

fn type_word(name: &str) -> Option<&'static str> {
    Some(match name {
        "string" => "text",
        "boolean" => "true or false",
        "integer" => "a whole number",
        "number" => "a number",
        "array" => "a list",
        "object" => "a table",
        _ => return None,
    })
}

fn found(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".to_string(),
        Value::Object(_) => "a table".to_string(),
        scalar => scalar.to_string(),
    }
}

fn list_of(names: &[&str], last: &str) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    join_words(&quoted.iter().map(String::as_str).collect::<Vec<_>>(), last)
}

fn join_words(words: &[&str], last: &str) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_string(),
        [rest @ .., end] => format!("{} {last} {end}", rest.join(", ")),
    }
}

/// The known name nearest to a mistyped one, if it is near enough to be meant.
pub fn nearest<'n>(typed: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let lower = typed.to_lowercase();
    known
        .map(|name| (strsim::damerau_levenshtein(&lower, &name.to_lowercase()), name))
        .filter(|(distance, name)| {
            *distance <= 1 + name.chars().count().max(typed.chars().count()) / 4
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// "did you mean …?" for a mistyped name.
pub fn did_you_mean<'n>(typed: &str, known: impl Iterator<Item = &'n str>) -> Option<String> {
    nearest(typed, known).map(|name| format!("did you mean `{name}`?"))
}
