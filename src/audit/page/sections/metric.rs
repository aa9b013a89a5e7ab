//! What metrics are called, and how their figures are written.

use super::super::data::GapRow;
use super::super::words::{number, points, range, share, signed};

/// A metric of the table `gaps`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Metric {
    /// A few words.
    pub(super) title: &'static str,
    /// What it counts, as the end of a sentence.
    pub(super) meaning: &'static str,
    /// Whether it is a share of 0 to 1.
    pub(super) is_share: bool,
}

const METRICS: [(&str, &str, &str, bool); 16] = [
    ("refusal_rate", "Refused", "share of all rows that are refused", true),
    ("recourse_rate", "Helped", "share of refused rows with a valid change", true),
    ("preclusion_least", "Proven beyond help", "share of refused rows proven to have none", true),
    ("preclusion_most", "Not helped", "share of refused rows without a valid change", true),
    ("cost_mean", "Mean cost", "mean cost of the valid changes", false),
    ("n_changed_mean", "Features changed", "mean number of features that change", false),
    ("effort_mean", "Mean effort", "mean shift in percentiles, summed over features", false),
    ("cost_p50", "Median cost", "median cost over refused rows", false),
    ("cost_p90", "90 % cost", "cost within which 90 % of refused rows are helped", false),
    ("social_burden", "Burden", "cost of all valid changes, over all rows", false),
    ("single_change_share", "One change", "share of valid changes of a single feature", true),
    ("false_negative_rate", "Wrongly refused", "share of true positives that are refused", true),
    ("false_negative_burden", "Burden of the wrongly refused", "mean cost of their changes", false),
    ("nawb", "NAWB", "rate of wrong refusals times their mean effort, times 100", false),
    ("effectiveness", "Helped within a budget", "share of refused rows helped within it", true),
    ("curve", "Widest distance of the curves", "largest difference at any cost", true),
];

/// What is known of a metric; of one that is not, its column's name has to do.
pub(super) fn metric(name: &str) -> Metric {
    let known = METRICS.iter().find(|(of, _, _, _)| *of == name);
    let unknown = Metric { title: "Another metric", meaning: "see the table", is_share: false };
    known.map_or(unknown, |(_, title, meaning, is_share)| Metric {
        title,
        meaning,
        is_share: *is_share,
    })
}

impl Metric {
    /// A figure of the metric.
    pub(super) fn figure(&self, value: f64) -> String {
        if self.is_share { share(value) } else { number(value) }
    }

    /// A difference of two figures.
    pub(super) fn difference(&self, value: f64) -> String {
        if self.is_share {
            points(value)
        } else if value > 0.0 {
            format!("+{}", number(value))
        } else {
            number(value)
        }
    }

    /// A difference without its unit, for axes and intervals.
    pub(super) fn bare(&self, value: f64) -> String {
        if self.is_share {
            signed(100.0 * value, 1)
        } else if value > 0.0 {
            format!("+{}", number(value))
        } else {
            number(value)
        }
    }

    /// A difference's interval.
    pub(super) fn interval(&self, row: &GapRow) -> String {
        range(row.difference.low, row.difference.high, |end| self.bare(end))
    }

    /// Ticks of an axis of differences.
    pub(super) fn tick(&self) -> fn(f64) -> String {
        if self.is_share { |value| signed(100.0 * value, 0) } else { |value| signed_number(value) }
    }

    /// What an axis of differences is called.
    pub(super) fn unit(&self) -> &'static str {
        if self.is_share { "difference in percentage points" } else { "difference of costs" }
    }
}

fn signed_number(value: f64) -> String {
    if value > 0.0 { format!("+{}", number(value)) } else { number(value) }
}
