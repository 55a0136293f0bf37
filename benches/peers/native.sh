#!/usr/bin/env bash
# Builds the peers for this machine's processor as target/native/release/peers, which `peers kernels` runs.
set -euo pipefail
cd "$(dirname "$0")"
RUSTFLAGS="-C target-cpu=native" cargo build --release --locked --no-default-features --target-dir "${CARGO_TARGET_DIR:-target}/native" "$@"
