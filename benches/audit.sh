#!/usr/bin/env bash
# What the audit costs beside the run, in CPU seconds and memory: its tables, a comparison with the night before, 1,000
# segments, and with --asking each section that asks the model. audit.py says how it is measured.
#
#   benches/audit.sh [--rows 1000000] [--rounds 3] [--segments 1000] [--asking] [--keep]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash jobs/setup.sh
cargo build --locked --bins
python=$(sed -n 's/^OVERTURN_PYTHON = "\(.*\)"$/\1/p' .cargo/config.toml)
exec "$python" benches/audit.py "${CARGO_TARGET_DIR:-target}/debug/overturn" "$PWD/out/audit-cost" "$@"
