//! Resolves the rules between features that a schema declares.

use super::rule::{Derived, Rule, RuleFault};
use super::schema::Feature;
use super::spec::{Change, DerivedSpec, RuleSpec};
use crate::document::KeyPositions;
use crate::error::Fault;

/// Resolves what holds between features, noting faults as it goes.
pub(super) struct RuleResolver<'a> {
    pub(super) positions: &'a KeyPositions,
    pub(super) faults: &'a mut Vec<Fault>,
}

impl RuleResolver<'_> {
    pub(super) fn resolve(
        mut self,
        rules: &[RuleSpec],
        derived: &[DerivedSpec],
        features: &mut [Feature],
    ) -> (Vec<Rule>, Vec<Derived>) {
        let derived: Vec<Derived> =
            derived.iter().filter_map(|spec| self.derived(spec, features)).collect();
        for of in &derived {
            self.refuse_chain(of, &derived, features);
            features[of.feature].change = Change::Never;
        }
        let mut found: Vec<Rule> = Vec::with_capacity(rules.len());
        for (number, RuleSpec { check, broken }) in rules.iter().enumerate() {
            match Rule::parse(check, *broken, features) {
                Ok(rule) => found.push(rule),
                Err(problem) => self.problem(&format!("rule[{number}].check"), problem),
            }
        }
        found.extend(derived.iter().filter_map(|of| of.range_rule(features)));
        (found, derived)
    }

    fn derived(&mut self, spec: &DerivedSpec, features: &[Feature]) -> Option<Derived> {
        let DerivedSpec { name, value } = spec;
        let key = format!("derived[{name}]");
        let Some(index) = features.iter().position(|feature| feature.name == *name) else {
            let fault = self.positions.fault(&format!("{key}.name"), "is not one of the features");
            self.faults.push(
                fault.hint("list it as a numeric `[[feature]]` too, where the model takes it"),
            );
            return None;
        };
        let feature = &features[index];
        if feature.numeric().is_none() || !matches!(feature.change, Change::Any | Change::Never) {
            let problem = "is categorical or has a direction, expected a numeric feature without one: it follows from others";
            self.faults.push(self.positions.fault(&format!("{key}.name"), problem));
            return None;
        }
        match Derived::parse(index, value, features) {
            Ok(derived) => Some(derived),
            Err(problem) => {
                self.problem(&format!("{key}.value"), problem);
                None
            }
        }
    }

    /// What follows from others does so from what is given, and once.
    fn refuse_chain(&mut self, of: &Derived, all: &[Derived], features: &[Feature]) {
        let key = format!("derived[{}]", features[of.feature].name);
        if all.iter().filter(|other| other.feature == of.feature).count() > 1 {
            self.faults.push(self.positions.fault(&format!("{key}.name"), "is derived twice"));
        }
        let chained = of.inputs.iter().find(|input| all.iter().any(|one| one.feature == **input));
        if let Some(input) = chained {
            let problem = format!("reads `{}`, which is derived itself", features[*input].name);
            let fault = self.positions.fault(&format!("{key}.value"), &problem);
            self.faults.push(fault.hint("write out what that one is computed from"));
        }
        if of.inputs.is_empty() {
            let problem = "reads no feature, expected an expression over features";
            self.faults.push(self.positions.fault(&format!("{key}.value"), problem));
        }
    }

    fn problem(&mut self, key: &str, problem: RuleFault) {
        let fault = self.positions.fault(key, &problem.what);
        self.faults.push(match problem.hint {
            Some(hint) => fault.hint(hint),
            None => fault,
        });
    }
}
