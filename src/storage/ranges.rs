//! What was read of the objects of a table, kept so that it is not asked for again: a run goes over its table several
//! times. Kept in a file of this machine that has no name, so that nothing is left of it when the program ends.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::Bytes;
use nix::sys::statvfs::fstatvfs;
use object_store::path::Path as Key;
use parking_lot::Mutex;

/// Bytes that are kept, at most …
const MOST_BYTES: u64 = 16 << 30;
/// … and of what the disk has free no more than one part in so many.
const SHARE: u64 = 4;

/// Ranges of objects.
#[derive(Debug)]
pub(super) struct Ranges {
    /// Where they are kept; none where nothing can be.
    file: Option<File>,
    limit: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    used: u64,
    objects: HashMap<Key, BTreeMap<u64, Piece>>,
}

/// A range by its start: where it ends, and where it is in the file.
#[derive(Debug, Clone, Copy)]
struct Piece {
    end: u64,
    offset: u64,
}

impl Ranges {
    /// Keeps ranges in a folder. One that cannot be written is no reason to stop: then nothing is kept.
    pub(super) fn new(folder: Option<&Path>) -> Ranges {
        let file = folder.and_then(|folder| {
            std::fs::create_dir_all(folder).ok()?;
            let path = folder.join(format!(".ranges-{:016x}", rand::random::<u64>()));
            let file = File::options().read(true).write(true).create_new(true).open(&path).ok()?;
            std::fs::remove_file(&path).ok().map(|()| file)
        });
        let free = file.as_ref().and_then(|file| fstatvfs(file).ok());
        let free = free.map_or(0, |disk| disk.blocks_available() * disk.fragment_size());
        Ranges { file, limit: MOST_BYTES.min(free / SHARE), state: Mutex::default() }
    }

    /// What of a range is not kept.
    pub(super) fn missing(&self, key: &Key, range: &Range<u64>) -> Vec<Range<u64>> {
        let state = self.state.lock();
        let Some(pieces) = state.objects.get(key) else { return vec![range.clone()] };
        let (mut at, mut missing) = (range.start, Vec::new());
        for (start, piece) in overlapping(pieces, range) {
            if start > at {
                missing.push(at..start);
            }
            at = at.max(piece.end);
        }
        if at < range.end {
            missing.push(at..range.end);
        }
        missing
    }

    /// Keeps what was read, while there is room.
    pub(super) fn keep(&self, key: &Key, start: u64, bytes: &Bytes) {
        let Some(file) = &self.file else { return };
        for range in self.missing(key, &(start..start + bytes.len() as u64)) {
            let length = range.end - range.start;
            let offset = {
                let mut state = self.state.lock();
                if state.used + length > self.limit {
                    return;
                }
                state.used += length;
                state.used - length
            };
            let piece = &bytes[(range.start - start) as usize..(range.end - start) as usize];
            if file.write_all_at(piece, offset).is_err() {
                // The disk is full: what is kept stays, nothing more is.
                self.state.lock().used = self.limit;
                return;
            }
            let piece = Piece { end: range.end, offset };
            let mut state = self.state.lock();
            state.objects.entry(key.clone()).or_default().insert(range.start, piece);
        }
    }

    /// A range, from what is kept and from pieces that were just read; none where a byte of it is in neither.
    pub(super) fn assemble(
        &self,
        key: &Key,
        range: &Range<u64>,
        fresh: &[(u64, Bytes)],
    ) -> Option<Bytes> {
        let inside = |(start, bytes): &&(u64, Bytes)| {
            *start <= range.start && range.end <= start + bytes.len() as u64
        };
        if let Some((start, bytes)) = fresh.iter().find(inside) {
            return Some(bytes.slice((range.start - start) as usize..(range.end - start) as usize));
        }
        let mut whole = vec![0; usize::try_from(range.end - range.start).ok()?];
        let mut missing = vec![range.clone()];
        if let Some(file) = &self.file {
            missing = self.missing(key, range);
            let pieces: Vec<(u64, Piece)> = {
                let state = self.state.lock();
                state
                    .objects
                    .get(key)
                    .map_or(Vec::new(), |pieces| overlapping(pieces, range).collect())
            };
            for (start, piece) in pieces {
                let (from, to) = (start.max(range.start), piece.end.min(range.end));
                let part = &mut whole[(from - range.start) as usize..(to - range.start) as usize];
                file.read_exact_at(part, piece.offset + (from - start)).ok()?;
            }
        }
        for gap in missing {
            let part = (gap.start - range.start) as usize..(gap.end - range.start) as usize;
            let covers = |(start, bytes): &&(u64, Bytes)| {
                *start <= gap.start && gap.end <= start + bytes.len() as u64
            };
            let (start, bytes) = fresh.iter().find(covers)?;
            let from = (gap.start - start) as usize;
            whole[part.clone()].copy_from_slice(&bytes[from..from + part.len()]);
        }
        Some(Bytes::from(whole))
    }
}

/// The pieces that a range has a byte of, in order. Pieces do not overlap much: where two threads have read the same at
/// the same time, the later one starts where the earlier one does.
fn overlapping<'a>(
    pieces: &'a BTreeMap<u64, Piece>,
    range: &Range<u64>,
) -> impl Iterator<Item = (u64, Piece)> + 'a {
    let first = pieces.range(..=range.start).next_back().map_or(range.start, |(start, _)| *start);
    let from = range.start;
    let found = pieces.range(first..range.end).map(|(start, piece)| (*start, *piece));
    found.filter(move |(_, piece)| piece.end > from)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_are_what_was_kept(
            kept in proptest::collection::vec((0u64..200, 1u64..60), 0..20), start in 0u64..200, length in 1u64..80,
        ) {
            let folder = tempfile::tempdir().expect("a folder");
            let ranges = Ranges::new(Some(folder.path()));
            prop_assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
            let content: Vec<u8> = (0..300u32).map(|byte| byte as u8).collect();
            let (key, mut known) = (Key::from("a"), [false; 300]);
            for (start, length) in kept {
                let range = start as usize..(start + length) as usize;
                known[range.clone()].fill(true);
                ranges.keep(&key, start, &Bytes::copy_from_slice(&content[range]));
            }
            let range = start..start + length;
            let missing = ranges.missing(&key, &range);
            let absent: Vec<u64> = range.clone().filter(|at| !known[*at as usize]).collect();
            prop_assert_eq!(missing.iter().flat_map(Clone::clone).collect::<Vec<_>>(), absent);
            let piece = |gap: &Range<u64>| {
                (gap.start, Bytes::copy_from_slice(&content[gap.start as usize..gap.end as usize]))
            };
            let fresh: Vec<_> = missing.iter().map(piece).collect();
            let found = ranges.assemble(&key, &range, &fresh).expect("whole");
            prop_assert_eq!(&found[..], &content[start as usize..(start + length) as usize]);
            if !missing.is_empty() {
                prop_assert_eq!(ranges.assemble(&key, &range, &fresh[1..]), None);
            }
        }
    }

    #[test]
    fn without_a_place_nothing_is_kept() {
        let (ranges, key) = (Ranges::new(None), Key::from("a"));
        ranges.keep(&key, 0, &Bytes::from_static(b"abc"));
        assert_eq!(ranges.missing(&key, &(0..3)), std::slice::from_ref(&(0..3)));
        let fresh = [(0, Bytes::from_static(b"abc"))];
        assert_eq!(ranges.assemble(&key, &(1..3), &fresh).as_deref(), Some(&b"bc"[..]));
        assert_eq!(ranges.assemble(&key, &(1..4), &fresh), None);
    }
}
