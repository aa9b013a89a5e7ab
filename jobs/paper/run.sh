#!/usr/bin/env bash
# The paper's grid: trains the classifiers of its appendix on its data sets, runs `overturn` on every one of them,
# and writes jobs/paper/RESULTS.md: our figures beside the paper's. grid.py says what each option means.
#
#   jobs/paper/run.sh [--datasets "adult breast_cancer covertype bank spambase wdbc wine"]
#                     [--models "lr dt rf lsvc xgb"] [--seeds "0 1 2"] [--variants "ae mo dice_random dice_genetic lore noae paper"]
#                     [--jobs 2] [--threads N] [--paper-steps N] [--rival-rows N] [--train KEY=VALUE]... [--keep] [--keep-old]
#   jobs/paper/run.sh --page      only writes the page anew
#
# The whole grid takes long, and can be run in pieces: finished cells stay under out/paper and are not run again. Data
# sets are looked for in OVERTURN_DATA (default ../shared/data).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

data="${OVERTURN_DATA:-$PWD/../shared/data}"
bash jobs/setup.sh
case " $* " in
  *" --page "* | *" --help "* | *" -h "*) ;;
  *) cargo build --locked --bins ;;
esac
python=$(sed -n 's/^OVERTURN_PYTHON = "\(.*\)"$/\1/p' .cargo/config.toml)
exec "$python" jobs/paper/grid.py "${CARGO_TARGET_DIR:-target}/debug/overturn" "$data" "$PWD/out/paper" "$@"
