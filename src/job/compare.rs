//! Several methods in one run: `explain.compare`. One of them is published, the others stand beside it in the same
//! tables.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ExplainJob, ExplainMethod, ExplainSpec, Refine};

/// A method beside the one that is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct ComparedMethod {
    /// Which.
    pub method: ExplainMethod,
    /// How much its counterfactuals are refined.
    pub refine: Refine,
}

impl ExplainJob {
    /// Whether several methods explain every row.
    pub fn compares(&self) -> bool {
        !self.compare.is_empty()
    }

    /// The methods of a run, the published one first. `learnt` says what `auto` means.
    pub fn methods(&self, learnt: bool) -> Vec<ExplainMethod> {
        let others = self.compare.iter().map(|other| other.method);
        std::iter::once(self.method.with_generator(learnt)).chain(others).collect()
    }

    /// The method to read of the run's tables; none where they hold no other.
    pub fn published(&self) -> Option<&'static str> {
        self.compares().then(|| self.method.name())
    }

    /// The job of the published method alone.
    #[must_use]
    pub fn alone(&self) -> ExplainJob {
        ExplainJob { compare: Vec::new(), ..self.clone() }
    }

    /// The job of each of the others alone.
    pub fn others(&self) -> Vec<ExplainJob> {
        let other = |other: &ComparedMethod| {
            let mut job = self.alone();
            job.method = other.method;
            job.refine.mode = other.refine;
            job
        };
        self.compare.iter().map(other).collect()
    }

    /// Whether any method beside the published one asks a generator.
    pub fn others_ask_generator(&self) -> bool {
        self.compare.iter().any(|other| other.method == ExplainMethod::Cfrl)
    }
}

/// How much a method's counterfactuals are refined. A rival is shown as it is, unless the job asks for more.
pub(super) fn refine_of(spec: &ExplainSpec, method: ExplainMethod) -> Refine {
    let usual = if method.is_rival() { Refine::Off } else { Refine::Full };
    spec.refine.unwrap_or(usual)
}

/// The method that is published: the one that is given, or the first of those compared; none where nothing is compared.
pub(super) fn published(spec: &ExplainSpec) -> Option<ExplainMethod> {
    match spec.method {
        ExplainMethod::Auto => spec.compare.first().copied(),
        given => spec.compare.contains(&given).then_some(given),
    }
}

/// The methods beside the published one, in the order of the job.
pub(super) fn others(spec: &ExplainSpec) -> Vec<ComparedMethod> {
    let published = published(spec);
    let others = spec.compare.iter().filter(|method| Some(**method) != published);
    let compared = |method: &ExplainMethod| ComparedMethod {
        method: *method,
        refine: refine_of(spec, *method),
    };
    others.map(compared).collect()
}

/// Every method that a job names.
pub(super) fn named(spec: &ExplainSpec) -> Vec<ExplainMethod> {
    if spec.compare.is_empty() { vec![spec.method] } else { spec.compare.clone() }
}

/// What is wrong with the list: keys and problems.
pub(super) fn faults(spec: &ExplainSpec) -> Vec<(&'static str, String)> {
    const KEY: &str = "explain.compare";
    let (listed, mut found) = (&spec.compare, Vec::new());
    if listed.len() == 1 {
        found.push((
            KEY,
            format!("names `{}` alone, expected two methods or more", listed[0].name()),
        ));
    }
    if listed.contains(&ExplainMethod::Auto) {
        found.push((KEY, "names `auto`, expected the methods themselves".to_string()));
    }
    for (index, method) in listed.iter().enumerate() {
        if listed[..index].contains(method) {
            found.push((KEY, format!("names `{}` twice", method.name())));
        }
    }
    if !listed.is_empty() && published(spec).is_none() {
        let names: Vec<&str> = listed.iter().map(|method| method.name()).collect();
        let problem = format!(
            "is `{}`, expected one of those that `{KEY}` names: {}",
            spec.method.name(),
            names.join(", ")
        );
        found.push(("explain.method", problem));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(method: ExplainMethod, compare: &[ExplainMethod]) -> ExplainSpec {
        ExplainSpec { method, compare: compare.to_vec(), ..ExplainSpec::default() }
    }

    #[test]
    fn the_first_is_published_unless_another_is_named() {
        use ExplainMethod::{Auto, Cfrl, DiceRandom, Lore, Nearest};
        let listed = [Cfrl, DiceRandom, Lore];
        assert_eq!(published(&spec(Auto, &listed)), Some(Cfrl));
        assert_eq!(published(&spec(Lore, &listed)), Some(Lore));
        assert_eq!(published(&spec(Nearest, &listed)), None);
        assert_eq!(published(&spec(Auto, &[])), None);
        let others: Vec<ExplainMethod> =
            others(&spec(Lore, &listed)).into_iter().map(|other| other.method).collect();
        assert_eq!(others, [Cfrl, DiceRandom]);
    }

    #[test]
    fn each_is_refined_as_it_would_be_alone() {
        use ExplainMethod::{Auto, Cfrl, DiceRandom, Search};
        let mut given = spec(Auto, &[DiceRandom, Cfrl, Search]);
        let modes = |spec: &ExplainSpec| -> Vec<Refine> {
            spec.compare.iter().map(|method| refine_of(spec, *method)).collect()
        };
        assert_eq!(modes(&given), [Refine::Off, Refine::Full, Refine::Full]);
        given.refine = Some(Refine::Full);
        assert_eq!(modes(&given), [Refine::Full; 3]);
    }

    #[test]
    fn faults_name_what_was_found() {
        use ExplainMethod::{Auto, Cfrl, Lore, Nearest};
        let problems = |method, compare: &[ExplainMethod]| -> Vec<String> {
            let found = faults(&spec(method, compare));
            found.into_iter().map(|(key, problem)| format!("{key} {problem}")).collect()
        };
        assert!(problems(Auto, &[]).is_empty() && problems(Lore, &[Cfrl, Lore]).is_empty());
        assert_eq!(
            problems(Auto, &[Lore]),
            ["explain.compare names `lore` alone, expected two methods or more"]
        );
        assert_eq!(problems(Auto, &[Lore, Cfrl, Lore]), ["explain.compare names `lore` twice"]);
        assert_eq!(
            problems(Auto, &[Lore, Auto]),
            ["explain.compare names `auto`, expected the methods themselves"]
        );
        assert_eq!(
            problems(Nearest, &[Lore, Cfrl]),
            [
                "explain.method is `nearest`, expected one of those that `explain.compare` names: lore, cfrl"
            ]
        );
    }
}
