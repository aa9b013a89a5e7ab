#!/usr/bin/env bash
# Makes single system calls fail while tables are scored, explained, reported and published: 120 points over some 25
# kinds of calls. Needs strace, and installs it where it may (Debian, root); says so and ends with code 0 otherwise.
# Takes about five minutes, and ends by itself after ten at the latest.
#
#   tests/faults.sh [--points 120] [--seconds 600] [--rows 800] [--seed 0]
#
# OVERTURN_BINARY names the binary to test; without it, it is built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tests/binary.sh
if ! command -v strace >/dev/null && [ "$(id -u)" = 0 ]; then
  apt-get install -y -qq strace >/dev/null 2>&1 || { apt-get update -qq && apt-get install -y -qq strace; } >/dev/null 2>&1 || true
fi
if ! strace -qq -o /dev/null true 2>/dev/null; then
  echo '{"campaign": "faults", "skipped": "strace is not there, or may not trace (it needs ptrace)"}'
  exit 0
fi
exec "$python" tests/python/fault_runs.py "$overturn" "$PWD/out/faults" "$@"
