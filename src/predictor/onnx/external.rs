//! The files that an ONNX model loads beside its own: weights that stand elsewhere ("external data").
//! Every tensor of the file is looked at, also those of loop bodies, branches and functions. What lies
//! outside the model's folder is refused before ONNX Runtime sees the model.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use super::graph::Graph;
use super::protobuf::{Field, Malformed, fields};
use crate::document::{inside, open_regular, read_regular};
use crate::error::{Error, Result};

// Field numbers of onnx.proto.
const MODEL_GRAPH: u64 = 7;
const MODEL_TRAINING: u64 = 20;
const MODEL_FUNCTION: u64 = 25;
const TRAINING_INITIALIZATION: u64 = 1;
const TRAINING_ALGORITHM: u64 = 2;
const FUNCTION_NODE: u64 = 7;
const FUNCTION_ATTRIBUTE: u64 = 11;
const GRAPH_NODE: u64 = 1;
const GRAPH_INITIALIZER: u64 = 5;
const GRAPH_SPARSE: u64 = 15;
const NODE_ATTRIBUTE: u64 = 5;
const ATTRIBUTE_TENSOR: u64 = 5;
const ATTRIBUTE_GRAPH: u64 = 6;
const ATTRIBUTE_TENSORS: u64 = 10;
const ATTRIBUTE_GRAPHS: u64 = 11;
const ATTRIBUTE_SPARSE: u64 = 22;
const ATTRIBUTE_SPARSES: u64 = 23;
const SPARSE_VALUES: u64 = 1;
const SPARSE_INDICES: u64 = 2;
const TENSOR_NAME: u64 = 8;
const TENSOR_EXTERNAL: u64 = 13;
const TENSOR_LOCATION: u64 = 14;
const ENTRY_KEY: u64 = 1;
const ENTRY_VALUE: u64 = 2;
const EXTERNAL: i32 = 1;

/// Messages inside each other that are looked into; protocol buffers themselves allow 100.
const DEEPEST: usize = 100;
/// Bytes of a model file: more cannot be in a protocol buffer.
const LARGEST: u64 = i32::MAX as u64;
/// Files that the weights may lie in.
const MOST_FILES: usize = 100_000;
/// Characters of a name from the file that are shown.
const SHOWN: usize = 80;

/// Location of a file → the first tensor that lies in it.
pub(super) type Locations = BTreeMap<String, String>;

/// A model as it was delivered.
pub(in crate::predictor) struct Delivered {
    /// The model file itself.
    pub(in crate::predictor) bytes: Vec<u8>,
    /// What it loads beside itself: name in the model → true path.
    pub(in crate::predictor) files: BTreeMap<String, PathBuf>,
}

/// Reads a model file, and finds what it loads beside itself.
///
/// # Errors
/// When it cannot be read, is no model, or names files that it may not.
pub(in crate::predictor) fn read(model: &Path) -> Result<Delivered> {
    let shown = model.display().to_string();
    let bytes = read_regular(model, LARGEST).map_err(|error| {
        let problem = match error.kind() {
            std::io::ErrorKind::InvalidInput => error.to_string(),
            _ => "cannot be read".to_string(),
        };
        Error::predictor(&shown, problem).source(error)
    })?;
    let locations = locations(&bytes).map_err(|error| broken(&shown, error))?;
    Ok(Delivered { files: files(model, &locations)?, bytes })
}

/// What stands in an ONNX file, as far as it is read here and not by ONNX Runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnnxFile {
    /// Names of the files that it loads beside itself, as written, in order.
    pub external: Vec<String>,
    /// The class labels, if its classifiers name the same.
    pub classes: Option<Vec<String>>,
    /// Size of the model without its `ZipMap`s, if it has some that can be taken away.
    pub unzipped_bytes: Option<usize>,
}

/// Reads the bytes of an ONNX file as opening a model does, without loading anything. Any bytes will do.
///
/// # Errors
/// When they are no model.
pub fn inspect_onnx(bytes: &[u8]) -> Result<OnnxFile> {
    let broken = |error| broken("model", error);
    let external = locations(bytes).map_err(broken)?.into_keys().collect();
    let graph = Graph::read(bytes).map_err(broken)?;
    let classes = graph.labels_anywhere();
    for output in graph.outputs() {
        graph.labels_behind(output);
        graph.gives_probabilities(output, 2);
    }
    let unzipped_bytes = graph.without_zipmap(bytes).map_err(broken)?.map(|copy| copy.len());
    Ok(OnnxFile { external, classes, unzipped_bytes })
}

pub(super) fn broken(model: &str, error: Malformed) -> Error {
    let problem = "cannot be read as an ONNX model; it is cut short or something else";
    Error::predictor(model, problem).source(error)
}

/// What kind of message is looked at.
#[derive(Clone, Copy)]
enum Message {
    Model,
    Training,
    Function,
    Graph,
    Node,
    Attribute,
    Sparse,
    Tensor,
}

impl Message {
    /// What a field of it is, if a tensor may be in there.
    fn part(self, number: u64) -> Option<Message> {
        Some(match (self, number) {
            (Message::Model, MODEL_GRAPH)
            | (Message::Training, TRAINING_INITIALIZATION | TRAINING_ALGORITHM)
            | (Message::Attribute, ATTRIBUTE_GRAPH | ATTRIBUTE_GRAPHS) => Message::Graph,
            (Message::Model, MODEL_TRAINING) => Message::Training,
            (Message::Model, MODEL_FUNCTION) => Message::Function,
            (Message::Function, FUNCTION_NODE) | (Message::Graph, GRAPH_NODE) => Message::Node,
            (Message::Function, FUNCTION_ATTRIBUTE) | (Message::Node, NODE_ATTRIBUTE) => {
                Message::Attribute
            }
            (Message::Graph, GRAPH_INITIALIZER)
            | (Message::Attribute, ATTRIBUTE_TENSOR | ATTRIBUTE_TENSORS)
            | (Message::Sparse, SPARSE_VALUES | SPARSE_INDICES) => Message::Tensor,
            (Message::Graph, GRAPH_SPARSE)
            | (Message::Attribute, ATTRIBUTE_SPARSE | ATTRIBUTE_SPARSES) => Message::Sparse,
            _ => return None,
        })
    }
}

/// The files that a model's bytes name, as they are written there.
///
/// # Errors
/// When the bytes are no model, or too deep.
pub(super) fn locations(model: &[u8]) -> Result<Locations, Malformed> {
    let mut found = Locations::new();
    visit(Message::Model, model, DEEPEST, &mut found)?;
    Ok(found)
}

fn visit(
    message: Message,
    bytes: &[u8],
    deeper: usize,
    found: &mut Locations,
) -> Result<(), Malformed> {
    if let Message::Tensor = message {
        return tensor(bytes, found);
    }
    let deeper = deeper.checked_sub(1).ok_or(Malformed)?;
    for field in fields(bytes) {
        let Field { number, value, .. } = field?;
        if let Some(part) = message.part(number) {
            visit(part, value.bytes(), deeper, found)?;
        }
    }
    Ok(())
}

fn tensor(bytes: &[u8], found: &mut Locations) -> Result<(), Malformed> {
    let (mut name, mut elsewhere, mut locations) = ("", false, Vec::new());
    for field in fields(bytes) {
        let Field { number, value, .. } = field?;
        match number {
            TENSOR_NAME => name = value.text()?,
            // Like every reader of protocol buffers: the last one counts, and its lower 32 bits.
            TENSOR_LOCATION => {
                elsewhere = value.integers()?.last().is_some_and(|kind| *kind as i32 == EXTERNAL);
            }
            TENSOR_EXTERNAL => locations.extend(location(value.bytes())?),
            _ => {}
        }
    }
    if !elsewhere {
        return Ok(());
    }
    if locations.is_empty() {
        locations.push("");
    }
    for location in locations {
        if !found.contains_key(location) {
            found.insert(location.to_string(), name.to_string());
        }
    }
    if found.len() > MOST_FILES { Err(Malformed) } else { Ok(()) }
}

/// The value of an entry whose key is `location`.
fn location(entry: &[u8]) -> Result<Option<&str>, Malformed> {
    let (mut key, mut content) = ("", "");
    for field in fields(entry) {
        let Field { number, value, .. } = field?;
        match number {
            ENTRY_KEY => key = value.text()?,
            ENTRY_VALUE => content = value.text()?,
            _ => {}
        }
    }
    Ok((key == "location").then_some(content))
}

/// The true paths of the files that a model loads, by their names in the model.
///
/// # Errors
/// When one is missing, is no file or lies outside the model's folder; names the tensor.
pub(super) fn files(model: &Path, locations: &Locations) -> Result<BTreeMap<String, PathBuf>> {
    let folder = model.parent().unwrap_or(Path::new(""));
    let path = |(location, tensor): (&String, &String)| {
        let refuse = |problem: &str| {
            let (tensor, location) = (shortened(tensor), shortened(location));
            let problem = format!("keeps the tensor `{tensor}` in `{location}`, {problem}");
            Error::predictor(model.display().to_string(), problem)
                .hint("keep the files of a model in one folder, or save it as a single file")
        };
        let name = Path::new(location);
        let plain = |part| matches!(part, Component::Normal(_) | Component::CurDir);
        if location.is_empty() || location.contains('\0') || !name.components().all(plain) {
            return Err(refuse("expected a file in the model's folder"));
        }
        let path = inside(folder, name).map_err(|error| refuse(&reason(&error)))?;
        open_regular(&path).map_err(|error| refuse(&reason(&error)))?;
        Ok((location.clone(), path))
    };
    locations.iter().map(path).collect()
}

fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "which does not exist".to_string(),
        std::io::ErrorKind::InvalidInput => format!("which {error}"),
        _ => format!("which cannot be read: {error}"),
    }
}

fn shortened(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN).flat_map(char::escape_default).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::super::protobuf::{write_bytes, write_integer};
    use super::*;

    /// A message with another one in it.
    fn holding(number: u64, inner: &[u8]) -> Vec<u8> {
        let mut message = Vec::new();
        write_bytes(&mut message, number, inner);
        message
    }

    fn external(name: &str, location: &str, kind: u64) -> Vec<u8> {
        let mut entry = holding(ENTRY_KEY, b"location");
        write_bytes(&mut entry, ENTRY_VALUE, location.as_bytes());
        let mut tensor = holding(TENSOR_NAME, name.as_bytes());
        write_bytes(&mut tensor, TENSOR_EXTERNAL, &entry);
        write_integer(&mut tensor, TENSOR_LOCATION, kind);
        tensor
    }

    fn found(model: &[u8]) -> Vec<(String, String)> {
        locations(model).expect("well formed").into_iter().collect()
    }

    #[test]
    fn tensors_are_found_wherever_they_stand() {
        let tensor = external("w", "w.bin", 1);
        let expected = [("w.bin".to_string(), "w".to_string())];
        let in_attribute = holding(NODE_ATTRIBUTE, &holding(ATTRIBUTE_TENSOR, &tensor));
        let graph = holding(GRAPH_INITIALIZER, &tensor);
        let branch = holding(NODE_ATTRIBUTE, &holding(ATTRIBUTE_GRAPHS, &graph));
        let sparse = holding(GRAPH_SPARSE, &holding(SPARSE_INDICES, &tensor));
        for model in [
            holding(MODEL_GRAPH, &graph),
            holding(MODEL_GRAPH, &holding(GRAPH_NODE, &in_attribute)),
            holding(MODEL_GRAPH, &holding(GRAPH_NODE, &branch)),
            holding(MODEL_GRAPH, &sparse),
            holding(MODEL_FUNCTION, &holding(FUNCTION_NODE, &in_attribute)),
            holding(MODEL_TRAINING, &holding(TRAINING_ALGORITHM, &graph)),
            // As a 32-bit number it is 1 too.
            holding(MODEL_GRAPH, &holding(GRAPH_INITIALIZER, &external("w", "w.bin", 1 << 32 | 1))),
        ] {
            assert_eq!(found(&model), expected);
        }
        let inside = holding(MODEL_GRAPH, &holding(GRAPH_INITIALIZER, &external("w", "x", 0)));
        assert_eq!(found(&inside), []);
    }

    #[test]
    fn depth_is_bounded() {
        let mut graph = holding(GRAPH_INITIALIZER, &external("w", "w.bin", 1));
        for _ in 0..20_000 {
            let node = holding(NODE_ATTRIBUTE, &holding(ATTRIBUTE_GRAPH, &graph));
            graph = holding(GRAPH_NODE, &node);
        }
        assert_eq!(locations(&holding(MODEL_GRAPH, &graph)), Err(Malformed));
    }

    #[test]
    fn files_outside_the_folder_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let model = folder.path().join("sub/model.onnx");
        std::fs::create_dir_all(folder.path().join("sub/dir")).expect("a folder");
        std::fs::write(folder.path().join("sub/w.bin"), "1").expect("written");
        std::fs::write(folder.path().join("outside.bin"), "1").expect("written");
        std::os::unix::fs::symlink("../outside.bin", folder.path().join("sub/link"))
            .expect("a link");
        let refused = |location: &str| {
            let locations = Locations::from([(location.to_string(), "w".to_string())]);
            files(&model, &locations).map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(refused("w.bin"), Ok(()));
        assert_eq!(refused("./w.bin"), Ok(()));
        for (location, said) in [
            ("../outside.bin", "expected a file in the model's folder"),
            ("/etc/hostname", "expected a file in the model's folder"),
            ("", "expected a file in the model's folder"),
            ("w.bin\0", "expected a file in the model's folder"),
            ("link", "outside its folder"),
            ("dir", "is a folder, expected a file"),
            ("none.bin", "which does not exist"),
            // Where ONNX Runtime would take the offset for an address in its own memory.
            ("*/_ORT_MEM_ADDR_/*", "which does not exist"),
        ] {
            let error = refused(location).expect_err("must be refused");
            assert!(error.contains("keeps the tensor `w` in") && error.contains(said), "{error}");
        }
    }
}
