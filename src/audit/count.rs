//! Counts written counterfactuals by group, beside the reports, in the same pass over them.

use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int32Type};

use super::bounds::Edges;
use super::cells::{GroupCell, GroupCounts};
use super::signatures::{Move, MoveWay, Signature};
use super::{Efforts, MOST_GROUPS};
use crate::constrain::RowBounds;
use crate::error::{Error, Fault, Kind, Result};
use crate::feature::{Cells, FeatureSchema, RowConstraint};
use crate::job::{AuditJob, Target};
use crate::metrics::{NeededCounterfactuals, RowOutcomes, Source, Status};
use crate::report::FurtherCounts;

/// What has to be known of a run to count groups.
pub struct Auditor {
    /// The section of the job.
    pub job: AuditJob,
    /// The features.
    pub schema: Arc<FeatureSchema>,
    /// Columns with constraints of single rows.
    pub constraints: Vec<RowConstraint>,
    /// What targets are called, in the order of their numbers.
    pub targets: Vec<String>,
    /// The target of a regression: what a label must be in to be at it.
    pub target: Target,
    /// How far changes move a row among training rows.
    pub efforts: Efforts,
    /// Per feature the least and greatest number that training saw.
    pub seen: Vec<(f64, f64)>,
}

/// Counts of groups.
pub struct AuditCounts {
    auditor: Arc<Auditor>,
    edges: Arc<Edges>,
    /// The figures.
    pub groups: GroupCounts,
    batch: InputGroups,
}

/// What of a batch of the input is not in the counterfactual table.
#[derive(Default)]
struct InputGroups {
    /// Per attribute, everybody aside, the number of each row's value.
    values: Vec<Vec<u32>>,
    labels: TrueLabels,
    bounds: RowBounds,
}

/// What turned out to be true.
#[derive(Default)]
enum TrueLabels {
    #[default]
    None,
    /// Number of the target; of none of them, a number beyond.
    Classes(Vec<u32>),
    /// Whether the value is in the range.
    Inside(Vec<bool>),
}

impl TrueLabels {
    fn positive(&self, row: usize, target: u32) -> bool {
        match self {
            TrueLabels::None => false,
            TrueLabels::Classes(classes) => classes[row] == target,
            TrueLabels::Inside(inside) => inside[row],
        }
    }
}

/// A valid counterfactual, as far as it was looked at.
#[derive(Default)]
struct ValidCounterfactual {
    effort: f64,
    signature: Signature,
    sizes: Vec<f64>,
    /// By feature, the bounds that it sits on, a bit each.
    bounds: Vec<(u32, u8)>,
}

impl Auditor {
    /// Nothing yet.
    pub fn nothing(self: &Arc<Self>) -> AuditCounts {
        AuditCounts {
            auditor: Arc::clone(self),
            edges: Arc::new(Edges::new(&self.schema, &self.seen)),
            groups: GroupCounts::new(&self.job.by),
            batch: InputGroups::default(),
        }
    }

    fn labels(&self, batch: &RecordBatch) -> Result<TrueLabels> {
        let Some(name) = &self.job.label else { return Ok(TrueLabels::None) };
        let column = of_input(batch, name)?;
        if let Target::Range { low, high } = self.target {
            let numbers = cast(column, &DataType::Float64).map_err(|error| no_text(name, error))?;
            let numbers = numbers.as_primitive::<Float64Type>().iter();
            let inside = |number: Option<f64>| number.is_some_and(|of| (low..=high).contains(&of));
            return Ok(TrueLabels::Inside(numbers.map(inside).collect()));
        }
        let texts = cast(column, &DataType::Utf8).map_err(|error| no_text(name, error))?;
        let number = |text: Option<&str>| {
            let found = self.targets.iter().position(|target| Some(target.as_str()) == text);
            found.map_or(u32::MAX, |index| index as u32)
        };
        Ok(TrueLabels::Classes(texts.as_string::<i32>().iter().map(number).collect()))
    }
}

impl AuditCounts {
    /// Hears of the next batch of the input, before the counterfactuals about its rows.
    ///
    /// # Errors
    /// When a column of it cannot be read.
    pub fn begin(&mut self, batch: &RecordBatch) -> Result<()> {
        let auditor = Arc::clone(&self.auditor);
        let attributes = auditor.job.by.iter().enumerate();
        let values = attributes.map(|(index, name)| self.values(index + 1, name, batch));
        self.batch = InputGroups {
            values: values.collect::<Result<_>>()?,
            labels: auditor.labels(batch)?,
            bounds: RowBounds::read(&auditor.schema, &auditor.constraints, batch)?,
        };
        Ok(())
    }

    /// Numbers of the values of an attribute.
    fn values(&mut self, attribute: usize, name: &str, batch: &RecordBatch) -> Result<Vec<u32>> {
        let column = of_input(batch, name)?;
        let coded = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        let coded = cast(column, &DataType::Utf8).and_then(|texts| cast(&texts, &coded));
        let coded = coded.map_err(|error| no_text(name, error))?;
        let coded = coded.as_dictionary::<Int32Type>();
        let texts = coded.values().as_string::<i32>().iter();
        let numbers: Vec<u32> = texts.map(|text| self.groups.number(attribute, text)).collect();
        let null = (coded.null_count() > 0).then(|| self.groups.number(attribute, None));
        let many = numbers.iter().chain(&null).any(|number| *number as usize >= MOST_GROUPS);
        if many {
            return Error::from_faults(Kind::Spec, vec![too_many(name)]).map(|()| Vec::new());
        }
        let number = |key: Option<i32>| match key {
            Some(key) => numbers[key as usize],
            None => null.unwrap_or_default(),
        };
        Ok(coded.keys().iter().map(number).collect())
    }

    /// Adds what another one has counted.
    pub fn merge(&mut self, other: &AuditCounts) {
        self.groups.merge(&other.groups);
    }

    /// Does something to the counts of every group of a row.
    fn each(&mut self, target: u32, row: u32, count: impl Fn(&mut GroupCell)) {
        count(self.groups.cell(target, 0, 0));
        for attribute in 1..self.groups.attributes() {
            let value = self.batch.values[attribute - 1][row as usize];
            count(self.groups.cell(target, attribute, value));
        }
    }

    fn counterfactuals(
        &self,
        rows: &[u32],
        picked: &[usize],
        changes: &NeededCounterfactuals<'_>,
    ) -> Vec<ValidCounterfactual> {
        let mut counterfactuals: Vec<ValidCounterfactual> =
            picked.iter().map(|_| ValidCounterfactual::default()).collect();
        let cells = changes.counterfactuals.cells.iter().zip(&changes.originals.cells);
        for (feature, (new, original)) in cells.enumerate() {
            match (new, original) {
                (Cells::Numbers(new), Cells::Numbers(original)) => {
                    for (counterfactual, index) in counterfactuals.iter_mut().zip(picked) {
                        let (new, original) = (new[*index], original[*index]);
                        // A null has nothing to move from or to.
                        if (new - original).abs() > 0.0 {
                            let ends = self.batch.bounds.of_row(feature, rows[*index] as usize);
                            counterfactual.number(feature, (new, original), &self.auditor.efforts);
                            let on = self.edges.of_number(feature, (new, original), ends);
                            counterfactual.bounds.push((feature as u32, on));
                        }
                    }
                }
                (Cells::Codes(new), Cells::Codes(original)) => {
                    for (counterfactual, index) in counterfactuals.iter_mut().zip(picked) {
                        let (new, original) = (new[*index], original[*index]);
                        if new != original {
                            counterfactual.code(feature, new);
                            let on = self.edges.of_code(feature, new);
                            counterfactual.bounds.push((feature as u32, on));
                        }
                    }
                }
                _ => unreachable!("rows of one schema have the same columns"),
            }
        }
        counterfactuals
    }

    fn count_counterfactual(
        &mut self,
        (target, row): (u32, u32),
        counterfactual: ValidCounterfactual,
        cost: (f64, u32),
    ) {
        let (cost, changed) = cost;
        let positive = self.batch.labels.positive(row as usize, target);
        let auditor = Arc::clone(&self.auditor);
        let (budgets, features) = (&auditor.job.budgets, auditor.schema.features.len());
        self.each(target, row, |cell| {
            cell.count(&counterfactual, (cost, changed), features);
            cell.sums.within.resize(budgets.len(), 0);
            for (within, budget) in cell.sums.within.iter_mut().zip(budgets) {
                *within += u64::from(cost <= *budget);
            }
            if positive {
                cell.sums.missed_cost.add(cost);
                cell.sums.missed_effort.add(counterfactual.effort);
            }
        });
        let value =
            |(attribute, values): (usize, &Vec<u32>)| (attribute as u32 + 1, values[row as usize]);
        let groups: Vec<(u32, u32)> = self.batch.values.iter().enumerate().map(value).collect();
        let signatures = self.groups.signatures.entry(target).or_default();
        signatures.add(counterfactual.signature, &counterfactual.sizes, &groups);
    }
}

impl ValidCounterfactual {
    fn number(&mut self, feature: usize, (new, original): (f64, f64), efforts: &Efforts) {
        self.effort += efforts.between(feature, new, original);
        let way = if new > original { MoveWay::Up } else { MoveWay::Down };
        self.signature.push(Move { feature: feature as u32, way });
        self.sizes.push((new - original).abs());
    }

    fn code(&mut self, feature: usize, new: u32) {
        self.effort += 1.0;
        self.signature.push(Move { feature: feature as u32, way: MoveWay::To(new) });
        self.sizes.push(f64::NAN);
    }
}

impl GroupCell {
    fn count(
        &mut self,
        counterfactual: &ValidCounterfactual,
        (cost, changed): (f64, u32),
        features: usize,
    ) {
        let sums = &mut self.sums;
        sums.valid += 1;
        sums.single += u64::from(changed == 1);
        sums.cost.add(cost);
        sums.changed.add(f64::from(changed));
        sums.effort.add(counterfactual.effort);
        self.costs.add(cost);
        self.bounds.resize(features, super::cells::AtBounds::default());
        for (feature, on) in &counterfactual.bounds {
            let bounds = &mut self.bounds[*feature as usize];
            bounds.changed += 1;
            for (bound, count) in bounds.on.iter_mut().enumerate() {
                *count += u64::from(on >> bound & 1);
            }
        }
    }
}

impl FurtherCounts for AuditCounts {
    fn outcomes(&mut self, rows: &[u32], outcomes: &RowOutcomes<'_>) -> Result<()> {
        for (index, row) in rows.iter().enumerate().filter(|(index, _)| outcomes.first[*index]) {
            let target = outcomes.targets[index];
            let status = outcomes.status[index];
            let needed = status != Status::AlreadyTarget;
            let infeasible = needed && status != Status::Solved && outcomes.certified[index];
            let usual = Source::ALWAYS_REPORTED;
            let index_of = |of: Source| usual.iter().position(|one| *one == of);
            let source = outcomes.source[index].map(|of| index_of(of).unwrap_or(usual.len()));
            let positive = self.batch.labels.positive(*row as usize, target);
            let queries = if needed { u64::from(outcomes.queries[index]) } else { 0 };
            self.each(target, *row, |cell| {
                let sums = &mut cell.sums;
                sums.rows += 1;
                sums.needed += u64::from(needed);
                sums.infeasible += u64::from(infeasible);
                sums.queries += queries;
                sums.positives += u64::from(positive);
                sums.false_negatives += u64::from(positive && needed);
                if let Some(source) = source {
                    sums.sources[source] += 1;
                }
            });
        }
        Ok(())
    }

    fn changes(
        &mut self,
        rows: &[u32],
        first: &[bool],
        changes: &NeededCounterfactuals<'_>,
    ) -> Result<()> {
        let valid = |index: &usize| first[*index] && changes.valid[*index];
        let picked: Vec<usize> = (0..rows.len()).filter(valid).collect();
        let counterfactuals = self.counterfactuals(rows, &picked, changes);
        for (index, counterfactual) in picked.into_iter().zip(counterfactuals) {
            let cost = (changes.costs[index], changes.distances.changed[index]);
            self.count_counterfactual((changes.targets[index], rows[index]), counterfactual, cost);
        }
        Ok(())
    }
}

fn of_input<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a arrow::array::ArrayRef> {
    let lost = || Error::internal("audit", format!("the column `{name}` was not read"));
    batch.column_by_name(name).ok_or_else(lost)
}

fn no_text(name: &str, error: arrow::error::ArrowError) -> Error {
    Error::spec("audit", format!("names `{name}`, whose values cannot be read")).source(error)
}

/// What is said of a column with too many values.
pub fn too_many(name: &str) -> Fault {
    let problem = format!("names `{name}`, which has more than {MOST_GROUPS} values");
    Fault::new("audit.by", problem).hint(
        "name columns with few values, such as a region or an age band; `audit.by = []` for none",
    )
}
