#!/usr/bin/env bash
# Is the audit right? Planted differences are found, and none where there is none (audit_planted.py); every table that
# asks the model nothing is recounted in DuckDB and NumPy (audit_oracle.py), on Adult by sex, race and age band, and on
# the demo; what it costs beside the run.
#
#   tests/audit.sh [--rows 200000] [--seeds 100]
#
# Adult is looked for in OVERTURN_DATA (default ../shared/data). Everything is made under out/audit.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

rows=200000 seeds=100
while [ $# -gt 0 ]; do
  case "$1" in
    --rows) rows=$2 ;;
    --seeds) seeds=$2 ;;
    *) echo "unknown argument $1, expected --rows or --seeds" >&2; exit 1 ;;
  esac
  shift 2
done

source tests/prepare.sh
export OVERTURN_ONNXRUNTIME=$(sed -n 's/^OVERTURN_ONNXRUNTIME = "\(.*\)"$/\1/p' .cargo/config.toml)
program="$overturn"
out="$PWD/out/audit"
mkdir -p "$out"

"$python" tests/python/audit_planted.py "$program" "$out/planted" "$seeds"
"$python" tests/python/audit_runs.py "$program" "${OVERTURN_DATA:-$PWD/../shared/data}" "$out/runs" "$rows"
