#!/usr/bin/env bash
# Rows a second, memory and scaling of whole runs on 1 and 10 million rows; scale.py says how it is measured.
# Takes about a quarter of an hour and 5 GB of disk.
#
#   benches/scale.sh [--rows 1000000,10000000] [--keep]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash jobs/setup.sh
cargo build --locked --bins
bare=$(cargo bench --locked --profile dev --bench explain --no-run --message-format json 2>/dev/null |
  sed -n 's/.*"name":"explain".*"executable":"\([^"]*\)".*/\1/p' | tail -1)
python=$(sed -n 's/^OVERTURN_PYTHON = "\(.*\)"$/\1/p' .cargo/config.toml)
OVERTURN_ONNXRUNTIME=$(sed -n 's/^OVERTURN_ONNXRUNTIME = "\(.*\)"$/\1/p' .cargo/config.toml)
export OVERTURN_ONNXRUNTIME
exec "$python" benches/scale.py "${CARGO_TARGET_DIR:-target}/debug/overturn" "$bare" "$PWD/out/scale" "$@"
