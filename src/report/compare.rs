//! Several methods in one table: their rows told apart, counted each for itself, and compared with each other.

use arrow::array::{AsArray, RecordBatch};

use super::columns::ReportColumns;
use super::count::{CountSinks, Counter, FurtherCounts, SplitFigures};
use super::input::InputRows;
use super::pieces::Piece;
use super::written::column;
use super::{Names, target_name};
use crate::error::{Error, Result};
use crate::metrics::{AgreementCounts, NeededCounterfactuals, PairCounts, RowOutcomes, Sizes};
use crate::output::{METHOD, agreement_schema};

/// What the methods beside the published one come to.
pub struct ComparedFigures {
    /// Their own figures, in their order.
    pub others: Vec<SplitFigures>,
    /// Where all of them agree.
    pub agreement: AgreementCounts,
}

/// Hears the changes of one method for the comparison, and passes on what else there is to hear.
struct OfMethod<'a> {
    agreement: &'a mut AgreementCounts,
    method: usize,
    further: Option<&'a mut dyn FurtherCounts>,
}

impl FurtherCounts for OfMethod<'_> {
    fn outcomes(&mut self, rows: &[u32], outcomes: &RowOutcomes<'_>) -> Result<()> {
        match &mut self.further {
            Some(further) => further.outcomes(rows, outcomes),
            None => Ok(()),
        }
    }

    fn changes(
        &mut self,
        rows: &[u32],
        first: &[bool],
        changes: &NeededCounterfactuals<'_>,
    ) -> Result<()> {
        self.agreement.add(self.method, (rows, first), changes);
        match &mut self.further {
            Some(further) => further.changes(rows, first, changes),
            None => Ok(()),
        }
    }
}

/// CountSinks the rows of every method about some rows of the input.
pub(super) fn count(
    counter: &Counter,
    input: &InputRows,
    pieces: &[Piece],
    counts: CountSinks<'_>,
) -> Result<()> {
    let CountSinks { figures, mut further } = counts;
    let Some(mut compared) = figures.compared.take() else {
        return counter.count(input, pieces, &mut CountSinks { figures, further });
    };
    let ComparedFigures { others, agreement } = compared.as_mut();
    let published = std::iter::once(&mut *figures);
    for (method, figures) in published.chain(others.iter_mut()).enumerate() {
        let pieces = of_method(counter, pieces, method)?;
        let mut heard = OfMethod { agreement, method, further: None };
        if method == 0
            && let Some(further) = further.as_deref_mut()
        {
            heard.further = Some(further);
        }
        counter.count(input, &pieces, &mut CountSinks { figures, further: Some(&mut heard) })?;
    }
    agreement.settle();
    figures.compared = Some(compared);
    Ok(())
}

/// The rows of one of a run's methods.
///
/// # Errors
/// When a row is of a method that the run does not have.
pub(super) fn of_method(counter: &Counter, pieces: &[Piece], method: usize) -> Result<Vec<Piece>> {
    let methods = counter.methods();
    let name = &methods[method];
    let of_piece = |piece: &Piece| {
        let found = column(piece.batch(), METHOD)?.as_string::<i32>();
        let unknown =
            found.iter().find(|found| !methods.iter().any(|of| Some(of.as_str()) == *found));
        if let Some(unknown) = unknown {
            let unknown = unknown.unwrap_or("null");
            let problem =
                format!("have the method `{unknown}`, expected one of {}", methods.join(", "));
            return Err(Error::input("counterfactuals", problem));
        }
        let rows = (0u32..).zip(found).filter(|(_, found)| *found == Some(name.as_str()));
        piece.some(&rows.map(|(row, _)| row).collect::<Vec<_>>())
    };
    let pieces = pieces.iter().map(of_piece).collect::<Result<Vec<_>>>()?;
    Ok(pieces.into_iter().filter(|piece| piece.batch().num_rows() > 0).collect())
}

/// Where methods agree, by pair and target. `methods` are their names, in their order.
///
/// # Errors
/// Only if there is a bug.
pub fn agreement(counts: &AgreementCounts, methods: &[&str], names: &Names) -> Result<RecordBatch> {
    let mut columns = ReportColumns::default();
    let pairs = counts.pairs();
    let total = counts.total();
    let mut level = |target: Option<u32>, found: &[PairCounts]| -> Result<()> {
        for ((first, other), found) in pairs.iter().zip(found) {
            columns.text(Some(methods[*first]));
            columns.text(Some(methods[*other]));
            columns.text(Some(if target.is_some() { "target" } else { "all" }));
            columns.text(target.map(|target| target_name(names, target)).transpose()?);
            pair(&mut columns, found);
        }
        Ok(())
    };
    level(None, &total)?;
    counts.by_target().try_for_each(|(target, found)| level(Some(target), found))?;
    columns.finish(agreement_schema())
}

fn pair(columns: &mut ReportColumns, found: &PairCounts) {
    let share = |part: u64| (found.both > 0).then(|| part as f64 / found.both as f64);
    columns.count(found.rows);
    columns.count(found.both);
    columns.count(found.first_only);
    columns.count(found.second_only);
    columns.count(found.neither());
    columns.count(found.same_features);
    columns.number(share(found.same_features));
    columns.count(found.same_directions);
    columns.number(share(found.same_directions));
    let means = |of: &Sizes| [of.cost.mean(), of.l0.mean(), of.l1.mean(), of.changed.mean()];
    for (first, second) in means(&found.first).into_iter().zip(means(&found.second)) {
        columns.number(first);
        columns.number(second);
    }
}
