//! Everything that a row may become, searched for what the model should say of it: regions that cannot reach it are
//! excluded by what the trees say at most.

use super::machine::{Machine, TypedModel};
use super::responses::Whole;
use super::scorer::{Answered, Native};
use super::sweep::{Demand, RegionLimits, Span, Spans};
use super::trees::{Aim, Forest, Need, Real};
use super::variants::Originals;
use crate::predictor::{Reach, Search, Searched, Variant};

impl Native {
    /// How many labels the model can give; 0 for a regression. None where its answers are not those of its trees.
    pub(in super::super) fn labels(&self) -> Option<u32> {
        let [submodel] = &self.engine.program.submodels[..] else { return None };
        let labels = match &submodel.machine {
            Machine::Single(TypedModel::Trees(forest)) => forest.labels(),
            Machine::Double(TypedModel::Trees(forest)) => forest.labels(),
            _ => return None,
        };
        self.engine.is_direct(labels > 0).then_some(labels as u32)
    }

    /// What the model would say of rows that get one label each, in their order, and nothing but that.
    pub(in super::super) fn labelled(&self, labels: u32) -> Answered<'_> {
        let scores = (0..labels).flat_map(|row| (0..labels).map(move |at| u8::from(at == row)));
        self.concluded(scores.map(f64::from).collect(), (0..labels).collect())
    }

    fn class_demands(&self, whole: &Whole, aim: Aim) -> Option<(Vec<Need>, f64)> {
        match &self.engine.program.submodels[..] {
            [submodel] => match &submodel.machine {
                Machine::Single(TypedModel::Trees(forest)) => class_demands(forest, whole, aim),
                Machine::Double(TypedModel::Trees(forest)) => class_demands(forest, whole, aim),
                _ => None,
            },
            _ => None,
        }
    }
}

/// What the sums need for an aim, and how far they may be off by rounding.
fn class_demands<T: Real>(forest: &Forest<T>, whole: &Whole, aim: Aim) -> Option<(Vec<Need>, f64)> {
    let raw = forest.raw()?;
    let trees = raw.trees.len();
    let class_demands = raw.finish.class_demands(aim, (&whole.weighed, trees))?;
    // Every addition rounds by at most half a unit of what it has come to.
    let constants = class_demands.iter().map(|need| need.plus.abs()).fold(0.0, f64::max);
    let greatest = 2.0 * whole.sweeper.greatest() + constants;
    Some((class_demands, greatest * T::EPSILON * (trees + 2) as f64))
}

impl Originals<'_> {
    /// Searches what a copy may become. None where the model does not show bounds, or the row cannot be told to it.
    pub(in super::super) fn search(
        &self,
        (copy, reach): (&Variant<'_>, &[Reach]),
        aim: Aim,
        search: Search<'_>,
    ) -> Option<Searched> {
        let native = self.native;
        let whole = native.whole(self.inputs, reach.len())?;
        native.labels()?;
        let (class_demands, slack) = native.class_demands(whole, aim)?;
        let demands: Vec<Demand> =
            class_demands.into_iter().map(|need| whole.demand(need)).collect();
        // What cannot be told to the model is not excluded by what it says.
        let all_known =
            reach.iter().enumerate().all(|(feature, reach)| whole.knows_values(feature, reach));
        let question = self.known_question(whole, &(*copy, reach)).filter(|_| all_known)?;
        let Search { trees, accept } = search;
        let regions = trees / (whole.sweeper.trees() * demands.len()).max(1);
        let mut accept = |spans: &Spans| {
            let changed = |(feature, span): (usize, &Option<Span>)| {
                let original = question.original[feature];
                let span = whole.sweeper.without_original(feature, original, (*span)?)?;
                Some((feature, whole.within(feature, span, &question.reach[feature])))
            };
            let region: Vec<(usize, Reach)> =
                spans.iter().enumerate().filter_map(changed).collect();
            accept(&region)
        };
        let limits = RegionLimits { regions, slack, accept: &mut accept };
        Some(whole.sweeper.search(&question, &demands, limits))
    }
}
