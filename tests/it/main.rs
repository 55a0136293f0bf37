//! The integration tests: one binary, as each binary links the library again. What depends on the state of a whole process
//! (its peak memory, its limits) is a binary of its own next to this folder.
//!
//! `cargo test --test it schemes::gptq` runs the tests of one module.

#[path = "../support/mod.rs"]
mod support;

mod cancel;
mod cold_open;
mod execute;
mod executor_tiles;
mod gguf;
mod kernels;
mod language;
mod large_outputs;
mod limits;
mod load;
mod load_parts;
mod load_report;
mod naive_kernels;
mod numpy;
mod predict;
mod pth;
mod shards;
mod shared_corpus;
mod sink_safetensors;
mod small_files;
mod sources;
mod streaming_stores;
mod structure;
mod truncation;
mod unquantised;

/// Quantised weights.
mod schemes {
    mod autoround;
    mod awq_fast;
    mod bitnet;
    mod bitsandbytes;
    mod corpus_references;
    mod coverage;
    mod damaged_bytes;
    mod damaged_parts;
    mod fp8;
    mod gguf_blocks;
    mod gptq;
    mod hqq;
    mod mlx;
    mod quanto;
    mod quark;
    mod reference_hashes;
    mod torch_quantized;
    mod torchao;
}
