//! The five kinds of charts: [`waterfall`], [`curves`] with bands, [`intervals`] (a forest plot, where there is a
//! tolerance zone), [`bars`] and [`nights`]. Nothing is told by colour alone: markers, dashes, hatching and letters say
//! the same.

mod axis;
mod bars;
mod curves;
mod intervals;
mod nights;
mod svg;
mod waterfall;

pub(super) use bars::{Bar, bars};
pub(super) use curves::{Curve, CurveStep, curves, end_of_axis};
pub(super) use intervals::{ChartInterval, Intervals, Mark, intervals};
pub(super) use nights::{Night, nights};
pub(super) use svg::{Caption, SERIES_MOST};
pub(super) use waterfall::{BarKind, WaterfallBar, waterfall};

/// Characters of a label that have a line for themselves, but for the figure at its end.
const LABEL_CHARS: usize = 42;
