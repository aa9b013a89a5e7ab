//! Linear classifiers and regressors, and products with a matrix that stands in the file. Products are added up
//! in the order and with the fused additions of ONNX Runtime's matrix kernels; what it does to scores with its
//! own approximations of `exp` may differ in the last bits.

use pulp::NullaryFnOnce;

use super::machine::{Machine, TypedModel};
use super::program::{Operator, Program, Submodel, Tensor};
use super::transform::Transform;
use super::trees::{LANES, Lanes, Real};
use super::values::{ElementType, Value};

/// Products that the kernels add up before they add the sum to the result.
const BLOCK: usize = 128;

/// A linear function of the cells, for each of some outputs.
#[derive(Debug)]
pub(super) struct Linear<T> {
    looks: Vec<(u32, bool)>,
    /// By output and cell.
    coefficients: Vec<T>,
    intercepts: Vec<T>,
    transform: Transform,
    /// Whether the one output is the score of the second of two classes.
    second: bool,
    labelled: bool,
}

impl<T: Real> Linear<T> {
    fn new(coefficients: Vec<T>, intercepts: Vec<T>, width: usize) -> Option<Linear<T>> {
        let fits = !intercepts.is_empty() && coefficients.len() == width * intercepts.len();
        fits.then(|| Linear {
            looks: (0..width as u32).map(|cell| (cell, false)).collect(),
            coefficients,
            intercepts,
            transform: Transform::None,
            second: false,
            labelled: false,
        })
    }

    pub(super) fn looks(&self) -> &[(u32, bool)] {
        &self.looks
    }

    pub(super) fn outputs(&self) -> usize {
        self.intercepts.len() + usize::from(self.second)
    }

    pub(super) fn score(
        &self,
        tiles: &[Lanes<T>],
        rows: usize,
        mut write: impl FnMut(usize, &[T], u32),
    ) {
        let mut sums = vec![[T::default(); LANES]; self.intercepts.len()];
        let mut row = Vec::with_capacity(self.outputs());
        for (first, tile) in (0..rows).step_by(LANES).zip(tiles.chunks_exact(self.looks.len() + 1))
        {
            pulp::Arch::new().dispatch(Sum { linear: self, tile: &tile[1..], sums: &mut sums });
            for lane in 0..LANES.min(rows - first) {
                row.clear();
                row.extend(sums.iter().map(|sums| sums[lane]));
                let label = self.finish(&mut row);
                write(first + lane, &row, label);
            }
        }
    }

    #[inline(always)]
    fn sum(&self, tile: &[Lanes<T>], sums: &mut [Lanes<T>]) {
        let width = self.looks.len().max(1);
        let outputs = self.coefficients.chunks_exact(width).zip(&self.intercepts).zip(sums);
        for ((coefficients, intercept), sums) in outputs {
            *sums = [*intercept; LANES];
            for (cells, coefficients) in tile.chunks(BLOCK).zip(coefficients.chunks(BLOCK)) {
                let mut block = [T::default(); LANES];
                for (cell, coefficient) in cells.iter().zip(coefficients) {
                    for (sum, x) in block.iter_mut().zip(cell) {
                        *sum = x.fused(*coefficient, *sum);
                    }
                }
                sums.iter_mut().zip(block).for_each(|(sum, block)| *sum += block);
            }
        }
    }

    /// Turns a row's sums into its scores; gives the position of its label.
    fn finish(&self, row: &mut Vec<T>) -> u32 {
        if let [score] = row[..] {
            if self.transform == Transform::Probit {
                row[0] = super::transform::probit(score);
            } else if self.second {
                row.insert(0, T::ONE - score);
            }
            return u32::from(score > T::default());
        }
        let label = if self.labelled { highest(row) } else { 0 };
        self.transform.apply(row);
        label
    }
}

/// A sum, as a type: a closure would not be inlined, and lose the wider instructions.
struct Sum<'a, T> {
    linear: &'a Linear<T>,
    tile: &'a [Lanes<T>],
    sums: &'a mut [Lanes<T>],
}

impl<T: Real> NullaryFnOnce for Sum<'_, T> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        self.linear.sum(self.tile, self.sums);
    }
}

/// Position of the highest score; the first of equals.
fn highest<T: Real>(scores: &[T]) -> u32 {
    let best =
        (1..scores.len()).fold(0, |best, at| if scores[at] > scores[best] { at } else { best });
    best as u32
}

/// A `LinearClassifier` with the cells that it is given.
pub(super) fn classifier(
    program: &mut Program,
    node: Operator<'_>,
    given: &[Tensor],
) -> Option<Vec<Tensor>> {
    let texts = node.texts("classlabels_strings");
    let mut labels: Vec<Value> = if texts.is_empty() {
        node.integers("classlabels_ints").into_iter().map(Value::Int).collect()
    } else {
        texts.iter().map(|text| Value::Text(program.words.add(text))).collect()
    };
    let rows = matrix(given)?;
    let (coefficients, intercepts) = (node.reals("coefficients"), node.reals("intercepts"));
    let mut linear = Linear::<f32>::new(coefficients, intercepts, rows.cells.len())?;
    linear.transform = Transform::named(node.text("post_transform").unwrap_or("NONE"))?;
    linear.labelled = true;
    linear.second = linear.intercepts.len() == 1 && labels.len() == 2;
    if linear.intercepts.len() == 1 && labels.len() != 2 {
        labels = vec![Value::Int(0), Value::Int(1)];
    }
    let probit = linear.second && linear.transform == Transform::Probit;
    if probit || labels.len() != linear.outputs().max(2) {
        return None;
    }
    let inputs =
        rows.cells.iter().map(|cell| program.cells.cast(*cell, ElementType::Float)).collect();
    let outputs = linear.outputs();
    let machine = Machine::Single(TypedModel::Linear(linear));
    Some(program.add_submodel(Submodel { machine, inputs, labels }, outputs, ElementType::Float))
}

/// A `LinearRegressor` with the cells that it is given.
pub(super) fn regressor(
    program: &mut Program,
    node: Operator<'_>,
    given: &[Tensor],
) -> Option<Vec<Tensor>> {
    let rows = matrix(given)?;
    let targets = usize::try_from(node.integer("targets").unwrap_or(1)).ok()?;
    let mut intercepts = node.reals("intercepts");
    if intercepts.is_empty() {
        intercepts = vec![0.0; targets];
    }
    let mut linear = Linear::new(node.reals("coefficients"), intercepts, rows.cells.len())?;
    linear.transform = Transform::named(node.text("post_transform").unwrap_or("NONE"))?;
    let outputs = linear.outputs();
    if rows.kind != ElementType::Float || outputs != targets {
        return None;
    }
    let inputs = rows.cells.clone();
    let machine = Machine::Single(TypedModel::Linear(linear));
    Some(program.add_submodel(
        Submodel { machine, inputs, labels: Vec::new() },
        outputs,
        ElementType::Float,
    ))
}

/// A `MatMul` or `Gemm` with a matrix that stands in the file.
pub(super) fn product(
    program: &mut Program,
    node: Operator<'_>,
    given: &[Tensor],
) -> Option<Vec<Tensor>> {
    let rows = matrix(given.get(..1)?)?;
    let factors = given.get(1)?.fixed()?;
    let one = |name: &str| node.real(name).is_none_or(|factor| factor.to_bits() == 1f32.to_bits());
    let flagged = |name: &str| node.integer(name).unwrap_or(0) != 0;
    let (flat, turned) = (flagged("transA"), flagged("transB"));
    let [high, wide] = factors.dims[..] else { return None };
    let (width, outputs) = if turned { (wide, high) } else { (high, wide) };
    let added = match given.get(2) {
        Some(added) => added.fixed()?.values.clone(),
        None => Vec::new(),
    };
    let fits = width == rows.cells.len() && factors.kind == rows.kind && !flat;
    if !fits || !one("alpha") || !one("beta") || !(added.is_empty() || added.len() == outputs) {
        return None;
    }
    let at = |output: usize, cell: usize| {
        factors.values[if turned { output * width + cell } else { cell * outputs + output }]
    };
    let coefficients =
        (0..outputs).flat_map(|output| (0..width).map(move |cell| at(output, cell))).collect();
    let machine = if rows.kind == ElementType::Double {
        Machine::Double(TypedModel::Linear(plain(coefficients, added, (width, outputs))?))
    } else {
        Machine::Single(TypedModel::Linear(plain(coefficients, added, (width, outputs))?))
    };
    let inputs = rows.cells.clone();
    Some(program.add_submodel(Submodel { machine, inputs, labels: Vec::new() }, outputs, rows.kind))
}

fn plain<T: Real>(
    coefficients: Vec<Value>,
    added: Vec<Value>,
    (width, outputs): (usize, usize),
) -> Option<Linear<T>> {
    let of = |values: Vec<Value>| values.into_iter().map(T::of).collect::<Vec<T>>();
    let added = if added.is_empty() { vec![T::default(); outputs] } else { of(added) };
    Linear::new(of(coefficients), added, width)
}

/// The one tensor that is given, if it is a matrix of numbers.
fn matrix(given: &[Tensor]) -> Option<&super::program::RowTensor> {
    let [Tensor::Rows(rows)] = given else { return None };
    let numbers = matches!(
        rows.kind,
        ElementType::Float | ElementType::Double | ElementType::Int64 | ElementType::Int32
    );
    (rows.dims.len() == 1 && numbers).then_some(rows)
}
