//! Plain memory ↔ tensors.

use std::sync::Arc;

use tch::{Device, Kind, Tensor};

use crate::encode::{Dense, Layout};
use crate::error::{Error, Result};

/// Row-major numbers as a matrix on a device.
///
/// # Errors
/// When the numbers are not whole rows.
pub fn to_tensor(values: &[f32], width: usize, device: Device) -> Result<Tensor> {
    if width == 0 || !values.len().is_multiple_of(width) {
        let problem = format!("{} numbers are no rows of {width}", values.len());
        return Err(Error::internal("tensor", problem));
    }
    let matrix = Tensor::f_from_slice(values).and_then(|flat| flat.f_view([-1, width as i64]));
    matrix.and_then(|matrix| matrix.f_to_device(device)).map_err(refused)
}

/// A matrix as wide as the layout as plain rows.
///
/// # Errors
/// When the matrix has another width.
pub fn to_dense(matrix: &Tensor, layout: &Arc<Layout>) -> Result<Dense> {
    let [rows, width] = matrix.size()[..] else {
        return Err(Error::internal("tensor", "is not a matrix"));
    };
    if width as usize != layout.width {
        let problem = format!("has {width} columns, expected {}", layout.width);
        return Err(Error::internal("tensor", problem));
    }
    let values = to_numbers(matrix)?;
    Ok(Dense { rows: rows as usize, width: layout.width, values, layout: Arc::clone(layout) })
}

/// The numbers of a tensor, row by row.
pub(crate) fn to_numbers(tensor: &Tensor) -> Result<Vec<f32>> {
    let flat = tensor.f_to_device(Device::Cpu).and_then(|tensor| tensor.f_to_kind(Kind::Float));
    let flat = flat.and_then(|tensor| tensor.f_contiguous()).map_err(refused)?;
    let mut values = vec![0f32; flat.numel()];
    flat.f_copy_data(&mut values, flat.numel()).map_err(refused)?;
    Ok(values)
}

/// What libtorch refuses although shapes were checked is our fault, or the machine's.
pub(crate) fn refused(error: tch::TchError) -> Error {
    Error::internal("libtorch", "refuses a tensor").source(error)
}
