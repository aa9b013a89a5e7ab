#!/usr/bin/env bash
# What refinement costs: whole runs on a million rows without it, with repairs alone, and in full; refine.py says
# how it is measured. A second size is for memory alone.
#
#   benches/refine.sh [--rows 1000000[,3000000]] [--targets approved[,flip]] [--against OLDER-BUILD] [--keep]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash jobs/setup.sh
cargo build --locked --bins
python=$(sed -n 's/^OVERTURN_PYTHON = "\(.*\)"$/\1/p' .cargo/config.toml)
exec "$python" benches/refine.py "${CARGO_TARGET_DIR:-target}/debug/overturn" "$PWD/out/refine-cost" "$@"
