//! Questions about changed copies of rows, without a batch for each.

use std::cell::OnceCell;
use std::collections::HashMap;

use arrow::array::RecordBatch;

use super::super::inputs::FeatureInputs;
use super::engine::ChangedValue;
use super::scorer::{Answered, EncodedRows, Native, Refused};
use super::sources::FeatureSources;
use crate::feature::{Cell, UNSEEN_CODE, numbers};
use crate::predictor::{RowFailure, Variant};

/// Rows that questions are asked about.
#[derive(Debug)]
pub(in super::super) struct Originals<'n> {
    pub(super) native: &'n Native,
    pub(super) inputs: &'n FeatureInputs,
    pub(super) encoded_rows: EncodedRows,
    /// By row: the features that cannot be told to the model, and why.
    failing: HashMap<usize, Vec<(usize, String)>>,
    changes: Vec<(usize, ChangedValue)>,
    /// Per question, the end of its changes.
    ends: Vec<usize>,
    batch: RecordBatch,
    /// Per feature its numbers in the table's own terms, once they were asked for.
    numbers: Vec<OnceCell<Vec<f64>>>,
}

/// Why questions cannot be answered.
#[derive(Debug, thiserror::Error)]
pub(in super::super) enum Unasked {
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("a changed value does not fit the column of its feature")]
    Misfit,
}

impl Native {
    /// Prepares questions about these rows; none where changes of a column cannot be told without a batch.
    pub(in super::super) fn originals<'n>(
        &'n self,
        inputs: &'n FeatureInputs,
        batch: &RecordBatch,
    ) -> Result<Option<Originals<'n>>, Refused> {
        if !self.sources.can_change(batch) {
            return Ok(None);
        }
        let mut encoded_rows = self.encode(inputs, batch)?;
        let mut failing: HashMap<usize, Vec<(usize, String)>> = HashMap::new();
        for (feature, failures) in
            std::mem::take(&mut encoded_rows.failures).into_iter().enumerate()
        {
            for RowFailure { row, detail } in failures {
                failing.entry(row).or_default().push((feature, detail));
            }
        }
        let (changes, ends) = (Vec::new(), Vec::new());
        let (batch, numbers) = (batch.clone(), vec![OnceCell::new(); batch.num_columns()]);
        Ok(Some(Originals {
            native: self,
            inputs,
            encoded_rows,
            failing,
            changes,
            ends,
            batch,
            numbers,
        }))
    }
}

impl<'n> Originals<'n> {
    /// The model that is asked.
    pub(in super::super) fn native(&self) -> &'n Native {
        self.native
    }

    /// A numeric feature's numbers in the table's own terms; NaN for a null.
    pub(super) fn numbers(&self, feature: usize) -> &[f64] {
        self.numbers[feature].get_or_init(|| {
            let column = numbers(self.batch.column(feature)).ok();
            let filled = column.iter().flatten().map(|number| number.unwrap_or(f64::NAN));
            let filled: Vec<f64> = filled.collect();
            if filled.is_empty() { vec![f64::NAN; self.batch.num_rows()] } else { filled }
        })
    }

    /// Whether a row cannot be told to the model.
    pub(super) fn is_failing(&self, row: usize) -> bool {
        self.failing.contains_key(&row)
    }

    /// The answers for these copies, and those that cannot be told to the model.
    pub(in super::super) fn ask(
        &mut self,
        copies: &[Variant<'_>],
    ) -> Result<(Answered<'n>, Vec<RowFailure>), Unasked> {
        let mut failures = Vec::new();
        self.changes.clear();
        self.ends.clear();
        for (at, copy) in copies.iter().enumerate() {
            let failed = self.take(copy)?;
            failures.extend(failed.map(|detail| RowFailure { row: at, detail }));
            self.ends.push(self.changes.len());
        }
        let starts = [0].iter().chain(&self.ends);
        let spans = starts.zip(&self.ends).map(|(start, end)| &self.changes[*start..*end]);
        let questions = copies.iter().map(|copy| copy.row as usize).zip(spans);
        Ok((self.native.answer(&self.encoded_rows.encoded, questions), failures))
    }

    /// Notes the changes of a copy; says why it cannot be told to the model, if so.
    fn take(&mut self, copy: &Variant<'_>) -> Result<Option<String>, Unasked> {
        let first = self.changes.len();
        let mut failed = None;
        for edit in copy.edits {
            // Nothing changes to an unseen value: it is the row's own.
            if matches!(edit.cell, Cell::Code(UNSEEN_CODE)) {
                continue;
            }
            let sources = &self.native.sources;
            let change = sources.change(self.inputs, edit.feature, edit.cell);
            match change.ok_or(Unasked::Misfit)? {
                Ok(change) => self.changes.push((edit.feature, change)),
                Err("") => failed = Some(FeatureSources::refusal(self.inputs, edit.feature)),
                Err(detail) => failed = Some(detail.to_string()),
            }
        }
        self.check(copy.row as usize, first)?;
        let failure = self.failing.get(&(copy.row as usize));
        let unchanged = |(feature, _): &&(usize, String)| {
            !copy.edits.iter().any(|edit| edit.feature == *feature)
        };
        let failure = failure.and_then(|failing| failing.iter().find(unchanged));
        Ok(failed.or_else(|| failure.map(|(_, detail)| detail.clone())))
    }

    /// Refuses a copy with a category that an encoder does not know.
    fn check(&self, row: usize, first: usize) -> Result<(), Refused> {
        if !self.native.engine.is_strict() {
            return Ok(());
        }
        let changed = &self.changes[first..];
        for (feature, column) in self.encoded_rows.encoded.columns.iter().enumerate() {
            let unchanged = || column.change(row);
            let change = changed.iter().find(|(at, _)| *at == feature);
            let change = change.map_or_else(unchanged, |(_, change)| *change);
            self.native.check_change((feature, change))?;
        }
        Ok(())
    }
}
