//! How many counterfactuals hold under other trainings of the model, as a table.

use std::collections::BTreeMap;

use arrow::array::RecordBatch;
use serde::{Deserialize, Serialize};

use super::columns::ReportColumns;
use super::share;
use crate::error::Result;
use crate::metrics::wilson;
use crate::output::survival_schema;

/// Another training of the model, and what it decides about counterfactuals.
#[derive(Debug, Clone, PartialEq)]
pub struct Retrained {
    /// Its file or command.
    pub model: String,
    /// Its SHA-256.
    pub sha256: String,
    /// By target: valid counterfactuals, and those that it decides as the target.
    pub targets: BTreeMap<String, (u64, u64)>,
}

/// How many of the valid counterfactuals other trainings of the model decide as the target.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Survival {
    /// Models asked.
    pub models: usize,
    /// Mean share over the models.
    pub mean: f64,
    /// Share of the model under which the fewest hold.
    pub least: f64,
    /// Share of the model under which the most hold.
    pub most: f64,
}

impl Survival {
    /// The figures of a target, or of all; none without models or counterfactuals.
    pub fn of(models: &[Retrained], target: Option<&str>) -> Option<Survival> {
        let counts = models.iter().map(|model| model.counts(target));
        let shares: Vec<f64> =
            counts.filter(|(rows, _)| *rows > 0).map(|(rows, held)| share(held, rows)).collect();
        let mean = shares.iter().sum::<f64>() / shares.len().max(1) as f64;
        let (least, most) = (shares.iter().copied(), shares.iter().copied());
        let (least, most) = (least.reduce(f64::min)?, most.reduce(f64::max)?);
        Some(Survival { models: shares.len(), mean, least, most })
    }
}

impl Retrained {
    fn counts(&self, target: Option<&str>) -> (u64, u64) {
        let matching = self.targets.iter().filter(|(name, _)| target.is_none_or(|of| of == *name));
        matching.fold((0, 0), |sum, (_, counts)| (sum.0 + counts.0, sum.1 + counts.1))
    }
}

/// A row for the mean over the models and for each of them: of all counterfactuals, and by target.
///
/// # Errors
/// Only if there is a bug.
pub fn survival(models: &[Retrained], method: &str) -> Result<RecordBatch> {
    let mut columns = ReportColumns::default();
    let targets = models.first().into_iter().flat_map(|model| model.targets.keys());
    for target in std::iter::once(None).chain(targets.map(|target| Some(target.as_str()))) {
        let level = if target.is_some() { "target" } else { "all" };
        let found = Survival::of(models, target);
        let rows = models.first().map_or(0, |model| model.counts(target).0);
        let mean = [found.map(|of| of.mean), found.map(|of| of.least), found.map(|of| of.most)];
        columns.text(Some(method));
        columns.survival((level, target), None, rows, mean);
        for model in models {
            let (rows, held) = model.counts(target);
            let interval = wilson(held, rows);
            let held = (rows > 0).then(|| share(held, rows));
            let figures = [held, Some(interval.low), Some(interval.high)];
            columns.text(Some(method));
            columns.survival((level, target), Some(model), rows, figures);
        }
    }
    columns.finish(survival_schema())
}

impl ReportColumns {
    fn survival(
        &mut self,
        level: (&str, Option<&str>),
        model: Option<&Retrained>,
        rows: u64,
        figures: [Option<f64>; 3],
    ) {
        self.text(Some(level.0));
        self.text(level.1);
        self.text(model.map(|model| model.model.as_str()));
        self.text(model.map(|model| model.sha256.as_str()));
        self.count(rows);
        figures.into_iter().for_each(|figure| self.number(figure));
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, AsArray};
    use arrow::datatypes::Float64Type;

    use super::*;

    fn model(name: &str, yes: (u64, u64), no: (u64, u64)) -> Retrained {
        let targets = [("yes".to_string(), yes), ("no".to_string(), no)].into();
        Retrained { model: name.to_string(), sha256: "0".to_string(), targets }
    }

    #[test]
    fn the_mean_the_worst_and_every_model_are_told() {
        let models = [model("a", (8, 4), (2, 2)), model("b", (8, 8), (2, 1))];
        let all = Survival::of(&models, None).expect("asked");
        assert_eq!((all.models, all.mean, all.least, all.most), (2, 0.75, 0.6, 0.9));
        assert_eq!(Survival::of(&models, Some("yes")).map(|of| of.least), Some(0.5));
        let table = survival(&models, "cfrl").expect("a table");
        assert_eq!(table.num_rows(), 9, "all, no, yes: the mean and two models each");
        let shares = table.column_by_name("survival").expect("there").as_primitive::<Float64Type>();
        assert_eq!(shares.values()[..3], [0.75, 0.6, 0.9]);
        assert!(table.column_by_name("model").expect("there").is_null(3), "a mean");
    }

    #[test]
    fn without_counterfactuals_there_is_nothing_to_hold() {
        assert_eq!(Survival::of(&[], None), None);
        assert_eq!(Survival::of(&[model("a", (0, 0), (0, 0))], None), None);
        let table = survival(&[model("a", (0, 0), (0, 0))], "cfrl").expect("a table");
        assert!(table.column_by_name("survival").expect("there").is_null(0));
    }
}
