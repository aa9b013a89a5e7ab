//! What other methods say of the same rows: how good each is, and where they agree with the published one.

use super::super::blocks::{Block, Chart, GridBlock};
use super::super::charts::Bar;
use super::super::data::AgreementRow;
use super::super::plate::Plate;
use super::super::words::{count, maybe_number, share};
use super::{SectionInput, interval};

pub(super) fn blocks(source: &SectionInput<'_>) -> Vec<Block> {
    let published = source.context.published.as_deref().unwrap_or_default();
    let text = format!(
        "Several methods were asked about every row. All other sections are of `{published}`, the published one. Two \
         methods agree on a row if the same features change. That they do not is no fault of either: most rows have \
         many counterfactuals, and each method looks for another kind."
    );
    let mut blocks = vec![Block::Text(text), Block::Grid(quality(source))];
    blocks.extend(chart(source).map(|chart| Block::Charts(vec![chart])));
    blocks.push(Block::Grid(pairs(source)));
    blocks
}

fn quality(source: &SectionInput<'_>) -> GridBlock {
    let columns = [
        "Method",
        "#Counterfactuals needed (n)",
        "#Valid (95 % interval)",
        "#Mean features changed",
        "#Mean L0",
        "#Mean L1",
        "#Median plausibility",
    ];
    let mut grid = GridBlock::new("Every method, over all samples", &columns);
    for row in &source.data.methods {
        grid.row([
            row.method.clone(),
            count(row.rows),
            interval(row.validity),
            maybe_number(row.n_changed),
            maybe_number(row.l0),
            maybe_number(row.l1),
            maybe_number(row.plausibility),
        ]);
    }
    grid
}

/// The share of rows on which each pair agrees.
fn agreed(row: &AgreementRow) -> Option<f64> {
    (row.both > 0).then(|| row.same_features as f64 / row.both as f64)
}

fn chart(source: &SectionInput<'_>) -> Option<Chart> {
    let bar = |row: &AgreementRow| {
        let value = agreed(row)?;
        let label = format!("{} and {} (n {})", row.method, row.other, count(row.both));
        Some(Bar { label, value, shown: share(value), beside: None })
    };
    let list: Vec<Bar> = source.data.agreement.iter().filter_map(bar).collect();
    let title = "Rows with the same changed features, by pair of methods".to_string();
    let mut grid = GridBlock::new(title.as_str(), &["Pair", "#Same features"]);
    list.iter().for_each(|bar| grid.row([bar.label.clone(), bar.shown.clone()]));
    let reading =
        "Share of the rows for which both methods have a valid counterfactual (n).".to_string();
    let id = "figure-methods".to_string();
    Plate { id, title, reading, note: String::new(), grid }.bars(&list, Some(1.0))
}

fn pairs(source: &SectionInput<'_>) -> GridBlock {
    let columns = [
        "Pair",
        "#Rows in need (n)",
        "#Both valid",
        "#Same features",
        "#And directions",
        "#Only the first",
        "#Only the second",
        "#Mean cost, first",
        "#Mean cost, second",
    ];
    let mut grid = GridBlock::new("Where methods agree and disagree", &columns);
    for row in &source.data.agreement {
        let of_both = |part: u64| match row.both {
            0 => count(part),
            both => format!("{} ({})", count(part), share(part as f64 / both as f64)),
        };
        grid.row([
            format!("{} and {}", row.method, row.other),
            count(row.rows),
            count(row.both),
            of_both(row.same_features),
            of_both(row.same_directions),
            count(row.method_only),
            count(row.other_only),
            maybe_number(row.costs[0]),
            maybe_number(row.costs[1]),
        ]);
    }
    grid.more = "Costs are means over rows for which both are valid; by target: duckdb -c \"FROM \
                 'reports/agreement.parquet'\"."
        .to_string();
    grid
}
