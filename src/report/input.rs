//! Rows of the input beside the counterfactuals that were made from them: found by key, divided into segments.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, Rows, SortField};
use hashbrown::HashMap;

use crate::error::{Error, Result};
use crate::metrics::{Segment, Tally};

/// Some rows of the input, in its order.
pub struct InputRows {
    pub(super) features: RecordBatch,
    /// Hash of the key → row.
    pub(super) index: HashMap<u128, u32>,
    /// What divides them, as texts …
    segments: Vec<ArrayRef>,
    /// … and so that they can be compared; none if nothing divides them.
    comparable: Option<Rows>,
}

impl InputRows {
    pub(super) fn new(
        hashes: Vec<u128>,
        features: RecordBatch,
        segments: RecordBatch,
    ) -> Result<InputRows> {
        let segments = segments.columns().iter().map(texts).collect::<Result<Vec<ArrayRef>>>()?;
        let fields = segments.iter().map(|_| SortField::new(DataType::Utf8)).collect();
        let comparable = match segments.len() {
            0 => None,
            _ => {
                let rows = RowConverter::new(fields).and_then(|of| of.convert_columns(&segments));
                let lost = |error| Error::internal("segments", "are not texts").source(error);
                Some(rows.map_err(lost)?)
            }
        };
        let index = hashes.into_iter().zip(0..).collect();
        Ok(InputRows { features, index, segments, comparable })
    }

    /// What divides the rows, as texts.
    pub fn segments(&self) -> &[ArrayRef] {
        &self.segments
    }

    fn segment(&self, row: usize) -> Segment {
        let text = |column: &ArrayRef| {
            let texts = column.as_string::<i32>();
            texts.is_valid(row).then(|| texts.value(row).to_string())
        };
        Segment(self.segments.iter().map(text).collect())
    }
}

fn texts(column: &ArrayRef) -> Result<ArrayRef> {
    cast(column, &DataType::Utf8).map_err(|error| {
        let problem = format!("names a column of type {}, which has no text", column.data_type());
        Error::spec("report.by", problem).source(error)
    })
}

/// Numbers of the segments that were met, in a tally.
#[derive(Default)]
pub(super) struct Segments {
    numbers: HashMap<Vec<u8>, u32>,
}

impl Segments {
    /// The numbers of the segments of some rows.
    ///
    /// # Errors
    /// When there are more than a report can show.
    pub(super) fn of(
        &mut self,
        input: &InputRows,
        rows: &[u32],
        tally: &mut Tally,
    ) -> Result<Vec<u32>> {
        let Some(comparable) = &input.comparable else {
            let all = tally.segment(Segment::default())?;
            return Ok(vec![all; rows.len()]);
        };
        let mut number = |row: &u32| {
            let bytes = comparable.row(*row as usize);
            if let Some(number) = self.numbers.get(bytes.as_ref()) {
                return Ok(*number);
            }
            let number = tally.segment(input.segment(*row as usize))?;
            self.numbers.insert(bytes.as_ref().to_vec(), number);
            Ok(number)
        };
        rows.iter().map(&mut number).collect()
    }
}
