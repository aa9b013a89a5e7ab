//! Reference pages: a JSON Schema, or the description of tables, as Markdown. Pages and editors then say
//! what the types say, and a test compares them.

use std::fmt::Write as _;

use serde_json::Value;

use super::check::{branches, is_null, types};

const KEY_COLUMNS: &str = "| key | type | default | limits | |\n|---|---|---|---|---|\n";
const TABLE_COLUMNS: &str = "| column | type | null | |\n|---|---|---|---|\n";

/// The keys of a TOML file: a section for each of its tables, a row for each key.
pub fn reference(schema: &Value) -> String {
    let keys = Keys { root: schema };
    let mut text = String::new();
    for (name, property) in properties(schema) {
        let resolved = keys.resolve(property);
        let (heading, section) = match resolved.get("items") {
            Some(items) => (format!("[[{name}]]"), keys.resolve(items)),
            None => (format!("[{name}]"), resolved),
        };
        let description = one_line(described(section).or(described(property)));
        let _ = write!(text, "### `{heading}`\n\n{description}\n\n{KEY_COLUMNS}");
        keys.rows("", section, &mut text);
        text.push('\n');
    }
    text
}

/// The columns of tables: a section for each table, a row for each column.
pub fn column_reference(tables: &Value) -> String {
    let mut text = String::new();
    for (name, columns) in tables.as_object().into_iter().flatten() {
        let _ = write!(text, "### {name}\n\n{TABLE_COLUMNS}");
        for column in columns.as_array().into_iter().flatten() {
            let cell = |key: &str| one_line(column[key].as_str());
            let null = if column["nullable"] == true { "yes" } else { "" };
            let (name, kind) = (cell("name"), cell("type"));
            let _ = writeln!(text, "| `{name}` | {kind} | {null} | {} |", cell("description"));
        }
        text.push('\n');
    }
    text
}

struct Keys<'a> {
    root: &'a Value,
}

impl<'a> Keys<'a> {
    fn rows(&self, prefix: &str, table: &'a Value, text: &mut String) {
        for (name, property) in properties(table) {
            let key = format!("{prefix}{name}");
            let resolved = self.resolve(property);
            let entries = resolved.get("additionalProperties").filter(|value| value.is_object());
            if resolved.get("properties").is_some() {
                self.rows(&format!("{key}."), resolved, text);
            } else if let Some(entry) = entries {
                // A table whose keys are the user's: features.
                let key = format!("{key}.<feature>");
                let entry = self.resolve(entry);
                if entry.get("properties").is_some() {
                    self.rows(&format!("{key}."), entry, text);
                } else {
                    self.row(&key, entry, described(property), "", text);
                }
            } else {
                let default = default_of(property, is_required(table, name));
                self.row(&key, resolved, described(property), &default, text);
            }
        }
    }

    fn row(
        &self,
        key: &str,
        value: &'a Value,
        description: Option<&str>,
        default: &str,
        text: &mut String,
    ) {
        let items = value.get("items").map(|items| self.resolve(items));
        let choices: Vec<&Value> = choices(items.unwrap_or(value)).collect();
        let mut kind = self.kind(items.unwrap_or(value));
        if items.is_some() {
            kind = match value.get("maxItems").and_then(Value::as_u64) {
                Some(2) => format!("[{kind}, {kind}]"),
                _ => format!("list of {kind}"),
            };
        }
        let limits = limits(items.unwrap_or(value));
        let mut meaning = one_line(description);
        for choice in choices {
            let name = choice["const"].as_str().unwrap_or_default();
            let _ = write!(meaning, "<br>`{name}`: {}", one_line(described(choice)));
        }
        let _ = writeln!(text, "| `{key}` | {kind} | {default} | {limits} | {meaning} |");
    }

    /// Follows a reference, and the one branch of an optional value that is not null.
    fn resolve(&self, schema: &'a Value) -> &'a Value {
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            return self.resolve(&self.root["$defs"][reference.trim_start_matches("#/$defs/")]);
        }
        let mut given = branches(schema).filter(|branch| !is_null(branch));
        match (given.next(), given.next()) {
            (Some(only), None) if only.get("const").is_none() => self.resolve(only),
            _ => schema,
        }
    }

    fn kind(&self, value: &'a Value) -> String {
        let mut words: Vec<String> = Vec::new();
        for branch in branches(value).chain([value]) {
            for name in types(self.resolve(branch)).filter(|name| *name != "null") {
                let word = match name {
                    "string" => "text",
                    "array" => "list",
                    "object" => "table",
                    other => other,
                };
                if !words.iter().any(|known| known == word) {
                    words.push(word.to_string());
                }
            }
        }
        if words.iter().any(|word| word == "number") {
            words.retain(|word| word != "integer");
        }
        words.join(" or ")
    }
}

fn properties(table: &Value) -> impl Iterator<Item = (&String, &Value)> {
    table.get("properties").and_then(Value::as_object).into_iter().flatten()
}

fn choices(value: &Value) -> impl Iterator<Item = &Value> {
    branches(value).filter(|branch| branch.get("const").is_some())
}

fn described(schema: &Value) -> Option<&str> {
    schema.get("description").and_then(Value::as_str)
}

fn is_required(table: &Value, name: &str) -> bool {
    let required = table.get("required").and_then(Value::as_array);
    required.is_some_and(|names| names.iter().any(|required| required == name))
}

/// The default as it would be typed; nothing where the description says what it is.
fn default_of(property: &Value, required: bool) -> String {
    let empty = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
    match property.get("default") {
        _ if required => "required".to_string(),
        Some(value) if !value.is_null() && !empty(value) => format!("`{}`", plain(value)),
        _ => String::new(),
    }
}

fn limits(value: &Value) -> String {
    let bound = |key: &str| value.get(key).map(grouped);
    match (bound("minimum"), bound("exclusiveMinimum"), bound("maximum")) {
        (Some(low), _, Some(high)) => format!("{low} to {high}"),
        (_, Some(low), Some(high)) => format!("above {low}, at most {high}"),
        _ => String::new(),
    }
}

/// A number without the fraction that a whole number has in JSON.
fn plain(value: &Value) -> String {
    let text = value.to_string();
    text.strip_suffix(".0").map_or(text.clone(), str::to_string).replace("e+", "e")
}

/// A number as it is read: a comma for every three digits.
fn grouped(value: &Value) -> String {
    let text = plain(value);
    let (sign, digits) = text.strip_prefix('-').map_or(("", text.as_str()), |rest| ("−", rest));
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return format!("{sign}{digits}");
    }
    let mut shown = sign.to_string();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// Text for a cell of a table.
fn one_line(text: Option<&str>) -> String {
    text.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_have_types_defaults_limits_and_choices() {
        let schema = json!({
            "properties": {
                "input": { "$ref": "#/$defs/Input", "description": "Tables." },
                "feature": { "type": "array", "items": { "$ref": "#/$defs/Feature" } },
            },
            "$defs": {
                "Input": {
                    "description": "Tables in.",
                    "properties": {
                        "key": { "type": "string", "description": "Names\na row." },
                        "rows": { "type": ["integer", "null"], "default": 8192, "minimum": 1,
                                  "maximum": 1_048_576 },
                        "range": { "type": "array", "maxItems": 2, "minItems": 2, "items":
                                   { "type": "number", "minimum": -1e300, "maximum": 1e300 } },
                        "mmd": { "$ref": "#/$defs/Mmd" },
                        "rename": { "type": "object", "additionalProperties": { "type": "string" },
                                    "description": "Other name." },
                    },
                    "required": ["key"],
                },
                "Mmd": { "properties": { "space": { "$ref": "#/$defs/Space", "default": "raw" } } },
                "Space": { "oneOf": [
                    { "type": "string", "const": "raw", "description": "As it is." },
                    { "type": "string", "const": "none", "description": "a | b" },
                ] },
                "Feature": { "description": "One.", "properties": {} },
            },
        });
        let expected = "### `[input]`\n\nTables in.\n\n\
            | key | type | default | limits | |\n|---|---|---|---|---|\n\
            | `key` | text | required |  | Names a row. |\n";
        let text = reference(&schema);
        assert!(text.starts_with(expected), "{text}");
        for row in [
            "| `rows` | integer | `8192` | 1 to 1,048,576 |  |",
            "| `range` | [number, number] |  | −1e300 to 1e300 |  |",
            "| `mmd.space` | text | `\"raw\"` |  | <br>`raw`: As it is.<br>`none`: a \\| b |",
            "| `rename.<feature>` | text |  |  | Other name. |",
            "### `[[feature]]`\n\nOne.\n",
        ] {
            assert!(text.contains(row), "{row} not in\n{text}");
        }
    }

    #[test]
    fn tables_have_a_row_for_each_column() {
        let tables = json!({ "rejects": [
            { "name": "reason", "type": "Utf8", "nullable": true, "description": "why" },
        ]});
        let expected = format!("### rejects\n\n{TABLE_COLUMNS}| `reason` | Utf8 | yes | why |\n\n");
        assert_eq!(column_reference(&tables), expected);
    }
}
