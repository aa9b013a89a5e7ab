#!/usr/bin/env bash
# Kills whole runs at 30 random moments, resumes them, and holds what they publish, byte for byte, against a
# run that was not killed. Takes about five minutes; tests/it/resume.rs does a smaller round in every test run.
#
#   tests/kill.sh [--kills 30] [--rows 60000] [--seed 0]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash jobs/setup.sh
cargo build --locked --bin overturn
python=$(sed -n 's/^OVERTURN_PYTHON = "\(.*\)"$/\1/p' .cargo/config.toml)
exec "$python" tests/python/kill_runs.py "${CARGO_TARGET_DIR:-target}/debug/overturn" "$PWD/out/kill" "$@"
