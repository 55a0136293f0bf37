#!/usr/bin/env bash
# Builds ggml's C decoders as target/ggml/libggml.so, which `peers kernels` loads.
# The source comes from a crate which includes it; this repository holds no copy.
set -euo pipefail
cd "$(dirname "$0")"
out="${CARGO_TARGET_DIR:-target}/ggml"
mkdir -p "$out/src"
: > "$out/src/lib.rs"
cat > "$out/Cargo.toml" <<'MANIFEST'
[package]
name = "ggml-source"
edition = "2024"
[dependencies]
llama-cpp-sys-2 = "=0.1.161"
[workspace]
MANIFEST
manifest=$(cargo metadata --format-version 1 --manifest-path "$out/Cargo.toml" |
    grep -o '"manifest_path":"[^"]*/llama-cpp-sys-2-[^"]*"' | cut -d'"' -f4)
ggml="$(dirname "$manifest")/llama.cpp/ggml"
# lazy binding: functions of ggml that the decoders never call stay unresolved
gcc -std=gnu11 -O3 -march=native -fPIC -shared -Wl,-z,lazy \
    -I"$ggml/include" -I"$ggml/src" "$ggml/src/ggml-quants.c" -lm -o "$out/libggml.so"
echo "$out/libggml.so"
