//! Tree ensembles: from the attributes of their operators to scores.

mod branchy;
mod finish;
mod forest;
mod masks;
mod raw;
mod read;
mod real;
mod walk;

pub(in super::super) use finish::Aim;
pub(super) use finish::Need;
pub(super) use forest::{Forest, ForestSums};
pub(super) use raw::{Branch, Mode, Raw, TreeNode};
pub(super) use real::Real;
pub(super) use walk::{LANES, Lanes};

use std::collections::HashSet;

use super::machine::{Machine, TypedModel};
use super::program::{Operator, Program, Submodel, Tensor};
use super::values::{ElementType, Value};
use finish::{Classifier, Finish};

/// A `TreeEnsembleClassifier` with the cells that it is given.
pub(super) fn classifier(
    program: &mut Program,
    node: Operator<'_>,
    given: &[Tensor],
) -> Option<Vec<Tensor>> {
    let texts = node.texts("classlabels_strings");
    let labels: Vec<Value> = if texts.is_empty() {
        node.integers("classlabels_int64s").into_iter().map(Value::Int).collect()
    } else {
        texts.iter().map(|text| Value::Text(program.words.add(text))).collect()
    };
    let outputs = labels.len();
    fn ready<T: Real>(raw: Raw<T>, features: usize) -> Option<TypedModel<T>> {
        Some(TypedModel::Trees(Forest::new(classified(raw).checked(features)?)?))
    }
    let ensemble = |double: bool, features: usize| {
        Some(if double {
            Machine::Double(ready(read::ensemble(node, "class", outputs)?, features)?)
        } else {
            Machine::Single(ready(read::ensemble(node, "class", outputs)?, features)?)
        })
    };
    if outputs < 2 {
        return None;
    }
    let classes: HashSet<i64> = node.integers("class_ids").into_iter().collect();
    // Where both of two classes have weights, ONNX Runtime gives 0 and 1, whatever the labels are.
    let plain = texts.is_empty() && outputs == 2 && classes.len() > 1;
    let labels = if plain { vec![Value::Int(0), Value::Int(1)] } else { labels };
    add(program, given, EnsembleOutputs { outputs, kind: ElementType::Float, labels }, ensemble)
}

/// The same with what follows from the weights of a classifier.
fn classified<T: Real>(raw: Raw<T>) -> Raw<T> {
    let classes: HashSet<u32> = raw.weights.iter().map(|(class, _)| *class).collect();
    let positive = raw.weights.iter().all(|(_, weight)| *weight >= T::default());
    let one_sided = raw.finish.outputs == 2 && classes.len() == 1;
    let finish = Finish { classifier: Some(Classifier { one_sided, positive }), ..raw.finish };
    Raw { finish, ..raw }
}

/// A `TreeEnsembleRegressor` or `TreeEnsemble` with the cells that it is given.
pub(super) fn regressor(
    program: &mut Program,
    node: Operator<'_>,
    given: &[Tensor],
) -> Option<Vec<Tensor>> {
    let newer = node.operator == "TreeEnsemble";
    let outputs =
        usize::try_from(node.integer("n_targets")?).ok().filter(|outputs| *outputs > 0)?;
    let ensemble = |double: bool, features: usize| {
        Some(if double {
            Machine::Double(targets(node, outputs, features)?)
        } else {
            Machine::Single(targets(node, outputs, features)?)
        })
    };
    let double = given.first()?.rows()?.kind == ElementType::Double;
    // The older operator gives single numbers whatever it is given.
    let kind = if newer && double { ElementType::Double } else { ElementType::Float };
    add(program, given, EnsembleOutputs { outputs, kind, labels: Vec::new() }, ensemble)
}

fn targets<T: Real>(node: Operator<'_>, outputs: usize, features: usize) -> Option<TypedModel<T>> {
    let newer = node.operator == "TreeEnsemble";
    let raw = if newer { read::newer(node) } else { read::ensemble(node, "target", outputs) };
    Some(TypedModel::Trees(Forest::new(raw?.checked(features)?)?))
}

/// What an ensemble gives: so many scores of a type, and its labels.
struct EnsembleOutputs {
    outputs: usize,
    kind: ElementType,
    labels: Vec<Value>,
}

/// Adds an ensemble to the program.
fn add(
    program: &mut Program,
    given: &[Tensor],
    outputs_of: EnsembleOutputs,
    ensemble: impl FnOnce(bool, usize) -> Option<Machine>,
) -> Option<Vec<Tensor>> {
    let EnsembleOutputs { outputs, kind, labels } = outputs_of;
    let [Tensor::Rows(rows)] = given else { return None };
    if rows.dims.len() != 1
        || !matches!(
            rows.kind,
            ElementType::Float | ElementType::Double | ElementType::Int64 | ElementType::Int32
        )
    {
        return None;
    }
    let double = rows.kind == ElementType::Double;
    let machine = ensemble(double, rows.cells.len())?;
    let inputs = match double {
        true => rows.cells.clone(),
        false => {
            rows.cells.iter().map(|cell| program.cells.cast(*cell, ElementType::Float)).collect()
        }
    };
    Some(program.add_submodel(Submodel { machine, inputs, labels }, outputs, kind))
}
