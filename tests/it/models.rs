//! Models that lie, and what a model is made of: answers that change, scores that are no numbers, weights
//! that stand in other files, more classes than anybody has.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch};

use expect_test::expect;

use crate::util::{Bench, Run, program, project, python, read_table};

/// Points in a square, a schema of both numbers, and a job for a model that is made next.
struct Points {
    bench: Bench,
    python: PathBuf,
}

/// The model as one matrix of both numbers.
const ONNX: &str = "kind = \"onnx\"\nmodel = \"model.onnx\"\ninputs = \"matrix\"\n";
/// Answers are training rows: nothing is to be learnt.
const QUICK: &str = "[explain]\nmethod = \"nearest\"\n[report.mmd]\nspace = \"none\"\n";

impl Points {
    fn new(test: &str, rows: usize, predictor: &str) -> Option<Points> {
        let python = python(test)?;
        let bench = Bench::new();
        // Any numbers will do that are spread over the square and the same every time.
        let number = |row: usize, prime: usize| ((row * prime) % 997) as f64 / 498.5 - 1.0 + 1e-4;
        let numbers = |prime: usize| -> ArrayRef {
            Arc::new(Float64Array::from_iter_values((0..rows).map(|row| number(row + 1, prime))))
        };
        let id: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows as i64));
        let columns = [("id", id), ("x", numbers(389)), ("y", numbers(613))];
        bench.parquet("points.parquet", &RecordBatch::try_from_iter(columns).expect("a table"));
        let feature = |name| {
            format!("[[feature]]\nname = \"{name}\"\nkind = \"numeric\"\nrange = [-1.1, 1.1]\n")
        };
        bench.write("schema.toml", &(feature("x") + &feature("y")));
        bench.write(
            "job.toml",
            &format!(
                "[input]\nfeatures = \"points.parquet\"\nkey = \"id\"\nschema = \"schema.toml\"\n\
                 max_reject_share = 0.9\n[predictor]\n{predictor}\n[output]\ndir = \"out\"\n\
                 [target]\nclass = \"yes\"\n{QUICK}"
            ),
        );
        Some(Points { bench, python })
    }

    /// Makes a model of `odd_models.py`.
    fn make(&self, kind: &str, file: &str) {
        let mut command = Command::new(&self.python);
        command.arg(project().join("tests/python/odd_models.py")).arg(kind);
        Run::of(command.arg(self.bench.path(file))).ok();
    }

    fn onnx(test: &str, kind: &str) -> Option<Points> {
        let points = Points::new(test, 300, ONNX)?;
        points.make(kind, "model.onnx");
        Some(points)
    }

    /// A program that labels the rows of `batch` by a Python expression, after some lines of Python.
    fn scorer(test: &str, rows: usize, first: &str, labels: &str) -> Option<Points> {
        let text = crate::fitted::scorer(first, labels)
            .replace("\"approved\", \"rejected\"", "\"no\", \"yes\"");
        let python = python(test)?;
        let predictor =
            format!("kind = \"subprocess\"\ncommand = [\"{}\", \"./scorer.py\"]", python.display());
        let points = Points::new(test, rows, &predictor)?;
        points.bench.write("scorer.py", &text);
        Some(points)
    }

    fn command(&self, command: &str, more: &[&str]) -> Run {
        self.bench.does(command, more)
    }
}

const ABOVE: &str = "['yes' if x + y > 0 else 'no' for x, y in zip(batch['x'].to_pylist(), batch['y'].to_pylist())]";

#[test]
fn a_model_that_decides_by_chance_is_refused() {
    let Some(points) = Points::onnx("a_model_that_decides_by_chance_is_refused", "random") else {
        return;
    };
    let said =
        ["model.onnx: decides otherwise when it is asked again: the row id = ", "depend on chance"];
    for command in ["validate", "run", "train", "score"] {
        points.command(command, &[]).fails(1, &said);
    }
    assert!(!points.bench.path("out").exists());
    // Models that are meant to do so.
    let warned = ["--override", "predictor.repeatable=warn"];
    let summary = points.command("validate", &warned).ok().json();
    assert!(summary["remarks"].to_string().contains("asked again: the row id = "), "{summary}");
    let summary = points.command("score", &warned).ok().json();
    assert!(summary["remarks"].to_string().contains("decides otherwise"), "{summary}");
    let off = points.command("validate", &["--override", "predictor.repeatable=off"]).ok().json();
    assert_eq!(off["remarks"].as_array().map(Vec::len), Some(0), "{off}");
}

#[test]
fn a_program_that_decides_by_chance_is_refused() {
    let test = "a_program_that_decides_by_chance_is_refused";
    let labels = "[random.choice(['yes', 'no']) for _ in range(batch.num_rows)]";
    let Some(points) = Points::scorer(test, 300, "import random", labels) else { return };
    points.command("validate", &[]).fails(1, &["scorer.py: decides otherwise", "depend on chance"]);
}

#[test]
fn a_model_that_looks_at_its_whole_batch_is_refused() {
    let test = "a_model_that_looks_at_its_whole_batch_is_refused";
    let Some(points) = Points::onnx(test, "batch") else { return };
    let said = ["decides otherwise", "depend on the other rows of a batch"];
    points.command("validate", &[]).fails(1, &said);
    points.command("run", &[]).fails(1, &said);
    // By its place in the batch.
    let labels = "['yes' if row % 2 else 'no' for row in range(batch.num_rows)]";
    let Some(points) = Points::scorer(test, 300, "pass", labels) else { return };
    points.command("validate", &[]).says(1, &expect![[r#"
        error: PYTHON DIR/./scorer.py: decides otherwise when it is asked again: the row id = 66 was `yes` in a batch of 64 rows and `no` in the opposite order (64 of 64 rows differ)
          hint: its predictions depend on the other rows of a batch: take statistics over a batch out of it; for a model that is meant to do so set `predictor.repeatable = "warn"`
    "#]]);
}

#[test]
fn honest_models_are_let_through() {
    let test = "honest_models_are_let_through";
    let Some(points) = Points::onnx(test, "plain") else { return };
    let summary = points.command("run", &[]).ok().json();
    assert_eq!(summary["remarks"].as_array().map(Vec::len), Some(0), "{summary}");
    // Tables of a single row, and models with a single answer.
    for rows in [1, 2, 7, 8] {
        let Some(points) = Points::scorer(test, rows, "pass", ABOVE) else { return };
        points.command("validate", &[]).ok();
        let Some(points) = Points::scorer(test, rows, "pass", "['no'] * batch.num_rows") else {
            return;
        };
        points.command("validate", &[]).ok();
    }
}

#[test]
fn scores_that_are_no_numbers_are_no_answers() {
    let test = "scores_that_are_no_numbers_are_no_answers";
    let Some(points) = Points::onnx(test, "nan") else { return };
    // One of both logarithms is that of a negative number, whatever the row.
    points.command("validate", &[]).says(
        1,
        &expect![[r#"
        error: predictor: predicts nothing for any of the first 16 rows
          hint: check that its scores are numbers, and the columns that it is given
    "#]],
    );
    points.command("score", &[]).says(
        1,
        &expect![[r#"
        error: input.max_reject_share: 100.00 % of the rows were rejected, at most 90.00 % may be
          hint: predictor_failed: 300
    "#]],
    );
    points.make("infinite", "model.onnx");
    points.command("validate", &[]).says(
        1,
        &expect![[r#"
        error: predictor: predicts nothing for any of the first 16 rows
          hint: check that its scores are numbers, and the columns that it is given
    "#]],
    );
    let one = ["--override", "input.max_reject_share=1"];
    points.command("score", &one).ok();
    let rejects = read_table(&points.bench.path("out/rejects"));
    assert_eq!(rejects.num_rows(), 300);
    let detail =
        arrow::util::pretty::pretty_format_batches(&[rejects]).expect("a table").to_string();
    assert!(detail.contains("the model's answer is inf, expected a finite number"), "{detail}");
}

#[test]
fn weights_in_other_files_are_part_of_the_model() {
    let test = "weights_in_other_files_are_part_of_the_model";
    let Some(points) = Points::onnx(test, "external") else { return };
    let bench = &points.bench;
    let hash = || bench.json("out/manifest.json")["run"]["model"].to_string();
    points.command("run", &[]).ok();
    let first = hash();
    let again = points.command("run", &[]).ok().json();
    assert_eq!(again["already_published"], true, "{again}");
    // The weights of the other class: every decision is another.
    let mut weights = fs::read(bench.path("weights.bin")).expect("weights");
    weights.iter_mut().skip(3).step_by(4).take(4).for_each(|byte| *byte ^= 0x80);
    fs::write(bench.path("weights.bin"), weights).expect("written");
    points.command("run", &[]).says(
        1,
        &expect![[r#"
        error: DIR/out: already holds the results of a run
          hint: set `output.overwrite = true` to replace them, or choose another `output.dir`
    "#]],
    );
    points.command("report", &[]).says(
        1,
        &expect![[r#"
        error: DIR/out: was made before the model changed
          hint: only `[report]` and `[audit]` may be others than the run's; run the job again
    "#]],
    );
    let again = points.command("run", &["--override", "output.overwrite=true"]).ok().json();
    assert_eq!(again["already_published"], false, "{again}");
    assert_ne!(hash(), first);
    fs::remove_file(bench.path("weights.bin")).expect("removed");
    points.command("validate", &[]).says(
        1,
        &expect![[r#"
        error: DIR/model.onnx: keeps the tensor `W` in `weights.bin`, which does not exist
          hint: keep the files of a model in one folder, or save it as a single file
    "#]],
    );
}

#[test]
fn a_model_stays_in_its_folder() {
    let test = "a_model_stays_in_its_folder";
    let Some(points) = Points::onnx(test, "plain") else { return };
    let bench = &points.bench;
    bench.write("sub/keep", "");
    bench.write("outside.bin", "0123456789abcdef");
    std::os::unix::fs::symlink("../outside.bin", bench.path("sub/link.bin")).expect("a link");
    bench.replace("job.toml", "model.onnx", "sub/model.onnx");
    for (location, said) in [
        ("../outside.bin", "`../outside.bin`, expected a file in the model's folder"),
        ("/etc/passwd", "`/etc/passwd`, expected a file in the model's folder"),
        ("link.bin", "outside its folder"),
        ("*/_ORT_MEM_ADDR_/*", "which does not exist"),
        (".", "is a folder, expected a file"),
    ] {
        points.make(&format!("elsewhere={location}"), "sub/model.onnx");
        for command in ["validate", "score", "run"] {
            points.command(command, &[]).fails(1, &["keeps the tensor `W` in", said]);
        }
    }
}

#[test]
fn a_model_that_changes_while_it_is_used_stops_the_run() {
    let test = "a_model_that_changes_while_it_is_used_stops_the_run";
    // A program that is replaced by its own hand, after the first check.
    let first = "os.system('echo \"# new\" >> scorer.py') if place == 0 else None";
    for command in ["run", "score", "train"] {
        let Some(points) = Points::scorer(test, 300, first, ABOVE) else { return };
        points
            .command(command, &[])
            .fails(1, &["scorer.py: was changed while it was used: its SHA-256 was "]);
        assert!(!points.bench.path("out").exists());
    }
    let first = "os.system('echo \"# new\" >> schema.toml') if place == 0 else None";
    let Some(points) = Points::scorer(test, 300, first, ABOVE) else { return };
    points.command("score", &[]).says(
        1,
        &expect![[r#"
        error: DIR/schema.toml: was changed while it was used
          hint: run again, without `--resume`, when nobody writes to it
    "#]],
    );
}

#[test]
fn files_that_are_none_are_no_models() {
    let test = "files_that_are_none_are_no_models";
    let Some(points) = Points::onnx(test, "plain") else { return };
    let bench = &points.bench;
    let pipe = bench.path("pipe.onnx");
    Run::of(Command::new("mkfifo").arg(&pipe)).ok();
    let began = Instant::now();
    let refusal = |model: &str| {
        let over = format!("predictor.model={model}");
        let [validated, run] =
            ["validate", "run"].map(|command| points.command(command, &["--override", &over]));
        assert_eq!(bench.said(&validated), bench.said(&run));
        bench.refusal(model, &run)
    };
    let models = ["pipe.onnx", "/dev/zero", ".", "job.toml"];
    expect![[r#"
        # pipe.onnx
        error: --override: `predictor.model` is `DIR/pipe.onnx`, which is a named pipe, expected a file

        # /dev/zero
        error: --override: `predictor.model` is `/dev/zero`, which is a device, expected a file

        # .
        error: --override: `predictor.model` is `DIR/.`, which is a folder, expected a file

        # job.toml
        error: DIR/job.toml: cannot be read as an ONNX model; it is cut short or something else
          because: the bytes are not a whole protocol buffer with a graph in it

    "#]].assert_eq(&models.map(refusal).concat());
    assert!(began.elapsed().as_secs() < 60, "nothing waits for a writer");
}

#[test]
fn more_classes_than_anybody_has_are_refused_at_once() {
    let test = "more_classes_than_anybody_has_are_refused_at_once";
    let Some(points) = Points::onnx(test, "many") else { return };
    let began = Instant::now();
    points.command("validate", &[]).says(
        1,
        &expect![[r#"
        error: DIR/model.onnx: has more than 1000 classes, which is the most there may be
          hint: if it is a regression, set `predictor.task = "regression"`
    "#]],
    );
    let classes: Vec<String> = (0..5_000).map(|class| format!("\"c{class}\"")).collect();
    let lines = format!("[predictor]\nclasses = [{}]", classes.join(","));
    points.bench.replace("job.toml", "[predictor]", &lines);
    points.command("validate", &[]).says(
        1,
        &expect![[r#"
        error: DIR/job.toml:7: `predictor.classes` names 5000 classes, expected at most 1000
    "#]],
    );
    let labels = "['c1'] * batch.num_rows";
    let Some(points) = Points::scorer(test, 10, "pass", labels) else { return };
    let text = "'[' + ','.join(f'\"c{n}\"' for n in range(200000)) + ']'}";
    points.bench.replace("scorer.py", "'[\"no\", \"yes\"]'}", text);
    points.command("validate", &[]).says(
        1,
        &expect![[r#"
        error: scorer.py: names 200000 classes, expected at most 1000
    "#]],
    );
    assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
}

#[test]
fn nothing_is_sent_anywhere() {
    let test = "nothing_is_sent_anywhere";
    let Some(points) = Points::onnx(test, "plain") else { return };
    let trace = points.bench.path("trace");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-e", "trace=socket,connect,sendto,sendmsg,bind", "-o"]).arg(&trace);
    command.arg(program().get_program()).args(["score", &points.bench.text("job.toml")]);
    let Ok(output) = command.output() else {
        eprintln!("skipped: {test} needs strace");
        return;
    };
    let run = Run::from(output);
    if run.stderr.contains("ptrace") {
        eprintln!("skipped: {test} may not trace");
        return;
    }
    run.ok();
    let calls = fs::read_to_string(trace).expect("a trace");
    let outside = |line: &&str| line.contains("AF_INET") || line.contains("AF_NETLINK");
    assert_eq!(calls.lines().find(outside), None, "{calls}");
}
