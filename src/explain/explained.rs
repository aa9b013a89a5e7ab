//! What was found for requests, in the order of the counterfactual table.

use std::sync::Arc;

use arrow::array::RecordBatch;

use super::refine::Outcomes;
use super::requests::Requests;
use super::valid_rows::ValidRows;
use super::{Explainer, take};
use crate::constrain::RowBounds;
use crate::error::{Error, Result};
use crate::feature::Rows;
use crate::metrics::{Distances, Source, Status, distances};
use crate::predictor::{Outcome, Scores, Task};
use crate::target::Targets;

/// Requests and what was found for them.
pub(super) struct ExplainedRows {
    /// Index of each request's valid row.
    pub(super) rows: Vec<u32>,
    pub(super) targets: Targets,
    /// Number within the row.
    pub(super) samples: Vec<i32>,
    pub(super) findings: Vec<Finding>,
    /// The rules that they follow from, for methods that learn rules.
    pub(super) rules: Vec<Option<Arc<str>>>,
    pub(super) originals: Rows,
    pub(super) counterfactuals: Rows,
    /// The same in the table's types, before and after.
    pub(super) before: RecordBatch,
    pub(super) after: RecordBatch,
    /// What the model says before and after.
    pub(super) decided: Scores,
    pub(super) scores: Scores,
    pub(super) measures: Measures,
}

/// What was found for one request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Finding {
    pub(super) status: Status,
    /// What found the counterfactual of a solved request.
    pub(super) source: Option<Source>,
    pub(super) valid: bool,
    /// Times that the model was asked.
    pub(super) queries: u32,
    /// Whether it is proven that there is no counterfactual.
    pub(super) certified: bool,
    /// How far inside the target a valid counterfactual is; NaN where unknown.
    pub(super) margin: f64,
    /// Under how many models beside the predictor a counterfactual holds; none without such models.
    pub(super) robust: Option<u32>,
    /// What it costs more than the cheapest that was seen and holds under too few of them.
    pub(super) robustness_cost: Option<f64>,
}

/// Measures of counterfactuals.
pub(super) struct Measures {
    pub(super) distances: Distances,
    /// What the changes of solved requests cost; NaN for others.
    pub(super) costs: Vec<f64>,
    /// How plausible they are; NaN for requests that are not solved, or without training rows to compare with.
    pub(super) plausibility: Vec<f64>,
}

impl Finding {
    /// Of a request whose status is known without the model: valid by the decision, certified by the constraints.
    fn settled(status: Status) -> Finding {
        Finding {
            status,
            source: None,
            valid: status == Status::AlreadyTarget,
            queries: 0,
            certified: status == Status::Infeasible,
            margin: f64::NAN,
            robust: None,
            robustness_cost: None,
        }
    }
}

impl Explainer {
    /// The retained requests with what was found for them; outcomes are those of the open requests.
    pub(super) fn assemble(
        &self,
        valid_rows: &ValidRows,
        requests: &Requests,
        outcomes: Outcomes,
        retained: &[u32],
    ) -> Result<ExplainedRows> {
        let open = requests.open();
        let index = OpenIndex::new(requests.len(), &open);
        let finding = |request: &u32| match requests.settled(*request) {
            Some(status) => Finding::settled(status),
            None => outcomes.findings[index.of(*request)],
        };
        let findings: Vec<Finding> = retained.iter().map(finding).collect();
        let rule = |(request, finding): (&u32, &Finding)| match finding.source {
            _ if requests.settled(*request).is_some() => None,
            // What another step found follows from no rule.
            Some(Source::Lore) | None => outcomes.rules[index.of(*request)].clone(),
            Some(_) => None,
        };
        let rules = retained.iter().zip(&findings).map(rule).collect();
        let mut counterfactuals = valid_rows.rows.take(requests.rows());
        let mut scores = self.with_probability_slots(&valid_rows.scores.take(requests.rows()));
        scores.put(&open, &outcomes.scores);
        counterfactuals.put(&open, outcomes.rows);
        if retained.len() < requests.len() {
            (counterfactuals, scores) = (counterfactuals.take(retained), scores.take(retained));
        }
        let rows = requests.rows_of(retained);
        let originals = valid_rows.rows.take(&rows);
        let before = take(&valid_rows.originals, &rows)?;
        Ok(ExplainedRows {
            samples: numbered(&rows),
            targets: requests.targets_of(retained),
            after: self.writer.write(&counterfactuals, &originals, &before)?,
            decided: valid_rows.scores.take(&rows),
            measures: self.measures(&counterfactuals, &originals, &findings),
            rows,
            findings,
            rules,
            originals,
            counterfactuals,
            before,
            scores,
        })
    }

    fn measures(&self, rows: &Rows, originals: &Rows, findings: &[Finding]) -> Measures {
        let mut costs = self.refiner.costs_of(rows, originals, &self.constraints);
        for (cost, finding) in costs.iter_mut().zip(findings) {
            if finding.status != Status::Solved {
                *cost = f64::NAN;
            }
        }
        let changed = self.constraints.without_derived(rows, originals);
        Measures {
            distances: distances(&changed, originals, self.encoder.layout()),
            costs,
            plausibility: self.plausibility_of(rows, findings),
        }
    }

    /// What was decided, with slots for probabilities where the model gives some: a score table has none.
    pub(super) fn with_probability_slots(&self, decided: &Scores) -> Scores {
        let mut scores = decided.clone();
        if let (
            Outcome::Classes { labels, probabilities: probabilities @ None },
            Task::Classification { classes, probabilities: true },
        ) = (&mut scores.outcome, self.predictor.task())
        {
            *probabilities = Some(vec![f64::NAN; labels.len() * classes.len()]);
        }
        scores
    }

    /// Checks every counterfactual against the schema once more: a bug must not reach a table.
    pub(super) fn guard(&self, found: &Rows, rows: &Rows, bounds: &RowBounds) -> Result<()> {
        match self.constraints.violations(found, rows, bounds).first() {
            None => Ok(()),
            Some(violation) => Err(Error::internal("counterfactual", violation.to_string())),
        }
    }
}

/// Index of requests among the open ones.
struct OpenIndex(Vec<u32>);

impl OpenIndex {
    fn new(requests: usize, open: &[u32]) -> OpenIndex {
        let mut indexes = vec![u32::MAX; requests];
        (0u32..).zip(open).for_each(|(index, request)| indexes[*request as usize] = index);
        OpenIndex(indexes)
    }

    fn of(&self, request: u32) -> usize {
        self.0[request as usize] as usize
    }
}

/// Numbers from 0 on within each row.
fn numbered(rows: &[u32]) -> Vec<i32> {
    let mut numbers: Vec<i32> = Vec::with_capacity(rows.len());
    for (index, row) in rows.iter().enumerate() {
        let same = index > 0 && rows[index - 1] == *row;
        numbers.push(if same { numbers[index - 1] + 1 } else { 0 });
    }
    numbers
}
