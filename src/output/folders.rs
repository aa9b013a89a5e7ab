//! Hive-style folder names, `column=value`: what cannot stand in a name is percent-encoded as UTF-8, as Hive and
//! Spark do, and a null is `__HIVE_DEFAULT_PARTITION__`. For an empty text, for a text that is that very word, and
//! for names longer than a file system takes there is no name; such values are refused rather than lost.

use percent_encoding::{
    AsciiSet, NON_ALPHANUMERIC, PercentEncode, percent_decode_str, utf8_percent_encode,
};

use crate::error::Fault;

/// What is escaped: all but letters, digits and what every file system and engine takes as it is.
const ESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'+').remove(b' ');

/// What hive calls a null.
const NULL_FOLDER: &str = "__HIVE_DEFAULT_PARTITION__";

/// Bytes of one name that Linux file systems take.
const MOST_BYTES: usize = 255;

/// Characters of a value that a message shows.
const SHOWN: usize = 40;

/// Folders that the values of key columns may give: more are a mistake.
pub const MOST_FOLDERS: usize = 4096;

/// The folder of a value of a column.
///
/// # Errors
/// When it has none.
pub fn folder_name(column: &str, value: Option<&str>) -> Result<String, Fault> {
    let refused = |what: String| {
        Fault::new("output.partition_by", format!("names `{column}`, whose {what}"))
            .hint("leave the column out, or such rows with `input.where`")
    };
    let name = match value {
        None => format!("{}={NULL_FOLDER}", escaped(column)),
        Some("") => {
            return Err(refused("value '' cannot be told from a null in a folder's name".into()));
        }
        Some(NULL_FOLDER) => {
            let what = format!("value '{NULL_FOLDER}' cannot be told from a null");
            return Err(refused(what));
        }
        Some(value) => format!("{}={}", escaped(column), escaped(value)),
    };
    if name.len() <= MOST_BYTES {
        return Ok(name);
    }
    let shown: String = value.unwrap_or_default().chars().take(SHOWN).collect();
    let what = format!(
        "value '{shown}…' gives a folder name of {} bytes, expected at most {MOST_BYTES}",
        name.len()
    );
    Err(refused(what))
}

/// What the `name=value` folders of a path stand for; no value is a null.
pub fn folder_values(path: &str) -> Vec<(String, Option<String>)> {
    let pair = |folder: &str| {
        let (name, value) = folder.split_once('=')?;
        let value = (value != NULL_FOLDER).then(|| unescaped(value));
        Some((unescaped(name), value))
    };
    path.split('/').filter_map(pair).collect()
}

/// A folder's name without escapes.
fn unescaped(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// What a folder name cannot hold, as `%XX`.
fn escaped(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, ESCAPED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_names_give_back_what_they_were_made_of() {
        for text in ["approved", "São Paulo", "a/b=c%", "2026-11-16", "50 %", "%41", "a+b", "\n"] {
            let path =
                format!("t/{}/part-00000.parquet", folder_name("k=y", Some(text)).expect(text));
            assert_eq!(folder_values(&path), [("k=y".to_string(), Some(text.to_string()))]);
        }
        let null = folder_name("k", None).expect("a null");
        assert_eq!(folder_values(&format!("t/{null}/x")), [("k".to_string(), None)]);
    }

    #[test]
    fn values_without_a_name_are_refused() {
        let refused = |value: &str| folder_name("k", Some(value)).expect_err(value).problem;
        assert!(refused("").contains("names `k`, whose value '' cannot be told from a null"));
        assert!(refused(NULL_FOLDER).contains("cannot be told from a null"));
        assert!(folder_name("k", Some(&"x".repeat(253))).is_ok());
        assert!(refused(&"x".repeat(254)).contains("256 bytes, expected at most 255"));
        assert!(refused(&"ü".repeat(50)).contains("302 bytes"));
    }
}
