//! `overturn verify`.

use std::path::PathBuf;

use clap::Args;

use super::Global;
use super::print::{Printer, grouped, lines};
use crate::error::Result;
use crate::job::{Bytes, Device, RuntimeJob};
use crate::pipeline::{Verified, difference_error, verify};
use crate::runtime::Runtime;

/// Check a published folder against its manifest.
///
/// Reads every file back: sizes, SHA-256 and rows as listed, nothing missing, nothing beside them, `_SUCCESS`
/// there with the SHA-256 of the manifest, and counts that add up. Follows the runs that it was compared with
/// (`audit.previous`) as far as they are there: their manifests by SHA-256, their files by name and size. Works for
/// what run, explain, report, train and score publish. Ends with code 1 and lists every difference if there is one.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  overturn verify out/explained --inputs")]
pub(super) struct Verify {
    /// The published folder: a path, or a URL (`s3://`, `gs://`, `az://`).
    folder: PathBuf,
    /// Also check the input files of the run.
    #[arg(long)]
    inputs: bool,
}

impl Verify {
    pub(super) fn run(&self, printer: &Printer, _global: &Global) -> Result<()> {
        let (memory, device) = (Bytes(2 << 30), Device::Cpu);
        let runtime = Runtime::start(&RuntimeJob { threads: 0, memory, device, seed: 0 })?;
        let verified = verify(&self.folder, self.inputs, &runtime)?;
        printer.summary(&verified, text);
        difference_error(&verified)
    }
}

fn text(verified: &Verified) -> String {
    let mut rows = vec![
        ("command".to_string(), verified.command.clone()),
        ("run".to_string(), verified.run_id.clone().unwrap_or("without a name".to_string())),
        ("files".to_string(), grouped(verified.files as u64)),
        ("bytes".to_string(), grouped(verified.bytes)),
        ("rows".to_string(), grouped(verified.rows)),
    ];
    rows.extend(verified.inputs.map(|files| ("inputs".to_string(), grouped(files as u64))));
    rows.extend(verified.previous.as_ref().map(|chain| {
        let end = chain.end.as_ref().map_or(String::new(), |end| format!("; then {end}"));
        ("previous runs".to_string(), format!("{}{end}", grouped(chain.runs as u64)))
    }));
    let verdict = match verified.differences.len() {
        0 => "as published".to_string(),
        1 => "1 difference".to_string(),
        differences => format!("{differences} differences"),
    };
    rows.push((verified.folder.clone(), verdict));
    lines(&rows)
}
