//! The text of a first job, with comments.

use std::fmt::Write;
use std::path::Path;

use super::inputs::FormInputs;
use super::target::class_value;
use super::{FirstJob, Guess, InitModel, InitSummary, InitTable, RESULTS, SCHEMA};
use crate::document::toml_text;
use crate::feature::{ColumnClass, sql_name};
use crate::job::{MatrixSpec, TaskSpec};
use crate::output::resolved;
use crate::predictor::Task;

/// Characters of a line, about.
const WIDTH: usize = 110;

/// Share of rows without an answer from which a run would refuse the job, as `input.max_reject_share` has it.
const MOST_FAILED: f64 = 0.05;

impl FirstJob {
    /// The job file.
    pub(super) fn job_text(&self, source: &InitTable<'_>) -> String {
        let mut text = String::new();
        comment(
            &mut text,
            "A first job, written by `overturn init`. What it guessed is marked as such: check it. `overturn schema \
             show job --markdown` prints every key.",
        );
        self.input(source, &mut text);
        self.predictor(source, &mut text);
        self.target(&mut text);
        self.report(&mut text);
        text.push_str("\n[output]\n");
        comment(&mut text, "The folder that appears, whole, when the job is done.");
        let _ = writeln!(text, "dir = {}", value(RESULTS));
        text
    }

    /// The feature schema file.
    pub(super) fn schema_text(&self) -> String {
        format!("{}{}", self.inferred.text, self.rules)
    }

    fn input(&self, source: &InitTable<'_>, text: &mut String) {
        text.push_str("\n[input]\n");
        comment(
            text,
            "The table: a Parquet file, a folder, a glob, or a list of those. Relative paths start from this \
                       file's folder.",
        );
        let folder = &source.request.folder;
        let _ = writeln!(text, "features = {}", value(&path_from(folder, &source.request.table)));
        comment(text, "What its columns mean, and what a counterfactual may change about them.");
        let _ = writeln!(text, "schema = {}", value(SCHEMA));
        comment(text, "The column or columns that identify a row.");
        guessed(text, self.key.why.as_deref());
        let _ = writeln!(text, "key = {}", one_or_many(&self.key.value));
        if let Some(time) = source.profiles.iter().find(|of| of.class == Some(ColumnClass::Time)) {
            comment(text, "Only some of the rows: an SQL predicate over the columns of the table.");
            let _ = writeln!(
                text,
                "# where = {}",
                value(&format!("{} >= date '2026-01-01'", sql_name(&time.name)))
            );
        }
        if let Some((failed, detail)) = self.first_predictions.failed() {
            let rows = self.first_predictions.scores.rows;
            comment(
                text,
                &format!(
                    "The model gives no prediction for {failed} of the first {rows} rows ({detail}). Such \
                                    rows are rejected; a run with more than this share of them fails."
                ),
            );
            let _ = writeln!(text, "# max_reject_share = {MOST_FAILED}");
        }
    }

    fn predictor(&self, source: &InitTable<'_>, text: &mut String) {
        let (folder, form) = (&source.request.folder, &self.form.value);
        text.push_str("\n[predictor]\n");
        match &source.request.model {
            InitModel::Onnx(path) => {
                let model = value(&path_from(folder, &path.display().to_string()));
                let _ = writeln!(text, "kind = \"onnx\"\nmodel = {model}");
            }
            InitModel::Scorer(command) => {
                comment(
                    text,
                    "A program that reads and writes Arrow, and its arguments. It is started in this file's \
                               folder.",
                );
                let command: Vec<String> =
                    command.iter().map(|word| value(&word_from(folder, word))).collect();
                let _ = writeln!(text, "kind = \"subprocess\"\ncommand = [{}]", command.join(", "));
            }
        }
        if form.task == TaskSpec::Regression {
            text.push_str("task = \"regression\"\n");
        }
        if !form.classes.is_empty() {
            let why = "the model does not name its classes: these are the positions of its scores; name them in \
                       that order";
            guessed(text, form.unnamed.then_some(why));
            let classes: Vec<String> =
                form.classes.iter().map(|class| escaped(class_value(class))).collect();
            let _ = writeln!(text, "classes = [{}]", classes.join(", "));
        }
        guessed(text, self.form.why.as_deref());
        text.push_str(&inputs_text(&form.inputs));
    }

    fn target(&self, text: &mut String) {
        text.push_str("\n[target]\n");
        comment(text, "What the model should predict.");
        if let Task::Classification { classes, .. } = &self.first_predictions.task {
            let counts = self.first_predictions.counts();
            let shown: Vec<String> = classes
                .iter()
                .zip(counts)
                .take(20)
                .map(|(class, count)| format!("{class} ({count})"))
                .collect();
            let rows = self.first_predictions.scores.rows;
            let of = format!(
                "Classes, with how many of the first {rows} rows have them: {}.",
                shown.join(", ")
            );
            comment(text, &of);
        }
        guessed(text, self.target.why.as_deref());
        let _ = writeln!(text, "{}", escaped(self.target.value.clone()));
        for line in self.other_targets() {
            if !self.target.value.starts_with(line.split(' ').next().unwrap_or_default()) {
                let _ = writeln!(text, "# {}", escaped(line));
            }
        }
    }

    /// Other ways to say what the model should predict.
    fn other_targets(&self) -> Vec<String> {
        match &self.first_predictions.task {
            Task::Regression => vec!["value = 0.0 # and tolerance = 1.0".to_string()],
            Task::Classification { classes, .. } => {
                let first = classes.first().map_or(String::new(), |class| class_value(class));
                let mut lines = vec![format!("class = {first} # for every row")];
                lines.extend(
                    (classes.len() == 2).then(|| "flip = true # the other class".to_string()),
                );
                lines.push(
                    "every = true # every other class, a counterfactual for each".to_string(),
                );
                lines
            }
        }
    }

    fn report(&self, text: &mut String) {
        text.push_str("\n[report]\n");
        comment(text, "Reports have figures for the rows with each value of these columns, too.");
        guessed(text, self.segments.why.as_deref());
        let by: Vec<String> = self.segments.value.iter().map(|name| value(name)).collect();
        let _ = writeln!(text, "by = [{}]", by.join(", "));
    }

    /// What is said when both files are written.
    pub(super) fn summary(self, rows: u64, [job, schema]: [&Path; 2]) -> InitSummary {
        let (classes, probabilities) = match &self.first_predictions.task {
            Task::Classification { classes, probabilities } => (classes.to_vec(), *probabilities),
            Task::Regression => (Vec::new(), false),
        };
        InitSummary {
            job: job.display().to_string(),
            schema: schema.display().to_string(),
            rows,
            guesses: self.guesses(),
            remarks: self.remarks(),
            key: self.key.value,
            classes,
            probabilities,
            features: self.inferred.features,
            left_out: self.inferred.left_out,
            target: self.target.value,
            segments: self.segments.value,
        }
    }

    /// What a run will stumble over.
    fn remarks(&self) -> Vec<String> {
        let rows = self.first_predictions.scores.rows;
        let failed = self.first_predictions.failed().map(|(failed, detail)| {
            format!("the model gives no prediction for {failed} of the first {rows} rows: {detail}")
        });
        let same = self.first_predictions.only_class().map(|class| {
            format!(
                "the model predicts `{class}` for all of the first {rows} rows: check that columns and their order \
                 are those of training"
            )
        });
        failed.into_iter().chain(same).collect()
    }

    /// Every guess as a sentence.
    fn guesses(&self) -> Vec<String> {
        let classes = self.form.value.unnamed.then(|| {
            format!("classes {}: the model does not name them", self.form.value.classes.join(", "))
        });
        let label =
            self.label.as_ref().and_then(|label| said("label", &label.value, label.why.as_deref()));
        let pairs = match &self.form.value.inputs {
            FormInputs::Columns(pairs) => pairs.iter().collect(),
            _ => Vec::new(),
        };
        let pairs: Vec<String> =
            pairs.iter().map(|(column, input)| format!("`{column}` feeds `{input}`")).collect();
        let pairs = (!pairs.is_empty()).then(|| format!("inputs: {}", pairs.join(", ")));
        let key = said("key", &self.key.value.join(", "), self.key.why.as_deref());
        let features = self.form.why.as_ref().map(|why| format!("features: {why}"));
        let target = said("target", &self.target.value, self.target.why.as_deref());
        let segments = match &self.segments {
            Guess { value, why } if value.is_empty() => {
                why.as_ref().map(|why| format!("no segments: {why}"))
            }
            Guess { value, why } => said("segments", &value.join(", "), why.as_deref()),
        };
        [key, features, pairs, classes, label, target, segments].into_iter().flatten().collect()
    }
}

fn said(what: &str, value: &str, why: Option<&str>) -> Option<String> {
    why.map(|why| format!("{what} {value}: {why}"))
}

/// The keys that say how features reach the model.
fn inputs_text(inputs: &FormInputs) -> String {
    let mut text = String::new();
    match inputs {
        FormInputs::Program => {}
        FormInputs::Columns(rename) => {
            text.push_str("inputs = \"columns\"\n");
            if !rename.is_empty() {
                text.push_str(
                    "\n# guessed: names that differ only in characters that exporters replace\n",
                );
                text.push_str("[predictor.rename]\n");
            }
            for (column, input) in rename {
                let _ = writeln!(text, "{} = {}", toml_text(column), value(input));
            }
        }
        FormInputs::Matrix(encoding, numbers) => {
            let name = match encoding {
                MatrixSpec::Raw => "raw",
                MatrixSpec::Codes => "codes",
                MatrixSpec::Standardised => "standardised",
            };
            let _ = writeln!(text, "inputs = \"matrix\"\nencoding = \"{name}\"");
            if *encoding == MatrixSpec::Standardised && !numbers.is_empty() {
                text.push_str("\n# guessed: numbers as they are; if training scaled them, write its mean and std\n");
                text.push_str("[predictor.standardise]\n");
                for name in numbers {
                    let _ = writeln!(text, "{} = {{ mean = 0.0, std = 1.0 }}", toml_text(name));
                }
            }
        }
    }
    text
}

/// A text in quotes; `${` is a placeholder in a job.
fn value(text: &str) -> String {
    escaped(toml_text(text))
}

fn escaped(text: String) -> String {
    text.replace("${", "$${")
}

fn one_or_many(names: &[String]) -> String {
    match names {
        [name] => value(name),
        names => {
            let names: Vec<String> = names.iter().map(|name| value(name)).collect();
            format!("[{}]", names.join(", "))
        }
    }
}

fn guessed(text: &mut String, why: Option<&str>) {
    if let Some(why) = why {
        comment(text, &format!("guessed: {why}"));
    }
}

/// A comment, in lines.
fn comment(text: &mut String, words: &str) {
    let mut line = String::from("#");
    for word in words.split_whitespace() {
        if line.len() + 1 + word.len() > WIDTH && line.len() > 1 {
            let _ = writeln!(text, "{line}");
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    let _ = writeln!(text, "{line}");
}

/// A path of the command line as a file in that folder names it.
fn path_from(folder: &Path, path: &str) -> String {
    let here = resolved(folder).ok().zip(resolved(Path::new(".")).ok());
    if here.is_some_and(|(folder, current)| folder == current) {
        return path.to_string();
    }
    std::path::absolute(path).map_or(path.to_string(), |path| path.display().to_string())
}

/// A word of a command: the name of a file stays that file's in another folder.
fn word_from(folder: &Path, word: &str) -> String {
    if Path::new(word).is_file() { path_from(folder, word) } else { word.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_broken_into_lines() {
        let mut text = String::new();
        comment(&mut text, &"four ".repeat(50));
        assert!(
            text.lines().all(|line| line.starts_with("# four") && line.len() <= WIDTH),
            "{text}"
        );
        assert_eq!(text.matches("four").count(), 50);
    }

    #[test]
    fn placeholders_are_escaped() {
        assert_eq!(value("a${b}"), "\"a$${b}\"");
    }
}
