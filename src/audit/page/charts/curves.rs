//! Shares that are reached within a cost: step curves with a band each, told apart by letter, dashes and colour.

use super::LABEL_CHARS;
use super::axis::Scale;
use super::svg::{AXIS, Anchor, Caption, GRID, LINE, SERIES, Svg, WIDTH};
use crate::audit::page::words::{clipped, number};

/// A group's curve.
#[derive(Debug, Clone)]
pub(in super::super) struct Curve {
    /// The group and its rows, as the legend says it.
    pub(in super::super) label: String,
    /// Its last value, in words.
    pub(in super::super) end: String,
    /// By ascending cost.
    pub(in super::super) steps: Vec<CurveStep>,
}

/// From a cost on, this share is reached.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct CurveStep {
    pub(in super::super) cost: f64,
    pub(in super::super) share: f64,
    pub(in super::super) low: f64,
    pub(in super::super) high: f64,
}

const LEFT: f64 = 46.0;
const RIGHT: f64 = WIDTH - 22.0;
const HEIGHT: f64 = 220.0;

/// Letters of the curves, in their order.
const LETTERS: [&str; SERIES.len()] = ["A", "B", "C", "D", "E"];

/// Draws up to [`SERIES`] many curves; the axis below is called `unit`.
pub(in super::super) fn curves(caption: &Caption, list: &[Curve], unit: &str) -> String {
    let mut svg = Svg::new();
    let list = &list[..list.len().min(SERIES.len())];
    for (index, (curve, (line, fill, dashes))) in list.iter().zip(SERIES).enumerate() {
        let y = LINE * index as f64 + 13.0;
        svg.coloured((0.0, y), LETTERS[index], fill);
        svg.path(&[(18.0, y - 4.0), (58.0, y - 4.0)], line, dashes);
        svg.text((66.0, y), Anchor::Start, &clipped(&curve.label, LABEL_CHARS + 10));
    }
    let top = LINE * list.len() as f64 + 14.0;
    let x = Scale::new((0.0, end_of_axis(list)), (LEFT, RIGHT));
    let y = Scale::new((0.0, 1.0), (top + HEIGHT, top));
    frame(&mut svg, (&x, &y), unit);
    for (curve, (_, fill, _)) in list.iter().zip(SERIES) {
        band(&mut svg, curve, (&x, &y), fill);
    }
    for (curve, (line, _, dashes)) in list.iter().zip(SERIES) {
        let points = staircase(curve, (&x, &y), |step| step.share);
        svg.path(&points, line, dashes);
    }
    let end = |curve: &Curve| {
        let last = curve.steps.iter().rfind(|step| x.holds(step.cost));
        last.map_or(y.at(0.0), |step| y.at(step.share))
    };
    let ends: Vec<f64> = list.iter().map(end).collect();
    for ((end, (_, fill, _)), letter) in spread(&ends).into_iter().zip(SERIES).zip(LETTERS) {
        svg.coloured((RIGHT + 6.0, end + 4.5), letter, fill);
    }
    svg.finish(caption)
}

/// The greatest cost that is drawn. A few expensive counterfactuals would press all others against the left: where the last
/// twentieth of every curve takes up more than a third of the width, the axis ends before.
pub(in super::super) fn end_of_axis(list: &[Curve]) -> f64 {
    let most = |costs: &mut dyn Iterator<Item = f64>| costs.fold(0.0, f64::max);
    let all = most(&mut list.iter().flat_map(|curve| &curve.steps).map(|step| step.cost));
    let nearly = |curve: &Curve| {
        let last = curve.steps.last()?.share;
        curve.steps.iter().find(|step| step.share >= 0.95 * last).map(|step| step.cost)
    };
    let nearly = most(&mut list.iter().filter_map(nearly));
    if nearly > 0.0 && all > 1.5 * nearly { 1.2 * nearly } else { all }
}

fn frame(svg: &mut Svg, (x, y): (&Scale, &Scale), unit: &str) {
    for tick in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let position = y.at(tick);
        svg.line((LEFT, position), (RIGHT, position), if tick == 0.0 { AXIS } else { GRID });
        svg.muted((LEFT - 6.0, position + 4.0), Anchor::End, &format!("{} %", 100.0 * tick));
    }
    let base = y.at(0.0);
    for tick in x.ticks(5) {
        svg.line((x.at(tick), base), (x.at(tick), base + 4.0), AXIS);
        svg.muted((x.at(tick), base + 17.0), Anchor::Middle, &number(tick));
    }
    svg.muted((RIGHT, base + 34.0), Anchor::End, unit);
}

/// The corners of a curve's steps, from nothing at no cost to the end of the axis.
fn staircase(
    curve: &Curve,
    (x, y): (&Scale, &Scale),
    of: impl Fn(&CurveStep) -> f64,
) -> Vec<(f64, f64)> {
    let mut points = vec![(x.at(0.0), y.at(0.0))];
    for step in curve.steps.iter().filter(|step| x.holds(step.cost)) {
        let before = points[points.len() - 1].1;
        points.push((x.at(step.cost), before));
        points.push((x.at(step.cost), y.at(of(step))));
    }
    let last = points[points.len() - 1].1;
    points.push((RIGHT, last));
    points
}

fn band(svg: &mut Svg, curve: &Curve, scales: (&Scale, &Scale), paint: super::svg::Paint) {
    let mut points = staircase(curve, scales, |step| step.high);
    points.extend(staircase(curve, scales, |step| step.low).into_iter().rev());
    svg.area(&points, paint);
}

/// Letters beside the ends of curves, moved apart so that each can be read.
fn spread(ends: &[f64]) -> Vec<f64> {
    const APART: f64 = 13.0;
    let mut order: Vec<usize> = (0..ends.len()).collect();
    order.sort_by(|left, right| ends[*left].total_cmp(&ends[*right]));
    let mut positions = ends.to_vec();
    for pair in 1..order.len() {
        let (above, below) = (order[pair - 1], order[pair]);
        positions[below] = positions[below].max(positions[above] + APART);
    }
    // The whole column is moved up by half of what it was pushed down.
    let pushed = order.last().map_or(0.0, |last| positions[*last] - ends[*last]);
    positions.iter().map(|position| position - pushed / 2.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_dear_answers_do_not_press_all_others_to_the_left() {
        let curve = |shares: &[(f64, f64)]| Curve {
            label: String::new(),
            end: String::new(),
            steps: shares
                .iter()
                .map(|(cost, share)| CurveStep {
                    cost: *cost,
                    share: *share,
                    low: *share,
                    high: *share,
                })
                .collect(),
        };
        let expensive = curve(&[(1.0, 0.5), (2.0, 0.78), (20.0, 0.8)]);
        let even = curve(&[(1.0, 0.5), (2.0, 0.7), (3.0, 0.8)]);
        assert_eq!(end_of_axis(std::slice::from_ref(&even)), 3.0);
        assert!((end_of_axis(std::slice::from_ref(&expensive)) - 2.4).abs() < 1e-12);
        assert!(
            (end_of_axis(&[expensive, even]) - 3.6).abs() < 1e-12,
            "every curve keeps its part"
        );
        assert_eq!(end_of_axis(&[]), 0.0);
    }

    #[test]
    fn letters_do_not_stand_on_each_other() {
        let positions = spread(&[50.0, 50.0, 90.0, 51.0]);
        let mut sorted = positions.clone();
        sorted.sort_by(f64::total_cmp);
        assert!(sorted.windows(2).all(|pair| pair[1] - pair[0] >= 13.0), "{positions:?}");
        assert_eq!(spread(&[]), Vec::<f64>::new());
    }
}
