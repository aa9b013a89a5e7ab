//! Names of files as a table's log spells them. A file is removed under the very spelling under which it was added, and
//! writers escape differently.

use std::collections::HashMap;

use arrow::array::{Array, AsArray};
use deltalake_core::kernel::EagerSnapshot;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use crate::error::{Error, Result};

/// What the library escapes in the names that it writes.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'\\')
    .add(b'{')
    .add(b'^')
    .add(b'}')
    .add(b'%')
    .add(b'`')
    .add(b']')
    .add(b'"')
    .add(b'>')
    .add(b'[')
    .add(b'<')
    .add(b'#')
    .add(b'|')
    .add(b'\r')
    .add(b'\n')
    .add(b'*')
    .add(b'?');

/// Gives, for the name of an active file, the name that the library spells as the log does.
pub(super) fn remove_path<'a>(
    snapshot: &EagerSnapshot,
    url: &'a str,
) -> Result<impl Fn(&str) -> Result<String> + 'a> {
    let unread = |error| Error::output(url, "has a log that cannot be read").source(error);
    let files = snapshot.add_actions_table(false).map_err(unread)?;
    let mut raw: HashMap<String, String> = HashMap::new();
    if let Some(paths) = files.column_by_name("path").and_then(|paths| paths.as_string_opt::<i32>())
    {
        let spelled = (0..paths.len()).map(|row| paths.value(row));
        raw.extend(spelled.map(|path| (decoded(path), path.to_string())));
    }
    Ok(move |name: &str| {
        let spelled = raw.get(name).map_or(name, String::as_str);
        reproducing(spelled).ok_or_else(|| {
            let problem = format!(
                "names the file `{spelled}` in a spelling that cannot be repeated, so that it cannot be replaced"
            );
            Error::output(url, problem).hint("let the program that wrote it overwrite the table once")
        })
    })
}

fn decoded(path: &str) -> String {
    percent_decode_str(path).decode_utf8_lossy().into_owned()
}

/// A name that is spelled so when it is escaped.
fn reproducing(spelled: &str) -> Option<String> {
    let candidates = [decoded(spelled), spelled.to_string()];
    candidates.into_iter().find(|name| utf8_percent_encode(name, ESCAPED).to_string() == spelled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_spelled_as_they_were_found() {
        for spelled in ["a=1/part.parquet", "a=b%20c/p", "a=%253A/p", "p=%25C3%25A9%252Fx/p"] {
            let name = reproducing(spelled).expect(spelled);
            assert_eq!(utf8_percent_encode(&name, ESCAPED).to_string(), spelled);
        }
        // Not escaped by its writer, and always escaped by the library.
        assert_eq!(reproducing("a=São/p"), None);
        assert_eq!(reproducing("a=b c/p"), None);
    }
}
