#!/usr/bin/env bash
# Does the program score trees as ONNX Runtime does? Every row of the paper's five data sets by a forest, a decision
# tree, XGBoost and LightGBM, generated rows (nulls, both sides of thresholds), and copies of rows of which single
# cells changed. Raw scores have to be the same bits and labels the same; probabilities that went through a further
# function may differ by 2e-7. Ends at the first difference. The last line is JSON.
#
#   tests/engines.sh [--rows 10000000]      generated rows, over all 20 models
#
#   OVERTURN_DATA   folder of the data sets (default ../shared/data)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

rows=10000000
case "$#:${1:-}" in
  0:) ;;
  2:--rows) rows=$2 ;;
  *) echo "usage: tests/engines.sh [--rows ROWS]" >&2; exit 1 ;;
esac
[[ $rows =~ ^[0-9]+$ ]] || { echo "error: --rows is \`$rows\`, expected a whole number" >&2; exit 1; }
data="${OVERTURN_DATA:-$PWD/../shared/data}"
[ -d "$data" ] || { echo "error: no data sets in \`$data\` (set OVERTURN_DATA)" >&2; exit 1; }
bash jobs/setup.sh
OVERTURN_DATA=$data OVERTURN_ROWS=$rows cargo test --locked --lib \
  predictor::onnx::native::tests::campaign -- --ignored --nocapture
