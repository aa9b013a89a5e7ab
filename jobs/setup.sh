#!/usr/bin/env bash
# Puts everything the project needs beside Rust, gcc and Python into a cache outside the tree, once for
# all clones, and points this clone at it:
#
#   libtorch       CPU build; OVERTURN_CUDA=1 takes the CUDA build instead (about 3 GB)
#   ONNX Runtime   one shared library
#   Python         a virtual environment for tests and examples (tests/requirements.txt);
#                  OVERTURN_NO_PYTHON=1 leaves it out
#
# Every download is pinned by version and SHA-256. Each part is made under a temporary name and renamed
# when complete, under a lock, so an interrupted or doubled run leaves nothing half-installed. When all
# is there it does nothing and takes a fraction of a second.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cache="${XDG_CACHE_HOME:-$HOME/.cache}/overturn"
flavour=cpu
[ "${OVERTURN_CUDA:-0}" = 1 ] && flavour=cuda

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { printf 'setup: error: %s\n' "$1" >&2; [ $# -lt 2 ] || printf '  hint: %s\n' "$2" >&2; exit 1; }

# A part's folder carries a hash of its pin file: changed pins are a new folder, never a mixture.
pin() { sha256sum "$1" | cut -c1-10; }
libtorch="$cache/libtorch-$flavour-$(pin "jobs/setup/libtorch-$flavour.txt")"
onnxruntime="$cache/onnxruntime-$(pin jobs/setup/onnxruntime.txt)"
venv="$cache/python-$(pin tests/requirements.txt)"

check_tools() {
  [ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] ||
    fail "this is $(uname -s) on $(uname -m), but the pinned libraries are for Linux on x86_64" \
      "install libtorch 2.13.0 and ONNX Runtime 1.31 by hand and set LIBTORCH and OVERTURN_ONNXRUNTIME"
  for tool in cargo gcc g++ python3 flock; do
    command -v "$tool" >/dev/null || fail "\`$tool\` was not found on PATH" \
      "needed: Rust (Cargo.toml names the oldest release), gcc and g++, Python 3 with pip"
  done
  python3 -m pip --version >/dev/null 2>&1 ||
    fail "\`python3 -m pip\` does not run" "install pip for $(command -v python3)"
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "$(python3 --version) is too old, expected 3.11 or newer" "the pinned Python packages need it"
}

# Wheels of one fixed Python, whatever Python runs here: only their shared libraries are used.
wheels() { # wheels VERB PIN-FILE ARGUMENTS...
  local verb=$1 pins=$2; shift 2
  local platforms=()
  for glibc in $(seq 28 -1 17); do platforms+=(--platform "manylinux_2_${glibc}_x86_64"); done
  python3 -m pip "$verb" --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --implementation cp --python-version 3.11 --abi cp311 --abi abi3 --abi none \
    --platform manylinux2014_x86_64 "${platforms[@]}" --require-hashes -r "$pins" "$@"
}

# unpack FOLDER TARGET MEMBER-PREFIX...: takes the matching members of all wheels in FOLDER.
# A prefix `a/b=c` puts what lies below `a/b` into TARGET/c.
unpack() {
  python3 - "$@" <<'PYTHON'
import glob, os, shutil, sys, zipfile
folder, target, *rules = sys.argv[1:]
rules = [rule.split("=") for rule in rules]
taken = dict.fromkeys((prefix for prefix, _ in rules), 0)
for wheel in sorted(glob.glob(folder + "/*.whl")):
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            for prefix, place in rules:
                if member.is_dir() or not member.filename.startswith(prefix):
                    continue
                path = os.path.normpath(os.path.join(target, place, os.path.relpath(member.filename, os.path.dirname(prefix))))
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with archive.open(member) as source, open(path, "wb") as sink:
                    shutil.copyfileobj(source, sink, 1 << 20)
                taken[prefix] += 1
missing = [prefix for prefix, count in taken.items() if count == 0]
if missing:
    sys.exit("setup: error: not found in the downloaded wheels: " + ", ".join(missing))
PYTHON
}

make_libtorch_cpu() {
  say "downloading libtorch 2.13.0 for the CPU (540 MB, kept: 500 MB)"
  wheels download jobs/setup/libtorch-cpu.txt --no-cache-dir --dest "$1/wheels"
  unpack "$1/wheels" "$1" torch/include/=include torch/lib/libtorch_cpu.so=lib torch/lib/libc10.so=lib \
    torch/lib/libgomp.so.1=lib nvidia/cu13/lib/libcudart.so.13=lib nvidia/cu13/lib/libcupti.so.13=lib
  # The wheel's libtorch.so only ties the CPU and CUDA halves together; this one ties the CPU half.
  gcc -shared -x c /dev/null -o "$1/lib/libtorch.so" -Wl,--no-as-needed "-Wl,-rpath,\$ORIGIN" \
    -L"$1/lib" -l:libtorch_cpu.so -l:libc10.so -Wl,--allow-shlib-undefined
  echo 2.13.0 >"$1/build-version"
  rm -r "$1/wheels"
}

make_libtorch_cuda() {
  say "downloading libtorch 2.13.0 with CUDA (about 3 GB, kept: about 4 GB)"
  wheels install jobs/setup/libtorch-cuda.txt --no-cache-dir --root-user-action=ignore --target "$1/site"
  ln -s site/torch/include "$1/include"
  ln -s site/torch/lib "$1/lib"
  echo 2.13.0+cu130 >"$1/build-version"
}

make_onnxruntime() {
  say "downloading ONNX Runtime 1.31.1 (24 MB, kept: 29 MB)"
  wheels download jobs/setup/onnxruntime.txt --no-cache-dir --dest "$1/wheels"
  unpack "$1/wheels" "$1" onnxruntime/capi/libonnxruntime.so=.
  mv "$1"/libonnxruntime.so.* "$1/libonnxruntime.so"
  rm -r "$1/wheels"
}

make_python() {
  say "downloading Python packages for tests and examples (190 MB, kept: 700 MB)"
  python3 -m venv --without-pip "$1"
  python3 -m pip --python "$1/bin/python" install --quiet --disable-pip-version-check --root-user-action=ignore --no-cache-dir \
    --require-hashes --only-binary=:all: -r tests/requirements.txt
}

# install NAME FOLDER: runs make_NAME on a temporary folder, then renames it into place.
install() {
  [ -d "$2" ] && return
  local began=$SECONDS temporary="$cache/.making-$(basename "$2")"
  rm -rf "$temporary"
  mkdir -p "$temporary"
  "make_$1" "$temporary"
  mv -T "$temporary" "$2"
  say "$(basename "$2") ready in $((SECONDS - began)) s"
}

# Plain `cargo build`, `cargo test` and `cargo run` read this; build.rs bakes the paths into the binary.
cargo_config() {
  cat <<TOML
# Written by jobs/setup.sh; run it again rather than editing this.
[env]
LIBTORCH = "$libtorch"
OVERTURN_ONNXRUNTIME = "$onnxruntime/libonnxruntime.so"
OVERTURN_PYTHON = "$venv/bin/python"
TOML
}

wanted=("libtorch_$flavour" "$libtorch" onnxruntime "$onnxruntime")
[ "${OVERTURN_NO_PYTHON:-0}" = 1 ] || wanted+=(python "$venv")

missing=0
for ((i = 1; i < ${#wanted[@]}; i += 2)); do [ -d "${wanted[i]}" ] || missing=1; done
if [ "$missing" = 1 ]; then
  check_tools
  mkdir -p "$cache" || fail "cannot create \`$cache\`" "set XDG_CACHE_HOME to a folder you can write to"
  exec 9>"$cache/.lock"
  flock --nonblock 9 || { say "waiting for another set-up to finish"; flock 9; }
  for ((i = 0; i < ${#wanted[@]}; i += 2)); do install "${wanted[i]}" "${wanted[i + 1]}"; done
  exec 9>&-
fi

if [ "$(cat .cargo/config.toml 2>/dev/null)" != "$(cargo_config)" ]; then
  mkdir -p .cargo
  cargo_config >".cargo/config.toml.$$"
  mv ".cargo/config.toml.$$" .cargo/config.toml
  say "wrote .cargo/config.toml"
fi
