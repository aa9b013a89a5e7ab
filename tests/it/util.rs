//! A folder, a table, a job, a run: what every test here is made of.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::{Field, Schema};
use expect_test::Expect;
use overturn::synth::{self, Synth};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tempfile::TempDir;

/// What a run said and how it ended.
#[derive(Debug)]
pub struct Run {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Run {
    fn from(output: Output) -> Run {
        Run {
            // A signal that killed it leaves no code.
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Run {
    /// Runs a command to its end.
    pub fn of(command: &mut Command) -> Run {
        Run::from(command.output().expect("the program starts"))
    }

    /// The run must have succeeded.
    pub fn ok(self) -> Run {
        assert_eq!(self.code, 0, "{self:#?}");
        self
    }

    /// The run must have failed with this code, and have said each of these things.
    pub fn fails(self, code: i32, said: &[&str]) -> Run {
        assert_eq!(self.code, code, "{self:#?}");
        for expected in said {
            assert!(self.stderr.contains(expected), "{expected:?} not in\n{}", self.stderr);
        }
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        self
    }

    /// The run must have failed with this code, and have said this beside its log, without what differs from run to
    /// run: folders as `DIR`, `TMP` and `PROJECT`, hashes as `HASH`.
    pub fn says(self, code: i32, expected: &Expect) -> Run {
        assert_eq!(self.code, code, "{self:#?}");
        let lines: Vec<&str> = self.stderr.lines().filter(|line| logged(line).is_none()).collect();
        let text = without_hashes(&without_folders(&lines.join("\n")));
        expected.assert_eq(&format!("{}\n", text.trim()));
        self
    }

    /// The summary of a run with `--format json`.
    pub fn json(&self) -> serde_json::Value {
        let last = self.stdout.lines().last().unwrap_or_default();
        serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {last}"))
    }
}

/// A text with folders of tests as `DIR`, that of what tests share as `TMP`, and the project's as `PROJECT`.
fn without_folders(text: &str) -> String {
    let begin = std::env::temp_dir().join(".tmp").display().to_string();
    let mut pieces = text.split(&begin);
    let first = pieces.next().unwrap_or_default().to_string();
    let text = pieces.fold(first, |text, piece| {
        text + "DIR" + piece.trim_start_matches(|c: char| c.is_ascii_alphanumeric())
    });
    let text = text.replace(&project().display().to_string(), "PROJECT");
    let text = text.replace(env!("CARGO_TARGET_TMPDIR"), "TMP");
    match std::env::var("OVERTURN_PYTHON") {
        Ok(python) => text.replace(&python, "PYTHON"),
        Err(_) => text,
    }
}

/// A text with hashes, and the names of runs that are made of them, as `HASH`.
fn without_hashes(text: &str) -> String {
    let is_hash = |word: &str| {
        matches!(word.len(), 16 | 64)
            && word.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let mut found = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let word = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        found += if is_hash(&rest[..word]) { "HASH" } else { &rest[..word] };
        let next = rest[word..].find(|c: char| c.is_ascii_alphanumeric());
        let next = word + next.unwrap_or(rest.len() - word);
        found += &rest[word..next];
        rest = &rest[next..];
    }
    found
}

/// The built program.
pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_overturn"));
    command.stdin(Stdio::null()).env_remove("RUST_LOG");
    command
}

/// Runs the program to its end.
pub fn overturn(arguments: &[&str]) -> Run {
    Run::of(program().args(arguments))
}

/// The project's folder.
pub fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Files with an ending, in a folder and those below it.
pub fn files_below(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files_below(&path, ending));
        } else if path.extension().is_some_and(|found| found == ending) {
            found.push(path);
        }
    }
    found
}

/// Says a line that the test harness does not swallow, as it does what passing tests print.
fn say(line: String) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The Python of the test environment, or a line that says what is skipped.
pub fn python(test: &str) -> Option<PathBuf> {
    let python =
        std::env::var_os("OVERTURN_PYTHON").map(PathBuf::from).filter(|path| path.exists());
    if python.is_none() {
        assert!(
            std::env::var("CI").as_deref() != Ok("true"),
            "CI must have the Python environment"
        );
        say("skipped: {test} needs the Python environment (run jobs/setup.sh)"
            .replace("{test}", test));
    }
    python
}

/// The folder of the real data sets, or a line that says what is skipped.
pub fn data(test: &str) -> Option<PathBuf> {
    let data =
        std::env::var_os("OVERTURN_DATA").map_or(project().join("../shared/data"), PathBuf::from);
    if data.is_dir() {
        return Some(data);
    }
    assert!(std::env::var("CI").as_deref() != Ok("true"), "CI must have the real data sets");
    say("skipped: {test} needs the real data sets (set OVERTURN_DATA)".replace("{test}", test));
    None
}

/// Runs a Python script given as text, which must succeed.
pub fn run_python(python: &Path, script: &str, arguments: &[&str]) -> String {
    Run::of(Command::new(python).arg("-c").arg(script).args(arguments)).ok().stdout
}

/// A folder with a table of credit applications, to be spoiled and scored.
pub struct Bench {
    folder: TempDir,
}

impl Bench {
    /// An empty one.
    pub fn new() -> Bench {
        Bench { folder: TempDir::new().expect("a temporary folder") }
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The same as text.
    pub fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// What a run said on standard error beside its log, with the test's folder as `DIR` and the project's as
    /// `PROJECT`.
    pub fn said(&self, run: &Run) -> String {
        let lines: Vec<&str> = run.stderr.lines().filter(|line| logged(line).is_none()).collect();
        self.placed(&lines.join("\n"))
    }

    /// What a run that must fail with code 1 said, under its cause: for snapshots of several messages.
    pub fn refusal(&self, cause: &str, run: &Run) -> String {
        assert_eq!(run.code, 1, "{cause}: {run:#?}");
        format!("# {cause}\n{}\n", self.said(run))
    }

    /// The run must have failed with this code, and have said this beside its log.
    pub fn fails_with(&self, run: &Run, code: i32, expected: &Expect) {
        assert_eq!(run.code, code, "{run:#?}");
        expected.assert_eq(&self.said(run));
    }

    /// The lines of a run's log without their times, in the same way.
    pub fn logged(&self, run: &Run) -> String {
        let lines: Vec<&str> = run.stderr.lines().filter_map(logged).collect();
        self.placed(&lines.join("\n"))
    }

    /// A text with the test's folder as `DIR` and the project's as `PROJECT`.
    pub fn placed(&self, text: &str) -> String {
        let folder = self.folder.path().display().to_string();
        let text =
            text.replace(&folder, "DIR").replace(&project().display().to_string(), "PROJECT");
        format!("{}\n", text.trim())
    }

    /// Runs the program in it.
    pub fn here(&self, arguments: &[&str]) -> Run {
        Run::of(program().current_dir(self.path("")).args(arguments))
    }

    /// Writes a file into it.
    pub fn write(&self, name: &str, content: &str) -> String {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("inside the folder")).expect("a folder");
        fs::write(&path, content).expect("a file");
        path.display().to_string()
    }

    /// Writes a batch as a Parquet file.
    pub fn parquet(&self, name: &str, batch: &RecordBatch) -> String {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("inside the folder")).expect("a folder");
        let file = File::create(&path).expect("a file");
        let mut writer = ArrowWriter::try_new(file, batch.schema(), None).expect("a writer");
        writer.write(batch).expect("written");
        writer.close().expect("closed");
        path.display().to_string()
    }

    /// A job for the demo's logistic regression over `table`, with further lines after `[input]` and a
    /// replacement for the `[predictor]` section.
    pub fn job(&self, table: &str, input: &str, predictor: Option<&str>) -> String {
        let root = project().display();
        let onnx = format!("kind = \"onnx\"\nmodel = \"{root}/jobs/demo/logistic.onnx\"");
        let predictor = predictor.unwrap_or(&onnx);
        let schema = if input.contains("schema =") {
            String::new()
        } else {
            format!("schema = \"{root}/schemas/credit.toml\"\n")
        };
        self.write(
            "job.toml",
            &format!(
                "[input]\nfeatures = \"{table}\"\nkey = \"application_id\"\n{schema}{input}\n\
                 [predictor]\n{predictor}\n[output]\ndir = \"out\"\n"
            ),
        )
    }

    /// Adds lines to a file in it.
    pub fn append(&self, name: &str, lines: &str) {
        let path = self.path(name);
        let text = fs::read_to_string(&path).expect("readable") + lines;
        fs::write(&path, text).expect("written");
    }

    /// Replaces a text that must occur in a file in it.
    pub fn replace(&self, name: &str, old: &str, new: &str) {
        let path = self.path(name);
        let text = fs::read_to_string(&path).expect("readable");
        assert!(text.contains(old), "{old:?} not in\n{text}");
        fs::write(&path, text.replace(old, new)).expect("written");
    }

    /// The JSON of a file in it.
    pub fn json(&self, name: &str) -> serde_json::Value {
        let text = fs::read_to_string(self.path(name)).expect("readable");
        serde_json::from_str(&text).expect("JSON")
    }

    /// The names of what is in it, in order.
    pub fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).expect("a folder").flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().into_string().expect("a name")).collect();
        names.sort();
        names
    }

    /// Table, model, schema and `job.toml` of a case of `known_answers.py`, and what that says of them.
    pub fn known(&self, python: &Path, case: &str, rows: Option<u32>) -> serde_json::Value {
        let mut command = Command::new(python);
        command.arg(project().join("tests/python/known_answers.py")).arg(case).arg(self.path(""));
        Run::of(command.args(rows.map(|rows| rows.to_string()))).ok().json()
    }

    /// Trains the generator of `job.toml`.
    pub fn train(&self, arguments: &[&str]) -> Run {
        let job = self.text("job.toml");
        Run::of(program().args(["train", &job, "--format", "json"]).args(arguments))
    }

    /// Scores a table with the demo's logistic regression.
    pub fn score(&self, table: &str, input: &str) -> Run {
        overturn(&["score", &self.job(table, input, None), "--format", "json"])
    }
}

/// A line of the log without its time.
fn logged(line: &str) -> Option<&str> {
    let (time, rest) = line.split_once(' ')?;
    let is_time = time.ends_with('Z') && time.starts_with("20") && time.contains('T');
    is_time.then(|| rest.trim_start())
}

/// Credit applications in memory.
pub fn credit(rows: u64) -> RecordBatch {
    let folder = TempDir::new().expect("a temporary folder");
    let table = Synth { rows, seed: 1, files: 1, null_share: 0.0 };
    synth::write(&table, &folder.path().join("t"), &|_| {}).expect("made");
    read_table(&folder.path().join("t"))
}

/// All rows of a Parquet file, or of the files of a folder in the order of their names.
pub fn read_table(path: &Path) -> RecordBatch {
    let mut files: Vec<PathBuf> = match fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(_) => vec![path.to_path_buf()],
    };
    files.sort();
    let mut batches = Vec::new();
    for file in files {
        let file = File::open(file).expect("a file");
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).expect("Parquet");
        batches.push(RecordBatch::new_empty(Arc::clone(reader.schema())));
        batches.extend(reader.build().expect("a reader").map(|batch| batch.expect("a batch")));
    }
    concat_batches(&batches[0].schema(), &batches).expect("one table")
}

/// Whether two tables have the same columns and rows, whatever run wrote them.
pub fn same_rows(left: &RecordBatch, right: &RecordBatch) -> bool {
    let names = |table: &RecordBatch| -> Vec<String> {
        table.schema().fields().iter().map(|field| field.name().clone()).collect()
    };
    names(left) == names(right) && left.columns() == right.columns()
}

/// The batch with a column replaced, added, or (`None`) removed.
pub fn with_column(batch: &RecordBatch, name: &str, column: Option<ArrayRef>) -> RecordBatch {
    let schema = batch.schema();
    let mut fields: Vec<Arc<Field>> = schema.fields().to_vec();
    let mut columns = batch.columns().to_vec();
    let place = fields.iter().position(|field| field.name() == name);
    if let Some(index) = place {
        fields.remove(index);
        columns.remove(index);
    }
    if let Some(column) = column {
        let index = place.unwrap_or(fields.len());
        fields.insert(index, Arc::new(Field::new(name, column.data_type().clone(), true)));
        columns.insert(index, column);
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("columns fit")
}
