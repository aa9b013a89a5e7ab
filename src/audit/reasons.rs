//! Candidate reasons: which features speak most against a row, beside rows that just pass. They are not notices: nobody
//! but the lender can say what a decision was based on.

use std::collections::BTreeMap;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::util::display::array_value_to_string;

use super::questions::{
    Asker, AuditSample, Chosen, Copy, CopyPrediction, DerivedPolicy, SampledGroup, as_they_are,
    ask, mean,
};
use crate::error::{Error, Fault, Kind, Result};
use crate::feature::{Cell, Edit, Edits, FeatureSchema, NULL_CODE, UNSEEN_CODE};
use crate::output::{reason_counts_schema, reasons_schema};
use crate::report::ReportColumns;

/// Name of the section.
pub(super) const NAME: &str = "reasons";
/// Reasons of a row that are told, at most: more seldom help anybody to understand a decision.
const MOST_REASONS: usize = 4;
/// Rows whose questions are made at once.
const BLOCK_ROWS: usize = 4096;

/// The tables.
pub(super) struct Reasons {
    /// By row.
    pub reasons: RecordBatch,
    /// By group.
    pub counts: RecordBatch,
}

/// Questions about a row, at most.
pub(super) fn per_row(features: usize) -> u64 {
    (super::questions::REFERENCES * features + 1) as u64
}

/// Refuses features without a code.
///
/// # Errors
/// Names every feature that lacks one.
pub fn check_codes(schema: &FeatureSchema, shown: &str) -> Result<()> {
    let without = schema.features.iter().filter(|feature| feature.reason.is_none());
    let fault = |feature: &crate::feature::Feature| {
        let problem = "has no code, which `audit.reasons` tells of it";
        Fault::new(format!("{shown}: feature `{}`: reason", feature.name), problem)
            .hint("give it one, such as `reason = { code = \"12\", low = \"Income too low\" }`")
    };
    Error::from_faults(Kind::Spec, without.map(fault).collect())
}

/// What speaks against a row, the strongest first.
struct Contribution {
    feature: usize,
    contribution: f64,
}

/// Rows at a target, as values to compare with.
struct References {
    /// By feature the values that can be given to other rows.
    values: Vec<Vec<Cell>>,
    /// By feature the median or the commonest of them, and how it is written.
    usual: Vec<Option<(Cell, String)>>,
}

/// A row's reasons.
struct RowReasons {
    row: u32,
    named: Vec<Contribution>,
    further: u64,
}

/// Candidate reasons of some refused rows, beside rows that just pass.
///
/// # Errors
/// When the model as a whole fails.
pub(super) fn reasons(
    asker: &Asker<'_>,
    (refused, passing): (&Chosen, &BTreeMap<u32, Chosen>),
) -> Result<Reasons> {
    // Nobody need be compared with where nobody is told.
    let passing = passing.iter().filter(|_| !refused.is_empty());
    let references: BTreeMap<u32, References> = passing
        .filter_map(|(target, rows)| {
            let rows = rows.inspect(&asker.explainer, asker.table).transpose()?;
            Some(rows.and_then(|rows| References::new(&rows)).map(|of| (*target, of)))
        })
        .collect::<Result<_>>()?;
    let mut table = ReportColumns::default();
    let mut keys: Vec<RecordBatch> = Vec::new();
    let mut counted = ReasonCounts::default();
    for first in (0..refused.len()).step_by(BLOCK_ROWS) {
        let some = refused.slice(first, BLOCK_ROWS);
        let Some(sample) = some.inspect(&asker.explainer, asker.table)? else { continue };
        let found = of_rows(asker, &sample, &references)?;
        keys.push(tell(asker, (&sample, &references), &found, &mut table)?);
        counted.add((asker, &sample, &references), &found);
    }
    let key = asker.setup.columns.key.iter().map(|index| &asker.table.fields()[*index]);
    let key: Vec<arrow::datatypes::FieldRef> = key.cloned().collect();
    let schema = reasons_schema(&key);
    let rest = arrow::datatypes::Schema::new(schema.fields()[key.len()..].to_vec());
    let rest = table.finish(std::sync::Arc::new(rest))?;
    let misfit = |error| Error::internal("reasons", "columns do not fit").source(error);
    let keyed = std::sync::Arc::new(arrow::datatypes::Schema::new(key));
    let keys = concat_batches(&keyed, &keys).map_err(misfit)?;
    let columns: Vec<ArrayRef> = keys.columns().iter().chain(rest.columns()).cloned().collect();
    Ok(Reasons {
        reasons: RecordBatch::try_new(schema, columns).map_err(misfit)?,
        counts: counted.table(asker)?,
    })
}

impl References {
    /// Values of rows that pass; nulls and unlisted categories cannot be given to other rows.
    fn new(rows: &AuditSample) -> Result<References> {
        let features = rows.rows.originals.cells.len();
        let (mut values, mut usual) = (Vec::with_capacity(features), Vec::with_capacity(features));
        for feature in 0..features {
            let cells = (0..rows.len()).map(|row| (row, rows.rows.originals.cell(feature, row)));
            let cells: Vec<(usize, Cell)> = cells.filter(|(_, cell)| can_be_given(*cell)).collect();
            let row = usual_row(&cells);
            let column = rows.rows.before.column(feature);
            let text = |row: usize| {
                array_value_to_string(column, row).map_err(|error| {
                    Error::internal("reasons", "a value has no text").source(error)
                })
            };
            let of_row = |row: usize| Ok((rows.rows.originals.cell(feature, row), text(row)?));
            usual.push(row.map(of_row).transpose()?);
            values.push(cells.into_iter().map(|(_, cell)| cell).collect());
        }
        Ok(References { values, usual })
    }
}

fn can_be_given(cell: Cell) -> bool {
    match cell {
        Cell::Number(number) => number.is_finite(),
        Cell::Code(code) => code != NULL_CODE && code != UNSEEN_CODE,
    }
}

/// The row with the lower median of numbers, or with the commonest category.
fn usual_row(cells: &[(usize, Cell)]) -> Option<usize> {
    let mut numbers: Vec<(f64, usize)> = Vec::new();
    let mut codes: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
    for (row, cell) in cells {
        match cell {
            Cell::Number(number) => numbers.push((*number, *row)),
            Cell::Code(code) => codes.entry(*code).or_insert((0, *row)).0 += 1,
        }
    }
    numbers.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
    let median = numbers.len().checked_sub(1).map(|last| numbers[last / 2].1);
    let commonest = codes.values().max_by_key(|(rows, first)| (*rows, std::cmp::Reverse(*first)));
    median.or(commonest.map(|(_, row)| *row))
}

/// What speaks against each row that has references.
fn of_rows(
    asker: &Asker<'_>,
    sample: &AuditSample,
    references: &BTreeMap<u32, References>,
) -> Result<Vec<RowReasons>> {
    let explainer = asker.explainer.as_ref();
    let features = explainer.schema().features.len();
    let before = as_they_are(&sample.rows);
    let mut sums = vec![Vec::new(); features];
    for (feature, sums) in sums.iter_mut().enumerate() {
        *sums = contributions(asker, (sample, feature), (references, &before))?;
    }
    let of_row = |row: usize| {
        let contribution = |feature: usize| Some((feature, sums[feature][row]?));
        let mut against: Vec<Contribution> = (0..features)
            .filter_map(contribution)
            .filter(|(_, contribution)| *contribution > 0.0)
            .map(|(feature, contribution)| Contribution { feature, contribution })
            .collect();
        // The sort keeps equal ones in the schema's order.
        against.sort_by(|one, other| other.contribution.total_cmp(&one.contribution));
        let further = against.len().saturating_sub(MOST_REASONS) as u64;
        against.truncate(MOST_REASONS);
        RowReasons { row: row as u32, named: against, further }
    };
    Ok((0..sample.len()).map(of_row).collect())
}

/// How much more would speak for the target if a feature were as in rows that pass, on average; none where there is
/// nothing to compare with, or the model failed.
fn contributions(
    asker: &Asker<'_>,
    (sample, feature): (&AuditSample, usize),
    (references, before): (&BTreeMap<u32, References>, &[CopyPrediction]),
) -> Result<Vec<Option<f64>>> {
    let given = |row: usize| {
        references.get(&sample.rows.target_numbers[row]).map_or(&[][..], |of| &of.values[feature])
    };
    let mut copies = Vec::new();
    for row in 0..sample.len() {
        let original = sample.rows.originals.cell(feature, row);
        // What the row has already changes nothing: nobody need be asked.
        let other = given(row).iter().filter(|cell| **cell != original);
        let edits = other.map(|cell| Edits::from_iter([Edit { feature, cell: *cell }]));
        copies.extend(edits.map(|edits| Copy { row: row as u32, edits }));
    }
    let predictions = ask(&asker.explainer, (&sample.rows, DerivedPolicy::Stay), &copies)?;
    let mut sums = vec![0.0; sample.len()];
    for (copy, prediction) in copies.iter().zip(predictions) {
        sums[copy.row as usize] += prediction.score - before[copy.row as usize].score;
    }
    let mean = |(row, sum): (usize, f64)| {
        let values = given(row).len();
        (values > 0 && !sum.is_nan()).then(|| sum / values as f64)
    };
    Ok(sums.into_iter().enumerate().map(mean).collect())
}

/// Whether a value is lower or higher than the usual one; none where there is no order, or both are equal.
fn direction(
    schema: &FeatureSchema,
    feature: usize,
    (original, usual): (Cell, Cell),
) -> Option<&'static str> {
    let up = match (original, usual, schema.features[feature].categorical()) {
        (Cell::Number(original), Cell::Number(usual), _) => usual.partial_cmp(&original)?,
        (Cell::Code(original), Cell::Code(usual), Some(categorical)) => {
            categorical.ranks_up(original, usual)?.cmp(&0)
        }
        _ => return None,
    };
    match up {
        std::cmp::Ordering::Greater => Some("low"),
        std::cmp::Ordering::Less => Some("high"),
        std::cmp::Ordering::Equal => None,
    }
}

/// What is said of a feature in a direction: code and text.
fn words<'s>(
    schema: &'s FeatureSchema,
    feature: usize,
    direction: Option<&str>,
) -> (&'s str, Option<&'s str>) {
    let Some(reason) = &schema.features[feature].reason else { return ("", None) };
    let text = match direction {
        Some("low") => reason.low.as_ref(),
        Some(_) => reason.high.as_ref(),
        None => reason.low.as_ref().or(reason.high.as_ref()),
    };
    (&reason.code, text.map(String::as_str))
}

/// How a reason of a row is told.
struct ReasonWording<'a> {
    direction: Option<&'static str>,
    code: &'a str,
    text: Option<&'a str>,
    without_recourse: bool,
    actionable: bool,
    in_recourse: bool,
}

fn words_of<'a>(
    (asker, sample, references): (&'a Asker<'_>, &AuditSample, &BTreeMap<u32, References>),
    (row, feature): (usize, usize),
) -> ReasonWording<'a> {
    let (schema, constraints) = (asker.explainer.schema().as_ref(), asker.explainer.constraints());
    let original = sample.rows.originals.cell(feature, row);
    let of_target = references.get(&sample.rows.target_numbers[row]);
    let usual = of_target.and_then(|of| of.usual[feature].as_ref());
    let direction = usual.and_then(|(usual, _)| direction(schema, feature, (original, *usual)));
    let (code, text) = words(schema, feature, direction);
    let feasible = constraints.feasible(&sample.rows.conditions, &sample.rows.bounds, row);
    let movable = match original {
        Cell::Number(number) => feasible.interval(feature, number).is_some(),
        Cell::Code(_) => {
            feasible.options(feature, original, usize::MAX).is_some_and(|all| !all.is_empty())
        }
    };
    let actionable = movable && !constraints.is_derived(feature);
    let in_recourse = sample.valid[row] && sample.counterfactuals.cell(feature, row) != original;
    let without_recourse = !sample.valid[row] || (!actionable && !in_recourse);
    ReasonWording { direction, code, text, without_recourse, actionable, in_recourse }
}

/// Rows of the table; gives their keys.
fn tell(
    asker: &Asker<'_>,
    (sample, references): (&AuditSample, &BTreeMap<u32, References>),
    found: &[RowReasons],
    columns: &mut ReportColumns,
) -> Result<RecordBatch> {
    let schema = asker.explainer.schema();
    let mut rows: Vec<u32> = Vec::new();
    for RowReasons { row, named, further } in found {
        let target = sample.rows.target_numbers[*row as usize];
        for (rank, Contribution { feature, contribution }) in (1..).zip(named) {
            let words = words_of((asker, sample, references), (*row as usize, *feature));
            let usual = references.get(&target).and_then(|of| of.usual[*feature].as_ref());
            columns.text(asker.names.targets.get(target as usize).map(String::as_str));
            columns.count(rank);
            columns.text(Some(&schema.features[*feature].name));
            columns.text(words.direction);
            columns.text(Some(words.code));
            columns.text(words.text);
            columns.number(Some(*contribution));
            columns.text(usual.map(|(_, text)| text.as_str()));
            columns.flag(Some(words.actionable));
            columns.flag(Some(words.in_recourse));
            columns.flag(Some(words.without_recourse));
            columns.count(*further);
            rows.push(*row);
        }
    }
    let misfit = |error| Error::internal("reasons", "a key is lost").source(error);
    let key = sample.block.project(&asker.setup.columns.key).map_err(misfit)?;
    take_record_batch(&key, &UInt32Array::from(rows)).map_err(misfit)
}

type CountKey = (u32, Option<usize>, Option<String>);

/// Reasons by group.
#[derive(Default)]
struct ReasonCounts {
    groups: BTreeMap<CountKey, ReasonGroup>,
}

#[derive(Default)]
struct ReasonGroup {
    rows: u64,
    reasons: BTreeMap<(usize, Option<&'static str>), ReasonCount>,
}

#[derive(Default)]
struct ReasonCount {
    named: u64,
    first: u64,
    without_recourse: u64,
    contributions: Vec<f64>,
}

impl ReasonCounts {
    fn add(
        &mut self,
        (asker, sample, references): (&Asker<'_>, &AuditSample, &BTreeMap<u32, References>),
        found: &[RowReasons],
    ) {
        for group in sample.groups() {
            let key = (group.target, group.attribute, group.value);
            let counts = self.groups.entry(key).or_default();
            counts.rows += group.rows.len() as u64;
            for row in &group.rows {
                for (rank, of) in found[*row as usize].named.iter().enumerate() {
                    let words = words_of((asker, sample, references), (*row as usize, of.feature));
                    let count = counts.reasons.entry((of.feature, words.direction)).or_default();
                    count.named += 1;
                    count.first += u64::from(rank == 0);
                    count.without_recourse += u64::from(words.without_recourse);
                    count.contributions.push(of.contribution);
                }
            }
        }
    }

    fn table(self, asker: &Asker<'_>) -> Result<RecordBatch> {
        let schema = asker.explainer.schema();
        let mut columns = ReportColumns::default();
        for ((target, attribute, value), counts) in self.groups {
            let group = SampledGroup { target, attribute, value, rows: Vec::new() };
            for ((feature, direction), count) in counts.reasons {
                let (code, text) = words(schema, feature, direction);
                let large_enough = asker.names.shows(counts.rows);
                asker.names.begin(&mut columns, &group);
                columns.text(Some(&schema.features[feature].name));
                columns.text(direction);
                columns.text(Some(code));
                columns.text(text);
                columns.count(counts.rows);
                columns.count(count.named);
                asker.names.share(&mut columns, count.named, counts.rows);
                columns.count(count.first);
                columns.count(count.without_recourse);
                columns.number(mean(count.contributions.into_iter()).filter(|_| large_enough));
            }
        }
        columns.finish(reason_counts_schema())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const SCHEMA: &str = r#"
        [[feature]]
        name = "income"
        kind = "numeric"
        reason = { code = "R1", low = "Income too low", high = "Income too high" }
        [[feature]]
        name = "grade"
        kind = "categorical"
        values = ["b", "a", "c"]
        order = ["a", "b", "c"]
        reason = { code = "R2", high = "Grade too high" }
        [[feature]]
        name = "job"
        kind = "categorical"
        values = ["x", "y"]
    "#;

    #[test]
    fn a_value_is_low_or_high_beside_the_usual_one() {
        let schema = FeatureSchema::parse(SCHEMA, Path::new("f.toml")).expect("a schema");
        let of = |feature, original, usual| direction(&schema, feature, (original, usual));
        assert_eq!(of(0, Cell::Number(1.0), Cell::Number(2.0)), Some("low"));
        assert_eq!(of(0, Cell::Number(3.0), Cell::Number(2.0)), Some("high"));
        assert_eq!(of(0, Cell::Number(2.0), Cell::Number(2.0)), None);
        // Codes are b, a, c; ranks go by the order.
        assert_eq!(of(1, Cell::Code(1), Cell::Code(0)), Some("low"));
        assert_eq!(of(1, Cell::Code(2), Cell::Code(0)), Some("high"));
        assert_eq!(of(2, Cell::Code(0), Cell::Code(1)), None, "no order");
        assert_eq!(words(&schema, 0, Some("low")), ("R1", Some("Income too low")));
        assert_eq!(words(&schema, 1, Some("low")), ("R2", None));
        assert_eq!(words(&schema, 1, None), ("R2", Some("Grade too high")));
    }

    #[test]
    fn the_usual_row_has_the_lower_median_or_the_commonest_category() {
        let numbers = [4.0, 1.0, 3.0, 2.0].map(Cell::Number).into_iter().enumerate();
        assert_eq!(usual_row(&numbers.collect::<Vec<_>>()), Some(3));
        let codes = [2, 0, 1, 0, 1].map(Cell::Code).into_iter().enumerate();
        assert_eq!(usual_row(&codes.collect::<Vec<_>>()), Some(1));
        assert_eq!(usual_row(&[]), None);
    }

    #[test]
    fn features_without_a_code_are_named_all_at_once() {
        let schema = FeatureSchema::parse(SCHEMA, Path::new("f.toml")).expect("a schema");
        let error = check_codes(&schema, "schema.toml").expect_err("`job` has none");
        let said = error.to_string();
        assert!(said.contains("schema.toml: feature `job`: reason"), "{said}");
        assert!(!said.contains("income") && !said.contains("grade"), "{said}");
    }
}
