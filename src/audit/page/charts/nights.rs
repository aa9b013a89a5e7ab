//! A figure over the nights: small, with its first, last, least and greatest value written beside it.

use super::axis::Scale;
use super::svg::{AXIS, Anchor, BAR, Caption, PLAIN_LINE, Svg, WIDTH};

/// A figure of a night.
#[derive(Debug, Clone)]
pub(in super::super) struct Night {
    pub(in super::super) label: String,
    pub(in super::super) value: Option<f64>,
}

const TOP: f64 = 22.0;
const HEIGHT: f64 = 64.0;
const SIDE: f64 = 8.0;

/// Draws the nights in their order. Where a night has no value the line is broken.
pub(in super::super) fn nights(
    caption: &Caption,
    list: &[Night],
    show: fn(f64) -> String,
) -> String {
    let mut svg = Svg::new();
    let values: Vec<f64> = list.iter().filter_map(|night| night.value).collect();
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let x = Scale::new((0.0, list.len().saturating_sub(1).max(1) as f64), (SIDE, WIDTH - SIDE));
    let y = Scale::new((low.min(high), high.max(low)), (TOP + HEIGHT, TOP));
    let positions: Vec<Option<(f64, f64)>> = list
        .iter()
        .enumerate()
        .map(|(index, night)| night.value.map(|value| (x.at(index as f64), y.at(value))))
        .collect();
    for stretch in positions.split(Option::is_none) {
        let points: Vec<(f64, f64)> = stretch.iter().flatten().copied().collect();
        svg.path(&points, PLAIN_LINE, "");
    }
    positions.iter().flatten().for_each(|position| svg.circle(*position, 3.5, BAR));
    // Of equal nights the last is written beside.
    let at = |value: f64| list.iter().rposition(|night| night.value == Some(value));
    for (index, shift) in [(at(high), -8.0), (at(low).filter(|_| low < high), 18.0)] {
        let Some((index, (x, y))) = index.and_then(|index| Some((index, positions[index]?))) else {
            continue;
        };
        let anchor = match x {
            x if x < WIDTH / 4.0 => Anchor::Start,
            x if x > 3.0 * WIDTH / 4.0 => Anchor::End,
            _ => Anchor::Middle,
        };
        svg.strong((x, y + shift), anchor, &show(list[index].value.unwrap_or_default()));
    }
    let base = TOP + HEIGHT + 22.0;
    svg.line((0.0, base), (WIDTH, base), AXIS);
    let ends = [(list.first(), 0.0, Anchor::Start), (list.last(), WIDTH, Anchor::End)];
    for (night, x, anchor) in ends {
        if let Some(night) = night {
            svg.muted((x, base + 15.0), anchor, &night.label);
        }
    }
    svg.finish(caption)
}
