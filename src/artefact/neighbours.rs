//! Training rows and the model's decisions about them, kept with the generator: what counterfactuals are looked for
//! among. Numbers are standardised, and kept as they were beside that where it would lose a bit; categories are
//! codes.

use std::path::Path;

use tch::{Kind, Tensor};

use super::description::Description;
use super::files::{GENERATOR_FILE, NEIGHBOURS_FILE};
use crate::encode::Slots;
use crate::error::{Error, Result};
use crate::nearest::{PointColumn, Points};
use crate::nn::{file_hash, read_verified, refused, tensor, to_numbers, write_tensors};

/// Writes the rows, and gives the file's SHA-256.
pub(super) fn save(path: &Path, points: &Points) -> Result<String> {
    let mut numbers: Vec<f32> = Vec::new();
    let mut codes: Vec<i16> = Vec::new();
    for column in &points.columns {
        match column {
            PointColumn::Numbers(column) => numbers.extend(column),
            // The file's format has no unsigned numbers of this size; the bits are the same.
            PointColumn::Codes(column) => codes.extend(column.iter().map(|code| *code as i16)),
        }
    }
    let present = (0i64..).zip(&points.exact).filter(|(_, numbers)| !numbers.is_empty());
    let exact_features: Vec<i64> = present.map(|(feature, _)| feature).collect();
    write_tensors(
        path,
        &[
            ("numbers", Tensor::from_slice(&numbers)),
            ("codes", Tensor::from_slice(&codes)),
            ("decisions", Tensor::from_slice(&points.decisions)),
            ("exact", Tensor::from_slice(&points.exact.concat())),
            ("exact_features", Tensor::from_slice(&exact_features)),
        ],
    )?;
    file_hash(path)
}

/// Reads the training rows of a generator.
///
/// # Errors
/// When the file is missing or broken, or not the generator's.
pub fn load_neighbours(folder: &Path, description: &Description) -> Result<Points> {
    let path = folder.join(NEIGHBOURS_FILE);
    let Some(tensors) = read_verified(&path, &description.origin.neighbours)? else {
        let problem = format!("is not the file that `{GENERATOR_FILE}` describes");
        let shown = path.display().to_string();
        return Err(Error::input(shown, problem).hint("train the generator again"));
    };
    let flat = |name: &str, kind: Kind| -> Result<Tensor> {
        let tensor = tensor(&tensors, name, &path)?;
        tensor.f_to_kind(kind).and_then(|tensor| tensor.f_view([-1])).map_err(refused)
    };
    let decisions: Vec<f64> = Vec::try_from(flat("decisions", Kind::Double)?).map_err(refused)?;
    let numbers = to_numbers(tensor(&tensors, "numbers", &path)?)?;
    let codes: Vec<i16> = Vec::try_from(flat("codes", Kind::Int16)?).map_err(refused)?;
    let len = decisions.len();
    let (mut numbers, mut codes) =
        (numbers.chunks_exact(len.max(1)), codes.chunks_exact(len.max(1)));
    let column = |slots: &Slots| match slots {
        Slots::Numeric(_) => Some(PointColumn::Numbers(numbers.next()?.to_vec())),
        Slots::Categorical(_) => {
            Some(PointColumn::Codes(codes.next()?.iter().map(|code| *code as u16).collect()))
        }
    };
    let columns: Option<Vec<PointColumn>> = match len {
        0 => Some(Vec::new()),
        _ => description.layout.slots.iter().map(column).collect(),
    };
    let columns = columns.ok_or_else(|| {
        Error::input(path.display().to_string(), "has other features than its generator")
    })?;
    let exact: Vec<f64> = Vec::try_from(flat("exact", Kind::Double)?).map_err(refused)?;
    let present: Vec<i64> = Vec::try_from(flat("exact_features", Kind::Int64)?).map_err(refused)?;
    let exact = exact_columns(&exact, &present, &columns, len).ok_or_else(|| {
        Error::input(path.display().to_string(), "has numbers that its features do not have")
    })?;
    Ok(Points { len, columns, decisions, exact })
}

/// The numbers as they were, by feature.
fn exact_columns(
    exact: &[f64],
    features: &[i64],
    columns: &[PointColumn],
    len: usize,
) -> Option<Vec<Vec<f64>>> {
    let mut found = vec![Vec::new(); columns.len()];
    let mut numbers = exact.chunks_exact(len.max(1));
    for feature in features {
        let feature = usize::try_from(*feature).ok()?;
        matches!(columns.get(feature)?, PointColumn::Numbers(_)).then_some(())?;
        found[feature] = numbers.next()?.to_vec();
    }
    Some(found)
}
