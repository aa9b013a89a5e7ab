//! The order of categories that an ONNX file tells, for models that take them as codes: a wrong order of
//! `values` gives every row a wrong answer, and no error.
//!
//! Encoders in the graph hold their categories (`LabelEncoder`, `OneHotEncoder`, `CategoryMapper`), and
//! libraries write them into the metadata (`pandas_categorical`, or an object of lists by feature).

use super::protobuf::{Field, Malformed, fields};
use crate::error::{Error, Fault, Kind, Result};
use crate::feature::Feature;

// Field numbers of onnx.proto.
const MODEL_GRAPH: u64 = 7;
const MODEL_METADATA: u64 = 14;
const ENTRY_KEY: u64 = 1;
const ENTRY_VALUE: u64 = 2;
const GRAPH_NODE: u64 = 1;
const NODE_ATTRIBUTE: u64 = 5;
const ATTRIBUTE_NAME: u64 = 1;
const ATTRIBUTE_INTS: u64 = 8;
const ATTRIBUTE_STRINGS: u64 = 9;

/// Attributes under which encoders keep their categories.
const CATEGORY_ATTRIBUTES: [&str; 2] = ["keys_strings", "cats_strings"];
/// Attributes with the codes of categories, in the same order.
const CODE_ATTRIBUTES: [&str; 2] = ["values_int64s", "cats_int64s"];
/// Categories that a message lists, at most.
const LISTED: usize = 6;

/// Categories in the order of their codes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KnownCategories {
    /// The feature they belong to, where the file says so.
    pub(super) feature: Option<String>,
    pub(super) values: Vec<String>,
}

/// Every list of categories in a model file.
pub(super) fn known(model: &[u8]) -> Result<Vec<KnownCategories>, Malformed> {
    let mut lists = Vec::new();
    for field in fields(model) {
        let Field { number, value, .. } = field?;
        match number {
            MODEL_GRAPH => lists.extend(of_graph(value.bytes())?),
            MODEL_METADATA => lists.extend(of_entry(value.bytes())?),
            _ => {}
        }
    }
    Ok(lists)
}

fn of_graph(graph: &[u8]) -> Result<Vec<KnownCategories>, Malformed> {
    let mut lists = Vec::new();
    for field in fields(graph) {
        let Field { number, value, .. } = field?;
        if number == GRAPH_NODE {
            lists.extend(of_node(value.bytes())?);
        }
    }
    Ok(lists)
}

/// The categories of an encoder, by their codes where it has any of its own.
fn of_node(node: &[u8]) -> Result<Option<KnownCategories>, Malformed> {
    let (mut categories, mut codes, mut other) = (None, None, false);
    for field in fields(node) {
        let Field { number, value, .. } = field?;
        if number != NODE_ATTRIBUTE {
            continue;
        }
        let (mut name, mut texts, mut integers) = ("", Vec::new(), Vec::new());
        for part in fields(value.bytes()) {
            let Field { number, value, .. } = part?;
            match number {
                ATTRIBUTE_NAME => name = value.text()?,
                ATTRIBUTE_STRINGS => texts.push(value.text()?.to_string()),
                ATTRIBUTE_INTS => integers.extend(value.integers()?),
                _ => {}
            }
        }
        match name {
            name if CATEGORY_ATTRIBUTES.contains(&name) => categories = Some(texts),
            name if CODE_ATTRIBUTES.contains(&name) => codes = Some(integers),
            // Numbers of another type, or texts: what the order means is not known.
            name => other |= name.starts_with("values_"),
        }
    }
    let Some(values) = categories else { return Ok(None) };
    Ok(match codes {
        None => (!other).then_some(KnownCategories { feature: None, values }),
        Some(codes) if codes.len() == values.len() => {
            let mut pairs: Vec<(i64, String)> = codes.into_iter().zip(values).collect();
            pairs.sort();
            Some(KnownCategories {
                feature: None,
                values: pairs.into_iter().map(|(_, text)| text).collect(),
            })
        }
        Some(_) => None,
    })
}

/// The categories of an entry of the metadata.
fn of_entry(entry: &[u8]) -> Result<Vec<KnownCategories>, Malformed> {
    let (mut key, mut text) = ("", "");
    for field in fields(entry) {
        let Field { number, value, .. } = field?;
        match number {
            ENTRY_KEY => key = value.text()?,
            ENTRY_VALUE => text = value.text()?,
            _ => {}
        }
    }
    let Ok(found) = serde_json::from_str::<serde_json::Value>(text) else { return Ok(Vec::new()) };
    let about = key.to_ascii_lowercase().contains("categor");
    let list = |feature: Option<&str>, value: &serde_json::Value| {
        let texts = value.as_array()?.iter().map(|one| one.as_str().map(str::to_string));
        Some(KnownCategories {
            feature: feature.map(str::to_string),
            values: texts.collect::<Option<_>>()?,
        })
    };
    Ok(match &found {
        serde_json::Value::Object(lists) if about => {
            lists.iter().filter_map(|(name, value)| list(Some(name), value)).collect()
        }
        serde_json::Value::Array(lists) if about => {
            lists.iter().filter_map(|value| list(None, value)).collect()
        }
        value => list(Some(key), value).into_iter().collect(),
    })
}

/// Holds the order of every categorical feature's values against the model's own; gives the features
/// about which the model tells nothing.
///
/// # Errors
/// Every feature whose values are those of the model in another order.
pub(super) fn check<'f>(
    model: &str,
    known: &[KnownCategories],
    features: &'f [Feature],
) -> Result<Vec<&'f Feature>> {
    let (mut unknown, mut faults) = (Vec::new(), Vec::new());
    for feature in features {
        let Some(categorical) = feature.categorical().filter(|one| one.values.len() > 1) else {
            continue;
        };
        let values = &categorical.values;
        let of = |list: &&KnownCategories| {
            list.feature.as_ref().is_none_or(|name| *name == feature.name)
                && same_set(&list.values, values)
        };
        let mut lists = known.iter().filter(of).peekable();
        match lists.peek().copied() {
            None => unknown.push(feature),
            Some(first) if lists.all(|list| list.values != *values) => {
                faults.push(other_order(model, &feature.name, (&first.values, values)));
            }
            Some(_) => {}
        }
    }
    Error::from_faults(Kind::Predictor, faults)?;
    Ok(unknown)
}

fn same_set(one: &[String], two: &[String]) -> bool {
    let sorted = |list: &[String]| {
        let mut list = list.to_vec();
        list.sort();
        list
    };
    one.len() == two.len() && sorted(one) == sorted(two)
}

fn other_order(model: &str, feature: &str, (of_model, of_schema): (&[String], &[String])) -> Fault {
    let problem = format!(
        "encodes `{feature}` as {}, the schema's `values` are {}: `encoding = \"codes\"` takes the \
         codes from that order",
        codes(of_model),
        codes(of_schema)
    );
    let texts: Vec<String> = of_model.iter().map(|value| format!("{value:?}")).collect();
    let line = format!("values = [{}]", texts.join(", "));
    Fault::new(model, problem).hint(format!("write in the feature schema: {line}"))
}

/// Values with their codes.
pub(super) fn codes(values: &[String]) -> String {
    let shown: Vec<String> = values
        .iter()
        .take(LISTED)
        .enumerate()
        .map(|(code, value)| format!("{value} = {code}"))
        .collect();
    let more = if values.len() > LISTED { ", …" } else { "" };
    format!("{}{more}", shown.join(", "))
}

/// What is assumed about features whose codes the model does not tell.
pub(super) fn assumed(unknown: &[&Feature]) -> Option<String> {
    let first = unknown.first()?;
    let more = match unknown.len() {
        1 => "",
        _ => ", and so for all others",
    };
    Some(format!(
        "`encoding = \"codes\"`: codes are the positions in the schema's `values` (`{}`: {}){more}; \
         the model does not tell its order, so a wrong one goes unnoticed unless `[input.scores]` \
         names stored decisions to compare with",
        first.name,
        codes(&first.categorical()?.values)
    ))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::protobuf::{write_bytes, write_integer};
    use super::*;
    use crate::feature::FeatureSchema;

    /// A model with an encoder of these categories; codes, where they are not the positions.
    fn encoder(categories: &[&str], codes: Option<&[u64]>) -> Vec<u8> {
        let mut attribute = Vec::new();
        write_bytes(&mut attribute, ATTRIBUTE_NAME, b"keys_strings");
        categories
            .iter()
            .for_each(|text| write_bytes(&mut attribute, ATTRIBUTE_STRINGS, text.as_bytes()));
        let mut node = Vec::new();
        write_bytes(&mut node, NODE_ATTRIBUTE, &attribute);
        if let Some(codes) = codes {
            let mut attribute = Vec::new();
            write_bytes(&mut attribute, ATTRIBUTE_NAME, b"values_int64s");
            codes.iter().for_each(|code| write_integer(&mut attribute, ATTRIBUTE_INTS, *code));
            write_bytes(&mut node, NODE_ATTRIBUTE, &attribute);
        }
        let (mut graph, mut model) = (Vec::new(), Vec::new());
        write_bytes(&mut graph, GRAPH_NODE, &node);
        write_bytes(&mut model, MODEL_GRAPH, &graph);
        model
    }

    fn metadata(key: &str, value: &str) -> Vec<u8> {
        let (mut entry, mut model) = (Vec::new(), Vec::new());
        write_bytes(&mut entry, ENTRY_KEY, key.as_bytes());
        write_bytes(&mut entry, ENTRY_VALUE, value.as_bytes());
        write_bytes(&mut model, MODEL_METADATA, &entry);
        model
    }

    fn schema() -> FeatureSchema {
        let text = "
            [[feature]]
            name = 'job'
            kind = 'categorical'
            values = ['clerk', 'nurse', 'pilot']
            [[feature]]
            name = 'home'
            kind = 'categorical'
            values = ['own', 'rent']
            [[feature]]
            name = 'age'
            kind = 'numeric'
            ";
        FeatureSchema::parse(text, Path::new("f.toml")).expect("a schema")
    }

    /// Features about which a model tells nothing, or its error.
    fn checked(model: &[u8]) -> Result<Vec<String>, String> {
        let known = known(model).expect("well formed");
        let schema = schema();
        let unknown = check("m.onnx", &known, &schema.features);
        let names = |found: Vec<&Feature>| found.iter().map(|one| one.name.clone()).collect();
        unknown.map(names).map_err(|error| error.to_string())
    }

    #[test]
    fn the_order_of_an_encoder_is_compared() {
        let home = vec!["home".to_string()];
        assert_eq!(checked(&encoder(&["clerk", "nurse", "pilot"], None)), Ok(home.clone()));
        let coded = encoder(&["pilot", "nurse", "clerk"], Some(&[2, 1, 0]));
        assert_eq!(
            checked(&coded),
            Ok(home),
            "codes are its own, whatever their order in the file"
        );
        let other = checked(&encoder(&["nurse", "clerk", "pilot"], None));
        assert_eq!(
            other.expect_err("another order"),
            "m.onnx: encodes `job` as nurse = 0, clerk = 1, pilot = 2, the schema's `values` are \
             clerk = 0, nurse = 1, pilot = 2: `encoding = \"codes\"` takes the codes from that order\n  \
             hint: write in the feature schema: values = [\"nurse\", \"clerk\", \"pilot\"]"
        );
    }

    #[test]
    fn lists_of_other_values_say_nothing() {
        let both = vec!["job".to_string(), "home".to_string()];
        assert_eq!(checked(&encoder(&["nurse", "clerk"], None)), Ok(both.clone()));
        assert_eq!(checked(&metadata("classes", r#"["rent", "own"]"#)), Ok(both.clone()));
        assert_eq!(checked(&metadata("categories", "not JSON")), Ok(both));
    }

    #[test]
    fn metadata_tell_the_order_by_feature_or_without() {
        let by_name = r#"{"job": ["clerk", "nurse", "pilot"], "home": ["rent", "own"]}"#;
        let refused = checked(&metadata("categories", by_name)).expect_err("another order");
        assert!(refused.starts_with("m.onnx: encodes `home` as rent = 0, own = 1"), "{refused}");
        let lists = r#"[["clerk", "nurse", "pilot"], ["own", "rent"]]"#;
        assert_eq!(checked(&metadata("pandas_categorical", lists)), Ok(Vec::new()));
        let refused = checked(&metadata("home", r#"["rent", "own"]"#)).expect_err("another order");
        assert!(refused.contains("values = [\"rent\", \"own\"]"), "{refused}");
    }

    #[test]
    fn what_is_assumed_is_said() {
        let schema = schema();
        let all: Vec<&Feature> = schema.features[..2].iter().collect();
        assert_eq!(
            assumed(&all).as_deref(),
            Some(
                "`encoding = \"codes\"`: codes are the positions in the schema's `values` (`job`: clerk = \
                 0, nurse = 1, pilot = 2), and so for all others; the model does not tell its order, so a wrong one \
                 goes unnoticed unless `[input.scores]` names stored decisions to compare with"
            )
        );
        assert_eq!(assumed(&[]), None);
    }
}
