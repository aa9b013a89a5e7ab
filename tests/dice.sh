#!/usr/bin/env bash
# DiCE's own package (dice-ml 0.12) beside `explain.method = "dice_random"` and `"dice_genetic"`, on the same rows of
# Adult, the same forest and the same constraints: validity, L0, L1, changed features, CPU seconds a row; dice_package.py
# says how.
#
#   tests/dice.sh [--random 200] [--genetic 20] [--budgets "256 10000"]
#
# The package is fetched from the package index into an environment that is removed afterwards: nothing else needs it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

source tests/prepare.sh
environment=$(mktemp -d)
trap 'rm -rf "$environment"' EXIT
"$python" -m venv "$environment"
# What else it needs is there already: the libraries that the forest was made with.
"$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
  > "$("$environment/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/shared.pth"
# Not all that it names: xgboost alone would be hundreds of megabytes.
"$environment/bin/python" -m pip install --quiet --no-deps dice-ml==0.12 raiutils==0.4.2
"$environment/bin/python" -m pip install --quiet jsonschema==4.25.1 tqdm==4.67.1
data="${OVERTURN_DATA:-$PWD/../shared/data}"
"$environment/bin/python" tests/python/dice_package.py "$overturn" "$data" \
  "$PWD/out/dice" "$@"
