//! Whether a gap between groups is the search's: some rows of every group are searched again with four times the
//! questions. A gap that moves by more than its tolerance proves nothing about the model.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::datatypes::Float64Type;
use hashbrown::HashMap;

use super::budget::Allotment;
use super::groups::mean;
use super::reservoir::Ticket;
use super::sample::{Chosen, SampledGroup};
use super::search::{CHUNK_ROWS, SearchResult};
use super::{Asker, NamedTable};
use crate::audit::gaps::SIGNIFICANT;
use crate::error::{Error, Result};
use crate::output::second_search_schema;
use crate::report::{ReportColumns, column};

/// The verdict about what the search may have made.
const INCONCLUSIVE: &str = "inconclusive";
/// The metric that the gate is held against.
const RECOURSE: &str = "recourse_rate";
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
struct TwoSearches {
    first: f64,
    second: f64,
}

/// The table of the section.
///
/// # Errors
/// When the model as a whole fails.
pub(super) fn second_search(
    asker: &Asker<'_>,
    (grouped, limit): (&Chosen, usize),
    allotted: &Allotment,
) -> Result<Vec<NamedTable>> {
    let mut variation = asker.setup.unchanged();
    variation.explain.refine.queries_per_row = queries(asker);
    let explainer = asker.explainer_of(&variation)?;
    let mut second: Vec<SearchResult> = Vec::new();
    for rows in asker.chunks(grouped, (allotted, CHUNK_ROWS)) {
        let rows = rows?;
        let found = asker.setup.search(&explainer, &rows, &asker.names.targets)?;
        let none = SearchResult { valid: false, cost: f64::NAN };
        let of_row = |ticket: &Ticket| found.get(&(ticket.hash, ticket.target)).copied();
        second.extend(rows.tickets.iter().map(|ticket| of_row(ticket).unwrap_or(none)));
    }
    let rows = grouped.slice(0, second.len());
    let first = rows.written()?;
    // Rounds that are over, if there were too few questions for all: every group has had as many rows.
    let rounds = rows.tickets.last().map_or(0, |ticket| ticket.rank as usize);
    let most = if rows.len() == grouped.len() { limit } else { rounds };
    let groups = rows.groups()?.into_iter().filter(|group| group.attribute.is_some());
    let groups: Vec<SampledGroup> = groups.map(|group| first_rows(group, (&rows, most))).collect();
    let mut columns = ReportColumns::default();
    for group in &groups {
        let reference = asker.reference(group, &groups);
        for metric in ["recourse_rate", "cost_mean"] {
            let of = |group: &SampledGroup| figure(metric, &group.rows, (&first, &second));
            tell(asker, (metric, group, of(group)), reference.map(of), &mut columns);
        }
    }
    Ok(vec![("second_search", columns.finish(second_search_schema())?)])
}

/// The first rows of a group by their hashes: its own. Further ones were chosen for groups of other attributes, and are
/// like those rather than like the group.
fn first_rows(mut group: SampledGroup, (rows, most): (&Chosen, usize)) -> SampledGroup {
    group.rows.sort_by_key(|row| rows.tickets[*row as usize].hash);
    group.rows.truncate(most);
    group
}

/// A figure of some rows; none where there is nothing to tell it by.
fn figure(
    metric: &str,
    rows: &[u32],
    (first, second): (&[SearchResult], &[SearchResult]),
) -> Option<TwoSearches> {
    let of = |found: &[SearchResult]| match metric {
        "recourse_rate" => {
            mean(rows.iter().map(|row| f64::from(u8::from(found[*row as usize].valid))))
        }
        _ => mean(
            rows.iter().map(|row| found[*row as usize]).filter(|one| one.valid).map(|one| one.cost),
        ),
    };
    Some(TwoSearches { first: of(first)?, second: of(second)? })
}

/// How far a gap moves, and how far it may: of shares the tolerance, of costs that share of the reference's.
fn moved(
    metric: &str,
    (of_group, reference): (TwoSearches, TwoSearches),
    tolerance: f64,
) -> (f64, f64) {
    let moved = ((of_group.second - reference.second) - (of_group.first - reference.first)).abs();
    let scale = if metric == "cost_mean" { reference.first.abs() } else { 1.0 };
    (moved, tolerance * scale)
}

fn tell(
    asker: &Asker<'_>,
    (metric, group, of_group): (&str, &SampledGroup, Option<TwoSearches>),
    reference: Option<Option<TwoSearches>>,
    columns: &mut ReportColumns,
) {
    let rows = group.rows.len() as u64;
    let of_group = of_group.filter(|_| asker.names.shows(rows));
    let reference = reference.flatten();
    let both = of_group.zip(reference);
    let moved = both.map(|pair| moved(metric, pair, asker.tolerance));
    asker.names.begin(columns, group);
    columns.text(Some(metric));
    columns.count(rows);
    columns.number(of_group.map(|of_group| of_group.first));
    columns.number(of_group.map(|of_group| of_group.second));
    columns.number(both.map(|(of_group, reference)| of_group.first - reference.first));
    columns.number(both.map(|(of_group, reference)| of_group.second - reference.second));
    columns.number(moved.map(|(moved, _)| moved));
    columns.number(moved.map(|(_, tolerance)| tolerance));
    let verdict = moved.map(|(moved, most)| if moved > most { INCONCLUSIVE } else { "holds" });
    columns.text(verdict);
}

/// Metrics of gaps that a figure of the second search stands for.
const OF_RECOURSE: [&str; 4] = ["recourse_rate", "preclusion_least", "effectiveness", "curve"];
const OF_COST: [&str; 7] = [
    "cost_mean",
    "n_changed_mean",
    "effort_mean",
    "cost_p50",
    "cost_p90",
    "social_burden",
    "single_change_share",
];

/// The table of gaps, where verdicts about what the second search moves are `inconclusive`: against the reference if the
/// gap moves by more than it may, against the rest if the group's own figure does.
///
/// # Errors
/// Only if there is a bug.
pub fn doubted(gaps: &RecordBatch, second: &RecordBatch) -> Result<RecordBatch> {
    let moved = moved_groups(second)?;
    let (group, against) = (group_keys(gaps)?, texts(gaps, "against")?);
    let (metrics, verdicts) = (texts(gaps, "metric")?, texts(gaps, "verdict")?);
    let doubted = (0..gaps.num_rows()).map(|row| {
        let stands = match metrics[row].as_deref() {
            Some(metric) if OF_RECOURSE.contains(&metric) => "recourse_rate",
            Some(metric) if OF_COST.contains(&metric) => "cost_mean",
            _ => return verdicts[row].clone(),
        };
        let reference = against[row].as_deref() == Some("reference");
        let moves = moved.get(&(group[row].clone(), stands.to_string()));
        let moves = moves.is_some_and(|(gap, of_group)| if reference { *gap } else { *of_group });
        if moves {
            verdicts[row].as_ref().map(|_| INCONCLUSIVE.to_string())
        } else {
            verdicts[row].clone()
        }
    });
    let verdicts: ArrayRef = Arc::new(StringArray::from_iter(doubted));
    let lost = |error| Error::internal("gaps", "have no verdicts").source(error);
    let index = gaps.schema().index_of("verdict").map_err(lost)?;
    let mut columns = gaps.columns().to_vec();
    columns[index] = verdicts;
    RecordBatch::try_new(gaps.schema(), columns).map_err(lost)
}

/// Gaps that the gate is held against, after a second search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GatedGaps {
    /// The widest gap of `recourse_rate` against a reference group that Holm's p lets stand and the second search does
    /// not move by more than it may, 0 if there is none; none if no group could be compared.
    pub widest: Option<f64>,
    /// Gaps that Holm's p lets stand, and that the second search moves by more.
    pub doubted: usize,
}

/// The gaps that the gate is held against: what the search may have made is no gap of the model.
///
/// # Errors
/// Only if there is a bug.
pub fn gated(gaps: &RecordBatch, second: &RecordBatch) -> Result<GatedGaps> {
    let moved = moved_groups(second)?;
    let (group, against) = (group_keys(gaps)?, texts(gaps, "against")?);
    let metrics = texts(gaps, "metric")?;
    let number = |name: &str| column(gaps, name).map(AsArray::as_primitive::<Float64Type>);
    let (difference, holm) = (number("difference")?, number("p_holm")?);
    let mut found = GatedGaps { widest: None, doubted: 0 };
    for row in 0..gaps.num_rows() {
        let gated = metrics[row].as_deref() == Some(RECOURSE)
            && against[row].as_deref() == Some("reference")
            && difference.is_valid(row);
        if !gated {
            continue;
        }
        let stands = holm.is_valid(row) && holm.value(row) <= SIGNIFICANT;
        let moves = moved.get(&(group[row].clone(), RECOURSE.to_string()));
        let doubted = stands && moves.is_some_and(|(gap, _)| *gap);
        found.doubted += usize::from(doubted);
        let width = if stands && !doubted { difference.value(row).abs() } else { 0.0 };
        found.widest = Some(found.widest.map_or(width, |widest| widest.max(width)));
    }
    Ok(found)
}

type GroupTexts = [Option<String>; 3];

/// By group and metric: whether the gap moved by more than it may, and whether the group's own figure did.
fn moved_groups(second: &RecordBatch) -> Result<HashMap<(GroupTexts, String), (bool, bool)>> {
    let (groups, metrics) = (group_keys(second)?, texts(second, "metric")?);
    let verdicts = texts(second, "verdict")?;
    let number = |name: &str| -> Result<Vec<f64>> {
        let column = column(second, name)?.as_primitive::<Float64Type>();
        Ok(column.iter().map(|number| number.unwrap_or(f64::NAN)).collect())
    };
    let (first, again, most) = (number("figure")?, number("figure_again")?, number("tolerance")?);
    let of_row = |row: usize| {
        let gap = verdicts[row].as_deref() == Some(INCONCLUSIVE);
        let of_group = (again[row] - first[row]).abs() > most[row];
        ((groups[row].clone(), metrics[row].clone().unwrap_or_default()), (gap, of_group))
    };
    Ok((0..second.num_rows()).map(of_row).collect())
}

fn group_keys(table: &RecordBatch) -> Result<Vec<GroupTexts>> {
    let [target, attribute, value] =
        ["target", "attribute", "value"].map(|name| texts(table, name));
    let (target, attribute, value) = (target?, attribute?, value?);
    let of_row = |row: usize| [target[row].clone(), attribute[row].clone(), value[row].clone()];
    Ok((0..table.num_rows()).map(of_row).collect())
}

fn texts(table: &RecordBatch, name: &str) -> Result<Vec<Option<String>>> {
    let texts = column(table, name)?.as_string::<i32>();
    Ok(texts.iter().map(|text| text.map(String::from)).collect())
}

#[cfg(test)]
mod tests {
    use arrow::array::Float64Array;

    use super::*;

    #[test]
    fn gaps_of_the_search_are_held_against_no_gate() {
        let texts =
            |list: [Option<&str>; 4]| Arc::new(StringArray::from(list.to_vec())) as ArrayRef;
        let numbers =
            |list: [Option<f64>; 4]| Arc::new(Float64Array::from(list.to_vec())) as ArrayRef;
        let all = |text| texts([Some(text); 4]);
        let values = texts([Some("a"), Some("b"), Some("c"), Some("a")]);
        let gaps = RecordBatch::try_from_iter([
            ("target", all("yes")),
            ("attribute", all("sex")),
            ("value", Arc::clone(&values)),
            (
                "against",
                texts([Some("reference"), Some("reference"), Some("reference"), Some("rest")]),
            ),
            ("metric", all(RECOURSE)),
            ("difference", numbers([Some(-0.3), Some(0.1), Some(0.2), Some(0.9)])),
            ("p_holm", numbers([Some(0.01), Some(0.04), Some(0.3), Some(0.0)])),
        ]);
        let gaps = gaps.expect("a table");
        let second = |verdict: &str| {
            let verdicts = texts([Some(verdict), Some("holds"), Some("holds"), None]);
            let second = RecordBatch::try_from_iter([
                ("target", all("yes")),
                ("attribute", all("sex")),
                ("value", texts([Some("a"), Some("b"), Some("c"), Some("d")])),
                ("metric", all(RECOURSE)),
                ("verdict", verdicts),
                ("figure", numbers([Some(0.5); 4])),
                ("figure_again", numbers([Some(0.5); 4])),
                ("tolerance", numbers([Some(0.05); 4])),
            ]);
            gated(&gaps, &second.expect("a table")).expect("told")
        };
        assert_eq!(second("holds"), GatedGaps { widest: Some(0.3), doubted: 0 });
        // What is left is another gap, which stands; the third does not.
        assert_eq!(second(INCONCLUSIVE), GatedGaps { widest: Some(0.1), doubted: 1 });
    }

    #[test]
    fn a_group_has_its_own_rows_only() {
        let ticket = |hash: u128| Ticket { rank: 0, hash, target: 0 };
        let rows = Chosen { tickets: [7, 3, 9, 1].map(ticket).to_vec(), batch: None };
        let group =
            SampledGroup { target: 0, attribute: Some(0), value: None, rows: vec![0, 1, 2, 3] };
        assert_eq!(first_rows(group, (&rows, 2)).rows, [3, 1], "the least hashes");
    }

    #[test]
    fn a_gap_moves_by_what_the_two_searches_differ_in() {
        let found = |valid: bool, cost: f64| SearchResult { valid, cost };
        let first = [found(true, 2.0), found(false, f64::NAN), found(true, 1.0), found(true, 1.0)];
        let second = [found(true, 2.0), found(true, 4.0), found(true, 1.0), found(true, 0.5)];
        let of = |metric, rows: &[u32]| figure(metric, rows, (&first, &second)).expect("rows");
        let (of_group, reference) = (of("recourse_rate", &[0, 1]), of("recourse_rate", &[2, 3]));
        assert_eq!(of_group, TwoSearches { first: 0.5, second: 1.0 });
        // The gap was -0.5 and is 0.
        assert_eq!(moved("recourse_rate", (of_group, reference), 0.05), (0.5, 0.05));
        let (of_group, reference) = (of("cost_mean", &[0, 1]), of("cost_mean", &[2, 3]));
        assert_eq!((of_group.second, reference.second), (3.0, 0.75));
        // From 1 to 2.25; a twentieth of the reference's mean cost, 1, may be.
        assert_eq!(moved("cost_mean", (of_group, reference), 0.05), (1.25, 0.05));
        assert_eq!(figure("cost_mean", &[], (&first, &second)), None);
    }
}
