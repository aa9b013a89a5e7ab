//! How counterfactuals do under the models beside the predictor, as a table.

use arrow::array::RecordBatch;
use serde::{Deserialize, Serialize};

use super::columns::ReportColumns;
use super::{Names, rows, share};
use crate::error::Result;
use crate::metrics::{RobustCounts, Tally, wilson};
use crate::output::robust_schema;

/// How valid counterfactuals do under the models beside the predictor.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Robust {
    /// Models.
    pub models: u64,
    /// Models under which a counterfactual must hold.
    pub needed: u64,
    /// Valid counterfactuals.
    pub rows: u64,
    /// Those that do not hold under so many: nothing that was tried does.
    pub not_robust: u64,
    /// Share of those that do, if there is any.
    pub share: Option<f64>,
    /// What they cost, on average …
    pub cost: Option<f64>,
    /// … and how much of that being robust costs, at least.
    pub robustness_cost: Option<f64>,
}

impl Robust {
    /// The figures of some counterfactuals.
    pub fn of(counts: &RobustCounts, (models, needed): (usize, u32)) -> Robust {
        let (rows, holding) = (counts.rows(), counts.holding(needed));
        Robust {
            models: models as u64,
            needed: u64::from(needed),
            rows,
            not_robust: rows - holding,
            share: (rows > 0).then(|| share(holding, rows)),
            cost: counts.cost.mean(),
            robustness_cost: counts.extra_cost.mean(),
        }
    }
}

/// A row for all counterfactuals, each target and each segment.
///
/// # Errors
/// Only if there is a bug.
pub fn robust(tally: &Tally, names: &Names, asked: (usize, u32)) -> Result<RecordBatch> {
    let mut columns = ReportColumns::new(names);
    for (level, group) in rows(tally, names) {
        let counts = &group.robust;
        let of = Robust::of(counts, asked);
        let robust = of.rows - of.not_robust;
        let interval = wilson(robust, of.rows);
        columns.group(&level, names);
        [of.rows, of.models, of.needed, robust].into_iter().for_each(|count| columns.count(count));
        let extra = &counts.extra_cost;
        let figures = [
            of.share,
            Some(interval.low),
            Some(interval.high),
            counts.mean(),
            of.cost,
            of.robustness_cost,
            extra.quantile(0.5),
            extra.quantile(0.95),
        ];
        figures.into_iter().for_each(|figure| columns.number(figure));
    }
    columns.finish(robust_schema(&names.by))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_under_too_few_is_counted() {
        let counts = RobustCounts { held: [(5, 6), (4, 2), (1, 2)].into(), ..Default::default() };
        let of = Robust::of(&counts, (5, 4));
        assert_eq!((of.rows, of.not_robust, of.share), (10, 2, Some(0.8)));
        assert_eq!(counts.mean(), Some(4.0));
        assert_eq!(Robust::of(&RobustCounts::default(), (5, 4)).share, None);
    }
}
