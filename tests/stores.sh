#!/usr/bin/env bash
# Runs that read from and write to an S3 server (moto) on loopback: killed at random moments and between the decision
# and `_SUCCESS`, started many at once, disturbed by a proxy that makes faults, and measured against local files.
#
#   tests/stores.sh [kills|faults|speed|google|listing]... [-- ARGUMENTS]
#
# Without a name all of them, about fifteen minutes; `google` is the XML API of Google's storage over the same server.
# OVERTURN_BINARY names the binary to test; without it, it is built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tests/binary.sh
names=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do names+=("$1"); shift; done
[ "${1:-}" != -- ] || shift
[ ${#names[@]} -gt 0 ] || names=(kills faults speed google listing)
for name in "${names[@]}"; do
  "$python" "tests/python/store_$name.py" "$overturn" "$@"
done
