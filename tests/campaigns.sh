#!/usr/bin/env bash
# All campaigns at their full numbers, one after the other, each of which ends by itself: kills, full disks, failing
# system calls, soaking, fuzzing. About 35 minutes on two cores, 40 at the latest. Their last lines, as JSON, are collected in
# out/campaigns.json, their logs in out/campaigns/. Ends with code 1 if one of them found something.
#
#   tests/campaigns.sh [kills disk_full faults soak fuzz]
#
# OVERTURN_BINARY names the binary to test; without it, it is built. OVERTURN_FUZZ_LIMIT is the time for each fuzz
# target in seconds (default 150; the full million inputs of slow targets take longer: tests/fuzz.sh --seconds 3600).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ $# -gt 0 ] || set -- kills disk_full faults soak fuzz
mkdir -p out/campaigns
source tests/binary.sh || exit 1
export OVERTURN_BINARY=$overturn

run() { # run NAME SECONDS COMMAND...
  local name=$1 seconds=$2 began=$SECONDS code
  shift 2
  echo "== $name"
  # A campaign that should hang in spite of its own limits is ended here.
  timeout --kill-after=20 "$seconds" "$@" >"out/campaigns/$name.log" 2>&1
  code=$?
  local last
  last=$(grep -a '^{"campaign"' "out/campaigns/$name.log" | tail -n 1)
  [ -n "$last" ] || last="{\"campaign\": \"$name\", \"failures\": \"did not end, see out/campaigns/$name.log\"}"
  echo "$last"
  grep -a '^FAIL' "out/campaigns/$name.log" | head -n 10
  results+=("{\"code\": $code, \"took_seconds\": $((SECONDS - began)), \"result\": $last}")
  [ "$code" = 0 ] || failed=1
}

results=()
failed=0
for campaign in "$@"; do
  case $campaign in
    kills) run kills 1000 bash tests/kill.sh --kills 500 --seconds 900 ;;
    disk_full) run disk_full 700 bash tests/disk_full.sh --sizes 30 --seconds 600 ;;
    faults) run faults 700 bash tests/faults.sh --points 120 --seconds 600 ;;
    soak) run soak 700 bash tests/soak.sh --runs 100 --seconds 600 ;;
    fuzz) run fuzz 1800 bash tests/fuzz.sh --inputs 1000000 --validate 20000 --seconds "${OVERTURN_FUZZ_LIMIT:-150}" ;;
    *) echo "error: there is no campaign \`$campaign\`" >&2; exit 1 ;;
  esac
done
joined=$(IFS=,; echo "${results[*]}")
echo "[$joined]" | python3 -m json.tool >out/campaigns.json
echo "results: out/campaigns.json"
exit $failed
