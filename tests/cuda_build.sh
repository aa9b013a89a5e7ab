#!/usr/bin/env bash
# Sets up, links and starts the program with libtorch's CUDA build, with or without a GPU: what the binary needs, what
# `--version` says, `device = "cuda"` and `"auto"` (tests/it/gpu.rs), and a short training with `auto`. Downloads 3 GB
# the first time and keeps 4; compiles torch-sys, tch and overturn: about ten minutes on two cores.
#
#   tests/cuda_build.sh
#
# This clone stays as it is: a copy of its files, with a configuration for CUDA, and what is compiled lie in a target
# folder of their own (OVERTURN_CUDA_TARGET, by default below the cache of jobs/setup.sh). It starts as a copy of the
# usual target folder, so that the engine is not compiled again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
usual="${CARGO_TARGET_DIR:-$PWD/target}"
target="${OVERTURN_CUDA_TARGET:-${XDG_CACHE_HOME:-$HOME/.cache}/overturn/target-cuda}"
tree="$target/tree"
work="$target/work"
began=$SECONDS

if [ ! -d "$target" ] && [ -d "$usual/debug" ]; then
  echo "copying $usual to $target" >&2
  rm -rf "$target.part"
  cp -a --reflink=auto "$usual" "$target.part"
  rm -rf "$target.part/debug/incremental"
  mv -T "$target.part" "$target"
fi
rm -rf "$tree" "$work"
mkdir -p "$tree" "$work"
git ls-files -z | tar --null --files-from - -c | tar -C "$tree" -x
cd "$tree"

# The environment would have the last word over what the set-up writes.
unset LIBTORCH
OVERTURN_CUDA=1 OVERTURN_NO_PYTHON=1 bash jobs/setup.sh
export CARGO_TARGET_DIR="$target"
cargo build --locked --bins
overturn="$target/debug/overturn"
"$overturn" --version
readelf --wide --dynamic "$overturn" | grep -F 'NEEDED' | grep -F 'libtorch_cuda.so'
cargo test --locked --test it gpu::

"$overturn" synth "$work/credit" --rows 3000
"$overturn" train jobs/demo/train.toml --set "data=$work/credit" --set "out=$work/trained" \
  --override train.max_steps=300 --override autoencoder.steps=100 --override runtime.device=auto
python3 - "$work/trained/manifest.json" "$("$overturn" --version | tail -n 1)" $((SECONDS - began)) <<'PYTHON'
import json, sys

path, version, seconds = sys.argv[1:]
device = json.load(open(path))["run"]["device"]
expected = "cuda:0" if "cuda:0" in version else "cpu"
if device != expected:
    sys.exit(f"error: `auto` took {device}, expected {expected}")
print(json.dumps({"campaign": "cuda_build", "version": version, "auto": device, "seconds": int(seconds)}))
PYTHON
