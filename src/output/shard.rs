//! Shards: processes that share the splits of one run. Each keeps its files and its journal under a hidden name beside
//! the place of the results, until one process puts all of them together.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Serialize;

use super::leftover::beside;
use super::staging::target_of;
use super::writer::cannot_write;
use crate::error::{Error, Result};

/// Shards of a run, at most.
const MOST_SHARDS: usize = 10_000;

/// The folder of a run's shards, under its hidden name beside the run's, or in a store below `_overturn`.
pub(super) const SHARDS: &str = "shards";

/// One of the processes that share a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Shard {
    /// Its number, from 1.
    pub number: usize,
    /// How many there are.
    pub of: usize,
}

impl Shard {
    /// All shards of a run that has so many.
    pub fn all(of: usize) -> impl Iterator<Item = Shard> {
        (1..=of).map(move |number| Shard { number, of })
    }

    /// Whether a split is its to explain. Neighbouring splits go to different shards: a table that is harder in
    /// places, or sorted, is shared evenly.
    pub fn has(self, split: usize) -> bool {
        split % self.of == self.number - 1
    }

    /// Its folder's name.
    pub(super) fn name(self) -> String {
        format!("{:05}-of-{:05}", self.number, self.of)
    }

    /// The shard of a folder's name; that of a hidden one beside it, too.
    pub(super) fn named(name: &str) -> Option<Shard> {
        let name = name.strip_prefix('.').unwrap_or(name).split('.').next()?;
        let (number, of) = name.split_once("-of-")?;
        let shard = Shard { number: number.parse().ok()?, of: of.parse().ok()? };
        (shard.name() == name && shard.is_valid()).then_some(shard)
    }

    fn is_valid(self) -> bool {
        (1..=self.of).contains(&self.number) && self.of <= MOST_SHARDS
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Shard, String> {
        let numbers = text.split_once('/');
        let parsed = numbers.and_then(|(number, of)| {
            Some(Shard { number: number.parse().ok()?, of: of.parse().ok()? })
        });
        parsed.filter(|shard| shard.is_valid()).ok_or_else(|| {
            format!("expected I/N with I from 1 to N and N up to {MOST_SHARDS}, such as 3/8")
        })
    }
}

/// Where a shard of a run would be published, if it were. What it leaves stands beside that, in a folder of all shards.
pub(super) fn shard_place(dir: &Path, shard: Shard) -> Result<PathBuf> {
    Ok(shards_folder(dir)?.join(shard.name()))
}

/// The shards of a run on this machine, in order: those that have begun.
///
/// # Errors
/// When their folder cannot be read.
pub fn local_shards(dir: &Path) -> Result<Vec<Shard>> {
    let folder = shards_folder(dir)?;
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.and_then(Iterator::collect::<io::Result<Vec<_>>>),
    };
    let entries = entries.map_err(|error| {
        Error::output(folder.display().to_string(), format!("cannot be read: {error}"))
    })?;
    let names = entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut shards: Vec<Shard> = names.filter_map(|name| Shard::named(&name)).collect();
    shards.sort();
    shards.dedup();
    Ok(shards)
}

/// Removes the folder of a run's shards, once it is empty.
pub(super) fn remove_empty(dir: &Path) {
    if let Ok(folder) = shards_folder(dir) {
        let _ = fs::remove_dir(folder);
    }
}

/// Gives a file a second name, or copies it where the file system knows no such thing. One that is there is replaced.
pub(super) fn link(from: &Path, to: &Path) -> Result<()> {
    let parent = to.parent().unwrap_or(Path::new("/"));
    let linked = fs::create_dir_all(parent).and_then(|()| match fs::hard_link(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(error),
        Err(_) => fs::copy(from, to).map(|_| ()),
        Ok(()) => Ok(()),
    });
    linked.map_err(|error| cannot_write(to, error))
}

fn shards_folder(dir: &Path) -> Result<PathBuf> {
    Ok(beside(&target_of(dir)?, SHARDS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_written_as_one_of_so_many() {
        let shard: Shard = "3/8".parse().expect("a shard");
        assert_eq!((shard, shard.to_string()), (Shard { number: 3, of: 8 }, "3/8".to_string()));
        for wrong in ["", "3", "0/8", "9/8", "a/8", "3/", "/8", "1/10001", "-1/8", "1/0"] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_split_is_one_shards() {
        for split in 0..100 {
            let having = Shard::all(7).filter(|shard| shard.has(split)).count();
            assert_eq!(having, 1, "split {split}");
        }
    }

    #[test]
    fn a_name_stands_for_one_shard() {
        for shard in Shard::all(12) {
            assert_eq!(Shard::named(&shard.name()), Some(shard));
            assert_eq!(Shard::named(&format!(".{}.journal", shard.name())), Some(shard));
        }
        for other in ["3-of-8", "00009-of-00008", "x", "00001-of-00002x", ""] {
            assert_eq!(Shard::named(other), None, "{other}");
        }
    }

    #[test]
    fn shards_that_have_begun_are_found() {
        let home = tempfile::tempdir().expect("a folder");
        let dir = home.path().join("out");
        assert_eq!(local_shards(&dir).expect("none"), []);
        for name in
            [".00002-of-00003.journal", ".00001-of-00003.staging", ".00001-of-00003.journal"]
        {
            fs::create_dir_all(home.path().join(".out.shards").join(name)).expect("made");
        }
        let expected = [Shard { number: 1, of: 3 }, Shard { number: 2, of: 3 }];
        assert_eq!(local_shards(&dir).expect("found"), expected);
    }
}
