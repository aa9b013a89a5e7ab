#!/usr/bin/env bash
# From a fresh clone to a published run: sets everything up, builds, makes a million credit applications, learns
# what would have to change for a random forest to approve the rejected ones, explains every application,
# reports, and publishes all of it as one folder. Then asks the fitted generator about three applicants in SQL,
# and runs the job once more, which finds that there is nothing left to do.
#
#   OVERTURN_ROWS   applications to make (default 1,000,000)
#   OVERTURN_OUT    where results go (default ./out/demo; replaced)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

rows="${OVERTURN_ROWS:-1000000}"
out=$(realpath -m "${OVERTURN_OUT:-out/demo}")
job=(jobs/demo/run.toml --set data="$out/applications" --set out="$out/explained")

say() { printf '\n\033[1m%s\033[0m\n' "$*" >&2; }

bash jobs/setup.sh
say "Building"
cargo build --locked --bins
overturn="${CARGO_TARGET_DIR:-target}/debug/overturn"
"$overturn" --version

rm -rf "$out"
mkdir -p "$out"

say "Making $rows credit applications"
"$overturn" synth "$out/applications" --rows "$rows" --files 8

say "What the job would do"
"$overturn" run "${job[@]}" --dry-run

say "Learning, explaining, reporting, publishing"
"$overturn" run "${job[@]}"

say "The first three rejected applicants who can be helped, in SQL"
"$overturn" sql --generator "$out/explained/generator" --job "${job[@]}" --table a="$out/applications" "
  SELECT application_id, loan_amount, change['feature'] AS change, change['from'] AS \"from\", change['to'] AS \"to\"
  FROM (
    SELECT application_id, loan_amount, unnest(x['changes']) AS change
    FROM (
      SELECT * FROM (SELECT *, counterfactual('approved') AS x FROM a WHERE application_id < 200)
      WHERE x['status'] = 'solved' ORDER BY application_id LIMIT 3
    )
  )"

say "The same job again"
"$overturn" run "${job[@]}" | grep published
