//! Bare ONNX Runtime on tensors that are ready: no conversion of columns or answers is timed. A pass is
//! asked for with a number of threads, each of which has a session of its own.

use std::env;
use std::io::{BufRead, stdin};
use std::path::Path;
use std::process::Command;
use std::thread;

use arrow::array::types::Float32Type;
use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use ort::environment::Environment;
use ort::logging::LogLevel;
use ort::session::{Session, SessionInputValue};
use ort::value::{DynValue, Tensor};
use serde_json::json;

use crate::bar;
use crate::credit::{BATCH_ROWS, features, read};

/// The argument that makes a benchmark this process.
const ROLE: &str = "--alone";

/// Threads that can be asked for, at most.
const MOST_THREADS: usize = 2;

/// The input tensors of a batch, by name.
type Batch = Vec<(String, DynValue)>;

/// This program again, in this role.
pub(crate) fn command(model: &Path, table: &Path) -> Command {
    let mut command = Command::new(env::current_exe().expect("the benchmark knows itself"));
    command.arg(ROLE).arg(model).arg(table);
    command
}

/// Plays this role to its end, if that is what the program was started for.
pub(crate) fn serve() -> bool {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [role, model, table] = arguments.as_slice() else { return false };
    if role != ROLE {
        return false;
    }
    let environment = environment();
    let mut sessions: Vec<Session> =
        (0..MOST_THREADS).map(|_| session(&environment, Path::new(model))).collect();
    let batches: Vec<Batch> =
        read(Path::new(table), &features(), BATCH_ROWS).iter().map(tensors).collect();
    let approved: usize = batches.iter().map(|batch| approved(&mut sessions[0], batch)).sum();
    bar::say(&json!({ "approved": approved }).to_string());
    for line in stdin().lock().lines() {
        let threads = line.expect("a line").parse().expect("a number of threads");
        let seconds = bar::seconds(|| pass(&mut sessions[..threads], &batches));
        bar::say(&json!({ "seconds": seconds }).to_string());
    }
    true
}

fn environment() -> Environment {
    let library = env::var("OVERTURN_ONNXRUNTIME");
    let library = library.unwrap_or(env!("OVERTURN_ONNXRUNTIME_BUILT").to_string());
    let builder = ort::init_from(library).expect("ONNX Runtime is loaded").with_telemetry(false);
    let environment = builder.build().expect("an environment");
    environment.set_log_level(LogLevel::Warning);
    environment
}

/// A session as the adapter makes it for each of its threads.
fn session(environment: &Environment, model: &Path) -> Session {
    let builder = Session::builder(environment).expect("a session");
    let builder = builder.with_intra_threads(1).expect("one thread");
    let builder = builder.with_inter_threads(1).expect("one thread");
    let mut builder = builder.with_intra_op_spinning(false).expect("no spinning");
    builder.commit_from_file(model).expect("the model is loaded")
}

/// The columns as the demo's models take them: numbers as 32-bit floats, texts as texts.
fn tensors(batch: &RecordBatch) -> Batch {
    let names = batch.schema();
    let columns = names.fields().iter().zip(batch.columns());
    columns.map(|(field, column)| (field.name().clone(), tensor(column))).collect()
}

fn tensor(column: &ArrayRef) -> DynValue {
    let shape = [column.len(), 1];
    if let Some(texts) = column.as_string_opt::<i32>() {
        let texts: Vec<String> = texts.iter().flatten().map(str::to_string).collect();
        return Tensor::from_string_array((shape, texts.as_slice())).expect("a tensor").into_dyn();
    }
    let numbers = cast(column, &DataType::Float32).expect("numbers");
    let numbers = numbers.as_primitive::<Float32Type>().values().to_vec();
    Tensor::from_array((shape, numbers)).expect("a tensor").into_dyn()
}

fn inputs(batch: &Batch) -> Vec<(&str, SessionInputValue<'_>)> {
    batch.iter().map(|(name, tensor)| (name.as_str(), tensor.into())).collect()
}

/// Rows whose first class, `approved`, is more likely than the other.
fn approved(session: &mut Session, batch: &Batch) -> usize {
    let outputs = session.run(inputs(batch)).expect("scored");
    let probabilities = outputs[1].try_extract_tensor::<f32>().expect("probabilities").1;
    probabilities.chunks_exact(2).filter(|row| row[0] > row[1]).count()
}

/// All batches, shared evenly among the sessions.
fn pass(sessions: &mut [Session], batches: &[Batch]) {
    let share = batches.len().div_ceil(sessions.len());
    let score = |session: &mut Session, batches: &[Batch]| {
        for batch in batches {
            session.run(inputs(batch)).expect("scored");
        }
    };
    thread::scope(|scope| {
        for (session, batches) in sessions.iter_mut().zip(batches.chunks(share)) {
            scope.spawn(move || score(session, batches));
        }
    });
}
