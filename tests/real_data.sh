#!/usr/bin/env bash
# Holds `overturn score` against scikit-learn and XGBoost: five classifiers on each of five real data sets,
# trained with the paper's hyper-parameters, exported to ONNX and scored. No row may get another label than
# from the library itself. Prints a row per case and at the end how many passed; code 1 if any failed.
#
#   tests/real_data.sh                 all
#   tests/real_data.sh adult bank      these data sets only
#
#   OVERTURN_DATA   folder of the data sets (default ../shared/data)
#   OVERTURN_BIN    a built program to use, instead of building one
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

models=(lr dt rf lsvc xgb)
datasets=(breast_cancer spambase adult bank covertype)
[ $# -eq 0 ] || datasets=("$@")
data="${OVERTURN_DATA:-$PWD/../shared/data}"
[ -d "$data" ] || { echo "error: no data sets in \`$data\` (set OVERTURN_DATA)" >&2; exit 1; }

bash jobs/setup.sh
overturn="${OVERTURN_BIN:-}"
if [ -z "$overturn" ]; then
  cargo build --locked --bins
  overturn="${CARGO_TARGET_DIR:-target}/debug/overturn"
fi
python=$(sed -n 's/^OVERTURN_PYTHON = "\(.*\)"$/\1/p' .cargo/config.toml)
[ -x "$python" ] || { echo "error: no Python environment (run jobs/setup.sh)" >&2; exit 1; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

now() { date +%s%N; }
seconds() { printf '%d.%d' $((($2 - $1) / 1000000000)) $((($2 - $1) / 100000000 % 10)); } # FROM TO
field() { sed -n "s/.*\"$1\": \"\{0,1\}\([^,\"}]*\).*/\1/p" "$folder/prepared"; }

# case_of DATASET MODEL: one row of the table; fails if any of the three steps does.
case_of() {
  local out="$folder/$1-$2" began prepared scored differing
  began=$(now)
  "$python" tests/python/real_data.py prepare "$data" "$1" "$2" "$out" >"$folder/prepared" 2>"$folder/log" ||
    { broken "$@" prepare; return 1; }
  prepared=$(now)
  "$overturn" score --quiet "$out/job.toml" >/dev/null 2>"$folder/log" || { broken "$@" score; return 1; }
  scored=$(now)
  local code=0
  "$python" tests/python/real_data.py compare "$out" >"$folder/compared" 2>"$folder/log" || code=1
  differing=$(sed -n 's/.* \([0-9]*\) labels differ.*/\1/p' "$folder/compared")
  [ -n "$differing" ] || { broken "$@" compare; return 1; }
  printf "$row" "$1" "$2" "$(field rows)" "$(field train_accuracy)" "$(field test_accuracy)" "$differing" \
    "$(seconds "$began" "$prepared")" "$(seconds "$prepared" "$scored")"
  [ "$code" = 0 ] || sed 's/^/    /' "$folder/compared"
  rm -r "$out"
  return "$code"
}

# broken DATASET MODEL STEP: the row of a case that came to no comparison.
broken() {
  printf '%-14s %-5s failed: %s\n' "$1" "$2" "$3"
  sed 's/^/    /' "$folder/log"
}

row='%-14s %-5s %8s %7.4f %7.4f %10s %10s %8s\n'
printf "${row//.4f/s}" "data set" model rows train test differing prepare_s score_s
passed=0 failed=0
for dataset in "${datasets[@]}"; do
  for model in "${models[@]}"; do
    if case_of "$dataset" "$model"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
  done
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
