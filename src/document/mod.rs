//! A TOML file as a typed value, with every fault of it found at once.
//!
//! Serde stops at the first mistake, which makes a file with five of them five runs. So the text is
//! first parsed into a plain tree with line numbers, the tree is checked as a whole against the JSON
//! Schema of the Rust type (the same schema that editors use), and only a clean tree is deserialised.
//! What the values mean is not decided here.

mod check;
mod limits;
mod literal;
mod overrides;
mod parse;
mod reference;
mod regular;
mod write;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use schemars::{JsonSchema, generate::SchemaSettings};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{Error, Fault, Kind, Result};

pub use check::{did_you_mean, nearest};
pub use limits::{Low, NumberLimit, write_limits};
pub use literal::Literal;
pub use overrides::Overrides;
pub use reference::{column_reference, reference};
pub use regular::{inside, odd_kind, open_regular, open_unlinked, read_regular, read_unlinked};
pub use write::{toml_number, toml_text};

/// A file's value, and where in the file each key stands.
#[derive(Debug)]
pub struct Document<T> {
    /// What the file says.
    pub value: T,
    /// Where.
    pub positions: KeyPositions,
    /// Numbers outside their limits: to be reported together with what else is wrong.
    pub out_of_range: Vec<Fault>,
}

/// The line of each key in a file, for messages.
#[derive(Debug, Clone)]
pub struct KeyPositions {
    file: PathBuf,
    lines: HashMap<String, usize>,
    /// Keys whose values do not stand in the file.
    overridden: Vec<String>,
}

impl KeyPositions {
    /// What was typed as an argument; relative paths start from the current folder.
    pub fn argument(name: &str) -> KeyPositions {
        KeyPositions { file: PathBuf::from(name), lines: HashMap::new(), overridden: Vec::new() }
    }

    /// The file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The folder that relative paths of the file start from.
    pub fn folder(&self) -> &Path {
        match self.file.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        }
    }

    /// A fault of the value at `key` (dotted), which "is …".
    pub fn fault(&self, key: &str, problem: impl std::fmt::Display) -> Fault {
        Fault::new(self.subject(key), format!("`{key}` {problem}"))
    }

    /// `file:line` of a key, or of the nearest enclosing one that stands in the file.
    fn subject(&self, key: &str) -> String {
        let mut key = key;
        loop {
            if self.overridden.iter().any(|own| own == key) {
                return overrides::SUBJECT.to_string();
            }
            if let Some(line) = self.lines.get(key) {
                return format!("{}:{line}", self.file.display());
            }
            match key.rfind(['.', '[']) {
                Some(end) => key = &key[..end],
                None if self.is_overridden_below(key) => return overrides::SUBJECT.to_string(),
                None => return self.file.display().to_string(),
            }
        }
    }

    /// Whether a section that does not stand in the file comes from the command line.
    fn is_overridden_below(&self, section: &str) -> bool {
        let below =
            |own: &String| own.strip_prefix(section).is_some_and(|rest| rest.starts_with('.'));
        self.overridden.iter().any(below)
    }
}

/// Reads a TOML file as a `T`.
///
/// # Errors
/// All faults of the file at once.
pub fn read<T: DeserializeOwned + JsonSchema>(file: &Path) -> Result<Document<T>> {
    read_with(file, &|text, _| Ok(text), &Overrides::default())
}

/// Fills the placeholders of one text value; gets the value and its key.
pub type Fill<'a> = &'a dyn Fn(String, &str) -> Result<String, Fault>;

/// As [`read`], with every text value of the file passed through `fill` first, then single keys overridden.
pub fn read_with<T: DeserializeOwned + JsonSchema>(
    file: &Path,
    fill: Fill,
    overrides: &Overrides,
) -> Result<Document<T>> {
    parse_with(&read_text(file)?, file, fill, overrides)
}

/// Bytes of a job or schema file, at most: a hundred thousand features fit.
const MOST_BYTES: u64 = 32 << 20;

/// Reads a text file. Pipes, devices and folders are refused at once: reading them may never end.
///
/// # Errors
/// When it is none, cannot be read, or is larger than any job or schema.
pub fn read_text(file: &Path) -> Result<String> {
    let shown = || file.display().to_string();
    let bytes = read_regular(file, MOST_BYTES).map_err(|error| match error.kind() {
        // Not a file, or too large: the sentence is our own.
        std::io::ErrorKind::InvalidInput => Error::spec(shown(), error.to_string()),
        _ => Error::spec(shown(), "cannot be read").source(error),
    })?;
    String::from_utf8(bytes)
        .map_err(|error| Error::spec(shown(), "is not UTF-8 text").source(error))
}

/// As [`read_with`], from text; `file` is for messages and relative paths.
pub fn parse_with<T: DeserializeOwned + JsonSchema>(
    text: &str,
    file: &Path,
    fill: Fill,
    overrides: &Overrides,
) -> Result<Document<T>> {
    let (mut tree, mut positions, mut faults) = parse::parse(text, file, fill)?;
    overrides.apply(&mut tree, &mut positions, &mut faults);
    let out_of_range = check::check(&tree, &json_schema::<T>(), &positions, &mut faults);
    if !faults.is_empty() {
        faults.extend(out_of_range);
        return Err(Error::of_faults(Kind::Spec, faults));
    }
    let value = match serde_json::from_value(tree) {
        Ok(value) => value,
        // A negative number where the type has none.
        Err(_) if !out_of_range.is_empty() => {
            return Err(Error::of_faults(Kind::Spec, out_of_range));
        }
        Err(error) => {
            let problem = format!("cannot be understood: {error}");
            return Err(Error::spec(file.display().to_string(), problem));
        }
    };
    Ok(Document { value, positions, out_of_range })
}

/// The JSON Schema of a file type, as generated into `schemas/`.
pub fn json_schema<T: JsonSchema>() -> Value {
    SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>().into()
}

/// The dotted path of a key.
fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_string() } else { format!("{path}.{key}") }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        name: String,
        #[serde(default)]
        size: Option<u32>,
        #[serde(default)]
        colour: Colour,
        #[serde(default)]
        part: Vec<Part>,
        range: Option<[f64; 2]>,
    }

    #[derive(Debug, Default, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    enum Colour {
        /// Red.
        #[default]
        Red,
        /// Green.
        Green,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Part {
        name: String,
        value: Option<Literal>,
    }

    fn parse(text: &str) -> Result<Document<Sample>> {
        parse_with(text, Path::new("s.toml"), &|text, _| Ok(text), &Overrides::default())
    }

    #[test]
    fn many_faults_are_found_quickly_and_some_are_listed() {
        let text: String = (0..100_000).map(|key| format!("key_{key} = 1\n")).collect();
        let began = std::time::Instant::now();
        let error = parse(&text).expect_err("full of faults");
        assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
        assert_eq!(error.faults().len(), crate::error::MOST_FAULTS + 1);
        assert!(error.to_string().ends_with("more faults of this kind"), "{error}");
    }

    #[test]
    fn pipes_and_devices_are_not_read() {
        for (path, kind) in [("/dev/zero", "a device"), ("/", "a folder")] {
            let error = read_text(Path::new(path)).expect_err("no file").to_string();
            assert!(error.contains(&format!("is {kind}, expected a file")), "{error}");
        }
    }

    #[test]
    fn a_clean_file_becomes_its_type() {
        let sample =
            parse("name = \"a\"\nsize = 3\nrange = [0, 1.5]\n[[part]]\nname = \"p\"\nvalue = true")
                .expect("clean")
                .value;
        assert_eq!(
            (sample.name.as_str(), sample.size, sample.range),
            ("a", Some(3), Some([0.0, 1.5]))
        );
        assert!(matches!(sample.colour, Colour::Red));
        assert_eq!(sample.part[0].name, "p");
        assert_eq!(sample.part[0].value, Some(Literal::Boolean(true)));
    }

    #[test]
    fn all_faults_are_listed_with_their_lines() {
        let error = parse(
            "sise = 3\ncolour = \"gren\"\nrange = [1]\nsize = -1\n[[part]]\nname = \"p\"\nvalue = [1]\n[[part]]",
        )
        .expect_err("full of faults");
        let text = error.to_string();
        for expected in [
            "s.toml:1: `sise` is not a known key\n  hint: did you mean `size`?",
            "s.toml:2: `colour` is \"gren\", expected `red` or `green`\n  hint: did you mean `green`?",
            "s.toml:3: `range` has 1 entry, expected 2",
            "s.toml:4: `size` is -1, expected at least 0",
            "s.toml:7: `part[p].value` is a list, expected true or false, a whole number, a number or text",
            "s.toml:8: `part[1].name` is missing, expected text",
            "s.toml: `name` is missing, expected text",
        ] {
            assert!(text.contains(expected), "{expected}\nnot in\n{text}");
        }
        assert_eq!(error.faults().len(), 7, "{text}");
    }

    #[test]
    fn syntax_errors_name_the_line() {
        let error = parse("name = \"a\"\nsize = = 3").expect_err("not TOML");
        assert!(error.to_string().starts_with("s.toml:2: "), "{error}");
    }
}
