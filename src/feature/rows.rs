//! Rows in plain memory: per feature its numbers or its category codes. Read from batches of any supported
//! Arrow types, and written back so that whatever did not change is the original's own cell.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Array, RecordBatch};
use arrow::buffer::NullBuffer;
use arrow::compute::interleave;
use rayon::prelude::*;
use smallvec::SmallVec;

use super::column::{
    CategoryIndex, NULL_CODE, UNSEEN_CODE, from_numbers, from_texts, numbers, type_name,
};
use super::schema::{Categorical, Feature, FeatureKind, FeatureSchema};
use crate::error::{Error, Result};

/// Below this many rows a batch is converted on the caller's thread. Engine batches are smaller and their
/// partitions already use every core; whole training tables are larger.
pub const PARALLEL_ROWS: usize = 65_536;

/// One feature's values of some rows.
#[derive(Debug, Clone)]
pub enum Cells {
    /// Numbers; NaN is a null.
    Numbers(Vec<f64>),
    /// [`NULL_CODE`], [`UNSEEN_CODE`] or an index into the feature's values.
    Codes(Vec<u32>),
}

/// One feature's value of one row.
#[derive(Debug, Clone, Copy)]
pub enum Cell {
    /// A number; NaN is a null.
    Number(f64),
    /// A code, as in [`Cells::Codes`].
    Code(u32),
}

impl PartialEq for Cell {
    /// Two nulls are the same, though they are not equal.
    fn eq(&self, other: &Cell) -> bool {
        match (self, other) {
            (Cell::Number(one), Cell::Number(two)) => one == two || (one.is_nan() && two.is_nan()),
            (Cell::Code(one), Cell::Code(two)) => one == two,
            _ => false,
        }
    }
}

/// One changed value of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Edit {
    /// The feature.
    pub feature: usize,
    /// Its new value.
    pub cell: Cell,
}

/// What changes in a row, in the order of the features: mostly one or two.
pub type Edits = SmallVec<[Edit; 2]>;

/// Rows in plain memory, a column per feature in the schema's order.
#[derive(Debug, Clone)]
pub struct Rows {
    /// Number of rows.
    pub len: usize,
    /// Per feature, `len` cells.
    pub cells: Vec<Cells>,
}

impl Cells {
    /// The numbers, if it is a numeric feature's column.
    pub fn numbers(&self) -> Option<&[f64]> {
        match self {
            Cells::Numbers(numbers) => Some(numbers),
            Cells::Codes(_) => None,
        }
    }

    /// The codes, if it is a categorical feature's column.
    pub fn codes(&self) -> Option<&[u32]> {
        match self {
            Cells::Numbers(_) => None,
            Cells::Codes(codes) => Some(codes),
        }
    }

    /// Per row whether the cell is another than in `original`. Two nulls are the same, though they are not equal.
    pub fn moved_from(&self, original: &Cells) -> Vec<bool> {
        match (self, original) {
            (Cells::Numbers(new), Cells::Numbers(original)) => new
                .iter()
                .zip(original)
                .map(|(new, original)| (new - original).abs() > 0.0)
                .collect(),
            (Cells::Codes(new), Cells::Codes(original)) => {
                new.iter().zip(original).map(|(new, original)| new != original).collect()
            }
            _ => unreachable!("rows of one schema have the same columns"),
        }
    }

    fn cell(&self, row: usize) -> Cell {
        match self {
            Cells::Numbers(numbers) => Cell::Number(numbers[row]),
            Cells::Codes(codes) => Cell::Code(codes[row]),
        }
    }

    fn set(&mut self, row: usize, cell: Cell) {
        match (self, cell) {
            (Cells::Numbers(numbers), Cell::Number(number)) => numbers[row] = number,
            (Cells::Codes(codes), Cell::Code(code)) => codes[row] = code,
            _ => unreachable!("rows of one schema have the same columns"),
        }
    }

    fn take(&self, rows: &[u32]) -> Cells {
        match self {
            Cells::Numbers(cells) => Cells::Numbers(taken(cells, rows)),
            Cells::Codes(cells) => Cells::Codes(taken(cells, rows)),
        }
    }

    fn slice(&self, rows: Range<usize>) -> Cells {
        match self {
            Cells::Numbers(cells) => Cells::Numbers(cells[rows].to_vec()),
            Cells::Codes(cells) => Cells::Codes(cells[rows].to_vec()),
        }
    }

    fn put(&mut self, indexes: &[u32], new: Cells) {
        match (self, new) {
            (Cells::Numbers(cells), Cells::Numbers(new)) => put(cells, indexes, &new),
            (Cells::Codes(cells), Cells::Codes(new)) => put(cells, indexes, &new),
            _ => unreachable!("rows of one schema have the same columns"),
        }
    }

    fn append(&mut self, more: Cells) {
        match (self, more) {
            (Cells::Numbers(cells), Cells::Numbers(more)) => cells.extend(more),
            (Cells::Codes(cells), Cells::Codes(more)) => cells.extend(more),
            _ => unreachable!("rows of one schema have the same columns"),
        }
    }
}

fn taken<T: Copy>(cells: &[T], rows: &[u32]) -> Vec<T> {
    rows.iter().map(|row| cells[*row as usize]).collect()
}

fn put<T: Copy>(cells: &mut [T], indexes: &[u32], new: &[T]) {
    for (index, new) in indexes.iter().zip(new) {
        cells[*index as usize] = *new;
    }
}

impl Rows {
    /// One feature's value of a row.
    pub fn cell(&self, feature: usize, row: usize) -> Cell {
        self.cells[feature].cell(row)
    }

    /// Puts a value in the place of another.
    pub fn set(&mut self, feature: usize, row: usize, cell: Cell) {
        self.cells[feature].set(row, cell);
    }

    /// Puts rows of the same schema in the place of others.
    pub fn put(&mut self, indexes: &[u32], new: Rows) {
        for (cells, new) in self.cells.iter_mut().zip(new.cells) {
            cells.put(indexes, new);
        }
    }

    /// The rows at these positions, in this order.
    pub fn take(&self, rows: &[u32]) -> Rows {
        Rows { len: rows.len(), cells: self.cells.iter().map(|cells| cells.take(rows)).collect() }
    }

    /// A stretch of the rows.
    pub fn slice(&self, rows: Range<usize>) -> Rows {
        let cells = self.cells.iter().map(|cells| cells.slice(rows.clone())).collect();
        Rows { len: rows.len(), cells }
    }

    /// Adds rows of the same schema at the end.
    pub fn append(&mut self, more: Rows) {
        self.len += more.len;
        for (cells, more) in self.cells.iter_mut().zip(more.cells) {
            cells.append(more);
        }
    }
}

/// Reads batches whose columns are the schema's features, in order and valid.
#[derive(Debug, Clone)]
pub struct RowReader {
    /// Per feature; none for a numeric one.
    indexes: Vec<Option<CategoryIndex>>,
}

impl RowReader {
    /// A reader for the features of a schema.
    pub fn new(schema: &FeatureSchema) -> RowReader {
        let index = |feature: &Feature| {
            feature.categorical().map(|categorical| CategoryIndex::new(&categorical.values))
        };
        RowReader { indexes: schema.features.iter().map(index).collect() }
    }

    /// The rows of a batch.
    pub fn read(&self, batch: &RecordBatch) -> Result<Rows> {
        if batch.num_columns() != self.indexes.len() {
            return Err(Error::internal("rows", "columns are not the schema's features"));
        }
        let read = |(column, index): (&ArrayRef, &Option<CategoryIndex>)| match index {
            None => Ok(Cells::Numbers(plain_numbers(numbers(column)?))),
            Some(index) => Ok(Cells::Codes(index.codes(column)?)),
        };
        let cells: Result<Vec<Cells>> = if batch.num_rows() >= PARALLEL_ROWS {
            batch.columns().par_iter().zip(&self.indexes).map(read).collect()
        } else {
            batch.columns().iter().zip(&self.indexes).map(read).collect()
        };
        Ok(Rows { len: batch.num_rows(), cells: cells? })
    }
}

/// The numbers with NaN for null.
fn plain_numbers(column: Float64Array) -> Vec<f64> {
    let (_, values, nulls) = column.into_parts();
    let mut plain = Vec::from(values);
    if let Some(nulls) = nulls.filter(|nulls| nulls.null_count() > 0) {
        for (value, valid) in plain.iter_mut().zip(&nulls) {
            *value = if valid { *value } else { f64::NAN };
        }
    }
    plain
}

/// Writes counterfactual rows in the types of the originals. A cell that did not change is the original's
/// own: the same NaN or null, the same text of an unseen category, the same whole number where `f64` has
/// only a neighbour of it.
#[derive(Debug, Clone)]
pub struct RowWriter {
    schema: Arc<FeatureSchema>,
}

impl RowWriter {
    /// A writer for the features of a schema.
    pub fn new(schema: &Arc<FeatureSchema>) -> RowWriter {
        RowWriter { schema: Arc::clone(schema) }
    }

    /// Counterfactuals of the rows of `batch`, which `originals` were read from. A column without changed
    /// cells is that of the batch itself.
    ///
    /// # Errors
    /// When a value that a feature may move to does not fit the column's type.
    pub fn write(
        &self,
        counterfactuals: &Rows,
        originals: &Rows,
        batch: &RecordBatch,
    ) -> Result<RecordBatch> {
        let lengths = [counterfactuals.len, originals.len];
        let columns = [counterfactuals.cells.len(), originals.cells.len(), batch.num_columns()];
        if lengths != [batch.num_rows(); 2] || columns != [self.schema.features.len(); 3] {
            return Err(Error::internal("rows", "counterfactuals and originals differ in shape"));
        }
        let cells = counterfactuals.cells.iter().zip(&originals.cells);
        let columns = self.schema.features.iter().zip(cells).zip(batch.columns());
        let columns = columns.map(|((feature, (new, original)), column)| match (new, original) {
            (Cells::Numbers(new), Cells::Numbers(original)) => write_numbers(new, original, column),
            (Cells::Codes(new), Cells::Codes(original)) => {
                write_codes(feature, new, original, column)
            }
            _ => Err(Error::internal("rows", "counterfactuals and originals differ in kind")),
        });
        RecordBatch::try_new(batch.schema(), columns.collect::<Result<_>>()?)
            .map_err(|error| Error::internal("rows", "columns do not fit").source(error))
    }
}

fn write_numbers(new: &[f64], original: &[f64], column: &ArrayRef) -> Result<ArrayRef> {
    let changed = |new: f64, original: f64| new != original && !(new.is_nan() && original.is_nan());
    let pairs = || new.iter().zip(original);
    if !pairs().any(|(new, original)| changed(*new, *original)) {
        return Ok(Arc::clone(column));
    }
    // Cells that stay are not converted: any number that every type can hold does in their place.
    let values: Vec<f64> =
        pairs().map(|(new, original)| if changed(*new, *original) { *new } else { 0.0 }).collect();
    let is_number: Vec<bool> = values.iter().map(|value| !value.is_nan()).collect();
    let nulls = is_number.contains(&false).then(|| NullBuffer::from(is_number));
    let values = from_numbers(&Float64Array::new(values.into(), nulls), column.data_type())?;
    let sources = pairs()
        .enumerate()
        .map(|(row, (new, original))| (usize::from(changed(*new, *original)), row))
        .collect::<Vec<_>>();
    picked(column, &values, &sources)
}

fn write_codes(
    feature: &Feature,
    new: &[u32],
    original: &[u32],
    column: &ArrayRef,
) -> Result<ArrayRef> {
    if new == original {
        return Ok(Arc::clone(column));
    }
    let FeatureKind::Categorical(categorical) = &feature.kind else {
        return Err(Error::internal("rows", "a numeric feature has codes"));
    };
    // The null comes last, after all codes.
    let texts = categorical.values.iter().map(|value| Some(value.as_str())).chain([None]);
    let values = from_texts(texts, column.data_type())?;
    let source = |code: u32| match code {
        NULL_CODE => Ok(categorical.values.len()),
        UNSEEN_CODE => Err(Error::internal("rows", "a cell changed to an unseen value")),
        code if values.is_null(code as usize) => Err(misfit(feature, categorical, code, column)),
        code => Ok(code as usize),
    };
    let sources = new.iter().zip(original).enumerate().map(|(row, (new, original))| {
        if new == original { Ok((0, row)) } else { source(*new).map(|index| (1, index)) }
    });
    picked(column, &values, &sources.collect::<Result<Vec<_>>>()?)
}

fn misfit(feature: &Feature, categorical: &Categorical, code: u32, column: &ArrayRef) -> Error {
    let value = &categorical.values[code as usize];
    let problem = format!(
        "lists the value `{value}`, which a column of type {} cannot hold",
        type_name(column.data_type())
    );
    Error::schema(format!("feature `{}`", feature.name), problem)
        .hint("take the value out of `allowed`, or store the column as text")
}

/// Per row a cell of the column (0) or of the new values (1).
fn picked(column: &ArrayRef, values: &ArrayRef, sources: &[(usize, usize)]) -> Result<ArrayRef> {
    interleave(&[column.as_ref(), values.as_ref()], sources)
        .map_err(|error| Error::internal("rows", "changed cells do not fit").source(error))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use arrow::array::{AsArray, Float32Array, Int64Array, StringArray, TimestampMicrosecondArray};
    use arrow::compute::cast;
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};

    use super::*;

    const SCHEMA: &str = r#"
        [[feature]]
        name = "amount"
        kind = "numeric"
        nulls = "carry"
        [[feature]]
        name = "count"
        kind = "numeric"
        [[feature]]
        name = "job"
        kind = "categorical"
        values = ["clerk", "smith"]
        nulls = "carry"
        unseen = "carry"
    "#;

    fn schema(text: &str) -> Arc<FeatureSchema> {
        Arc::new(FeatureSchema::parse(text, Path::new("f.toml")).expect("a good schema"))
    }

    fn batch(job_type: &DataType) -> RecordBatch {
        let amounts = vec![Some(f32::NAN), None, Some(-0.0), Some(1.5)];
        let jobs = StringArray::from(vec![Some("clerk"), None, Some("poet"), Some("smith")]);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Float32Array::from(amounts)),
            Arc::new(Int64Array::from(vec![(1 << 53) + 1, i64::MAX, i64::MIN, 7])),
            cast(&jobs, job_type).expect("text types convert"),
        ];
        let fields = ["amount", "count", "job"].iter().zip(&columns);
        let field = |(name, column): (&&str, &ArrayRef)| {
            Field::new(*name, column.data_type().clone(), true)
        };
        let schema = Schema::new(fields.map(field).collect::<Vec<_>>());
        RecordBatch::try_new(Arc::new(schema), columns).expect("a good batch")
    }

    fn job_types() -> [DataType; 4] {
        let dictionary = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
        [DataType::Utf8, DataType::LargeUtf8, DataType::Utf8View, dictionary]
    }

    #[test]
    fn columns_without_changed_cells_are_the_originals() {
        let schema = schema(SCHEMA);
        for job_type in job_types() {
            let batch = batch(&job_type);
            let rows = RowReader::new(&schema).read(&batch).expect("read");
            let written = RowWriter::new(&schema).write(&rows, &rows, &batch).expect("written");
            for (written, original) in written.columns().iter().zip(batch.columns()) {
                assert!(Arc::ptr_eq(written, original));
            }
        }
    }

    #[test]
    fn cells_that_did_not_change_are_the_originals_bit_by_bit() {
        let schema = schema(SCHEMA);
        for job_type in job_types() {
            let batch = batch(&job_type);
            let rows = RowReader::new(&schema).read(&batch).expect("read");
            let mut changed = rows.clone();
            changed.cells[0] = Cells::Numbers(vec![f64::NAN, f64::NAN, 0.0, 2.5]);
            let Cells::Numbers(counts) = &mut changed.cells[1] else { panic!("numbers") };
            counts[3] = 8.0;
            changed.cells[2] = Cells::Codes(vec![1, NULL_CODE, UNSEEN_CODE, 1]);
            let written = RowWriter::new(&schema).write(&changed, &rows, &batch).expect("written");
            let amounts = written.column(0).as_primitive::<arrow::datatypes::Float32Type>();
            assert!(amounts.value(0).is_nan() && amounts.is_valid(0) && amounts.is_null(1));
            assert_eq!(amounts.value(2).to_bits(), (-0f32).to_bits());
            assert_eq!(amounts.value(3), 2.5);
            let counts = written.column(1).as_primitive::<Int64Type>();
            assert_eq!(counts.values(), &[(1 << 53) + 1, i64::MAX, i64::MIN, 8]);
            assert_eq!(written.column(2).data_type(), &job_type);
            let jobs = cast(written.column(2), &DataType::Utf8).expect("texts");
            let jobs: Vec<_> = jobs.as_string::<i32>().iter().collect();
            assert_eq!(jobs, [Some("smith"), None, Some("poet"), Some("smith")]);
        }
    }

    #[test]
    fn a_value_that_the_column_cannot_hold_is_named() {
        let text = "[[feature]]\nname = \"n\"\nkind = \"categorical\"\nvalues = [1, \"many\"]\n";
        let schema = schema(text);
        let arrow = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
        let column: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let batch = RecordBatch::try_new(arrow, vec![column]).expect("a batch");
        let rows = RowReader::new(&schema).read(&batch).expect("read");
        let changed = Rows { len: 1, cells: vec![Cells::Codes(vec![1])] };
        let error = RowWriter::new(&schema).write(&changed, &rows, &batch).expect_err("no number");
        assert!(error.to_string().contains("lists the value `many`, which a column of type int64"));
    }

    #[test]
    fn rows_are_taken_sliced_and_joined() {
        let rows = Rows {
            len: 3,
            cells: vec![Cells::Numbers(vec![1.0, 2.0, 3.0]), Cells::Codes(vec![7, 8, 9])],
        };
        let mut joined = rows.take(&[2, 0]);
        joined.append(rows.slice(1..2));
        assert_eq!(joined.len, 3);
        assert_eq!(joined.cells[0].numbers().expect("numbers"), [3.0, 1.0, 2.0]);
        assert_eq!(joined.cells[1].codes().expect("codes"), [9, 7, 8]);
    }

    #[test]
    fn times_keep_their_zone() {
        let text = "[[feature]]\nname = \"t\"\nkind = \"numeric\"\n";
        let schema = schema(text);
        let column = TimestampMicrosecondArray::from(vec![5, 6]).with_timezone("UTC");
        let batch = RecordBatch::try_from_iter([("t", Arc::new(column) as ArrayRef)]).expect("one");
        let rows = RowReader::new(&schema).read(&batch).expect("read");
        let changed = Rows { len: 2, cells: vec![Cells::Numbers(vec![5.0, 60.0])] };
        let written = RowWriter::new(&schema).write(&changed, &rows, &batch).expect("written");
        assert_eq!(written.schema(), batch.schema());
    }
}
