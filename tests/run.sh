#!/usr/bin/env bash
# Sets everything up and runs every check: format, lints, tests, documentation, benches.
#
# Tests that need the Python environment find it through jobs/setup.sh. Tests on the real data sets look
# in OVERTURN_DATA (default ../shared/data) and report themselves as skipped where it is absent; with
# CI=true its absence is an error.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

step() { printf '\n== %s (%s s so far)\n' "$*" "$SECONDS"; }

export OVERTURN_DATA="${OVERTURN_DATA:-$PWD/../shared/data}"
if [ ! -d "$OVERTURN_DATA" ]; then
  [ "${CI:-}" != true ] || { echo "error: CI needs the data sets in \`$OVERTURN_DATA\`" >&2; exit 1; }
  echo "no data sets in \`$OVERTURN_DATA\`: tests on them will be skipped (set OVERTURN_DATA)"
  unset OVERTURN_DATA
fi

step set-up
bash jobs/setup.sh
step format
cargo fmt --check
step lints
cargo clippy --all-targets --locked -- -D warnings
step tests
cargo test --locked
step documentation
RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --locked
step benches
cargo build --benches --locked
step "done"
