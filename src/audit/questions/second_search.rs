//! Whether a gap between groups is the search's: some rows of every group are searched again with four times the
//! questions. A gap that moves by more than its tolerance proves nothing about the model.

use super::budget::Allotment;
use super::groups::mean;
use super::reservoir::Ticket;
use super::sample::{Chosen, Group};
use super::search::{CHUNK_ROWS, Found};
use super::{Asker, Table};
use crate::error::Result;
use crate::output::second_search_schema;
use crate::report::Columns;

/// Times the questions of the run.
const TIMES: u32 = 4;

/// Questions about a row, at most.
pub(super) fn per_row(asker: &Asker<'_>) -> u64 {
    u64::from(queries(asker)) + 1
}

fn queries(asker: &Asker<'_>) -> u32 {
    asker.setup.explain.refine.queries_per_row.saturating_mul(TIMES)
}

/// A figure of a group by the run and by the second search.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Pair {
    first: f64,
    second: f64,
}

/// The table of the section.
///
/// # Errors
/// When the model as a whole fails.
pub(super) fn second_search(
    asker: &Asker<'_>,
    grouped: &Chosen,
    allotted: &Allotment,
) -> Result<Vec<Table>> {
    let mut variation = asker.setup.unchanged();
    variation.explain.refine.queries_per_row = queries(asker);
    let explainer = asker.explainer_of(&variation)?;
    let mut second: Vec<Found> = Vec::new();
    for rows in asker.chunks(grouped, (allotted, CHUNK_ROWS)) {
        let rows = rows?;
        let found = asker.setup.search(&explainer, &rows, &asker.names.targets)?;
        let none = Found { valid: false, cost: f64::NAN };
        let of_row = |ticket: &Ticket| found.get(&(ticket.hash, ticket.target)).copied();
        second.extend(rows.tickets.iter().map(|ticket| of_row(ticket).unwrap_or(none)));
    }
    let rows = grouped.slice(0, second.len());
    let first = rows.written()?;
    let groups: Vec<Group> =
        rows.groups()?.into_iter().filter(|group| group.attribute.is_some()).collect();
    let mut columns = Columns::default();
    for group in &groups {
        let reference = asker.reference(group, &groups);
        for metric in ["recourse_rate", "cost_mean"] {
            let of = |group: &Group| figure(metric, &group.rows, (&first, &second));
            tell(asker, (metric, group, of(group)), reference.map(of), &mut columns);
        }
    }
    Ok(vec![("second_search", columns.finish(second_search_schema())?)])
}

/// A figure of some rows; none where there is nothing to tell it by.
fn figure(metric: &str, rows: &[u32], (first, second): (&[Found], &[Found])) -> Option<Pair> {
    let of = |found: &[Found]| match metric {
        "recourse_rate" => mean(rows.iter().map(|row| f64::from(u8::from(found[*row as usize].valid)))),
        _ => mean(rows.iter().map(|row| found[*row as usize]).filter(|one| one.valid).map(|one| one.cost)),
    };
    Some(Pair { first: of(first)?, second: of(second)? })
}

/// How far a gap moves, and how far it may: of shares the tolerance, of costs that share of the reference's.
fn moved(metric: &str, (own, reference): (Pair, Pair), tolerance: f64) -> (f64, f64) {
    let moved = ((own.second - reference.second) - (own.first - reference.first)).abs();
    let scale = if metric == "cost_mean" { reference.first.abs() } else { 1.0 };
    (moved, tolerance * scale)
}

fn tell(
    asker: &Asker<'_>,
    (metric, group, own): (&str, &Group, Option<Pair>),
    reference: Option<Option<Pair>>,
    columns: &mut Columns,
) {
    let rows = group.rows.len() as u64;
    let own = own.filter(|_| asker.names.tells(rows));
    let reference = reference.flatten();
    let both = own.zip(reference);
    let moved = both.map(|pair| moved(metric, pair, asker.tolerance));
    asker.names.begin(columns, group);
    columns.text(Some(metric));
    columns.count(rows);
    columns.number(own.map(|own| own.first));
    columns.number(own.map(|own| own.second));
    columns.number(both.map(|(own, reference)| own.first - reference.first));
    columns.number(both.map(|(own, reference)| own.second - reference.second));
    columns.number(moved.map(|(moved, _)| moved));
    columns.number(moved.map(|(_, tolerance)| tolerance));
    let verdict = moved.map(|(moved, most)| if moved > most { "inconclusive" } else { "holds" });
    columns.text(verdict);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_moves_by_what_the_two_searches_differ_in() {
        let found = |valid: bool, cost: f64| Found { valid, cost };
        let first = [found(true, 2.0), found(false, f64::NAN), found(true, 1.0), found(true, 1.0)];
        let second = [found(true, 2.0), found(true, 4.0), found(true, 1.0), found(true, 0.5)];
        let of = |metric, rows: &[u32]| figure(metric, rows, (&first, &second)).expect("rows");
        let (own, reference) = (of("recourse_rate", &[0, 1]), of("recourse_rate", &[2, 3]));
        assert_eq!(own, Pair { first: 0.5, second: 1.0 });
        // The gap was -0.5 and is 0.
        assert_eq!(moved("recourse_rate", (own, reference), 0.05), (0.5, 0.05));
        let (own, reference) = (of("cost_mean", &[0, 1]), of("cost_mean", &[2, 3]));
        assert_eq!((own.second, reference.second), (3.0, 0.75));
        // From 1 to 2.25; a twentieth of the reference's mean cost, 1, may be.
        assert_eq!(moved("cost_mean", (own, reference), 0.05), (1.25, 0.05));
        assert_eq!(figure("cost_mean", &[], (&first, &second)), None);
    }
}
