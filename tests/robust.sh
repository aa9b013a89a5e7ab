#!/usr/bin/env bash
# How many answers hold under models that nobody had seen, if they must hold under some others (`[robust]`)? Explains rows
# of training splits; with --report rows of test splits, which are for stating figures and not for choosing any.
#
#   tests/robust.sh [--datasets "adult demo"] [--models "rf"] [--methods "search generator"] [--shares "0.8 1"] [--report] …
#
# robust_study.py says the rest. All is made anew under out/robust. Data sets are looked for in OVERTURN_DATA
# (default ../shared/data).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

data="${OVERTURN_DATA:-$PWD/../shared/data}"
bash jobs/setup.sh
cargo build --locked --bins
python=$(sed -n 's/^OVERTURN_PYTHON = "\(.*\)"$/\1/p' .cargo/config.toml)
exec "$python" tests/python/robust_study.py "${CARGO_TARGET_DIR:-target}/debug/overturn" "$data" "$PWD/out/robust" "$@"
