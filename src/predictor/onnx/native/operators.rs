//! Operators before and after the trees, as functions of cells. Each gives None for a use that it does not know.

use std::sync::Arc;

use hashbrown::HashMap;

use super::cells::{CellId, Norm, Op};
use super::program::{Operator, Program, RowTensor, Tensor};
use super::shapes;
use super::tensors::Constant;
use super::values::{Binary, ElementType, Lookup, Unary, Value, key, kind_of};
use super::{linear, trees};

/// The results of a node that is given these tensors.
pub(super) fn apply(
    program: &mut Program,
    node: Operator<'_>,
    given: &[Tensor],
) -> Option<Vec<Tensor>> {
    match node.operator {
        "TreeEnsembleClassifier" => return trees::classifier(program, node, given),
        "TreeEnsembleRegressor" | "TreeEnsemble" => return trees::regressor(program, node, given),
        "LinearClassifier" => return linear::classifier(program, node, given),
        "LinearRegressor" => return linear::regressor(program, node, given),
        "MatMul" | "Gemm" => return linear::product(program, node, given),
        _ => {}
    }
    if let [Tensor::Fixed(constant)] = given {
        return fixed(node, constant).map(|tensor| vec![Tensor::Fixed(tensor)]);
    }
    let made = match node.operator {
        "Identity" | "Dropout" => given.first()?.rows()?.clone(),
        "Concat" | "FeatureVectorizer" => shapes::concat(program, node, given)?,
        "Reshape" | "Flatten" | "Squeeze" | "Unsqueeze" => shapes::reshape(node, given)?,
        "Gather" | "ArrayFeatureExtractor" => shapes::pick(program, node, given)?,
        "Slice" => shapes::slice(node, given)?,
        "ReduceSum" => reduce_sum(program, node, given)?,
        "Where" => select(program, given)?,
        "ArgMax" => arg_max(program, node, given.first()?.rows()?)?,
        "Normalizer" => normalise(program, node, given.first()?.rows()?)?,
        "OneHotEncoder" => one_hot(program, node, given.first()?.rows()?)?,
        operator => match Binary::named(operator) {
            Some(function) => fold(program, function, given)?,
            None => each(program, node, given.first()?.rows()?)?,
        },
    };
    Some(vec![Tensor::Rows(made)])
}

/// A function of a constant, as far as exporters leave such in a graph.
fn fixed(node: Operator<'_>, constant: &Constant) -> Option<Constant> {
    match node.operator {
        "Identity" => Some(constant.clone()),
        "Cast" => {
            let kind = ElementType::of_element(node.integer("to")?)?;
            let values = constant.values.iter().map(|value| value.cast(kind)).collect();
            let text = kind == ElementType::Text || constant.kind == ElementType::Text;
            (!text).then(|| Constant { dims: constant.dims.clone(), kind, values })
        }
        _ => None,
    }
}

/// The same function of every cell.
fn each(program: &mut Program, node: Operator<'_>, rows: &RowTensor) -> Option<RowTensor> {
    let functions: Vec<Unary> = match node.operator {
        "Cast" => vec![cast(node, rows.kind)?],
        "Scaler" => scaler(node)?,
        "Imputer" => imputer(node, rows)?,
        "LabelEncoder" => vec![Unary::Lookup(Arc::new(label_encoder(program, node, rows.kind)?))],
        "Binarizer" => vec![Unary::Binarize(node.real("threshold").unwrap_or_default())],
        "IsNaN" => vec![Unary::IsNan],
        "Not" => vec![Unary::Not],
        "Neg" => vec![Unary::Neg],
        "Abs" => vec![Unary::Abs],
        "Sqrt" if rows.kind.is_real() => vec![Unary::Sqrt],
        _ => return None,
    };
    if rows.kind == ElementType::Text && !matches!(node.operator, "LabelEncoder" | "Cast") {
        return None;
    }
    let width = rows.dims.last().copied().unwrap_or(1).max(1);
    let of = |index: usize| match functions.len() {
        1 => Some(functions[0].clone()),
        count if count == width => Some(functions[index % width].clone()),
        _ => None,
    };
    let cells = rows.cells.iter().enumerate();
    let cells = cells
        .map(|(index, cell)| {
            let function = of(index)?;
            if function == Unary::Cast(rows.kind) {
                return Some(*cell);
            }
            Some(program.cells.unary(function, *cell))
        })
        .collect::<Option<Vec<CellId>>>()?;
    let kind = functions.first()?.kind(rows.kind);
    Some(RowTensor { dims: rows.dims.clone(), cells, kind })
}

/// Numbers have more than one text, so neither direction is recognised.
fn cast(node: Operator<'_>, from: ElementType) -> Option<Unary> {
    let to = ElementType::of_element(node.integer("to")?)?;
    ((to == ElementType::Text) == (from == ElementType::Text)).then_some(Unary::Cast(to))
}

fn scaler(node: Operator<'_>) -> Option<Vec<Unary>> {
    let (offsets, scales) = (node.reals("offset"), node.reals("scale"));
    let pairs = offsets.iter().zip(&scales).map(|(offset, scale)| Unary::Scale(*offset, *scale));
    (offsets.len() == scales.len() && !scales.is_empty()).then(|| pairs.collect())
}

fn imputer(node: Operator<'_>, rows: &RowTensor) -> Option<Vec<Unary>> {
    let pairs: Vec<Unary> = match rows.kind {
        ElementType::Float => {
            let replaced = Value::Float(node.real("replaced_value_float")?);
            let imputed = node.reals("imputed_value_floats").into_iter();
            imputed.map(|value| Unary::Impute(replaced, Value::Float(value))).collect()
        }
        ElementType::Int64 => {
            let replaced = Value::Int(node.integer("replaced_value_int64")?);
            let imputed = node.integers("imputed_value_int64s").into_iter();
            imputed.map(|value| Unary::Impute(replaced, Value::Int(value))).collect()
        }
        _ => return None,
    };
    (!pairs.is_empty()).then_some(pairs)
}

fn label_encoder(program: &mut Program, node: Operator<'_>, of: ElementType) -> Option<Lookup> {
    let keys = listed(program, node, "keys")?;
    let values = listed(program, node, "values")?;
    let result = kind_of(*values.first()?);
    let otherwise = otherwise(program, node, result)?;
    let fits = keys.len() == values.len() && kind_of(*keys.first()?) == of;
    let pairs: HashMap<u64, Value> = keys.iter().map(|known| key(*known)).zip(values).collect();
    // A key that is listed twice has one of two values.
    let lookup = Lookup { values: pairs, otherwise };
    (fits && lookup.values.len() == keys.len()).then_some(lookup)
}

/// The keys or values of an encoder.
fn listed(program: &mut Program, node: Operator<'_>, of: &str) -> Option<Vec<Value>> {
    let words = &mut program.words;
    let texts = node.texts(&format!("{of}_strings"));
    let mut all: Vec<Value> = texts.iter().map(|text| Value::Text(words.add(text))).collect();
    all.extend(node.integers(&format!("{of}_int64s")).into_iter().map(Value::Int));
    all.extend(node.reals(&format!("{of}_floats")).into_iter().map(Value::Float));
    if let Some(tensor) = node.constant(&format!("{of}_tensor"), words) {
        all.extend(tensor.values);
    }
    let one_kind = all.iter().all(|value| kind_of(*value) == kind_of(all[0]));
    (!all.is_empty() && one_kind).then_some(all)
}

fn otherwise(program: &mut Program, node: Operator<'_>, kind: ElementType) -> Option<Value> {
    if let Some(tensor) = node.constant("default_tensor", &mut program.words) {
        return tensor.values.first().copied().filter(|value| kind_of(*value) == kind);
    }
    Some(match kind {
        ElementType::Text => {
            Value::Text(program.words.add(node.text("default_string").unwrap_or("_Unused")))
        }
        ElementType::Int64 => Value::Int(node.integer("default_int64").unwrap_or(-1)),
        ElementType::Float => Value::Float(node.real("default_float").unwrap_or(-0.0)),
        _ => return None,
    })
}

/// A cell for each category.
fn one_hot(program: &mut Program, node: Operator<'_>, rows: &RowTensor) -> Option<RowTensor> {
    let texts = node.texts("cats_strings");
    let categories: Vec<Value> = if texts.is_empty() {
        node.integers("cats_int64s").into_iter().map(Value::Int).collect()
    } else {
        texts.iter().map(|text| Value::Text(program.words.add(text))).collect()
    };
    let text = kind_of(*categories.first()?) == ElementType::Text;
    if text != (rows.kind == ElementType::Text) {
        return None;
    }
    let mut cells = Vec::with_capacity(rows.cells.len() * categories.len());
    for cell in &rows.cells {
        let whole = if text { *cell } else { program.cells.cast(*cell, ElementType::Int64) };
        if node.integer("zeros") == Some(0) {
            let pairs = categories.iter().map(|known| (key(*known), Value::Bool(true))).collect();
            let known = Arc::new(Lookup { values: pairs, otherwise: Value::Bool(false) });
            let known = program.cells.unary(Unary::Lookup(known), whole);
            program.guards.push(known);
        }
        for category in &categories {
            cells.push(program.cells.unary(Unary::OneHot(*category), whole));
        }
    }
    let mut dims = rows.dims.clone();
    dims.push(categories.len());
    Some(RowTensor { dims, cells, kind: ElementType::Float })
}

/// A function of two tensors, or of more, from the left.
fn fold(program: &mut Program, function: Binary, given: &[Tensor]) -> Option<RowTensor> {
    let (first, rest) = given.split_first()?;
    if rest.is_empty() {
        return first.rows().cloned();
    }
    let mut left = first.clone();
    for right in rest {
        left = Tensor::Rows(shapes::pairs(program, function, &left, right)?);
    }
    left.rows().cloned()
}

fn select(program: &mut Program, given: &[Tensor]) -> Option<RowTensor> {
    let [which, one, two] = given else { return None };
    let dims = shapes::broadcast(&[which, one, two])?;
    let [which, one, two] = [which, one, two].map(|tensor| shapes::spread(program, tensor, &dims));
    let ((which, _), (one, kind), (two, other)) = (which?, one?, two?);
    let cells = which.into_iter().zip(one).zip(two);
    let cells = cells
        .map(|((which, one), two)| program.cells.add(Op::Select(which, one, two), kind))
        .collect();
    (kind == other).then_some(RowTensor { dims, cells, kind })
}

fn is_last_axis(axis: i64, rows: &RowTensor) -> bool {
    rows.dims.len() == 1 && (axis == 1 || axis == -1)
}

fn arg_max(program: &mut Program, node: Operator<'_>, rows: &RowTensor) -> Option<RowTensor> {
    let last = node.integer("select_last_index").unwrap_or(0) == 1;
    if !is_last_axis(node.integer("axis").unwrap_or(0), rows) || last || rows.cells.is_empty() {
        return None;
    }
    let dims = if node.integer("keepdims").unwrap_or(1) == 1 { vec![1] } else { Vec::new() };
    let best = program.cells.add(Op::ArgMax(rows.cells.clone().into()), ElementType::Int64);
    Some(RowTensor { dims, cells: vec![best], kind: ElementType::Int64 })
}

/// Of two cells at most: the order in which ONNX Runtime adds up more is its own affair.
fn reduce_sum(program: &mut Program, node: Operator<'_>, given: &[Tensor]) -> Option<RowTensor> {
    let rows = given.first()?.rows()?;
    let axes = match given.get(1) {
        Some(axes) => axes.fixed()?.integers()?,
        None => node.integers("axes"),
    };
    let [axis] = axes[..] else { return None };
    let ([one, two], true) = (&rows.cells[..], is_last_axis(axis, rows)) else { return None };
    let dims = if node.integer("keepdims").unwrap_or(1) == 1 { vec![1] } else { Vec::new() };
    let sum = program.cells.add(Op::Binary(Binary::Add, *one, *two), rows.kind);
    Some(RowTensor { dims, cells: vec![sum], kind: rows.kind })
}

fn normalise(program: &mut Program, node: Operator<'_>, rows: &RowTensor) -> Option<RowTensor> {
    let norm = match node.text("norm").unwrap_or("MAX") {
        "MAX" => Norm::Max,
        "L1" => Norm::L1,
        "L2" => Norm::L2,
        _ => return None,
    };
    if rows.kind != ElementType::Float || rows.dims.len() != 1 {
        return None;
    }
    let total = program.cells.add(Op::Total(norm, rows.cells.clone().into()), ElementType::Float);
    let normal =
        |cell: &CellId| program.cells.add(Op::Normal(norm, *cell, total), ElementType::Float);
    let cells = rows.cells.iter().map(normal).collect();
    Some(RowTensor { dims: rows.dims.clone(), cells, kind: ElementType::Float })
}
