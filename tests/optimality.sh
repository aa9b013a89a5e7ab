#!/usr/bin/env bash
# How far are answers from the cheapest that an exhaustive search over single changes and pairs finds, and how many
# questions do they take? On the demo's models and on the paper's classifiers of Adult; optimality.py says how.
#
#   tests/optimality.sh [--cases "demo-forest adult-rf"] [--split tune|test] [--rows 500]
#                       [--explain 'plausibility_weight = 0.0'] [--train-lines 'max_steps = 500']
#
# Tables, models, generators and what the exhaustive search found stay under out/optimality and are used again. Adult
# is looked for in OVERTURN_DATA (default ../shared/data).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

source tests/prepare.sh
exec "$python" tests/python/optimality.py "$overturn" "$data" "$PWD/out/optimality" "$@"
