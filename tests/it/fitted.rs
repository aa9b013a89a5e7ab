//! A generator that is learnt once for all tests, and jobs that explain with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

use crate::util::{Bench, Run, overturn, program, project};

/// A training of a few seconds, good enough for most rows.
pub const QUICK: &str = "[autoencoder]\nsteps = 400\nbatch = 128\nhidden = [64]\n\
                         [train]\nmax_steps = 600\nbatch = 128\nhidden = 64\nvalidate_every = 100\n\
                         patience = 100\n";
/// What is wanted of every row.
pub const APPROVED: &str = "[target]\nclass = \"approved\"\n";

/// Rows of the table that the generator is learnt on.
const TRAINED_ROWS: &str = "4000";

/// A scorer that decides between `approved` and `rejected`: `labels` is a Python expression over `batch`, and
/// `first` what is done before it, with the batch's number in `place`.
pub fn scorer(first: &str, labels: &str) -> String {
    let classes = r#"{"overturn.protocol": "1", "overturn.classes": '["approved", "rejected"]'}"#;
    format!(
        "import os, sys\n\
         answers = os.fdopen(os.dup(1), 'wb'); os.dup2(2, 1)\n\
         import pyarrow as pa\n\
         if os.path.exists('broken') and not os.path.exists('repaired'):\n    sys.exit('out of order')\n\
         batches = pa.ipc.open_stream(sys.stdin.buffer)\n\
         schema = pa.schema([('label', pa.string())], {classes})\n\
         with pa.ipc.new_stream(answers, schema) as stream:\n    \
         for place, batch in enumerate(batches):\n        {first}\n        labels = {labels}\n        \
         stream.write_batch(pa.record_batch([pa.array(labels, pa.string())], schema=schema))\n        \
         answers.flush()\n"
    )
}

/// Approves of those who ask for little.
pub const LITTLE: &str =
    "['approved' if amount < 9_000 else 'rejected' for amount in batch['loan_amount'].to_pylist()]";

/// A table of credit applications in a folder, some cells of which are null.
pub fn applications(bench: &Bench, rows: u64, more: &[&str]) -> String {
    let table = bench.text("applications");
    let rows = rows.to_string();
    overturn(&[&["synth", &table, "--rows", &rows, "--seed", "5"], more].concat()).ok();
    table
}

/// The folder of a generator for the demo's logistic regression.
pub fn generator() -> &'static Path {
    static FITTED: OnceLock<PathBuf> = OnceLock::new();
    FITTED.get_or_init(|| {
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fitted");
        let _ = fs::remove_dir_all(&home);
        fs::create_dir_all(&home).expect("a folder");
        let table = home.join("applications").display().to_string();
        overturn(&["synth", &table, "--rows", TRAINED_ROWS, "--seed", "1"]).ok();
        let root = project().display();
        let job = format!(
            "[input]\nfeatures = \"{table}\"\nkey = \"application_id\"\n\
             schema = \"{root}/schemas/credit.toml\"\n\
             [predictor]\nkind = \"onnx\"\nmodel = \"{root}/jobs/demo/logistic.onnx\"\n\
             [output]\ndir = \"out\"\n{APPROVED}{QUICK}"
        );
        fs::write(home.join("job.toml"), job).expect("written");
        overturn(&["train", &home.join("job.toml").display().to_string()]).ok();
        home.join("out/generator")
    })
}

/// The section that names the fitted generator, with further lines in it; answers at the border unless they say
/// otherwise.
pub fn with_generator(lines: &str) -> String {
    let margin = if lines.contains("min_score") { "" } else { "min_score = 0\n" };
    format!("[explain]\ngenerator = \"{}\"\n{margin}{lines}", generator().display())
}

impl Bench {
    /// A job that explains a table with the fitted generator, with further lines at its end, the first of
    /// which go into the section `[explain]`.
    pub fn explain_job(&self, table: &str, lines: &str) {
        self.job(table, "max_reject_share = 0.5", None);
        self.append("job.toml", &format!("{APPROVED}{}", with_generator(lines)));
    }

    /// Does something with `job.toml`.
    pub fn does(&self, command: &str, arguments: &[&str]) -> Run {
        Run::of(&mut self.command(command, arguments))
    }

    /// The same, to be started by the caller.
    pub fn command(&self, command: &str, arguments: &[&str]) -> Command {
        let mut program = program();
        program.args([command, &self.text("job.toml"), "--format", "json"]).args(arguments);
        program.stdout(Stdio::piped()).stderr(Stdio::piped());
        program
    }

    /// A second opinion on the published run: all of `check_run.py`.
    pub fn check(&self, python: &Path, table: &str, arguments: &[&str]) -> Value {
        let mut command = Command::new(python);
        command.arg(project().join("tests/python/check_run.py")).arg(self.path("out")).arg(table);
        if !arguments.contains(&"--schema") {
            command.arg(project().join("schemas/credit.toml"));
        }
        let arguments = arguments.iter().filter(|argument| **argument != "--schema");
        Run::of(command.args(arguments)).ok().json()
    }

    /// Nothing is left beside `out` and what the test has put there.
    pub fn nothing_is_left(&self) {
        for left in [".out.staging", ".out.journal", ".out.checkpoint", ".out.lock"] {
            assert!(!self.path(left).exists(), "{left} is left");
        }
    }
}
