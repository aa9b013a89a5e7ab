//! What an ONNX file tells beyond what ONNX Runtime hands out: the class labels of a classifier, whether
//! its scores are probabilities, and how to get at the scores without the `ZipMap` in front of them.
//!
//! The answers are found by walking from an output back to the nodes that produce it. Only the top
//! graph is read, not the bodies of loops and branches.

use std::collections::{HashMap, HashSet};

use super::protobuf::{Field, Malformed, fields, write_bytes, write_integer};
use crate::job::MOST_CLASSES;

// Field numbers of onnx.proto.
const MODEL_FORMAT: u64 = 1;
const MODEL_GRAPH: u64 = 7;
const MODEL_OPERATORS: u64 = 8;
const OPERATORS_VERSION: u64 = 2;
const GRAPH_NODE: u64 = 1;
const GRAPH_NAME: u64 = 2;
const GRAPH_INITIALIZER: u64 = 5;
const GRAPH_INPUT: u64 = 11;
const GRAPH_OUTPUT: u64 = 12;
const NODE_INPUT: u64 = 1;
const NODE_OUTPUT: u64 = 2;
const NODE_OP_TYPE: u64 = 4;
const NODE_ATTRIBUTE: u64 = 5;
const ATTRIBUTE_NAME: u64 = 1;
const ATTRIBUTE_TEXT: u64 = 4;
const ATTRIBUTE_TENSOR: u64 = 5;
const ATTRIBUTE_FLOATS: u64 = 7;
const ATTRIBUTE_INTS: u64 = 8;
const ATTRIBUTE_STRINGS: u64 = 9;
const TENSOR_TYPE: u64 = 2;
const TENSOR_INT32: u64 = 5;
const TENSOR_STRING: u64 = 6;
const TENSOR_INT64: u64 = 7;
const TENSOR_NAME: u64 = 8;
const TENSOR_RAW: u64 = 9;
const VALUE_NAME: u64 = 1;
const VALUE_TYPE: u64 = 2;
const TYPE_TENSOR: u64 = 1;
const TENSOR_TYPE_ELEMENT: u64 = 1;
const ELEMENT_FLOAT: u64 = 1;
const ELEMENT_INT32: i64 = 6;
const ELEMENT_INT64: i64 = 7;
const ELEMENT_TEXT: u64 = 8;

/// Attributes under which classifier nodes keep their labels.
const LABEL_ATTRIBUTES: [&str; 3] =
    ["classlabels_int64s", "classlabels_ints", "classlabels_strings"];

/// The top graph of a model.
pub(super) struct Graph<'a> {
    nodes: Vec<GraphNode<'a>>,
    /// Constant tensors by name.
    pub(super) constants: HashMap<&'a str, &'a [u8]>,
    /// Which node makes a value.
    producers: HashMap<&'a str, usize>,
    outputs: Vec<&'a str>,
}

#[derive(Default)]
pub(super) struct GraphNode<'a> {
    pub(super) operator: &'a str,
    pub(super) inputs: Vec<&'a str>,
    pub(super) outputs: Vec<&'a str>,
    attributes: Vec<(&'a str, &'a [u8])>,
}

impl<'a> Graph<'a> {
    /// Reads the graph of a model file.
    ///
    /// # Errors
    /// When the bytes are not an ONNX model.
    pub(super) fn read(model: &'a [u8]) -> Result<Graph<'a>, Malformed> {
        let mut graph = Graph {
            nodes: Vec::new(),
            constants: HashMap::new(),
            producers: HashMap::new(),
            outputs: Vec::new(),
        };
        let mut found = false;
        for field in fields(model) {
            let field = field?;
            if field.number == MODEL_GRAPH {
                found = true;
                graph.add(field.value.bytes())?;
            }
        }
        if found { Ok(graph) } else { Err(Malformed) }
    }

    fn add(&mut self, graph: &'a [u8]) -> Result<(), Malformed> {
        for field in fields(graph) {
            let Field { number, value, .. } = field?;
            match number {
                GRAPH_NODE => self.add_node(GraphNode::read(value.bytes())?),
                GRAPH_INITIALIZER => {
                    let tensor = value.bytes();
                    self.constants.insert(text_field(tensor, TENSOR_NAME)?, tensor);
                }
                GRAPH_OUTPUT => self.outputs.push(text_field(value.bytes(), VALUE_NAME)?),
                _ => {}
            }
        }
        Ok(())
    }

    fn add_node(&mut self, node: GraphNode<'a>) {
        for output in &node.outputs {
            self.producers.insert(output, self.nodes.len());
            if let ("Constant", Some(tensor)) = (node.operator, node.tensor("value")) {
                self.constants.insert(output, tensor);
            }
        }
        self.nodes.push(node);
    }

    /// Whether it has trees or linear functions.
    pub(super) fn has_trees(&self) -> bool {
        const OPERATORS: [&str; 5] = [
            "TreeEnsembleClassifier",
            "TreeEnsembleRegressor",
            "TreeEnsemble",
            "LinearClassifier",
            "LinearRegressor",
        ];
        self.nodes.iter().any(|node| OPERATORS.contains(&node.operator))
    }

    /// Names of the outputs.
    pub(super) fn outputs(&self) -> &[&'a str] {
        &self.outputs
    }

    /// The class labels that reach the output with the row's label.
    pub(super) fn labels_behind(&self, output: &str) -> Option<Vec<String>> {
        let mut name = output;
        // A broken file may close the chain to a ring.
        for _ in 0..LONGEST_CHAIN {
            let node = self.producer(name)?;
            if let Some(labels) = node.labels() {
                return Some(labels);
            }
            match node.operator {
                "Identity" | "Cast" | "Reshape" | "Squeeze" | "Unsqueeze" | "Flatten" => {
                    name = node.inputs.first()?;
                }
                // Labels looked up by the position of the best score.
                "ArrayFeatureExtractor" | "Gather" => {
                    return tensor_labels(self.constants.get(node.inputs.first()?)?);
                }
                _ => return None,
            }
        }
        None
    }

    /// The class labels of all classifiers in the graph, if they agree.
    pub(super) fn labels_anywhere(&self) -> Option<Vec<String>> {
        let mut all = self.nodes.iter().filter_map(GraphNode::labels);
        let first = all.next()?;
        all.all(|labels| labels == first).then_some(first)
    }

    /// Whether the scores in this output are probabilities of that many classes, as far as the
    /// operators tell. What is doubtful counts as one: scoring checks every row and says so, whereas
    /// probabilities that are dropped here would be missed by nobody.
    pub(super) fn gives_probabilities(&self, output: &str, classes: usize) -> bool {
        // Breadth first, and no operator twice: graphs with many crossings have more paths than can be walked.
        let mut seen = HashSet::new();
        let mut names = vec![output];
        for _ in 0..LONGEST_TRACE {
            let mut further = Vec::new();
            for name in names {
                let Some(index) = self.producers.get(name).filter(|index| seen.insert(**index))
                else {
                    continue;
                };
                let node = &self.nodes[*index];
                match node.scores(classes) {
                    ScoreOrigin::Known(probable) if probable => return true,
                    ScoreOrigin::Known(_) => {}
                    ScoreOrigin::First => further.extend(node.inputs.first().copied()),
                    ScoreOrigin::Any => further.extend(node.inputs.iter().copied()),
                }
            }
            names = further;
        }
        false
    }

    /// Walks back from every output; returns how many of them have labels. For fuzzing.
    pub(super) fn walk_outputs(&self) -> usize {
        let labelled = |output: &&&str| {
            let labels = self.labels_behind(output);
            self.gives_probabilities(output, labels.as_ref().map_or(2, Vec::len));
            labels.is_some()
        };
        self.outputs.iter().filter(labelled).count()
    }

    /// The node that makes a value.
    pub(super) fn producer(&self, name: &str) -> Option<&GraphNode<'a>> {
        self.producers.get(name).map(|index| &self.nodes[*index])
    }

    /// The outputs that a `ZipMap` makes, each with the tensor it is made from.
    fn zipped(&self) -> HashMap<&'a str, &'a str> {
        let consumed: HashSet<&str> =
            self.nodes.iter().flat_map(|node| node.inputs.iter().copied()).collect();
        let outputs: HashSet<&str> = self.outputs.iter().copied().collect();
        let zipmaps = self.nodes.iter().filter(|node| node.operator == "ZipMap");
        zipmaps
            .filter_map(|node| Some((*node.outputs.first()?, *node.inputs.first()?)))
            .filter(|(output, _)| outputs.contains(output) && !consumed.contains(output))
            .collect()
    }

    /// The same model with its `ZipMap` nodes taken away, so that the scores are a tensor: a map per row
    /// is the slowest part of many models. `None` if there is nothing to take away.
    pub(super) fn without_zipmap(&self, model: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
        let zipped = self.zipped();
        if zipped.is_empty() {
            return Ok(None);
        }
        let mut copy = Vec::with_capacity(model.len());
        for field in fields(model) {
            let field = field?;
            if field.number == MODEL_GRAPH {
                write_bytes(&mut copy, MODEL_GRAPH, &self.unzip(field.value.bytes(), &zipped)?);
            } else {
                copy.extend_from_slice(field.raw);
            }
        }
        Ok(Some(copy))
    }

    fn unzip(&self, graph: &[u8], zipped: &HashMap<&str, &str>) -> Result<Vec<u8>, Malformed> {
        let mut copy = Vec::with_capacity(graph.len());
        let outputs: HashSet<&str> = self.outputs.iter().copied().collect();
        for field in fields(graph) {
            let Field { number, value, raw } = field?;
            match number {
                GRAPH_NODE => {
                    let node = GraphNode::read(value.bytes())?;
                    if !node.outputs.iter().any(|output| zipped.contains_key(output)) {
                        copy.extend_from_slice(raw);
                    }
                }
                GRAPH_OUTPUT => match zipped.get(text_field(value.bytes(), VALUE_NAME)?) {
                    None => copy.extend_from_slice(raw),
                    Some(scores) if outputs.contains(scores) => {}
                    Some(scores) => {
                        write_bytes(&mut copy, GRAPH_OUTPUT, &declaration(scores, ELEMENT_FLOAT));
                    }
                },
                _ => copy.extend_from_slice(raw),
            }
        }
        Ok(copy)
    }
}

/// Scores are at most this many operators away from what makes them probabilities; it bounds the walk
/// through graphs with many crossings.
const LONGEST_TRACE: usize = 12;

/// Labels are at most this many operators away from the classifier.
const LONGEST_CHAIN: usize = 1000;

/// Where a node's scores come from.
enum ScoreOrigin {
    /// The node makes them: probabilities or not.
    Known(bool),
    /// Its first input.
    First,
    /// Any of its inputs.
    Any,
}

impl<'a> GraphNode<'a> {
    fn read(message: &'a [u8]) -> Result<GraphNode<'a>, Malformed> {
        let mut node = GraphNode::default();
        for field in fields(message) {
            let Field { number, value, .. } = field?;
            match number {
                NODE_INPUT => node.inputs.push(value.text()?),
                NODE_OUTPUT => node.outputs.push(value.text()?),
                NODE_OP_TYPE => node.operator = value.text()?,
                NODE_ATTRIBUTE => {
                    let name = text_field(value.bytes(), ATTRIBUTE_NAME)?;
                    node.attributes.push((name, value.bytes()));
                }
                _ => {}
            }
        }
        Ok(node)
    }

    /// The attribute's message.
    pub(super) fn attribute(&self, name: &str) -> Option<&'a [u8]> {
        self.attributes.iter().find(|(known, _)| *known == name).map(|(_, attribute)| *attribute)
    }

    fn tensor(&self, name: &str) -> Option<&'a [u8]> {
        let mut parts = fields(self.attribute(name)?).filter_map(Result::ok);
        parts.find(|part| part.number == ATTRIBUTE_TENSOR).map(|part| part.value.bytes())
    }

    fn has_floats(&self, name: &str) -> bool {
        let floats = self.attribute(name).unwrap_or_default();
        fields(floats).filter_map(Result::ok).any(|part| part.number == ATTRIBUTE_FLOATS)
    }

    /// Whether the classifier itself turns its sums into a distribution; `None` if it leaves them alone.
    fn normalised(&self, classes: usize) -> Option<bool> {
        let transform = self.attribute("post_transform")?;
        match text_field(transform, ATTRIBUTE_TEXT).ok()? {
            // Each class on its own: more than two do not add up to one.
            "LOGISTIC" => Some(classes <= 2),
            "SOFTMAX" | "SOFTMAX_ZERO" => Some(true),
            "PROBIT" => Some(false),
            _ => None,
        }
    }

    /// Where its scores come from, and whether they are probabilities of that many classes.
    fn scores(&self, classes: usize) -> ScoreOrigin {
        match self.operator {
            "TreeEnsembleClassifier" => {
                ScoreOrigin::Known(self.normalised(classes).unwrap_or(true))
            }
            "LinearClassifier" => ScoreOrigin::Known(self.normalised(classes).unwrap_or(false)),
            // Platt's coefficients turn the margins into probabilities.
            "SVMClassifier" => {
                ScoreOrigin::Known(self.normalised(classes).unwrap_or(self.has_floats("prob_a")))
            }
            "Identity"
            | "Cast"
            | "Reshape"
            | "Squeeze"
            | "Unsqueeze"
            | "Flatten"
            | "Slice"
            | "Gather"
            | "ArrayFeatureExtractor"
            | "Transpose"
            | "Split" => ScoreOrigin::First,
            "Concat" | "Add" | "Sum" | "Sub" | "Mul" | "Mean" | "Where" => ScoreOrigin::Any,
            "MatMul"
            | "Gemm"
            | "Neg"
            | "Abs"
            | "Log"
            | "LogSoftmax"
            | "Relu"
            | "Tanh"
            | "LinearRegressor"
            | "TreeEnsembleRegressor"
            | "TreeEnsemble"
            | "SVMRegressor" => ScoreOrigin::Known(false),
            _ => ScoreOrigin::Known(true),
        }
    }

    /// The class labels of a classifier, as text.
    fn labels(&self) -> Option<Vec<String>> {
        let attributes = LABEL_ATTRIBUTES.iter().filter_map(|name| self.attribute(name));
        attributes.filter_map(attribute_labels).find(|labels| !labels.is_empty())
    }
}

/// At most one more than the classes that there may be: enough to see that they are too many.
fn attribute_labels(attribute: &[u8]) -> Option<Vec<String>> {
    let mut labels = Vec::new();
    for field in fields(attribute) {
        if labels.len() > MOST_CLASSES {
            break;
        }
        let Field { number, value, .. } = field.ok()?;
        match number {
            ATTRIBUTE_INTS => labels.extend(few(&value.integers().ok()?)),
            ATTRIBUTE_STRINGS => labels.push(value.text().ok()?.to_string()),
            _ => {}
        }
    }
    Some(labels)
}

fn few(numbers: &[i64]) -> impl Iterator<Item = String> {
    numbers.iter().take(MOST_CLASSES + 1).map(i64::to_string)
}

/// The entries of a constant tensor of text or whole numbers, as text.
fn tensor_labels(tensor: &[u8]) -> Option<Vec<String>> {
    let mut labels = Vec::new();
    let (mut element, mut raw): (i64, &[u8]) = (0, &[]);
    for field in fields(tensor) {
        if labels.len() > MOST_CLASSES {
            break;
        }
        let Field { number, value, .. } = field.ok()?;
        match number {
            TENSOR_TYPE => element = *value.integers().ok()?.first()?,
            TENSOR_STRING => labels.push(value.text().ok()?.to_string()),
            TENSOR_INT32 | TENSOR_INT64 => labels.extend(few(&value.integers().ok()?)),
            TENSOR_RAW => raw = value.bytes(),
            _ => {}
        }
    }
    match element {
        ELEMENT_INT32 => {
            let numbers = raw.as_chunks().0.iter().take(MOST_CLASSES + 1);
            labels.extend(numbers.map(|bytes| i32::from_le_bytes(*bytes).to_string()));
        }
        ELEMENT_INT64 => {
            let numbers = raw.as_chunks().0.iter().take(MOST_CLASSES + 1);
            labels.extend(numbers.map(|bytes| i64::from_le_bytes(*bytes).to_string()));
        }
        _ => {}
    }
    (!labels.is_empty()).then_some(labels)
}

/// The text in a message's field, empty if there is none.
fn text_field(message: &[u8], number: u64) -> Result<&str, Malformed> {
    for field in fields(message) {
        let field = field?;
        if field.number == number {
            return field.value.text();
        }
    }
    Ok("")
}

/// A model that looks texts up by their position: `texts[i] = distinct[codes[i]]`, in the shape of the
/// codes.
pub(super) fn gather_texts(distinct: &str, codes: &str, texts: &str) -> Vec<u8> {
    let (mut node, mut graph) = (Vec::new(), Vec::new());
    write_bytes(&mut node, NODE_INPUT, distinct.as_bytes());
    write_bytes(&mut node, NODE_INPUT, codes.as_bytes());
    write_bytes(&mut node, NODE_OUTPUT, texts.as_bytes());
    write_bytes(&mut node, NODE_OP_TYPE, b"Gather");
    write_bytes(&mut graph, GRAPH_NODE, &node);
    write_bytes(&mut graph, GRAPH_NAME, b"gather");
    write_bytes(&mut graph, GRAPH_INPUT, &declaration(distinct, ELEMENT_TEXT));
    write_bytes(&mut graph, GRAPH_INPUT, &declaration(codes, ELEMENT_INT64 as u64));
    write_bytes(&mut graph, GRAPH_OUTPUT, &declaration(texts, ELEMENT_TEXT));
    let (mut operators, mut model) = (Vec::new(), Vec::new());
    write_integer(&mut operators, OPERATORS_VERSION, 13);
    write_integer(&mut model, MODEL_FORMAT, 7);
    write_bytes(&mut model, MODEL_OPERATORS, &operators);
    write_bytes(&mut model, MODEL_GRAPH, &graph);
    model
}

/// The declaration of a tensor of unknown shape.
fn declaration(name: &str, element: u64) -> Vec<u8> {
    let (mut tensor, mut kind, mut value) = (Vec::new(), Vec::new(), Vec::new());
    write_integer(&mut tensor, TENSOR_TYPE_ELEMENT, element);
    write_bytes(&mut kind, TYPE_TENSOR, &tensor);
    write_bytes(&mut value, VALUE_NAME, name.as_bytes());
    write_bytes(&mut value, VALUE_TYPE, &kind);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(name: &str, number: u64, values: &[&[u8]]) -> Vec<u8> {
        let mut attribute = Vec::new();
        write_bytes(&mut attribute, ATTRIBUTE_NAME, name.as_bytes());
        for value in values {
            write_bytes(&mut attribute, number, value);
        }
        attribute
    }

    fn node(operator: &str, inputs: &[&str], outputs: &[&str], attributes: &[Vec<u8>]) -> Vec<u8> {
        let mut node = Vec::new();
        for (number, names) in [(NODE_INPUT, inputs), (NODE_OUTPUT, outputs)] {
            names.iter().for_each(|name| write_bytes(&mut node, number, name.as_bytes()));
        }
        write_bytes(&mut node, NODE_OP_TYPE, operator.as_bytes());
        attributes.iter().for_each(|given| write_bytes(&mut node, NODE_ATTRIBUTE, given));
        node
    }

    fn model(nodes: &[Vec<u8>], outputs: &[&str]) -> Vec<u8> {
        let (mut graph, mut model) = (Vec::new(), Vec::new());
        nodes.iter().for_each(|node| write_bytes(&mut graph, GRAPH_NODE, node));
        outputs.iter().for_each(|name| {
            write_bytes(&mut graph, GRAPH_OUTPUT, &declaration(name, ELEMENT_FLOAT));
        });
        write_integer(&mut model, 1, 10);
        write_bytes(&mut model, MODEL_GRAPH, &graph);
        model
    }

    fn classifier(operator: &str, transform: &str) -> Vec<u8> {
        let labels = attribute("classlabels_strings", ATTRIBUTE_STRINGS, &[b"no", b"yes"]);
        let transform = attribute("post_transform", ATTRIBUTE_TEXT, &[transform.as_bytes()]);
        node(operator, &["X"], &["label", "scores"], &[labels, transform])
    }

    #[test]
    fn margins_and_probabilities_are_told_apart() {
        for (operator, transform, classes, expected) in [
            ("LinearClassifier", "NONE", 2, false),
            ("LinearClassifier", "LOGISTIC", 2, true),
            ("LinearClassifier", "LOGISTIC", 3, false),
            ("LinearClassifier", "SOFTMAX", 3, true),
            ("TreeEnsembleClassifier", "NONE", 3, true),
            ("TreeEnsembleClassifier", "LOGISTIC", 2, true),
            ("SVMClassifier", "NONE", 2, false),
        ] {
            let bytes = model(
                &[
                    classifier(operator, transform),
                    node("ArrayFeatureExtractor", &["scores", "one"], &["margin"], &[]),
                    node("Normalizer", &["scores"], &["normal"], &[]),
                ],
                &["margin", "normal"],
            );
            let graph = Graph::read(&bytes).expect("a model");
            let case = format!("{operator} {transform} {classes}");
            assert_eq!(graph.gives_probabilities("margin", classes), expected, "{case}");
            assert!(graph.gives_probabilities("normal", classes), "{case}");
        }
    }

    #[test]
    fn a_zipmap_is_taken_away() {
        let bytes = model(
            &[
                classifier("LinearClassifier", "SOFTMAX"),
                node("ZipMap", &["scores"], &["maps"], &[]),
            ],
            &["label", "maps"],
        );
        let graph = Graph::read(&bytes).expect("a model");
        let copy = graph.without_zipmap(&bytes).expect("well formed").expect("a zipmap");
        let copy = Graph::read(&copy).expect("a model");
        assert_eq!(copy.outputs, ["label", "scores"]);
        assert_eq!(copy.nodes.len(), 1);
        assert_eq!(copy.labels_behind("label").as_deref(), Some(&["no".into(), "yes".into()][..]));
    }

    #[test]
    fn a_ring_of_nodes_ends_the_walk() {
        let ring = [node("Cast", &["a"], &["b"], &[]), node("Add", &["b", "b"], &["a"], &[])];
        let bytes = model(&ring, &["a"]);
        let graph = Graph::read(&bytes).expect("a model");
        assert_eq!(graph.labels_behind("b"), None);
        assert!(!graph.gives_probabilities("a", 2));
    }

    #[test]
    fn a_graph_of_many_crossings_is_walked_once() {
        let names: Vec<String> = (0..200).map(|layer| format!("n{layer}")).collect();
        let nodes: Vec<Vec<u8>> = names
            .windows(2)
            .map(|pair| node("Concat", &[pair[0].as_str(); 300], &[&pair[1]], &[]))
            .collect();
        let bytes = model(&nodes, &["n11", "n199"]);
        let graph = Graph::read(&bytes).expect("a model");
        // One path after the other would be 300 to the power of 12.
        assert!(!graph.gives_probabilities("n199", 2));
    }

    #[test]
    fn no_more_labels_are_read_than_there_may_be() {
        let labels: Vec<Vec<u8>> = (0..5000).map(|label| format!("c{label}").into()).collect();
        let labels: Vec<&[u8]> = labels.iter().map(Vec::as_slice).collect();
        let labels = attribute("classlabels_strings", ATTRIBUTE_STRINGS, &labels);
        let bytes = model(&[node("LinearClassifier", &["X"], &["y"], &[labels])], &["y"]);
        let graph = Graph::read(&bytes).expect("a model");
        assert_eq!(graph.labels_behind("y").map(|labels| labels.len()), Some(MOST_CLASSES + 1));
    }

    #[test]
    fn what_is_no_model_is_refused() {
        assert!(Graph::read(b"").is_err());
        assert!(Graph::read(b"PAR1").is_err());
    }
}
