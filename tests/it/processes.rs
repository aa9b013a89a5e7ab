//! Scorer programs as processes: what ends them, what they are given, what they may use, and how much of
//! what they write is believed.

use std::fs;
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use expect_test::expect;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::scorers::scorer;
use crate::util::{Bench, Run, credit, overturn, program, python, run_python};

/// How long the program may take to end after a signal, and some more for a busy machine.
const PATIENCE: Duration = Duration::from_millis(2500);

/// A scorer that never shakes hands. It leaves its number, and those of a child and of a grandchild that
/// has left its session.
const HANGS: &str = r#"
import os, subprocess, sys, time
child = subprocess.Popen(["sleep", "600"])
stray = subprocess.Popen(["sleep", "600"], start_new_session=True)
open("pids.new", "w").write(f"{os.getpid()} {child.pid} {stray.pid}")
os.rename("pids.new", "pids")
time.sleep(600)
"#;

/// A job with this scorer over a small table.
fn job(bench: &Bench, python: &Path, script: &str, more: &str) -> String {
    let table = bench.parquet("t.parquet", &credit(40));
    bench.write("scorer.py", script);
    let predictor = format!(
        "kind = \"subprocess\"\ncommand = [{python:?}, \"./scorer.py\"]\nworkers = 1\nretries = 0\n{more}"
    );
    bench.job(&table, "", Some(&predictor))
}

fn score(bench: &Bench, python: &Path, script: &str, more: &str) -> Run {
    overturn(&["score", &job(bench, python, script, more), "--format", "json"])
}

/// Waits until something is there.
fn await_some<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{what} does not come");
        thread::sleep(Duration::from_millis(5));
    }
}

fn pids(bench: &Bench) -> Vec<i32> {
    let text = await_some("the scorer", || fs::read_to_string(bench.path("pids")).ok());
    text.split(' ').map(|pid| pid.parse().expect("a number")).collect()
}

fn is_running(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.contains("State:") && !status.contains("State:\tZ")
}

fn assert_gone(pids: &[i32]) {
    let start = Instant::now();
    while pids.iter().any(|pid| is_running(*pid)) {
        assert!(start.elapsed() < PATIENCE, "{pids:?} are left running");
        thread::sleep(Duration::from_millis(5));
    }
}

fn start(arguments: &[&str]) -> Child {
    let mut command = program();
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("the program starts")
}

/// Signals the program; it must end in time with the signal's code.
fn stop(mut child: Child, signal: Signal) {
    let start = Instant::now();
    kill(Pid::from_raw(child.id() as i32), signal).expect("signalled");
    let status = loop {
        if let Some(status) = child.try_wait().expect("waited") {
            break status;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "it does not end");
        thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(status.code(), Some(128 + signal as i32), "{status:?} {:?}", status.signal());
    assert!(start.elapsed() < PATIENCE, "took {:?}", start.elapsed());
}

#[test]
fn a_signal_during_the_handshake_ends_every_command_and_all_processes() {
    let name = "a_signal_during_the_handshake_ends_every_command_and_all_processes";
    let Some(python) = python(name) else { return };
    for (command, signal) in [
        ("validate", Signal::SIGTERM),
        ("score", Signal::SIGINT),
        ("train", Signal::SIGTERM),
        ("run", Signal::SIGINT),
    ] {
        let bench = Bench::new();
        let job = job(&bench, &python, HANGS, "");
        bench.append("job.toml", "[target]\nclass = \"yes\"\n");
        let child = start(&[command, &job]);
        let pids = pids(&bench);
        stop(child, signal);
        assert_gone(&pids);
        assert!(!bench.path("out").exists());
    }
}

#[test]
fn a_signal_during_a_batch_ends_the_scorer() {
    let Some(python) = python("a_signal_during_a_batch_ends_the_scorer") else { return };
    for command in ["validate", "score"] {
        let bench = Bench::new();
        let hang = "open('pids', 'w').write(str(os.getpid())), time.sleep(600)";
        let child = start(&[command, &job(&bench, &python, &scorer(hang), "")]);
        let pid = await_some("a batch", || {
            fs::read_to_string(bench.path("pids")).ok()?.parse::<i32>().ok()
        });
        stop(child, Signal::SIGTERM);
        assert_gone(&[pid]);
        assert!(!bench.path("out").exists());
    }
}

#[test]
fn nothing_survives_the_death_of_the_program_or_of_the_guard() {
    let name = "nothing_survives_the_death_of_the_program_or_of_the_guard";
    let Some(python) = python(name) else { return };
    let bench = Bench::new();
    let mut child = start(&["validate", &job(&bench, &python, HANGS, "")]);
    let left = pids(&bench);
    child.kill().expect("killed");
    child.wait().expect("reaped");
    assert_gone(&left);

    fs::remove_file(bench.path("pids")).expect("removed");
    let child = start(&["validate", &bench.text("job.toml")]);
    let left = pids(&bench);
    let status = fs::read_to_string(format!("/proc/{}/status", left[0])).expect("running");
    let guard = status.lines().find_map(|line| line.strip_prefix("PPid:\t")).expect("a parent");
    kill(Pid::from_raw(guard.parse().expect("a number")), Signal::SIGKILL).expect("killed");
    assert_gone(&left[..2]);
    stop(child, Signal::SIGTERM);
    // What has left session and guard is nobody's to find.
    let _ = kill(Pid::from_raw(left[2]), Signal::SIGKILL);
}

/// A regression whose loop never ends.
const ENDLESS: &str = r#"
import sys
from onnx import TensorProto as T, helper as h, save
body = h.make_graph(
    [h.make_node("Identity", ["go"], ["on"]), h.make_node("Add", ["v", "v"], ["w"])],
    "body",
    [h.make_tensor_value_info("i", T.INT64, []), h.make_tensor_value_info("go", T.BOOL, []),
     h.make_tensor_value_info("v", T.FLOAT, [None, 1])],
    [h.make_tensor_value_info("on", T.BOOL, []), h.make_tensor_value_info("w", T.FLOAT, [None, 1])])
graph = h.make_graph(
    [h.make_node("Constant", [], ["true"], value=h.make_tensor("t", T.BOOL, [], [True])),
     h.make_node("Loop", ["", "true", "age"], ["value"], body=body)],
    "endless",
    [h.make_tensor_value_info("age", T.FLOAT, [None, 1])],
    [h.make_tensor_value_info("value", T.FLOAT, [None, 1])])
save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), sys.argv[1])
"#;

#[test]
fn an_onnx_model_without_end_is_ended() {
    let Some(python) = python("an_onnx_model_without_end_is_ended") else { return };
    let bench = Bench::new();
    run_python(&python, ENDLESS, &[&bench.text("endless.onnx")]);
    bench.write("short.toml", "[[feature]]\nname = \"age\"\nkind = \"numeric\"\n");
    let table = bench.parquet("t.parquet", &credit(40));
    let job = |more: &str| {
        let predictor =
            format!("kind = \"onnx\"\nmodel = \"endless.onnx\"\ntask = \"regression\"\n{more}");
        bench.job(&table, "schema = \"short.toml\"", Some(&predictor))
    };
    let start_of_run = Instant::now();
    overturn(&["score", &job("batch_seconds = 0.5")]).says(1, &expect![[r#"
        error: DIR/endless.onnx: gave no answer to a batch of 40 rows within 0.5 s (`predictor.batch_seconds`)
    "#]]);
    assert!(start_of_run.elapsed() < Duration::from_secs(10));
    for command in ["validate", "score"] {
        let child = start(&[command, &job("")]);
        // It is in the loop once it has used more time than it takes to get there.
        await_some("the loop", || {
            let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).ok()?;
            let ticks: u64 = stat.rsplit_once(')')?.1.split_whitespace().nth(11)?.parse().ok()?;
            (ticks > 150).then_some(())
        });
        stop(child, Signal::SIGTERM);
    }
    assert!(!bench.path("out").exists());
}

#[test]
fn commands_without_a_model_end_by_signals_too() {
    let bench = Bench::new();
    let out = bench.text("rows");
    let child = start(&["synth", &out, "--rows", "50000000"]);
    await_some("the folder", || bench.path("rows").exists().then_some(()));
    stop(child, Signal::SIGINT);
}

/// Shakes hands and then lies: `answer` is what follows the schema.
fn liar(answer: &str) -> String {
    format!(
        r#"
import io, struct, sys
import pyarrow as pa
out = sys.stdout.buffer
metadata = {{"overturn.protocol": "1", "overturn.classes": '["no", "yes"]'}}
schema = pa.schema([("label", pa.string())], metadata)
batch = pa.record_batch([pa.array(["no", "yes", "yes"])], schema=schema)
message = batch.serialize().to_pybytes()
length = struct.unpack("<i", message[4:8])[0]
head, body = message[:8 + length], message[8 + length:]

def with_body(claimed):
    old = struct.pack("<q", len(body))
    assert head.count(old) == 1
    return head.replace(old, struct.pack("<q", claimed))

def flood(bytes):
    while True:
        out.write(bytes)

{answer}
"#
    )
}

#[test]
fn lengths_that_a_scorer_claims_are_not_believed() {
    let Some(python) = python("lengths_that_a_scorer_claims_are_not_believed") else { return };
    let schema = "out.write(schema.serialize().to_pybytes())\n";
    let dictionaries = r#"
schema = pa.schema([("label", pa.dictionary(pa.int32(), pa.string()))], metadata)
stream = io.BytesIO()
with pa.ipc.new_stream(stream, schema) as writer:
    writer.write_batch(pa.record_batch([pa.array(["no", "yes"]).dictionary_encode()], schema=schema))
first = schema.serialize().to_pybytes()
rest = stream.getvalue()[len(first):]
length = 8 + struct.unpack("<i", rest[4:8])[0]
dictionary = rest[:rest.index(b"\xff\xff\xff\xff", length)]
out.write(first)
flood(dictionary)
"#;
    let compressed = r#"
options = pa.ipc.IpcWriteOptions(compression="zstd")
stream = io.BytesIO()
with pa.ipc.new_stream(stream, schema, options=options) as writer:
    writer.write_batch(pa.record_batch([pa.array(["no"] * 100000)], schema=schema))
out.write(stream.getvalue()); out.flush()
import time; time.sleep(60)
"#;
    for (answer, said) in [
        (
            format!("{schema}out.write(with_body(1 << 40)); flood(b'x' * 65536)"),
            "bytes long, expected",
        ),
        (format!("{schema}out.write(with_body(-1)); flood(b'x' * 65536)"), "cannot be read"),
        (
            "out.write(b'\\xff' * 4 + b'\\xff\\xff\\xff\\x7f'); flood(b'x' * 65536)".to_string(),
            "metadata",
        ),
        ("flood(b'\\xff' * 4096)".to_string(), "metadata"),
        ("flood(b'no end ' * 4096)".to_string(), "no end"),
        (dictionaries.to_string(), "messages came before an answer"),
        (compressed.to_string(), "compressed"),
    ] {
        let bench = Bench::new();
        let start = Instant::now();
        score(&bench, &python, &liar(&answer), "start_seconds = 40")
            .fails(1, &["scorer.py: ", said]);
        assert!(start.elapsed() < Duration::from_secs(20), "{said}: {:?}", start.elapsed());
    }
}

#[test]
fn an_answer_to_a_batch_is_bounded_by_its_rows() {
    let Some(python) = python("an_answer_to_a_batch_is_bounded_by_its_rows") else { return };
    let bench = Bench::new();
    let long = "labels[0] = 'x' * 40_000_000";
    score(&bench, &python, &scorer(long), "").says(1, &expect![[r#"
        error: scorer.py: answered none of 8 rows tried one by one; the last time it sent an Arrow message that cannot be read: its answer is 40000160 bytes long, expected at most 33558560 on a batch of 1 row
          hint: nothing but one uncompressed Arrow IPC stream may be written to standard output
    "#]]);
    let endless = "[sys.stderr.write('x' * 1_000_000) for _ in range(200)]";
    let run = score(&bench, &python, &scorer(endless), "").ok();
    assert!(run.stderr.len() < 100_000, "{} bytes of log", run.stderr.len());
}

#[test]
fn credentials_stay_out_of_the_environment_unless_listed() {
    let name = "credentials_stay_out_of_the_environment_unless_listed";
    let Some(python) = python(name) else { return };
    let write = "open('environment', 'w').write(' '.join(sorted(k + '=' + v for k, v in os.environ.items())))";
    let environment = |more: &str| {
        let bench = Bench::new();
        let job = job(&bench, &python, &scorer(write), more);
        let mut command = program();
        command.env("AWS_SECRET_ACCESS_KEY", "secret").env("MODEL_HOST", "h").env("LC_ALL", "C");
        Run::of(command.args(["score", &job])).ok();
        fs::read_to_string(bench.path("environment")).expect("written")
    };
    let plain = environment("");
    assert!(!plain.contains("secret") && !plain.contains("MODEL_HOST"), "{plain}");
    for expected in ["PATH=", "LC_ALL=C", "OVERTURN_PROTOCOL=1", "OMP_NUM_THREADS="] {
        assert!(plain.contains(expected), "{expected} not in {plain}");
    }
    let listed = environment("environment = [\"AWS_*\", \"MODEL_HOST\", \"MODE=fast\"]");
    for expected in ["AWS_SECRET_ACCESS_KEY=secret", "MODEL_HOST=h", "MODE=fast"] {
        assert!(listed.contains(expected), "{expected} not in {listed}");
    }
    let bench = Bench::new();
    score(&bench, &python, "", "environment = [\"A*B\", \"=x\"]").says(1, &expect![[r#"
        errors:
        DIR/job.toml:11: `predictor.environment` holds "A*B", expected `NAME`, `PREFIX*` or `NAME=value`, without spaces in the name
        DIR/job.toml:11: `predictor.environment` holds "=x", expected `NAME`, `PREFIX*` or `NAME=value`, without spaces in the name
    "#]]);
}

#[test]
fn the_network_is_cut_off_unless_the_job_says_otherwise() {
    let name = "the_network_is_cut_off_unless_the_job_says_otherwise";
    let Some(python) = python(name) else { return };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let connect = format!(
        "import socket
            try:
                socket.create_connection(('127.0.0.1', {port}), 5)
                reached = 'reached'
            except OSError as error:
                reached = repr(error)
            socket.socketpair()
            open('reached', 'w').write(reached)"
    );
    for (more, expected, logged) in [
        ("", false, "cut off from the network"),
        ("sandbox = \"require\"", false, "cut off from the network"),
        ("sandbox = \"off\"", true, "`predictor.sandbox` is `off`"),
    ] {
        let bench = Bench::new();
        let run = score(&bench, &python, &scorer(&connect), more).ok();
        let reached = fs::read_to_string(bench.path("reached")).expect("written");
        assert_eq!(reached == "reached", expected, "{more}: {reached}");
        assert_eq!(run.stderr.matches(logged).count(), 1, "{}", run.stderr);
    }
}

#[test]
fn limits_hold_and_nothing_is_inherited() {
    let Some(python) = python("limits_hold_and_nothing_is_inherited") else { return };
    let look = "import resource as r
            limits = [r.getrlimit(x)[0] for x in (r.RLIMIT_AS, r.RLIMIT_NOFILE, r.RLIMIT_CPU, r.RLIMIT_CORE)]
            status = open('/proc/self/status').read()
            files = sorted(map(int, os.listdir('/proc/self/fd')))
            open('seen', 'w').write(f\"{limits} {status.count('NoNewPrivs:\t1')} {files}\")";
    let bench = Bench::new();
    let limits = "[predictor.limits]\nmemory = \"16GiB\"\nfiles = 100\ncpu_seconds = 50";
    let job = job(&bench, &python, &scorer(look), limits);
    let table = fs::File::open(bench.path("t.parquet")).expect("a table");
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "exec \"$0\" \"$@\" 9<&0", env!("CARGO_BIN_EXE_overturn")]);
    Run::of(command.args(["score", &job]).stdin(table)).ok();
    let seen = fs::read_to_string(bench.path("seen")).expect("written");
    assert!(seen.starts_with("[17179869184, 100, 50, 0] 1 [0, 1, 2, "), "{seen}");
    let files = seen.rsplit_once('[').expect("files").1;
    assert!(!files.contains('9'), "{seen}");

    score(&bench, &python, "while True: pass", "[predictor.limits]\ncpu_seconds = 1").says(
        1,
        &expect![[r#"
            error: scorer.py: was killed by signal 24 (SIGXCPU) in the handshake
              hint: `predictor.limits.cpu_seconds` limits its processor time
        "#]],
    );
    score(&bench, &python, "", "[predictor.limits]\nmemory = \"1MB\"\nfiles = 3")
        .says(1, &expect![[r#"
            errors:
            DIR/job.toml:13: `predictor.limits.files` is 3, expected at least 16
              hint: an interpreter needs more than a few, and the kernel allows no more
            DIR/job.toml:12: `predictor.limits.memory` is "1MB", expected a size of at least 64MiB, such as "8GiB"
        "#]]);
}

#[test]
fn a_copy_of_the_program_guards_scorers_by_itself() {
    let Some(python) = python("a_copy_of_the_program_guards_scorers_by_itself") else { return };
    let bench = Bench::new();
    let alone = bench.path("alone");
    fs::hard_link(env!("CARGO_BIN_EXE_overturn"), &alone)
        .or_else(|_| fs::copy(env!("CARGO_BIN_EXE_overturn"), &alone).map(|_| ()))
        .expect("a copy");
    let job = job(&bench, &python, HANGS, "");
    let mut command = std::process::Command::new(&alone);
    command.args(["validate", &job]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the program starts");
    let left = pids(&bench);
    child.kill().expect("killed");
    child.wait().expect("reaped");
    assert_gone(&left);
}

#[test]
fn threads_that_cannot_be_started_are_an_error() {
    let bench = Bench::new();
    let table = bench.parquet("t.parquet", &credit(40));
    // More than the address space holds.
    let stack = (1_u64 << 50).to_string();
    let mut command = program();
    command.env("RUST_MIN_STACK", stack).args(["validate", &bench.job(&table, "", None)]);
    Run::of(&mut command).says(2, &expect![[r#"
        error: threads: cannot be started
          hint: lower `runtime.threads`, or raise the limits of the system (`ulimit -u`, `ulimit -v`, `pids.max`)
          because: Resource temporarily unavailable (os error 11)
    "#]]);
}
