//! Answers into the ledger: counts by target and segment, and the rows that are kept for the comparison
//! of distributions.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;

use super::admit::Usable;
use super::ask::Answers;
use super::{Explainer, Ledger};
use crate::error::{Error, Result};
use crate::metrics::{Observed, Segment, Status};

impl Explainer {
    /// Counts answers, and keeps those whose keys say so.
    pub(super) fn record(
        &self,
        usable: &Usable,
        answers: &Answers,
        ledger: &mut Ledger,
    ) -> Result<()> {
        let segments = self.segments(usable, ledger)?;
        let segments: Vec<u32> = answers.rows.iter().map(|row| segments[*row as usize]).collect();
        let targets: Vec<u32> = match answers.wishes.classes() {
            Some(classes) => classes.to_vec(),
            None => vec![0; answers.rows.len()],
        };
        ledger.tally.count(&Observed {
            targets: &targets,
            segments: &segments,
            status: &answers.status,
            valid: &answers.valid,
            first: &answers.first,
            samples: &answers.samples,
            distances: &answers.distances,
            counterfactuals: &answers.counterfactuals,
            originals: &answers.originals,
        });
        let hashes = answers.rows.iter().map(|row| usable.hashes[*row as usize]);
        let asked = |place: &u32| answers.status[*place as usize] != Status::AlreadyTarget;
        let kept: Vec<u32> = (0u32..)
            .zip(hashes)
            .filter(|(_, hash)| *hash <= self.keep)
            .map(|(place, _)| place)
            .filter(asked)
            .collect();
        if !kept.is_empty() {
            self.keep_rows(answers, &kept, (&targets, &segments), ledger);
        }
        Ok(())
    }

    fn keep_rows(
        &self,
        answers: &Answers,
        kept: &[u32],
        (targets, segments): (&[u32], &[u32]),
        ledger: &mut Ledger,
    ) {
        let at =
            |values: &[u32]| kept.iter().map(|place| values[*place as usize]).collect::<Vec<_>>();
        let into = &mut ledger.kept;
        into.targets.extend(at(targets));
        into.segments.extend(at(segments));
        into.valid.extend(kept.iter().map(|place| answers.valid[*place as usize]));
        let encoded =
            |rows: &crate::feature::Rows| self.encoder.encode_rows(&rows.take(kept)).values;
        into.counterfactuals.extend(encoded(&answers.counterfactuals));
        into.originals.extend(encoded(&answers.originals));
    }

    /// The number of each row's segment.
    fn segments(&self, usable: &Usable, ledger: &mut Ledger) -> Result<Vec<u32>> {
        let rows = usable.rows.len;
        if self.columns.segments.is_empty() {
            let all = ledger.tally.segment(Segment::default())?;
            return Ok(vec![all; rows]);
        }
        let columns = self.columns.segments.iter().map(|place| texts(usable.all.column(*place)));
        let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
        let mut found = Vec::with_capacity(rows);
        // Neighbours are often alike, and looking is cheaper than hashing texts.
        let mut last: Option<(Segment, u32)> = None;
        for row in 0..rows {
            let segment = Segment(columns.iter().map(|column| text(column, row)).collect());
            let number = match &last {
                Some((known, number)) if *known == segment => *number,
                _ => ledger.tally.segment(segment.clone())?,
            };
            last = Some((segment, number));
            found.push(number);
        }
        Ok(found)
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
