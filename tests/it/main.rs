//! The integration tests in one binary, because each further binary would link the library again. Tests of the state of a whole
//! process (its peak memory, its resource limits) are in `tests/own_process/`.
//!
//! `cargo test --test it schemes::gptq` runs the tests of one module.

#[path = "../support/mod.rs"]
mod support;

mod account;
mod cancel;
mod check;
mod checkpoint_directory;
mod cold_open;
mod concurrent_reads;
mod convert;
mod copied_outputs;
mod dcp;
mod diff;
mod digest;
mod document_links;
mod edit;
mod execute;
mod executor_tiles;
mod fit;
mod format_detection;
mod gguf;
mod hostile_output;
mod hostile_sources;
mod hugging_face;
mod hugging_face_to_gguf;
mod io_report;
mod kernels;
mod language;
mod limits;
mod list;
mod load;
mod load_failures;
mod load_into;
mod load_slices;
mod loaded_tensors;
mod model_knowledge;
mod naive_kernels;
mod non_temporal_stores;
mod npz;
mod numpy;
mod output_directory;
mod owned_results;
mod page_cache_imports;
mod plain_calls;
mod predict;
mod predict_large_models;
mod predict_parallel;
mod pth;
mod pth_numpy;
mod pth_objects;
mod regular_files;
mod remember_slices;
#[cfg(feature = "remote")]
mod remote;
#[cfg(feature = "remote")]
mod remote_header_cache;
#[cfg(feature = "remote")]
mod remote_load;
#[cfg(feature = "remote")]
mod remote_template;
#[cfg(feature = "remote")]
mod remote_upload;
mod running_loads;
mod shards;
mod shared_corpus;
mod sink_safetensors;
mod small_files;
mod source_hints;
mod sources;
#[cfg(target_os = "linux")] // elsewhere the kind of storage and its resident pages are not known
mod storage_info;
mod structure;
mod synonyms;
mod tensor_parallel;
mod tensor_writer;
mod truncation;
mod unquantised;
mod wording;
mod writable_tensors;

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
    mod field;
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
