//! Inspect, dequantise and load tensor files: safetensors, GGUF, NPY, NPZ and PyTorch.
//!
//! [`Checkpoint::open`] reads the headers of a file, a directory of shards or a split and checks them; every
//! input is treated as untrusted. The resulting [`Catalog`] describes all tensors. From there on:
//!
//! ```text
//!  path, reader, bytes      headers              which bytes, which elements
//!  Source ─────────────▶ Catalog ──schemes──▶ Plan ──Loader──▶ Decoder ──▶ Sink
//!                           │                  │
//!                        inspect            predict (I/O templates)
//! ```
//!
//! # Inspect
//!
//! ```
//! use anamnesis::Checkpoint;
//!
//! let checkpoint = Checkpoint::open("fixtures/gguf/plain_v3.gguf")?;
//! for tensor in checkpoint.catalog().tensors() {
//!     println!("{:20} {:8} {:?}", tensor.name, tensor.encoding, tensor.shape);
//! }
//! let summary = checkpoint.inspect()?;
//! println!("{} tensors, {} bytes", summary.totals.tensors, summary.totals.nbytes);
//! # Ok::<(), anamnesis::Error>(())
//! ```
//!
//! # Dequantise
//!
//! [`remember()`] makes the weights that quantised tensors stand for, bit for bit as the scheme's reference
//! implementation does, in memory or streamed to safetensors files:
//!
//! ```
//! use anamnesis::{Checkpoint, Dtype, remember};
//!
//! let checkpoint = Checkpoint::open("fixtures/model/scribe-Q8_0.gguf")?;
//! let weight = remember(&checkpoint).dtype(Dtype::F32).tensor("blk.0.attn_q.weight")?;
//! println!("{}: {} bytes", weight.spec, weight.bytes.len());
//! # Ok::<(), anamnesis::Error>(())
//! ```
//!
//! # Load
//!
//! [`load()`] reads stored tensors into pooled memory. One tensor alone is read by [`Tensor::bytes`], which
//! borrows from the mapped file where it can:
//!
//! ```
//! use anamnesis::pool::BufferPool;
//! use anamnesis::{Checkpoint, load};
//!
//! let checkpoint = Checkpoint::open("fixtures/safetensors/sharded")?;
//! let pool = BufferPool::new();
//! let tensors = load(&checkpoint).pool(&pool).run()?;
//! let head = tensors.get("lm_head.weight").expect("the tensor exists");
//! assert_eq!(head.bytes(), &*checkpoint.tensor("lm_head.weight").expect("the tensor exists").bytes()?);
//! # Ok::<(), anamnesis::Error>(())
//! ```
//!
//! # Check
//!
//! [`check()`] finds what cannot be right in files and values; [`check::check_path`] opens what it can of a damaged model:
//!
//! ```
//! use anamnesis::OpenOptions;
//! use anamnesis::check::check_path;
//!
//! let report = check_path("fixtures/ask/check/truncated.safetensors", &OpenOptions::new()).run()?;
//! for finding in &report.findings {
//!     println!("{}: {}: {}", finding.level.name(), finding.rule, finding.message);
//! }
//! assert_eq!(report.findings[0].rule, "truncated");
//! # Ok::<(), anamnesis::Error>(())
//! ```
//!
//! # Predict
//!
//! [`predict()`] computes which bytes each worker of an inference service will read, before its first run:
//!
//! ```
//! use anamnesis::{Checkpoint, predict};
//!
//! let checkpoint = Checkpoint::open("fixtures/model/scribe.safetensors")?;
//! let template = predict(&checkpoint).tp(2).template()?;
//! let worker = template.group(1).expect("the second of two workers");
//! println!("{} accesses, {} bytes", worker.accesses().len(), worker.nbytes());
//! # Ok::<(), anamnesis::Error>(())
//! ```
//!
//! # Compare
//!
//! [`diff()`] lists what differs between two checkpoints of any formats: by bytes where they are stored alike, by values where they
//! are not:
//!
//! ```
//! use anamnesis::{Checkpoint, diff};
//!
//! let original = Checkpoint::open("fixtures/model/scribe.safetensors")?;
//! let quantised = Checkpoint::open("fixtures/model/scribe-Q8_0.gguf")?;
//! for tensor in diff(&original, &quantised).run()?.tensors {
//!     println!("{:?} {:?}: {:?}", tensor.a, tensor.kind, tensor.nmse);
//! }
//! # Ok::<(), anamnesis::Error>(())
//! ```
//!
//! # List
//!
//! [`list()`] walks over a tree, a cache or a bucket, and describes each model by its headers:
//!
//! ```
//! for model in anamnesis::list("fixtures/model").run()? {
//!     let model = model?;
//!     println!("{}: {:?} parameters", model.path.display(), model.parameters);
//! }
//! # Ok::<(), anamnesis::Error>(())
//! ```
//!
//! Programs that inspect, dequantise, load and predict are in the repository's `examples/` directory.
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | crate root | [`Checkpoint`], [`CheckpointHandle`], [`OpenOptions`], [`Tensor`], [`Limits`], [`Error`], [`Note`], and the functions above |
//! | [`catalog`] | the description of a checkpoint as data |
//! | [`mod@diff`] | the differences between two checkpoints |
//! | [`mod@list`] | the models of a tree, a cache or a bucket |
//! | [`inspect`] | the summary that `anamnesis inspect --json` prints |
//! | [`mod@fit`] | the memory that a model takes, by the rule of an engine |
//! | [`source`] | where bytes come from: maps, files, memory, readers, streams, functions |
//! | [`mod@format`] | the container formats, and detection from the first bytes |
//! | [`scheme`] | quantisation schemes: which tensors belong to a weight, and how it is decoded |
//! | [`plan`] | which outputs to make from which byte ranges |
//! | [`mod@execute`] | running a plan |
//! | [`mod@load`] | loaders: mapped, positioned reads, io_uring, requests |
//! | [`objects`] | the object that a PyTorch file holds, as a graph of plain values |
//! | [`mod@slice`] | which part of a tensor is loaded or dequantised |
//! | [`pool`] | the buffer pool that is loaded into |
//! | `remote` | options and counters of requests for URLs (feature `remote`) |
//! | [`mod@quantise`] | a GGUF in another type, as llama.cpp writes it; importance matrices |
//! | [`sink`] | where results are written: memory, safetensors files |
//! | [`companions`] | configuration and tokenizer files that accompany the tensors |
//! | [`mod@check`] | whether files are whole and values sane: rules, findings, lists of digests |
//! | [`mod@digest`] | the SHA-256 of tensors |
//! | [`mod@predict`] | I/O templates from the catalog and from recordings |
//! | [`template`] | reading, writing and comparing I/O templates |
//! | [`kernel`] | dequantisation of single blocks and rows |
//! | [`mod@quote`] | names from files as text that is safe to show |
//!
//! # Features
//!
//! | feature | default | effect |
//! |---|---|---|
//! | `mmap` | yes | paths are memory-mapped; without it they are read with positioned reads |
//! | `remote` | no | `http://`, `https://`, `s3://`, `gs://`, `az://`, `abfss://`, `hf://`, `ms://`, `oci://` and `ollama://` URLs are opened where paths are, and buckets are written to |
//! | `uring` | yes | the io_uring loader (Linux); without it, or where the kernel refuses, threads read |
//!
//! # Memory maps and truncation
//!
//! A path is memory-mapped by default. If another process truncates a mapped file, access behind its new end
//! raises `SIGBUS`; if it overwrites the file, borrowed bytes change. See [`Checkpoint::open`], and
//! [`OpenOptions::mmap`] for reading without a map.
//!
//! # Thread safety
//!
//! A [`Checkpoint`] can be shared: any number of threads may read from it at the same time. [`remember()`] and [`load()`]
//! use one thread per core unless their builder says otherwise, and all threads have ended when a call returns; threads of
//! [`Load::start`] when its handle has ended or was dropped.
//!
//! ```
//! fn shareable<T: Send + Sync>() {}
//! shareable::<anamnesis::Checkpoint>();
//! shareable::<anamnesis::pool::BufferPool>();
//! ```
//!
//! # Errors and limits
//!
//! Every failure is an [`Error`] with a kind, a place (file, format, byte offset) and, where one follows, a
//! [`Remedy`]. Allocations whose size a file decides are charged against [`Limits`] first. The library does
//! not panic on any input file.
//!
//! # Stability and supported compilers
//!
//! Before 1.0, minor versions may change the API. Enums and structs that are likely to grow are
//! `#[non_exhaustive]`. Five traits are extension points, meant to be implemented outside of this crate:
//! [`Source`], [`source::ConcurrentReads`], [`load::Loader`], [`sink::Sink`] and [`plan::Decoder`]. The minimum supported
//! Rust version is 1.95; raising it is a minor change.

mod analysis;
mod base;
mod engine;
mod models;
pub mod plan;
mod quant;
mod read;

pub use analysis::{check, diff, fit, inspect, list};
pub use base::{kernel, pool, quote, template};
pub use engine::{companions, execute, load, predict, quantise, sink};
pub use quant::scheme;
pub use read::{catalog, digest, format, objects, slice, source};

#[cfg(feature = "remote")]
pub use base::remote;

pub use analysis::check::{Check, check};
pub use analysis::diff::{CheckpointDiff, diff};
pub use analysis::fit::{Fit, fit};
pub use analysis::inspect::Summary;
pub use analysis::list::{List, ModelEntry, list};
pub use anamnesis_kernel::{BlockFormat, Dtype};
pub use anamnesis_template::ByteRange;
pub use base::error::{Error, ErrorKind, Remedy, Result};
pub use base::limits::{Limits, Usage};
pub use base::note::Note;
pub use base::progress::{CancelToken, Progress};
pub use engine::convert::{Convert, convert};
pub use engine::edit::{Edit, EditReport, EditWay, EditedFile, RecoveredEdit, edit};
pub use engine::load::{Load, Loaded, load};
pub use engine::predict::{Predict, predict};
pub use engine::quantise::{Quantise, quantise};
pub use engine::remember::{MadePart, OutputDtype, Remember, Remembered, remember};
pub use models::config::{ConfigField, ModelConfig};
pub use models::conversion::Names;
pub use plan::Plan;
pub use quant::scheme::QuantConfig;
pub use read::catalog::{
    Catalog, Encoding, Endian, Item, Layout, Metadata, StoredArray, TensorInfo, Value,
};
pub use read::checkpoint::{
    Checkpoint, CheckpointHandle, Objects, OpenOptions, UnreadFile, again_if_replaced,
    checkpoints_below,
};
pub use read::digest::{Digests, digest};
pub use read::format::Format;
pub use read::format::gguf::FileType;
pub use read::rename::Rename;
pub use read::source::Source;
pub use read::tensor::{Element, Tensor};

/// The documents' examples run as tests.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/untrusted.md")]
    struct Untrusted;
}
