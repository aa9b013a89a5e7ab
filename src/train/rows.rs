//! Where training rows are: on the device if it has room for them, else on the host, from where every batch is
//! uploaded.

use tch::{Device, Kind, Tensor};

use crate::error::Result;
use crate::nn::{to_tensor, upload};

/// Bytes of a device that are left to networks, the replay buffer, a batch on its way, and libraries.
const WORKING_BYTES: i64 = 1 << 30;

/// Bytes of a number.
const NUMBER: i64 = 4;

/// A matrix of training rows.
pub(super) struct RowMatrix {
    matrix: Tensor,
    /// Where batches of it are used.
    device: Device,
}

impl RowMatrix {
    /// So many rows, to be written.
    pub(super) fn empty(rows: usize, width: i64, device: Device) -> RowMatrix {
        let size = [rows as i64, width];
        let home = home(size[0] * size[1] * NUMBER, device, has_room);
        RowMatrix { matrix: Tensor::empty(size, (Kind::Float, home)), device }
    }

    /// Rows of plain memory.
    ///
    /// # Errors
    /// When the numbers are not whole rows.
    pub(super) fn of(values: &[f32], width: usize, device: Device) -> Result<RowMatrix> {
        let home = home(values.len() as i64 * NUMBER, device, has_room);
        Ok(RowMatrix { matrix: to_tensor(values, width, home)?, device })
    }

    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        self.matrix.size()[0] as usize
    }

    /// Writes rows from this one on.
    pub(super) fn write(&self, first: usize, rows: &Tensor) {
        self.matrix.narrow(0, first as i64, rows.size()[0]).copy_(rows);
    }

    /// Some rows, on the device. Their indices are on the host.
    ///
    /// # Errors
    /// When the device has no memory left.
    pub(super) fn take(&self, rows: &Tensor) -> Result<Tensor> {
        let rows = upload(rows, self.matrix.device())?;
        upload(&self.matrix.index_select(0, &rows), self.device)
    }
}

/// Where so many bytes of rows are to be, for a device that has room for so many or not.
fn home(bytes: i64, device: Device, has_room: impl Fn(i64, Device) -> bool) -> Device {
    if device == Device::Cpu || has_room(bytes + WORKING_BYTES, device) {
        return device;
    }
    let mebibytes = bytes >> 20;
    tracing::info!(mebibytes, "the GPU has no room for the training rows: batches are uploaded");
    Device::Cpu
}

/// Whether a device has so many bytes left, by the one measure that holds in containers and on shared devices too: it
/// is asked for them. libtorch keeps them at hand for what is allocated next.
fn has_room(bytes: i64, device: Device) -> bool {
    Tensor::f_empty([bytes], (Kind::Uint8, device)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_do_not_fit_into_a_device_stay_on_the_host() {
        let gpu = Device::Cuda(0);
        let context = |bytes| home(bytes, gpu, |bytes, _| bytes <= 4 << 30);
        assert_eq!(context(3 << 30), gpu);
        assert_eq!(context((3 << 30) + 1), Device::Cpu);
        assert_eq!(home(i64::MAX, Device::Cpu, |_, _| panic!("not to be asked")), Device::Cpu);
    }

    #[test]
    fn a_device_that_refuses_has_no_room() {
        assert!(has_room(1 << 20, Device::Cpu));
        assert!(!has_room(i64::MAX, Device::Cpu));
    }

    #[test]
    fn rows_are_taken_by_their_indices() {
        let values: Vec<f32> = (0u8..12).map(f32::from).collect();
        let of = RowMatrix::of(&values, 3, Device::Cpu).expect("rows");
        let written = RowMatrix::empty(4, 3, Device::Cpu);
        let half =
            |first: usize| to_tensor(&values[first..first + 6], 3, Device::Cpu).expect("rows");
        written.write(0, &half(0));
        written.write(2, &half(6));
        for rows in [of, written] {
            assert_eq!(rows.len(), 4);
            let taken = rows.take(&Tensor::from_slice(&[3i64, 0])).expect("taken");
            let taken = Vec::<f32>::try_from(taken.view([-1])).expect("numbers");
            assert_eq!(taken, [9.0, 10.0, 11.0, 0.0, 1.0, 2.0]);
        }
    }
}
