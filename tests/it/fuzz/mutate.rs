//! Inputs made from a corpus: real files, changed in the ways in which files go wrong or are made to. Seeded, so
//! that a round can be repeated.

use std::fs;
use std::path::Path;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Longest input, unless the corpus has longer ones: enough to meet limits on depth and size.
const LONGEST: usize = 64 << 10;

/// Numbers at which code goes wrong, as text.
const NUMBERS: [&str; 24] = [
    "0",
    "-1",
    "1",
    "2",
    "127",
    "255",
    "256",
    "65536",
    "1000000",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "1e308",
    "1e400",
    "-0.0",
    "5e-324",
    "1e-9",
    "0.5",
    "nan",
    "inf",
];

/// The same as bytes of lengths and offsets.
const INTEGERS: [u64; 14] = [
    0,
    1,
    7,
    8,
    0x7f,
    0x80,
    0xff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 40,
    i64::MAX as u64,
    u64::MAX,
];

/// How the files of a target are written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Form {
    Text,
    Binary,
}

/// An endless source of inputs.
pub struct Mutator {
    random: ChaCha8Rng,
    corpus: Vec<Vec<u8>>,
    tokens: Vec<Vec<u8>>,
    form: Form,
    longest: usize,
}

impl Mutator {
    pub fn new(seed: u64, form: Form, corpus: Vec<Vec<u8>>, tokens: Vec<Vec<u8>>) -> Mutator {
        assert!(!corpus.is_empty(), "a target needs a corpus");
        let longest = corpus.iter().map(|entry| entry.len() + 4096).max().unwrap_or(0).max(LONGEST);
        Mutator { random: ChaCha8Rng::seed_from_u64(seed), corpus, tokens, form, longest }
    }

    /// The entries as they are.
    pub fn corpus(&self) -> &[Vec<u8>] {
        &self.corpus
    }

    /// The next input: an entry of the corpus with one to six changes.
    pub fn next_input(&mut self) -> Vec<u8> {
        let mut bytes = self.entry();
        let changes = match self.below(8) {
            0..4 => 1,
            4..6 => 2,
            6 => 3,
            _ => 6,
        };
        for _ in 0..changes {
            self.change(&mut bytes);
            bytes.truncate(self.longest);
        }
        bytes
    }

    fn entry(&mut self) -> Vec<u8> {
        let index = self.below(self.corpus.len());
        self.corpus[index].clone()
    }

    /// A number below a bound; 0 if that is 0.
    fn below(&mut self, bound: usize) -> usize {
        self.random.random_range(0..bound.max(1))
    }

    fn change(&mut self, bytes: &mut Vec<u8>) {
        let common = 11;
        match self.below(common + 5) {
            0 => self.flip(bytes),
            1 => self.overwrite_byte(bytes),
            2 => self.remove(bytes),
            3 => self.duplicate(bytes),
            4 => self.insert_token(bytes),
            5 => self.overwrite_with_token(bytes),
            6 => bytes.truncate(self.below(bytes.len() + 1)),
            7 => self.splice(bytes),
            8 => self.insert_bytes(bytes),
            9 => self.repeat(bytes),
            10 => self.shuffle(bytes),
            _ if self.form == Form::Text => self.change_text(bytes),
            _ => self.change_binary(bytes),
        }
    }

    fn change_text(&mut self, bytes: &mut Vec<u8>) {
        match self.below(3) {
            0 => self.swap_lines(bytes),
            _ => self.replace_number(bytes),
        }
    }

    fn change_binary(&mut self, bytes: &mut Vec<u8>) {
        match self.below(4) {
            0 => self.nudge(bytes),
            1 => self.insert_varint(bytes),
            _ => self.overwrite_integer(bytes),
        }
    }

    fn flip(&mut self, bytes: &mut [u8]) {
        let (index, bit) = (self.below(bytes.len()), self.below(8));
        if let Some(byte) = bytes.get_mut(index) {
            *byte ^= 1 << bit;
        }
    }

    fn overwrite_byte(&mut self, bytes: &mut [u8]) {
        let (index, value) = (self.below(bytes.len()), self.below(256) as u8);
        if let Some(byte) = bytes.get_mut(index) {
            *byte = value;
        }
    }

    /// A piece of the bytes: mostly short, sometimes of any length.
    fn piece(&mut self, bytes: &[u8]) -> std::ops::Range<usize> {
        let start = self.below(bytes.len() + 1);
        let longest = if self.below(4) == 0 { bytes.len() } else { 32 };
        start..(start + self.below(longest + 1)).min(bytes.len())
    }

    fn remove(&mut self, bytes: &mut Vec<u8>) {
        let piece = self.piece(bytes);
        bytes.drain(piece);
    }

    fn duplicate(&mut self, bytes: &mut Vec<u8>) {
        let copy = bytes[self.piece(bytes)].to_vec();
        self.insert(bytes, &copy);
    }

    fn insert(&mut self, bytes: &mut Vec<u8>, inserted: &[u8]) {
        let at = self.below(bytes.len() + 1);
        bytes.splice(at..at, inserted.iter().copied());
    }

    fn token(&mut self) -> Vec<u8> {
        if self.tokens.is_empty() || self.below(8) == 0 {
            return NUMBERS[self.below(NUMBERS.len())].as_bytes().to_vec();
        }
        let index = self.below(self.tokens.len());
        self.tokens[index].clone()
    }

    fn insert_token(&mut self, bytes: &mut Vec<u8>) {
        let token = self.token();
        self.insert(bytes, &token);
    }

    fn overwrite_with_token(&mut self, bytes: &mut Vec<u8>) {
        let token = self.token();
        let start = self.below(bytes.len() + 1);
        let end = (start + token.len()).min(bytes.len());
        bytes.splice(start..end, token);
    }

    /// The beginning of these bytes and the end of another entry.
    fn splice(&mut self, bytes: &mut Vec<u8>) {
        let other = self.entry();
        bytes.truncate(self.below(bytes.len() + 1));
        bytes.extend_from_slice(&other[self.below(other.len() + 1)..]);
    }

    fn insert_bytes(&mut self, bytes: &mut Vec<u8>) {
        let count = 1 + self.below(8);
        let inserted: Vec<u8> = (0..count).map(|_| self.below(256) as u8).collect();
        self.insert(bytes, &inserted);
    }

    /// A piece or a token many times over: depth and length. Thousands of times only now and then, since such
    /// inputs are slow.
    fn repeat(&mut self, bytes: &mut Vec<u8>) {
        let unit =
            if self.below(2) == 0 { self.token() } else { bytes[self.piece(bytes)].to_vec() };
        let times = if self.below(64) == 0 { LONGEST } else { 2 + self.below(30) };
        let times = times.min(LONGEST / unit.len().max(1));
        let repeated = unit.repeat(times);
        self.insert(bytes, &repeated);
    }

    /// Two pieces change places.
    fn shuffle(&mut self, bytes: &mut Vec<u8>) {
        let piece = self.piece(bytes);
        let moved: Vec<u8> = bytes.drain(piece).collect();
        self.insert(bytes, &moved);
    }

    fn swap_lines(&mut self, bytes: &mut Vec<u8>) {
        let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
        let (left, right) = (self.below(lines.len()), self.below(lines.len()));
        match self.below(3) {
            0 => lines.swap(left, right),
            1 => lines.insert(left, lines[right]),
            _ => drop(lines.remove(left)),
        }
        *bytes = lines.join(&b'\n');
    }

    /// A number of the text becomes another.
    fn replace_number(&mut self, bytes: &mut Vec<u8>) {
        let from = self.below(bytes.len());
        let is_digit = |byte: &u8| byte.is_ascii_digit();
        let Some(start) = bytes[from..].iter().position(is_digit).map(|at| from + at) else {
            return self.insert_token(bytes);
        };
        let rest = &bytes[start..];
        let length = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
        let number = NUMBERS[self.below(NUMBERS.len())];
        bytes.splice(start..start + length, number.bytes());
    }

    /// An integer of the file becomes a boundary, or the length of the file and its neighbours.
    fn overwrite_integer(&mut self, bytes: &mut [u8]) {
        let width = [1, 2, 4, 4, 8, 8][self.below(6)];
        let aligned = if self.below(4) == 0 { 1 } else { width };
        let start = self.below(bytes.len()) / aligned * aligned;
        let value = match self.below(4) {
            0 => (bytes.len() as u64).wrapping_add(self.below(5) as u64).wrapping_sub(2),
            _ => INTEGERS[self.below(INTEGERS.len())],
        };
        if let Some(place) = bytes.get_mut(start..start + width) {
            place.copy_from_slice(&value.to_le_bytes()[..width]);
        }
    }

    /// A length becomes a little longer or shorter.
    fn nudge(&mut self, bytes: &mut [u8]) {
        let (index, by) = (self.below(bytes.len()), 1 + self.below(16) as u8);
        let up = self.below(2) == 0;
        if let Some(byte) = bytes.get_mut(index) {
            *byte = if up { byte.wrapping_add(by) } else { byte.wrapping_sub(by) };
        }
    }

    fn insert_varint(&mut self, bytes: &mut Vec<u8>) {
        let mut value = INTEGERS[self.below(INTEGERS.len())];
        let mut varint = Vec::new();
        while value >= 0x80 {
            varint.push(value as u8 | 0x80);
            value >>= 7;
        }
        varint.push(value as u8);
        self.insert(bytes, &varint);
    }
}

/// The files of a folder, in the order of their names; none if there is no such folder.
pub fn entries(folder: &Path) -> Vec<Vec<u8>> {
    let Ok(found) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<_> = found.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).expect("a readable corpus")).collect()
}

/// The tokens of a target: a line each; `\n` is written as `\n`.
pub fn tokens(path: &Path) -> Vec<Vec<u8>> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.is_empty());
    lines.map(|line| line.replace("\\n", "\n").into_bytes()).collect()
}
