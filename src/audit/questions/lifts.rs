//! Constraints taken away, one at a time.

use std::sync::Arc;

use super::search::Variation;
use crate::feature::{
    Change, FeatureKind, FeatureSchema, FeatureStats, Numeric, NumericStats, Stats,
};

/// A constraint that is taken away.
#[derive(Debug, Clone)]
pub(super) struct Lift {
    /// Its feature; none where it is no feature's.
    pub feature: Option<String>,
    /// What kind it is.
    pub constraint: &'static str,
    /// What it says.
    pub detail: String,
    /// How rows are explained without it.
    pub variation: Variation,
}

/// Every constraint of a job and its feature schema that can be taken away by itself. The first takes nothing away.
pub(super) fn lifts(unchanged: &Variation, stats: &Stats) -> Vec<Lift> {
    let mut found = vec![Lift {
        feature: None,
        constraint: "none",
        detail: "nothing is lifted".to_string(),
        variation: unchanged.clone(),
    }];
    let schema = &unchanged.schema;
    for index in (0..schema.features.len()).filter(|index| !schema.is_derived(*index)) {
        found.extend(of_feature(unchanged, index, &stats.features[index]));
        found.extend(of_rows(unchanged, index));
    }
    found.extend((0..schema.rules.len()).map(|rule| {
        let detail = schema.rules[rule].text.clone();
        let mut lifted = FeatureSchema::clone(schema);
        lifted.rules.remove(rule);
        lift(unchanged, (None, "rule", detail), lifted)
    }));
    found.extend(of_job(unchanged));
    found
}

fn lift(
    unchanged: &Variation,
    (feature, constraint, detail): (Option<String>, &'static str, String),
    schema: FeatureSchema,
) -> Lift {
    let variation = Variation { schema: Arc::new(schema), ..unchanged.clone() };
    Lift { feature, constraint, detail, variation }
}

/// What the schema says of a feature.
fn of_feature(unchanged: &Variation, index: usize, stats: &FeatureStats) -> Vec<Lift> {
    let feature = &unchanged.schema.features[index];
    let mut found = Vec::new();
    let mut add = |constraint, detail: String, change: &dyn Fn(&mut FeatureSchema)| {
        let mut lifted = FeatureSchema::clone(&unchanged.schema);
        change(&mut lifted);
        found.push(lift(unchanged, (Some(feature.name.clone()), constraint, detail), lifted));
    };
    let free = |schema: &mut FeatureSchema| schema.features[index].change = Change::Any;
    match feature.change {
        Change::Any => {}
        Change::Never => add("never", "change = never".to_string(), &free),
        Change::Increase => add("direction", "change = increase".to_string(), &free),
        Change::Decrease => add("direction", "change = decrease".to_string(), &free),
    }
    match (&feature.kind, stats) {
        (FeatureKind::Numeric(numeric), FeatureStats::Numeric(seen)) => {
            of_numeric((numeric, seen), index, &mut add);
        }
        (FeatureKind::Categorical(categorical), _) if categorical.allowed.contains(&false) => {
            let allowed = categorical.values.iter().zip(&categorical.allowed);
            let allowed: Vec<&str> =
                allowed.filter(|(_, allowed)| **allowed).map(|(value, _)| value.as_str()).collect();
            add("allowed", format!("allowed = {allowed:?}"), &|schema| {
                if let FeatureKind::Categorical(categorical) = &mut schema.features[index].kind {
                    categorical.allowed.fill(true);
                }
            });
        }
        _ => {}
    }
    found
}

/// Takes a lift: what is lifted, what it says, and what changes of the schema.
type AddLift<'a> = dyn FnMut(&'static str, String, &dyn Fn(&mut FeatureSchema)) + 'a;

/// What the schema says of a number.
fn of_numeric((numeric, seen): (&Numeric, &NumericStats), index: usize, add: &mut AddLift<'_>) {
    let change = |schema: &mut FeatureSchema, change: &dyn Fn(&mut Numeric)| {
        if let FeatureKind::Numeric(numeric) = &mut schema.features[index].kind {
            change(numeric);
        }
    };
    // Nothing is known of numbers that training has not seen: what was seen is as wide as it gets.
    let wider = numeric.range.map(|(low, high)| (low.min(seen.min), high.max(seen.max)));
    if let (Some((low, high)), true) = (numeric.range, wider != numeric.range) {
        add("range", format!("range = [{low}, {high}]"), &|schema| {
            change(schema, &|numeric| numeric.range = wider);
        });
    }
    if let Some(limit) = numeric.limit {
        let unit = if limit.share { " of the range" } else { "" };
        let detail = format!("limit = {} down, {} up{unit}", limit.down, limit.up);
        add("limit", detail, &|schema| change(schema, &|numeric| numeric.limit = None));
    }
}

/// What single rows say of a feature.
fn of_rows(unchanged: &Variation, index: usize) -> Option<Lift> {
    let bounds = &unchanged.columns.constraints;
    let own = bounds.iter().filter(|bound| bound.feature == index);
    let names: Vec<&str> = own.map(|bound| bound.column.as_str()).collect();
    if names.is_empty() {
        return None;
    }
    let mut variation = unchanged.clone();
    variation.columns.constraints.retain(|bound| bound.feature != index);
    let feature = Some(unchanged.schema.features[index].name.clone());
    Some(Lift { feature, constraint: "row_bound", detail: names.join(", "), variation })
}

/// What the job says of all counterfactuals.
fn of_job(unchanged: &Variation) -> Vec<Lift> {
    let refine = &unchanged.explain.refine;
    let mut found = Vec::new();
    let mut add = |constraint, detail: String, change: &dyn Fn(&mut Variation)| {
        let mut variation = unchanged.clone();
        change(&mut variation);
        found.push(Lift { feature: None, constraint, detail, variation });
    };
    if let Some(most) = refine.max_changes {
        add("max_changes", format!("explain.max_changes = {most}"), &|variation| {
            variation.explain.refine.max_changes = None;
        });
    }
    if refine.min_plausibility > 0.0 {
        let detail = format!("explain.min_plausibility = {}", refine.min_plausibility);
        add("min_plausibility", detail, &|variation| {
            variation.explain.refine.min_plausibility = 0.0;
        });
    }
    found
}
