//! What was compared, as tables.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray, UInt32Array,
};
use arrow::compute::take_record_batch;
use arrow::datatypes::SchemaRef;

use super::compare::Compared;
use super::groups::{GroupNames, Groups, NightGroup, Stability};
use crate::error::{Error, Result};
use crate::metrics::{Status, wilson};
use crate::output::audit_stability_schema;

/// Rows of the table by key: those that needed a counterfactual in either run. `key` has the rows' keys.
///
/// # Errors
/// Only if there is a bug.
pub fn rows_table(
    schema: &SchemaRef,
    key: &RecordBatch,
    targets: &[String],
    compared: &[Compared],
) -> Result<RecordBatch> {
    let needed: Vec<&Compared> = compared.iter().filter(|of| of.needed()).collect();
    let rows = UInt32Array::from_iter_values(needed.iter().map(|of| of.row));
    let mut columns = take_record_batch(key, &rows).map_err(misfit)?.columns().to_vec();
    let flag = |of: &dyn Fn(&Compared) -> Option<bool>| -> ArrayRef {
        Arc::new(BooleanArray::from_iter(needed.iter().map(|row| of(row))))
    };
    let number = |of: &dyn Fn(&Compared) -> Option<f64>| -> ArrayRef {
        Arc::new(Float64Array::from_iter(needed.iter().map(|row| of(row))))
    };
    let text = |of: &dyn Fn(&Compared) -> Option<String>| -> ArrayRef {
        Arc::new(StringArray::from_iter(needed.iter().map(|row| of(row))))
    };
    let columns_of_rows: [ArrayRef; 16] = [
        text(&|of| targets.get(of.target as usize).cloned()),
        text(&|of| Some(of.cause.to_string())),
        text(&|of| of.previous_status.map(Status::name).map(String::from)),
        text(&|of| Some(of.status.name().to_string())),
        flag(&|of| Some(of.yesterday_valid)),
        flag(&|of| of.still_valid),
        flag(&|of| of.still_allowed),
        flag(&|of| Some(of.decision_flip)),
        flag(&|of| of.same_features),
        flag(&|of| of.same_answer),
        number(&|of| of.jaccard),
        number(&|of| of.previous_cost),
        number(&|of| of.carried_cost),
        number(&Compared::cost_delta),
        flag(&|of| of.needless),
        flag(&|of| Some(of.broken_promise)),
    ];
    columns.extend(columns_of_rows);
    RecordBatch::try_new(Arc::clone(schema), columns).map_err(misfit)
}

/// Cells of a table, column by column.
#[derive(Default)]
struct StabilityColumns {
    texts: [Vec<Option<String>>; 4],
    appeared: Vec<Option<i64>>,
    vanished: Vec<Option<i64>>,
    suppressed: Vec<bool>,
    counts: [Vec<i64>; 12],
    numbers: [Vec<Option<f64>>; 13],
}

/// The table by target, group and cause.
///
/// # Errors
/// Only if there is a bug.
pub fn stability_table(groups: &Groups, names: &GroupNames, min_cell: u64) -> Result<RecordBatch> {
    let mut cells = StabilityColumns::default();
    for (target, group, number) in groups.listed() {
        let (appeared, vanished) = groups.unpaired_of(target, number);
        for (cause, counts) in groups.causes(target, number) {
            cells.name(names, (target, group), cause);
            let all = cause.is_none();
            cells.appeared.push(all.then_some(appeared as i64));
            cells.vanished.push(vanished.filter(|_| all).map(|rows| rows as i64));
            cells.figures(&counts, counts.needed < min_cell);
        }
    }
    cells.finish()
}

impl StabilityColumns {
    fn name(
        &mut self,
        names: &GroupNames,
        (target, group): (u32, &NightGroup),
        cause: Option<&str>,
    ) {
        let (column, value) = group;
        let texts = [
            names.targets.get(target as usize).cloned(),
            column.and_then(|column| names.by.get(column).cloned()),
            value.clone(),
            cause.map(String::from),
        ];
        self.texts.iter_mut().zip(texts).for_each(|(column, text)| column.push(text));
    }

    /// Counts of a row, and its figures unless they are of too few.
    fn figures(&mut self, of: &Stability, suppressed: bool) {
        let counts = [
            of.rows,
            of.needed,
            of.decision_flips,
            of.promised,
            of.asked,
            of.still_valid,
            of.still_allowed,
            of.broken_promises,
            of.paired,
            of.same_features,
            of.same_answer,
            of.needless,
        ];
        self.counts.iter_mut().zip(counts).for_each(|(column, count)| column.push(count as i64));
        self.suppressed.push(suppressed);
        let interval = |part: u64, whole: u64| {
            let interval = wilson(part, whole);
            let known = whole > 0;
            [
                known.then(|| part as f64 / whole as f64),
                known.then_some(interval.low),
                known.then_some(interval.high),
            ]
        };
        let drift = of.cost_drift();
        let end =
            |side: f64| drift.and_then(|(mean, error)| Some(mean + side * NORMAL_95 * error?));
        let figures = [
            interval(of.decision_flips, of.rows).to_vec(),
            interval(of.still_valid, of.asked).to_vec(),
            vec![of.answer_churn()],
            interval(of.needless, of.paired_asked).to_vec(),
            vec![drift.map(|(mean, _)| mean), end(-1.0), end(1.0)],
        ];
        let figures = figures.into_iter().flatten();
        self.numbers.iter_mut().zip(figures).for_each(|(column, figure)| {
            column.push(figure.filter(|_| !suppressed));
        });
    }

    /// The columns in the schema's order.
    fn finish(self) -> Result<RecordBatch> {
        let schema = audit_stability_schema();
        let text =
            |column: Vec<Option<String>>| -> ArrayRef { Arc::new(StringArray::from(column)) };
        let count = |column: Vec<i64>| -> ArrayRef { Arc::new(Int64Array::from(column)) };
        let number = |column| -> ArrayRef { Arc::new(Float64Array::from(column)) };
        let maybe = |column: Vec<Option<i64>>| -> ArrayRef { Arc::new(Int64Array::from(column)) };
        let [
            rows,
            needed,
            flips,
            promised,
            asked,
            valid,
            allowed,
            broken,
            paired,
            features,
            same_counterfactual,
            needless,
        ] = self.counts.map(count);
        let mut columns: Vec<ArrayRef> = self.texts.into_iter().map(text).collect();
        columns.extend([rows, maybe(self.appeared), maybe(self.vanished), needed]);
        columns.push(Arc::new(BooleanArray::from(self.suppressed)));
        let mut numbers = self.numbers.into_iter().map(number);
        columns.push(flips);
        columns.extend(numbers.by_ref().take(3));
        columns.extend([promised, asked, valid]);
        columns.extend(numbers.by_ref().take(3));
        columns.extend([allowed, broken, paired, features, same_counterfactual]);
        columns.extend(numbers.by_ref().take(1));
        columns.push(needless);
        columns.extend(numbers);
        RecordBatch::try_new(schema, columns).map_err(misfit)
    }
}

/// The standard normal distribution has 95 % of its mass within so many standard deviations.
const NORMAL_95: f64 = 1.959_963_984_540_054;

fn misfit(error: arrow::error::ArrowError) -> Error {
    Error::internal("audit", "columns do not fit").source(error)
}
