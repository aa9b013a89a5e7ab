//! Rows kept for the comparison of distributions, as a file beside the journal.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, BooleanArray, FixedSizeListArray, Float32Array, RecordBatch, UInt32Array,
    UInt64Array,
};
use arrow::datatypes::{DataType, Field, Float32Type, Schema, UInt32Type, UInt64Type};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use crate::error::{Error, Result};
use crate::explain::{Keep, Kept};
use crate::output::{StagedFile, TableWriter, WriterOptions};

/// Rows per row group.
const GROUP_ROWS: usize = 65_536;

/// Writes the rows that are to be kept; nothing if there are none.
pub(super) fn write_kept(
    folder: &Path,
    name: String,
    (mut kept, keep): (Kept, Keep),
) -> Result<Option<StagedFile>> {
    if let Keep::Most(most) = keep {
        kept.prune(most);
    }
    if kept.targets.is_empty() {
        return Ok(None);
    }
    let misfit = |error| Error::internal("kept rows", "do not fit").source(error);
    let item = Arc::new(Field::new("item", DataType::Float32, false));
    let rows = |values: &[f32]| -> Result<ArrayRef> {
        let values = Arc::new(Float32Array::from(values.to_vec()));
        let width = kept.width as i32;
        let lists = FixedSizeListArray::try_new(Arc::clone(&item), width, values, None);
        Ok(Arc::new(lists.map_err(misfit)?))
    };
    let half = |shift: u32| -> ArrayRef {
        Arc::new(UInt64Array::from_iter_values(
            kept.hashes.iter().map(|hash| (hash >> shift) as u64),
        ))
    };
    let columns: Vec<ArrayRef> = vec![
        half(64),
        half(0),
        Arc::new(UInt32Array::from(kept.targets.clone())),
        Arc::new(UInt32Array::from(kept.segments.clone())),
        Arc::new(BooleanArray::from(kept.valid.clone())),
        rows(&kept.counterfactuals)?,
        rows(&kept.originals)?,
    ];
    let names =
        ["hash_high", "hash_low", "target", "segment", "valid", "counterfactual", "original"];
    let fields = names.iter().zip(&columns);
    let field =
        |(name, column): (&&str, &ArrayRef)| Field::new(*name, column.data_type().clone(), false);
    let schema = Arc::new(Schema::new(fields.map(field).collect::<Vec<_>>()));
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns).map_err(misfit)?;
    let options = WriterOptions { row_group_rows: GROUP_ROWS, metadata: Vec::new() };
    let mut writer = TableWriter::create(folder.join(&name), name, schema, &options)?;
    writer.write(&batch)?;
    writer.close().map(Some)
}

/// Reads them back.
pub(super) fn read_kept(path: &Path) -> Result<Kept> {
    let shown = path.display().to_string();
    let broken = |error: parquet::errors::ParquetError| {
        Error::output(&shown, "cannot be read back").source(error)
    };
    let file = File::open(path)
        .map_err(|error| Error::output(&shown, format!("cannot be read back: {error}")))?;
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).map_err(broken)?;
    let mut kept = Kept::default();
    for batch in reader.build().map_err(broken)? {
        let batch =
            batch.map_err(|error| Error::output(&shown, "cannot be read back").source(error))?;
        let half = |place: usize| batch.column(place).as_primitive::<UInt64Type>().values();
        let hashes = half(0).iter().zip(half(1));
        kept.hashes.extend(hashes.map(|(high, low)| u128::from(*high) << 64 | u128::from(*low)));
        let numbers = |place: usize| batch.column(place).as_primitive::<UInt32Type>().values();
        kept.targets.extend(numbers(2));
        kept.segments.extend(numbers(3));
        kept.valid.extend(batch.column(4).as_boolean().values());
        for (place, into) in [(5, &mut kept.counterfactuals), (6, &mut kept.originals)] {
            let lists = batch.column(place).as_fixed_size_list();
            kept.width = lists.value_length() as usize;
            into.extend(lists.values().as_primitive::<Float32Type>().values());
        }
    }
    Ok(kept)
}
