#!/usr/bin/env bash
# What does refinement gain on the paper's data, which of its steps are worth their queries, and how much should
# plausibility weigh? Trains a classifier of the paper's appendix and a generator for each seed, then
# explains the same 1,000 test rows with each variant of `[explain]`; refine_eval.py says how it is judged.
#
#   tests/refine.sh [--datasets "adult bank"] [--models "rf xgb"] [--seeds "0 1 2"]
#                   [--variants before-after|steps|plausibility_weight|all|NAME,NAME] [--train-lines 'max_steps = 500']
#                   [--each] [--keep] [--fresh]
#
# Classifiers and generators stay under out/refine and are used again; --fresh makes them anew. Every run adds a
# line to out/refine/results.jsonl. Data sets are looked for in OVERTURN_DATA (default ../shared/data).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

source tests/prepare.sh
exec "$python" tests/python/refine_eval.py "$overturn" "$data" "$PWD/out/refine" "$@"
