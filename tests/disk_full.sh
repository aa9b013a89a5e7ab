#!/usr/bin/env bash
# Fills the disk at 30 sizes each that hit training, explaining and publishing: nothing or the whole is published, the
# message names the path, and a resumption gives the same bytes. Needs root, to mount a small file system in memory;
# says so and ends with code 0 otherwise. Takes about five minutes, and ends by itself after ten at the latest.
#
#   tests/disk_full.sh [--sizes 30] [--seconds 600] [--rows 800]
#
# OVERTURN_BINARY names the binary to test; without it, it is built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tests/binary.sh
work="$PWD/out/disk_full"
mkdir -p "$work/disk"
mountpoint -q "$work/disk" && umount "$work/disk"
if ! mount -t tmpfs -o size=32m overturn-disk-full "$work/disk" 2>/dev/null; then
  echo '{"campaign": "disk_full", "skipped": "mounting a file system needs root"}'
  exit 0
fi
trap 'umount "$work/disk"' EXIT
"$python" tests/python/disk_full_runs.py "$overturn" "$work" "$@"
