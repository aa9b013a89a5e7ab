#!/usr/bin/env bash
# A hundred runs in a row, each over the one before: the same bytes, and no processes, threads, open files or temporary
# files that stay or grow. Takes about three minutes, and ends by itself after ten at the latest.
#
#   tests/soak.sh [--runs 100] [--rows 800] [--seconds 600]
#
# OVERTURN_BINARY names the binary to test; without it, it is built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tests/binary.sh
exec "$python" tests/python/soak_runs.py "$overturn" "$PWD/out/soak" "$@"
