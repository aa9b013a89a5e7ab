//! Which columns identify a row.

use std::collections::BTreeSet;

use super::{Guess, InitTable};
use crate::engine::{ColumnProfile, KeyFaults, check_keys};
use crate::error::{Error, Result};
use crate::feature::ColumnClass;

/// Columns that are read to the end to see whether they are keys, at most.
const MOST_TRIED: usize = 5;

/// Names of keys …
const KEY_NAMES: [&str; 8] = ["id", "key", "uuid", "guid", "rowid", "index", "number", "no"];
/// … and their last words.
const KEY_ENDINGS: [&str; 6] = ["id", "key", "uuid", "guid", "nr", "no"];

/// A table whose key is looked for.
pub(super) struct KeySearch<'a> {
    pub(super) source: &'a InitTable<'a>,
    /// Columns that the model takes; none if that is not known yet.
    pub(super) taken: Option<BTreeSet<&'a str>>,
}

impl KeySearch<'_> {
    /// The key that was given, or the first column that can be one.
    ///
    /// # Errors
    /// When what was given is no key, or no column can be one.
    pub(super) async fn find(&self) -> Result<Guess<Vec<String>>> {
        let given = &self.source.request.key;
        if !given.is_empty() {
            let faults = self.check(given).await?;
            self.refuse(given, &faults)?;
            return Ok(Guess { value: given.clone(), why: None });
        }
        for column in self.candidates().into_iter().take(MOST_TRIED) {
            let key = vec![column.name.clone()];
            let faults = self.check(&key).await?;
            if faults.duplicates == 0 && faults.nulls == 0 {
                let named =
                    if is_named_like_key(&column.name) { ", and is named like one" } else { "" };
                let why = format!("every row has a value of its own in `{}`{named}", column.name);
                return Ok(Guess { value: key, why: Some(why) });
            }
        }
        Err(self.none())
    }

    async fn check(&self, key: &[String]) -> Result<KeyFaults> {
        check_keys(&self.source.engine, &self.source.table, key, None).await
    }

    /// Columns that may be keys, those that are named like one first.
    fn candidates(&self) -> Vec<&ColumnProfile> {
        let profiles = self.source.profiles.iter().enumerate();
        let likely = |(index, column): &(usize, &ColumnProfile)| {
            let whole = column.values == column.rows && column.is_nearly_unique();
            let taken = self.taken.as_ref();
            let free = taken.is_none_or(|taken| !taken.contains(column.name.as_str()));
            // As long as it is not known what the model takes, whole numbers may be amounts.
            let no_amount =
                taken.is_some() || column.class != Some(ColumnClass::Integer) || *index == 0;
            whole && free && can_be_key(column) && (no_amount || is_named_like_key(&column.name))
        };
        let mut found: Vec<&ColumnProfile> =
            profiles.filter(likely).map(|(_, column)| column).collect();
        found.sort_by_key(|column| !is_named_like_key(&column.name));
        found
    }

    fn refuse(&self, key: &[String], faults: &KeyFaults) -> Result<()> {
        let names = key.join(", ");
        let problem = match faults {
            KeyFaults { nulls: 0, duplicates: 0, .. } => return Ok(()),
            KeyFaults { nulls: 0, duplicates, examples, .. } => {
                let examples = examples.join("; ");
                format!(
                    "key `{names}` is not unique: {duplicates} keys occur more than once ({examples})"
                )
            }
            KeyFaults { nulls, .. } => format!("key `{names}` is null in {nulls} rows"),
        };
        let hint = "name a column that every row has a value of its own in, or further columns by more `--key`";
        Err(Error::input(&self.source.table.shown, problem).hint(hint))
    }

    /// No column can be the key; says of those that are named like one why not.
    fn none(&self) -> Error {
        let named = self.source.profiles.iter().filter(|column| is_named_like_key(&column.name));
        let reasons = named.map(|column| {
            let name = &column.name;
            let nulls = column.rows - column.values;
            let taken = self.taken.as_ref().is_some_and(|taken| taken.contains(name.as_str()));
            match nulls {
                _ if taken => format!("the model takes `{name}`"),
                _ if !can_be_key(column) => format!("`{name}` is neither text nor whole numbers"),
                0 => format!("`{name}` has values more than once"),
                nulls => format!("`{name}` is null in {nulls} rows"),
            }
        });
        let reasons: Vec<String> = reasons.take(MOST_TRIED).collect();
        let reasons =
            if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join(", ")) };
        let table = &self.source.table.shown;
        let problem = format!(
            "has no evident key, expected a column of texts or whole numbers in which every row has a value of \
             its own{reasons}"
        );
        Error::input(table, problem).hint(format!(
            "name the key by `--key COLUMN`, one for each of its columns; a table without a key gets one by duckdb -c \
             \"COPY (SELECT row_number() OVER () AS row_id, * FROM '{}') TO 'with_key.parquet'\"",
            readable(table)
        ))
    }
}

/// A table as DuckDB reads it.
fn readable(table: &str) -> String {
    let folder = std::path::Path::new(table).is_dir();
    if folder { format!("{}/**/*.parquet", table.trim_end_matches('/')) } else { table.to_string() }
}

fn can_be_key(column: &ColumnProfile) -> bool {
    matches!(column.class, Some(ColumnClass::Integer | ColumnClass::Text))
}

/// Whether a name is, or ends in, a word for keys: `id`, `customer_id`, `customerId`, `ORDER-NO`.
fn is_named_like_key(name: &str) -> bool {
    let lower = name.to_lowercase();
    let last = lower.rsplit(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    let camel = name.ends_with("Id") || name.ends_with("ID") || name.ends_with("Key");
    KEY_NAMES.contains(&lower.as_str())
        || (last.len() < lower.len() && KEY_ENDINGS.contains(&last))
        || (camel && lower.len() > 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_known_by_their_names() {
        for name in ["id", "customer_id", "customerId", "ORDER-NO", "row key", "UserID"] {
            assert!(is_named_like_key(name), "{name}");
        }
        for name in ["paid", "casino", "monkey", "age", "nr_of_rooms", "identity"] {
            assert!(!is_named_like_key(name), "{name}");
        }
    }
}
