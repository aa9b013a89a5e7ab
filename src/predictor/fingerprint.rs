//! Which model it is: a hash over every file that it is made of, as far as that can be known.
//!
//! An ONNX model is its file and the files with weights that this one names. A program is its command, in
//! which a word that names a file or a folder stands for the content: the same program at another place is
//! the same model. What a program loads by itself (an interpreter found by `PATH`, modules beside a script)
//! cannot be known.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::onnx::read_delivered;
use crate::document::open_regular;
use crate::error::{Error, Result};
use crate::job::{PredictorJob, PredictorKind, SubprocessJob};

/// Read at a time.
const CHUNK: usize = 1 << 20;
/// Files of a folder that a command names, at most.
const MOST_FILES: usize = 10_000;
/// Bytes of such a folder, at most.
const MOST_BYTES: u64 = 16 << 30;
/// Folders inside each other, at most.
const DEEPEST: usize = 32;

/// SHA-256 of everything that the model of a job is made of, as hexadecimal digits.
///
/// # Errors
/// When a file cannot be read, or an ONNX file names others that it may not.
pub fn fingerprint(job: &PredictorJob) -> Result<String> {
    match &job.kind {
        PredictorKind::Onnx(model) => onnx(&model.model),
        PredictorKind::Subprocess(program) => command(program),
    }
}

/// The files and folders that the model of a job is made of, as far as they can be found.
pub fn model_files(job: &PredictorJob) -> Vec<PathBuf> {
    match &job.kind {
        PredictorKind::Onnx(onnx) => {
            // One that cannot be read is told when the model is opened.
            let external = read_delivered(&onnx.model).map(|delivered| delivered.files);
            let external = external.into_iter().flatten().map(|(_, path)| path);
            [onnx.model.clone()].into_iter().chain(external).collect()
        }
        PredictorKind::Subprocess(program) => {
            let parts = program.command.iter().map(|word| CommandWord::of(word, program));
            parts.filter_map(|part| part.path).collect()
        }
    }
}

/// The hash of a single file is that which other tools give.
fn onnx(model: &Path) -> Result<String> {
    let delivered = read_delivered(model)?;
    let digest = Sha256::digest(&delivered.bytes);
    if delivered.files.is_empty() {
        return Ok(hex(&digest));
    }
    let mut hash = Sha256::new_with_prefix(b"onnx with external data\0");
    hash.update(digest);
    for (name, path) in &delivered.files {
        add(&mut hash, "file", name.as_bytes());
        let content = content(path).map_err(|error| cannot_read(path, &error))?;
        hash.update(content);
    }
    Ok(hex(&hash.finalize()))
}

fn command(program: &SubprocessJob) -> Result<String> {
    let mut hash = Sha256::new_with_prefix(b"command\0");
    for word in &program.command {
        let CommandWord { flag, name, path } = CommandWord::of(word, program);
        let Some(path) = path else {
            add(&mut hash, "word", word.as_bytes());
            continue;
        };
        add(&mut hash, "flag", flag.as_bytes());
        if path.is_dir() {
            add(&mut hash, "folder", name);
            hash.update(folder(&path)?);
        } else {
            add(&mut hash, "file", name);
            hash.update(content(&path).map_err(|error| cannot_read(&path, &error))?);
        }
    }
    Ok(hex(&hash.finalize()))
}

/// A word of a command, and what it names.
struct CommandWord<'a> {
    flag: &'a str,
    name: &'a [u8],
    /// The file or folder, if it names one.
    path: Option<PathBuf>,
}

impl<'a> CommandWord<'a> {
    fn of(word: &'a str, program: &SubprocessJob) -> CommandWord<'a> {
        // `--model=weights.bin` names a file too.
        let (flag, value) = match word.split_once('=') {
            Some((flag, value)) if flag.starts_with('-') => (flag, value),
            _ => ("", word),
        };
        let name = Path::new(value).file_name().unwrap_or_default().as_encoded_bytes();
        let path = program.folder.join(value);
        let named = fs::metadata(&path)
            .is_ok_and(|found| found.is_file() || (found.is_dir() && may_be_model(&path, program)));
        CommandWord { flag, name, path: Some(path).filter(|_| named && !value.is_empty()) }
    }
}

/// Not the folder that the program is started in, nor one above it: results may be written there.
fn may_be_model(folder: &Path, program: &SubprocessJob) -> bool {
    let home = program.folder.canonicalize().unwrap_or_else(|_| program.folder.clone());
    folder.canonicalize().is_ok_and(|folder| !home.starts_with(folder))
}

/// Hash of the files of a folder, by name; hidden files and compiled Python are left out.
fn folder(root: &Path) -> Result<[u8; 32]> {
    let (mut files, mut bytes) = (Vec::new(), 0);
    let complete = list(root, DEEPEST, &mut (&mut files, &mut bytes))
        .map_err(|error| cannot_read(root, &error))?;
    let mut hash = Sha256::new();
    if !complete {
        let shown = root.display();
        tracing::warn!(
            "{shown}: has more than {MOST_FILES} files or {MOST_BYTES} bytes: changes in it are not noticed"
        );
        return Ok(hash.finalize().into());
    }
    files.sort();
    for path in files {
        let name = path.strip_prefix(root).unwrap_or(&path);
        add(&mut hash, "file", name.as_os_str().as_encoded_bytes());
        hash.update(content(&path).map_err(|error| cannot_read(&path, &error))?);
    }
    Ok(hash.finalize().into())
}

/// Adds the regular files below a folder; gives whether that was all.
fn list(
    folder: &Path,
    deeper: usize,
    found: &mut (&mut Vec<PathBuf>, &mut u64),
) -> io::Result<bool> {
    for entry in fs::read_dir(folder)? {
        let (entry, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        if name.as_encoded_bytes().starts_with(b".") || name == "__pycache__" {
            continue;
        }
        let link = fs::symlink_metadata(&entry)?.is_symlink();
        // What is behind a broken link cannot be read by the program either.
        let Ok(data) = fs::metadata(&entry) else { continue };
        if data.is_file() {
            found.0.push(entry);
            *found.1 = found.1.saturating_add(data.len());
            if found.0.len() > MOST_FILES || *found.1 > MOST_BYTES {
                return Ok(false);
            }
        } else if data.is_dir() && !link && (deeper == 0 || !list(&entry, deeper - 1, found)?) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// SHA-256 of a regular file.
fn content(path: &Path) -> io::Result<[u8; 32]> {
    let (mut file, _) = open_regular(path)?;
    let (mut hash, mut chunk) = (Sha256::new(), vec![0; CHUNK]);
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(hash.finalize().into()),
            read => hash.update(&chunk[..read]),
        }
    }
}

/// Adds a text in such a way that no two lists of texts look the same.
fn add(hash: &mut Sha256, kind: &str, text: &[u8]) {
    hash.update(kind);
    hash.update((text.len() as u64).to_le_bytes());
    hash.update(text);
}

fn cannot_read(path: &Path, error: &io::Error) -> Error {
    Error::predictor(path.display().to_string(), format!("cannot be read: {error}"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn program(folder: &Path, command: &[&str]) -> String {
        let program = SubprocessJob {
            command: command.iter().map(ToString::to_string).collect(),
            folder: folder.to_path_buf(),
            workers: 1,
            start_limit: Duration::from_secs(1),
            batch_limit: Duration::from_secs(1),
            retries: 0,
            max_failed_share: 0.0,
            environment: Vec::new(),
            sandbox: Default::default(),
            limits: Default::default(),
        };
        super::command(&program).expect("readable")
    }

    #[test]
    fn files_and_folders_of_a_command_count_by_content() {
        let folder = tempfile::tempdir().expect("a folder");
        let (at, write) = (folder.path(), |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            fs::write(path, text).expect("written");
        });
        write("scorer.py", "one");
        write("copy/scorer.py", "one");
        write("model/a/weights", "1");
        write("model/config", "2");
        let script = program(at, &["python", "scorer.py"]);
        assert_eq!(script, program(at, &["python", "copy/scorer.py"]));
        assert_ne!(script, program(at, &["python", "scorer.py", "-v"]));
        let words = ["python", "scorer.py", "model", "--dir=model"];
        let before = program(at, &words);
        write("model/.cache", "x");
        write("model/__pycache__/x.pyc", "x");
        assert_eq!(before, program(at, &words));
        write("model/a/weights", "3");
        let after = program(at, &words);
        assert_ne!(before, after);
        write("model/b", "");
        assert_ne!(after, program(at, &words));
        // Its own folder is where results are written.
        let digest = program(at, &["python", ".", "--out=.."]);
        write("out", "x");
        assert_eq!(digest, program(at, &["python", ".", "--out=.."]));
    }
}
