//! One group beside another, metric by metric.

use super::super::cells::{GroupCell, Moments};
use super::super::curves::{Budget, reached};
use super::super::groups::COST_SHARES;
use super::AuditSetup;
use crate::metrics::{
    Contrast, Interval, Mean, Share, compare_curves, compare_means, compare_shares, recovered,
    wilson,
};

/// The metric that the gate asks of.
pub(super) const RECOURSE: &str = "recourse_rate";

/// A group, and what it is compared with.
pub(super) struct Sides<'a> {
    pub(super) of_group: &'a GroupCell,
    pub(super) other: &'a GroupCell,
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
        let (of_group, other) = self.figures?;
        Some(self.contrast.map_or(of_group - other, |contrast| contrast.difference))
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
pub(super) fn gaps_between(
    setup: &AuditSetup<'_>,
    sides: &Sides<'_>,
    budgets: &[Budget],
) -> Vec<Gap> {
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
        let (of_group, other) = (&self.of_group.sums, &self.other.sums);
        let pairs = [
            (&of_group.cost, &other.cost),
            (&of_group.changed, &other.changed),
            (&of_group.effort, &other.effort),
        ];
        let sign = |(of_group, other): (&Moments, &Moments)| {
            let difference = of_group.mean()? - other.mean()?;
            Some(if difference == 0.0 { 0.0 } else { difference.signum() })
        };
        let signs: Option<Vec<f64>> = pairs.into_iter().map(sign).collect();
        signs.map(|signs| signs.windows(2).all(|pair| pair[0] == pair[1]))
    }

    fn share(&self, setup: &AuditSetup<'_>, gap: Gap, (of_group, other): (Share, Share)) -> Gap {
        Gap {
            figures: of_group.value().zip(other.value()),
            contrast: compare_shares(of_group, other),
            tolerance: Some(setup.job.tolerance),
            ..gap
        }
    }

    fn shares(&self, setup: &AuditSetup<'_>) -> Vec<Gap> {
        let (of_group, other) = (&self.of_group.sums, &self.other.sums);
        let mut pairs = vec![
            ("refusal_rate", of_group.refusal(), other.refusal()),
            (RECOURSE, of_group.recourse(), other.recourse()),
            ("preclusion_least", of_group.preclusion(), other.preclusion()),
            ("single_change_share", of_group.single(), other.single()),
        ];
        if setup.job.label.is_some() {
            pairs.push(("false_negative_rate", of_group.missed(), other.missed()));
        }
        let gap = |(metric, of_group, other)| {
            self.share(setup, Gap::new(metric, "newcombe"), (of_group, other))
        };
        pairs.into_iter().map(gap).collect()
    }

    fn means(&self, setup: &AuditSetup<'_>, agrees: Option<bool>) -> Vec<Gap> {
        let (of_group, other) = (&self.of_group.sums, &self.other.sums);
        let over_rows = |costs: &Moments, rows: u64| costs.over(rows);
        let mut pairs = vec![
            ("cost_mean", of_group.cost.spread(), other.cost.spread()),
            ("n_changed_mean", of_group.changed.spread(), other.changed.spread()),
            ("effort_mean", of_group.effort.spread(), other.effort.spread()),
            (
                "social_burden",
                over_rows(&of_group.cost, of_group.rows),
                over_rows(&other.cost, other.rows),
            ),
        ];
        if setup.job.label.is_some() {
            let burden = "false_negative_burden";
            pairs.push((burden, of_group.missed_cost.spread(), other.missed_cost.spread()));
        }
        let gap = |(metric, of_group, other): (&'static str, Option<Mean>, Option<Mean>)| {
            let both = of_group.zip(other);
            Gap {
                figures: both.map(|(of_group, other)| (of_group.mean, other.mean)),
                contrast: both.and_then(|(of_group, other)| compare_means(of_group, other)),
                cost_agrees: agrees,
                tolerance: other.map(|other| setup.job.tolerance * other.mean.abs()),
                ..Gap::new(metric, "welch")
            }
        };
        pairs.into_iter().map(gap).collect()
    }

    /// What it costs until a share of those who need a counterfactual have one.
    fn quantiles(&self, setup: &AuditSetup<'_>, agrees: Option<bool>) -> Vec<Gap> {
        let gap = |(metric, share): (&'static str, f64)| {
            let shown = |cell: &GroupCell| Some((cell.cost_of(share)?, cost_between(cell, share)));
            let both = shown(self.of_group).zip(shown(self.other));
            let contrast = both.map(|((of_group, own_in), (other, other_in))| Contrast {
                difference: of_group - other,
                interval: own_in
                    .zip(other_in)
                    .map(|(one, two)| recovered((of_group, one), (other, two))),
                p: None,
            });
            Gap {
                figures: both.map(|((of_group, _), (other, _))| (of_group, other)),
                contrast,
                cost_agrees: agrees,
                tolerance: both.map(|(_, (other, _))| setup.job.tolerance * other),
                ..Gap::new(metric, "mover")
            }
        };
        COST_SHARES.into_iter().map(gap).collect()
    }

    /// Effectiveness within the job's budgets; else within the median cost of all who have a counterfactual.
    fn within(&self, setup: &AuditSetup<'_>, budgets: &[Budget], agrees: Option<bool>) -> Vec<Gap> {
        let median = |budget: &&Budget| budget.quantile.is_none_or(|quantile| quantile >= 0.5);
        let most = if setup.job.budgets.is_empty() { 1 } else { budgets.len() };
        let shown = budgets.iter().filter(median).take(most);
        let gap = |budget: &Budget| {
            let gap = Gap { budget: Some(budget.cost), ..Gap::new("effectiveness", "newcombe") };
            let gap = Gap { cost_agrees: agrees, ..gap };
            self.share(setup, gap, (of(self.of_group, budget), of(self.other, budget)))
        };
        shown.map(gap).collect()
    }

    /// Where the two curves are widest apart.
    fn curve(
        &self,
        setup: &AuditSetup<'_>,
        budgets: &[Budget],
        agrees: Option<bool>,
    ) -> Option<Gap> {
        let at = |budget: &Budget| {
            let (of_group, other) =
                (of(self.of_group, budget).value()?, of(self.other, budget).value()?);
            Some((budget.cost, of_group, other))
        };
        let apart = |(_, of_group, other): &(f64, f64, f64)| (of_group - other).abs();
        let points = budgets.iter().filter_map(at);
        // Of equally wide ones the cheapest.
        let widest =
            points.reduce(|best, next| if apart(&next) > apart(&best) { next } else { best });
        let gap = Gap::new("curve", "band");
        let Some(widest) = widest else { return Some(gap) };
        let (budget, of_group, other) = widest;
        let counts = (self.of_group.sums.needed, self.other.sums.needed);
        Some(Gap {
            budget: Some(budget),
            figures: Some((of_group, other)),
            contrast: compare_curves(apart(&widest), counts),
            cost_agrees: agrees,
            tolerance: Some(setup.job.tolerance),
            ..gap
        })
    }
}

fn of(cell: &GroupCell, budget: &Budget) -> Share {
    Share { part: reached(cell, budget), whole: cell.sums.needed }
}

/// Between which costs the quantile at a share is: the costs at the ends of the share's own interval. None where the
/// upper one is infinite.
fn cost_between(cell: &GroupCell, share: f64) -> Option<Interval> {
    let needed = cell.sums.needed;
    let shares = wilson((share * needed as f64).round() as u64, needed);
    Some(Interval { low: cell.cost_of(shares.low)?, high: cell.cost_of(shares.high)? })
}
