//! Which rule keeps rows from a counterfactual: those without one are searched again, with one constraint less at a
//! time.

use super::budget::Allotment;
use super::groups::count;
use super::lifts::{Lift, lifts};
use super::reservoir::Ticket;
use super::sample::Chosen;
use super::search::CHUNK_ROWS;
use super::{Asker, NamedTable};
use crate::error::Result;
use crate::output::binding_schema;
use crate::report::ReportColumns;
use crate::stop;

/// Rows that are searched again, at most.
pub(super) const ROWS: usize = 1_000;

/// Questions about a row, at most.
pub(super) fn per_row(asker: &Asker<'_>) -> u64 {
    let unchanged = asker.setup.unchanged();
    let lifts = lifts(&unchanged, &asker.setup.artefact.description.stats).len() as u64;
    // What the model decided is asked first; a row has no more targets than classes.
    lifts * (u64::from(unchanged.explain.refine.queries_per_row) + 1)
}

/// The table of the section.
///
/// # Errors
/// When the model as a whole fails.
pub(super) fn binding(
    asker: &Asker<'_>,
    stuck: &Chosen,
    allotted: &Allotment,
) -> Result<Vec<NamedTable>> {
    let unchanged = asker.setup.unchanged();
    let lifts = lifts(&unchanged, &asker.setup.artefact.description.stats);
    let explainers = lifts.iter().map(|lift| asker.explainer_of(&lift.variation));
    let explainers = explainers.collect::<Result<Vec<_>>>()?;
    let mut solved: Vec<Vec<bool>> = vec![Vec::new(); lifts.len()];
    let mut looked_at = 0;
    for rows in asker.chunks(stuck, (allotted, CHUNK_ROWS)) {
        let rows = rows?;
        for (explainer, solved) in explainers.iter().zip(&mut solved) {
            stop::check()?;
            let found = asker.setup.search(explainer, &rows, &asker.names.targets)?;
            let valid = |ticket: &Ticket| {
                found.get(&(ticket.hash, ticket.target)).is_some_and(|found| found.valid)
            };
            solved.extend(rows.tickets.iter().map(valid));
        }
        looked_at += rows.len();
    }
    let columns = table(asker, &stuck.slice(0, looked_at), (&lifts, &solved))?;
    Ok(vec![("binding", columns.finish(binding_schema())?)])
}

/// A row for each group and constraint.
fn table(
    asker: &Asker<'_>,
    rows: &Chosen,
    (lifts, solved): (&[Lift], &[Vec<bool>]),
) -> Result<ReportColumns> {
    let mut columns = ReportColumns::default();
    // The first lifts nothing: what is solved then needs no constraint lifted.
    let only = |row: usize, lift: usize| {
        solved[lift][row] && !(0..lifts.len()).any(|other| other != lift && solved[other][row])
    };
    for group in rows.groups()? {
        let all = group.rows.len() as u64;
        for (index, lift) in lifts.iter().enumerate() {
            let found = count(&group.rows, |row| solved[index][row]);
            asker.names.begin(&mut columns, &group);
            columns.text(lift.feature.as_deref());
            columns.text(Some(lift.constraint));
            columns.text(Some(&lift.detail));
            columns.count(all);
            columns.count(found);
            asker.names.share(&mut columns, found, all);
            columns.count(count(&group.rows, |row| only(row, index)));
        }
    }
    Ok(columns)
}
