#!/usr/bin/env bash
# Kills runs that append to an Iceberg table around their commit, resumes them, lets the catalogue lose answers and refuse
# commits, and another writer append all the while: every night's rows are in the table exactly once, by two independent
# readers, and no row of the other is lost. Ends by itself.
#
#   tests/iceberg.sh [--kills 20] [--rows 300] [--seed 0] [--s3]
#
# OVERTURN_BINARY names the binary to test; without it, it is built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tests/binary.sh
exec "$python" tests/python/iceberg_runs.py "$overturn" "$PWD/out/iceberg" "$@"
