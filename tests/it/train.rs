//! What a training leaves behind: when it ends, when it is killed, when the disk or the model gives out,
//! and when there is nothing to learn.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use expect_test::expect;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::util::{Bench, Run, credit, program, project, python, read_table};

/// A training of about a second.
const QUICK: &str = "[autoencoder]\nsteps = 200\nbatch = 64\nhidden = [32]\n\
                     [train]\nmax_steps = 200\nbatch = 64\nhidden = 32\nvalidate_every = 50\n";
/// One that is long enough to be interrupted.
const LONG: &str = "[autoencoder]\nsteps = 200\nbatch = 64\nhidden = [32]\n[train]\nmax_steps = 2000\n\
                    batch = 64\nhidden = 32\nvalidate_every = 100\npatience = 100\n\
                    checkpoint_seconds = 0.1\n";
const WEIGHTS: &str = "out/generator/weights.safetensors";
const CHECKPOINT: &str = ".out.checkpoint/checkpoint.json";
/// What a run keeps beside its output folder.
const BESIDE: [&str; 3] = [".out.checkpoint", ".out.lock", ".out.staging"];

/// Credit applications, and a job to learn from them, with further lines at its end.
fn prepared(lines: &str) -> Bench {
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(600));
    fs::copy(project().join("schemas/credit.toml"), bench.path("schema.toml")).expect("copied");
    bench.job(&table, "schema = \"schema.toml\"", None);
    bench.append("job.toml", lines);
    bench
}

/// The generator's weights.
fn weights(bench: &Bench) -> Vec<u8> {
    fs::read(bench.path(WEIGHTS)).expect("readable")
}

fn nothing_is_published(bench: &Bench) {
    for left in ["out", ".out.staging", ".out.lock"] {
        assert!(!bench.path(left).exists(), "{left} is left");
    }
}

fn nothing_is_left_beside(bench: &Bench) {
    for left in BESIDE {
        assert!(!bench.path(left).exists(), "{left} is left");
    }
}

/// Starts a training.
fn started(bench: &Bench, arguments: &[&str]) -> Child {
    let mut command = program();
    command.args(["train", &bench.text("job.toml")]).args(arguments);
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("started")
}

/// Waits until something holds for a run that goes on.
fn wait_for(child: &mut Child, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(120), "never happened");
        assert!(child.try_wait().expect("a process").is_none(), "ended early");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The step that a checkpoint was made at; 0 if there is none.
fn checkpoint_step(bench: &Bench) -> u64 {
    let text = fs::read_to_string(bench.path(CHECKPOINT)).unwrap_or_default();
    let state: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    state["step"].as_u64().unwrap_or(0)
}

/// Sends a signal to a training once it has left a checkpoint after the given step; how it ended.
fn interrupted(bench: &Bench, signal: Signal, after: u64, arguments: &[&str]) -> Run {
    let mut child = started(bench, arguments);
    wait_for(&mut child, || checkpoint_step(bench) > after);
    kill(Pid::from_raw(child.id() as i32), signal).expect("signalled");
    Run::from(child.wait_with_output().expect("ended"))
}

/// Also while all cores do something else: critic, actor and model run on threads of their own, and none may matter
/// by being faster than another.
#[test]
fn the_same_seed_gives_the_same_bytes() {
    let [first, second, other] = ["", "", "[runtime]\nseed = 7\n"].map(|seed| {
        let bench = prepared(&format!("{QUICK}{seed}"));
        bench.train(&[]).ok();
        weights(&bench)
    });
    assert!(first == second);
    assert!(first != other);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..2 * cores {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let bench = prepared(QUICK);
        let run = bench.train(&[]);
        over.store(true, Ordering::Relaxed);
        run.ok();
        assert!(weights(&bench) == first);
    });
}

#[test]
fn a_published_generator_is_whole() {
    let bench = prepared(QUICK);
    let summary = bench.train(&[]).ok().json();
    assert_eq!(bench.names("out"), ["_SUCCESS", "generator", "manifest.json", "reports"]);
    assert_eq!(
        bench.names("out/generator"),
        [
            "generator.json",
            "neighbours.safetensors",
            "reference.safetensors",
            "weights.safetensors"
        ]
    );
    assert_eq!(bench.names("out/reports"), ["training.parquet"]);
    nothing_is_left_beside(&bench);
    let curve = read_table(&bench.path("out/reports/training.parquet"));
    let schema = curve.schema();
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!((names[0], names[names.len() - 1]), ("step", "best"));
    for name in ["seconds", "reward", "critic_loss", "actor_loss", "validity", "l0", "l1"] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert_eq!(curve.num_rows(), 4);
    let manifest = bench.json("out/manifest.json");
    assert_eq!(manifest["summary"]["steps"], 200);
    assert_eq!(manifest["summary"]["validation"], summary["validation"]);
    assert_eq!(manifest["tables"][0]["path"], "reports/training.parquet");
    let generator = bench.json("out/generator/generator.json");
    assert_eq!(generator["figures"]["validation"], summary["validation"]);
    bench.train(&[]).says(
        1,
        &expect![[r#"
        error: DIR/out: already holds the results of a run
          hint: set `output.overwrite = true` to replace them, or choose another `output.dir`
    "#]],
    );
}

#[test]
fn an_interrupted_training_goes_on_to_the_same_weights() {
    let whole = prepared(LONG);
    whole.train(&[]).ok();
    let bench = prepared(LONG);
    let killed = interrupted(&bench, Signal::SIGKILL, 0, &[]);
    assert_eq!(killed.code, -1, "{killed:#?}");
    assert!(!bench.path("out").exists());
    let step = checkpoint_step(&bench);
    interrupted(&bench, Signal::SIGTERM, step, &["--resume"]).says(
        143,
        &expect![[r#"
        interrupted: overturn: stopped by a signal, nothing published
    "#]],
    );
    nothing_is_published(&bench);
    assert!(checkpoint_step(&bench) > step);
    let run = bench.train(&["--resume"]).ok();
    assert!(run.stderr.contains("resuming from a checkpoint"), "{}", run.stderr);
    assert!(weights(&bench) == weights(&whole));
    nothing_is_left_beside(&bench);
    let curves = [&whole, &bench].map(|bench| read_table(&bench.path("out/reports")));
    for name in ["step", "reward", "critic_loss", "validity", "l1"] {
        assert_eq!(curves[0].column_by_name(name), curves[1].column_by_name(name), "{name}");
    }
}

#[test]
fn sigterm_before_there_is_anything_to_keep() {
    let bench = prepared(&QUICK.replace("steps = 200\nbatch", "steps = 1000000\nbatch"));
    let mut child = started(&bench, &[]);
    wait_for(&mut child, || bench.path(".out.staging").exists());
    std::thread::sleep(Duration::from_millis(300));
    let told = Instant::now();
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).expect("signalled");
    Run::from(child.wait_with_output().expect("ended")).says(
        143,
        &expect![[r#"
        interrupted: overturn: stopped by a signal, nothing published
    "#]],
    );
    assert!(told.elapsed() < Duration::from_secs(20), "took {:?}", told.elapsed());
    nothing_is_published(&bench);
    nothing_is_left_beside(&bench);
}

#[test]
fn a_checkpoint_of_another_job_or_a_broken_one_is_refused() {
    let bench = prepared(LONG);
    interrupted(&bench, Signal::SIGTERM, 0, &[]).fails(143, &[]);
    let refused = |said: &[&str]| {
        bench.train(&["--resume"]).fails(1, &[&[".out.checkpoint/"], said].concat());
        nothing_is_published(&bench);
        let broken = ["is not a checkpoint", "checkpoint.json: cannot be read"].contains(&said[0]);
        assert!(checkpoint_step(&bench) > 0 || broken);
    };
    bench.append("job.toml", "validation_rows = 7\n");
    refused(&["was made with a different setting of `[target]`"]);
    bench.replace("job.toml", "validation_rows = 7\n", "learning_rate = 0.01\n");
    refused(&["was made with a different setting of `[target]`", "`--resume`"]);
    bench.replace("job.toml", "learning_rate = 0.01\n", "[runtime]\nseed = 9\n");
    refused(&["was made with a different seed"]);
    bench.replace("job.toml", "[runtime]\nseed = 9\n", "");
    bench.replace("schema.toml", "step = 6 ", "step = 12 ");
    refused(&["was made with a different feature schema"]);
    bench.replace("schema.toml", "step = 12 ", "step = 6 ");
    let state = fs::read_to_string(bench.path(CHECKPOINT)).expect("readable");
    let tensors = bench
        .path(".out.checkpoint")
        .join(bench.json(CHECKPOINT)["tensors"].as_str().expect("a name"));
    let whole = fs::read(&tensors).expect("readable");
    fs::write(&tensors, &whole[..whole.len() / 2]).expect("written");
    refused(&["cannot be read as tensors"]);
    fs::write(&tensors, whole).expect("written");
    fs::write(bench.path(CHECKPOINT), &state[..state.len() / 2]).expect("written");
    refused(&["is not a checkpoint", "train without `--resume`"]);
    fs::remove_file(bench.path(CHECKPOINT)).expect("removed");
    fs::create_dir(bench.path(CHECKPOINT)).expect("made");
    refused(&["checkpoint.json: cannot be read", "train without `--resume`"]);
    fs::remove_dir(bench.path(CHECKPOINT)).expect("removed");
    fs::write(bench.path(CHECKPOINT), state).expect("written");
    bench.train(&["--resume"]).ok();
    nothing_is_left_beside(&bench);
}

#[test]
fn a_training_that_ends_before_anything_is_learnt() {
    let bench = prepared(&QUICK.replace("max_steps = 200", "max_steps = 5"));
    bench.train(&[]).says(
        2,
        &expect![[r#"
        error: training: ended after 5 steps; the first 10 only gather what is learnt from
          hint: raise `train.max_steps` or `train.max_seconds`
    "#]],
    );
    nothing_is_published(&bench);
}

#[test]
fn resuming_without_a_checkpoint_starts_afresh() {
    let [plain, resumed] = [&[][..], &["--resume"]].map(|arguments| {
        let bench = prepared(QUICK);
        bench.train(arguments).ok();
        weights(&bench)
    });
    assert!(plain == resumed);
}

#[test]
fn a_training_that_was_killed_just_after_publishing_has_nothing_left_to_do() {
    let bench = prepared(QUICK);
    bench.train(&[]).ok();
    let before = weights(&bench);
    let summary = bench.train(&["--resume"]).ok().json();
    assert!(summary["remarks"].to_string().contains("published before"), "{summary}");
    assert!(weights(&bench) == before);
    bench.train(&[]).says(
        1,
        &expect![[r#"
        error: DIR/out: already holds the results of a run
          hint: set `output.overwrite = true` to replace them, or choose another `output.dir`
    "#]],
    );
    bench.append("job.toml", "learning_rate = 0.001\n");
    bench.train(&["--resume"]).says(
        1,
        &expect![[r#"
        error: DIR/out: already holds the results of a run
          hint: set `output.overwrite = true` to replace them, or choose another `output.dir`
    "#]],
    );
}

/// A scorer that approves of those who ask for little. It breaks for good at its 200th batch, unless
/// there is a file `repaired`.
const BREAKING: &str = r#"
import os, sys
answers = os.fdopen(os.dup(1), "wb"); os.dup2(2, 1)
import pyarrow as pa
if os.path.exists("broken") and not os.path.exists("repaired"):
    sys.exit("out of order")
batches = pa.ipc.open_stream(sys.stdin.buffer)
schema = pa.schema([("label", pa.string())], {"overturn.protocol": "1", "overturn.classes": '["no", "yes"]'})
with pa.ipc.new_stream(answers, schema) as stream:
    for place, batch in enumerate(batches):
        if place == 200 and not os.path.exists("repaired"):
            open("broken", "w").close()
            os._exit(9)
        labels = ["yes" if amount < 12_000 else "no" for amount in batch["loan_amount"].to_pylist()]
        stream.write_batch(pa.record_batch([pa.array(labels, pa.string())], schema=schema))
        answers.flush()
"#;

/// A job whose scorer breaks.
fn breaking(python: &Path) -> Bench {
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(600));
    bench.write("scorer.py", BREAKING);
    let predictor = format!(
        "kind = \"subprocess\"\ncommand = [{python:?}, \"./scorer.py\"]\nworkers = 1\nretries = 0"
    );
    bench.job(&table, "", Some(&predictor));
    bench.append("job.toml", &QUICK.replace("max_steps = 200", "max_steps = 300"));
    bench
}

#[test]
fn a_model_that_dies_in_mid_training() {
    let Some(python) = python("a_model_that_dies_in_mid_training") else { return };
    let bench = breaking(&python);
    bench.train(&[]).says(
        1,
        &expect![[r#"
        error: scorer.py: exited with status 1 in the handshake; its standard error ended with
            out of order
    "#]],
    );
    nothing_is_published(&bench);
    let step = checkpoint_step(&bench);
    assert!(step > 100, "a checkpoint at step {step}");
    bench.train(&["--resume"]).says(
        1,
        &expect![[r#"
        error: scorer.py: exited with status 1 in the handshake; its standard error ended with
            out of order
    "#]],
    );
    assert_eq!(checkpoint_step(&bench), step);
    bench.write("repaired", "");
    let run = bench.train(&["--resume"]).ok();
    assert!(run.stderr.contains("resuming from a checkpoint"), "{}", run.stderr);
    assert_eq!(run.json()["steps"], 300);
    nothing_is_left_beside(&bench);
}

/// A training that had come to its end when the model died takes no step more.
#[test]
fn a_training_that_was_over_stays_as_it_was() {
    let Some(python) = python("a_training_that_was_over_stays_as_it_was") else { return };
    let [whole, bench] = [(); 2].map(|()| {
        let bench = breaking(&python);
        // The only checkpoint is that of the end, before the generator is evaluated for the last time.
        let at_the_end = "os.path.exists(\".out.checkpoint/checkpoint.json\")";
        bench.replace("scorer.py", "place == 200", at_the_end);
        bench.replace("job.toml", "max_steps = 300", "max_steps = 5000\npatience = 4");
        bench
    });
    whole.write("repaired", "");
    let steps = whole.train(&[]).ok().json()["steps"].as_u64().expect("a number");
    assert!(steps < 5000, "patience ends it, not step {steps}");
    bench.train(&[]).says(
        1,
        &expect![[r#"
        error: scorer.py: exited with status 1 in the handshake; its standard error ended with
            out of order
    "#]],
    );
    assert_eq!(checkpoint_step(&bench), steps);
    bench.write("repaired", "");
    assert_eq!(bench.train(&["--resume"]).ok().json()["steps"], steps);
    assert!(weights(&bench) == weights(&whole));
}

/// Rows that all have one decision are asked for the other, not for what they have.
#[test]
fn test_rows_of_one_decision() {
    let Some(python) = python("test_rows_of_one_decision") else { return };
    let bench = breaking(&python);
    bench.write("repaired", "");
    bench.append("job.toml", "test_where = \"loan_amount >= 12000 AND age < 40\"\n");
    let summary = bench.train(&[]).ok().json();
    assert_eq!(summary["test"]["by_class"].as_array().map(Vec::len), Some(1), "{summary}");
    assert_eq!(summary["test"]["by_class"][0]["class"], 1, "the other class: {summary}");
    assert!(summary["test"]["changed"].as_f64() >= Some(1.0), "{summary}");
}

/// Trains where no file may become longer than so many bytes, as on a disk that is nearly full.
fn train_in_little_space(bench: &Bench, bytes: u64) -> Run {
    let script = format!("trap '' XFSZ; ulimit -f {}; exec \"$@\"", bytes / 1024);
    let mut command = Command::new("bash");
    command.args(["-c", &script, "bash", env!("CARGO_BIN_EXE_overturn"), "train"]);
    command.arg(bench.path("job.toml")).stdin(Stdio::null()).env_remove("RUST_LOG");
    Run::of(&mut command)
}

#[test]
fn a_disk_that_is_nearly_full() {
    // Networks that are larger than all other files of a generator, and smaller than a checkpoint.
    let lines = QUICK.replace("hidden = 32", "hidden = 256") + "checkpoint_seconds = 0.05\n";
    let roomy = prepared(&lines);
    roomy.train(&[]).ok();
    let size = weights(&roomy).len() as u64;
    let bench = prepared(&lines);
    let run = train_in_little_space(&bench, size * 3 / 2).ok();
    assert!(run.stderr.contains("no checkpoint at step"), "{}", run.stderr);
    assert!(weights(&bench) == weights(&roomy));
    nothing_is_left_beside(&bench);

    let bench = prepared(&lines);
    // How often its hint is given depends on how many checkpoints were tried.
    train_in_little_space(&bench, size / 2)
        .fails(2, &["weights.safetensors: cannot be written", "File too large", "hint: "]);
    nothing_is_published(&bench);
    // What could not be written whole is not kept in part, where it would take the last of the space.
    assert!(bench.path(".out.checkpoint").read_dir().is_ok_and(|mut files| files.next().is_none()));
}

#[test]
fn training_on_from_an_earlier_generator() {
    let bench = prepared(&QUICK.replace("max_steps = 200", "max_steps = 400"));
    let first = bench.train(&[]).ok().json();
    bench.replace("job.toml", "dir = \"out\"", "dir = \"again\"");
    bench.replace("job.toml", "max_steps = 400", "max_steps = 100\nfrom = \"out/generator\"");
    let second = bench.train(&[]).ok().json();
    let [before, after] =
        [&first, &second].map(|run| run["validation"]["validity"].as_f64().expect("a number"));
    assert!(after >= before - 0.05, "{before} became {after}");
    assert_eq!(second["autoencoder"]["quality"], first["autoencoder"]["quality"]);
}

#[test]
fn generators_that_cannot_be_started_from() {
    let bench = prepared(&QUICK.replace("[autoencoder]\n", "[autoencoder]\nmin_quality = 0.1\n"));
    bench.train(&[]).ok();
    bench.replace("job.toml", "dir = \"out\"", "dir = \"again\"");
    bench.replace("job.toml", "max_steps = 200", "max_steps = 100\nfrom = \"out/generator\"");
    let mut said = String::new();
    let mut refused = |cause: &str| {
        said += &bench.refusal(cause, &bench.train(&[]));
        assert!(!bench.path("again").exists() && !bench.path(".again.staging").exists());
    };
    bench.replace(
        "schema.toml",
        "change = \"increase\"    # nobody",
        "change = \"never\"    # nobody",
    );
    bench.replace("schema.toml", "limit = { up = 2 }", "#");
    refused("another direction and limit");
    fs::copy(project().join("schemas/credit.toml"), bench.path("schema.toml")).expect("copied");
    bench.append("job.toml", "targets = \"distribution\"\n");
    refused("other targets");
    bench.replace("job.toml", "targets = \"distribution\"\n", "");
    bench.replace("job.toml", "hidden = 32\n", "hidden = 48\n");
    refused("another width");
    bench.replace("job.toml", "hidden = 48\n", "hidden = 32\n");
    bench.replace("job.toml", "hidden = [32]\n", "hidden = [16]\n");
    refused("another autoencoder");
    bench.replace("job.toml", "hidden = [16]\n", "hidden = [32]\nkind = \"never\"\n");
    refused("no autoencoder");
    bench.replace("job.toml", "kind = \"never\"\n", "");
    let mut bytes = weights(&bench);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(bench.path(WEIGHTS), bytes).expect("written");
    refused("damaged weights");
    let description = "out/generator/generator.json";
    bench.replace(description, "\"format\": 7,", "\"format\": 5,");
    refused("an older format");
    bench.replace(description, "\"format\": 5,", "");
    refused("no format");
    bench.replace("job.toml", "out/generator", "out/reports");
    refused("another folder");
    bench.replace("job.toml", "out/reports", "nowhere");
    refused("no folder");
    expect![[r##"
        # another direction and limit
        error: DIR/out/generator: cannot be started from: it describes the feature `age` otherwise than the schema
          hint: remove `train.from` to train from scratch

        # other targets
        error: DIR/out/generator: cannot be started from: it was trained with other `train.targets`
          hint: remove `train.from` to train from scratch

        # another width
        error: DIR/out/generator: cannot be started from: it has networks of another form (`train.hidden`, `train.preset`)
          hint: remove `train.from` to train from scratch

        # another autoencoder
        error: DIR/out/generator: cannot be started from: it has hidden layers of [32], other than `autoencoder.hidden`
          hint: remove `train.from` to train from scratch

        # no autoencoder
        error: DIR/out/generator: cannot be started from: it has an autoencoder, where `autoencoder.kind` is `never`
          hint: remove `train.from` to train from scratch

        # damaged weights
        error: DIR/out/generator: `weights.safetensors` is not the file that `generator.json` describes
          hint: train the generator again

        # an older format
        error: DIR/out/generator/generator.json: has format 5, expected 7
          hint: train the generator again

        # no format
        error: DIR/out/generator/generator.json: has no format, expected 7
          hint: train the generator again

        # another folder
        error: DIR/out/reports/generator.json: cannot be read: No such file or directory (os error 2)
          hint: a generator is the folder `generator` of a published run

        # no folder
        error: DIR/job.toml:17: `train.from` is `DIR/nowhere`, which does not exist

    "##]].assert_eq(&said);
}

#[test]
fn models_that_always_or_never_decide_so() {
    let Some(python) = python("models_that_always_or_never_decide_so") else { return };
    let bench = Bench::new();
    bench.known(&python, "one_class", Some(400));
    bench.append("job.toml", QUICK);
    bench.train(&[]).says(1, &expect![[r#"
        error: predictor: decides `yes` for all 320 training rows, expected two decisions
          hint: check the model, and the rows that `input.train_where` selects from DIR/table.parquet
    "#]]);
    nothing_is_published(&bench);
    let bench = Bench::new();
    bench.known(&python, "never_predicted", Some(400));
    bench.append("job.toml", QUICK);
    bench.train(&[]).says(2, &expect![[r#"
        error: training: failed: the model predicts the class `top` for 0 of 64 validation rows
          hint: check that the model ever decides so, that the schema lets the features change that it depends on, or raise `train.max_steps`
    "#]]);
    nothing_is_published(&bench);
}

#[test]
fn a_schema_that_lets_nothing_change() {
    let bench = prepared(QUICK);
    let schema = fs::read_to_string(bench.path("schema.toml")).expect("readable");
    let kept = schema.lines().filter(|line| {
        !["change", "limit", "allowed", "step"].iter().any(|key| line.starts_with(key))
    });
    let fixed = kept.map(|line| match line.strip_prefix("kind") {
        Some(_) => format!("{line}\nchange = \"never\"\n"),
        None => format!("{line}\n"),
    });
    bench.write("schema.toml", &fixed.collect::<String>());
    bench.train(&[]).says(
        1,
        &expect![[r#"
        error: feature schema: lets no feature change: there is nothing to learn
          hint: give some feature `change = "any"`, a range, or further `allowed` values
    "#]],
    );
    nothing_is_published(&bench);
}

#[test]
fn an_autoencoder_that_is_not_good_enough() {
    let bench = prepared(&QUICK.replace("[autoencoder]\n", "[autoencoder]\nmin_quality = 1.0\n"));
    let summary = bench.train(&[]).ok().json();
    assert_eq!(summary["autoencoder"]["used"], false);
    let remarks = summary["remarks"].to_string();
    assert!(remarks.contains("the autoencoder reconstructs too badly"), "{remarks}");
    let always = "[autoencoder]\nkind = \"always\"\nmin_quality = 1.0\n";
    let bench = prepared(&QUICK.replace("[autoencoder]\n", always));
    bench.train(&[]).says(2, &expect![[r#"
        error: autoencoder: reconstructs 0.454 of what there is to reconstruct, expected at least 1 (accuracy 0.501, squared error 0.402)
          hint: raise `autoencoder.latent` or `autoencoder.steps`, or set `autoencoder.kind = "auto"` to do without it
    "#]]);
    nothing_is_published(&bench);
    nothing_is_left_beside(&bench);
}

#[test]
fn every_wrong_number_at_once() {
    let bench = prepared(
        "[train]\nbatch = 0\nlearning_rate = 2\nsparsity = -1\nmax_seconds = 0\n\
         [autoencoder]\nlatent = 0\nmin_quality = 1.5\n",
    );
    bench.train(&[]).says(
        1,
        &expect![[r#"
        errors:
        DIR/job.toml:11: `train.batch` is 0, expected at least 1
          hint: a batch is held in memory many times over
        DIR/job.toml:12: `train.learning_rate` is 2, expected at most 1
          hint: larger steps diverge
        DIR/job.toml:13: `train.sparsity` is -1, expected at least 0
          hint: networks count in 32 bits
        DIR/job.toml:14: `train.max_seconds` is 0, expected more than 0
          hint: a year is as good as no limit
        DIR/job.toml:16: `autoencoder.latent` is 0, expected at least 1
          hint: wider layers learn no better and do not fit into memory
        DIR/job.toml:17: `autoencoder.min_quality` is 1.5, expected at most 1
          hint: 1 is perfect, which nothing exceeds
    "#]],
    );
    nothing_is_published(&bench);
}

#[test]
fn rows_to_be_tested_on_are_kept_apart() {
    let bench = prepared(&format!("{QUICK}test_where = \"age < 30\"\ntest_rows = 40\n"));
    let summary = bench.train(&[]).ok().json();
    assert_eq!(summary["test"]["rows"], 40);
    assert_eq!(summary["test"]["violations"], 0);
    let in_scope = summary["rows_in_scope"].as_u64().expect("a number");
    assert!(in_scope < 600, "{summary}");
    let bench = prepared(&format!("{QUICK}test_where = \"age > 1000\"\n"));
    bench.train(&[]).says(
        1,
        &expect![[r#"
        error: train.test_where: is `age > 1000`, which no row of the table satisfies
    "#]],
    );
    nothing_is_published(&bench);
}

#[test]
fn a_sample_and_its_weights_do_not_depend_on_threads() {
    let runs = ["1", "2"].map(|threads| {
        let bench = prepared(&format!("{QUICK}max_rows = 250\n"));
        let summary = bench.train(&["--threads", threads]).ok().json();
        let remarks = summary["remarks"].to_string();
        assert!(remarks.contains("trained on a sample of 250 of 600 rows"), "{remarks}");
        assert_eq!(summary["rows_trained"], 200);
        bench
    });
    let rows = |bench: &Bench| {
        let generator = bench.json("out/generator/generator.json");
        generator["origin"]["training_rows"].as_str().expect("a hash").to_string()
    };
    assert_eq!(rows(&runs[0]), rows(&runs[1]));
    assert!(weights(&runs[0]) == weights(&runs[1]));
}
