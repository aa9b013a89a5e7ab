//! The table's columns, and blocks of its rows as Arrow batches.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Date32Array, DictionaryArray, Float64Array, Int8Array, Int32Array, Int64Array,
    RecordBatch, StringArray,
};
use arrow::buffer::{BooleanBuffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::Synth;
use super::applicant::Applicant;
use super::category::{
    Decision, Education, Employment, Housing, MaritalStatus, Purpose, Region, Sex,
};
use super::dice::Dice;
use super::rule;
use crate::error::{Error, Result};

/// Rows that share a random stream. Large enough that seeding costs nothing, small enough that a small
/// table is still made by several threads. Changing it changes every table.
pub(super) const BLOCK_ROWS: u64 = 16_384;

/// Days from 1970-01-01 to 2025-01-01, the first day of applications; there is a year of them.
const FIRST_DAY: i32 = 20_089;
const DAYS: f64 = 365.0;

/// One application with its decision.
struct Application {
    applied_on: i32,
    applicant: Applicant,
    decision: Decision,
}

impl Application {
    fn draw(dice: &mut Dice) -> Application {
        let applied_on = FIRST_DAY + (DAYS * dice.uniform()) as i32;
        let applicant = Applicant::draw(dice);
        let odds = rule::approval(&applicant);
        let decision = Decision::at(dice.pick(&[odds, 1.0 - odds]));
        Application { applied_on, applicant, decision }
    }
}

/// One column: what it is called and where its values come from.
struct SynthColumn {
    name: &'static str,
    /// Whether a null may stand for a value, when nulls are asked for.
    nullable: bool,
    values: SynthValues,
}

/// A column's type, and how a row's value is taken from the application.
enum SynthValues {
    /// The row's number, from 1.
    Key,
    Date(fn(&Application) -> i32),
    Integer(fn(&Application) -> i32),
    Amount(fn(&Application) -> f64),
    /// The values, and the position of a row's value among them.
    Category(&'static [&'static str], fn(&Application) -> usize),
}

use SynthValues::{Amount, Category, Date, Integer, Key};

static COLUMNS: [SynthColumn; 19] = [
    column("application_id", Key),
    column("applied_on", Date(|row| row.applied_on)),
    column("age", Integer(|row| row.applicant.person.age)),
    column("income", Amount(|row| row.applicant.money.income)),
    column("debt", Amount(|row| row.applicant.money.debt)),
    nullable("savings", Amount(|row| row.applicant.money.savings)),
    column("loan_amount", Amount(|row| row.applicant.loan.amount)),
    column("loan_term_months", Integer(|row| row.applicant.loan.term_months)),
    nullable("credit_history_months", Integer(|row| row.applicant.money.credit_history_months)),
    column("late_payments", Integer(|row| row.applicant.money.late_payments)),
    column("open_accounts", Integer(|row| row.applicant.money.open_accounts)),
    column(
        "employment",
        Category(Employment::TEXTS, |row| row.applicant.person.employment as usize),
    ),
    nullable("housing", Category(Housing::TEXTS, |row| row.applicant.money.housing as usize)),
    nullable(
        "education",
        Category(Education::TEXTS, |row| row.applicant.person.education as usize),
    ),
    column("purpose", Category(Purpose::TEXTS, |row| row.applicant.loan.purpose as usize)),
    column(
        "marital_status",
        Category(MaritalStatus::TEXTS, |row| row.applicant.person.marital_status as usize),
    ),
    column("sex", Category(Sex::TEXTS, |row| row.applicant.person.sex as usize)),
    column("region", Category(Region::TEXTS, |row| row.applicant.person.region as usize)),
    column("approved", Category(Decision::TEXTS, |row| row.decision as usize)),
];

const fn column(name: &'static str, values: SynthValues) -> SynthColumn {
    SynthColumn { name, nullable: false, values }
}

const fn nullable(name: &'static str, values: SynthValues) -> SynthColumn {
    SynthColumn { name, nullable: true, values }
}

/// The key column, for the writer: it is the one that no dictionary helps.
pub(super) fn key() -> &'static str {
    COLUMNS[0].name
}

/// The columns of text.
pub(super) fn categories() -> impl Iterator<Item = &'static str> {
    let text = |column: &&SynthColumn| matches!(column.values, Category(..));
    COLUMNS.iter().filter(text).map(|column| column.name)
}

/// The Arrow schema of every batch. Text is dictionary-encoded in memory, which is quick to write;
/// Parquet readers see plain text.
pub(super) fn schema() -> SchemaRef {
    let field = |column: &SynthColumn| Field::new(column.name, column.data_type(), column.nullable);
    Arc::new(Schema::new(COLUMNS.iter().map(field).collect::<Vec<_>>()))
}

impl SynthColumn {
    fn data_type(&self) -> DataType {
        match self.values {
            Key => DataType::Int64,
            Date(_) => DataType::Date32,
            Integer(_) => DataType::Int32,
            Amount(_) => DataType::Float64,
            Category(..) => {
                DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8))
            }
        }
    }

    fn array(&self, first_row: u64, rows: &[Application], nulls: Option<NullBuffer>) -> ArrayRef {
        match self.values {
            Key => {
                let first = first_row as i64 + 1;
                Arc::new(Int64Array::from_iter_values(first..first + rows.len() as i64))
            }
            Date(value) => Arc::new(Date32Array::from_iter_values(rows.iter().map(value))),
            Integer(value) => Arc::new(Int32Array::new(rows.iter().map(value).collect(), nulls)),
            Amount(value) => Arc::new(Float64Array::new(rows.iter().map(value).collect(), nulls)),
            Category(texts, value) => {
                let codes: ScalarBuffer<i8> = rows.iter().map(|row| value(row) as i8).collect();
                let texts = Arc::new(StringArray::from_iter_values(texts));
                Arc::new(DictionaryArray::new(Int8Array::new(codes, nulls), texts))
            }
        }
    }
}

/// Some rows of one block.
pub(super) struct BlockRows {
    pub(super) batch: RecordBatch,
    /// How many of them are approved.
    pub(super) approved: u64,
}

/// Makes the given rows, which must lie within one block. A block is drawn from its start, so that a
/// row is the same whatever part of the block it is asked for with.
pub(super) fn rows(synth: &Synth, schema: &SchemaRef, range: Range<u64>) -> Result<BlockRows> {
    let block = range.start / BLOCK_ROWS;
    let first_row = block * BLOCK_ROWS;
    let skipped = (range.start - first_row) as usize;
    let drawn = (range.end - first_row) as usize;
    let mut dice = Dice::for_values(synth.seed, block);
    let applications: Vec<_> = (0..drawn).map(|_| Application::draw(&mut dice)).collect();
    let mut dice = Dice::for_nulls(synth.seed, block);
    let columns = COLUMNS.iter().map(|column| {
        let share = if column.nullable { synth.null_share } else { 0.0 };
        column.array(first_row, &applications, nulls(share, drawn, &mut dice))
    });
    let batch = RecordBatch::try_new(Arc::clone(schema), columns.collect())
        .map_err(|error| Error::internal("synth", "columns and schema differ").source(error))?;
    let requested = &applications[skipped..];
    let approved = requested.iter().filter(|row| row.decision == Decision::Approved).count();
    Ok(BlockRows { batch: batch.slice(skipped, requested.len()), approved: approved as u64 })
}

/// Which of a block's values are null. The draws of a whole block are used up, so that the next
/// column's nulls do not depend on how many rows were asked for.
fn nulls(share: f64, rows: usize, dice: &mut Dice) -> Option<NullBuffer> {
    if share == 0.0 {
        return None;
    }
    let valid: BooleanBuffer = (0..BLOCK_ROWS).map(|_| !dice.chance(share)).collect();
    Some(NullBuffer::new(valid.slice(0, rows)))
}
