//! Questions about changed copies of rows, as the rest of the program asks them.

use super::finished;
use super::native::{Originals, SweepScratch, Swept};
use super::sessions::Model;
use crate::error::{Error, Result};
use crate::predictor::{Reach, Responses, Scores, Variant, Variants};

/// Rows of one batch that questions are asked about.
pub(super) struct Copies<'p> {
    pub(super) model: &'p Model,
    pub(super) originals: Originals<'p>,
    pub(super) scratch: (SweepScratch, Vec<Swept>),
}

impl Variants for Copies<'_> {
    fn predict(&mut self, copies: &[Variant<'_>]) -> Result<Scores> {
        let rows = copies.len();
        let asked = self.originals.ask(copies);
        let (answers, failures) = asked.map_err(|error| match error {
            super::native::Unasked::Misfit => {
                Error::internal("variants", "a changed value does not fit its column")
            }
            super::native::Unasked::Refused(error) => self.model.failed(rows, error),
        })?;
        finished(&self.model.outputs, &answers, rows, failures)
    }

    fn responses(&mut self, copies: &[(Variant<'_>, &[Reach])]) -> Result<Option<Vec<Responses>>> {
        let Some(told) = self.originals.responses(copies, &mut self.scratch) else {
            return Ok(None);
        };
        let told = told.into_iter().map(|(values, answers)| {
            let scores = finished(&self.model.outputs, &answers, values.len(), Vec::new())?;
            Ok(Responses { values, scores })
        });
        told.collect::<Result<_>>().map(Some)
    }
}
