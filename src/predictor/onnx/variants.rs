//! Questions about changed copies of rows, as the rest of the program asks them.

use super::finished;
use super::native::{Aim, FeatureResponses, Originals, SweepScratch};
use super::sessions::OnnxModel;
use crate::error::{Error, Result};
use crate::predictor::{
    Goal, Outcome, Reach, Responses, Scores, Search, Searched, Variant, Variants,
};

/// Rows of one batch that questions are asked about.
pub(super) struct BatchVariants<'p> {
    pub(super) model: &'p OnnxModel,
    pub(super) originals: Originals<'p>,
    pub(super) scratch: (SweepScratch, Vec<FeatureResponses>),
}

impl Variants for BatchVariants<'_> {
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
        let Some(responses) = self.originals.responses(copies, &mut self.scratch) else {
            return Ok(None);
        };
        let responses = responses.into_iter().map(|(values, answers)| {
            let scores = finished(&self.model.outputs, &answers, values.len(), Vec::new())?;
            Ok(Responses { values, scores })
        });
        responses.collect::<Result<_>>().map(Some)
    }

    fn search(
        &mut self,
        (copy, reach): (&Variant<'_>, &[Reach]),
        goal: Goal,
        search: Search<'_>,
    ) -> Result<Option<Searched>> {
        let Some(aim) = self.aim(goal)? else { return Ok(None) };
        Ok(self.originals.search((copy, reach), aim, search))
    }
}

impl BatchVariants<'_> {
    /// A goal in the terms of the trees; none where labels do not tell classes apart.
    fn aim(&self, goal: Goal) -> Result<Option<Aim>> {
        let class = match goal {
            Goal::Between(low, high) => return Ok(Some(Aim::Between(low, high))),
            Goal::Class(class) => class,
        };
        let native = self.originals.native();
        let Some(labels) = native.labels() else { return Ok(None) };
        let responses = native.labelled(labels);
        let scores = finished(&self.model.outputs, &responses, labels as usize, Vec::new())?;
        let Outcome::Classes { labels: mut classes, .. } = scores.outcome else { return Ok(None) };
        let label = classes.iter().position(|known| *known == class);
        classes.sort_unstable();
        let distinct = classes.windows(2).all(|pair| pair[0] != pair[1]);
        Ok(label.filter(|_| distinct).map(|label| Aim::Label(label as u32)))
    }
}
