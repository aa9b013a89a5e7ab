#!/usr/bin/env bash
# Opens the audit's page in a real browser (Chromium, headless): from file://, with scripts and without, light and dark,
# 1,280 and 400 pixels wide. Nothing may be fetched, nothing may be logged as an error, the search must find, every
# chart must have its data, and all of it must be in the PDF.
#
#   tests/browser.sh [--out out/browser] [PAGE.html ...]
#
# Without pages it makes its own, of made-up runs (one of 1,000 segments), by the unit tests. Screenshots and PDFs
# are left in OUT, to be looked at. Needs Debian's `chromium` and `chromium-driver`; installs them if it may.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out="$PWD/out/browser"
if [ "${1:-}" = --out ]; then out=$(realpath -m "${2:?--out needs a folder}"); shift 2; fi

missing=()
command -v chromium >/dev/null || missing+=(chromium)
command -v chromedriver >/dev/null || missing+=(chromium-driver)
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get install -y --no-install-recommends "${missing[@]}"
  else
    echo "error: ${missing[*]} not found; install with: sudo apt-get install ${missing[*]}" >&2
    exit 1
  fi
fi

rm -rf "$out"
mkdir -p "$out"
if [ $# -eq 0 ]; then
  OVERTURN_PAGES="$out" cargo test --locked --lib audit::page
  set -- "$out"/*.html
fi
exec python3 tests/python/browser.py "$out" "$@"
