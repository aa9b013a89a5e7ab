//! Single keys of a file that get another value than the one that stands in it.

use serde_json::{Map, Value};

use super::{KeyPositions, join};
use crate::error::{Error, Fault, Result};

/// Where faults of a value point to that does not stand in the file.
pub(super) const SUBJECT: &str = "--override";

/// Dotted keys and their values, in the order in which they were given.
#[derive(Debug, Clone, Default)]
pub struct Overrides(Vec<(String, Value)>);

impl Overrides {
    /// From `key=value` arguments. A value is TOML; what is none is a text.
    ///
    /// # Errors
    /// When an argument has no key, no `=`, or an invalid number.
    pub fn parse(arguments: &[String]) -> Result<Overrides> {
        let parsed = arguments.iter().map(|argument| {
            let pair = argument.split_once('=').map(|(key, value)| (key.trim(), value.trim()));
            let usable = |(key, _): &(&str, &str)| key.split('.').all(|part| !part.is_empty());
            let (key, value) = pair.filter(usable).ok_or_else(|| {
                let problem = format!("is `{argument}`, expected `section.key=value`");
                Error::spec(SUBJECT, problem)
            })?;
            let infinite = || {
                let problem = format!("gives `{key}` the value {value}, expected a finite number");
                Error::spec(SUBJECT, problem)
            };
            Ok((key.to_string(), literal(value).ok_or_else(infinite)?))
        });
        Ok(Overrides(parsed.collect::<Result<_>>()?))
    }

    /// Puts the values into a file's tree. What they mean there is checked with the rest of it.
    pub(super) fn apply(
        &self,
        tree: &mut Value,
        positions: &mut KeyPositions,
        faults: &mut Vec<Fault>,
    ) {
        for (key, value) in &self.0 {
            match put(tree, key, value) {
                Ok(()) => positions.overridden.push(key.clone()),
                Err(section) => {
                    let problem = format!("`{key}` lies below `{section}`, which is no section");
                    faults.push(Fault::new(SUBJECT, problem));
                }
            }
        }
    }
}

/// Puts a value under a dotted key; else gives the part of the key that is in its way.
fn put(tree: &mut Value, key: &str, value: &Value) -> Result<(), String> {
    let mut parts: Vec<&str> = key.split('.').collect();
    let last = parts.pop().unwrap_or(key);
    let (mut table, mut path) = (tree, String::new());
    for part in parts {
        let Value::Object(map) = table else { return Err(path) };
        path = join(&path, part);
        table = map.entry(part).or_insert_with(|| Value::Object(Map::new()));
    }
    let Value::Object(map) = table else { return Err(path) };
    map.insert(last.to_string(), value.clone());
    Ok(())
}

/// What a text means; nothing for a number that JSON has no word for, which would become no value at all.
fn literal(text: &str) -> Option<Value> {
    let words = || Value::String(text.to_string());
    let Ok(mut table) = format!("value = {text}").parse::<toml::Table>() else {
        return Some(words());
    };
    Some(match table.remove("value") {
        // A line break would let further keys in; a date is a text for jobs.
        Some(value) if table.is_empty() && !value.is_datetime() => {
            if !is_finite(&value) {
                return None;
            }
            serde_json::to_value(value).unwrap_or_else(|_| words())
        }
        _ => words(),
    })
}

fn is_finite(value: &toml::Value) -> bool {
    match value {
        toml::Value::Float(number) => number.is_finite(),
        toml::Value::Array(values) => values.iter().all(is_finite),
        toml::Value::Table(table) => table.values().all(is_finite),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use schemars::JsonSchema;
    use serde::Deserialize;

    use super::*;
    use crate::document::{Document, parse_with};

    #[derive(Debug, Default, PartialEq, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields, default)]
    struct File {
        name: String,
        section: ExampleSection,
    }

    #[derive(Debug, Default, PartialEq, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields, default)]
    struct ExampleSection {
        count: u32,
        date: String,
        list: Vec<String>,
    }

    fn read(arguments: &[&str]) -> Result<Document<File>> {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let overrides = Overrides::parse(&arguments)?;
        let text = "name = \"a\"\n[section]\ncount = 1\n";
        parse_with(text, Path::new("job.toml"), &|text, _| Ok(text), &overrides)
    }

    #[test]
    fn values_are_toml_or_text_and_the_last_one_counts() {
        let found = read(&[
            "section.count=2",
            "section.count = 3",
            "name=plain words",
            "section.date=2026-11-17",
            "section.list=[\"x\", \"y\"]",
        ]);
        let section = ExampleSection {
            count: 3,
            date: "2026-11-17".into(),
            list: vec!["x".into(), "y".into()],
        };
        assert_eq!(found.expect("read").value, File { name: "plain words".into(), section });
    }

    #[test]
    fn faults_point_to_the_command_line() {
        for (argument, said) in [
            ("section.count=many", "--override"),
            ("section.cuont=2", "did you mean `count`"),
            ("name.first=x", "`name.first` lies below `name`, which is no section"),
            ("section", "expected `section.key=value`"),
            ("=3", "expected `section.key=value`"),
            (
                "section.count=nan",
                "--override: gives `section.count` the value nan, expected a finite",
            ),
            ("section.list=[1.0, -inf]", "expected a finite number"),
            ("nosuch.key=1", "--override: `nosuch` is not a known key"),
            ("name=x\nsection.count = 9", "--override"),
        ] {
            let found = read(&[argument]);
            if argument.starts_with("name=x") {
                let value = found.expect("a text").value;
                assert_eq!(value.section.count, 1, "one argument sets one key");
                continue;
            }
            let error = found.expect_err(argument).to_string();
            assert!(error.contains(said), "{argument}: {error}");
        }
    }
}
