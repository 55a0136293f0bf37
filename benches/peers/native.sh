#!/usr/bin/env bash
# Builds this program with -C target-cpu=native as target/native/release/peers, which `peers kernels` runs for its peers.
set -euo pipefail
cd "$(dirname "$0")"
RUSTFLAGS="-C target-cpu=native" cargo build --release --locked --no-default-features --target-dir "${CARGO_TARGET_DIR:-target}/native" "$@"
