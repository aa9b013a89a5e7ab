# To be sourced by the campaigns, in the project's folder: sets `overturn` (the binary: OVERTURN_BINARY, or a fresh
# build) and `python` (the test environment's).
bash jobs/setup.sh
overturn="${OVERTURN_BINARY:-}"
if [ -z "$overturn" ]; then
  cargo build --locked --bins
  overturn="${CARGO_TARGET_DIR:-target}/debug/overturn"
fi
overturn=$(realpath "$overturn")
python=$(sed -n 's/^OVERTURN_PYTHON = "\(.*\)"$/\1/p' .cargo/config.toml)
