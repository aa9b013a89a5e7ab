//! Recognises a graph: every tensor on the way to the outputs asked for becomes a list of cells, each a function of
//! single elements of the inputs, and the tree ensembles and linear functions among the operators are taken out.
//! Any operator that is not known, in any use that is not known, makes the graph unrecognised.

use std::collections::HashMap;

use super::super::graph::{Graph, GraphNode};
use super::cells::{CellGraph, CellId, Op};
use super::machine::Machine;
use super::operators;
use super::tensors::Constant;
use super::values::{ElementType, TextCodes, Value};

/// Operators between an input and an output, at most; deeper graphs are left to ONNX Runtime.
const DEEPEST: usize = 200;
/// Cells of all tensors, at most.
const MOST_CELLS: usize = 1 << 18;

/// A tensor whose first dimension is the rows of the batch.
#[derive(Debug, Clone)]
pub(super) struct RowTensor {
    /// The further dimensions.
    pub(super) dims: Vec<usize>,
    /// A row's elements, in order.
    pub(super) cells: Vec<CellId>,
    pub(super) kind: ElementType,
}

/// A tensor of a recognised graph.
#[derive(Debug, Clone)]
pub(super) enum Tensor {
    Rows(RowTensor),
    Fixed(Constant),
}

impl Tensor {
    /// The tensor, if it has a row for each of the batch.
    pub(super) fn rows(&self) -> Option<&RowTensor> {
        match self {
            Tensor::Rows(rows) => Some(rows),
            Tensor::Fixed(_) => None,
        }
    }

    /// The tensor, if it stands in the file.
    pub(super) fn fixed(&self) -> Option<&Constant> {
        match self {
            Tensor::Fixed(constant) => Some(constant),
            Tensor::Rows(_) => None,
        }
    }
}

/// An input tensor of the model.
#[derive(Debug, Clone)]
pub(super) struct Input {
    pub(super) name: String,
    pub(super) kind: ElementType,
    /// Without the rows.
    pub(super) dims: Vec<usize>,
    /// Its first element among all elements of all inputs.
    pub(super) slot: u32,
}

/// A tree ensemble or linear function, with the cells that it is given.
#[derive(Debug)]
pub(super) struct Submodel {
    pub(super) machine: Machine,
    pub(super) inputs: Vec<CellId>,
    /// The labels that its label cell takes, by position.
    pub(super) labels: Vec<Value>,
}

/// A recognised graph.
#[derive(Debug, Default)]
pub(super) struct Program {
    pub(super) cells: CellGraph,
    pub(super) submodels: Vec<Submodel>,
    /// Flags without which ONNX Runtime refuses a batch.
    pub(super) guards: Vec<CellId>,
    pub(super) words: TextCodes,
    pub(super) outputs: HashMap<String, RowTensor>,
}

impl Program {
    /// Recognises the way to these outputs of a graph.
    pub(super) fn read(graph: &Graph<'_>, inputs: &[Input], outputs: &[&str]) -> Option<Program> {
        let mut builder =
            Builder { graph, inputs, program: Program::default(), known: HashMap::new(), depth: 0 };
        for output in outputs {
            let rows = builder.tensor(output)?.rows()?.clone();
            builder.program.outputs.insert((*output).to_string(), rows);
        }
        let program = builder.program;
        (!program.submodels.is_empty() && program.is_staged()).then_some(program)
    }

    /// Whether no part is given what another one has made.
    fn is_staged(&self) -> bool {
        self.submodels.iter().all(|submodel| {
            let plan = self.cells.plan(submodel.inputs.iter().copied());
            let made =
                |cell: &CellId| matches!(self.cells.op(*cell), Op::Score { .. } | Op::Label(_));
            !plan.0.iter().any(made)
        })
    }
}

/// What is known while a graph is walked.
pub(super) struct Builder<'g> {
    graph: &'g Graph<'g>,
    inputs: &'g [Input],
    pub(super) program: Program,
    known: HashMap<&'g str, Tensor>,
    depth: usize,
}

impl<'g> Builder<'g> {
    /// The tensor of that name.
    fn tensor(&mut self, name: &'g str) -> Option<Tensor> {
        if let Some(known) = self.known.get(name) {
            return Some(known.clone());
        }
        let made = self.make(name)?;
        self.known.insert(name, made.clone());
        Some(made)
    }

    fn make(&mut self, name: &'g str) -> Option<Tensor> {
        if let Some(tensor) = self.graph.constants.get(name) {
            return Constant::read(tensor, &mut self.program.words).map(Tensor::Fixed);
        }
        if let Some(input) = self.inputs.iter().find(|input| input.name == name) {
            return Some(Tensor::Rows(self.input(input)));
        }
        let node = self.graph.producer(name)?;
        self.depth += 1;
        if self.depth > DEEPEST || self.program.cells.0.len() > MOST_CELLS {
            return None;
        }
        let given = node.inputs.iter().map(|input| self.argument(input));
        let given: Vec<Tensor> = given.collect::<Option<_>>()?;
        self.depth -= 1;
        let made = operators::apply(&mut self.program, node, &given)?;
        for (output, tensor) in node.outputs.iter().zip(made) {
            self.known.insert(output, tensor);
        }
        self.known.get(name).cloned()
    }

    /// An argument of a node; one that is left out is an empty constant.
    fn argument(&mut self, name: &'g str) -> Option<Tensor> {
        if name.is_empty() {
            let nothing = Constant { dims: vec![0], kind: ElementType::Float, values: Vec::new() };
            return Some(Tensor::Fixed(nothing));
        }
        self.tensor(name)
    }

    fn input(&mut self, input: &Input) -> RowTensor {
        let width: usize = input.dims.iter().product();
        let slots = input.slot..input.slot + width as u32;
        let cells = slots.map(|slot| self.program.cells.add(Op::Slot(slot), input.kind)).collect();
        RowTensor { dims: input.dims.clone(), cells, kind: input.kind }
    }
}

impl Program {
    /// Adds a part with that many scores; gives its labels, if it has any, and its scores.
    pub(super) fn add_submodel(
        &mut self,
        submodel: Submodel,
        width: usize,
        kind: ElementType,
    ) -> Vec<Tensor> {
        let model = self.submodels.len() as u32;
        let scores = (0..width as u32)
            .map(|output| self.cells.add(Op::Score { model, output }, kind))
            .collect();
        let scores = Tensor::Rows(RowTensor { dims: vec![width], cells: scores, kind });
        let label = submodel.labels.first().map(|label| super::values::kind_of(*label));
        let label = label.map(|kind| {
            let cells = vec![self.cells.add(Op::Label(model), kind)];
            Tensor::Rows(RowTensor { dims: Vec::new(), cells, kind })
        });
        self.submodels.push(submodel);
        label.into_iter().chain([scores]).collect()
    }
}

/// A node's own attributes, for the operators.
pub(super) type Operator<'a> = &'a GraphNode<'a>;
