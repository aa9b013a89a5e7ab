//! 1: the gates, the group that is worst off, and what changed.

use super::super::blocks::{Block, Callout, GridBlock, KeyFigure, Tone};
use super::super::data::GapRow;
use super::super::words::{clipped, count, counted, listed, name, number, range, share};
use super::cost::median_cost;
use super::metric::metric;
use super::{SectionInput, group_of, nights};
use crate::metrics::{Status, wilson};
use crate::report::Gate;

pub(super) fn blocks(source: &SectionInput<'_>) -> Vec<Block> {
    let mut blocks = vec![
        Block::Finding(gates(&source.context.gates)),
        Block::Finding(worst(source)),
        Block::Finding(nights::finding(source)),
        Block::Figures(figures(source)),
    ];
    if !source.context.gates.is_empty() {
        blocks.push(Block::Grid(gate_grid(&source.context.gates)));
    }
    blocks
}

fn gates(gates: &[Gate]) -> Callout {
    let failed: Vec<&Gate> = gates.iter().filter(|gate| !gate.passed).collect();
    if gates.is_empty() {
        return Callout {
            tone: Tone::Plain,
            title: "No gates are set".to_string(),
            text: "The job demands nothing of its results (report.gates), so nothing could fail."
                .to_string(),
        };
    }
    if failed.is_empty() {
        return Callout {
            tone: Tone::Good,
            title: format!("Passed: all of {}", counted(gates.len() as u64, "gate")),
            text: "The run reached everything that the job demands of it before it is published."
                .to_string(),
        };
    }
    let names: Vec<String> = failed.iter().map(|gate| clipped(&gate.gate, 80)).collect();
    Callout {
        tone: Tone::Bad,
        title: format!("Failed: {} of {}", failed.len(), counted(gates.len() as u64, "gate")),
        text: format!(
            "Not reached: {}. A run that fails a gate is not published.",
            names.join(", ")
        ),
    }
}

fn gate_grid(gates: &[Gate]) -> GridBlock {
    let mut grid = GridBlock::new("What the job demands", &["Gate", "#Limit", "#Found", "Result"]);
    for gate in gates {
        let found = gate.found.map_or("not measured".to_string(), number);
        let result = if gate.passed { "✓ passed" } else { "✗ failed" };
        grid.row([clipped(&gate.gate, 80), number(gate.limit), found, result.to_string()]);
    }
    grid
}

/// How many tolerances a difference is wide.
fn width(row: &GapRow) -> f64 {
    let tolerance = row.tolerance.unwrap_or(1.0).max(1e-9);
    row.difference.value.abs() / tolerance
}

fn worst(source: &SectionInput<'_>) -> Callout {
    let gaps = &source.data.gaps;
    let finding =
        |tone, title: &str, text: String| Callout { tone, title: title.to_string(), text };
    if gaps.is_empty() {
        let text = "No groups were compared: the run has no table of gaps. Name columns in audit.by, and keep the \
                    section “gaps”.";
        return finding(Tone::Plain, "Groups were not compared", text.to_string());
    }
    let of = |verdict: &str| {
        let rows = gaps.iter().filter(|row| row.verdict == verdict && row.against == "reference");
        rows.max_by(|left, right| {
            let helped = |row: &GapRow| row.metric == "recourse_rate";
            helped(left).cmp(&helped(right)).then(width(left).total_cmp(&width(right)))
        })
    };
    let number = |verdict: &str| {
        gaps.iter().filter(|row| row.verdict == verdict && row.against == "reference").count()
            as u64
    };
    if let Some(row) = of("exceeds") {
        let title = format!("{} beyond the tolerance", counted(number("exceeds"), "difference"));
        let text = format!("{} Groups concerned: {}.", gap_text(source, row), concerned(gaps));
        return finding(Tone::Bad, &title, text);
    }
    if let Some(row) = of("inconclusive") {
        let title = format!("No difference is shown, {} left open", number("inconclusive"));
        let text = format!(
            "Too few rows, or costs that disagree, to call them within or beyond the tolerance. The widest: {}",
            gap_text(source, row)
        );
        return finding(Tone::Open, &title, text);
    }
    let text = match of("within") {
        Some(row) => format!("The widest: {}", gap_text(source, row)),
        None => "Every group is too small to be told, or is the reference itself.".to_string(),
    };
    finding(Tone::Good, "Every difference between groups is within the tolerance", text)
}

/// Groups with a difference beyond the tolerance, those of the widest first.
fn concerned(gaps: &[GapRow]) -> String {
    const MOST: usize = 5;
    let mut rows: Vec<&GapRow> =
        gaps.iter().filter(|row| row.verdict == "exceeds" && row.against == "reference").collect();
    rows.sort_by(|left, right| width(right).total_cmp(&width(left)));
    let mut groups: Vec<String> = Vec::new();
    for row in rows {
        let group = group_of(&row.whose);
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    let more = groups.len().saturating_sub(MOST);
    groups.truncate(MOST);
    if more > 0 {
        groups.push(format!("{more} more"));
    }
    listed(&groups)
}

/// A difference as a sentence.
fn gap_text(source: &SectionInput<'_>, row: &GapRow) -> String {
    let metric = metric(&row.metric);
    let attribute = row.whose.attribute.as_deref().unwrap_or_default();
    let n = source.data.groups.iter().find(|group| group.whose == row.whose);
    let n =
        n.map_or(0, |group| if row.metric == "refusal_rate" { group.rows } else { group.needed });
    let budget = row.budget.map_or(String::new(), |budget| format!(" at cost {}", number(budget)));
    let tolerance = row.tolerance.map_or(String::new(), |tolerance| {
        format!("; tolerance {}", metric.difference(tolerance).trim_start_matches('+'))
    });
    format!(
        "{attribute} = {}: {}{budget} is {} (n {}), against {} for {}. Difference {} (95 % interval {}{tolerance}).",
        name(row.whose.value.as_deref()),
        metric.meaning,
        metric.figure(row.figure),
        count(n),
        metric.figure(row.other_figure),
        name(row.other.as_deref()),
        metric.difference(row.difference.value),
        metric.interval(row),
    )
}

fn figures(source: &SectionInput<'_>) -> Vec<KeyFigure> {
    let accounts = &source.context.accounts;
    let of = |status| accounts.of(status);
    let (solved, infeasible) = (of(Status::Solved), of(Status::Infeasible));
    let needed = solved + infeasible + of(Status::Unsolved);
    let asked = needed + of(Status::AlreadyTarget);
    let figure = |label: &str, value: String, detail: String| KeyFigure {
        value,
        label: label.to_string(),
        detail,
    };
    let part = |label: &str, rows: u64, whole: u64, of: &str| {
        let found = wilson(rows, whole);
        let detail = if whole == 0 {
            format!("no rows {of}")
        } else {
            let interval = range(found.low, found.high, share);
            format!("{} of {} {of}; 95 % interval {interval}", count(rows), count(whole))
        };
        let value = if whole == 0 { "–".to_string() } else { share(rows as f64 / whole as f64) };
        figure(label, value, detail)
    };
    let median = source.data.targets().first().and_then(|target| source.data.everybody(target));
    let mut list = vec![
        figure("Rows read", count(accounts.read), "every one is accounted for below".to_string()),
        part("Refused", needed, asked, "explained"),
        part("Refused, and can be helped", solved, needed, "refused"),
        part("Refused, proven beyond help", infeasible, needed, "refused"),
    ];
    if let Some(row) = median {
        let detail = format!(
            "half of the {} refused rows of target {} are helped within it",
            count(row.needed),
            name(Some(&row.whose.target))
        );
        list.push(figure("Median cost of help", median_cost(row), detail));
    }
    list
}
