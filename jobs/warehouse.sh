#!/usr/bin/env bash
# From a Delta table to a Delta table: puts two nights of credit applications into an S3 server of this machine (moto, on
# the loopback device), runs jobs/warehouse/nightly.toml for each, the last one twice, and counts the result with DuckDB.
# Ends by itself, and ends the server. Nothing leaves the machine.
#
#   OVERTURN_ROWS     applications a night (default 20,000)
#   OVERTURN_BINARY   the binary to run; without it, it is built
#   OVERTURN_LAKE     `local` for a folder instead of the server
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tests/binary.sh

rows="${OVERTURN_ROWS:-20000}"
work="$PWD/out/warehouse"
rm -rf "$work"
mkdir -p "$work"

say() { printf '\n\033[1m%s\033[0m\n' "$*" >&2; }

if [ "${OVERTURN_LAKE:-}" = local ]; then
  lake="$work/lake"
else
  port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  # Should this script be killed, the server ends by itself.
  timeout 1800 "$python" -m moto.server -H 127.0.0.1 -p "$port" >"$work/moto.log" 2>&1 &
  server=$!
  trap 'kill "$server" 2>/dev/null || true' EXIT
  export AWS_ENDPOINT_URL="http://127.0.0.1:$port" AWS_ALLOW_HTTP=true AWS_REGION=us-east-1
  export AWS_ACCESS_KEY_ID=example AWS_SECRET_ACCESS_KEY=example XDG_CACHE_HOME="$work/cache"
  for _ in $(seq 100); do
    curl -sf -X PUT "$AWS_ENDPOINT_URL/lake" >/dev/null && break
    kill -0 "$server" || { cat "$work/moto.log" >&2; exit 1; }
    sleep 0.2
  done
  lake=s3://lake
fi

say "Two nights of $rows applications as the Delta table $lake/applications"
for night in 2026-11-18 2026-11-19; do
  "$overturn" synth "$work/$night" --rows "$rows" --seed "${night##*-}" >/dev/null
done
"$python" jobs/warehouse/lake.py put "$lake" "$work" 2026-11-18 2026-11-19

run() { timeout 900 "$overturn" run jobs/warehouse/nightly.toml --set lake="$lake" --set night="$1" "${@:2}"; }

say "The first night"
run 2026-11-18 | tail -n 3
say "The second night"
run 2026-11-19 | tail -n 3
say "The second night again: nothing is done twice"
run 2026-11-19 --resume | grep -E 'published|committed'

say "What DuckDB finds in $lake/recourse"
"$python" jobs/warehouse/lake.py show "$lake" "$rows"
