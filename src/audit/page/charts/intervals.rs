//! Figures with their intervals, a line each. With a tolerance zone it is a forest plot: what lies inside is alike,
//! what lies outside is not, what reaches across is open.

use super::LABEL_CHARS;
use super::axis::Scale;
use super::svg::{
    AXIS, Anchor, BAR, Caption, GRID, HOLLOW, OUTSIDE, OUTSIDE_LINE, PLAIN_LINE, Paint, Svg, TRACK,
    UNSURE, UNSURE_LINE, WIDTH, ZONE, ZONE_EDGE,
};
use crate::audit::page::words::clipped;

/// How a figure is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Mark {
    /// A full circle: nothing is judged.
    Plain,
    /// A hollow circle.
    Within,
    /// A full square.
    Exceeds,
    /// A hollow diamond.
    Inconclusive,
}

/// A figure.
#[derive(Debug, Clone)]
pub(in super::super) struct ChartInterval {
    pub(in super::super) label: String,
    /// What is written at the end of the line.
    pub(in super::super) shown: String,
    /// None where the ends are all that is known.
    pub(in super::super) point: Option<f64>,
    pub(in super::super) low: f64,
    pub(in super::super) high: f64,
    pub(in super::super) mark: Mark,
}

/// A drawing of them.
pub(in super::super) struct Intervals<'a> {
    pub(in super::super) list: &'a [ChartInterval],
    /// What counts as alike.
    pub(in super::super) zone: Option<(f64, f64)>,
    /// What is always on the axis.
    pub(in super::super) always: (f64, f64),
    /// The axis's name.
    pub(in super::super) unit: &'a str,
    /// How its values are written.
    pub(in super::super) show: fn(f64) -> String,
}

const STEP: f64 = 44.0;
/// Where a row's track begins below its label, and how high it is.
const TRACK_TOP: f64 = 19.0;
const TRACK_HEIGHT: f64 = 18.0;
/// Room for half a tick's text.
const SIDE: f64 = 20.0;

/// Draws the figures in their order.
pub(in super::super) fn intervals(caption: &Caption, drawing: &Intervals<'_>) -> String {
    let mut svg = Svg::new();
    let x = scale(drawing);
    let ticks = x.ticks(5);
    for (index, interval) in drawing.list.iter().enumerate() {
        let top = STEP * index as f64;
        track(&mut svg, (drawing, &ticks), (&x, top + TRACK_TOP));
        row(&mut svg, interval, (&x, top));
    }
    let base = STEP * drawing.list.len() as f64;
    svg.line((0.0, base), (WIDTH, base), AXIS);
    for tick in ticks {
        svg.line((x.at(tick), base), (x.at(tick), base + 4.0), AXIS);
        svg.muted((x.at(tick), base + 17.0), Anchor::Middle, &(drawing.show)(tick));
    }
    svg.muted((WIDTH, base + 34.0), Anchor::End, drawing.unit);
    svg.finish(caption)
}

/// What lies behind an interval: the zone, and strokes at the ticks. Labels stay free of it.
fn track(svg: &mut Svg, (drawing, ticks): (&Intervals<'_>, &[f64]), (x, top): (&Scale, f64)) {
    svg.rect((0.0, top), (WIDTH, TRACK_HEIGHT), TRACK);
    let bottom = top + TRACK_HEIGHT;
    if let Some((low, high)) = drawing.zone {
        svg.rect((x.at(low), top), (x.at(high) - x.at(low), TRACK_HEIGHT), ZONE);
        for edge in [low, high] {
            svg.path(&[(x.at(edge), top), (x.at(edge), bottom)], ZONE_EDGE, "3 3");
        }
    }
    for tick in ticks {
        let paint = if *tick == 0.0 { AXIS } else { GRID };
        svg.line((x.at(*tick), top), (x.at(*tick), bottom), paint);
    }
}

fn scale(drawing: &Intervals<'_>) -> Scale {
    let ends = drawing.list.iter().flat_map(|of| [Some(of.low), Some(of.high), of.point]).flatten();
    let finite = ends.filter(|end| end.is_finite());
    let (low, high) = finite.fold(drawing.always, |(low, high), end| (low.min(end), high.max(end)));
    Scale::new((low, high), (SIDE, WIDTH - SIDE))
}

fn row(svg: &mut Svg, interval: &ChartInterval, (x, top): (&Scale, f64)) {
    let (line, paint) = match interval.mark {
        Mark::Plain => (PLAIN_LINE, BAR),
        Mark::Within => (PLAIN_LINE, HOLLOW),
        Mark::Exceeds => (OUTSIDE_LINE, OUTSIDE),
        Mark::Inconclusive => (UNSURE_LINE, UNSURE),
    };
    svg.text((0.0, top + 13.0), Anchor::Start, &clipped(&interval.label, LABEL_CHARS));
    svg.strong((WIDTH, top + 13.0), Anchor::End, &interval.shown);
    let y = top + TRACK_TOP + TRACK_HEIGHT / 2.0;
    whisker(svg, interval, (x, y), line);
    let Some(point) = interval.point else { return };
    let position = x.at(point);
    match interval.mark {
        Mark::Plain | Mark::Within => svg.circle((position, y), 4.5, paint),
        Mark::Exceeds => svg.rect((position - 4.5, y - 4.5), (9.0, 9.0), paint),
        Mark::Inconclusive => {
            let corners = [
                (position - 6.0, y),
                (position, y - 6.0),
                (position + 6.0, y),
                (position, y + 6.0),
            ];
            svg.polygon(&corners, paint);
        }
    }
}

/// The interval: a stroke at each end, an arrow where it is without end.
fn whisker(svg: &mut Svg, interval: &ChartInterval, (x, y): (&Scale, f64), paint: Paint) {
    let (from, to) = (x.at(interval.low), x.at(interval.high));
    svg.line((from, y), (to, y), paint);
    for (end, value, back) in [(from, interval.low, 5.0), (to, interval.high, -5.0)] {
        if x.holds(value) {
            svg.line((end, y - 4.0), (end, y + 4.0), paint);
        } else {
            svg.path(&[(end + back, y - 4.0), (end, y), (end + back, y + 4.0)], paint, "");
        }
    }
}
