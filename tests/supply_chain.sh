#!/usr/bin/env bash
# What the program is made of: checks licences, sources, duplicates and bans (deny.toml), looks for known
# vulnerabilities, and writes a software bill of materials to out/sbom.json (CycloneDX), with the Rust packages and the
# shared libraries of jobs/setup.sh with their SHA-256.
#
#   tests/supply_chain.sh [--no-advisories] [--install-only]
#
# Known vulnerabilities are looked up in a database from the network. Where that cannot be had the script ends with
# code 3, after everything else was done; `--no-advisories` leaves them out on purpose, and says so.
#
# cargo-deny and cargo-cyclonedx are compiled once, pinned, into the cache of jobs/setup.sh (some ten minutes on two
# cores), which is why tests/run.sh does not do this; tests/it/supply.rs checks licences, sources and bans without them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

deny=0.20.2
cyclonedx=0.5.9
tools="${XDG_CACHE_HOME:-$HOME/.cache}/overturn/tools-deny-$deny-cyclonedx-$cyclonedx"
advisories=yes
install_only=no
for option in "$@"; do
  case $option in
    --no-advisories) advisories=no ;;
    --install-only) install_only=yes ;;
    *) echo "error: unknown option \`$option\`, see the head of $0" >&2; exit 1 ;;
  esac
done

install() { # install PACKAGE VERSION
  [ -x "$tools/bin/$1" ] && return
  echo "compiling $1 $2 into $tools" >&2
  # Not with the project's settings: its Cargo.toml and .cargo/config.toml are about libtorch.
  (cd / && CARGO_TARGET_DIR="$tools/build" nice -n 19 cargo install --locked --quiet --root "$tools" \
    --jobs "${OVERTURN_JOBS:-1}" --version "=$2" "$1")
  rm -rf "$tools/build"
}
install cargo-cyclonedx "$cyclonedx"
install cargo-deny "$deny"
[ "$install_only" = no ] || exit 0
export PATH="$tools/bin:$PATH"
mkdir -p out

cargo deny --locked --offline check licenses sources bans
vulnerabilities="not looked up (--no-advisories)"
code=0
if [ "$advisories" = yes ]; then
  if ! cargo deny --locked fetch db >out/advisories.log 2>&1; then
    vulnerabilities="not looked up: the advisory database cannot be had (see out/advisories.log)"
    code=3
  elif cargo deny --locked check --disable-fetch advisories; then
    vulnerabilities="none known"
  else
    vulnerabilities="found"
    code=1
  fi
fi

# One file beside each manifest; there is one manifest.
rm -f overturn.cdx.json
cargo cyclonedx --quiet --format json --spec-version 1.5 --target x86_64-unknown-linux-gnu --no-build-deps \
  --override-filename overturn.cdx
mv overturn.cdx.json out/sbom.json
python3 - "$vulnerabilities" <<'PYTHON'
import json, pathlib, re, sys

bom = json.loads(pathlib.Path("out/sbom.json").read_text())
licences = {"torch": "BSD-3-Clause", "onnxruntime": "MIT"}
for pins in ("jobs/setup/libtorch-cpu.txt", "jobs/setup/onnxruntime.txt"):
    for name, version, digest in re.findall(r"^([\w-]+)==(\S+) --hash=sha256:([0-9a-f]{64})$", pathlib.Path(pins).read_text(), re.M):
        licence = licences.get(name)
        bom["components"].append({
            "type": "library", "bom-ref": f"pkg:pypi/{name}@{version}", "purl": f"pkg:pypi/{name}@{version}",
            "name": name, "version": version, "hashes": [{"alg": "SHA-256", "content": digest}],
            "licenses": [{"license": {"id": licence}} if licence else {"license": {"name": "NVIDIA proprietary"}}],
            "description": f"shared library, cut out of the wheel that {pins} pins; loaded, not compiled in",
        })
pathlib.Path("out/sbom.json").write_text(json.dumps(bom, indent=1))
rust = sum(part.get("purl", "").startswith("pkg:cargo/") for part in bom["components"])
hashed = sum(bool(part.get("hashes")) for part in bom["components"])
print(json.dumps({"campaign": "supply_chain", "components": len(bom["components"]), "rust_packages": rust,
                  "with_sha256": hashed, "vulnerabilities": sys.argv[1], "sbom": "out/sbom.json"}))
PYTHON
exit "$code"
