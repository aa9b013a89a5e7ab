//! Questions about changed copies of rows, in batches.

use rayon::prelude::*;

use crate::error::Result;
use crate::explain::{Explainer, Inspected};
use crate::feature::{Edit, Edits};
use crate::predictor::{NO_CLASS, Outcome, Scores, Variant};
use crate::stop;
use crate::target::{Targets, is_valid};

/// Rows whose copies are asked about by one thread.
const BLOCK_ROWS: usize = 1024;
/// Copies that are asked about at once.
const MOST_AT_ONCE: usize = 16_384;

/// A row with some cells changed.
#[derive(Debug, Clone)]
pub(crate) struct Copy {
    /// The row's position.
    pub row: u32,
    /// What differs.
    pub edits: Edits,
}

/// What happens to features that are computed from changed ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DerivedPolicy {
    /// They follow: the row is one that could be.
    Follow,
    /// They stay: the question is about a single input of the model.
    Stay,
}

/// What the model says of a copy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CopyPrediction {
    /// Whether it is the target.
    pub reached: bool,
    /// The decision: a class, or [`NO_CLASS`].
    pub class: u32,
    /// How much speaks for the target: its probability; for a range of values how far the value is from it, below
    /// zero; where the model gives labels only, 1 at the target and 0 elsewhere. NaN where the model failed.
    pub score: f64,
}

/// What the model says of the rows as they are.
pub(crate) fn as_they_are(rows: &Inspected) -> Vec<CopyPrediction> {
    predictions(&rows.decided, &rows.targets)
}

/// What the model says of copies, which are in the order of their rows.
///
/// # Errors
/// When the model as a whole fails.
pub(crate) fn ask(
    explainer: &Explainer,
    (rows, derived): (&Inspected, DerivedPolicy),
    copies: &[Copy],
) -> Result<Vec<CopyPrediction>> {
    let blocks = copies
        .chunk_by(|one, next| one.row as usize / BLOCK_ROWS == next.row as usize / BLOCK_ROWS);
    let blocks: Vec<&[Copy]> = blocks.collect();
    let found: Vec<Vec<CopyPrediction>> = blocks
        .par_iter()
        .map(|block| ask_block(explainer, (rows, derived), block))
        .collect::<Result<_>>()?;
    Ok(found.concat())
}

/// The same about copies of at most [`BLOCK_ROWS`] rows.
fn ask_block(
    explainer: &Explainer,
    (rows, derived): (&Inspected, DerivedPolicy),
    copies: &[Copy],
) -> Result<Vec<CopyPrediction>> {
    let Some(first) = copies.first() else { return Ok(Vec::new()) };
    let first = (first.row as usize / BLOCK_ROWS * BLOCK_ROWS) as u32;
    let last = (rows.len() as u32).min(first + BLOCK_ROWS as u32);
    let block = rows.take(&(first..last).collect::<Vec<u32>>())?;
    let constraints = explainer.constraints();
    let whole = |copy: &Copy| -> (u32, Edits) {
        let row = copy.row - first;
        let original = |feature: usize| block.originals.cell(feature, row as usize);
        let edits: &[Edit] = &copy.edits;
        match derived {
            DerivedPolicy::Stay => (row, copy.edits.clone()),
            DerivedPolicy::Follow => {
                let all = constraints.follow(edits, original);
                (row, all.as_deref().unwrap_or(edits).iter().copied().collect())
            }
        }
    };
    let mut found = Vec::with_capacity(copies.len());
    let mut variants = explainer.predictor().variants(&block.before)?;
    for some in copies.chunks(MOST_AT_ONCE) {
        stop::check()?;
        let some: Vec<(u32, Edits)> = some.iter().map(whole).collect();
        let scores = match &mut variants {
            Some(variants) => {
                let copies = some.iter().map(|(row, edits)| Variant { row: *row, edits });
                variants.predict(&copies.collect::<Vec<_>>())?
            }
            None => by_rows(explainer, &block, &some)?,
        };
        let at: Vec<u32> = some.iter().map(|(row, _)| *row).collect();
        found.extend(predictions(&scores, &block.targets.take(&at)));
    }
    Ok(found)
}

/// Asks about whole rows in the table's types.
fn by_rows(explainer: &Explainer, block: &Inspected, some: &[(u32, Edits)]) -> Result<Scores> {
    let at: Vec<u32> = some.iter().map(|(row, _)| *row).collect();
    let before = block.take(&at)?;
    let mut rows = before.originals.clone();
    for (row, (_, edits)) in some.iter().enumerate() {
        edits.iter().for_each(|edit| rows.set(edit.feature, row, edit.cell));
    }
    let batch = explainer.writer().write(&rows, &before.originals, &before.before)?;
    explainer.predictor().predict(&batch)
}

/// What scores mean beside what is wanted.
pub(super) fn predictions(scores: &Scores, targets: &Targets) -> Vec<CopyPrediction> {
    let reached = is_valid(scores, targets);
    let prediction = |(row, reached): (usize, bool)| match (&scores.outcome, targets) {
        (Outcome::Values(values), Targets::Ranges { low, high }) => {
            let value = values[row];
            let away = (low[row] - value).max(value - high[row]).max(0.0);
            let score = if value.is_nan() { f64::NAN } else { -away };
            CopyPrediction { reached, class: NO_CLASS, score }
        }
        (Outcome::Classes { labels, probabilities }, _) => {
            let targets_of_rows = targets.classes().map(|classes| classes[row] as usize);
            let share =
                probabilities.as_ref().zip(targets_of_rows).map(|(all, targets_of_rows)| {
                    let width = all.len() / labels.len().max(1);
                    all[row * width + targets_of_rows]
                });
            let failed = labels[row] == NO_CLASS;
            let label = if failed { f64::NAN } else { f64::from(u8::from(reached)) };
            CopyPrediction { reached, class: labels[row], score: share.unwrap_or(label) }
        }
        (Outcome::Values(_), _) => CopyPrediction { reached, class: NO_CLASS, score: f64::NAN },
    };
    reached.into_iter().enumerate().map(prediction).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_speak_for_the_target() {
        let targets = Targets::Classes { classes: vec![1, 0, 1], probabilities: vec![0.0; 3] };
        let labels = vec![1, 1, NO_CLASS];
        let probabilities = Some(vec![0.3, 0.7, 0.2, 0.8, f64::NAN, f64::NAN]);
        let outcome = Outcome::Classes { labels: labels.clone(), probabilities };
        let found = predictions(&Scores { rows: 3, outcome, failures: Vec::new() }, &targets);
        let reached: Vec<bool> = found.iter().map(|one| one.reached).collect();
        assert_eq!(reached, [true, false, false]);
        assert_eq!([found[0].score, found[1].score], [0.7, 0.2]);
        assert!(found[2].score.is_nan());
        let outcome = Outcome::Classes { labels, probabilities: None };
        let found = predictions(&Scores { rows: 3, outcome, failures: Vec::new() }, &targets);
        assert_eq!([found[0].score, found[1].score], [1.0, 0.0], "labels alone");
        let targets = Targets::Ranges { low: vec![1.0; 3], high: vec![2.0; 3] };
        let outcome = Outcome::Values(vec![0.5, 1.5, 4.0]);
        let found = predictions(&Scores { rows: 3, outcome, failures: Vec::new() }, &targets);
        let scores: Vec<f64> = found.iter().map(|one| one.score).collect();
        assert_eq!(scores, [-0.5, 0.0, -2.0], "how far from the range");
    }
}
