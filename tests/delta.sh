#!/usr/bin/env bash
# Kills runs that commit to a Delta table around their commit, resumes them, and lets another writer append all the
# while: every night's rows are in the table exactly once, by two independent readers, and no row of the other is lost.
# Ends by itself.
#
#   tests/delta.sh [--kills 20] [--rows 300] [--seed 0] [--s3]
#
# OVERTURN_BINARY names the binary to test; without it, it is built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tests/binary.sh
exec "$python" tests/python/delta_runs.py "$overturn" "$PWD/out/delta" "$@"
