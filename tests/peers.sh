#!/usr/bin/env bash
# Counterfactuals with default settings beside those of the nearest training row, NICE and DiCE's random search, on
# tables of scikit-learn and synthetic ones: validity, changed features, L0, L1; peers.py says how.
#
#   tests/peers.sh [--tables "wine-lr mixed-xgb"] [--rows 200] [--seed 1] [--threads N] [--explain 'min_score = 0.0']
#
# Tables, models and runs are made anew under out/peers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

source tests/prepare.sh
exec "$python" tests/python/peers.py "$overturn" "$PWD/out/peers" "$@"
