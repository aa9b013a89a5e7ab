//! What holds between the features of a counterfactual: the schema's rules, what training rows keep to without
//! exception ([`Observed`]), and features that follow from others. A proposal that breaks a rule is repaired by
//! moving one of the rule's features to where it holds, or dropped.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;

use super::observed::Observed;
use super::{ColumnLimits, Constraints, FeasibleSet, NetworkOutput, Violation};
use crate::encode::Slots;
use crate::feature::{
    Cell, Change, Derived, Edit, Edits, FeatureSchema, Multiples, NumberExpression, Rows, Rule,
    from_numbers, numbers,
};

/// Repairs of one proposal after each other, at most: a chain of rules is as long as that seldom.
const MOST_REPAIRS: usize = 12;
/// Values of a category that are tried to make a rule hold.
const MOST_VALUES: usize = 64;

/// What holds between features.
#[derive(Debug, Clone, Default)]
pub(super) struct FeatureRules {
    rules: Vec<Rule>,
    derived: Vec<Derived>,
    /// How many of them the schema says itself.
    declared: usize,
    /// Per feature the rules that read it, also through what follows from it.
    readers: Vec<Vec<u32>>,
    /// Per feature the derived features that read it.
    followers: Vec<Vec<u32>>,
}

/// A change of one more feature of a proposal, to make it keep a rule.
#[derive(Clone, Copy)]
struct RuleChange<'a> {
    feasible: FeasibleSet<'a>,
    rule: &'a Rule,
    edits: &'a Edits,
    feature: usize,
}

/// How a proposal that breaks rules is repaired.
#[derive(Debug, Clone, Copy)]
struct RepairPlan<'a> {
    movable: Movable,
    /// What a network said of the row: of categories that keep a rule the likelier ones are nearer.
    decoded: Option<&'a [f32]>,
}

/// Which features of a proposal may move to make it keep a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Movable {
    /// Those that it changes.
    Changed,
    /// The others.
    Partners,
    /// All.
    All,
}

impl FeatureRules {
    pub(super) fn new(schema: &FeatureSchema, observed: &Observed) -> FeatureRules {
        let mut rules = schema.rules.clone();
        rules.extend(observed.rules(schema));
        let (mut derived, declared) = (schema.derived.clone(), schema.derived.len());
        derived.extend(observed.derived(schema));
        rules.extend(derived[declared..].iter().filter_map(|of| of.range_rule(&schema.features)));
        let count = schema.features.len();
        let mut followers = vec![Vec::new(); count];
        for (index, of) in (0u32..).zip(&derived) {
            of.inputs.iter().for_each(|input| followers[*input].push(index));
        }
        let mut readers = vec![Vec::new(); count];
        for (index, rule) in (0u32..).zip(&rules) {
            inputs(rule, &derived).into_iter().for_each(|feature| readers[feature].push(index));
        }
        FeatureRules { rules, derived, declared, readers, followers }
    }

    fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.derived.is_empty()
    }
}

/// The features that decide about a rule: derived ones stand for what they are computed from.
fn inputs(rule: &Rule, derived: &[Derived]) -> Vec<usize> {
    let mut found: Vec<usize> = Vec::new();
    for feature in &rule.features {
        match derived.iter().find(|of| of.feature == *feature) {
            Some(of) => found.extend(&of.inputs),
            None => found.push(*feature),
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// A value of a row with these changes.
fn cell_of(edits: &[Edit], original: impl Fn(usize) -> Cell) -> impl Fn(usize) -> Cell {
    move |feature| {
        let edit = edits.iter().find(|edit| edit.feature == feature);
        edit.map_or_else(|| original(feature), |edit| edit.cell)
    }
}

impl Constraints {
    /// The same constraints, and what training rows keep to.
    #[must_use]
    pub fn with_observed(mut self, observed: &Observed) -> Constraints {
        self.coherence = FeatureRules::new(&self.schema, observed);
        let following = &self.coherence.derived[self.coherence.declared..];
        if !following.is_empty() {
            let mut schema = FeatureSchema::clone(&self.schema);
            for of in following {
                schema.features[of.feature].change = Change::Never;
            }
            self.schema = Arc::new(schema);
            self.add_rules();
        }
        self
    }

    /// Whether anything holds between features.
    pub fn couples_features(&self) -> bool {
        !self.coherence.is_empty()
    }

    /// Whether a feature follows from others.
    pub fn is_derived(&self, feature: usize) -> bool {
        self.coherence.derived.iter().any(|of| of.feature == feature)
    }

    /// Whether others follow from a feature.
    pub fn is_followed(&self, feature: usize) -> bool {
        self.coherence.followers.get(feature).is_some_and(|followers| !followers.is_empty())
    }

    /// Changes of a row, and what follows from them; none if what follows is not a number.
    pub fn follow<'e>(
        &self,
        edits: &'e [Edit],
        original: impl Fn(usize) -> Cell,
    ) -> Option<Cow<'e, [Edit]>> {
        let FeatureRules { derived, followers, .. } = &self.coherence;
        if derived.is_empty() || edits.iter().all(|edit| followers[edit.feature].is_empty()) {
            return Some(Cow::Borrowed(edits));
        }
        let mut all: Vec<Edit> =
            edits.iter().filter(|edit| !self.is_derived(edit.feature)).copied().collect();
        for of in derived {
            if edits.iter().any(|edit| of.inputs.contains(&edit.feature)) {
                let value = of.number.value(&cell_of(edits, &original));
                let value = self.stored(of.feature, value, original(of.feature))?;
                all.push(Edit { feature: of.feature, cell: Cell::Number(value) });
            }
        }
        Some(Cow::Owned(all))
    }

    /// A derived number as its column holds it, with the digits of its original value; none if it cannot.
    fn stored(&self, feature: usize, value: f64, original: Cell) -> Option<f64> {
        if !value.is_finite() {
            return None;
        }
        let ColumnLimits { data_type, multiples, .. } = &self.columns[feature];
        let numeric = self.schema.features[feature].numeric()?;
        let alike = |of: &Multiples| match original {
            Cell::Number(original) => of.observed && (original.is_nan() || of.is_one(original)),
            Cell::Code(_) => false,
        };
        let rounded = match (numeric.step, numeric.integer) {
            _ if let Some(of) = multiples.filter(alike) => of.nearest(value),
            (Some(step), _) => (value / step).round() * step,
            (None, Some(true)) => value.round(),
            (None, _) if data_type.is_integer() => value.round(),
            (None, _) => value,
        };
        let stored = from_numbers(&vec![rounded].into(), data_type).ok()?;
        let stored = numbers(&stored).ok()?;
        stored.iter().next().flatten().filter(|number| number.is_finite())
    }

    /// Whether a row with these changes keeps to all that holds between features. What follows from changes
    /// need not be among them.
    pub fn is_coherent(&self, edits: &[Edit], original: impl Fn(usize) -> Cell) -> bool {
        self.coherence.is_empty()
            || self
                .follow(edits, &original)
                .is_some_and(|edits| self.first_broken(&edits, &original).is_none())
    }

    /// The first rule that changes break; what follows from them is among them.
    fn first_broken(&self, edits: &[Edit], original: impl Fn(usize) -> Cell) -> Option<&Rule> {
        let FeatureRules { rules, readers, .. } = &self.coherence;
        let new = cell_of(edits, &original);
        let touched = edits.iter().flat_map(|edit| &readers[edit.feature]);
        touched.map(|rule| &rules[*rule as usize]).find(|rule| !rule.allows(&new, &original))
    }

    /// Coherent stand-ins for a proposal that is not: with the rule's other features moved along, and with the
    /// changed ones moved back to where the rule holds. A coherent proposal has none.
    pub fn repairs(
        &self,
        feasible: FeasibleSet<'_>,
        edits: &[Edit],
        original: impl Fn(usize) -> Cell,
    ) -> SmallVec<[Edits; 2]> {
        if self.is_coherent(edits, &original) {
            return SmallVec::new();
        }
        let repaired = |movable| {
            let plan = RepairPlan { movable, decoded: None };
            self.repair(feasible, edits, &original, plan)
        };
        let mut found: SmallVec<[Edits; 2]> =
            [Movable::Partners, Movable::Changed].into_iter().filter_map(repaired).collect();
        found.retain(|edits| !edits.is_empty());
        found.dedup();
        found
    }

    /// Moves features, one after the other and each as little as can be, until all rules hold.
    fn repair(
        &self,
        feasible: FeasibleSet<'_>,
        edits: &[Edit],
        original: impl Fn(usize) -> Cell,
        plan: RepairPlan<'_>,
    ) -> Option<Edits> {
        let proposed = |feature: usize| edits.iter().any(|edit| edit.feature == feature);
        let mut repaired = Edits::from_slice(edits);
        // A feature that was moved for one rule is not moved again for another: the two would take turns.
        let mut moved: SmallVec<[usize; 8]> = SmallVec::new();
        for _ in 0..MOST_REPAIRS {
            let all = self.follow(&repaired, &original);
            let broken = match &all {
                Some(all) => match self.first_broken(all, &original) {
                    Some(rule) => rule,
                    None => return Some(repaired),
                },
                None => return None,
            };
            let free = |feature: &usize| {
                let may = match plan.movable {
                    Movable::Changed => proposed(*feature),
                    Movable::Partners => !proposed(*feature),
                    Movable::All => true,
                };
                may && !moved.contains(feature)
            };
            let features = inputs(broken, &self.coherence.derived);
            let options = features.iter().copied().filter(free).flat_map(|feature| {
                let change = RuleChange { feasible, rule: broken, edits: &repaired, feature };
                let options = self.options(change, &original);
                let now = cell_of(&repaired, &original)(feature);
                let start = original(feature);
                let distance =
                    move |edit: Edit| (self.distance(edit, (now, start), plan.decoded), edit);
                options.into_iter().map(distance)
            });
            let (_, best) = options.min_by(|one, two| one.0.total_cmp(&two.0))?;
            moved.push(best.feature);
            put(&mut repaired, best, original(best.feature));
        }
        None
    }

    /// How far a value that keeps a rule is from the proposed one: in standard deviations, or by how much less likely
    /// a network takes a category to be.
    fn distance(
        &self,
        Edit { feature, cell }: Edit,
        (now, start): (Cell, Cell),
        decoded: Option<&[f32]>,
    ) -> f64 {
        match (cell, now, &self.layout.slots[feature]) {
            (Cell::Number(new), Cell::Number(now), Slots::Numeric(slots)) => {
                (new - now).abs() / slots.std
            }
            (Cell::Code(new), Cell::Code(now), Slots::Categorical(slots))
                if let Some(decoded) = decoded
                    && let (Some(new), Some(now)) = (slots.slot(new), slots.slot(now)) =>
            {
                f64::from(decoded[now]) - f64::from(decoded[new])
            }
            // The original value is the likeliest that goes with the others.
            _ if cell == start => 1.0,
            _ => 1.1,
        }
    }

    /// Values of one feature under which a rule holds, but for the proposed one.
    fn options(&self, change: RuleChange<'_>, original: impl Fn(usize) -> Cell) -> Vec<Edit> {
        let RuleChange { feasible, rule, edits, feature } = change;
        let start = original(feature);
        let now = cell_of(edits, &original)(feature);
        let proposed: Vec<Cell> = match (start, now) {
            (Cell::Number(start), Cell::Number(now)) => {
                let roots = self.roots(change, &original, (start, now));
                roots.into_iter().map(Cell::Number).collect()
            }
            _ => feasible.options(feature, start, MOST_VALUES).unwrap_or_default(),
        };
        let allowed = |edit: &Edit| {
            let mut edits = edits.clone();
            put(&mut edits, *edit, start);
            let all = self.follow(&edits, &original);
            all.is_some_and(|all| rule.allows(cell_of(&all, &original), &original))
        };
        [start]
            .into_iter()
            .chain(proposed)
            .filter(|cell| *cell != now)
            .map(|cell| Edit { feature, cell })
            .filter(allowed)
            .collect()
    }

    /// Allowed numbers of a feature at which the two sides of one of a rule's comparisons are equal, or just
    /// beyond.
    fn roots(
        &self,
        change: RuleChange<'_>,
        original: impl Fn(usize) -> Cell,
        (start, now): (f64, f64),
    ) -> Vec<f64> {
        let RuleChange { feasible, rule, edits, feature } = change;
        let Slots::Numeric(slots) = &self.layout.slots[feature] else { return Vec::new() };
        let mut found = Vec::new();
        rule.truth.visit_comparisons(&mut |left: &NumberExpression, right: &NumberExpression| {
            let difference = |value: f64| {
                let mut edits = edits.clone();
                put(&mut edits, Edit { feature, cell: Cell::Number(value) }, Cell::Number(start));
                // What follows is not rounded to its column here: that would hide the slope.
                let cell = |of: usize| match self.coherence.derived.iter().find(|d| d.feature == of)
                {
                    Some(derived) => {
                        let number = derived.number.before_rounding();
                        Cell::Number(number.value(&cell_of(&edits, &original)))
                    }
                    None => cell_of(&edits, &original)(of),
                };
                left.value(&cell) - right.value(&cell)
            };
            // A line needs one step of the secant method, a ratio a few.
            let (mut from, mut to) = (now, now + slots.std);
            for _ in 0..4 {
                let (at_from, at_to) = (difference(from), difference(to));
                let root = to - at_to * (to - from) / (at_to - at_from);
                if !root.is_finite() || root == to {
                    break;
                }
                (from, to) = (to, root);
            }
            if to != now + slots.std && to.is_finite() {
                let root = feasible.number(feature, to, start);
                found.extend([root, feasible.beside(feature, root, start, 1.0)]);
                found.push(feasible.beside(feature, root, start, -1.0));
            }
        });
        found
    }

    /// Makes rows that a network's output stands for keep to all that holds between features: repaired where that
    /// is possible, else with a broken rule's features as they were. Sets what follows. Gives the rows that this
    /// changed, ascending.
    pub(super) fn make_coherent(
        &self,
        proposed: &mut Rows,
        network_output: &NetworkOutput<'_>,
    ) -> Vec<u32> {
        if self.coherence.is_empty() {
            return Vec::new();
        }
        (0..proposed.len as u32)
            .filter(|row| self.make_row_coherent(proposed, *row as usize, network_output))
            .collect()
    }

    /// The same for one row; whether it changed anything.
    fn make_row_coherent(
        &self,
        proposed: &mut Rows,
        row: usize,
        network_output: &NetworkOutput<'_>,
    ) -> bool {
        let original = |feature: usize| network_output.rows.cell(feature, row);
        let changed = |feature: &usize| {
            !self.is_derived(*feature) && proposed.cell(*feature, row) != original(*feature)
        };
        let edits: Edits = (0..proposed.cells.len())
            .filter(changed)
            .map(|feature| Edit { feature, cell: proposed.cell(feature, row) })
            .collect();
        let edits = if self.is_coherent(&edits, original) {
            edits
        } else {
            let feasible = self.feasible(network_output.conditions, network_output.bounds, row);
            let plan = RepairPlan {
                movable: Movable::All,
                decoded: Some(network_output.decoded.row(row)),
            };
            let repaired = self.repair(feasible, &edits, original, plan);
            repaired.unwrap_or_else(|| self.without_broken(edits, original))
        };
        let all = self.follow(&edits, original);
        let new = cell_of(all.as_deref().unwrap_or(&edits), original);
        let mut moved = false;
        for feature in 0..proposed.cells.len() {
            let cell = new(feature);
            moved |= cell != proposed.cell(feature, row);
            proposed.set(feature, row, cell);
        }
        moved
    }

    /// Gives a row changes, and what follows from them.
    pub fn apply(
        &self,
        rows: &mut Rows,
        row: usize,
        edits: &[Edit],
        original: impl Fn(usize) -> Cell,
    ) {
        let all = self.follow(edits, original);
        for edit in all.as_deref().unwrap_or(edits) {
            rows.set(edit.feature, row, edit.cell);
        }
    }

    /// Changes without those that break a rule. A row as it was breaks none more than it did.
    fn without_broken(&self, mut edits: Edits, original: impl Fn(usize) -> Cell) -> Edits {
        loop {
            let Some(all) = self.follow(&edits, &original) else { return Edits::new() };
            let Some(broken) = self.first_broken(&all, &original) else { break };
            let features = inputs(broken, &self.coherence.derived);
            drop(all);
            edits.retain(|edit| !features.contains(&edit.feature));
        }
        edits
    }

    /// The rows with features as they were that the schema derives: nobody changes those, so they count as no
    /// change. What is only seen to follow in training rows counts.
    pub fn without_derived<'r>(&self, rows: &'r Rows, originals: &Rows) -> Cow<'r, Rows> {
        let declared = &self.coherence.derived[..self.coherence.declared];
        if declared.is_empty() {
            return Cow::Borrowed(rows);
        }
        let mut rows = rows.clone();
        for of in declared {
            rows.cells[of.feature] = originals.cells[of.feature].clone();
        }
        Cow::Owned(rows)
    }

    /// Every rule that counterfactuals break, and every derived feature that does not follow.
    pub(super) fn incoherences(&self, new: &Rows, originals: &Rows) -> Vec<Violation> {
        let FeatureRules { rules, derived, .. } = &self.coherence;
        let mut found = Vec::new();
        for row in 0..new.len {
            let now = |feature: usize| new.cell(feature, row);
            let original = |feature: usize| originals.cell(feature, row);
            let broken = rules.iter().filter(|rule| !rule.allows(now, original));
            found.extend(broken.map(|rule| Violation {
                row,
                feature: rule.text.clone(),
                what: "does not hold".to_string(),
            }));
            for of in derived {
                let moved = of.inputs.iter().any(|input| now(*input) != original(*input));
                let expected = match moved {
                    true => self
                        .stored(of.feature, of.number.value(&now), original(of.feature))
                        .map(Cell::Number),
                    false => Some(original(of.feature)),
                };
                if expected != Some(now(of.feature)) {
                    let feature = self.schema.features[of.feature].name.clone();
                    let what = format!("is not `{}`", of.text);
                    found.push(Violation { row, feature, what });
                }
            }
        }
        found
    }
}

/// Puts a change among others, or takes it away if it is none.
fn put(edits: &mut Edits, edit: Edit, original: Cell) {
    edits.retain(|other| other.feature != edit.feature);
    if edit.cell != original {
        let at = edits.partition_point(|other| other.feature < edit.feature);
        edits.insert(at, edit);
    }
}
