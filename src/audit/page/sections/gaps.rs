//! 4: how far groups are apart, against a tolerance.

use super::super::blocks::{Block, Chart, GridBlock};
use super::super::charts::{ChartInterval, Intervals, Mark};
use super::super::data::{GapRow, Whose};
use super::super::plate::Plate;
use super::super::words::{count, dash, name, p_value, share};
use super::metric::{Metric, metric};
use super::{
    MOST_LINES, MOST_ROWS, SectionInput, doubts, group_label, groups_of, more_note, panel_title,
    panels, sentences, suppressed_note,
};

/// Metrics that have a chart each; the others are in the overview.
const DRAWN: [&str; 3] = ["refusal_rate", "recourse_rate", "cost_mean"];
/// The order in which verdicts are listed.
const VERDICTS: [&str; 3] = ["exceeds", "inconclusive", "within"];

pub(super) fn blocks(source: &SectionInput<'_>) -> Vec<Block> {
    if source.data.gaps.is_empty() {
        let text = "Groups were not compared: the run has no table of gaps.";
        return vec![Block::Text(text.to_string())];
    }
    let text = format!(
        "Each group is compared with the reference group of its attribute (by default the largest). A difference is \
         within the tolerance when its whole 95 % interval is; it exceeds the tolerance when all of the interval lies \
         outside, it holds after correction for the number of comparisons (Holm), and the three ways to count costs \
         agree on its direction; anything else is inconclusive. The tolerance is {} of a share, or of the reference's \
         mean for costs. A difference says that groups fare differently, not why, and not that it is unlawful.",
        share(source.context.tolerance)
    );
    let mut blocks = vec![Block::Text(text), Block::Grid(overview(source))];
    let (panels, note) = panels(source, "gaps");
    for (index, panel) in panels.into_iter().enumerate() {
        let charts: Vec<Chart> =
            DRAWN.iter().filter_map(|metric| forest(source, panel, (index, metric))).collect();
        if !charts.is_empty() {
            blocks.push(Block::Heading(format!("By {}", panel_title(source, panel))));
            blocks.push(Block::Charts(charts));
        }
    }
    blocks.extend(note);
    blocks.extend(doubts::second_search(source));
    blocks.extend(doubts::explicit(source));
    blocks
}

/// Differences against reference groups.
fn against_reference<'a>(source: &SectionInput<'a>) -> impl Iterator<Item = &'a GapRow> {
    source.data.gaps.iter().filter(|row| row.against == "reference")
}

fn overview(source: &SectionInput<'_>) -> GridBlock {
    let columns =
        ["Metric", "What it is", "#Within", "#Inconclusive", "#Exceeds", "Widest difference"];
    let mut grid = GridBlock::new("Differences from the reference groups, by metric", &columns);
    let mut metrics: Vec<&str> = Vec::new();
    for row in against_reference(source) {
        if !metrics.contains(&row.metric.as_str()) {
            metrics.push(&row.metric);
        }
    }
    for of in metrics {
        let rows: Vec<&GapRow> = against_reference(source).filter(|row| row.metric == of).collect();
        let number =
            |verdict: &str| rows.iter().filter(|row| row.verdict == verdict).count() as u64;
        let widest = rows.iter().max_by(|left, right| size(left).total_cmp(&size(right)));
        let metric = metric(of);
        let widest = widest.map_or_else(dash, |row| {
            let attribute = row.whose.attribute.as_deref().unwrap_or_default();
            let value = name(row.whose.value.as_deref());
            format!("{} for {attribute} = {value}", metric.difference(row.difference.value))
        });
        let counts = ["within", "inconclusive", "exceeds"].map(|verdict| count(number(verdict)));
        let [within, open, exceeds] = counts;
        let title = if metric.meaning == "see the table" { of } else { metric.title };
        grid.row([title.to_string(), metric.meaning.to_string(), within, open, exceeds, widest]);
    }
    grid
}

fn size(row: &GapRow) -> f64 {
    row.difference.value.abs()
}

/// Verdicts in their order, then the widest first.
fn sorted<'a>(
    source: &SectionInput<'a>,
    (target, attribute): (&str, &str),
    of: &str,
) -> Vec<&'a GapRow> {
    let here = |row: &&GapRow| {
        let Whose { target: to, attribute: by, .. } = &row.whose;
        to == target && by.as_deref() == Some(attribute) && row.metric == of && row.budget.is_none()
    };
    let mut rows: Vec<&GapRow> = against_reference(source).filter(here).collect();
    let rank_of_verdict =
        |row: &GapRow| VERDICTS.iter().position(|verdict| *verdict == row.verdict);
    rows.sort_by(|left, right| {
        rank_of_verdict(left).cmp(&rank_of_verdict(right)).then(size(right).total_cmp(&size(left)))
    });
    rows
}

fn mark(verdict: &str) -> Mark {
    match verdict {
        "within" => Mark::Within,
        "exceeds" => Mark::Exceeds,
        _ => Mark::Inconclusive,
    }
}

fn n(source: &SectionInput<'_>, row: &GapRow) -> u64 {
    let group = source.data.groups.iter().find(|group| group.whose == row.whose);
    group.map_or(0, |group| if row.metric == "refusal_rate" { group.rows } else { group.needed })
}

fn forest(
    source: &SectionInput<'_>,
    panel: (&str, &str),
    (index, of): (usize, &str),
) -> Option<Chart> {
    let rows = sorted(source, panel, of);
    let first = rows.first()?;
    let metric = metric(of);
    let line = |row: &&GapRow| ChartInterval {
        label: group_label(row.whose.value.as_deref(), n(source, row)),
        shown: format!("{}  {}", metric.bare(row.difference.value), row.verdict),
        point: Some(row.difference.value),
        low: row.difference.low,
        high: row.difference.high,
        mark: mark(&row.verdict),
    };
    let list: Vec<ChartInterval> = rows.iter().take(MOST_LINES).map(line).collect();
    let title = format!("{}: difference from {}", metric.title, name(first.other.as_deref()));
    let (_, suppressed) = groups_of(source, panel);
    let plate = Plate {
        id: format!("figure-4-{}-{}", index + 1, of.replace('_', "-")),
        reading: reading(&rows, metric),
        note: sentences(&[
            more_note(rows.len().saturating_sub(MOST_LINES), "groups", "gaps"),
            suppressed_note(source, suppressed),
        ]),
        grid: grid(source, &title, (&rows, metric)),
        title,
    };
    let tolerance = first.tolerance.unwrap_or(0.0);
    plate.intervals(&Intervals {
        list: &list,
        zone: (tolerance > 0.0).then_some((-tolerance, tolerance)),
        always: (-1.2 * tolerance, 1.2 * tolerance),
        unit: metric.unit(),
        show: metric.tick(),
    })
}

fn reading(rows: &[&GapRow], metric: Metric) -> String {
    let marks =
        [("exceeds", "beyond", "■"), ("inconclusive", "open", "◇"), ("within", "within", "○")];
    let number = |verdict: &str| rows.iter().filter(|row| row.verdict == verdict).count();
    let part = |(verdict, word, sign): (&str, &str, &str)| {
        let number = number(verdict);
        (number > 0).then(|| format!("{sign} {number} {word}"))
    };
    let parts: Vec<String> = marks.into_iter().filter_map(part).collect();
    let figure = rows.first().map_or_else(dash, |row| metric.figure(row.other_figure));
    let meaning = metric.meaning;
    format!(
        "The {meaning}, minus that of the reference ({figure}). Shaded: the tolerance. {}.",
        parts.join(", ")
    )
}

fn grid(source: &SectionInput<'_>, title: &str, (rows, metric): (&[&GapRow], Metric)) -> GridBlock {
    let columns = [
        "Group",
        "#n",
        "#Figure",
        "#Reference",
        "#Difference",
        "#95 % interval",
        "#p (Holm)",
        "Costs agree",
        "Verdict",
    ];
    let mut grid = GridBlock::new(title, &columns);
    for row in rows.iter().take(MOST_ROWS) {
        let agrees =
            row.cost_agrees.map_or_else(dash, |yes| if yes { "yes" } else { "no" }.to_string());
        grid.row([
            name(row.whose.value.as_deref()),
            count(n(source, row)),
            metric.figure(row.figure),
            metric.figure(row.other_figure),
            metric.difference(row.difference.value),
            metric.interval(row),
            row.p_holm.map_or_else(dash, p_value),
            agrees,
            row.verdict.clone(),
        ]);
    }
    grid.more = more_note(rows.len().saturating_sub(MOST_ROWS), "groups", "gaps");
    grid
}
