//! Part of 5: what one and the same change would do for everybody, and what single features can do.

use super::super::blocks::{Block, Chart, GridBlock};
use super::super::charts::Bar;
use super::super::data::{ActionRow, ActionSetRow, ResponsivenessRow};
use super::super::plate::Plate;
use super::super::words::{clipped, count, dash, maybe_number, name, number, share};
use super::{MOST_LINES, MOST_ROWS, SectionInput, group_of, interval, more_note};

/// Targets that have charts, at most.
const MOST_TARGETS: usize = 4;

pub(super) fn blocks(source: &SectionInput<'_>) -> Vec<Block> {
    let targets = source.data.targets();
    let targets: Vec<&str> = targets.into_iter().take(MOST_TARGETS).collect();
    let charts: Vec<Chart> = targets
        .iter()
        .enumerate()
        .flat_map(|(index, target)| {
            [actions(source, target, index), responsiveness(source, target, index)]
        })
        .flatten()
        .collect();
    if charts.is_empty() && source.data.asked.action_sets.is_empty() {
        return Vec::new();
    }
    let text = "The same change was tried for a sample of refused rows, wherever the rules allow it: how many does it \
                take to the target? It says how far a general measure would reach, and whether it would reach groups \
                alike.";
    let mut blocks = vec![
        Block::Heading("Actions that help most".to_string()),
        Block::Text(text.to_string()),
        Block::Charts(charts),
    ];
    blocks.extend(sets(source).map(Block::Grid));
    blocks
}

fn reached(row: &ActionRow) -> f64 {
    row.effectiveness.map_or(0.0, |of| of.value)
}

fn actions(source: &SectionInput<'_>, target: &str, index: usize) -> Option<Chart> {
    let all = source.data.asked.actions.iter();
    let all = all.filter(|row| row.whose.target == target && row.whose.attribute.is_none());
    let mut rows: Vec<&ActionRow> = all.filter(|row| row.effectiveness.is_some()).collect();
    rows.sort_by(|left, right| reached(right).total_cmp(&reached(left)));
    let bar = |row: &&ActionRow| Bar {
        label: row.changes.clone(),
        value: reached(row),
        shown: share(reached(row)),
        beside: None,
    };
    let list: Vec<Bar> = rows.iter().take(MOST_LINES).map(bar).collect();
    let title = format!("Share of refused rows that an action takes to {}", name(Some(target)));
    let columns = [
        "Action",
        "#Rows tried (n)",
        "#Where the rules allow it",
        "#Reaches (95 % interval)",
        "#Mean cost",
        "#Place in the chosen set",
    ];
    let mut grid = GridBlock::new(title.as_str(), &columns);
    for row in rows.iter().take(MOST_ROWS) {
        grid.row([
            clipped(&row.changes, 90),
            count(row.rows),
            count(row.applicable),
            interval(row.effectiveness),
            maybe_number(row.cost_mean),
            row.chosen.map_or_else(dash, number),
        ]);
    }
    let n = rows.first().map_or(0, |row| row.rows);
    let plate = Plate {
        id: format!("figure-5-actions-{}", index + 1),
        title,
        reading: format!("n = {} refused rows of a sample.", count(n)),
        note: more_note(rows.len().saturating_sub(MOST_LINES), "actions", "actions"),
        grid,
    };
    plate.bars(&list, Some(1.0))
}

/// What the chosen actions reach together, by group.
fn sets(source: &SectionInput<'_>) -> Option<GridBlock> {
    let mut rows: Vec<&ActionSetRow> =
        source.data.asked.action_sets.iter().filter(|row| row.effectiveness.is_some()).collect();
    let reached = |row: &ActionSetRow| row.effectiveness.map_or(0.0, |of| of.value);
    rows.sort_by(|left, right| {
        let everybody = right.whose.attribute.is_none().cmp(&left.whose.attribute.is_none());
        everybody.then(reached(left).total_cmp(&reached(right)))
    });
    let choice = rows.first()?.choice.unwrap_or(0.0);
    let columns = [
        "Group",
        "Target",
        "#Rows tried (n)",
        "#Reached by the chosen actions (95 % interval)",
        "#Mean cost",
        "#Actions that are a choice",
    ];
    let chosen = rows.first()?.chosen;
    let title = format!(
        "What {chosen} actions, chosen for all, reach together: all, then the least reached groups"
    );
    let mut grid = GridBlock::new(title, &columns);
    for row in rows.iter().take(MOST_LINES) {
        let choices = row.choices.map_or_else(dash, number);
        grid.row([
            group_of(&row.whose),
            name(Some(&row.whose.target)),
            count(row.rows),
            interval(row.effectiveness),
            maybe_number(row.cost_mean),
            format!("{choices} of {}", count(row.actions)),
        ]);
    }
    let note = more_note(rows.len().saturating_sub(MOST_LINES), "groups", "action_sets");
    grid.more =
        format!("An action is a choice for a group if it reaches {} of it. {note}", share(choice));
    Some(grid)
}

fn responsiveness(source: &SectionInput<'_>, target: &str, index: usize) -> Option<Chart> {
    let all = source.data.asked.responsiveness.iter();
    let all = all.filter(|row| row.whose.target == target && row.whose.attribute.is_none());
    let mut rows: Vec<&ResponsivenessRow> = all.filter(|row| row.share.is_some()).collect();
    let value = |row: &ResponsivenessRow| row.share.map_or(0.0, |of| of.value);
    rows.sort_by(|left, right| value(right).total_cmp(&value(left)));
    let bar = |row: &&ResponsivenessRow| Bar {
        label: format!("{} (n {})", clipped(&row.feature, 30), count(row.rows)),
        value: value(row),
        shown: share(value(row)),
        beside: None,
    };
    let list: Vec<Bar> = rows.iter().take(MOST_LINES).map(bar).collect();
    let title = format!("Rows that one feature alone takes to {}", name(Some(target)));
    let mut grid =
        GridBlock::new(title.as_str(), &["Feature", "#Rows (n)", "#Share (95 % interval)"]);
    for row in rows.iter().take(MOST_ROWS) {
        grid.row([clipped(&row.feature, 60), count(row.rows), interval(row.share)]);
    }
    let plate = Plate {
        id: format!("figure-5-features-{}", index + 1),
        title,
        reading: "Of a sample of refused rows whose rules let the feature change (n).".to_string(),
        note: more_note(rows.len().saturating_sub(MOST_LINES), "features", "responsiveness"),
        grid,
    };
    plate.bars(&list, Some(1.0))
}
