//! A synthetic table of credit applications with the lender's decisions, of any size, for trying things
//! out and for measuring. The same seed gives the same rows, whatever the number of threads and files; a
//! longer table begins with the rows of a shorter one. `schemas/credit.toml` says what the columns mean.
//!
//! ```text
//! applicant (who, means, loan) ─▶ rule (decision) ─▶ table (Arrow batches) ─▶ file (Parquet)
//! ```

mod applicant;
mod category;
mod dice;
mod file;
mod rule;
mod table;
#[cfg(test)]
mod tests;

use std::fs;
use std::ops::Range;
use std::path::Path;

use rayon::prelude::*;

use crate::error::{Error, Fault, Kind, Result};
use crate::stop;
use file::{Files, Format};

/// Rows of a row group: the unit that a thread works on and a reader fetches.
const GROUP_ROWS: u64 = 131_072;
/// More rows than this do not fit a 64-bit key.
const MOST_ROWS: u64 = i64::MAX as u64;
/// More files than this do not fit their five-digit names.
const MOST_FILES: usize = 100_000;

/// Which table to make.
#[derive(Debug, Clone, PartialEq)]
pub struct Synth {
    /// Rows, at least one.
    pub rows: u64,
    /// Seed of every value.
    pub seed: u64,
    /// Files to spread the rows over, evenly; no more than there are rows.
    pub files: usize,
    /// Share of nulls in the columns that may have them (savings, credit history, housing, education).
    pub null_share: f64,
}

/// What was made.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Rows written.
    pub rows: u64,
    /// Files written.
    pub files: usize,
    /// Size of the files together.
    pub bytes: u64,
    /// Share of rows whose application is approved.
    pub approved_share: f64,
}

/// Writes the table as `part-00000.parquet` and so on into a folder, which must be empty or absent. Uses
/// the current rayon pool. `on_rows` is told, from any thread, how many further rows are ready.
///
/// # Errors
/// When the table is not possible as asked for, or the folder is in use or cannot be written.
pub fn write(synth: &Synth, dir: &Path, on_rows: &(dyn Fn(u64) + Sync)) -> Result<Summary> {
    synth.check()?;
    prepare(dir)?;
    let format = Format::new()?;
    let mut files = Files::new(&format, dir);
    let mut approved = 0;
    let mut ready = Vec::new();
    // A few row groups at a time bound the memory; appending the last ones overlaps with making the next.
    let mut groups = synth.groups();
    loop {
        let window: Vec<SynthRowGroup> =
            groups.by_ref().take(2 * rayon::current_num_threads()).collect();
        if window.is_empty() {
            break;
        }
        stop::check()?;
        let (appended, encoded) = rayon::join(
            || files.append(std::mem::take(&mut ready)),
            || {
                let encode =
                    |group| format.encode(synth, group).inspect(|encoded| on_rows(encoded.rows));
                window.par_iter().map(encode).collect::<Result<Vec<_>>>()
            },
        );
        appended?;
        ready = encoded?;
        approved += ready.iter().map(|encoded| encoded.approved).sum::<u64>();
    }
    files.append(ready)?;
    files.finish()?;
    Ok(Summary {
        rows: synth.rows,
        files: synth.files,
        bytes: files.bytes,
        approved_share: approved as f64 / synth.rows as f64,
    })
}

/// A row group: its file and its rows.
struct SynthRowGroup {
    file: usize,
    rows: Range<u64>,
}

impl Synth {
    fn check(&self) -> Result<()> {
        let mut faults = Vec::new();
        let mut require = |condition: bool, subject: &str, problem: String| {
            if !condition {
                faults.push(Fault::new(subject, problem));
            }
        };
        let Synth { rows, files, null_share, .. } = self;
        let problem = format!("is {rows}, expected from 1 to {MOST_ROWS}");
        require((1..=MOST_ROWS).contains(rows), "rows", problem);
        let most = MOST_FILES.min(usize::try_from(*rows).unwrap_or(MOST_FILES).max(1));
        let problem = format!("is {files}, expected from 1 to {most} for {rows} rows");
        require((1..=most).contains(files), "files", problem);
        let problem = format!("is {null_share}, expected a share from 0 to 1");
        require((0.0..=1.0).contains(null_share), "nulls", problem);
        Error::from_faults(Kind::Spec, faults)
    }

    /// The row groups of all files, in order.
    fn groups(&self) -> impl Iterator<Item = SynthRowGroup> {
        (0..self.files).flat_map(|file| {
            let Range { start, end } = self.rows_of(file);
            (start..end).step_by(GROUP_ROWS as usize).map(move |first| SynthRowGroup {
                file,
                rows: first..(first + GROUP_ROWS).min(end),
            })
        })
    }

    /// The rows of a file: an even share, the first files one more where it does not divide.
    fn rows_of(&self, file: usize) -> Range<u64> {
        let (each, more) = (self.rows / self.files as u64, self.rows % self.files as u64);
        let start = |file: u64| file * each + file.min(more);
        start(file as u64)..start(file as u64 + 1)
    }
}

/// Makes the folder, or sees that it is empty.
fn prepare(dir: &Path) -> Result<()> {
    let subject = dir.display().to_string();
    let unusable =
        |error| Error::output(subject.clone(), "cannot be used as a folder").source(error);
    fs::create_dir_all(dir).map_err(unusable)?;
    if fs::read_dir(dir).map_err(unusable)?.next().is_some() {
        return Err(Error::output(subject, "is not empty, expected a new or an empty folder")
            .hint("choose another folder, or delete what is in this one"));
    }
    Ok(())
}
