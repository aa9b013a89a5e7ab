//! Which feature feeds which input of a model, by name.

use std::collections::{BTreeMap, HashMap, HashSet};

use ort::value::Outlet;

use super::inputs::{Named, shape_of};
use crate::document::nearest;
use crate::error::{Error, Fault, Kind, Result};
use crate::predictor::PredictorColumns;

/// Names that a message lists, at most.
const LISTED: usize = 8;

/// Inputs and features to be paired.
struct NamePairing<'a> {
    model: Named<'a>,
    rename: &'a BTreeMap<String, String>,
    columns: &'a PredictorColumns,
}

/// The input of every feature that has another name than its input: the job's `rename`, and pairs whose
/// names differ only in what exporters replace. The latter are told in the second list.
pub(super) struct Pairing {
    pub(super) rename: BTreeMap<String, String>,
    pub(super) by_form: Vec<(String, String)>,
}

/// Pairs inputs and features.
///
/// # Errors
/// One for a model that takes a matrix, one for all names without a partner.
pub(super) fn pair(
    model: Named<'_>,
    rename: &BTreeMap<String, String>,
    columns: &PredictorColumns,
) -> Result<Pairing> {
    let names = NamePairing { model, rename, columns };
    Error::from_faults(Kind::Spec, names.renamed_strangers())?;
    Error::from_faults(Kind::Spec, names.rivals())?;
    let (inputs, features) = names.unpaired();
    if !inputs.is_empty() {
        names.refuse_matrix()?;
    }
    let by_form = same_form(&inputs, &features);
    let paired = |name: &str| by_form.iter().any(|(one, two)| one == name || two == name);
    let inputs: Vec<&str> = inputs.into_iter().filter(|name| !paired(name)).collect();
    let features: Vec<&str> = features.into_iter().filter(|name| !paired(name)).collect();
    names.refuse(&inputs, &features)?;
    let mut rename = rename.clone();
    rename.extend(by_form.iter().cloned());
    Ok(Pairing { rename, by_form })
}

impl<'a> NamePairing<'a> {
    fn input_name<'b>(&'b self, feature: &'b str) -> &'b str {
        self.rename.get(feature).map_or(feature, String::as_str)
    }

    /// Renames of what is no feature.
    fn renamed_strangers(&self) -> Vec<Fault> {
        let features = &self.columns.features;
        let unknown = self.rename.keys().filter(|name| features.get(name).is_none());
        unknown
            .map(|name| {
                let problem = format!("names `{name}`, which is not a feature of the schema");
                let fault = Fault::new("predictor.rename", problem);
                match nearest(name, features.names()) {
                    Some(near) => fault.hint(format!("did you mean `{near}`?")),
                    None => fault,
                }
            })
            .collect()
    }

    /// Features that would feed an input that another one feeds already.
    fn rivals(&self) -> Vec<Fault> {
        let mut fed = HashSet::new();
        let features = self.columns.features.names();
        let rivals = features.filter(|feature| !fed.insert(self.input_name(feature)));
        rivals
            .map(|feature| {
                let input = self.input_name(feature);
                let problem =
                    format!("feeds input `{input}` from two features, one is `{feature}`");
                Fault::new("predictor.rename", problem)
            })
            .collect()
    }

    /// Inputs that no feature feeds, and features that no input takes.
    fn unpaired(&self) -> (Vec<&'a str>, Vec<&'a str>) {
        let (outlets, columns) = (self.model.outlets, self.columns);
        let given: HashSet<&str> =
            columns.features.names().map(|feature| self.input_name(feature)).collect();
        let output_names: HashSet<&str> = outlets.iter().map(Outlet::name).collect();
        let inputs = outlets.iter().map(Outlet::name).filter(|name| !given.contains(name));
        let features = columns.features.names();
        let features = features.filter(|name| !output_names.contains(self.input_name(name)));
        (inputs.collect(), features.collect())
    }

    /// A model with one wide input takes all features in it: that is one fault, not one for each feature.
    fn refuse_matrix(&self) -> Result<()> {
        let features = self.columns.features.features.len();
        let [outlet] = self.model.outlets else { return Ok(()) };
        let shape = shape_of(outlet);
        if features < 2 || shape.get(1) == Some(&1) {
            return Ok(());
        }
        let problem = format!(
            "takes one input `{}` of shape {shape:?}, a matrix of all features, where \
             `predictor.inputs = \"columns\"` expects an input for each of {features} features",
            outlet.name()
        );
        let texts = self.columns.features.features.iter().any(|one| one.categorical().is_some());
        let encoding = if texts {
            ", and `predictor.encoding` to `codes` or `standardised`, as the model was trained"
        } else {
            ""
        };
        let hint = format!("set `predictor.inputs = \"matrix\"`{encoding}");
        Err(Error::predictor(self.model.name, problem).hint(hint))
    }

    /// One fault for all names that are left, with the lines that would pair them.
    fn refuse(&self, inputs: &[&str], features: &[&str]) -> Result<()> {
        if inputs.is_empty() && features.is_empty() {
            return Ok(());
        }
        let parts = [
            (!inputs.is_empty()).then(|| format!("no feature feeds {}", listed("input", inputs))),
            (!features.is_empty())
                .then(|| format!("it has no input for {}", listed("feature", features))),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        let problem = format!("inputs and features do not match: {}", parts.join("; "));
        let lines = likely(inputs, features);
        let hint = if lines.is_empty() {
            "add the inputs to the feature schema and take out features that the model does not \
             know, or pair them in `[predictor.rename]` as `\"feature\" = \"input\"`"
                .to_string()
        } else {
            let line = |(feature, input): &(&str, &str)| format!("\n    {feature:?} = {input:?}");
            let lines: String = lines.iter().map(line).collect();
            format!(
                "these look alike; paste the lines that are right:\n    [predictor.rename]{lines}"
            )
        };
        Err(Error::predictor(self.model.name, problem).hint(hint))
    }
}

/// Pairs of feature and input whose names have the same form, and share it with no other name.
pub(super) fn same_form(inputs: &[&str], features: &[&str]) -> Vec<(String, String)> {
    let count = |names: &[&str]| {
        let mut counts: HashMap<String, usize> = HashMap::new();
        names.iter().for_each(|name| *counts.entry(form(name)).or_default() += 1);
        counts
    };
    let (of_inputs, of_features) = (count(inputs), count(features));
    let sole = |form: &String| of_inputs.get(form) == Some(&1) && of_features.get(form) == Some(&1);
    let pair = |feature: &&str| {
        let form_of = form(feature);
        let input =
            inputs.iter().find(|input| form(input) == form_of).filter(|_| sole(&form_of))?;
        Some(((*feature).to_string(), (*input).to_string()))
    };
    features.iter().filter_map(pair).collect()
}

/// A name as exporters write it: letters, digits and single underscores.
fn form(name: &str) -> String {
    let usual = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let plain: String = name.chars().map(usual).collect();
    let parts: Vec<&str> = plain.split('_').filter(|part| !part.is_empty()).collect();
    parts.join("_")
}

/// Features and inputs that could be meant for each other: of one form, else nearly the same name.
pub(super) fn likely<'a>(inputs: &[&'a str], features: &[&'a str]) -> Vec<(&'a str, &'a str)> {
    let pairs = features.iter().flat_map(|feature| {
        let alike: Vec<&str> =
            inputs.iter().copied().filter(|input| form(input) == form(feature)).collect();
        let near = || nearest(feature, inputs.iter().copied()).into_iter().collect();
        let alike = if alike.is_empty() { near() } else { alike };
        alike.into_iter().map(move |input| (*feature, input))
    });
    pairs.take(LISTED).collect()
}

/// Some names, and how many more there are.
fn listed(what: &str, names: &[&str]) -> String {
    let shown: Vec<String> = names.iter().take(LISTED).map(|name| format!("`{name}`")).collect();
    let ending = if names.len() == 1 { "" } else { "s" };
    let more = names.len().saturating_sub(LISTED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("the {what}{ending} {}{more}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_pair_where_only_punctuation_differs() {
        let features = ["hours-per-week", "is owner?", "capital.gain", "age"];
        let inputs = ["hours_per_week", "is_owner_", "capital_gain", "ages"];
        let found = same_form(&inputs, &features);
        let expected = [
            ("hours-per-week", "hours_per_week"),
            ("is owner?", "is_owner_"),
            ("capital.gain", "capital_gain"),
        ];
        assert_eq!(found, expected.map(|(one, two)| (one.to_string(), two.to_string())));
    }

    #[test]
    fn two_names_of_one_form_are_not_paired() {
        assert_eq!(same_form(&["a_b", "c"], &["a-b", "a b"]), []);
        assert_eq!(same_form(&["a_b", "a__b"], &["a-b", "c"]), []);
        assert_eq!(likely(&["a_b", "c"], &["a-b", "a b"]), [("a-b", "a_b"), ("a b", "a_b")]);
    }

    #[test]
    fn long_lists_are_cut() {
        let names: Vec<String> = (0..10).map(|number| format!("f{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert!(listed("input", &names).ends_with("`f7` and 2 more"));
        assert_eq!(listed("feature", &names[..1]), "the feature `f0`");
    }
}
