//! What stands in `schemas/` is what the program means.

use std::fs;

use overturn::feature::FeatureSchema;

use crate::util::{overturn, project};

#[test]
fn json_schemas_are_those_of_the_types() {
    for (kind, name) in
        [("job", "job.schema.json"), ("feature", "feature.schema.json"), ("tables", "tables.json")]
    {
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
    let mut read = 0;
    for entry in fs::read_dir(project().join("schemas")).expect("a folder").flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|ending| ending == "toml") {
            FeatureSchema::read(&path).unwrap_or_else(|error| panic!("{error}"));
            read += 1;
        }
    }
    assert!(read > 0);
}
