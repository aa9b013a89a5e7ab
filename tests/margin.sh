#!/usr/bin/env bash
# How many answers survive a retraining of the model, and at what distance, by `explain.min_score`? Explains rows of
# training splits; with --report rows of test splits, which are for stating figures and not for choosing any.
#
#   tests/margin.sh [--datasets "adult demo"] [--models "rf xgb lr"] [--scores "0 0.6 0.8"] [--report] …
#
# margin_study.py says the rest. All is made anew under out/margin. Data sets are looked for in OVERTURN_DATA
# (default ../shared/data).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

source tests/prepare.sh
exec "$python" tests/python/margin_study.py "$overturn" "$data" "$PWD/out/margin" "$@"
