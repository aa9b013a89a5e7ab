//! What comes from the program: the schema of its answers, checked once against the job, and each answer
//! turned into scores, row by row accounted for.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Schema};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};

use super::failure::Failure;
use super::protocol::{CLASSES_KEY, PROTOCOL_KEY, VERSION};
use crate::document::Literal;
use crate::job::{MOST_CLASSES, PredictorJob, ProbabilitiesSpec, TaskSpec};
use crate::predictor::{NO_CLASS, Outcome, RowFailure, Scores, Task};

/// How far probabilities may be from a sum of one: float32 models, and roundings to a few digits.
const SUM_TOLERANCE: f64 = 1e-3;

/// What a copy's answers are, as agreed in the handshake.
#[derive(Debug, Clone)]
pub(super) struct Contract {
    pub(super) task: Task,
    /// Position of `label` or `value`.
    answer: usize,
    /// Position of `probabilities`, if they are used.
    probabilities: Option<usize>,
    codes: HashMap<String, u32>,
    /// Columns of an answer, used or not.
    columns: usize,
}

/// Most bytes of an answer whatever its rows: metadata, dictionaries, padding.
const ANSWER_BYTES: usize = 32 << 20;

/// Most bytes of one row in one column; far more than labels and numbers take.
const CELL_BYTES: usize = 4 << 10;

/// Classes shown in a message.
const CLASSES_SHOWN: usize = 20;

/// Letters of a text of the program shown in a message.
const LETTERS_SHOWN: usize = 200;

impl Contract {
    /// Most bytes that the answer to so many rows may have: generous for any column, and for a list with
    /// a number per class.
    pub(super) fn most_bytes(&self, rows: usize) -> usize {
        let row = self.columns * (CELL_BYTES + 16 * self.codes.len());
        ANSWER_BYTES.saturating_add(rows.saturating_mul(row))
    }

    /// Checks the schema of a copy's answers against the job.
    pub(super) fn new(job: &PredictorJob, schema: &Schema) -> Result<Contract, Failure> {
        check_version(schema)?;
        match job.task {
            TaskSpec::Classification => Contract::classification(job, schema),
            TaskSpec::Regression => {
                let answer = column(schema, "value", DataType::is_numeric, "a number")?;
                let codes = HashMap::new();
                let (task, columns) = (Task::Regression, schema.fields().len());
                Ok(Contract { task, answer, probabilities: None, codes, columns })
            }
        }
    }

    fn classification(job: &PredictorJob, schema: &Schema) -> Result<Contract, Failure> {
        let answer = column(schema, "label", is_label, "text, a whole number or a boolean")?;
        let classes: Arc<[String]> = classes(job, schema)?.into();
        let probabilities = probabilities_column(job, schema, classes.len())?;
        let codes = classes.iter().cloned().zip(0..).collect();
        let task = Task::Classification { classes, probabilities: probabilities.is_some() };
        Ok(Contract { task, answer, probabilities, codes, columns: schema.fields().len() })
    }

    /// The scores of an answer. A row without a usable answer is a failure of that row.
    pub(super) fn scores(&self, answer: &RecordBatch) -> Result<Scores, Failure> {
        let mut reading = AnswerReader { contract: self, failures: HashMap::new() };
        let outcome = reading.outcome(answer).map_err(|error| {
            Failure::broke(format!("sent an answer that cannot be used: {error}"))
        })?;
        let mut failures: Vec<_> =
            reading.failures.into_iter().map(|(row, detail)| RowFailure { row, detail }).collect();
        failures.sort_unstable_by_key(|failure| failure.row);
        let mut scores = Scores { rows: answer.num_rows(), outcome, failures };
        blank_failures(&mut scores);
        Ok(scores)
    }
}

fn check_version(schema: &Schema) -> Result<(), Failure> {
    let failure = match schema.metadata().get(PROTOCOL_KEY).map(String::as_str) {
        Some(VERSION) => return Ok(()),
        Some(other) => {
            Failure::refused(format!("speaks protocol version `{other}`, expected `{VERSION}`"))
        }
        None => Failure::refused(format!(
            "its answers' schema has no metadata `{PROTOCOL_KEY}`, expected `{VERSION}`"
        )),
    };
    Err(failure.hint(format!("the schema's metadata must hold `{PROTOCOL_KEY}` = \"{VERSION}\"")))
}

fn column(
    schema: &Schema,
    name: &str,
    fits: fn(&DataType) -> bool,
    expected: &str,
) -> Result<usize, Failure> {
    let Ok(position) = schema.index_of(name) else {
        let found: Vec<_> =
            schema.fields().iter().map(|field| format!("`{}`", field.name())).collect();
        let found = if found.is_empty() { "none".to_string() } else { found.join(", ") };
        return Err(Failure::refused(format!(
            "its answers have no column `{name}`, found {found}, expected {expected}"
        ))
        .hint(
            "classifiers answer `label` and may add `probabilities`, regressors answer `value`",
        ));
    };
    let found = schema.field(position).data_type();
    if fits(found) {
        return Ok(position);
    }
    Err(Failure::refused(format!("its column `{name}` is {found}, expected {expected}")))
}

fn is_label(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => is_label(values),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Boolean => true,
        // Not only whole numbers: labels that passed through a data frame may have become floats.
        other => other.is_integer() || other.is_floating(),
    }
}

/// The program's classes, or the job's if it names none.
fn classes(job: &PredictorJob, schema: &Schema) -> Result<Vec<String>, Failure> {
    let Some(text) = schema.metadata().get(CLASSES_KEY) else {
        if !job.classes.is_empty() {
            return Ok(job.classes.clone());
        }
        return Err(Failure::refused("does not name its classes, and neither does the job").hint(
            format!("list them as `predictor.classes`, or in the metadata `{CLASSES_KEY}`"),
        ));
    };
    let literals: Vec<Literal> = serde_json::from_str(text).map_err(|_| {
        let text = shortened(text);
        let problem =
            format!("its metadata `{CLASSES_KEY}` is `{text}`, expected a JSON list of labels");
        Failure::refused(problem)
    })?;
    let classes: Vec<String> = literals.iter().map(Literal::to_string).collect();
    check_classes(job, &classes)?;
    Ok(classes)
}

fn check_classes(job: &PredictorJob, classes: &[String]) -> Result<(), Failure> {
    let sorted = |classes: &[String]| {
        let mut classes = classes.to_vec();
        classes.sort_unstable();
        classes
    };
    if classes.len() > MOST_CLASSES {
        let problem = format!("names {} classes, expected at most {MOST_CLASSES}", classes.len());
        return Err(Failure::refused(problem));
    }
    let unique = sorted(classes);
    if unique.len() < 2 || unique.windows(2).any(|pair| pair[0] == pair[1]) {
        let found = listed(classes);
        let problem = format!("its classes are `{found}`, expected at least two, each once");
        return Err(Failure::refused(problem));
    }
    if job.classes.is_empty() || unique == sorted(&job.classes) {
        return Ok(());
    }
    let (found, expected) = (listed(classes), listed(&job.classes));
    Err(Failure::refused(format!("its classes are `{found}`, expected `{expected}`"))
        .hint("`predictor.classes` may be left out: the program names its classes"))
}

/// Classes as a message names them: there may be many, and their names may be long.
fn listed(classes: &[String]) -> String {
    let shown: Vec<String> =
        classes.iter().take(CLASSES_SHOWN).map(|text| shortened(text)).collect();
    let rest = if classes.len() > CLASSES_SHOWN { ", …" } else { "" };
    format!("{}{rest}", shown.join(", "))
}

/// The beginning of a text that the program has written.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(LETTERS_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_string(),
    }
}

fn probabilities_column(
    job: &PredictorJob,
    schema: &Schema,
    classes: usize,
) -> Result<Option<usize>, Failure> {
    let found = schema.index_of("probabilities").ok();
    match (job.probabilities, found) {
        (ProbabilitiesSpec::None, _) | (ProbabilitiesSpec::Auto, None) => Ok(None),
        (ProbabilitiesSpec::Given, None) => Err(Failure::refused(
            "gives no probabilities, but `predictor.probabilities` is `given`",
        )
        .hint("add a column `probabilities` to its answers, or ask with `auto`")),
        (ProbabilitiesSpec::Auto | ProbabilitiesSpec::Given, Some(_)) => {
            let expected = "a list of floats";
            let position = column(schema, "probabilities", is_float_list, expected)?;
            match schema.field(position).data_type() {
                DataType::FixedSizeList(_, width) if *width as usize != classes => {
                    Err(Failure::refused(format!(
                        "its probabilities are {width} a row, expected {classes}, one for each class"
                    )))
                }
                _ => Ok(Some(position)),
            }
        }
    }
}

fn is_float_list(data_type: &DataType) -> bool {
    match data_type {
        DataType::FixedSizeList(item, _) | DataType::List(item) | DataType::LargeList(item) => {
            item.data_type().is_floating()
        }
        _ => false,
    }
}

/// One answer while it is read.
struct AnswerReader<'a> {
    contract: &'a Contract,
    /// The first fault of each row that has one.
    failures: HashMap<usize, String>,
}

impl AnswerReader<'_> {
    fn outcome(&mut self, answer: &RecordBatch) -> Result<Outcome, ArrowError> {
        let column = answer.column(self.contract.answer);
        let Task::Classification { classes, .. } = &self.contract.task else {
            return Ok(Outcome::Values(self.values(column)?));
        };
        let labels = self.labels(column)?;
        let probabilities = match self.contract.probabilities {
            Some(position) => Some(self.probabilities(answer.column(position), classes.len())?),
            None => None,
        };
        Ok(Outcome::Classes { labels, probabilities })
    }

    fn fail(&mut self, row: usize, detail: impl FnOnce() -> String) {
        self.failures.entry(row).or_insert_with(detail);
    }

    fn values(&mut self, column: &ArrayRef) -> Result<Vec<f64>, ArrowError> {
        let numbers = floats(column)?;
        let mut values = Vec::with_capacity(numbers.len());
        for (row, value) in numbers.iter().enumerate() {
            match value {
                None => self.fail(row, || "answered null, expected a number".to_string()),
                Some(value) if !value.is_finite() => {
                    self.fail(row, || format!("answered {value}, expected a finite number"));
                }
                Some(_) => {}
            }
            values.push(value.unwrap_or(f64::NAN));
        }
        Ok(values)
    }

    fn labels(&mut self, column: &ArrayRef) -> Result<Vec<u32>, ArrowError> {
        let (codes, keys) = match column.as_any_dictionary_opt() {
            Some(dictionary) if !dictionary.values().is_empty() => {
                (self.codes(dictionary.values())?, dictionary.normalized_keys())
            }
            Some(_) => (Vec::new(), Vec::new()),
            None => (self.codes(column)?, (0..column.len()).collect()),
        };
        let code = |row: usize| keys.get(row).map_or(NO_CLASS, |&key| codes[key]);
        let nulls = column.logical_nulls();
        let is_null = |row| nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
        let code = |row| if is_null(row) { NO_CLASS } else { code(row) };
        let labels: Vec<u32> = (0..column.len()).map(code).collect();
        self.unlabelled(column, &labels)?;
        Ok(labels)
    }

    /// The class of every value, [`NO_CLASS`] for one that is none.
    fn codes(&self, values: &ArrayRef) -> Result<Vec<u32>, ArrowError> {
        let codes = &self.contract.codes;
        let code = |text: &str| codes.get(text).copied().unwrap_or(NO_CLASS);
        if values.data_type().is_floating() {
            // As in the job file and the program's list of classes, where 1.0 is `1`.
            let values = floats(values)?;
            return Ok(values.values().iter().map(|value| code(&value.to_string())).collect());
        }
        let texts = cast(values, &DataType::Utf8)?;
        Ok(texts.as_string::<i32>().iter().map(|text| text.map_or(NO_CLASS, code)).collect())
    }

    /// Words the failures of the rows without a label.
    fn unlabelled(&mut self, column: &ArrayRef, labels: &[u32]) -> Result<(), ArrowError> {
        let options = FormatOptions::new().with_null("null");
        let formatter = ArrayFormatter::try_new(column, &options)?;
        let expected = match &self.contract.task {
            Task::Classification { classes, .. } => listed(classes),
            Task::Regression => String::new(),
        };
        for (row, _) in labels.iter().enumerate().filter(|&(_, &label)| label == NO_CLASS) {
            self.fail(row, || {
                let found = shortened(&formatter.value(row).to_string());
                format!("answered the label `{found}`, expected one of `{expected}`")
            });
        }
        Ok(())
    }

    fn probabilities(&mut self, column: &ArrayRef, width: usize) -> Result<Vec<f64>, ArrowError> {
        let lists = Lists::new(column)?;
        let mut probabilities = Vec::with_capacity(column.len() * width);
        for row in 0..column.len() {
            match lists.probabilities(row, width) {
                Ok(values) => probabilities.extend_from_slice(values),
                Err(detail) => {
                    probabilities.extend(std::iter::repeat_n(f64::NAN, width));
                    self.fail(row, || detail);
                }
            }
        }
        Ok(probabilities)
    }
}

/// A column of lists of floats, whichever kind of list.
struct Lists<'a> {
    column: &'a ArrayRef,
    values: Float64Array,
    /// Where each list begins, and the last one ends.
    offsets: Vec<usize>,
}

impl<'a> Lists<'a> {
    fn new(column: &'a ArrayRef) -> Result<Self, ArrowError> {
        if let Some(lists) = column.as_fixed_size_list_opt() {
            let width = lists.value_length() as usize;
            let offsets = (0..=lists.len()).map(|row| row * width).collect();
            return Ok(Lists { column, values: floats(lists.values())?, offsets });
        }
        let lists = cast(column, &DataType::new_large_list(DataType::Float64, true))?;
        let lists = lists.as_list::<i64>();
        let offsets = lists.offsets().iter().map(|&offset| offset as usize).collect();
        Ok(Lists { column, values: floats(lists.values())?, offsets })
    }

    /// The probabilities of a row, or what is wrong with them.
    fn probabilities(&self, row: usize, width: usize) -> Result<&[f64], String> {
        if self.column.is_null(row) {
            return Err("answered null, expected probabilities".to_string());
        }
        let range = self.offsets[row]..self.offsets[row + 1];
        if range.len() != width {
            return Err(format!("answered {} probabilities, expected {width}", range.len()));
        }
        if self.values.null_count() > 0 && range.clone().any(|at| self.values.is_null(at)) {
            return Err("answered a probability of null, expected 0 to 1".to_string());
        }
        let values = &self.values.values()[range];
        check_probabilities(values).map(|()| values)
    }
}

fn check_probabilities(values: &[f64]) -> Result<(), String> {
    let possible = -SUM_TOLERANCE..=1.0 + SUM_TOLERANCE;
    if let Some(value) = values.iter().find(|value| !possible.contains(value)) {
        return Err(format!("answered a probability of {value}, expected 0 to 1"));
    }
    let sum: f64 = values.iter().sum();
    if (sum - 1.0).abs() > SUM_TOLERANCE {
        return Err(format!("answered probabilities that sum to {sum}, expected 1"));
    }
    Ok(())
}

fn floats(column: &ArrayRef) -> Result<Float64Array, ArrowError> {
    Ok(cast(column, &DataType::Float64)?.as_primitive::<Float64Type>().clone())
}

/// A failed row has no answer at all, whatever part of it was usable.
fn blank_failures(scores: &mut Scores) {
    for RowFailure { row, .. } in &scores.failures {
        match &mut scores.outcome {
            Outcome::Values(values) => values[*row] = f64::NAN,
            Outcome::Classes { labels, probabilities } => {
                labels[*row] = NO_CLASS;
                if let Some(probabilities) = probabilities {
                    let width = probabilities.len() / scores.rows;
                    probabilities[row * width..][..width].fill(f64::NAN);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        BooleanArray, DictionaryArray, FixedSizeListArray, Float32Array, Int64Array, ListArray,
        StringArray,
    };
    use arrow::datatypes::{Field, Int8Type};

    use super::*;
    use crate::job::{PredictorKind, SubprocessJob};

    fn job(task: TaskSpec) -> PredictorJob {
        let program = SubprocessJob {
            command: Vec::new(),
            folder: "".into(),
            workers: 1,
            start_limit: std::time::Duration::ZERO,
            batch_limit: std::time::Duration::ZERO,
            retries: 0,
            max_failed_share: 0.0,
            environment: Vec::new(),
            sandbox: Default::default(),
            limits: Default::default(),
        };
        let (classes, kind) = (Vec::new(), PredictorKind::Subprocess(program));
        let repeatable = crate::job::RepeatableSpec::Off;
        PredictorJob { task, classes, probabilities: ProbabilitiesSpec::Auto, repeatable, kind }
    }

    fn answer(columns: Vec<(&str, ArrayRef)>, classes: &str) -> RecordBatch {
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let mut metadata = HashMap::from([(PROTOCOL_KEY.to_string(), VERSION.to_string())]);
        if !classes.is_empty() {
            metadata.insert(CLASSES_KEY.to_string(), classes.to_string());
        }
        let schema = batch.schema().as_ref().clone().with_metadata(metadata);
        batch.with_schema(Arc::new(schema)).unwrap()
    }

    fn read(answer: &RecordBatch) -> Scores {
        let contract = Contract::new(&job(TaskSpec::Classification), &answer.schema()).unwrap();
        contract.scores(answer).unwrap()
    }

    fn refusal(job: &PredictorJob, answer: &RecordBatch) -> String {
        Contract::new(job, &answer.schema()).expect_err("a wrong schema").problem
    }

    fn labels(scores: &Scores) -> Vec<u32> {
        match &scores.outcome {
            Outcome::Classes { labels, .. } => labels.clone(),
            Outcome::Values(_) => Vec::new(),
        }
    }

    fn pairs(values: Vec<Option<f32>>) -> ArrayRef {
        let item = Arc::new(Field::new_list_field(DataType::Float32, true));
        Arc::new(FixedSizeListArray::new(item, 2, Arc::new(Float32Array::from(values)), None))
    }

    #[test]
    fn labels_are_compared_as_text_whatever_their_type() {
        let dictionary: DictionaryArray<Int8Type> =
            [Some("1"), Some("0"), None].into_iter().collect();
        let columns: [(ArrayRef, &str); 5] = [
            (Arc::new(Int64Array::from(vec![Some(1), Some(0), None])), "[0, 1]"),
            (Arc::new(Float32Array::from(vec![Some(1.0), Some(0.0), None])), "[0.0, 1.0]"),
            (Arc::new(StringArray::from(vec![Some("1"), Some("0"), None])), r#"["0", "1"]"#),
            (Arc::new(BooleanArray::from(vec![Some(true), Some(false), None])), "[false, true]"),
            (Arc::new(dictionary), "[0, 1]"),
        ];
        for (column, classes) in columns {
            let scores = read(&answer(vec![("label", column)], classes));
            assert_eq!(labels(&scores), [1, 0, NO_CLASS]);
            assert_eq!(scores.failures.len(), 1);
            assert!(
                scores.failures[0].detail.starts_with("answered the label `null`, expected one of")
            );
        }
    }

    #[test]
    fn a_row_without_a_usable_answer_fails_alone() {
        let label: ArrayRef = Arc::new(StringArray::from(vec!["no", "yes", "maybe", "no", "no"]));
        let values = [1.0, 0.0, 0.25, 0.75, 0.5, 0.5, f32::NAN, 1.0, 0.25, 0.25];
        let probabilities = pairs(values.map(Some).to_vec());
        let columns = vec![("label", label), ("probabilities", probabilities)];
        let scores = read(&answer(columns, r#"["no", "yes"]"#));
        assert_eq!(labels(&scores), [0, 1, NO_CLASS, NO_CLASS, NO_CLASS]);
        let details: Vec<_> =
            scores.failures.iter().map(|failure| failure.detail.as_str()).collect();
        assert_eq!(
            details,
            [
                "answered the label `maybe`, expected one of `no, yes`",
                "answered a probability of NaN, expected 0 to 1",
                "answered probabilities that sum to 0.5, expected 1",
            ]
        );
        let Outcome::Classes { probabilities: Some(kept), .. } = scores.outcome else {
            panic!("probabilities were given");
        };
        assert_eq!(kept[..4], [1.0, 0.0, 0.25, 0.75]);
        assert!(kept[4..].iter().all(|value| value.is_nan()));
    }

    #[test]
    fn lists_of_varying_length_are_measured() {
        let label: ArrayRef = Arc::new(Int64Array::from(vec![0, 1, 1]));
        let rows = [vec![Some(0.5), Some(0.5)], vec![Some(1.0)], vec![None, Some(1.0)]];
        let lists = ListArray::from_iter_primitive::<Float64Type, _, _>(rows.map(Some));
        let columns = vec![("label", label), ("probabilities", Arc::new(lists) as ArrayRef)];
        let scores = read(&answer(columns, "[0, 1]"));
        assert_eq!(labels(&scores), [0, NO_CLASS, NO_CLASS]);
        assert_eq!(scores.failures[0].detail, "answered 1 probabilities, expected 2");
        assert_eq!(scores.failures[1].detail, "answered a probability of null, expected 0 to 1");
    }

    #[test]
    fn regression_values_must_be_finite() {
        let value: ArrayRef =
            Arc::new(Float32Array::from(vec![Some(1.5), None, Some(f32::INFINITY)]));
        let answer = answer(vec![("value", value)], "");
        let contract = Contract::new(&job(TaskSpec::Regression), &answer.schema()).unwrap();
        let scores = contract.scores(&answer).unwrap();
        assert!(matches!(&scores.outcome, Outcome::Values(values) if values[0] == 1.5));
        assert_eq!(scores.failures[1].detail, "answered inf, expected a finite number");
    }

    #[test]
    fn a_wrong_schema_is_refused() {
        let number: ArrayRef = Arc::new(Int64Array::from(vec![0]));
        let mut job = job(TaskSpec::Classification);
        let odd = answer(vec![("score", Arc::clone(&number))], "[0, 1]");
        assert_eq!(
            refusal(&job, &odd),
            "its answers have no column `label`, found `score`, expected text, a whole number or a boolean"
        );
        let nameless = answer(vec![("label", Arc::clone(&number))], "");
        assert_eq!(refusal(&job, &nameless), "does not name its classes, and neither does the job");
        let wide =
            vec![("label", Arc::clone(&number)), ("probabilities", pairs(vec![Some(0.5); 2]))];
        assert_eq!(
            refusal(&job, &answer(wide, "[0, 1, 2]")),
            "its probabilities are 2 a row, expected 3, one for each class"
        );
        job.classes = vec!["yes".to_string(), "no".to_string()];
        let other = answer(vec![("label", Arc::clone(&number))], "[0, 1]");
        assert_eq!(refusal(&job, &other), "its classes are `0, 1`, expected `yes, no`");
        job.classes.clear();
        job.probabilities = ProbabilitiesSpec::Given;
        assert_eq!(
            refusal(&job, &other),
            "gives no probabilities, but `predictor.probabilities` is `given`"
        );
        job.probabilities = ProbabilitiesSpec::Auto;
        let schema = other.schema().as_ref().clone().with_metadata(HashMap::new());
        let failure = Contract::new(&job, &schema).expect_err("no version");
        assert!(failure.problem.contains("no metadata `overturn.protocol`"), "{failure}");
    }

    #[test]
    fn the_jobs_classes_serve_where_the_program_names_none() {
        let number: ArrayRef = Arc::new(Int64Array::from(vec![7]));
        let mut job = job(TaskSpec::Classification);
        job.classes = vec!["9".to_string(), "7".to_string()];
        let answer = answer(vec![("label", number)], "");
        let contract = Contract::new(&job, &answer.schema()).unwrap();
        assert_eq!(labels(&contract.scores(&answer).unwrap()), [1]);
    }
}
