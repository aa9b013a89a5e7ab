//! What the pages say is there: links, files, commands, generated parts. `UPDATE_EXPECT=1` writes generated parts anew.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use crate::util::{files_below, overturn, project};

/// Lines that a newcomer reads to the end.
const MOST_README_LINES: usize = 200;

/// Folders of the tree whose files pages may name.
const FOLDERS: [&str; 5] = ["src/", "jobs/", "schemas/", "tests/", "benches/"];

/// Every page of the tree, results of builds and runs aside.
fn pages() -> Vec<PathBuf> {
    let top = fs::read_dir(project()).expect("readable").map(|entry| entry.expect("entry").path());
    let mut pages: Vec<PathBuf> =
        top.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    for folder in FOLDERS {
        pages.extend(files_below(&project().join(folder), "md"));
    }
    assert!(pages.len() > 5, "{pages:?}");
    pages
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The lines of a page outside of fenced blocks (`true`), or inside (`false`).
fn lines(text: &str, outside: bool) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fence && fenced != outside
    })
}

/// What stands in inline code, outside of fenced blocks.
fn inline_code(text: &str) -> Vec<String> {
    let prose = lines(text, true).collect::<Vec<_>>().join("\n");
    let code = prose.split('`').skip(1).step_by(2);
    code.map(|code| code.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// Links of a page, without those in code.
fn links(text: &str) -> Vec<String> {
    let prose = lines(text, true).collect::<Vec<_>>().join("\n");
    let prose = prose.split('`').step_by(2).collect::<Vec<_>>().join("code");
    let targets = prose.match_indices("](").filter_map(|(index, _)| {
        let rest = &prose[index + 2..];
        Some(rest[..rest.find(')')?].to_string())
    });
    targets.collect()
}

/// The anchors of a page's headings, as code forges make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let headings = lines(text, true).filter(|line| line.starts_with('#'));
    let slug = |line: &str| {
        let kept = line.trim_start_matches('#').trim().to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>()
    };
    let mut numbered = |slug: String| {
        let before = seen.entry(slug.clone()).or_insert(0);
        *before += 1;
        if *before == 1 { slug } else { format!("{slug}-{}", *before - 1) }
    };
    headings.map(|line| numbered(slug(line))).collect()
}

#[test]
fn the_readme_is_short() {
    let count = read(&project().join("README.md")).lines().count();
    assert!(count <= MOST_README_LINES, "README.md has {count} lines");
}

#[test]
fn links_lead_somewhere() {
    let mut wrong = Vec::new();
    let mut checked = 0;
    for page in pages() {
        for link in links(&read(&page)) {
            if link.starts_with("https://") {
                continue;
            }
            checked += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file {
                "" => page.clone(),
                file => page.parent().expect("a folder").join(file),
            };
            let found = match (target.exists(), anchor) {
                (exists, "") => exists,
                (exists, anchor) => exists && anchors(&read(&target)).contains(anchor),
            };
            if !found {
                wrong.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(checked > 20, "only {checked} links were looked at");
    assert!(wrong.is_empty(), "links that lead nowhere: {wrong:#?}");
}

#[test]
fn files_that_pages_name_exist() {
    let mut wrong = Vec::new();
    for page in pages() {
        // What was once measured stands in the past.
        for code in inline_code(&read(&page)) {
            let Some(file) = code.split(' ').next() else { continue };
            let plain = !file.contains(['*', '<', '{', '$', '…']);
            let inside = FOLDERS.iter().any(|folder| file.starts_with(folder));
            if plain && inside && !project().join(file).exists() {
                wrong.push(format!("{}: {file}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "files that are not there: {wrong:#?}");
}

/// The names of commands in a help text.
fn commands(help: &str) -> BTreeSet<String> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = listed.take_while(|line| !line.is_empty());
    // Further lines of a description are indented deeper.
    let names =
        names.filter_map(|line| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')));
    names.filter_map(|line| line.split_whitespace().next().map(str::to_string)).collect()
}

#[test]
fn commands_that_pages_name_exist() {
    let known = commands(&overturn(&["--help"]).ok().stdout);
    assert!(known.contains("run"), "{known:?}");
    let mut named = BTreeSet::new();
    for page in pages() {
        // The changelog tells of what is gone.
        if page.ends_with("CHANGELOG.md") {
            continue;
        }
        let text = read(&page);
        let typed = lines(&text, false).map(|line| line.trim_start_matches("$ ").to_string());
        for line in typed.chain(inline_code(&text)) {
            let mut words = line.strip_prefix("overturn ").unwrap_or_default().split(' ');
            if let Some(word) = words
                .next()
                .filter(|word| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase()))
            {
                assert!(known.contains(word), "{}: no command `{line}`", page.display());
                named.insert(word.to_string());
            }
        }
    }
    let unnamed: Vec<&String> = known.difference(&named).filter(|name| *name != "help").collect();
    assert!(unnamed.is_empty(), "commands that no page names: {unnamed:?}");
}

const BEGIN: &str = "<!-- generated: overturn ";
const END: &str = "<!-- end -->";

#[test]
fn generated_parts_are_those_of_the_types() {
    let update = std::env::var_os("UPDATE_EXPECT").is_some();
    let mut parts = 0;
    for page in pages() {
        let text = read(&page);
        let mut expected = String::new();
        let mut rest = text.as_str();
        while let Some(begin) = rest.find(BEGIN) {
            let (before, part) = rest.split_at(begin);
            let (line, _) = part.split_once(" -->\n").expect("the end of the marker");
            let arguments: Vec<&str> = line[BEGIN.len()..].split(' ').collect();
            let end = part.find(END).expect("an end marker");
            let generated = overturn(&arguments).ok().stdout;
            expected += &format!("{before}{line} -->\n\n{}\n\n", generated.trim());
            rest = &part[end..];
            parts += 1;
        }
        expected += rest;
        if update {
            fs::write(&page, &expected).expect("writable");
        } else if let Some((found, expected)) =
            text.lines().zip(expected.lines()).find(|(found, expected)| found != expected)
        {
            panic!(
                "{} is out of date:\n  found    {found}\n  expected {expected}\nupdate it with\n  \
                 UPDATE_EXPECT=1 cargo test --test it docs::",
                page.display()
            );
        }
        assert!(update || text == expected, "{} is out of date", page.display());
    }
    assert!(parts >= 3, "only {parts} parts are generated");
}

/// Editors find the schema of a TOML file by its first line.
#[test]
fn jobs_and_feature_schemas_name_their_json_schema() {
    let kinds = [
        ("jobs", "job.schema.json"),
        ("benches", "job.schema.json"),
        ("schemas", "feature.schema.json"),
    ];
    for (folder, schema) in kinds {
        let files = files_below(&project().join(folder), "toml");
        assert!(!files.is_empty(), "{folder}");
        for file in files {
            let text = read(&file);
            let named = text.lines().next().and_then(|line| line.strip_prefix("#:schema "));
            let target = named.map(|path| file.parent().expect("a folder").join(path));
            let target = target.and_then(|path| path.canonicalize().ok());
            let expected = project().join("schemas").join(schema).canonicalize().ok();
            assert_eq!(target, expected, "the first line of {}", file.display());
            // Without a leading dot editors take it for a URL.
            assert!(named.is_some_and(|path| path.starts_with('.')), "{}", file.display());
        }
    }
}
