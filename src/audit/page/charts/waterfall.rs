//! How a number of rows becomes smaller, step by step: bars one below the other, each beginning where the last ended.

use super::LABEL_CHARS;
use super::axis::Scale;
use super::svg::{AXIS, Anchor, BAR, Caption, GONE, LINE, OUTSIDE, Svg, TRACK, UNSURE, WIDTH};
use crate::audit::page::words::clipped;

/// What a bar stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum BarKind {
    /// What is left.
    Total,
    /// What goes away.
    Gone,
    /// A part of the last total, that is good …
    Helped,
    /// … or open …
    Open,
    /// … or bad.
    ShutOut,
}

/// A bar.
#[derive(Debug, Clone)]
pub(in super::super) struct WaterfallBar {
    pub(in super::super) label: String,
    pub(in super::super) rows: u64,
    /// The figure as written at the end of the line.
    pub(in super::super) shown: String,
    pub(in super::super) kind: BarKind,
}

/// Height of a bar with its line of text.
const STEP: f64 = 40.0;
const BAR_HEIGHT: f64 = 12.0;
/// Strokes at the ends of bars that meet: whole lines would run through the texts between them.
const JOINT: f64 = 3.0;

/// Draws the bars. The first is the longest.
pub(in super::super) fn waterfall(caption: &Caption, stages: &[WaterfallBar]) -> String {
    let mut svg = Svg::new();
    let most = stages.iter().map(|stage| stage.rows).max().unwrap_or(0) as f64;
    let scale = Scale::new((0.0, most.max(1.0)), (1.0, WIDTH - 1.0));
    let (mut y, mut left, mut end) = (0.0, 0.0, most);
    for (index, stage) in stages.iter().enumerate() {
        let rows = stage.rows as f64;
        let (from, to) = match stage.kind {
            BarKind::Total => (0.0, rows),
            BarKind::Gone => (end - rows, end),
            _ => (left, left + rows),
        };
        svg.text((0.0, y + 13.0), Anchor::Start, &clipped(&stage.label, LABEL_CHARS));
        svg.strong((WIDTH, y + 13.0), Anchor::End, &stage.shown);
        let top = y + LINE + 1.0;
        svg.rect((scale.at(0.0), top), (scale.at(most) - scale.at(0.0), BAR_HEIGHT), TRACK);
        draw(&mut svg, (scale.at(from), scale.at(to)), top, stage.kind);
        match stage.kind {
            BarKind::Total => (left, end) = (0.0, rows),
            BarKind::Gone => end = from,
            _ => left = to,
        }
        let next = stages.get(index + 1).map(|next| next.kind);
        let joint = match (stage.kind, next) {
            (BarKind::Total | BarKind::Gone, Some(BarKind::Total | BarKind::Gone)) => Some(end),
            (_, Some(BarKind::Helped | BarKind::Open | BarKind::ShutOut)) => Some(left),
            _ => None,
        };
        if let Some(joint) = joint {
            let x = scale.at(joint);
            svg.line((x, top + BAR_HEIGHT), (x, top + BAR_HEIGHT + JOINT), AXIS);
            svg.line((x, top + STEP - JOINT), (x, top + STEP), AXIS);
        }
        y += STEP;
    }
    svg.finish(caption)
}

/// A bar in the manner of its kind: full, hatched, or framed.
fn draw(svg: &mut Svg, (from, to): (f64, f64), top: f64, kind: BarKind) {
    // What there is of a thing is seen, however little it is.
    let to = if to > from { to.max(from + 1.5) } else { from };
    let size = (to - from, BAR_HEIGHT);
    match kind {
        BarKind::Total | BarKind::Helped => svg.rect((from, top), size, BAR),
        BarKind::ShutOut => svg.rect((from, top), size, OUTSIDE),
        BarKind::Open => svg.rect((from, top), size, UNSURE),
        BarKind::Gone => svg.rect((from, top), size, GONE),
    }
    let gap = match kind {
        BarKind::Gone => 6.0,
        BarKind::Open => 12.0,
        _ => return,
    };
    let mut x = from + gap;
    while x < to {
        let low = (x - BAR_HEIGHT).max(from);
        svg.line(
            (low, top + (x - low)),
            (x, top),
            if kind == BarKind::Gone { GONE } else { UNSURE },
        );
        x += gap;
    }
}
