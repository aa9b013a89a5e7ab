//! Operators that move cells without changing them, and how the shapes of two tensors go together.

use std::sync::Arc;

use super::cells::{CellId, Op};
use super::program::{Operator, Program, RowTensor, Tensor};
use super::tensors::Constant;
use super::values::{Binary, ElementType, Unary};

/// Rows beside each other.
pub(super) fn concat(
    program: &mut Program,
    node: Operator<'_>,
    given: &[Tensor],
) -> Option<RowTensor> {
    let all: Vec<&RowTensor> = given.iter().map(Tensor::rows).collect::<Option<_>>()?;
    let first = *all.first()?;
    let rank = first.dims.len() as i64 + 1;
    let axis = node.integer("axis").unwrap_or(1);
    let axis = usize::try_from(if axis < 0 { axis + rank } else { axis }).ok()?.checked_sub(1)?;
    let vectorized = node.operator == "FeatureVectorizer";
    let alike = |rows: &&RowTensor| {
        let others = |dims: &[usize]| -> Vec<usize> {
            dims.iter().enumerate().filter(|(at, _)| *at != axis).map(|(_, dim)| *dim).collect()
        };
        rows.dims.len() == first.dims.len()
            && axis < rows.dims.len()
            && others(&rows.dims) == others(&first.dims)
            && (vectorized || rows.kind == first.kind)
    };
    if !all.iter().all(alike) || (vectorized && rank != 2) {
        return None;
    }
    let kind = if vectorized { ElementType::Float } else { first.kind };
    let outer: usize = first.dims[..axis].iter().product();
    let mut cells = Vec::new();
    for block in 0..outer {
        for rows in &all {
            let inner: usize = rows.dims[axis..].iter().product();
            let taken = &rows.cells[block * inner..(block + 1) * inner];
            cells.extend(taken.iter().map(|cell| match vectorized {
                true => program.cells.cast(*cell, ElementType::Float),
                false => *cell,
            }));
        }
    }
    let mut dims = first.dims.clone();
    dims[axis] = all.iter().map(|rows| rows.dims[axis]).sum();
    Some(RowTensor { dims, cells, kind })
}

/// The same cells in another shape, the rows still first.
pub(super) fn reshape(node: Operator<'_>, given: &[Tensor]) -> Option<RowTensor> {
    let rows = given.first()?.rows()?;
    let axes = || match given.get(1) {
        Some(axes) => axes.fixed()?.integers(),
        None => Some(node.integers("axes")),
    };
    let rank = rows.dims.len() as i64 + 1;
    let count = rows.cells.len();
    let dims = match node.operator {
        "Flatten" if node.integer("axis").unwrap_or(1) == 1 => vec![count],
        "Reshape" => {
            let shape = match given.get(1) {
                Some(shape) => shape.fixed()?.integers()?,
                None => node.integers("shape"),
            };
            reshaped(&shape, &rows.dims, count)?
        }
        "Squeeze" => {
            let axes: Vec<i64> = axes()?.iter().map(|axis| axis.rem_euclid(rank)).collect();
            let kept = rows.dims.iter().zip(1..).filter(|(dim, at)| {
                let taken = axes.contains(at) || (axes.is_empty() && **dim == 1);
                !taken
            });
            kept.map(|(dim, _)| *dim).collect()
        }
        "Unsqueeze" => match axes()?[..] {
            [axis] if axis >= 1 && axis <= rank => {
                let mut dims = rows.dims.clone();
                dims.insert(axis as usize - 1, 1);
                dims
            }
            [-1] => rows.dims.iter().copied().chain([1]).collect(),
            _ => return None,
        },
        _ => return None,
    };
    (dims.iter().product::<usize>() == count).then(|| RowTensor { dims, ..rows.clone() })
}

/// The dimensions after the rows that a shape asks for.
fn reshaped(shape: &[i64], before: &[usize], count: usize) -> Option<Vec<usize>> {
    let (first, rest) = shape.split_first()?;
    let mut dims = Vec::new();
    for (at, dim) in rest.iter().enumerate() {
        dims.push(match dim {
            0 => *before.get(at)?,
            -1 if *first == 0 => {
                let others = rest.iter().filter(|dim| **dim > 0).product::<i64>() as usize;
                count.checked_div(others)?
            }
            dim => usize::try_from(*dim).ok()?,
        });
    }
    (matches!(first, -1 | 0)).then_some(dims)
}

/// Some of the cells; or, where the positions come from the rows, elements of a list.
pub(super) fn pick(
    program: &mut Program,
    node: Operator<'_>,
    given: &[Tensor],
) -> Option<RowTensor> {
    match given {
        [Tensor::Rows(rows), Tensor::Fixed(at)] => picked(node, rows, at),
        [Tensor::Fixed(list), Tensor::Rows(at)] if list.dims.len() <= 1 => {
            if !matches!(at.kind, ElementType::Int64 | ElementType::Int32) || list.values.is_empty()
            {
                return None;
            }
            let values: Arc<[_]> = list.values.clone().into();
            let pick = |cell: &CellId| program.cells.unary(Unary::Pick(values.clone()), *cell);
            let cells: Vec<CellId> = at.cells.iter().map(pick).collect();
            let kind = list.kind;
            Some(RowTensor { dims: at.dims.clone(), cells, kind })
        }
        _ => None,
    }
}

fn picked(node: Operator<'_>, rows: &RowTensor, at: &Constant) -> Option<RowTensor> {
    let rank = rows.dims.len() as i64 + 1;
    let axis = match node.operator {
        "ArrayFeatureExtractor" => rank - 1,
        _ => node.integer("axis").unwrap_or(0).rem_euclid(rank),
    };
    let width = *rows.dims.last()?;
    if axis != rank - 1 || width == 0 {
        return None;
    }
    let positions = at.integers()?;
    let positions = positions.iter().map(|at| if *at < 0 { at + width as i64 } else { *at });
    let positions: Vec<usize> = positions
        .map(|at| usize::try_from(at).ok().filter(|at| *at < width))
        .collect::<Option<_>>()?;
    let row = |row: &[CellId]| positions.iter().map(|at| row[*at]).collect::<Vec<_>>();
    let cells = rows.cells.chunks_exact(width).flat_map(row).collect();
    let mut dims = rows.dims[..rows.dims.len() - 1].to_vec();
    match (node.operator, &at.dims[..]) {
        ("Gather", []) => {}
        ("Gather", [count]) => dims.push(*count),
        ("ArrayFeatureExtractor", _) => dims.push(positions.len()),
        _ => return None,
    }
    Some(RowTensor { dims, cells, kind: rows.kind })
}

/// A stretch of the columns of a matrix.
pub(super) fn slice(node: Operator<'_>, given: &[Tensor]) -> Option<RowTensor> {
    let rows = given.first()?.rows()?;
    let numbers = |index: usize, name: &str| match given.get(index) {
        Some(tensor) => tensor.fixed()?.integers(),
        None => Some(node.integers(name)),
    };
    let (starts, ends, axes) = (numbers(1, "starts")?, numbers(2, "ends")?, numbers(3, "axes")?);
    let steps = numbers(4, "steps")?;
    let ([start], [end], [1 | -1], [] | [1]) = (&starts[..], &ends[..], &axes[..], &steps[..])
    else {
        return None;
    };
    let [width] = rows.dims[..] else { return None };
    let within = |at: i64| {
        let at = if at < 0 { at.saturating_add(width as i64) } else { at };
        at.clamp(0, width as i64) as usize
    };
    let cells = rows.cells.get(within(*start)..within(*end))?.to_vec();
    Some(RowTensor { dims: vec![cells.len()], cells, kind: rows.kind })
}

/// A tensor's dimensions after the rows, if it goes with rows of that rank.
fn inner(tensor: &Tensor, rank: usize) -> Option<Vec<usize>> {
    match tensor {
        Tensor::Rows(rows) => (rows.dims.len() + 1 == rank).then(|| rows.dims.clone()),
        Tensor::Fixed(constant) => match constant.dims.len() {
            given if given < rank => Some(constant.dims.clone()),
            given if given == rank && constant.dims[0] == 1 => Some(constant.dims[1..].to_vec()),
            _ => None,
        },
    }
}

/// The dimensions after the rows that some tensors take together.
pub(super) fn broadcast(all: &[&Tensor]) -> Option<Vec<usize>> {
    let rank =
        all.iter().filter_map(|tensor| tensor.rows()).map(|rows| rows.dims.len() + 1).max()?;
    let mut dims = vec![1; rank - 1];
    for tensor in all {
        let inner_dims = inner(tensor, rank)?;
        let behind = dims.len().checked_sub(inner_dims.len())?;
        for (dim, inner_dims) in dims[behind..].iter_mut().zip(inner_dims) {
            match (*dim, inner_dims) {
                (one, inner_dims) if one == inner_dims => {}
                (1, inner_dims) => *dim = inner_dims,
                (_, 1) => {}
                _ => return None,
            }
        }
    }
    Some(dims)
}

/// A tensor's cells, repeated to fill these dimensions, and their type.
pub(super) fn spread(
    program: &mut Program,
    tensor: &Tensor,
    dims: &[usize],
) -> Option<(Vec<CellId>, ElementType)> {
    let inner_dims = inner(tensor, dims.len() + 1)?;
    let (cells, kind) = match tensor {
        Tensor::Rows(rows) => (rows.cells.clone(), rows.kind),
        Tensor::Fixed(constant) => {
            let cell = |value| program.cells.add(Op::Constant(value), constant.kind);
            (constant.values.iter().copied().map(cell).collect(), constant.kind)
        }
    };
    let behind = dims.len() - inner_dims.len();
    let count: usize = dims.iter().product();
    let padded: Vec<usize> = std::iter::repeat_n(1, behind).chain(inner_dims).collect();
    let positions = (0..count).map(|index| {
        let (mut rest, mut at, mut stride) = (index, 0, 1);
        for (dim, inner_dims) in dims.iter().zip(&padded).rev() {
            at += if *inner_dims == 1 { 0 } else { rest % dim * stride };
            rest /= dim;
            stride *= inner_dims;
        }
        at
    });
    let cells = positions.map(|at| cells.get(at).copied()).collect::<Option<_>>()?;
    Some((cells, kind))
}

/// A function of two tensors, cell by cell.
pub(super) fn pairs(
    program: &mut Program,
    function: Binary,
    left: &Tensor,
    right: &Tensor,
) -> Option<RowTensor> {
    let dims = broadcast(&[left, right])?;
    let (ones, kind) = spread(program, left, &dims)?;
    let (twos, other) = spread(program, right, &dims)?;
    // Narrow whole numbers wrap, which nobody needs.
    if kind != other
        || (function.is_arithmetic() && matches!(kind, ElementType::Int32 | ElementType::Bool))
    {
        return None;
    }
    if kind == ElementType::Text && function != Binary::Equal {
        return None;
    }
    let result = if function.is_arithmetic() { kind } else { ElementType::Bool };
    let cells = ones.into_iter().zip(twos);
    let cells =
        cells.map(|(one, two)| program.cells.add(Op::Binary(function, one, two), result)).collect();
    Some(RowTensor { dims, cells, kind: result })
}
