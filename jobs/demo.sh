#!/usr/bin/env bash
# From a fresh clone to a scored table and a counterfactual generator: sets everything up, builds, makes a
# million credit applications, scores them through ONNX Runtime and (200,000 of them) through a Python
# program, and learns on them what would have to change for another decision.
#
#   OVERTURN_ROWS   applications to make (default 1,000,000)
#   OVERTURN_OUT    where results go (default ./out/demo; replaced)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

rows="${OVERTURN_ROWS:-1000000}"
out="${OVERTURN_OUT:-$PWD/out/demo}"

say() { printf '\n\033[1m%s\033[0m\n' "$*" >&2; }

bash jobs/setup.sh
say "Building"
cargo build --locked --bin overturn
overturn="${CARGO_TARGET_DIR:-target}/debug/overturn"
python=$(sed -n 's/^OVERTURN_PYTHON = "\(.*\)"$/\1/p' .cargo/config.toml)
"$overturn" --version

rm -rf "$out"
mkdir -p "$out"

say "Making $rows credit applications"
"$overturn" synth "$out/applications" --rows "$rows" --files 8

say "Checking the job before it runs"
"$overturn" validate jobs/demo/forest_onnx.toml --set data="$out/applications" --set out="$out/onnx"

say "Scoring all of them through ONNX Runtime"
"$overturn" score jobs/demo/forest_onnx.toml --set data="$out/applications" --set out="$out/onnx"

say "Scoring the first 200,000 through a Python program"
"$overturn" score jobs/demo/forest_python.toml --set data="$out/applications" --set out="$out/python" \
  --set python="$python"

say "Comparing the two score tables"
"$python" jobs/demo/compare.py "$out/onnx/scores" "$out/python/scores"

say "Learning what would have to change for the forest to decide otherwise"
"$overturn" train jobs/demo/train.toml --set data="$out/applications" --set out="$out/trained"
