//! What changes, in words: feature, from, to.

use std::sync::Arc;

use arrow::array::{ArrayRef, ListArray, RecordBatch, StringBuilder, StructArray};
use arrow::buffer::OffsetBuffer;
use arrow::util::display::{ArrayFormatter, FormatOptions};

use crate::error::{Error, Result};
use crate::feature::Rows;
use crate::output::{change_fields, change_item};

/// The column `changes`: per row a list of what changes, in the schema's order.
pub(super) fn changes(
    originals: &Rows,
    counterfactuals: &Rows,
    (before, after): (&RecordBatch, &RecordBatch),
) -> Result<ArrayRef> {
    let options = FormatOptions::default().with_null("null");
    let formatter = |column| ArrayFormatter::try_new(column, &options);
    let pairs = before.columns().iter().zip(after.columns());
    let formatters = pairs
        .map(|(before, after)| Ok((formatter(before.as_ref())?, formatter(after.as_ref())?)))
        .collect::<Result<Vec<_>, arrow::error::ArrowError>>()
        .map_err(|error| Error::internal("changes", "have no words").source(error))?;
    let schema = before.schema();
    let moved: Vec<Vec<bool>> = originals
        .cells
        .iter()
        .zip(&counterfactuals.cells)
        .map(|(own, new)| new.moved_from(own))
        .collect();
    let mut words = Words::default();
    let mut count = 0;
    for row in 0..originals.len {
        for (feature, ((before, after), moved)) in formatters.iter().zip(&moved).enumerate() {
            if moved[row] {
                words.feature.append_value(schema.field(feature).name());
                words.write(row, before, after)?;
                count += 1;
            }
        }
        words.ends.push(count);
    }
    words.finish()
}

struct Words {
    feature: StringBuilder,
    from: StringBuilder,
    to: StringBuilder,
    ends: Vec<i32>,
}

impl Default for Words {
    fn default() -> Self {
        let new = StringBuilder::new;
        Words { feature: new(), from: new(), to: new(), ends: vec![0] }
    }
}

impl Words {
    fn write(
        &mut self,
        row: usize,
        before: &ArrayFormatter<'_>,
        after: &ArrayFormatter<'_>,
    ) -> Result<()> {
        for (formatter, text) in [(before, &mut self.from), (after, &mut self.to)] {
            let written = formatter.value(row).write(text);
            written.map_err(|error| Error::internal("changes", "have no words").source(error))?;
            text.append_value("");
        }
        Ok(())
    }

    fn finish(mut self) -> Result<ArrayRef> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.feature.finish()),
            Arc::new(self.from.finish()),
            Arc::new(self.to.finish()),
        ];
        let misfit = |error| Error::internal("changes", "do not fit").source(error);
        let items = StructArray::try_new(change_fields(), columns, None).map_err(misfit)?;
        let ends = OffsetBuffer::new(self.ends.into());
        let lists = ListArray::try_new(change_item(), ends, Arc::new(items), None);
        Ok(Arc::new(lists.map_err(misfit)?))
    }
}
