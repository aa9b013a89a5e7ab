//! Which columns a model takes, and how.

use std::collections::{BTreeMap, BTreeSet};

use arrow::datatypes::{DataType, Field};
use serde_json::{Value, json};

use super::matrix::{MatrixFit, MatrixSearch};
use super::{Guess, InitModel, InitRequest, InitTable};
use crate::document::nearest;
use crate::engine::{InferOptions, Inferred, Table};
use crate::error::{Error, Fault, Kind, Result};
use crate::feature::{ColumnClass, classify};
use crate::job::{MatrixSpec, TaskSpec};
use crate::predictor::{
    ColumnPairs, InputElement, InterfaceInput, ModelAnswers, OnnxInterface, Task, pair_columns,
};

/// Names that a message lists, at most.
const MOST_NAMED: usize = 8;

/// What a model takes, as far as it tells.
pub(super) struct ModelInputs {
    takes: Takes,
    /// What it answers; none of a program that was not started yet.
    answers: Option<ModelAnswers>,
    /// The model's name in messages.
    model: String,
}

enum Takes {
    /// An input for each of these columns.
    Columns(Vec<InputPair>),
    /// One matrix, of that many numbers of each row where it is declared.
    Matrix(Option<usize>),
    /// All that it is given.
    All,
}

/// An input and the column that feeds it.
struct InputPair {
    input: String,
    column: String,
    /// Whether it takes texts, but the column is whole numbers.
    category: bool,
}

impl ModelInputs {
    /// Pairs a model's inputs with the columns of a table.
    ///
    /// # Errors
    /// When an input is fed by no column, or is of a kind that no column can feed.
    pub(super) fn find(
        request: &InitRequest,
        interface: Option<&OnnxInterface>,
        table: &Table,
    ) -> Result<ModelInputs> {
        let model = match &request.model {
            InitModel::Onnx(path) => path.display().to_string(),
            InitModel::Scorer(command) => command.join(" "),
        };
        let Some(interface) = interface else {
            return Ok(ModelInputs { takes: Takes::All, answers: None, model });
        };
        let names: Vec<&str> = table
            .schema
            .fields()
            .iter()
            .map(|field| field.name().as_str())
            .filter(|name| !request.ignore.iter().any(|ignored| ignored == name))
            .collect();
        let takes = match &interface.inputs[..] {
            [only] if is_matrix(only, &names) => Takes::Matrix(only.width()),
            inputs => {
                refuse_wide(&model, inputs)?;
                Takes::Columns(pairs(&model, inputs, (&names, table))?)
            }
        };
        Ok(ModelInputs { takes, answers: Some(interface.answers.clone()), model })
    }

    /// What it answers, if that is known.
    pub(super) fn task(&self) -> Option<Task> {
        self.answers.as_ref().map(|answers| match answers {
            ModelAnswers::Number => Task::Regression,
            ModelAnswers::Classes { labels, .. } => {
                Task::Classification { classes: labels.clone().into(), probabilities: false }
            }
        })
    }

    /// The columns that it takes, if it names them.
    pub(super) fn taken(&self) -> Option<BTreeSet<&str>> {
        match &self.takes {
            Takes::Columns(pairs) => Some(pairs.iter().map(|pair| pair.column.as_str()).collect()),
            Takes::Matrix(_) | Takes::All => None,
        }
    }

    /// Whether it takes whatever columns it is given.
    pub(super) fn takes_all(&self) -> bool {
        matches!(self.takes, Takes::All)
    }

    /// What has to become a feature.
    pub(super) fn needs(
        &self,
        table: &Table,
        orders: Vec<(Option<String>, Vec<String>)>,
    ) -> InferOptions {
        let mut options =
            InferOptions { max_categories: super::MOST_CATEGORIES, ..InferOptions::default() };
        match &self.takes {
            Takes::Columns(pairs) => {
                options.needed = pairs.iter().map(|pair| pair.column.clone()).collect();
                let categories = pairs.iter().filter(|pair| pair.category);
                options.categories = categories.map(|pair| pair.column.clone()).collect();
            }
            // Which of them are features is known only when they have been looked at.
            Takes::Matrix(_) => {
                // Where each column has an input of its own, the model encodes categories itself.
                options.orders = orders;
                let fields = table.schema.fields().iter();
                options.needed = fields
                    .filter(|field| classify(field.data_type()) != Some(ColumnClass::Text))
                    .map(|field| field.name().clone())
                    .collect();
            }
            Takes::All => {}
        }
        options
    }

    /// How the table's columns reach the model. Those that do not are added to `ignore`, with the reason.
    ///
    /// # Errors
    /// When they cannot fill its matrix.
    pub(super) fn form(
        &self,
        source: &InitTable<'_>,
        task: &Task,
        (ignore, label): (&mut BTreeMap<String, String>, Option<&Guess<String>>),
    ) -> Result<Guess<PredictorForm>> {
        let mut form = self.unfed_form(source, task);
        let why = match &self.takes {
            Takes::All => {
                ignore.extend(label.map(|label| (label.value.clone(), label_reason(label))));
                let why = "the program gets every column".to_string();
                return Ok(Guess { value: form, why: Some(why) });
            }
            Takes::Columns(pairs) => {
                form.inputs = FormInputs::Columns(renamed(pairs));
                form.features = pairs.iter().map(|pair| pair.column.clone()).collect();
                None
            }
            Takes::Matrix(width) => {
                let model = self.model.clone();
                let search = MatrixSearch { source, model, width: *width, ignore, label };
                Some(form.fill(search.fit()?))
            }
        };
        let features = &form.features;
        let left = source.profiles.iter().filter(|column| !features.contains(&column.name));
        for column in left {
            let reason = match label.filter(|label| label.value == column.name) {
                Some(label) => label_reason(label),
                None => "the model does not take it".to_string(),
            };
            ignore.entry(column.name.clone()).or_insert(reason);
        }
        // A key that the model takes is a feature, too.
        ignore.retain(|name, _| !features.contains(name));
        Ok(Guess { value: form, why })
    }

    /// Task and classes, without any feature.
    fn unfed_form(&self, source: &InitTable<'_>, task: &Task) -> PredictorForm {
        let task = match task {
            Task::Regression => TaskSpec::Regression,
            Task::Classification { .. } => TaskSpec::Classification,
        };
        let mut form = PredictorForm::program(Some(task), &source.request.classes);
        if let Some(ModelAnswers::Classes { labels, named: false }) = &self.answers {
            form.classes.clone_from(labels);
            form.unnamed = true;
        }
        form
    }
}

fn label_reason(label: &Guess<String>) -> String {
    let why = label.why.as_deref().unwrap_or_default();
    format!("it looks like the label: {why}")
}

/// Whether an input is a matrix of features, not a column: wide, or of no declared width and named like no column.
fn is_matrix(input: &InterfaceInput, names: &[&str]) -> bool {
    let column = pair_columns(&[&input.name], names).columns.into_iter().flatten().next().is_some();
    let undeclared = input.shape.len() != 1 && input.width().is_none();
    input.element == InputElement::Real
        && (input.width().is_some_and(|width| width > 1) || (undeclared && !column))
}

/// Refuses inputs of several columns beside others: which columns, nobody says.
fn refuse_wide(model: &str, inputs: &[InterfaceInput]) -> Result<()> {
    let wide = inputs.iter().filter(|input| input.width().is_some_and(|width| width > 1));
    let faults = wide.map(|input| {
        let problem = format!(
            "input `{}` takes {} values of each row, expected an input for each column, or one float matrix of all",
            input.name,
            input.width().unwrap_or(0)
        );
        Fault::new(model, problem).hint("export the model with one input for each column, of shape [None, 1]")
    });
    Error::from_faults(Kind::Predictor, faults.collect())
}

/// The column of each input.
fn pairs(
    model: &str,
    inputs: &[InterfaceInput],
    (names, table): (&[&str], &Table),
) -> Result<Vec<InputPair>> {
    let of_inputs: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
    let found = pair_columns(&of_inputs, names);
    let missing: Vec<&str> = of_inputs
        .iter()
        .zip(&found.columns)
        .filter(|(_, column)| column.is_none())
        .map(|(input, _)| *input)
        .collect();
    if !missing.is_empty() {
        return Err(lacking(model, (&missing, &found), (names, table)));
    }
    let pair = |(input, column): (&InterfaceInput, String)| {
        let field = table.schema.field_with_name(&column).map(Field::data_type);
        let integers = field.is_ok_and(DataType::is_integer);
        let category = input.element == InputElement::Text && integers;
        InputPair { input: input.name.clone(), column, category }
    };
    Ok(inputs.iter().zip(found.columns.into_iter().flatten()).map(pair).collect())
}

/// The table lacks inputs of the model.
fn lacking(
    model: &str,
    (missing, found): (&[&str], &ColumnPairs),
    (names, table): (&[&str], &Table),
) -> Error {
    let shown: Vec<String> =
        missing.iter().take(MOST_NAMED).map(|name| format!("`{name}`")).collect();
    let more = missing.len().saturating_sub(MOST_NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let what = if missing.len() == 1 { "the input" } else { "the inputs" };
    let problem = format!(
        "has no column for {what} {}{more} of {model}, expected one for each input",
        shown.join(", ")
    );
    let error = Error::input(&table.shown, problem);
    let alike: Vec<String> = missing
        .iter()
        .filter_map(|input| {
            let formed = found.alike.iter().filter(|(_, of)| of == input);
            let mut columns: Vec<&str> = formed.map(|(column, _)| column.as_str()).collect();
            columns.extend(nearest(input, names.iter().copied()).filter(|_| columns.is_empty()));
            let columns: Vec<String> = columns.iter().map(|name| format!("`{name}`")).collect();
            (!columns.is_empty())
                .then(|| format!("`{input}` looks like the column {}", columns.join(" or ")))
        })
        .collect();
    match &alike[..] {
        [] => error.hint("add what the model was trained with to the table"),
        alike => error.hint(format!(
            "{}: rename the column in the table, or write a schema by `overturn schema infer` and pair them in \
             `[predictor.rename]`",
            alike.join(", ")
        )),
    }
}

/// Columns whose inputs have other names.
fn renamed(pairs: &[InputPair]) -> BTreeMap<String, String> {
    let other = pairs.iter().filter(|pair| pair.input != pair.column);
    other.map(|pair| (pair.column.clone(), pair.input.clone())).collect()
}

/// How the model is asked: what the job's section `[predictor]` says.
pub(super) struct PredictorForm {
    pub(super) task: TaskSpec,
    /// Classes, where the model does not name them …
    pub(super) classes: Vec<String>,
    /// … and whether they are positions only.
    pub(super) unnamed: bool,
    pub(super) inputs: FormInputs,
    /// Columns that must become features.
    pub(super) features: Vec<String>,
}

/// How features reach the model.
pub(super) enum FormInputs {
    /// One input for each; column → input where the names differ.
    Columns(BTreeMap<String, String>),
    /// One matrix, with the columns in it that are numbers.
    Matrix(MatrixSpec, Vec<String>),
    /// As Arrow, by name.
    Program,
}

impl PredictorForm {
    /// A program that gets all columns.
    pub(super) fn program(task: Option<TaskSpec>, classes: &[String]) -> PredictorForm {
        PredictorForm {
            task: task.unwrap_or_default(),
            classes: classes.to_vec(),
            unnamed: false,
            inputs: FormInputs::Program,
            features: Vec::new(),
        }
    }

    /// Takes the columns of a matrix; gives why they are these.
    fn fill(&mut self, fit: MatrixFit<'_>) -> String {
        use ColumnClass::{Boolean, Text};
        let numbers =
            fit.features.iter().filter(|column| !matches!(column.class, Some(Text | Boolean)));
        let numbers = numbers.map(|column| column.name.clone()).collect();
        self.inputs = FormInputs::Matrix(fit.encoding, numbers);
        self.features = fit.features.iter().map(|column| column.name.clone()).collect();
        fit.why
    }

    /// The keys of `[predictor]`, and the argument that they come from.
    pub(super) fn settings(&self, model: &InitModel) -> (&'static str, Value) {
        let mut settings = json!({ "task": self.task, "classes": self.classes });
        let argument = match model {
            InitModel::Onnx(path) => {
                settings["kind"] = json!("onnx");
                settings["model"] = json!(path);
                "--model"
            }
            InitModel::Scorer(command) => {
                settings["kind"] = json!("subprocess");
                settings["command"] = json!(command);
                "--scorer"
            }
        };
        match &self.inputs {
            FormInputs::Program => {}
            FormInputs::Columns(rename) => settings["rename"] = json!(rename),
            FormInputs::Matrix(encoding, numbers) => {
                settings["inputs"] = json!("matrix");
                settings["encoding"] = json!(encoding);
                if *encoding == MatrixSpec::Standardised {
                    let as_it_is =
                        |name: &String| (name.clone(), json!({ "mean": 0.0, "std": 1.0 }));
                    settings["standardise"] =
                        numbers.iter().map(as_it_is).collect::<serde_json::Map<_, _>>().into();
                }
            }
        }
        (argument, settings)
    }

    /// Refuses a column that the model takes and that cannot be a feature.
    pub(super) fn refuse_left_out(
        &self,
        source: &InitTable<'_>,
        inferred: &Inferred,
    ) -> Result<()> {
        let left = inferred.left_out.iter().filter(|(name, _)| self.features.contains(name));
        let faults = left.map(|(name, reason)| {
            let problem =
                format!("column `{name}`, which the model takes, can be no feature: {reason}");
            Fault::new(&source.table.shown, problem)
        });
        Error::from_faults(Kind::Input, faults.collect())
    }
}
