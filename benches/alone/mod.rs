//! A model in a process of its own that times itself: what an adapter is compared with.
//!
//! Such a process reads the table and prepares everything before it is asked. It then says in a line of
//! JSON how many rows its model approves; from there on each line with a number asks for a pass over all
//! rows, and each line of the answer has the seconds that the model's calls took. A process of its own,
//! also for ONNX Runtime: there is one environment of it in a process, and it is the adapter's.

pub(crate) mod onnx;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::Deserialize;

/// A running process.
pub(crate) struct Alone {
    child: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// Rows that the model approves.
    pub(crate) approved: usize,
}

#[derive(Deserialize)]
struct Ready {
    approved: usize,
}

#[derive(Deserialize)]
struct Passed {
    seconds: f64,
}

impl Alone {
    /// Starts the process and waits until it is ready.
    pub(crate) fn start(command: &mut Command) -> Alone {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // What the subprocess adapter sets for one worker on one thread.
        for variable in ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"] {
            command.env(variable, "1");
        }
        let mut child = command.spawn().expect("the process starts");
        let questions = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().expect("its output is piped"));
        let mut alone = Alone { child, questions, answers, approved: 0 };
        alone.approved = alone.answer::<Ready>().approved;
        alone
    }

    /// The seconds of a pass over all rows. What the number means is the process's affair.
    pub(crate) fn pass(&mut self, number: usize) -> f64 {
        let questions = self.questions.as_mut().expect("asked before the end");
        writeln!(questions, "{number}").expect("the process listens");
        self.answer::<Passed>().seconds
    }

    fn answer<T: for<'a> Deserialize<'a>>(&mut self) -> T {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("the process answers");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: `{line}`"))
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.questions = None;
        let _ = self.child.wait();
    }
}
