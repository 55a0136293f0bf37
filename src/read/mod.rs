//! From a path to a description: which bytes of which files are which tensors. No byte of a tensor is read to open a file.
//!
//! ```text
//! source ──▶ format ──▶ catalog ──▶ checkpoint ──▶ tensor, slice, digest
//! bytes      headers    plain data  several files   one tensor at a time
//! ```
//!
//! | module | content | start reading at |
//! |---|---|---|
//! | `source` | where bytes come from, one file per kind, and where files are | the trait `Source` |
//! | `format` | container formats, one file each, in the table `FORMATS` | `Format` |
//! | `catalog` | the description of a checkpoint, owned and independent of the files | `Catalog` |
//! | `checkpoint` | which files belong together; opening and merging them | `Checkpoint::open` |
//! | `tensor`, `slice` | one tensor's bytes, or a part of it, in logical order | `Tensor` |
//! | `digest` | the SHA-256 of tensors and files | `Digests` |
//! | `json`, `objects` | bounded JSON; objects of a PyTorch file | |
//! | `selection`, `rename`, `run_options` | which tensors a run covers, and their names in its output; options of every run | |
//!
//! The *meaning* of a tensor is not known here: names, roles and configurations are of `models`, packed codes of `quant`.
//!
//! # Why it is as it is
//!
//! - **A member's offset is computed from the directory; its integrity is verified on the first read.** Visiting three
//!   hundred local headers of a cold archive would cost three hundred disk reads. A disagreement is an error, never other
//!   bytes.
//! - **Large metadata arrays stay in the file.** The header reader skips a tokenizer of 150 000 strings and keeps the
//!   first elements; the rest is read on demand.
//! - **Forward-only input needs no second parser.** Formats read through a cursor that moves forward only; a source of
//!   unknown length is checked at its end.
//! - `Source::read_at` returns how many bytes it read instead of failing at the end, and `Source::len` is an `Option`: the
//!   length of a stream is unknown. `read_exact_at` is the exact form.
//! - A source may need a round trip per read. It is opened without waiting (`Source::ready` waits), and a format announces
//!   the ranges that it will read (`scattered`) and the end of its header (`settled`). The order in which formats read is
//!   the same for all sources, and a source that has no use for an announcement does not iterate over it.
//! - Reads of remote files are started and end later (`ConcurrentReads`), so that the thread of a load decides how many
//!   run at a time and which are repeated, over all files. A receiver is passed bytes that are copied in file order,
//!   whichever of two reads they are from, and that are refused once the load has ended: no request needs to be waited for.
//! - Bytes that a source has read ahead of its header's reader are charged while the header is read (`Source::held`); a
//!   source gives them up when the limit on memory is reached.
//! - Files at URLs are a crate of its own, which knows bytes and no tensors: its HTTP client and TLS more than double the
//!   number of crates that the library needs. No crate has it by default but the Python package. No type of an HTTP client is in a public
//!   signature.
//! - Opening reports a fault through one function, which returns it as an error or keeps it for a list
//!   (`checkpoint/faults.rs`). So a check that goes on after faults is the code that refuses them.
//! - A slice of a tensor is ranges of indices per axis, and runs of elements that are computed on demand. `load` reads these
//!   runs; where a tensor must be read from its first byte to its last, they are selected from its values as they pass by.
//!   `remember` applies a slice last, to the jobs of a finished plan: a decoder that makes the rows of another which contain
//!   elements of the slice (`Sliced`), so that no scheme knows of slices, and tiles, reads and loaders are the same for all
//!   decoders.

pub mod catalog;
pub(crate) mod checkpoint;
pub mod digest;
pub mod format;
pub(crate) mod json;
pub mod objects;
pub(crate) mod rename;
pub(crate) mod run_options;
pub(crate) mod selection;
pub mod slice;
pub mod source;
pub(crate) mod tensor;
