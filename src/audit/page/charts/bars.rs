//! Shares or counts of things with names: a bar each, its name above it.

use super::LABEL_CHARS;
use super::axis::Scale;
use super::svg::{Anchor, BAR, Caption, INK, LINE, Svg, TRACK, WIDTH};
use crate::audit::page::words::clipped;

/// A bar.
#[derive(Debug, Clone)]
pub(in super::super) struct Bar {
    pub(in super::super) label: String,
    pub(in super::super) value: f64,
    /// The figure as written at the end of the line.
    pub(in super::super) shown: String,
    /// What it is compared with: a stroke across the bar.
    pub(in super::super) beside: Option<f64>,
}

const STEP: f64 = 36.0;
const BAR_HEIGHT: f64 = 10.0;

/// Draws the bars, up to `most` (all of a share is 1).
pub(in super::super) fn bars(caption: &Caption, list: &[Bar], most: Option<f64>) -> String {
    let mut svg = Svg::new();
    let values = list.iter().flat_map(|bar| [Some(bar.value), bar.beside]).flatten();
    let most = most.unwrap_or_else(|| values.fold(0.0, f64::max));
    let scale = Scale::new((0.0, if most > 0.0 { most } else { 1.0 }), (0.0, WIDTH));
    for (index, bar) in list.iter().enumerate() {
        let y = STEP * index as f64;
        svg.text((0.0, y + 13.0), Anchor::Start, &clipped(&bar.label, LABEL_CHARS));
        svg.strong((WIDTH, y + 13.0), Anchor::End, &bar.shown);
        let top = y + LINE;
        svg.rect((0.0, top), (WIDTH, BAR_HEIGHT), TRACK);
        if bar.value > 0.0 {
            svg.rect((0.0, top), (scale.at(bar.value).max(1.5), BAR_HEIGHT), BAR);
        }
        if let Some(beside) = bar.beside {
            svg.rect((scale.at(beside) - 1.5, top - 3.0), (3.0, BAR_HEIGHT + 6.0), INK);
        }
    }
    svg.finish(caption)
}
