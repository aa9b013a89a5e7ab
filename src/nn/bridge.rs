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
    upload(&matrix.map_err(refused)?, device)
}

/// A tensor of the host on a device; itself, where it is there already. Does not wait for what the device is at: CUDA
/// takes a copy of memory that is not pinned before it returns.
///
/// # Errors
/// When the device has no memory left.
pub(crate) fn upload(tensor: &Tensor, device: Device) -> Result<Tensor> {
    tensor.f_to_device_(device, tensor.kind(), true, false).map_err(refused)
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
    let refused = || Error::internal("libtorch", "refuses a tensor");
    out_of_memory(&error.to_string()).unwrap_or_else(refused).source(error)
}

/// The error of a GPU without memory, if that is what libtorch says.
pub fn out_of_memory(text: &str) -> Option<Error> {
    let rest = text.split_once("CUDA out of memory.")?.1;
    let size = rest.split_once("Tried to allocate ").and_then(|(_, rest)| rest.split_once(". "));
    let size = size.map_or("some more".to_string(), |(size, _)| size.to_string());
    let problem = format!("the GPU has no memory left: {size} could not be had");
    Some(Error::resources("runtime.device", problem).hint(
        "lower `train.batch` or `train.hidden`, end what else uses the GPU, or use `device = \"cpu\"`",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_gpu_is_told_from_other_faults() {
        let said = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.77 GiB of which \
                    1.05 GiB is free.\nException raised from malloc at";
        assert_eq!(
            out_of_memory(said).map(|error| error.to_string()).as_deref(),
            Some(
                "runtime.device: the GPU has no memory left: 2.00 GiB could not be had\n  hint: lower `train.batch` \
                 or `train.hidden`, end what else uses the GPU, or use `device = \"cpu\"`"
            )
        );
        assert!(out_of_memory("index out of range").is_none());
    }
}
