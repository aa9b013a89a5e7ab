//! A small run of the program that is tested: its generator, manifest and journal are seeds of the corpus.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use crate::util::{overturn, program, project};

/// Networks that are learnt in a second, small enough for thousands of copies to be read in one.
const SMALL: &str = "[target]\nclass = \"approved\"\n\
    [autoencoder]\nsteps = 300\nbatch = 64\nhidden = [16]\nlatent = 8\nmin_quality = 0.0\n\
    [train]\nmax_steps = 300\nbatch = 64\nhidden = 16\nvalidation_rows = 100\nvalidate_every = 100\n\
    [explain]\nsplit_rows = 100\n[report.mmd]\nspace = \"none\"\nencoders = 1\n";

/// Makes `job.toml`, `table.parquet`, `generator/`, `manifest` and `journal` in a folder below `out`.
pub fn make(out: &Path) -> PathBuf {
    let seeds = out.join("seeds");
    let home = out.join("seed-run");
    for folder in [&seeds, &home] {
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder).expect("a folder");
    }
    overturn(&["synth", &shown(&seeds.join("tiny")), "--rows", "40", "--files", "1"]).ok();
    let tiny = crate::util::files_below(&seeds.join("tiny"), "parquet");
    fs::copy(&tiny[0], seeds.join("table.parquet")).expect("copied");
    overturn(&["synth", &shown(&home.join("table")), "--rows", "500", "--files", "1"]).ok();
    fs::write(seeds.join("job.toml"), job("table.parquet", "schema.toml", "")).expect("written");
    let schema = shown(&project().join("schemas/credit.toml"));
    fs::copy(&schema, seeds.join("schema.toml")).expect("copied");
    fs::write(home.join("job.toml"), job("table", &schema, SMALL)).expect("written");
    let journal = run(&home);
    fs::write(seeds.join("journal"), journal).expect("written");
    fs::copy(home.join("out/manifest.json"), seeds.join("manifest")).expect("a manifest");
    fs::rename(home.join("out/generator"), seeds.join("generator")).expect("a generator");
    seeds
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn job(table: &str, schema: &str, more: &str) -> String {
    let model = shown(&project().join("jobs/demo/logistic.onnx"));
    format!(
        "[input]\nfeatures = \"{table}\"\nkey = \"application_id\"\nschema = \"{schema}\"\n\
         [predictor]\nkind = \"onnx\"\nmodel = \"{model}\"\n[output]\ndir = \"out\"\n{more}"
    )
}

/// Runs the job and gives the journal as it was last seen: it is gone when the run is published.
fn run(home: &Path) -> Vec<u8> {
    let mut command = program();
    command.args(["run", &shown(&home.join("job.toml")), "--threads", "1"]);
    let log = fs::File::create(home.join("log")).expect("a file");
    let mut child = command.stdout(Stdio::null()).stderr(log).spawn().expect("started");
    let (path, mut journal) = (home.join(".out.journal/journal.jsonl"), Vec::new());
    let status = loop {
        match fs::read(&path) {
            Ok(found) if found.len() >= journal.len() => journal = found,
            _ => {}
        }
        if let Some(status) = child.try_wait().expect("a process") {
            break status;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let log = fs::read_to_string(home.join("log")).unwrap_or_default();
    assert!(status.success(), "the run that makes the seeds: {log}");
    assert!(!journal.is_empty(), "the journal was never seen");
    // Its tail may be half a line; its length is that of a few splits, however many there are.
    journal.truncate(6 << 10);
    journal
}
