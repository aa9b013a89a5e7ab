#!/usr/bin/env bash
# Kills runs, trainings, scorings, reports, resumptions and overwrites at 500 random moments, starts them again, and
# compares what they publish, byte for byte, with what is published without a kill. Ends by itself, after 15 minutes at
# the latest; tests/it/resume.rs does a smaller round in every test run.
#
#   tests/kill.sh [--kills 500] [--seconds 900] [--rows 800] [--seed 0]
#
# OVERTURN_BINARY names the binary to test; without it, it is built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tests/binary.sh
exec "$python" tests/python/kill_runs.py "$overturn" "$PWD/out/kill" "$@"
