//! Every job file that is shipped can be read.

use std::fs;

use overturn::document::Overrides;
use overturn::job::{Job, Placeholders};

use crate::util::{Bench, files_below, project};

#[test]
fn shipped_jobs_can_be_read() {
    let files = files_below(&project().join("jobs"), "toml");
    assert!(!files.is_empty());
    // The grid's jobs name files of a cell, which must be there.
    let bench = Bench::new();
    bench.write("model.onnx", "");
    for file in files {
        let text = fs::read_to_string(&file).expect("readable");
        let set: Vec<String> = ["cell", "data", "lake", "night", "out", "python"]
            .iter()
            .filter(|name| text.contains(&format!("${{{name}}}")))
            .map(|name| match *name {
                "cell" => format!("cell={}", bench.text("")),
                name => format!("{name}=/tmp/{name}"),
            })
            .collect();
        let placeholders = Placeholders::parse(&set).expect("well formed");
        Job::read(&file, &placeholders, &Overrides::default())
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }
}
