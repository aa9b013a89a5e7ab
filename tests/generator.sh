#!/usr/bin/env bash
# How good are generators on the paper's data, and how long do they take? Trains a classifier of the paper's
# appendix, then a generator for it with the default settings and each of some seeds, and judges it on 1,000
# rows of the test split by the paper's protocol: targets other than the prediction, validity over all rows,
# L0 and L1 over the valid ones.
#
#   tests/generator.sh [DATASET [MODEL [SEEDS [TRAIN_LINES]]]]     default: adult rf "0 1 2" ""
#
# TRAIN_LINES go into the job's `[train]`, e.g. 'preset = "paper"'. The folder of the last run stays under
# out/generator, with its training curve. Data sets are looked for in OVERTURN_DATA (default ../shared/data).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

dataset="${1:-adult}" model="${2:-rf}" seeds="${3:-0 1 2}" lines="${4:-}"
source tests/prepare.sh

folder="$PWD/out/generator/$dataset-$model"
rm -rf "$folder"
mkdir -p "$folder"
"$python" tests/python/generator_job.py "$data" "$dataset" "$model" "$folder" >"$folder/prepared"
test_where="split = 'test'"
[ "$dataset" != covertype ] || test_where="subset10 AND split = 'test'"
printf 'overwrite = true\n\n[runtime]\nseed = ${seed}\n\n[train]\ntest_where = "%s"\n%s\n' \
  "$test_where" "$lines" >>"$folder/job.toml"

row='%-5s %8s %8s %8s %9s %7s %7s %8s %10s\n'
printf "$row" seed steps seconds cpu_s validity L0 L1 changed violations
for seed in $seeds; do
  sed "s/\${seed}/$seed/" "$folder/job.toml" >"$folder/job-$seed.toml"
  began=$(date +%s%N)
  # Not `time -f`, which not every machine has: the shell's own count of CPU seconds.
  TIMEFORMAT='%U %S'
  { time "$overturn" train "$folder/job-$seed.toml" --quiet --format json >"$folder/summary-$seed.json"; } \
    2>"$folder/log-$seed" || { cat "$folder/log-$seed"; exit 1; }
  ended=$(date +%s%N)
  "$python" - "$folder/summary-$seed.json" "$seed" "$(tail -1 "$folder/log-$seed")" "$(((ended - began) / 1000000))" <<'PYTHON'
import json, sys
summary = json.load(open(sys.argv[1]))
cpu = sum(map(float, sys.argv[3].split()))
test = summary["test"]
print("%-5s %8d %8.1f %8.1f %8.1f%% %7.3f %7.3f %8.2f %10d" % (
    sys.argv[2], summary["steps"], int(sys.argv[4]) / 1000, cpu, 100 * test["validity"], test["l0"],
    test["l1"], test["changed"], test["violations"]))
PYTHON
done
"$python" - "$folder" $seeds <<'PYTHON'
import json, sys
tests = [json.load(open(f"{sys.argv[1]}/summary-{seed}.json"))["test"] for seed in sys.argv[2:]]
mean = lambda key: sum(test[key] for test in tests) / len(tests)
print("mean  validity %.2f %%  L0 %.4f  L1 %.4f  features changed %.2f" % (
    100 * mean("validity"), mean("l0"), mean("l1"), mean("changed")))
PYTHON
