//! The storey that answers questions about a model, and changes nothing.
//!
//! | module | question |
//! |---|---|
//! | `inspect` | which tensors and metadata does it have? |
//! | `fit` | how much memory does it take? |
//! | `diff` | how do two of them differ? |
//! | `check` | is it whole, and are its values sane? |
//! | `list` | which models are in a tree, a cache or a bucket, and what are they? |
//!
//! An answer is a document of plain data ([docs/json.md](https://github.com/anamnesis-rs/anamnesis/blob/main/docs/json.md));
//! the command prints it and the Python package returns it.
//!
//! For example, `fit(&checkpoint).context(32_768).estimate()` reads no tensor: it takes sizes from `models`, applies the cache
//! rule of an engine, and returns an `Estimate` in which every number names its basis.
//!
//! # Why it is as it is
//!
//! - `diff` is a comparison of two plans. Tensors that are stored alike are compared by their bytes, in pieces of both files
//!   in step; others by the elements of both jobs, decoded range by range (`execute/job_rows.rs`). A sink receives one
//!   output of one plan, so two executors could not be kept in step by it. Sums over pieces are added in the order of the
//!   pieces, so that they do not depend on threads.
//! - A check of values is a sink, and a check of the scales inside of blocks a decoder that wraps another one: both look
//!   at bytes that are in the cache.

pub mod check;
pub mod diff;
pub mod fit;
pub mod inspect;
pub mod list;
