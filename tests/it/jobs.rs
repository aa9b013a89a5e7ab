//! Every job file that is shipped can be read.

use std::fs;
use std::path::{Path, PathBuf};

use overturn::job::{Job, Placeholders};

use crate::util::project;

fn job_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            job_files(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "toml") {
            found.push(path);
        }
    }
}

#[test]
fn shipped_jobs_can_be_read() {
    let mut files = Vec::new();
    job_files(&project().join("jobs"), &mut files);
    assert!(!files.is_empty());
    for file in files {
        let text = fs::read_to_string(&file).expect("readable");
        let set: Vec<String> = ["data", "out", "python"]
            .iter()
            .filter(|name| text.contains(&format!("${{{name}}}")))
            .map(|name| format!("{name}=/tmp/{name}"))
            .collect();
        let placeholders = Placeholders::parse(&set).expect("well formed");
        Job::read(&file, &placeholders)
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }
}
