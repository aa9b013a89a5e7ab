//! Several methods in the summary of a run.

use super::print::grouped;
use super::run::aligned;
use crate::pipeline::{MethodSummary, RunSummary};

/// A table of figures by method, with the share of rows on which each agrees with the published one; empty where there
/// is one method only.
pub(super) fn methods(summary: &RunSummary) -> String {
    if summary.methods.is_empty() {
        return String::new();
    }
    let head = [
        "method",
        "needed",
        "valid",
        "validity",
        "L0",
        "L1",
        "changed",
        "queries",
        "same features",
    ];
    let percent = |share: Option<f64>| {
        share.map_or("–".to_string(), |share| format!("{:.1} %", 100.0 * share))
    };
    let number = |value: Option<f64>, digits: usize| {
        value.map_or("–".to_string(), |value| format!("{value:.digits$}"))
    };
    let row = |of: &MethodSummary| {
        [
            of.method.clone(),
            grouped(of.needed),
            grouped(of.valid),
            percent(of.validity),
            number(of.l0, 3),
            number(of.l1, 3),
            number(of.n_changed, 2),
            number(of.queries_per_row, 1),
            percent(agreed(summary, &of.method)),
        ]
    };
    let mut table = vec![head.map(String::from)];
    table.extend(summary.methods.iter().map(row));
    format!("\n{}", aligned(&table))
}

/// Of the rows for which both a method and the published one have a valid counterfactual, the share with the same changed
/// features.
fn agreed(summary: &RunSummary, method: &str) -> Option<f64> {
    let published = &summary.methods.first()?.method;
    let found =
        summary.agreement.iter().find(|of| of.method == *published && of.other == method)?;
    (found.both > 0).then(|| found.same_features as f64 / found.both as f64)
}
