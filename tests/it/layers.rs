//! A module uses lower ranks only, and foreign libraries stay in their rooms.

use std::fs;
use std::path::Path;

use crate::util::{files_below, project};

/// Rank of every module of the crate; `lib.rs` shows the same table.
const RANKS: [(&str, u32); 28] = [
    ("error", 0),
    ("document", 1),
    ("stop", 1),
    ("storage", 1),
    ("feature", 2),
    ("job", 2),
    ("encode", 3),
    ("output", 3),
    ("predictor", 3),
    ("runtime", 3),
    ("synth", 3),
    ("constrain", 4),
    ("lineage", 4),
    ("metrics", 4),
    ("nearest", 4),
    ("score", 4),
    ("table", 4),
    ("target", 4),
    ("commit", 5),
    ("nn", 5),
    ("artefact", 6),
    ("explain", 7),
    ("report", 7),
    ("train", 7),
    ("audit", 8),
    ("engine", 8),
    ("pipeline", 9),
    ("cli", 10),
];

/// Library → the modules that may name it.
const ROOMS: [(&str, &[&str]); 7] = [
    ("datafusion", &["engine"]),
    ("deltalake_core", &["commit", "table"]),
    ("object_store", &["engine", "storage", "table"]),
    ("ort", &["predictor"]),
    ("tch", &["artefact", "runtime", "nn", "train"]),
    ("clap", &["cli"]),
    ("indicatif", &["cli"]),
];

/// The crate's module that a file belongs to; none for `lib.rs` and `main.rs`.
fn module(path: &Path) -> Option<String> {
    let inside = path.strip_prefix(project().join("src")).expect("below src");
    let name = inside.iter().next()?.to_str()?.trim_end_matches(".rs").to_string();
    (name != "lib" && name != "main").then_some(name)
}

fn rank(module: &str) -> u32 {
    let found = RANKS.iter().find(|(name, _)| *name == module);
    found.unwrap_or_else(|| panic!("module `{module}` has no rank: add it to the table")).1
}

/// Names that follow `prefix` in the code of a file, comments aside.
fn names_after(text: &str, prefix: &str) -> Vec<String> {
    let code: Vec<&str> =
        text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n");
    code.match_indices(prefix)
        .map(|(index, _)| {
            let rest = &code[index + prefix.len()..];
            rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
        })
        .collect()
}

#[test]
fn modules_use_lower_ranks_only() {
    for file in files_below(&project().join("src"), "rs") {
        let Some(own) = module(&file) else { continue };
        let text = fs::read_to_string(&file).expect("readable");
        for used in names_after(&text, "crate::") {
            let known = RANKS.iter().any(|(name, _)| *name == used);
            if !known || used == own {
                continue;
            }
            assert!(rank(&used) < rank(&own), "{}: `{own}` must not use `{used}`", file.display());
        }
        rank(&own);
    }
}

#[test]
fn libraries_stay_in_their_rooms() {
    for file in files_below(&project().join("src"), "rs") {
        let Some(own) = module(&file) else { continue };
        let text = fs::read_to_string(&file).expect("readable");
        for (library, rooms) in ROOMS {
            let named = ["use ", " ", "(", "<", "&"].iter().any(|before| {
                text.lines()
                    .filter(|line| !line.trim_start().starts_with("//"))
                    .any(|line| line.contains(&format!("{before}{library}::")))
            });
            assert!(
                !named || rooms.contains(&own.as_str()),
                "{}: `{own}` names `{library}`",
                file.display()
            );
        }
    }
}

/// Networks know slots of an encoded row: no column name, no job, no model, no file of an artefact.
#[test]
fn networks_know_tensors_only() {
    let allowed = ["constrain", "document", "encode", "error", "output", "nn"];
    for file in files_below(&project().join("src/nn"), "rs") {
        let text = fs::read_to_string(&file).expect("readable");
        // Tests compare with rows of a schema.
        let code = text.split("#[cfg(test)]").next().expect("a first part");
        for used in names_after(code, "crate::") {
            assert!(allowed.contains(&used.as_str()), "{}: uses `{used}`", file.display());
        }
    }
}
