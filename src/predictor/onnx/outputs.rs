//! From the model's output tensors to answers. Outputs are found by type and role, never by name.

use ort::session::SessionOutputs;
use ort::value::{DynValue, Outlet, TensorElementType};

use super::graph::Graph;
use super::inputs::{Named, shape_of};
use super::labels::Labels;
use crate::error::{Error, Result};
use crate::job::{MOST_CLASSES, PredictorJob, ProbabilitiesSpec, TaskSpec};
use crate::predictor::{Outcome, RowFailure, Task};

/// How far from one the probabilities of a row may add up.
const SUM_TOLERANCE: f64 = 1e-3;

/// How a model's outputs become answers.
#[derive(Debug)]
pub(super) struct Outputs {
    /// The model's name in messages.
    model: String,
    task: Task,
    /// Output with the row's label and what its values mean; none if the best score decides.
    label: Option<(String, Labels)>,
    /// Output with a score per class, or with the value of a regression.
    scores: Option<String>,
    /// Output with scores that are not used beside a label, but must be numbers for it to mean anything.
    watched: Option<String>,
}

/// What a model gave for a batch, by the names of its outputs.
pub(super) trait Given {
    /// The numbers of an output; none if there is no such output.
    fn numbers(&self, output: &str) -> Option<Result<Vec<f64>, ort::Error>>;

    /// The classes of all labels of an output, or the label that is none of them.
    fn classes(
        &self,
        output: &str,
        labels: &Labels,
    ) -> Result<Result<Vec<u32>, String>, ort::Error>;
}

impl Given for SessionOutputs<'_> {
    fn numbers(&self, output: &str) -> Option<Result<Vec<f64>, ort::Error>> {
        self.get(output).map(numbers)
    }

    fn classes(
        &self,
        output: &str,
        labels: &Labels,
    ) -> Result<Result<Vec<u32>, String>, ort::Error> {
        labels.read(&self[output])
    }
}

/// A model whose outputs are to be understood.
#[derive(Clone, Copy)]
pub(super) struct OutputSearch<'a> {
    pub(super) outputs: Named<'a>,
    pub(super) graph: &'a Graph<'a>,
}

impl Outputs {
    /// Finds out which output is what.
    ///
    /// # Errors
    /// When the model does not give what the job expects of it.
    pub(super) fn plan(model: OutputSearch<'_>, job: &PredictorJob) -> Result<Outputs> {
        match job.task {
            TaskSpec::Regression => regression(model),
            TaskSpec::Classification => ClassifierOutputs::find(model).plan(job),
        }
    }

    /// What the answers mean.
    pub(super) fn task(&self) -> &Task {
        &self.task
    }

    /// The output with scores and the output with the label, as far as they are read.
    pub(super) fn names(&self) -> (Option<&str>, Option<&str>) {
        let scores = self.scores.as_deref().or(self.watched.as_deref());
        (scores, self.label.as_ref().map(|(name, _)| name.as_str()))
    }

    /// The answers for that many rows. Adds rows to the failures for which the model gave no number.
    pub(super) fn read(
        &self,
        outputs: &dyn Given,
        rows: usize,
        failures: &mut Vec<RowFailure>,
    ) -> Result<Outcome> {
        let Task::Classification { classes, probabilities } = &self.task else {
            let values = self.scores(outputs, rows, 1)?;
            failures.extend(not_finite(&values, 1, |score| !score.is_finite()));
            return Ok(Outcome::Values(values));
        };
        let scores = match self.scores {
            Some(_) => self.scores(outputs, rows, classes.len())?,
            None => Vec::new(),
        };
        if *probabilities {
            failures.extend(not_finite(&scores, classes.len(), |score| !score.is_finite()));
            self.check_distributions(&scores, classes.len())?;
        } else {
            // The logarithm of a probability of nought is a score.
            let watched = self.watched(outputs, rows, classes.len());
            let decisive = if self.scores.is_some() { &scores } else { &watched };
            let bad = |score: f64| score.is_nan() || score == f64::INFINITY;
            failures.extend(not_finite(decisive, classes.len(), bad));
        }
        let labels = match &self.label {
            Some((name, labels)) => self.labels(outputs, (name, labels), rows)?,
            None => scores.chunks_exact(classes.len()).map(best).collect(),
        };
        Ok(Outcome::Classes { labels, probabilities: probabilities.then_some(scores) })
    }

    fn labels(
        &self,
        outputs: &dyn Given,
        (name, labels): (&str, &Labels),
        rows: usize,
    ) -> Result<Vec<u32>> {
        let codes = outputs.classes(name, labels).map_err(|error| self.unreadable(error))?;
        let codes = codes.map_err(|label| {
            let problem = format!("gave the label `{label}`, which is not one of its classes");
            Error::predictor(&self.model, problem)
                .hint("name all classes in `predictor.classes`, in the order of the scores")
        })?;
        if codes.len() == rows { Ok(codes) } else { Err(self.miscounted(codes.len(), rows)) }
    }

    /// The scores, `width` to a row. One score for two classes is the probability of the second.
    fn scores(&self, outputs: &dyn Given, rows: usize, width: usize) -> Result<Vec<f64>> {
        let name = self.scores.as_deref().unwrap_or_default();
        let scores = outputs.numbers(name);
        let scores =
            scores.ok_or_else(|| Error::internal("scores", "of an output without a name"))?;
        let scores = scores.map_err(|error| self.unreadable(error))?;
        if scores.len() == rows * width {
            Ok(scores)
        } else if scores.len() == rows && width == 2 {
            Ok(scores.into_iter().flat_map(|positive| [1.0 - positive, positive]).collect())
        } else {
            Err(self.miscounted(scores.len(), rows * width))
        }
    }

    /// The scores beside a label that decides; none if they are not one for each class after all.
    fn watched(&self, outputs: &dyn Given, rows: usize, width: usize) -> Vec<f64> {
        let scores = self.watched.as_deref().and_then(|name| outputs.numbers(name));
        let scores = scores.and_then(Result::ok).unwrap_or_default();
        if scores.len() == rows && width == 2 {
            return scores.into_iter().flat_map(|score| [score; 2]).collect();
        }
        if scores.len() == rows * width { scores } else { Vec::new() }
    }

    fn check_distributions(&self, scores: &[f64], width: usize) -> Result<()> {
        let off = |row: &&[f64]| {
            let sum: f64 = row.iter().sum();
            let negative = row.iter().any(|score| *score < -SUM_TOLERANCE);
            // Rows that are not numbers have failed already and are not compared.
            sum.is_finite() && ((sum - 1.0).abs() > SUM_TOLERANCE || negative)
        };
        let Some(row) = scores.chunks_exact(width).find(off) else { return Ok(()) };
        let shown: Vec<String> = row.iter().take(5).map(|score| format!("{score:.4}")).collect();
        let problem = format!(
            "gave the scores {}, expected probabilities that add up to 1",
            shown.join(", ")
        );
        Err(Error::predictor(&self.model, problem)
            .hint("if its scores are margins or votes, set `predictor.probabilities = \"none\"`"))
    }

    fn miscounted(&self, found: usize, expected: usize) -> Error {
        let problem = format!("gave {found} values for a batch, expected {expected}");
        Error::predictor(&self.model, problem)
    }

    fn unreadable(&self, error: ort::Error) -> Error {
        Error::predictor(&self.model, "gave an output of another type than it declares")
            .source(error)
    }
}

/// Position of the highest score; the first of equals.
fn best(scores: &[f64]) -> u32 {
    let mut best = 0;
    for (index, score) in scores.iter().enumerate() {
        if *score > scores[best] {
            best = index;
        }
    }
    best as u32
}

/// Rows for which the model itself found no number, such as a linear model that met a null.
fn not_finite(
    scores: &[f64],
    width: usize,
    bad: impl Fn(f64) -> bool,
) -> impl Iterator<Item = RowFailure> {
    let rows = scores.chunks_exact(width).enumerate();
    rows.filter_map(move |(row, scores)| {
        let found = scores.iter().find(|score| bad(**score))?;
        let detail = if found.is_nan() {
            "the model's answer is not a number (NaN)".to_string()
        } else {
            format!("the model's answer is {found}, expected a finite number")
        };
        Some(RowFailure { row, detail })
    })
}

fn numbers(value: &DynValue) -> Result<Vec<f64>, ort::Error> {
    match value.dtype().tensor_type() {
        Some(TensorElementType::Float32) => {
            let (_, numbers) = value.try_extract_tensor::<f32>()?;
            Ok(numbers.iter().map(|number| f64::from(*number)).collect())
        }
        _ => value.try_extract_tensor::<f64>().map(|(_, numbers)| numbers.to_vec()),
    }
}

fn is_real(outlet: &Outlet) -> bool {
    use TensorElementType::{Float32, Float64};
    matches!(outlet.dtype().tensor_type(), Some(Float32 | Float64)) && shape_of(outlet).len() <= 2
}

/// Numbers per row that an output declares: `None` if it is left open.
fn width(outlet: &Outlet) -> Option<usize> {
    match shape_of(outlet) {
        [] => None,
        [_] => Some(1),
        [_, width, ..] => usize::try_from(*width).ok(),
    }
}

/// The outputs of a model, for messages.
fn described(outlets: &[Outlet]) -> String {
    let each = outlets.iter().map(|outlet| format!("`{}` {}", outlet.name(), outlet.dtype()));
    each.collect::<Vec<_>>().join(", ")
}

fn quoted(classes: &[String]) -> String {
    classes.iter().map(|class| format!("`{class}`")).collect::<Vec<_>>().join(", ")
}

fn regression(model: OutputSearch<'_>) -> Result<Outputs> {
    let Named { name, outlets } = model.outputs;
    if let Some(classes) = model.graph.labels_anywhere() {
        let problem =
            format!("is a classifier of {}, but the task is a regression", quoted(&classes));
        return Err(
            Error::predictor(name, problem).hint("set `predictor.task = \"classification\"`")
        );
    }
    let single = |outlet: &&Outlet| is_real(outlet) && width(outlet).is_none_or(|width| width == 1);
    let Some(value) = outlets.iter().find(single) else {
        let problem = format!(
            "has no output with one number per row, as a regression has; its outputs are {}",
            described(outlets)
        );
        return Err(Error::predictor(name, problem)
            .hint("if it is a classifier, set `predictor.task = \"classification\"`"));
    };
    Ok(Outputs {
        model: name.to_string(),
        task: Task::Regression,
        label: None,
        scores: Some(value.name().to_string()),
        watched: None,
    })
}

/// How many classes a model has that does not name them: as many as it gives scores for each row, and two where that
/// is one. None if it does not declare how many scores it gives.
///
/// # Errors
/// When it is no classifier.
pub(super) fn count_classes(model: OutputSearch<'_>) -> Result<Option<usize>> {
    let found = ClassifierOutputs::find(model);
    found.check_kind()?;
    Ok(found.scores.first().and_then(|scores| width(scores)).map(|scores| scores.max(2)))
}

/// The parts of a classifier, as found among its outputs.
struct ClassifierOutputs<'a> {
    model: OutputSearch<'a>,
    label: Option<&'a Outlet>,
    /// Every output that may hold scores.
    scores: Vec<&'a Outlet>,
}

impl<'a> ClassifierOutputs<'a> {
    fn find(model: OutputSearch<'a>) -> ClassifierOutputs<'a> {
        let outlets = model.outputs.outlets;
        let labels = || outlets.iter().filter(|outlet| Labels::may_be_in(outlet));
        let with_classes = |outlet: &&Outlet| model.graph.labels_behind(outlet.name()).is_some();
        let label = labels().find(with_classes).or_else(|| labels().next());
        ClassifierOutputs { model, label, scores: outlets.iter().filter(|o| is_real(o)).collect() }
    }

    fn plan(&self, job: &PredictorJob) -> Result<Outputs> {
        self.check_kind()?;
        let classes = self.classes(&job.classes)?;
        let scores = self.scores_of(classes.len());
        let probabilities = match (job.probabilities, scores) {
            (ProbabilitiesSpec::None, _) | (ProbabilitiesSpec::Auto, None) => false,
            (ProbabilitiesSpec::Given, None) => return Err(self.without_scores()),
            (ProbabilitiesSpec::Given, Some(_)) => true,
            (ProbabilitiesSpec::Auto, Some(scores)) => {
                self.model.graph.gives_probabilities(scores.name(), classes.len())
            }
        };
        let label = match self.label {
            Some(outlet) => Some((outlet.name().to_string(), self.labels(outlet, &classes)?)),
            None => None,
        };
        let auto = job.probabilities == ProbabilitiesSpec::Auto;
        let watched = scores.filter(|_| auto && !probabilities && label.is_some());
        let scores = scores.filter(|_| probabilities || label.is_none());
        if let Some(scores) = scores {
            self.check_width(scores, classes.len(), probabilities)?;
        }
        Ok(Outputs {
            model: self.name().to_string(),
            task: Task::Classification { classes: classes.into(), probabilities },
            label,
            scores: scores.map(|scores| scores.name().to_string()),
            watched: watched.map(|scores| scores.name().to_string()),
        })
    }

    fn name(&self) -> &'a str {
        self.model.outputs.name
    }

    /// A model without a label and with a single number per row may be a regression.
    fn check_kind(&self) -> Result<()> {
        let scores = self.scores.first();
        if self.label.is_some()
            || (scores.is_some() && self.model.graph.labels_anywhere().is_some())
        {
            return Ok(());
        }
        let several = |outlet: &Outlet| width(outlet).is_none_or(|width| width > 1);
        let probable = |outlet: &Outlet| self.model.graph.gives_probabilities(outlet.name(), 2);
        if scores.is_some_and(|outlet| several(outlet) || probable(outlet)) {
            return Ok(());
        }
        let problem = format!(
            "has no output with a label or a score per class; its outputs are {}",
            described(self.model.outputs.outlets)
        );
        Err(Error::predictor(self.name(), problem)
            .hint("if it is a regression, set `predictor.task = \"regression\"`"))
    }

    /// The classes, from the job or from the model; both must agree where both tell.
    fn classes(&self, given: &[String]) -> Result<Vec<String>> {
        let graph = self.model.graph;
        let outlets = self.label.into_iter().chain(self.scores.iter().copied());
        let mut behind = outlets.filter_map(|outlet| graph.labels_behind(outlet.name()));
        let labels_of_model = behind.next().or_else(|| graph.labels_anywhere());
        self.check_count(labels_of_model.as_deref())?;
        match (labels_of_model, given) {
            (Some(labels_of_model), []) => Ok(labels_of_model),
            (None, []) => Err(Error::predictor(self.name(), "does not tell its classes")
                .hint("name them in `predictor.classes`, in the order of the scores")),
            (Some(labels_of_model), given) if labels_of_model != given => {
                let problem = format!(
                    "has the classes {}, expected {}",
                    quoted(&labels_of_model),
                    quoted(given)
                );
                Err(Error::predictor(self.name(), problem)
                    .hint("take `predictor.classes` out of the job: the model has its own classes"))
            }
            (_, given) => Ok(given.to_vec()),
        }
    }

    fn check_count(&self, labels_of_model: Option<&[String]>) -> Result<()> {
        if labels_of_model.is_some_and(|labels_of_model| labels_of_model.len() > MOST_CLASSES) {
            let problem =
                format!("has more than {MOST_CLASSES} classes, which is the most there may be");
            return Err(Error::predictor(self.name(), problem)
                .hint("if it is a regression, set `predictor.task = \"regression\"`"));
        }
        Ok(())
    }

    fn scores_of(&self, classes: usize) -> Option<&'a Outlet> {
        let fits = |outlet: &&&Outlet| width(outlet) == Some(classes);
        let open = |outlet: &&&Outlet| width(outlet).is_none();
        let scores = &self.scores;
        let found = scores.iter().find(fits).or_else(|| scores.iter().find(open));
        found.or(scores.first()).copied()
    }

    fn labels(&self, outlet: &Outlet, classes: &[String]) -> Result<Labels> {
        Labels::new(outlet, classes).map_err(|class| {
            let problem = format!(
                "gives labels of {}, but `{class}` of `predictor.classes` is none",
                outlet.dtype()
            );
            Error::predictor(self.name(), problem)
                .hint("name the classes as the model does, in the order of its scores")
        })
    }

    fn without_scores(&self) -> Error {
        let problem = format!(
            "gives no scores, but `predictor.probabilities` is `given`; its outputs are {}",
            described(self.model.outputs.outlets)
        );
        Error::predictor(self.name(), problem).hint("set `predictor.probabilities = \"none\"`")
    }

    fn check_width(&self, scores: &Outlet, classes: usize, probabilities: bool) -> Result<()> {
        let Some(found) = width(scores) else { return Ok(()) };
        // A single margin tells which side it is on only by convention, so it needs a label beside it.
        let single = found == 1 && classes == 2 && probabilities;
        if found == classes || single {
            return Ok(());
        }
        let problem = format!(
            "gives {found} scores in `{}`, expected one for each of {classes} classes",
            scores.name()
        );
        Err(Error::predictor(self.name(), problem).hint(
            "see that `predictor.classes` is complete, or set `predictor.probabilities = \"none\"`",
        ))
    }
}
