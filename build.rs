//! Bakes into the binary where its shared libraries are, so that it runs without `LD_LIBRARY_PATH`, and that ONNX
//! Runtime's telemetry is off before anything is loaded.

use std::{env, fs, path::Path, process::Command};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for variable in ["LIBTORCH", "OVERTURN_ONNXRUNTIME"] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    let libtorch = env::var("LIBTORCH").unwrap_or_default();
    if !libtorch.is_empty() {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{libtorch}/lib");
        need_cuda(&libtorch);
    }
    let version = fs::read_to_string(Path::new(&libtorch).join("build-version"));
    let version = version.unwrap_or_else(|_| "of unknown version".to_string());
    println!("cargo:rustc-env=OVERTURN_LIBTORCH_VERSION={}", version.trim());
    // A path to fall back on; the environment variable of the same name has the last word at run time.
    let onnxruntime = env::var("OVERTURN_ONNXRUNTIME").unwrap_or_default();
    println!("cargo:rustc-env=OVERTURN_ONNXRUNTIME_BUILT={onnxruntime}");
    disable_telemetry();
}

/// Has the linker name libtorch's CUDA half among the libraries that the program needs, where there is one. It registers
/// itself when it is loaded and nobody calls it by name, so that a linker would leave it out, and the program would see
/// no GPU. Unit tests, for which Cargo has no such switch, do without; so does the guard.
fn need_cuda(libtorch: &str) {
    let cuda = format!("{libtorch}/lib/libtorch_cuda.so");
    if !Path::new(&cuda).exists() {
        return;
    }
    for target in ["bin=overturn", "tests", "benches"] {
        for argument in ["-Wl,--push-state,--no-as-needed", &cuda, "-Wl,--pop-state"] {
            println!("cargo:rustc-link-arg-{target}={argument}");
        }
    }
}

/// Compiles `src/telemetry.c` and links it into everything that can be run.
fn disable_telemetry() {
    println!("cargo:rerun-if-changed=src/telemetry.c");
    let object = Path::new(&env::var("OUT_DIR").unwrap_or_default()).join("telemetry.o");
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_string());
    let arguments = ["-O1", "-fPIC", "-c", "src/telemetry.c", "-o"];
    match Command::new(&compiler).args(arguments).arg(&object).status() {
        Ok(status) if status.success() => println!("cargo:rustc-link-arg={}", object.display()),
        outcome => panic!("`{compiler}` cannot compile src/telemetry.c: {outcome:?}"),
    }
}
