//! What is finished of a run that is not: a line of JSON for each finished piece, synced before the next
//! begins. The first line says what the run is. A line that a kill cut short is no line.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::OFlag;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::mirror::Mirror;
use super::writer::cannot_write;
use crate::document::{open_unlinked, read_unlinked};
use crate::error::{Error, Result};

/// Bytes of a journal, at most; counts by a thousand segments are a megabyte for each finished piece.
const MOST_BYTES: u64 = 4 << 30;
/// Bytes of its first line, at most: it lists the files that the run reads.
const MOST_HEADER_BYTES: u64 = 256 << 20;

/// A journal that is being written.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    /// Where it is kept as well.
    mirror: Option<Arc<Mirror>>,
}

/// A journal as it was found.
#[derive(Debug)]
pub struct OpenedJournal<H, E> {
    /// What the run is.
    pub header: H,
    /// What is finished.
    pub entries: Vec<E>,
    /// To be resumed from.
    pub journal: Journal,
}

impl Journal {
    /// Begins a journal, in the place of one that is there.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn create<H: Serialize>(
        path: &Path,
        header: &H,
        mirror: Option<Arc<Mirror>>,
    ) -> Result<Journal> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).custom_flags(OFlag::O_NOFOLLOW.bits());
        let file = options.open(path).map_err(|error| cannot_write(path, error))?;
        let mut journal = Journal { path: path.to_path_buf(), file, mirror };
        journal.append(header, &[])?;
        Ok(journal)
    }

    /// What the run is that a journal is about; none if there is no journal.
    pub fn header<H: DeserializeOwned>(path: &Path) -> Option<H> {
        let (file, _) = open_unlinked(path).ok()?;
        let mut line = Vec::new();
        BufReader::new(file.take(MOST_HEADER_BYTES)).read_until(b'\n', &mut line).ok()?;
        serde_json::from_slice(line.strip_suffix(b"\n")?).ok()
    }

    /// Opens the journal that a run left; none if there is none that can be resumed from.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn open<H: DeserializeOwned, E: DeserializeOwned>(
        path: &Path,
    ) -> Result<Option<OpenedJournal<H, E>>> {
        let content = match read_unlinked(path, MOST_BYTES) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                let shown = path.display().to_string();
                return Err(Error::output(shown, format!("cannot be read: {error}"))
                    .hint("check the permissions of the folder of `output.dir`, or run without `--resume`"));
            }
        };
        let Some(JournalContents { header, entries, whole }) = parse_journal(&content) else {
            return Ok(None);
        };
        let mut options = OpenOptions::new();
        let file = options.append(true).custom_flags(OFlag::O_NOFOLLOW.bits()).open(path);
        let file = file.and_then(|file| file.set_len(whole as u64).map(|()| file));
        let file = file.map_err(|error| cannot_write(path, error))?;
        let journal = Journal { path: path.to_path_buf(), file, mirror: None };
        Ok(Some(OpenedJournal { header, entries, journal }))
    }

    /// The same journal, kept in a store as well from now on.
    #[must_use]
    pub fn mirrored(self, mirror: Option<Arc<Mirror>>) -> Journal {
        Journal { mirror, ..self }
    }

    /// Adds a line and waits until it is on the disk; before that in the store, where these files are already.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn append<E: Serialize>(&mut self, entry: &E, files: &[String]) -> Result<()> {
        let broken = |error| Error::internal("journal", "has no JSON").source(error);
        let mut line = serde_json::to_vec(entry).map_err(broken)?;
        if let Some(mirror) = &self.mirror {
            mirror.append(&line, files)?;
        }
        line.push(b'\n');
        let written = self.file.write_all(&line).and_then(|()| self.file.sync_data());
        written.map_err(|error| cannot_write(&self.path, error))
    }
}

/// What the bytes of a journal say.
#[derive(Debug)]
pub struct JournalContents<H, E> {
    /// What the run is.
    pub header: H,
    /// What is finished.
    pub entries: Vec<E>,
    /// Bytes up to the end of the last line that could be read.
    pub whole: usize,
}

/// Reads the lines of a journal up to the first that is broken: what follows was written after something went
/// wrong. None if the first line is.
pub fn parse_journal<H: DeserializeOwned, E: DeserializeOwned>(
    content: &[u8],
) -> Option<JournalContents<H, E>> {
    let mut lines =
        content.split_inclusive(|byte| *byte == b'\n').map_while(|line| line.strip_suffix(b"\n"));
    let first = lines.next()?;
    let header = serde_json::from_slice(first).ok()?;
    let (mut entries, mut whole) = (Vec::new(), first.len() + 1);
    for line in lines {
        let Ok(entry) = serde_json::from_slice(line) else { break };
        entries.push(entry);
        whole += line.len() + 1;
    }
    Some(JournalContents { header, entries, whole })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn found(path: &Path) -> Option<OpenedJournal<String, u32>> {
        Journal::open(path).expect("readable")
    }

    #[test]
    fn what_was_written_is_found_and_gone_on_with() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("journal");
        assert!(found(&path).is_none());
        let mut journal = Journal::create(&path, &"run".to_string(), None).expect("created");
        journal.append(&1, &[]).expect("written");
        drop(journal);
        let mut again = found(&path).expect("there");
        assert_eq!((again.header.as_str(), &again.entries[..]), ("run", &[1][..]));
        again.journal.append(&2, &[]).expect("written");
        assert_eq!(found(&path).expect("there").entries, [1, 2]);
    }

    #[test]
    fn a_journal_cut_anywhere_gives_the_whole_lines_before() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("journal");
        let mut journal = Journal::create(&path, &"run".to_string(), None).expect("created");
        for entry in 10..13 {
            journal.append(&entry, &[]).expect("written");
        }
        let content = fs::read(&path).expect("readable");
        for length in 0..=content.len() {
            fs::write(&path, &content[..length]).expect("written");
            let whole = content[..length].iter().filter(|byte| **byte == b'\n').count();
            match found(&path) {
                None => assert_eq!(whole, 0),
                Some(mut again) => {
                    assert_eq!(again.entries.len(), whole - 1);
                    again.journal.append(&99, &[]).expect("written");
                    assert_eq!(found(&path).expect("there").entries.last(), Some(&99));
                }
            }
        }
    }
}
