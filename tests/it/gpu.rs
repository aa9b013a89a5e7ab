//! What is linked of libtorch, and what the program says of GPUs. The CUDA half is looked for where the binary looks
//! for it; `tests/cuda_build.sh` runs this with one.

use std::path::Path;
use std::process::Command;

use crate::util::{Bench, Run, credit, overturn};

/// The entries of one kind in a binary's dynamic section, such as the libraries that it needs.
fn entries(binary: &str, kind: &str) -> Vec<String> {
    let listed = Run::of(Command::new("readelf").args(["--wide", "--dynamic", binary])).ok().stdout;
    let lines = listed.lines().filter(|line| line.contains(kind));
    let entry = |line: &str| Some(line.split_once('[')?.1.trim_end_matches(']').to_string());
    lines.filter_map(entry).collect()
}

/// Whether the libtorch that the program was built with has a CUDA half.
fn has_cuda() -> bool {
    let folders = entries(env!("CARGO_BIN_EXE_overturn"), "RUNPATH");
    let mut folders = folders.iter().flat_map(|list| list.split(':')).map(Path::new);
    let libtorch = folders.find(|folder| folder.join("libtorch_cpu.so").exists());
    libtorch.expect("libtorch's folder").join("libtorch_cuda.so").exists()
}

/// What `--version` says of CUDA.
fn cuda_line() -> String {
    let version = overturn(&["--version"]).ok().stdout;
    let lines: Vec<&str> = version.lines().collect();
    assert_eq!(lines.len(), 2, "{version}");
    lines[1].to_string()
}

/// A job on some device.
fn job(bench: &Bench, device: &str) -> String {
    let table = bench.parquet("t.parquet", &credit(50));
    let job = bench.job(&table, "", None);
    bench.append("job.toml", &format!("[runtime]\ndevice = \"{device}\"\n"));
    job
}

#[test]
fn the_cuda_half_of_libtorch_is_needed_where_there_is_one() {
    let needed = entries(env!("CARGO_BIN_EXE_overturn"), "NEEDED");
    let needs = |name: &str| needed.iter().any(|library| library == name);
    assert!(needs("libtorch_cpu.so"), "{needed:?}");
    assert_eq!(needs("libtorch_cuda.so"), has_cuda(), "{needed:?}");
}

#[test]
fn the_guard_of_scorers_needs_nothing_of_libtorch() {
    let needed = entries(env!("CARGO_BIN_EXE_overturn-guard"), "NEEDED");
    assert!(!needed.is_empty());
    assert!(!needed.iter().any(|library| library.contains("torch")), "{needed:?}");
}

#[test]
fn the_version_says_whether_there_is_cuda() {
    let line = cuda_line();
    if has_cuda() {
        assert!(line.contains(", libtorch sees "), "{line}");
    } else {
        assert_eq!(line, "CUDA: not built in");
    }
}

#[test]
fn auto_says_which_device_it_takes_and_why() {
    let bench = Bench::new();
    let run = overturn(&["validate", &job(&bench, "auto")]).ok();
    let line = run.stderr.lines().find(|line| line.contains("chose the device"));
    let line = line.unwrap_or_else(|| panic!("{}", run.stderr));
    if cuda_line().contains("cuda:0") {
        assert!(line.contains("device=\"cuda:0\""), "{line}");
    } else {
        let reason =
            if has_cuda() { "libtorch sees no GPU" } else { "libtorch was built without CUDA" };
        assert!(line.contains(&format!("device=\"cpu\" reason=\"{reason}")), "{line}");
    }
}

#[test]
fn a_gpu_that_is_not_there_is_an_error() {
    if cuda_line().contains("cuda:0") {
        return;
    }
    let bench = Bench::new();
    for device in ["cuda", "cuda:0", "cuda:1"] {
        let run = overturn(&["validate", &job(&bench, device)]).fails(2, &[]);
        let expected = if has_cuda() {
            "libtorch sees no GPU: no NVIDIA driver is loaded\n  hint: use `device = \"auto\"`, or look with \
             `nvidia-smi` which GPUs the driver has and whether it is new enough for CUDA 13.0\n"
        } else {
            "libtorch was built without CUDA\n  hint: use `device = \"auto\"`, or run `OVERTURN_CUDA=1 jobs/setup.sh` \
             and build again\n"
        };
        let expected = format!("error: runtime.device: is `{device}`, but {expected}");
        assert_eq!(run.stderr, expected);
    }
}

#[test]
fn a_device_that_nothing_is_called() {
    let bench = Bench::new();
    for device in ["gpu", "cuda:x", "Cuda", "cuda:100", ""] {
        let run = overturn(&["validate", &job(&bench, device)]).fails(1, &[]);
        let expected = format!(
            "`runtime.device` is \"{device}\", expected `auto`, `cpu`, `cuda` or a GPU's number such as `cuda:1`\n"
        );
        assert!(run.stderr.ends_with(&expected), "{}", run.stderr);
    }
}
