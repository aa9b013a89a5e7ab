#!/usr/bin/env bash
# Fuzzes everything that reads bytes from outside: job, schema, predicates, answers of scorers, ONNX graphs, generator
# artefacts, journal, manifest; and `validate` as a whole. `cargo test` does a short round of the same.
#
#   tests/fuzz.sh [--inputs 1000000] [--validate 20000] [--seconds 600] [--target job,schema] [--seed 1] [--out out/fuzz]
#
# Ends after so many inputs, or seconds, for each target; two targets run at a time. Prints a line of JSON for each
# target, and a last one for all. Inputs that panic, abort, hang or take too much memory are kept in OUT/found, and
# end the round with code 1.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export OVERTURN_FUZZ_INPUTS=1000000 OVERTURN_FUZZ_VALIDATE=20000 OVERTURN_FUZZ_SECONDS=600 OVERTURN_FUZZ_SEED=1
export OVERTURN_FUZZ_TARGETS="" OVERTURN_FUZZ_OUT="$PWD/out/fuzz"
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || { echo "error: \`$1\` needs a value" >&2; exit 1; }
  case $1 in
    --inputs) OVERTURN_FUZZ_INPUTS=$2 ;;
    --validate) OVERTURN_FUZZ_VALIDATE=$2 ;;
    --seconds) OVERTURN_FUZZ_SECONDS=$2 ;;
    --target) OVERTURN_FUZZ_TARGETS=$2 ;;
    --seed) OVERTURN_FUZZ_SEED=$2 ;;
    --out) OVERTURN_FUZZ_OUT=$(realpath -m "$2") ;;
    *) echo "error: unknown option \`$1\`, see the head of $0" >&2; exit 1 ;;
  esac
  shift 2
done

bash jobs/setup.sh
rm -rf "$OVERTURN_FUZZ_OUT"
mkdir -p "$OVERTURN_FUZZ_OUT"
code=0
cargo test --locked --quiet --test it -- fuzz::long_round --exact --ignored --nocapture \
  >"$OVERTURN_FUZZ_OUT/log" || code=1
python3 - "$OVERTURN_FUZZ_OUT" "$code" <<'PYTHON'
import json, pathlib, sys
out, code = pathlib.Path(sys.argv[1]), int(sys.argv[2])
path = out / "fuzz.json"
if not path.exists():
    sys.exit(f"error: the round did not end, see {out}/log")
targets = json.loads(path.read_text())
print(f"{'target':<10} {'inputs':>10} {'seconds':>8} {'per second':>10} {'accepted':>9} {'slowest':>8} {'internal':>8} failures")
for one in targets:
    rate = one["inputs"] / max(one["seconds"], 1e-9)
    print(f"{one['target']:<10} {one['inputs']:>10,} {one['seconds']:>8.0f} {rate:>10,.0f} {one['accepted']:>9,} "
          f"{one['slowest_seconds']:>7.2f}s {one['internal']:>8} {len(one['failures'])}")
print(json.dumps({"campaign": "fuzz", "inputs": {one["target"]: one["inputs"] for one in targets},
                  "slowest_seconds": round(max(one["slowest_seconds"] for one in targets), 2),
                  "internal": sum(one["internal"] for one in targets),
                  "failures": sum(len(one["failures"]) for one in targets)}))
sys.exit(code)
PYTHON
