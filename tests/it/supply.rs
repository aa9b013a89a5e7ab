//! What the program is made of and what that does: every package from one place, pinned, under a licence that is
//! allowed; and libraries that keep to themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::fitted::applications;
use crate::util::{Bench, Run, program, project};

const SOURCE: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// All packages that are compiled for the program and its tests.
fn packages() -> Vec<Value> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_string());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--format-version", "1", "--locked", "--offline"]);
    command.args(["--filter-platform", "x86_64-unknown-linux-gnu"]).current_dir(project());
    let metadata: Value = serde_json::from_str(&Run::of(&mut command).ok().stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages").iter();
    packages.filter(|package| package["name"] != "overturn").cloned().collect()
}

/// The list under a key of `deny.toml`.
fn denied(section: &str, key: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(project().join("deny.toml")).expect("readable");
    let table: toml::Table = text.parse().expect("TOML");
    let list = table[section][key].as_array().expect("a list").iter();
    list.map(|entry| entry.as_str().expect("text").to_string()).collect()
}

/// Licences that `deny.toml` allows single packages.
fn exceptions() -> BTreeMap<String, Vec<String>> {
    let text = fs::read_to_string(project().join("deny.toml")).expect("readable");
    let table: toml::Table = text.parse().expect("TOML");
    let list = table["licenses"]["exceptions"].as_array().expect("a list").iter();
    let text = |value: &toml::Value| value.as_str().expect("text").to_string();
    let entry = |entry: &toml::Value| {
        let allow = entry["allow"].as_array().expect("a list").iter().map(text).collect();
        (text(&entry["crate"]), allow)
    };
    list.map(entry).collect()
}

/// Whether a licence expression can be met with allowed licences. Those of our packages have no more than two
/// levels: alternatives, of which each is a list of licences that all apply.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    // `/` is how old packages write OR.
    let flat = expression.replace('/', " OR ");
    if let Some((inner, rest)) = flat.strip_prefix('(').and_then(|text| text.split_once(") AND ")) {
        return is_allowed(inner, allowed) && is_allowed(rest, allowed);
    }
    if let Some((first, inner)) = flat.strip_suffix(')').and_then(|text| text.split_once(" AND ("))
    {
        return is_allowed(first, allowed) && is_allowed(inner, allowed);
    }
    let every = |part: &str| part.split(" AND ").all(|one| allowed.contains(one.trim()));
    flat.split(" OR ").any(every)
}

#[test]
fn every_package_has_an_allowed_licence() {
    let allowed = denied("licenses", "allow");
    let excepted = exceptions();
    let refused: Vec<String> = packages()
        .iter()
        .filter(|package| {
            let name = package["name"].as_str().expect("a name");
            let more = excepted.get(name).into_iter().flatten().cloned();
            let allowed = allowed.iter().cloned().chain(more).collect();
            !is_allowed(package["license"].as_str().unwrap_or("none"), &allowed)
        })
        .map(|package| {
            format!("{} {}: {}", package["name"], package["version"], package["license"])
        })
        .collect();
    assert!(refused.is_empty(), "not in `licenses.allow` of deny.toml: {refused:#?}");
}

#[test]
fn every_package_is_from_crates_io_and_pinned() {
    for package in packages() {
        assert_eq!(package["source"], SOURCE, "{}", package["name"]);
    }
    let text = fs::read_to_string(project().join("Cargo.lock")).expect("readable");
    let lock: toml::Table = text.parse().expect("TOML");
    for package in lock["package"].as_array().expect("packages") {
        let (name, source) = (package["name"].as_str(), package.get("source"));
        if name == Some("overturn") {
            continue;
        }
        assert_eq!(source.and_then(toml::Value::as_str), Some(SOURCE), "{name:?}");
        let checksum = package.get("checksum").and_then(toml::Value::as_str);
        assert_eq!(checksum.map(str::len), Some(64), "{name:?} has no checksum");
    }
}

#[test]
fn banned_packages_are_not_there() {
    let text = fs::read_to_string(project().join("deny.toml")).expect("readable");
    let table: toml::Table = text.parse().expect("TOML");
    let banned = table["bans"]["deny"].as_array().expect("a list").iter();
    let banned: BTreeSet<&str> = banned.filter_map(|entry| entry["crate"].as_str()).collect();
    assert!(!banned.is_empty());
    for package in packages() {
        let name = package["name"].as_str().expect("a name");
        assert!(!banned.contains(name), "`{name}` is banned in deny.toml");
    }
}

/// Version 0.1.0 left a device id, a database of events and a session file.
#[test]
fn onnx_runtime_writes_no_telemetry() {
    let bench = Bench::new();
    let table = applications(&bench, 50, &[]);
    let job = bench.job(&table, "", None);
    bench.write("home/.keep", "");
    let home = bench.path("home");
    let mut command = program();
    command.args(["validate", &job]).env("HOME", &home).env("TMPDIR", &home);
    command.env_remove("XDG_CACHE_HOME").env_remove("XDG_DATA_HOME").env_remove("XDG_STATE_HOME");
    Run::of(command.env_remove("ORT_DISABLE_TELEMETRY")).ok();
    assert_eq!(bench.names("home"), [".keep"]);
}
