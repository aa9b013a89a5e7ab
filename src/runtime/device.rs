//! Which device tensors live on, and why that one.

use std::env;
use std::fmt::Write;
use std::path::Path;

use crate::error::{Error, Result};
use crate::job::Device;

/// What a loaded NVIDIA driver shows: on Linux, and on Linux within Windows.
const DRIVER_FILES: [&str; 2] = ["/proc/driver/nvidia/version", "/dev/dxg"];

/// What there is to choose from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gpus {
    /// Release of CUDA that libtorch was built with, such as `13.0`; none for a libtorch without CUDA.
    cuda: Option<String>,
    /// GPUs that libtorch sees.
    count: usize,
    /// Whether an NVIDIA driver is loaded. Explains why there is no GPU, decides nothing.
    driver: bool,
    /// `CUDA_VISIBLE_DEVICES`, which hides GPUs from libtorch.
    visible: Option<String>,
}

impl Gpus {
    /// Asks libtorch. Where it was built with CUDA and the machine has a GPU, this starts the driver.
    pub fn find() -> Gpus {
        if !tch::utils::has_cudart() {
            return Gpus::default();
        }
        Gpus {
            cuda: Some(release(tch::utils::version_cudart())),
            count: usize::try_from(tch::Cuda::device_count()).unwrap_or(0),
            driver: DRIVER_FILES.iter().any(|file| Path::new(file).exists()),
            visible: env::var("CUDA_VISIBLE_DEVICES").ok(),
        }
    }

    /// Why there is none.
    fn lack(&self) -> String {
        if self.cuda.is_none() {
            return "libtorch was built without CUDA".to_string();
        }
        let mut lack = "libtorch sees no GPU".to_string();
        if !self.driver {
            lack.push_str(": no NVIDIA driver is loaded");
        } else if let Some(visible) = &self.visible {
            let _ = write!(lack, ": `CUDA_VISIBLE_DEVICES` is `{visible}`");
        }
        lack
    }

    /// What to do where a GPU is asked for and there is none.
    fn hint(&self) -> String {
        match &self.cuda {
            None => {
                "use `device = \"auto\"`, or run `OVERTURN_CUDA=1 jobs/setup.sh` and build again"
                    .to_string()
            }
            Some(cuda) => format!(
                "use `device = \"auto\"`, or look with `nvidia-smi` which GPUs the driver has and whether it is \
                 new enough for CUDA {cuda}"
            ),
        }
    }

    fn names(&self) -> String {
        let names: Vec<String> = (0..self.count).map(|index| format!("cuda:{index}")).collect();
        names.join(", ")
    }
}

/// For `--version`.
impl std::fmt::Display for Gpus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.cuda {
            None => write!(f, "CUDA: not built in"),
            Some(cuda) if self.count == 0 => write!(f, "CUDA: {cuda}, {}", self.lack()),
            Some(cuda) => write!(f, "CUDA: {cuda}, libtorch sees {}", self.names()),
        }
    }
}

/// A device, and why it was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) device: tch::Device,
    pub(super) reason: String,
}

/// Takes a device; looks for GPUs only where the job lets it take one.
///
/// # Errors
/// When the device that the job wants is not there.
pub(super) fn choose(requested: Device, find: impl FnOnce() -> Gpus) -> Result<Choice> {
    let taken = |device, reason: &str| Choice { device, reason: reason.to_string() };
    if requested == Device::Cpu {
        return Ok(taken(tch::Device::Cpu, "the job says so"));
    }
    let gpus = find();
    match (requested.gpu(), gpus.count) {
        (None, 0) => Ok(taken(tch::Device::Cpu, &gpus.lack())),
        (None, 1) => Ok(taken(tch::Device::Cuda(0), "the one GPU that libtorch sees")),
        (None, count) => {
            let reason = format!("the first of {count} GPUs that libtorch sees");
            Ok(taken(tch::Device::Cuda(0), &reason))
        }
        (Some(index), count) if index < count => {
            Ok(taken(tch::Device::Cuda(index), "the job says so"))
        }
        (Some(_), 0) => {
            let problem = format!("is `{requested}`, but {}", gpus.lack());
            Err(Error::resources("runtime.device", problem).hint(gpus.hint()))
        }
        (Some(_), _) => {
            let problem = format!("is `{requested}`, but libtorch sees {}", gpus.names());
            let hint =
                "use one of these, or `device = \"auto\"`; `CUDA_VISIBLE_DEVICES` may hide others";
            Err(Error::resources("runtime.device", problem).hint(hint))
        }
    }
}

/// `13.0` for 13000.
fn release(version: i64) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// A device as it is written in a job.
pub(super) fn name(device: tch::Device) -> String {
    match device {
        tch::Device::Cuda(index) => format!("cuda:{index}"),
        _ => "cpu".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: Device = Device::Cuda(None);

    /// A libtorch with CUDA on a machine with a driver and so many GPUs.
    fn gpus(count: usize) -> Gpus {
        Gpus { cuda: Some("13.0".to_string()), count, driver: true, visible: None }
    }

    fn taken(requested: Device, gpus: Gpus) -> (String, String) {
        let Choice { device, reason } = choose(requested, || gpus).expect("a device");
        (name(device), reason)
    }

    fn refused(requested: Device, gpus: Gpus) -> String {
        choose(requested, || gpus).expect_err("no such device").to_string()
    }

    fn pair(device: &str, reason: &str) -> (String, String) {
        (device.to_string(), reason.to_string())
    }

    #[test]
    fn auto_takes_the_first_gpu_or_says_why_it_takes_none() {
        let none = gpus(0);
        let without_driver = Gpus { driver: false, ..none.clone() };
        let hidden = Gpus { visible: Some("-1".to_string()), ..none.clone() };
        let hidden_without_driver = Gpus { visible: Some(String::new()), ..without_driver.clone() };
        for (found, expected) in [
            (Gpus::default(), pair("cpu", "libtorch was built without CUDA")),
            (without_driver, pair("cpu", "libtorch sees no GPU: no NVIDIA driver is loaded")),
            (
                hidden_without_driver,
                pair("cpu", "libtorch sees no GPU: no NVIDIA driver is loaded"),
            ),
            (hidden, pair("cpu", "libtorch sees no GPU: `CUDA_VISIBLE_DEVICES` is `-1`")),
            (none, pair("cpu", "libtorch sees no GPU")),
            (gpus(1), pair("cuda:0", "the one GPU that libtorch sees")),
            (gpus(4), pair("cuda:0", "the first of 4 GPUs that libtorch sees")),
        ] {
            assert_eq!(taken(Device::Auto, found), expected);
        }
    }

    #[test]
    fn a_gpu_can_be_taken_by_its_number() {
        let said = |device| pair(device, "the job says so");
        assert_eq!(taken(GPU, gpus(2)), said("cuda:0"));
        assert_eq!(taken(Device::Cuda(Some(0)), gpus(2)), said("cuda:0"));
        assert_eq!(taken(Device::Cuda(Some(1)), gpus(2)), said("cuda:1"));
    }

    #[test]
    fn the_cpu_is_taken_without_looking_for_gpus() {
        let look = || panic!("nobody asked for a GPU");
        let device = choose(Device::Cpu, look).expect("the CPU").device;
        assert_eq!(device, tch::Device::Cpu);
    }

    #[test]
    fn a_missing_gpu_is_an_error_that_says_what_is_missing() {
        assert_eq!(
            refused(GPU, Gpus::default()),
            "runtime.device: is `cuda`, but libtorch was built without CUDA\n  \
             hint: use `device = \"auto\"`, or run `OVERTURN_CUDA=1 jobs/setup.sh` and build again"
        );
        assert_eq!(
            refused(Device::Cuda(Some(0)), Gpus { driver: false, ..gpus(0) }),
            "runtime.device: is `cuda:0`, but libtorch sees no GPU: no NVIDIA driver is loaded\n  \
             hint: use `device = \"auto\"`, or look with `nvidia-smi` which GPUs the driver has and whether it is \
             new enough for CUDA 13.0"
        );
        assert_eq!(
            refused(Device::Cuda(Some(2)), gpus(2)),
            "runtime.device: is `cuda:2`, but libtorch sees cuda:0, cuda:1\n  \
             hint: use one of these, or `device = \"auto\"`; `CUDA_VISIBLE_DEVICES` may hide others"
        );
    }

    #[test]
    fn the_version_says_what_can_be_used() {
        let without_driver = Gpus { driver: false, ..gpus(0) };
        for (found, expected) in [
            (Gpus::default(), "CUDA: not built in"),
            (without_driver, "CUDA: 13.0, libtorch sees no GPU: no NVIDIA driver is loaded"),
            (gpus(2), "CUDA: 13.0, libtorch sees cuda:0, cuda:1"),
        ] {
            assert_eq!(found.to_string(), expected);
        }
    }

    #[test]
    fn releases_are_read_as_nvidia_numbers_them() {
        assert_eq!([11080, 12090, 13000].map(release), ["11.8", "12.9", "13.0"]);
    }
}
