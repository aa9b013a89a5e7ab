//! Rows that were set aside, counted from their table.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Field, Schema};

use super::written::{column, read};
use crate::error::Result;

/// Adds the rows of a file of the rejects table to counts by reason.
///
/// # Errors
/// When it cannot be read.
pub fn count_rejects(folder: &Path, name: &str, reasons: &mut BTreeMap<String, u64>) -> Result<()> {
    let reason = Field::new("reason", DataType::Utf8, false);
    for batch in read(folder, name, &Arc::new(Schema::new(vec![reason])))? {
        for reason in column(&batch?, "reason")?.as_string::<i32>().iter().flatten() {
            match reasons.get_mut(reason) {
                Some(rows) => *rows += 1,
                None => drop(reasons.insert(reason.to_string(), 1)),
            }
        }
    }
    Ok(())
}
