//! Programs that fail, each in its own way.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::*;
use crate::predictor::NO_CLASS;

/// Asserts that a message has all these parts.
fn assert_says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
}

#[test]
fn a_program_that_is_not_there() {
    let program = command(Path::new("/"), &["no-such-program", "model"]);
    let message = open_error(&program).to_string();
    assert_says(
        &message,
        &["no-such-program: the program `no-such-program` was not found", "PATH"],
    );
    let lost = command(Path::new("/no/such/folder"), &["cat"]);
    assert_says(&open_error(&lost).to_string(), &["`/no/such/folder`, which is no folder"]);
}

#[test]
fn a_program_that_is_not_executable() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("scorer"), "text").unwrap();
    let path = folder.path().join("scorer").display().to_string();
    let message = open_error(&command(folder.path(), &[&path])).to_string();
    assert_says(&message, &["scorer: `", "` is not executable", "hint: set its executable bit"]);
}

#[test]
fn a_program_that_exits_at_once() {
    let script = "echo loading >&2; echo 'no model here' >&2; exit 3";
    let message = open_error(&command(Path::new("/"), &["sh", "-c", script])).to_string();
    let expected = "sh: exited with status 3 in the handshake; its standard error ended with\n    loading\n    no model here";
    assert_says(&message, &[expected]);
}

#[test]
fn a_program_that_never_answers_the_handshake() {
    let mut program = command(Path::new("/"), &["sh", "-c", "sleep 60"]);
    program.start_limit = Duration::from_millis(300);
    let start = Instant::now();
    let message = open_error(&program).to_string();
    assert_says(
        &message,
        &["gave no answer within 0.3 s (`predictor.start_seconds`) and was killed"],
    );
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_program_that_never_answers_a_batch() {
    let Some(scorers) = Scorers::new() else { return };
    let mut program = scorers.job("serve(lambda ids: time.sleep(60))");
    program.batch_limit = Duration::from_millis(300);
    let predictor = open(&program).unwrap();
    let error = predictor.predict(&ids(0..40)).expect_err("it hangs").to_string();
    assert_says(&error, &["answered none of 3 rows tried one by one", "`predictor.batch_seconds`"]);
    let start = Instant::now();
    let again = predictor.predict(&ids(0..40)).expect_err("it was given up").to_string();
    assert_eq!(again, error);
    assert!(start.elapsed() < Duration::from_millis(100), "given up once is given up");
}

#[test]
fn a_program_that_hangs_on_one_row() {
    let Some(scorers) = Scorers::new() else { return };
    let body = "serve(lambda ids: [parity(ids) if 7 not in ids else time.sleep(60)])";
    let mut program = scorers.job(body);
    program.batch_limit = Duration::from_secs(1);
    let scores = open(&program).unwrap().predict(&ids(0..40)).unwrap();
    assert_eq!(failed_rows(&scores), [7]);
    assert_says(&scores.failures[0].detail, &["gave no answer within 1 s"]);
}

#[test]
fn a_program_of_another_protocol_version() {
    let Some(scorers) = Scorers::new() else { return };
    let program = scorers.job(r#"serve(parity, metadata={"overturn.protocol": "2"})"#);
    let message = open_error(&program).to_string();
    assert_says(&message, &["scorer.py: speaks protocol version `2`, expected `1`"]);
}

#[test]
fn a_program_that_answers_other_columns() {
    let Some(scorers) = Scorers::new() else { return };
    let program = scorers.job(r#"serve(parity, fields=[("score", pa.float64())])"#);
    let message = open_error(&program).to_string();
    assert_says(&message, &["scorer.py: its answers have no column `label`, found `score`"]);
}

#[test]
fn a_program_that_answers_the_wrong_number_of_rows() {
    let Some(scorers) = Scorers::new() else { return };
    let body = "serve(lambda ids: [parity(ids)[1:] if 0 in ids else parity(ids) + [0]])";
    let scores = scorers.open(body).unwrap().predict(&ids(0..2)).unwrap();
    assert_eq!(scores.failures[0].detail, "answered 0 rows, expected 1");
    assert_eq!(scores.failures[1].detail, "answered 2 rows, expected 1");
}

#[test]
fn a_program_that_drops_rows_it_dislikes() {
    let Some(scorers) = Scorers::new() else { return };
    let body = "serve(lambda ids: [parity([i for i in ids if i not in (4, 31)])])";
    let scores = scorers.open(body).unwrap().predict(&ids(0..40)).unwrap();
    assert_eq!(failed_rows(&scores), [4, 31]);
    assert_eq!(scores.failures[0].detail, "answered 0 rows, expected 1");
    assert_eq!(labels(&scores)[4..6], [NO_CLASS, 1]);
}

#[test]
fn a_program_that_answers_twice() {
    let Some(scorers) = Scorers::new() else { return };
    let body = "
schema = pa.schema([('label', pa.int64())], metadata)
stream = pa.ipc.new_stream(out, schema)
for batch in source:
    answer = pa.record_batch([pa.array([0] * batch.num_rows, pa.int64())], schema=schema)
    stream.write_batch(answer)
    if batch.num_rows: stream.write_batch(answer)
    out.flush()
    if batch.num_rows: open('answered', 'w').close()
";
    let predictor = scorers.open(body).unwrap();
    predictor.predict(&ids(0..10)).unwrap();
    let start = Instant::now();
    while !scorers.path("answered").exists() && start.elapsed() < Duration::from_secs(20) {
        std::thread::yield_now();
    }
    let message = predictor.predict(&ids(0..10)).expect_err("whose answer is it?").to_string();
    assert_says(&message, &["scorer.py: answered more batches than it was sent"]);
}

#[test]
fn labels_that_are_no_class_and_probabilities_that_are_none() {
    let Some(scorers) = Scorers::new() else { return };
    let body = "
def score(ids):
    labels = ['maybe' if i == 5 else None if i == 6 else 'yes' for i in ids]
    return [labels, [[float('nan') if i == 7 else 0.5, 0.5] for i in ids]]
fields = [('label', pa.string()), ('probabilities', pa.list_(pa.float32()))]
serve(score, fields, {**metadata, 'overturn.classes': '[\"no\", \"yes\"]'})
";
    let predictor = scorers.open(body).unwrap();
    let scores = predictor.predict(&ids(0..40)).unwrap();
    assert_eq!(failed_rows(&scores), [5, 6, 7]);
    let details: Vec<_> = scores.failures.iter().map(|failure| failure.detail.as_str()).collect();
    assert_eq!(details[0], "answered the label `maybe`, expected one of `no, yes`");
    assert_eq!(details[1], "answered the label `null`, expected one of `no, yes`");
    assert_eq!(details[2], "answered a probability of NaN, expected 0 to 1");
}

#[test]
fn too_many_failed_rows() {
    let Some(scorers) = Scorers::new() else { return };
    let program = scorers.job("serve(lambda ids: [[9 if i < 60 else 1 for i in ids]])");
    let predictor = open(&program).unwrap();
    assert_eq!(predictor.predict(&ids(50..1000)).unwrap().failures.len(), 10);
    let message = predictor.predict(&ids(0..50)).expect_err("60 of 1000").to_string();
    let expected = "scorer.py: 60 of 1000 rows failed, expected at most 50; the last one answered the label `9`, expected one of `0, 1`";
    assert_says(&message, &[expected, "`predictor.max_failed_share`"]);
}

#[test]
fn a_program_that_prints_before_its_stream() {
    let Some(scorers) = Scorers::new() else { return };
    let program = scorers
        .job("print('Loading model, please wait a moment for it', flush=True)\nserve(parity)");
    let message = open_error(&program).to_string();
    let expected = "scorer.py: wrote \"Loading model, please wait a moment for …\" to its standard output where an Arrow stream was expected";
    assert_says(&message, &[expected, "hint: print to standard error"]);
}

#[test]
fn a_program_that_prints_amid_its_stream() {
    let Some(scorers) = Scorers::new() else { return };
    let body = "
def score(ids):
    if 3 in ids: print('row', ids[0], 'is odd', flush=True)
    return [parity(ids)]
serve(score)
";
    let scores = scorers.open(body).unwrap().predict(&ids(0..40)).unwrap();
    assert_eq!(failed_rows(&scores), [3]);
    assert_says(&scores.failures[0].detail, &["wrote \"row 3 is odd\\n\" to its standard output"]);
}

#[test]
fn rows_on_which_the_program_dies_are_found() {
    let Some(scorers) = Scorers::new() else { return };
    let body = "
def score(ids):
    for i in ids:
        if i in (3, 700):
            print('cannot score', i, file=sys.stderr, flush=True)
            os._exit(7)
    return [parity(ids)]
serve(score)
";
    let predictor = scorers.open(body).unwrap();
    let scores = predictor.predict(&ids(0..1000)).unwrap();
    assert_eq!(failed_rows(&scores), [3, 700]);
    assert_eq!(scores.failures[1].detail, "exited with status 7: cannot score 700");
    let right = |(row, &label): (usize, &u32)| label == row as u32 % 2 || label == NO_CLASS;
    assert!(labels(&scores).iter().enumerate().all(right));
    let other_batches: Vec<usize> = [0..3, 690..710]
        .into_iter()
        .flat_map(|range| {
            let scores = predictor.predict(&ids(range.clone())).unwrap();
            failed_rows(&scores).into_iter().map(move |row| row + range.start as usize)
        })
        .collect();
    assert_eq!(other_batches, [700], "whatever the batches");
}

#[test]
fn a_program_that_always_dies() {
    let Some(scorers) = Scorers::new() else { return };
    let body = "
open('starts', 'a').write('x')
def score(ids): raise ValueError('the model expects 12 columns')
serve(score)
";
    let mut program = scorers.job(body);
    program.retries = 1;
    let predictor = open(&program).unwrap();
    let message = predictor.predict(&ids(0..5000)).expect_err("it always dies").to_string();
    let expected = "scorer.py: answered none of 8 rows tried one by one; the last time it exited with status 1 on a batch of 1 row";
    assert_says(&message, &[expected, "\n    ValueError: the model expects 12 columns"]);
    assert!(fs::read(scorers.path("starts")).unwrap().len() <= 10);
}

#[test]
fn a_program_that_dies_once_is_tried_again() {
    let Some(scorers) = Scorers::new() else { return };
    let body = "
def score(ids):
    if not os.path.exists('died'):
        open('died', 'w').close()
        os._exit(1)
    return [parity(ids)]
serve(score)
";
    let mut program = scorers.job(body);
    program.retries = 1;
    let scores = open(&program).unwrap().predict(&ids(0..10)).unwrap();
    assert!(scores.failures.is_empty());
    assert_eq!(labels(&scores)[..4], [0, 1, 0, 1]);
}

#[test]
fn a_program_that_does_not_start_again() {
    let Some(scorers) = Scorers::new() else { return };
    let body = "
if os.path.exists('started'): sys.exit('the licence server is gone')
open('started', 'w').close()
serve(lambda ids: os._exit(1))
";
    let message = scorers.predict_error(body);
    let expected = "scorer.py: exited with status 1 in the handshake; its standard error ended with\n    the licence server is gone";
    assert_says(&message, &[expected]);
}

#[test]
fn a_program_that_comes_back_with_other_classes() {
    let Some(scorers) = Scorers::new() else { return };
    let body = "
if os.path.exists('started'): metadata['overturn.classes'] = '[1, 0]'
open('started', 'w').close()
serve(lambda ids: os._exit(1))
";
    assert_says(&scorers.predict_error(body), &["other classes than when it started first"]);
}

#[test]
fn a_flood_on_standard_error() {
    let Some(scorers) = Scorers::new() else { return };
    let body = "
def score(ids):
    for _ in range(300): sys.stderr.write('a line of a flood\\n' * 3000)
    return [parity(ids)]
serve(score)
";
    let scores = scorers.open(body).unwrap().predict(&ids(0..40)).unwrap();
    assert!(scores.failures.is_empty());
}
