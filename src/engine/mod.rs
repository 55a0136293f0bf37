//! The storey that moves bytes: loaders that read them, the executor that decodes them, sinks that store them.
//!
//! | module | content | start reading at |
//! |---|---|---|
//! | `load` | stored tensors into memory, by the loader that suits the device | the trait `Loader` |
//! | `execute` | a plan run by workers: reads, tiles, results | `execute` |
//! | `sink` | where outputs go: memory, safetensors files, uploads | the trait `Sink` |
//! | `companions` | the files of a model that hold no tensors, carried over or changed | |
//! | `remember` | dequantise: plan, execute, sink under one builder | `Remember` |
//! | `convert` | copy as stored: between files, names and containers | `Convert` |
//! | `quantise` | a GGUF in another type of blocks, as llama.cpp writes it | `Quantise` |
//! | `edit` | other metadata and names in files that exist | `Edit` |
//! | `predict` | the bytes that each worker of a service will read, as an I/O template | `Predict` |
//!
//! For example, `remember(&checkpoint).to_file(path)` plans every weight, opens a `SafetensorsSink`, and has `execute` read the
//! inputs of tiles by a loader, decode them, and put the elements into the sink, which names the file when it is complete.
//!
//! **Ctrl-C in a load.** The command's handler (`crates/cli/src/interrupt.rs`) cancels a `CancelToken`. Nothing is woken: each
//! worker asks its `TaskProgress` every `CHECK_INTERVAL` bytes, and a loader whose reads take longer asks `on_bytes` while
//! it waits (`load/read_ahead.rs`). The first to see it returns `Cancelled`, `RunProgress` stops the others, the loader joins
//! its threads, and a run that has a sink drops it before `end`, which removes what it staged. While a checkpoint is opened
//! there is nothing to clean up: the handler is set after that, and a signal ends the process.
//!
//! # Why it is as it is
//!
//! - A loader is called with a consumer instead of returning a handle, so that everything it started (threads, a ring)
//!   ends before it returns and nothing outlives the files. Reads are consumed by number, once. Read-ahead is bounded in
//!   bytes, except for a read that a consumer waits for, so that no order of consumption deadlocks.
//! - A stream within a closure is the one form of loading tensor by tensor. `Load::start` runs it on a thread of its own
//!   and hands tensors over through a channel without room, so that a handle bounds memory as the closure does, and
//!   dropping it ends everything.
//! - `load` and `execute` are two engines over the same loaders, progress, cancellation and thread counts. A loaded tensor
//!   is a reference-counted slice of a pool buffer that tensors share; the output of a plan is exclusive memory of a sink,
//!   filled tile by tile by several workers. One engine for both would need either a copy per loaded tensor or shared
//!   mutable outputs.
//! - Memory of the caller (`run_into`) is cut into pieces that no two threads share. Ordinary reads and copies from a map
//!   go straight into them, by threads of the load, which end before it returns. Direct I/O and io_uring keep reading into
//!   buffers of the pool, whose alignment they need and which the pool keeps while a cancelled read is under way; those
//!   are copied. Checksums of pieces are computed apart and combined.
//! - A sink either provides its memory, and elements are decoded in place, or receives pieces from a buffer that stays in
//!   the second-level cache. Large outputs in resident memory are written with non-temporal stores. Workers share one
//!   queue and no worker waits for a batch.
//! - An output that is a range of a file as it is stored is not decoded. The executor lists such outputs (`execute/order.rs`), and a
//!   sink that writes local files copies them (`StoredCopies`, `sink/files/copied.rs`): adjacent ones together, one thread
//!   for each file, within the system where pages or extents can be copied whole. `edit` copies files by the same code. A
//!   loader that was set reads them itself, and memory, URLs and uploads have tiles as before.
//! - Where files get their names is a trait (`OutputPlace`): headers, cut and index are common to files that are staged
//!   locally and to uploads. An upload in parts needs its bytes about in order, so such a sink states an order of outputs
//!   (`Sink::order`), in which the executor makes them; a worker that is ahead waits in `Sink::put_while`, and the worker
//!   with the first missing bytes never does.
//! - Many workers convert one checkpoint by making one file each (`remember/shards.rs`). One process cuts the outputs and
//!   writes the index last; a worker receives the names of its outputs, plans only those, and writes its file with the
//!   sink that writes single files. The cut and the headers are made by the code that one run uses, so that the bytes are
//!   the same. The header of each file in a directory names the id of the plan (`anamnesis.plan` in `__metadata__`): a
//!   digest of what decides the bytes. A file is complete when it has the header and the length that were computed;
//!   nothing else is recorded, so there is no state that could contradict the files. A single file has no id: it is made
//!   by one run, which names it when it is complete.
//! - Bytes that do not pass through the loader (inflated or gathered tensors, archive headers) are reported to it, so that
//!   a recording is complete.
//! - An access of a template is a strided range, or a row-parallel slice would be thousands of entries. A template file
//!   encodes repeated accesses as references, relative to the current position, because layers and experts are alike.

pub mod companions;
pub(crate) mod convert;
pub(crate) mod edit;
pub mod execute;
pub mod load;
pub mod predict;
pub mod quantise;
pub(crate) mod remember;
pub mod sink;
