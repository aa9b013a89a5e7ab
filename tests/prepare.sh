# Sourced by scripts of this folder, from the project's: sets everything up, builds, and says where it is.
bash jobs/setup.sh
cargo build --locked --bins
overturn="${CARGO_TARGET_DIR:-target}/debug/overturn"
python=$(sed -n 's/^OVERTURN_PYTHON = "\(.*\)"$/\1/p' .cargo/config.toml)
data="${OVERTURN_DATA:-$PWD/../shared/data}"
