//! What is fuzzed: everything that reads bytes from outside. Each target takes an input and says whether it was
//! accepted; refusing is as good. Files are written to memory-backed folders where there are some.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::StreamExt;
use overturn::artefact::{GENERATOR_FILE, NEIGHBOURS_FILE, REFERENCE_FILE, WEIGHTS_FILE};
use overturn::document::Overrides;
use overturn::engine::{Engine, EngineOptions, ScanPlan, Table};
use overturn::error::{Error, Kind};
use overturn::feature::FeatureSchema;
use overturn::job::{Bytes, Device, Job, Placeholders, PredictorJob, PredictorKind, RuntimeJob};
use overturn::output::Manifest;
use overturn::pipeline::{Observer, Silent};
use overturn::runtime::Runtime;
use overturn::{artefact, pipeline, predictor};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::mutate::{Form, entries};
use crate::util::project;

/// Names of the targets, slowest last.
pub const TARGETS: [&str; 10] = [
    "onnx",
    "answers",
    "journal",
    "manifest",
    "schema",
    "job",
    "tensors",
    "generator",
    "predicate",
    "validate",
];

/// What separates the job from the schema in an input of `validate`.
pub const SEPARATOR: &str = "\n#### schema\n";

/// How an input was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    Accepted,
    Refused,
    /// Refused as a bug of the program, which no input should be able to cause.
    Internal,
}

impl From<bool> for Taken {
    fn from(accepted: bool) -> Taken {
        if accepted { Taken::Accepted } else { Taken::Refused }
    }
}

fn taken<T>(result: &Result<T, Error>) -> Taken {
    match result {
        Ok(_) => Taken::Accepted,
        Err(error) if error.kind() == Kind::Internal => Taken::Internal,
        Err(_) => Taken::Refused,
    }
}

/// What takes an input.
type Take = Box<dyn FnMut(&[u8]) -> Taken>;

/// A target, ready to be fed.
pub struct Target {
    pub form: Form,
    pub corpus: Vec<Vec<u8>>,
    pub run: Take,
}

impl Target {
    /// A target by its name. `seeds` is a run of the program that is being tested: its artefacts are part of
    /// the corpus, so that the corpus never falls behind the formats.
    pub fn open(name: &str, seeds: &Path) -> Target {
        let stored = entries(&project().join("tests/fuzz").join(name));
        let (form, fresh, run): (Form, Vec<Vec<u8>>, Take) = match name {
            "onnx" => (Form::Binary, vec![], Box::new(onnx)),
            "answers" => (Form::Binary, vec![], Box::new(answers(seeds))),
            "journal" => (Form::Text, vec![read(seeds, "journal")], Box::new(journal)),
            "manifest" => (Form::Text, vec![read(seeds, "manifest")], Box::new(manifest)),
            "schema" => (Form::Text, toml_files("schemas"), Box::new(schema)),
            "job" => (Form::Text, toml_files("jobs"), Box::new(job())),
            "tensors" => (Form::Binary, tensor_files(seeds), Box::new(tensors(seeds))),
            "generator" => (
                Form::Text,
                vec![read(&seeds.join("generator"), GENERATOR_FILE)],
                Box::new(generator(seeds)),
            ),
            "predicate" => (Form::Text, vec![], Box::new(predicate(seeds))),
            "validate" => (Form::Text, jobs_with_schemas(seeds), Box::new(validate(seeds))),
            other => panic!("there is no target `{other}`, only {TARGETS:?}"),
        };
        Target { form, corpus: [stored, fresh].concat(), run }
    }
}

/// A folder in memory, if there is one.
pub fn scratch() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| TempDir::new()).expect("a temporary folder")
}

fn read(folder: &Path, name: &str) -> Vec<u8> {
    fs::read(folder.join(name)).unwrap_or_else(|error| panic!("{name} of the seeds: {error}"))
}

fn write(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).expect("a writable scratch folder");
}

fn toml_files(folder: &str) -> Vec<Vec<u8>> {
    let files = crate::util::files_below(&project().join(folder), "toml");
    files.iter().map(|file| fs::read(file).expect("readable")).collect()
}

fn onnx(bytes: &[u8]) -> Taken {
    // Labels and probabilities are looked for in whatever the graph is said to be.
    let _ = predictor::read_graph(bytes);
    taken(&predictor::inspect_onnx(bytes))
}

/// Answers of a classifier and of a regression.
fn answers(seeds: &Path) -> impl FnMut(&[u8]) -> Taken + use<> {
    let jobs = ["classification", "regression"].map(|task| asked_for(seeds, task));
    move |bytes| jobs.iter().any(|job| predictor::read_answers(job, bytes) > 0).into()
}

fn asked_for(seeds: &Path, task: &str) -> PredictorJob {
    let scratch = scratch();
    let path = scratch.path().join("job.toml");
    write(&scratch.path().join("schema.toml"), b"");
    let text = String::from_utf8(read(seeds, "job.toml")).expect("text");
    write(
        &path,
        text.replace("[predictor]\n", &format!("[predictor]\ntask = \"{task}\"\n")).as_bytes(),
    );
    read_job(&path).expect("a job").predictor
}

/// A job, with those placeholders filled that it has.
fn read_job(path: &Path) -> Result<Job, Error> {
    let text = String::from_utf8_lossy(&fs::read(path).expect("just written")).into_owned();
    let named =
        ["data", "out", "cell"].into_iter().filter(|name| text.contains(&format!("${{{name}}}")));
    let given: Vec<String> = named.map(|name| format!("{name}=table.parquet")).collect();
    let filled = Placeholders::parse(&given).expect("well formed");
    Job::read(path, &filled, &Overrides::default())
}

/// Jobs name their schema and model relative to themselves.
fn job() -> impl FnMut(&[u8]) -> Taken {
    let scratch = scratch();
    let folder = scratch.path().join("jobs/demo");
    fs::create_dir_all(&folder).expect("a folder");
    fs::create_dir_all(scratch.path().join("schemas/paper")).expect("a folder");
    for model in ["jobs/demo/forest.onnx", "jobs/demo/logistic.onnx", "schemas/credit.toml"] {
        write(&scratch.path().join(model), b"");
    }
    for schema in ["adult", "bank", "breast_cancer", "covertype", "spambase", "wdbc", "wine"] {
        write(&scratch.path().join(format!("schemas/paper/{schema}.toml")), b"");
    }
    move |bytes| {
        let path = scratch.path().join("jobs/demo/job.toml");
        write(&path, bytes);
        taken(&read_job(&path))
    }
}

fn schema(bytes: &[u8]) -> Taken {
    let Ok(text) = std::str::from_utf8(bytes) else { return Taken::Refused };
    taken(&FeatureSchema::parse(text, Path::new("schema.toml")))
}

fn journal(bytes: &[u8]) -> Taken {
    pipeline::journal_pieces(bytes).is_some().into()
}

fn manifest(bytes: &[u8]) -> Taken {
    let Ok(text) = std::str::from_utf8(bytes) else { return Taken::Refused };
    taken(&Manifest::parse(text, "manifest.json"))
}

fn load(folder: &Path) -> Taken {
    let loaded = artefact::load(folder, tch::Device::Cpu);
    let Ok(artefact) = &loaded else { return taken(&loaded) };
    taken(&artefact::load_neighbours(folder, &artefact.description))
}

/// A copy of the seeds' generator.
fn generator_copy(seeds: &Path) -> TempDir {
    let scratch = scratch();
    for entry in fs::read_dir(seeds.join("generator")).expect("a generator").flatten() {
        fs::copy(entry.path(), scratch.path().join(entry.file_name())).expect("copied");
    }
    scratch
}

fn generator(seeds: &Path) -> impl FnMut(&[u8]) -> Taken + use<> {
    let scratch = generator_copy(seeds);
    move |bytes| {
        write(&scratch.path().join(GENERATOR_FILE), bytes);
        load(scratch.path())
    }
}

const TENSOR_FILES: [&str; 3] = [WEIGHTS_FILE, REFERENCE_FILE, NEIGHBOURS_FILE];

/// The first byte says which of the files it is.
fn tensor_files(seeds: &Path) -> Vec<Vec<u8>> {
    let folder = seeds.join("generator");
    let numbered = TENSOR_FILES.iter().zip(0..);
    numbered.map(|(name, number)| [vec![number], read(&folder, name)].concat()).collect()
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One tensor file is replaced, and its hash in the description with it: the files are read, not only refused.
fn tensors(seeds: &Path) -> impl FnMut(&[u8]) -> Taken + use<> {
    let scratch = generator_copy(seeds);
    let description = String::from_utf8(read(scratch.path(), GENERATOR_FILE)).expect("text");
    let originals = TENSOR_FILES.map(|name| read(scratch.path(), name));
    let hashes = originals.each_ref().map(|bytes| hash(bytes));
    move |bytes| {
        let Some((number, bytes)) = bytes.split_first() else { return Taken::Refused };
        let which = *number as usize % TENSOR_FILES.len();
        let path = scratch.path().join(TENSOR_FILES[which]);
        write(&path, bytes);
        let patched = description.replace(&hashes[which], &hash(bytes));
        write(&scratch.path().join(GENERATOR_FILE), patched.as_bytes());
        let taken = load(scratch.path());
        write(&path, &originals[which]);
        taken
    }
}

fn small_runtime() -> (Runtime, RuntimeJob) {
    let job = RuntimeJob { threads: 1, memory: Bytes(256 << 20), device: Device::Cpu, seed: 0 };
    (Runtime::start(&job).expect("a runtime"), job)
}

fn open_table(seeds: &Path) -> (Engine, Table) {
    let options = EngineOptions { partitions: 1, batch_rows: 64, memory_bytes: 256 << 20 };
    let engine = Engine::new(options).expect("an engine");
    let path = seeds.join("table.parquet").display().to_string();
    let table = engine.open("features", &[path]).expect("a table");
    (engine, table)
}

/// Planned, and computed on a few rows.
fn predicate(seeds: &Path) -> impl FnMut(&[u8]) -> Taken + use<> {
    let ((runtime, _), (engine, table)) = (small_runtime(), open_table(seeds));
    let columns = vec!["application_id".to_string()];
    move |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else { return Taken::Refused };
        let predicate = Some(("input.where", text));
        let plan = ScanPlan { table: &table, predicate, columns: &columns, scores: None };
        taken(&runtime.block_on(async {
            let mut stream = engine.scan(plan).await?.stream()?;
            while let Some(batch) = stream.next().await {
                batch?;
            }
            Ok(())
        }))
    }
}

fn jobs_with_schemas(seeds: &Path) -> Vec<Vec<u8>> {
    let schema = fs::read_to_string(project().join("schemas/credit.toml")).expect("readable");
    // Comments would take most of the changes.
    let code = |line: &&str| !line.starts_with('#') && !line.is_empty();
    let schema: Vec<&str> = schema.lines().filter(code).collect();
    let job = String::from_utf8(read(seeds, "job.toml")).expect("text");
    let more =
        ["", "[explain]\nsamples = 2\nmethod = \"nearest\"\n", "[report]\nby = [\"region\"]\n"];
    let joined = more.map(|more| format!("{job}{more}{SEPARATOR}{}\n", schema.join("\n")));
    joined.map(String::into_bytes).to_vec()
}

/// `validate` from job to model. Whatever the input says, it reads below the scratch folder and runs no program.
fn validate(seeds: &Path) -> impl FnMut(&[u8]) -> Taken + use<> {
    let scratch = scratch();
    let (runtime, observer) = (small_runtime().0, Arc::new(Silent) as Observer);
    let table = read(seeds, "table.parquet");
    let pinned = read_job(&seeds.join("job.toml")).expect("a job").predictor.kind;
    move |bytes| {
        let home = scratch.path();
        let (job_text, schema) = split(bytes);
        write(&home.join("job.toml"), job_text);
        write(&home.join("schema.toml"), schema);
        write(&home.join("table.parquet"), &spoilt(&table, bytes));
        let job = match read_job(&home.join("job.toml")) {
            Ok(job) => confined(job, home, &pinned),
            Err(error) => return taken::<()>(&Err(error)),
        };
        taken(&pipeline::validate(&job, &runtime, &observer))
    }
}

fn split(bytes: &[u8]) -> (&[u8], &[u8]) {
    let separator = SEPARATOR.as_bytes();
    match bytes.windows(separator.len()).position(|window| window == separator) {
        Some(at) => (&bytes[..at], &bytes[at + separator.len()..]),
        None => (bytes, b""),
    }
}

/// The table, one time in four with a changed byte or cut off, as the input's hash decides.
fn spoilt(table: &[u8], input: &[u8]) -> Vec<u8> {
    let digest = Sha256::digest(input);
    let mut table = table.to_vec();
    let at =
        u32::from_le_bytes([digest[1], digest[2], digest[3], digest[4]]) as usize % table.len();
    match digest[0] % 16 {
        0..3 => table[at] ^= digest[5] | 1,
        3 => table.truncate(at),
        _ => {}
    }
    table
}

fn confined(mut job: Job, home: &Path, pinned: &PredictorKind) -> Job {
    let below = |path: &Path| path.starts_with(home) && !path.to_string_lossy().contains("..");
    let table = home.join("table.parquet").display().to_string();
    if !job.input.features.iter().all(|path| below(Path::new(path))) {
        job.input.features = vec![table.clone()];
    }
    if let Some(scores) = &mut job.input.scores
        && !scores.table.iter().all(|path| below(Path::new(path)))
    {
        scores.table = vec![table];
    }
    if matches!(job.predictor.kind, PredictorKind::Subprocess(_)) {
        job.predictor.kind = pinned.clone();
    }
    let kept = |path: PathBuf| Some(path).filter(|path| below(path));
    job.explain.generator = job.explain.generator.and_then(kept);
    job.input.schema = home.join("schema.toml");
    job.output.dir = home.join("out");
    job.output.metrics = None;
    job
}
