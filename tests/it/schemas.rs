//! What stands in `schemas/` is what the program means.

use std::fs;

use overturn::feature::FeatureSchema;

use crate::util::{files_below, overturn, project};

#[test]
fn json_schemas_are_those_of_the_types() {
    for (kind, name) in [
        ("job", "job.schema.json"),
        ("feature", "feature.schema.json"),
        ("tables", "tables.json"),
        ("sources", "warehouse/sources.yml"),
    ] {
        let file = project().join("schemas").join(name);
        let found = fs::read_to_string(&file).unwrap_or_default();
        let expected = overturn(&["schema", "show", kind]).ok().stdout;
        let line =
            found.lines().zip(expected.lines()).position(|(found, expected)| found != expected);
        assert!(
            found == expected,
            "{} is out of date (line {line:?}); repair it with\n  \
             cargo run -- schema show {kind} > schemas/{name}",
            file.display()
        );
    }
}

#[test]
fn every_feature_schema_can_be_read() {
    let files = files_below(&project().join("schemas"), "toml");
    assert!(!files.is_empty());
    for path in files {
        FeatureSchema::read(&path).unwrap_or_else(|error| panic!("{error}"));
    }
}
