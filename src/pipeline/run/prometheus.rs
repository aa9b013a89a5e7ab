//! The run's figures for Prometheus's textfile collector, replaced in one step.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use super::summary::RunSummary;
use crate::error::Kind;
use crate::output::resolved;
use crate::storage::{ObjectUrl, Stores, wait};

/// Writes the figures of a run. A symbolic link stays and what it leads to is replaced; anything but a regular
/// file is left alone.
pub(super) fn write(path: &Path, summary: &RunSummary, stores: &Stores) -> io::Result<()> {
    if let Ok(url) = ObjectUrl::parse(&path.to_string_lossy()) {
        let store = stores.open(&url, Kind::Output).map_err(io::Error::other)?;
        let content = text(summary).into_bytes();
        return wait(async move { store.write(url.key(), content).await })
            .map_err(io::Error::other);
    }
    let path = resolved(path)?;
    if fs::symlink_metadata(&path).is_ok_and(|found| !found.is_file()) {
        return Err(io::Error::other("it is no regular file and is not replaced"));
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.new"));
    let _ = fs::remove_file(&beside);
    // Never a file that is there already, or that a link leads to.
    let mut file = OpenOptions::new().write(true).create_new(true).open(&beside)?;
    let written = file
        .write_all(text(summary).as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&beside, &path));
    written.inspect_err(|_| drop(fs::remove_file(&beside)))
}

fn text(summary: &RunSummary) -> String {
    let mut text = String::new();
    let mut metric = |name: &str, help: &str, values: &[(String, f64)]| {
        let _ = writeln!(text, "# HELP overturn_{name} {help}\n# TYPE overturn_{name} gauge");
        for (labels, value) in values {
            let _ = writeln!(text, "overturn_{name}{labels} {value}");
        }
    };
    let plain = |value: f64| vec![(String::new(), value)];
    let mut rows: Vec<(String, f64)> = summary
        .statuses
        .iter()
        .map(|(status, rows)| (label("status", status), *rows as f64))
        .collect();
    rows.push((label("status", "rejected"), summary.rejected() as f64));
    rows.push((label("status", "out_of_scope"), summary.rows_out_of_scope as f64));
    metric("rows", "Rows, or rows and targets, by what became of them.", &rows);
    let sources = summary.sources.iter();
    let sources: Vec<(String, f64)> =
        sources.map(|(source, rows)| (label("source", source), *rows as f64)).collect();
    metric("solved", "Solved rows by what found the counterfactual.", &sources);
    let by_target = |value: fn(&super::TargetSummary) -> Option<f64>| -> Vec<(String, f64)> {
        let targets = summary.targets.iter();
        targets
            .filter_map(|target| Some((label("target", &target.target), value(target)?)))
            .collect()
    };
    metric("validity", "Share of valid counterfactuals.", &by_target(|of| of.validity));
    metric("l0", "Mean share of changed categorical features.", &by_target(|of| of.l0));
    metric("l1", "Mean change of standardised numeric features.", &by_target(|of| of.l1));
    metric("mmd2", "MMD² against training rows of the class.", &by_target(|of| of.mmd2));
    if let Some(share) = summary.robust.and_then(|of| of.share) {
        metric("robust", "Share of counterfactuals that enough models accept.", &plain(share));
    }
    let passed = f64::from(u8::from(summary.passes()));
    metric("published", "Whether the run passed its gates.", &plain(passed));
    metric("run_seconds", "Seconds of the whole run.", &plain(summary.seconds.total));
    metric("rows_per_second", "Rows explained a second.", &plain(summary.rows_per_second));
    metric("peak_bytes", "Most memory held.", &plain(summary.peak_bytes as f64));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.map_or(0.0, |now| now.as_secs_f64().floor());
    metric("finished_seconds", "When the run ended, since 1970.", &plain(now));
    text
}

fn label(name: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{{{name}=\"{value}\"}}")
}
