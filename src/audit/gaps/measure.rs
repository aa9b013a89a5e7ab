//! One group beside another, metric by metric.

use super::super::cells::{Cell, Moments};
use super::super::curves::{Budget, reached};
use super::super::groups::COST_SHARES;
use super::Setup;
use crate::metrics::{
    Contrast, Interval, Mean, Share, compare_curves, compare_means, compare_shares, recovered,
    wilson,
};

/// The metric that the gate asks of.
pub(super) const RECOURSE: &str = "recourse_rate";

/// A group, and what it is compared with.
pub(super) struct Sides<'a> {
    pub(super) own: &'a Cell,
    pub(super) other: &'a Cell,
}

/// How far apart two groups are by one metric.
#[derive(Debug, Clone)]
pub(super) struct Gap {
    pub(super) metric: &'static str,
    pub(super) budget: Option<f64>,
    /// What the interval is made by.
    pub(super) interval: &'static str,
    /// The group's figure and the other's; none where one of them has none.
    pub(super) figures: Option<(f64, f64)>,
    pub(super) contrast: Option<Contrast>,
    /// p after Holm, and after Benjamini and Yekutieli.
    pub(super) adjusted: Option<(f64, f64)>,
    pub(super) cost_agrees: Option<bool>,
    pub(super) tolerance: Option<f64>,
}

impl Gap {
    fn new(metric: &'static str, interval: &'static str) -> Gap {
        Gap {
            metric,
            budget: None,
            interval,
            figures: None,
            contrast: None,
            adjusted: None,
            cost_agrees: None,
            tolerance: None,
        }
    }

    pub(super) fn difference(&self) -> Option<f64> {
        let (own, other) = self.figures?;
        Some(self.contrast.map_or(own - other, |contrast| contrast.difference))
    }

    pub(super) fn p(&self) -> Option<f64> {
        self.contrast?.p
    }

    /// Leaves nothing but its name.
    pub(super) fn suppress(&mut self) {
        *self = Gap { budget: self.budget, ..Gap::new(self.metric, self.interval) };
    }

    /// What the whole interval says, beside the tolerance.
    pub(super) fn verdict(&self, significant: f64) -> &'static str {
        let interval = self.contrast.and_then(|contrast| contrast.interval);
        let (Some(Interval { low, high }), Some(tolerance)) = (interval, self.tolerance) else {
            return "inconclusive";
        };
        let inside = -tolerance <= low && high <= tolerance;
        let outside = low > tolerance || high < -tolerance;
        // Quantiles have no p-value: their interval alone speaks, and among many groups that is too little.
        let stands = self.adjusted.is_some_and(|(holm, _)| holm <= significant);
        match (inside, outside && stands && self.cost_agrees != Some(false)) {
            (true, _) => "within",
            (_, true) => "exceeds",
            _ => "inconclusive",
        }
    }
}

/// Every metric of one group against another.
pub(super) fn gaps_between(setup: &Setup<'_>, sides: &Sides<'_>, budgets: &[Budget]) -> Vec<Gap> {
    let agrees = sides.costs_agree();
    let mut found: Vec<Gap> = sides.shares(setup);
    found.extend(sides.means(setup, agrees));
    found.extend(sides.quantiles(setup, agrees));
    found.extend(sides.within(setup, budgets, agrees));
    found.extend(sides.curve(setup, budgets, agrees));
    found
}

impl Sides<'_> {
    /// Whether means of all three costs differ the same way; none if there are none to compare.
    fn costs_agree(&self) -> Option<bool> {
        let (own, other) = (&self.own.sums, &self.other.sums);
        let pairs = [
            (&own.cost, &other.cost),
            (&own.changed, &other.changed),
            (&own.effort, &other.effort),
        ];
        let sign = |(own, other): (&Moments, &Moments)| {
            let difference = own.mean()? - other.mean()?;
            Some(if difference == 0.0 { 0.0 } else { difference.signum() })
        };
        let signs: Option<Vec<f64>> = pairs.into_iter().map(sign).collect();
        signs.map(|signs| signs.windows(2).all(|pair| pair[0] == pair[1]))
    }

    fn share(&self, setup: &Setup<'_>, gap: Gap, (own, other): (Share, Share)) -> Gap {
        Gap {
            figures: own.value().zip(other.value()),
            contrast: compare_shares(own, other),
            tolerance: Some(setup.job.tolerance),
            ..gap
        }
    }

    fn shares(&self, setup: &Setup<'_>) -> Vec<Gap> {
        let (own, other) = (&self.own.sums, &self.other.sums);
        let mut pairs = vec![
            ("refusal_rate", own.refusal(), other.refusal()),
            (RECOURSE, own.recourse(), other.recourse()),
            ("preclusion_least", own.preclusion(), other.preclusion()),
            ("single_change_share", own.single(), other.single()),
        ];
        if setup.job.label.is_some() {
            pairs.push(("false_negative_rate", own.missed(), other.missed()));
        }
        let gap =
            |(metric, own, other)| self.share(setup, Gap::new(metric, "newcombe"), (own, other));
        pairs.into_iter().map(gap).collect()
    }

    fn means(&self, setup: &Setup<'_>, agrees: Option<bool>) -> Vec<Gap> {
        let (own, other) = (&self.own.sums, &self.other.sums);
        let over_rows = |costs: &Moments, rows: u64| costs.over(rows);
        let mut pairs = vec![
            ("cost_mean", own.cost.spread(), other.cost.spread()),
            ("n_changed_mean", own.changed.spread(), other.changed.spread()),
            ("effort_mean", own.effort.spread(), other.effort.spread()),
            ("social_burden", over_rows(&own.cost, own.rows), over_rows(&other.cost, other.rows)),
        ];
        if setup.job.label.is_some() {
            let burden = "false_negative_burden";
            pairs.push((burden, own.missed_cost.spread(), other.missed_cost.spread()));
        }
        let gap = |(metric, own, other): (&'static str, Option<Mean>, Option<Mean>)| {
            let both = own.zip(other);
            Gap {
                figures: both.map(|(own, other)| (own.mean, other.mean)),
                contrast: both.and_then(|(own, other)| compare_means(own, other)),
                cost_agrees: agrees,
                tolerance: other.map(|other| setup.job.tolerance * other.mean.abs()),
                ..Gap::new(metric, "welch")
            }
        };
        pairs.into_iter().map(gap).collect()
    }

    /// What it costs until a share of those who need an answer have one.
    fn quantiles(&self, setup: &Setup<'_>, agrees: Option<bool>) -> Vec<Gap> {
        let gap = |(metric, share): (&'static str, f64)| {
            let told = |cell: &Cell| Some((cell.cost_of(share)?, cost_between(cell, share)));
            let both = told(self.own).zip(told(self.other));
            let contrast = both.map(|((own, own_in), (other, other_in))| Contrast {
                difference: own - other,
                interval: own_in
                    .zip(other_in)
                    .map(|(one, two)| recovered((own, one), (other, two))),
                p: None,
            });
            Gap {
                figures: both.map(|((own, _), (other, _))| (own, other)),
                contrast,
                cost_agrees: agrees,
                tolerance: both.map(|(_, (other, _))| setup.job.tolerance * other),
                ..Gap::new(metric, "mover")
            }
        };
        COST_SHARES.into_iter().map(gap).collect()
    }

    /// Effectiveness within the job's budgets; else within the median cost of all who have an answer.
    fn within(&self, setup: &Setup<'_>, budgets: &[Budget], agrees: Option<bool>) -> Vec<Gap> {
        let median = |budget: &&Budget| budget.quantile.is_none_or(|quantile| quantile >= 0.5);
        let most = if setup.job.budgets.is_empty() { 1 } else { budgets.len() };
        let told = budgets.iter().filter(median).take(most);
        let gap = |budget: &Budget| {
            let gap = Gap { budget: Some(budget.cost), ..Gap::new("effectiveness", "newcombe") };
            let gap = Gap { cost_agrees: agrees, ..gap };
            self.share(setup, gap, (of(self.own, budget), of(self.other, budget)))
        };
        told.map(gap).collect()
    }

    /// Where the two curves are widest apart.
    fn curve(&self, setup: &Setup<'_>, budgets: &[Budget], agrees: Option<bool>) -> Option<Gap> {
        let at = |budget: &Budget| {
            let (own, other) = (of(self.own, budget).value()?, of(self.other, budget).value()?);
            Some((budget.cost, own, other))
        };
        let apart = |(_, own, other): &(f64, f64, f64)| (own - other).abs();
        let points = budgets.iter().filter_map(at);
        // Of equally wide ones the cheapest.
        let widest =
            points.reduce(|best, next| if apart(&next) > apart(&best) { next } else { best });
        let gap = Gap::new("curve", "band");
        let Some(widest) = widest else { return Some(gap) };
        let (budget, own, other) = widest;
        let counts = (self.own.sums.needed, self.other.sums.needed);
        Some(Gap {
            budget: Some(budget),
            figures: Some((own, other)),
            contrast: compare_curves(apart(&widest), counts),
            cost_agrees: agrees,
            tolerance: Some(setup.job.tolerance),
            ..gap
        })
    }
}

fn of(cell: &Cell, budget: &Budget) -> Share {
    Share { part: reached(cell, budget), whole: cell.sums.needed }
}

/// Between which costs the quantile at a share is: the costs at the ends of the share's own interval. None where the
/// upper one is infinite.
fn cost_between(cell: &Cell, share: f64) -> Option<Interval> {
    let needed = cell.sums.needed;
    let shares = wilson((share * needed as f64).round() as u64, needed);
    Some(Interval { low: cell.cost_of(shares.low)?, high: cell.cost_of(shares.high)? })
}
