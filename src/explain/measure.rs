//! Answers into counts by target and segment, and the rows that are kept for the comparison of
//! distributions. Also for answers that were given before and are read back from a table.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;

use super::admit::Usable;
use super::ask::Answers;
use super::{Explainer, Kept, Ledger};
use crate::encode::Encoder;
use crate::error::{Error, Result};
use crate::feature::Rows;
use crate::metrics::{Observed, Segment, Status, Tally};

/// Which answers are kept for the comparison of distributions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// None.
    None,
    /// Of each wanted decision so many, those with the smallest hashes of keys.
    Most(usize),
    /// All.
    All,
}

/// Counts answers, and keeps some of them.
#[derive(Debug, Clone)]
pub struct Recorder {
    encoder: Encoder,
    keep: Keep,
}

impl Recorder {
    /// A recorder of rows encoded like this.
    pub fn new(encoder: Encoder, keep: Keep) -> Recorder {
        Recorder { encoder, keep }
    }

    /// Counts answers of rows with these key hashes.
    pub fn record(
        &self,
        observed: &Observed<'_>,
        hashes: &[u128],
        (tally, kept): (&mut Tally, &mut Kept),
    ) {
        tally.count(observed);
        if self.keep == Keep::None {
            return;
        }
        let asked = |place: &u32| {
            let place = *place as usize;
            observed.status[place] != Status::AlreadyTarget
                && kept.may_keep(observed.targets[place], hashes[place])
        };
        let places: Vec<u32> = (0..hashes.len() as u32).filter(asked).collect();
        if places.is_empty() {
            return;
        }
        let at = |values: &[u32]| -> Vec<u32> {
            places.iter().map(|place| values[*place as usize]).collect()
        };
        kept.hashes.extend(places.iter().map(|place| hashes[*place as usize]));
        kept.targets.extend(at(observed.targets));
        kept.segments.extend(at(observed.segments));
        kept.valid.extend(places.iter().map(|place| observed.valid[*place as usize]));
        let encoded = |rows: &Rows| self.encoder.encode_rows(&rows.take(&places)).values;
        kept.counterfactuals.extend(encoded(observed.counterfactuals));
        kept.originals.extend(encoded(observed.originals));
        if let Keep::Most(most) = self.keep {
            kept.prune_if_long(most);
        }
    }

    /// The number of each row's segment, by the columns that divide rows.
    ///
    /// # Errors
    /// When a column has no text, or there are too many segments.
    pub fn segments(columns: &[ArrayRef], rows: usize, tally: &mut Tally) -> Result<Vec<u32>> {
        if columns.is_empty() {
            let all = tally.segment(Segment::default())?;
            return Ok(vec![all; rows]);
        }
        let columns = columns.iter().map(texts).collect::<Result<Vec<ArrayRef>>>()?;
        let mut found = Vec::with_capacity(rows);
        // Neighbours are often alike, and comparing is cheaper than hashing texts.
        let mut last: Option<(Segment, u32)> = None;
        for row in 0..rows {
            let segment = Segment(columns.iter().map(|column| text(column, row)).collect());
            let number = match &last {
                Some((known, number)) if *known == segment => *number,
                _ => tally.segment(segment.clone())?,
            };
            last = Some((segment, number));
            found.push(number);
        }
        Ok(found)
    }
}

impl Explainer {
    /// What the changes of solved rows cost; NaN for others.
    pub(super) fn costs_of(&self, rows: &Rows, originals: &Rows, status: &[Status]) -> Vec<f64> {
        let mut costs = self.refiner.costs_of(rows, originals, &self.constraints);
        for (cost, status) in costs.iter_mut().zip(status) {
            if *status != Status::Solved {
                *cost = f64::NAN;
            }
        }
        costs
    }

    /// Counts the answers of a block.
    pub(super) fn record(
        &self,
        usable: &Usable,
        answers: &Answers,
        ledger: &mut Ledger,
    ) -> Result<()> {
        let places = self.columns.segments.iter();
        let columns: Vec<ArrayRef> =
            places.map(|place| usable.all.column(*place).clone()).collect();
        let segments = Recorder::segments(&columns, usable.rows.len, &mut ledger.tally)?;
        let segments: Vec<u32> = answers.rows.iter().map(|row| segments[*row as usize]).collect();
        let targets: Vec<u32> = match answers.wishes.classes() {
            Some(classes) => classes.to_vec(),
            None => vec![0; answers.rows.len()],
        };
        let hashes: Vec<u128> =
            answers.rows.iter().map(|row| usable.hashes[*row as usize]).collect();
        let observed = Observed {
            targets: &targets,
            segments: &segments,
            status: &answers.status,
            source: &answers.source,
            valid: &answers.valid,
            first: &answers.first,
            samples: &answers.samples,
            queries: &answers.queries,
            certified: &answers.certified,
            margins: &answers.margins,
            distances: &answers.distances,
            plausibility: &answers.plausibility,
            counterfactuals: &answers.counterfactuals,
            originals: &answers.originals,
        };
        self.recorder.record(&observed, &hashes, (&mut ledger.tally, &mut ledger.kept));
        Ok(())
    }
}

fn texts(column: &ArrayRef) -> Result<ArrayRef> {
    cast(column, &DataType::Utf8).map_err(|error| {
        let problem = format!("names a column of type {}, which has no text", column.data_type());
        Error::spec("report.by", problem).source(error)
    })
}

fn text(column: &ArrayRef, row: usize) -> Option<String> {
    let texts = column.as_string::<i32>();
    texts.is_valid(row).then(|| texts.value(row).to_string())
}
