#!/usr/bin/env bash
# Every method of `explain.method`, and several in one run, on the demo's table and forest: rows a second, memory,
# queries a row; equal values for one and two threads; kills. methods.py says how.
#
#   tests/methods.sh [--rows 100000] [--small 10000] [--kills 2] [--methods "nearest lore"] [--seed 0]
#
# OVERTURN_BINARY names the binary to test; without it, it is built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tests/binary.sh
exec "$python" tests/python/methods.py "$overturn" "$PWD/out/methods" "$@"
