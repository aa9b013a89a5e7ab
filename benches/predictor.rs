//! What it costs to reach a model through the adapters, compared with the same model reached without them.
//!
//! Held fixed: the synthetic credit table (seed 7, no nulls, 65,536 rows, 9 numbers and 7 texts a row), and
//! the demo's models, opened as the demo's job files say.
//!
//! - *ONNX adapter*: from record batches of 8,192 rows to labels and probabilities. *Bare*: ONNX Runtime in
//!   a process of its own on tensors of the same batches that are ready. On one thread, and on two with a
//!   session each. The logistic regression is there to show the conversions: it costs next to nothing itself.
//! - *Subprocess adapter*: one copy of `jobs/scorers/sklearn_scorer.py` on one thread, in batches of 8,192
//!   and 32,768 rows. *Alone*: the same model called by a Python program on data frames that are ready.
//!
//! - *Trees*: the program's own scorer against ONNX Runtime, both behind the adapter, on the demo's forest and on
//!   five models that `tree_models.py` trains on the codes of the table; the answers have to be the same.
//!
//! ```text
//! cargo bench --profile dev --bench predictor
//! ```
//!
//! The last lines say whether an adapter keeps the share of the model's own speed that it has to. The parts
//! with Python need the environment that jobs/setup.sh makes, and are skipped without it.

mod alone;
mod bar;
mod credit;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use arrow::array::RecordBatch;
use criterion::{Criterion, SamplingMode, Throughput};
use overturn::document::Overrides;
use overturn::job::{Job, Placeholders};
use overturn::predictor::{self, Outcome, Predictor, PredictorColumns, Scores};

use alone::Alone;
use bar::Bar;
use credit::{BATCH_ROWS, Credit, ROWS, project};

/// Share of the model's own speed that an adapter has to keep.
const LEAST_SHARE: f64 = 0.8;

/// How many times as fast as ONNX Runtime the program's own scorer has to be.
const LEAST_RATIO: f64 = 5.0;

/// The models that the script makes: library, trees, and their depth or leaves.
const TREES: [&str; 5] =
    ["forest_50_15", "xgboost_300_6", "lightgbm_500_31", "forest_100_25", "xgboost_100_3"];

/// Rows per batch that the demo's job for the Python model asks for.
const LARGE_BATCH_ROWS: usize = 32_768;

fn main() {
    if alone::onnx::serve() {
        return;
    }
    let credit = Credit::make();
    let mut criterion = Criterion::default()
        .without_plots()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    let mut results = vec![onnx(&mut criterion, &credit, "forest", Some(LEAST_SHARE))];
    results.push(onnx(&mut criterion, &credit, "logistic", None));
    results.push(trees(&credit));
    match python() {
        Some(python) => results.push(subprocess(&mut criterion, &credit, &python)),
        None => bar::say("skipped: the subprocess adapter needs Python (run jobs/setup.sh)"),
    }
    results.iter().flatten().for_each(|result| bar::say(result));
}

/// The ONNX adapter against bare ONNX Runtime.
fn onnx(
    criterion: &mut Criterion,
    credit: &Credit,
    model: &str,
    least: Option<f64>,
) -> Vec<String> {
    let file = project().join(format!("jobs/demo/{model}.onnx"));
    let mut bare = Alone::start(&mut alone::onnx::command(&file, &credit.file()));
    let contests = [(1, "1 thread"), (2, "2 threads")].map(|(threads, named)| Contest {
        names: ["onnx adapter", "bare"],
        setting: format!("{model}, {named}"),
        adapter: Adapter::open(credit, &format!("{model}_onnx.toml"), threads),
        batches: credit.batches(BATCH_ROWS),
        question: threads,
        least,
    });
    contests.iter().filter_map(|contest| contest.hold(criterion, &mut bare)).collect()
}

/// Models of trees by the program's own scorer and by ONNX Runtime.
fn trees(credit: &Credit) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder for models");
    let mut jobs = vec![project().join("jobs/demo/forest_onnx.toml")];
    match python() {
        Some(python) => {
            let script = project().join("benches/tree_models.py");
            let mut command = Command::new(python);
            let made = command.arg(script).arg(credit.file()).arg(folder.path()).status();
            assert!(made.expect("Python starts").success(), "the models cannot be made");
            jobs.extend(TREES.map(|name| tree_job(folder.path(), name)));
        }
        None => bar::say("skipped: models of trees need Python (run jobs/setup.sh)"),
    }
    jobs.iter().filter_map(|job| Race::open(credit, job).run(credit)).collect()
}

/// A job for one of the models that the script makes.
fn tree_job(folder: &Path, name: &str) -> PathBuf {
    let schema = project().join("schemas/credit.toml");
    let text = format!(
        "[input]\nfeatures = \"${{data}}\"\nschema = {schema:?}\nkey = \"application_id\"\n\
         [predictor]\nkind = \"onnx\"\nmodel = \"{name}.onnx\"\ninputs = \"matrix\"\n\
         encoding = \"codes\"\n[output]\ndir = \"${{out}}\"\n"
    );
    let file = folder.join(format!("{name}.toml"));
    std::fs::write(&file, text).expect("room on the disk");
    file
}

/// One model by both engines, on one thread.
struct Race {
    name: String,
    engines: [Adapter; 2],
}

impl Race {
    fn open(credit: &Credit, file: &Path) -> Race {
        let values = ["data=unused".to_string(), "out=unused".to_string()];
        let values = Placeholders::parse(&values).expect("names with values");
        let schema = credit.batches(BATCH_ROWS)[0].schema();
        let columns = PredictorColumns { features: Arc::clone(&credit.features), schema };
        let engines = ["auto", "onnxruntime"].map(|engine| {
            let engine = Overrides::parse(&[format!("predictor.engine={engine}")]).expect("a key");
            let job = Job::read(file, &values, &engine).expect("a job");
            let predictor = predictor::open(&job.predictor, &columns, 1).expect("opened");
            Adapter { predictor, threads: 1 }
        });
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Race { name, engines }
    }

    fn run(&self, credit: &Credit) -> Option<String> {
        let batches = credit.batches(BATCH_ROWS);
        let [own, runtime] = &self.engines;
        let answers = [own, runtime].map(|engine| engine.score(&batches));
        assert_eq!(answers[0], answers[1], "{}: the answers have to be the same", self.name);
        bar::is_measured().then(|| {
            let mut ours = || bar::seconds(|| drop(own.score(&batches)));
            let mut theirs = || bar::seconds(|| drop(runtime.score(&batches)));
            let rounds = bar::take_turns(&mut [&mut ours, &mut theirs]);
            let ratios = rounds[0].iter().zip(&rounds[1]).map(|(own, runtime)| runtime / own);
            let ratio = bar::median(&ratios.collect::<Vec<_>>());
            let speeds = rounds.iter().map(|seconds| ROWS as f64 / bar::median(seconds) / 1e3);
            let speeds: Vec<String> = speeds.map(|speed| format!("{speed:.0}")).collect();
            let verdict = bar::verdict(ratio, Bar::Least(LEAST_RATIO));
            let (name, speeds) = (&self.name, speeds.join(" / "));
            format!(
                "bar: own scorer / ONNX Runtime, {name} = {ratio:.1} {verdict}; {speeds} thousand rows/s"
            )
        })
    }
}

/// The subprocess adapter against the same model without pipes.
fn subprocess(criterion: &mut Criterion, credit: &Credit, python: &Path) -> Vec<String> {
    let script = project().join("benches/alone/forest.py");
    let model = project().join("jobs/demo/forest.joblib");
    let mut alone = Alone::start(Command::new(python).arg(script).arg(model).arg(credit.file()));
    let adapter = Adapter::open(credit, "forest_python.toml", 1);
    let contests = [BATCH_ROWS, LARGE_BATCH_ROWS].map(|batch_rows| Contest {
        names: ["subprocess adapter", "alone"],
        setting: format!("batches of {batch_rows}"),
        adapter: adapter.clone(),
        batches: credit.batches(batch_rows),
        question: batch_rows,
        least: Some(LEAST_SHARE),
    });
    contests.iter().filter_map(|contest| contest.hold(criterion, &mut alone)).collect()
}

/// The Python of the project's environment.
fn python() -> Option<PathBuf> {
    std::env::var_os("OVERTURN_PYTHON").map(PathBuf::from).filter(|path| path.exists())
}

/// A model reached through its adapter, from as many threads as it was opened for.
#[derive(Clone)]
struct Adapter {
    predictor: Arc<dyn Predictor>,
    threads: usize,
}

impl Adapter {
    /// Opens the model of one of the demo's jobs.
    fn open(credit: &Credit, job: &str, threads: usize) -> Adapter {
        let mut values = vec!["data=unused".to_string(), "out=unused".to_string()];
        let python = python().filter(|_| job.contains("python"));
        values.extend(python.map(|python| format!("python={}", python.display())));
        let values = Placeholders::parse(&values).expect("names with values");
        let file = project().join("jobs/demo").join(job);
        let job = Job::read(&file, &values, &Overrides::default()).expect("a job");
        let schema = credit.batches(BATCH_ROWS)[0].schema();
        let columns = PredictorColumns { features: Arc::clone(&credit.features), schema };
        let predictor = predictor::open(&job.predictor, &columns, threads).expect("opened");
        Adapter { predictor, threads }
    }

    /// The scores of all batches, which the threads share evenly.
    fn score(&self, batches: &[RecordBatch]) -> Vec<Scores> {
        let share = batches.len().div_ceil(self.threads);
        let score = |batch: &RecordBatch| self.predictor.predict(batch).expect("scored");
        let score_all =
            |batches: &[RecordBatch]| -> Vec<Scores> { batches.iter().map(score).collect() };
        thread::scope(|scope| {
            let shares = batches.chunks(share);
            let threads: Vec<_> =
                shares.map(|share| scope.spawn(move || score_all(share))).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
        })
    }
}

/// The same model with its adapter and without.
struct Contest {
    names: [&'static str; 2],
    setting: String,
    adapter: Adapter,
    batches: Vec<RecordBatch>,
    /// What the process without the adapter is asked with.
    question: usize,
    /// Share of the speed without the adapter that is to be reached, if any is.
    least: Option<f64>,
}

impl Contest {
    /// Gives the adapter's absolute figures to `criterion`, and says how the two compare.
    fn hold(&self, criterion: &mut Criterion, alone: &mut Alone) -> Option<String> {
        let approved: usize = self.adapter.score(&self.batches).iter().map(approved).sum();
        assert_eq!(approved, alone.approved, "{}: both have to decide alike", self.setting);
        let mut group = criterion.benchmark_group(self.names[0]);
        group.throughput(Throughput::Elements(ROWS as u64)).sampling_mode(SamplingMode::Flat);
        group.bench_function(&self.setting, |bencher| {
            bencher.iter(|| self.adapter.score(&self.batches));
        });
        group.finish();
        bar::is_measured().then(|| self.compare(alone))
    }

    fn compare(&self, alone: &mut Alone) -> String {
        let mut with = || bar::seconds(|| drop(self.adapter.score(&self.batches)));
        let rounds = bar::take_turns(&mut [&mut with, &mut || alone.pass(self.question)]);
        let pairs = rounds[0].iter().zip(&rounds[1]);
        let shares: Vec<f64> = pairs.map(|(with, without)| without / with).collect();
        let share = bar::median(&shares);
        let verdict = match self.least {
            Some(least) => bar::verdict(share, Bar::Least(least)),
            None => "(no bar)".to_string(),
        };
        let speeds = rounds.iter().map(|seconds| ROWS as f64 / bar::median(seconds) / 1e3);
        let speeds: Vec<String> = speeds.map(|speed| format!("{speed:.0}")).collect();
        let (names, speeds) = (self.names.join(" / "), speeds.join(" / "));
        format!("bar: {names}, {} = {share:.2} {verdict}; {speeds} thousand rows/s", self.setting)
    }
}

/// Rows whose label is `approved`, the first class.
fn approved(scores: &Scores) -> usize {
    match &scores.outcome {
        Outcome::Classes { labels, .. } => labels.iter().filter(|label| **label == 0).count(),
        Outcome::Values(_) => 0,
    }
}
