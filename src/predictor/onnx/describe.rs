//! What an ONNX file tells of itself before there is a job: its inputs, what it answers, the order of its categories,
//! and which columns of a table could feed it.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ort::value::{Outlet, TensorElementType};

use super::graph::Graph;
use super::inputs::{Named, shape_of};
use super::names::{likely, same_form};
use super::outputs::{self, OutputSearch, Outputs};
use super::sessions::ModelFile;
use super::{categories, external, runtime};
use crate::error::{Error, Result};
use crate::job::{
    EngineSpec, OnnxInputs, OnnxJob, PredictorJob, PredictorKind, ProbabilitiesSpec,
    RepeatableSpec, TaskSpec,
};
use crate::predictor::Task;

/// What a model takes and answers.
#[derive(Debug, Clone, PartialEq)]
pub struct OnnxInterface {
    /// Its inputs, in the model's order.
    pub inputs: Vec<InterfaceInput>,
    /// What it answers.
    pub answers: ModelAnswers,
    /// Categories in the order of their codes, by the feature they belong to where the file says so.
    pub orders: Vec<(Option<String>, Vec<String>)>,
}

/// An input of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct InterfaceInput {
    /// Its name.
    pub name: String,
    /// What its elements are.
    pub element: InputElement,
    /// Its declared shape, -1 where it is free; empty if nothing is declared.
    pub shape: Vec<i64>,
}

impl InterfaceInput {
    /// Whether it takes several numbers of each row, or any number of them.
    pub fn is_wide(&self) -> bool {
        self.shape.get(1).is_some_and(|width| *width != 1)
    }

    /// How many numbers of each row it takes, where that is declared.
    pub fn width(&self) -> Option<usize> {
        self.shape.get(1).and_then(|width| usize::try_from(*width).ok())
    }
}

/// What the elements of an input are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputElement {
    /// Texts.
    Text,
    /// Numbers.
    Real,
    /// Whole numbers, booleans, and what no column can be.
    Other,
}

/// What a model answers.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelAnswers {
    /// One of these classes.
    Classes {
        /// In the order of the scores.
        labels: Vec<String>,
        /// Whether the model or the user names them; otherwise they are the positions of the scores.
        named: bool,
    },
    /// A number.
    Number,
}

/// Reads what a model takes and answers. The task and the classes are asked of the model where they are not given.
///
/// # Errors
/// When the file cannot be used, or its answers cannot be understood.
pub fn describe_onnx(
    model: &Path,
    task: Option<TaskSpec>,
    classes: &[String],
) -> Result<OnnxInterface> {
    runtime::environment()?;
    let mut file = ModelFile::read(model)?;
    let name = file.name.clone();
    let broken = |error| external::broken(&name, error);
    let zipped = file.unzip()?;
    let delivered = zipped.as_ref().unwrap_or(&file.bytes);
    let graph = Graph::read(delivered).map_err(broken)?;
    let known = categories::known(delivered).map_err(broken)?;
    let pool = file.load(1)?;
    let session = &pool.lease(1)[0].session;
    let gives = Named { name: &name, outlets: session.outputs() };
    let search = OutputSearch { outputs: gives, graph: &graph };
    Ok(OnnxInterface {
        inputs: session.inputs().iter().map(input).collect(),
        answers: answers(search, task, classes)?,
        orders: known.into_iter().map(|list| (list.feature, list.values)).collect(),
    })
}

fn input(outlet: &Outlet) -> InterfaceInput {
    let element = match outlet.dtype().tensor_type() {
        Some(TensorElementType::String) => InputElement::Text,
        Some(TensorElementType::Float32 | TensorElementType::Float64) => InputElement::Real,
        _ => InputElement::Other,
    };
    let shape = shape_of(outlet).to_vec();
    InterfaceInput { name: outlet.name().to_string(), element, shape }
}

fn answers(
    model: OutputSearch<'_>,
    task: Option<TaskSpec>,
    classes: &[String],
) -> Result<ModelAnswers> {
    let numbers = || Outputs::plan(model, &job_for(TaskSpec::Regression, &[]));
    if task == Some(TaskSpec::Regression) {
        return numbers().map(|_| ModelAnswers::Number);
    }
    let unnamed = match Outputs::plan(model, &job_for(TaskSpec::Classification, classes)) {
        Ok(outputs) => return Ok(named(&outputs)),
        Err(error) => error,
    };
    if !classes.is_empty() || model.graph.labels_anywhere().is_some() {
        return Err(unnamed);
    }
    let outlets = model.outputs.outlets;
    let probable = outlets.iter().any(|outlet| squashes(model.graph, outlet.name()));
    if task.is_none() && !probable && numbers().is_ok() {
        return Ok(ModelAnswers::Number);
    }
    let Some(count) = outputs::count_classes(model)? else {
        return Err(Error::predictor(model.outputs.name, "does not tell its classes")
            .hint("name them by `--class`, each by its own, in the order of the scores"));
    };
    let labels: Vec<String> = (0..count).map(|class| class.to_string()).collect();
    Outputs::plan(model, &job_for(TaskSpec::Classification, &labels))?;
    Ok(ModelAnswers::Classes { labels, named: false })
}

fn named(outputs: &Outputs) -> ModelAnswers {
    match outputs.task() {
        Task::Classification { classes, .. } => {
            ModelAnswers::Classes { labels: classes.to_vec(), named: true }
        }
        Task::Regression => ModelAnswers::Number,
    }
}

/// A job of which only the answers count.
fn job_for(task: TaskSpec, classes: &[String]) -> PredictorJob {
    PredictorJob {
        task,
        classes: classes.to_vec(),
        probabilities: ProbabilitiesSpec::Auto,
        repeatable: RepeatableSpec::Off,
        kind: PredictorKind::Onnx(OnnxJob {
            model: PathBuf::new(),
            inputs: OnnxInputs::Raw,
            null_text: String::new(),
            engine: EngineSpec::OnnxRuntime,
            batch_limit: Duration::MAX,
        }),
    }
}

/// Operators between an output and what makes its numbers, at most.
const MOST_OPERATORS: usize = 20;

/// Whether the operator that makes an output's numbers turns scores into probabilities.
fn squashes(graph: &Graph<'_>, output: &str) -> bool {
    let mut name = output;
    for _ in 0..MOST_OPERATORS {
        let Some(node) = graph.producer(name) else { return false };
        match (node.operator, node.inputs.first()) {
            ("Sigmoid" | "Softmax", _) => return true,
            (
                "Identity" | "Cast" | "Reshape" | "Squeeze" | "Unsqueeze" | "Flatten",
                Some(input),
            ) => name = input,
            _ => return false,
        }
    }
    false
}

/// Which columns of a table feed a model's inputs, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnPairs {
    /// The column of each input, in the model's order.
    pub columns: Vec<Option<String>>,
    /// Columns and inputs without a partner whose names are alike.
    pub alike: Vec<(String, String)>,
}

/// Pairs inputs with columns as opening a model pairs them with features: by their names, or where names differ only
/// in characters that exporters replace and one pairing alone fits.
pub fn pair_columns(inputs: &[&str], columns: &[&str]) -> ColumnPairs {
    let present: HashSet<&str> = columns.iter().copied().collect();
    let taken: HashSet<&str> = inputs.iter().copied().collect();
    let unfed: Vec<&str> = inputs.iter().copied().filter(|name| !present.contains(name)).collect();
    let free: Vec<&str> = columns.iter().copied().filter(|name| !taken.contains(name)).collect();
    let by_form = same_form(&unfed, &free);
    let column = |input: &&str| {
        let same = present.contains(input).then(|| (*input).to_string());
        let formed = || by_form.iter().find(|(_, name)| name == input).map(|(one, _)| one.clone());
        same.or_else(formed)
    };
    let left = |name: &&str| !by_form.iter().any(|(one, two)| one == name || two == name);
    let unfed: Vec<&str> = unfed.into_iter().filter(left).collect();
    let free: Vec<&str> = free.into_iter().filter(left).collect();
    let alike = likely(&unfed, &free).into_iter();
    ColumnPairs {
        columns: inputs.iter().map(column).collect(),
        alike: alike.map(|(column, input)| (column.to_string(), input.to_string())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_feed_inputs_of_their_name_or_of_its_exported_form() {
        let found = pair_columns(
            &["age", "hours_per_week", "income"],
            &["id", "hours-per-week", "age", "incomes"],
        );
        let text = |name: &str| Some(name.to_string());
        assert_eq!(found.columns, [text("age"), text("hours-per-week"), None]);
        assert_eq!(found.alike, [("incomes".to_string(), "income".to_string())]);
        let two = pair_columns(&["a_b"], &["a-b", "a b"]);
        assert_eq!(two.columns, [None], "nobody knows which");
        assert_eq!(two.alike.len(), 2);
    }
}
