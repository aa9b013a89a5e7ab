//! What every cell of every tensor of a recognised model is: a function of the cells before it.

use std::collections::BTreeSet;

use super::values::{Binary, ElementType, Unary, Value};

/// Position of a cell among all cells of a model; what it depends on comes before it.
pub(super) type CellId = u32;

/// One column of a tensor.
#[derive(Debug, Clone)]
pub(super) struct CellNode {
    pub(super) op: Op,
    pub(super) kind: ElementType,
}

/// Where a cell's value comes from.
#[derive(Debug, Clone)]
pub(super) enum Op {
    /// An element of the model's inputs.
    Slot(u32),
    Constant(Value),
    Unary(Unary, CellId),
    Binary(Binary, CellId, CellId),
    /// The second where the first is true, else the third.
    Select(CellId, CellId, CellId),
    /// Position of the highest value; the first of equals.
    ArgMax(Box<[CellId]>),
    /// What the values are divided by to be normalised.
    Total(Norm, Box<[CellId]>),
    /// A value, normalised by a total.
    Normal(Norm, CellId, CellId),
    /// A score of one of the model's ensembles or linear functions.
    Score {
        model: u32,
        output: u32,
    },
    /// The label that one of them gives.
    Label(u32),
}

/// How `Normalizer` scales a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Norm {
    Max,
    L1,
    L2,
}

impl Op {
    /// The cells that it takes its values from.
    pub(super) fn arguments(&self) -> Vec<CellId> {
        match self {
            Op::Slot(_) | Op::Constant(_) | Op::Score { .. } | Op::Label(_) => Vec::new(),
            Op::Unary(_, of) => vec![*of],
            Op::Binary(_, one, two) | Op::Normal(_, one, two) => vec![*one, *two],
            Op::Select(which, one, two) => vec![*which, *one, *two],
            Op::ArgMax(all) | Op::Total(_, all) => all.to_vec(),
        }
    }

    /// Its value, given those of the cells before it. Slots, scores and labels are given from outside.
    fn value(&self, cells: &[Value], given: Value) -> Value {
        let at = |cell: &CellId| cells[*cell as usize];
        match self {
            Op::Slot(_) | Op::Score { .. } | Op::Label(_) => given,
            Op::Constant(value) => *value,
            Op::Unary(function, of) => function.apply(at(of)),
            Op::Binary(function, one, two) => function.apply(at(one), at(two)),
            Op::Select(which, one, two) if at(which) == Value::Bool(true) => {
                let _ = two;
                at(one)
            }
            Op::Select(_, _, two) => at(two),
            Op::ArgMax(all) => Value::Int(arg_max(all.iter().map(at))),
            Op::Total(norm, all) => Value::Float(norm.total(all.iter().map(at))),
            Op::Normal(norm, one, total) => Value::Float(norm.apply(at(one), at(total).single())),
        }
    }
}

fn arg_max(values: impl Iterator<Item = Value>) -> i64 {
    let (mut best, mut highest) = (0, f64::NAN);
    for (index, value) in values.enumerate() {
        if index == 0 || value.real() > highest {
            (best, highest) = (index as i64, value.real());
        }
    }
    best
}

impl Norm {
    fn total(self, values: impl Iterator<Item = Value>) -> f32 {
        let singles = values.map(Value::single);
        match self {
            Norm::Max => singles.fold(f32::MIN, |max, x| if max < x { x } else { max }),
            Norm::L1 => singles.fold(0.0, |sum, x| sum + x.abs()),
            Norm::L2 => singles.fold(0.0, |sum, x| sum + x * x),
        }
    }

    fn apply(self, value: Value, total: f32) -> f32 {
        let value = value.single();
        if total == 0.0 {
            return value;
        }
        match self {
            Norm::Max | Norm::L1 => value / total,
            Norm::L2 if value < 0.0 => -(value * value / total).sqrt(),
            Norm::L2 => (value * value / total).sqrt(),
        }
    }
}

/// All cells of a model.
#[derive(Debug, Clone, Default)]
pub(super) struct CellGraph(pub(super) Vec<CellNode>);

impl CellGraph {
    /// Adds a cell.
    pub(super) fn add(&mut self, op: Op, kind: ElementType) -> CellId {
        self.0.push(CellNode { op, kind });
        self.0.len() as CellId - 1
    }

    /// Adds a function of one cell.
    pub(super) fn unary(&mut self, function: Unary, of: CellId) -> CellId {
        let kind = function.kind(self.kind(of));
        self.add(Op::Unary(function, of), kind)
    }

    /// The cell as another type; the cell itself where it has that.
    pub(super) fn cast(&mut self, of: CellId, kind: ElementType) -> CellId {
        if self.kind(of) == kind { of } else { self.unary(Unary::Cast(kind), of) }
    }

    /// A cell's type.
    pub(super) fn kind(&self, cell: CellId) -> ElementType {
        self.0[cell as usize].kind
    }

    /// A cell's function.
    pub(super) fn op(&self, cell: CellId) -> &Op {
        &self.0[cell as usize].op
    }

    /// What must be computed to know these cells, in that order: they and all they depend on.
    pub(super) fn plan(&self, needed: impl IntoIterator<Item = CellId>) -> Plan {
        let mut plan = BTreeSet::new();
        let mut open: Vec<CellId> = needed.into_iter().collect();
        while let Some(cell) = open.pop() {
            if plan.insert(cell) {
                open.extend(self.op(cell).arguments());
            }
        }
        Plan(plan.into_iter().collect())
    }

    /// Computes a plan's cells. Those that are given from outside must be there already.
    pub(super) fn compute(&self, plan: &Plan, values: &mut [Value]) {
        for cell in &plan.0 {
            let at = *cell as usize;
            values[at] = self.0[at].op.value(values, values[at]);
        }
    }

    /// The slots among a plan's cells, each with its cell.
    pub(super) fn slots<'a>(&'a self, plan: &'a Plan) -> impl Iterator<Item = (u32, CellId)> + 'a {
        plan.0.iter().filter_map(|cell| match self.op(*cell) {
            Op::Slot(slot) => Some((*slot, *cell)),
            _ => None,
        })
    }

    /// Room for the values of all cells.
    pub(super) fn buffer(&self) -> Vec<Value> {
        vec![Value::Bool(false); self.0.len()]
    }
}

/// Cells in the order in which they are computed.
#[derive(Debug, Clone, Default)]
pub(super) struct Plan(pub(super) Vec<CellId>);
