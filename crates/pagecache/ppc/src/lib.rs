//! A programmable page cache on stock Linux kernels.
//!
//! ```text
//! EventSource ──Event──▶ Namespace ──FileAccess──▶ Policy ──RangeList──▶ cache (prefetch, evict)
//!  (dev, ino, bytes)     (which file)              (what to do)          (within the machine's limits)
//! ```
//!
//! An [`EventSource`] reports which bytes of which inode were accessed. A [`Namespace`] is a scanned directory: it maps
//! inodes to files and opens, outside of the directory, only files that links in it may lead to. A [`Policy`] is called at every miss and returns the ranges
//! to prefetch; under memory pressure it returns the ranges to evict. Its answers are recommendations: the cache
//! carries them out within the limits of memory and bandwidth.
//!
//! [`Runtime`] connects these parts. Each policy runs on a thread of its own under a [`Supervisor`], which enforces
//! deadlines and validates answers.
//!
//! The design follows *Accelerating Model Loading in LLM Inference by Programmable Page Cache* (FAST '26), except that
//! the events come from the kernel's trace points instead of a kernel module.

pub mod abi;
mod baseline;
pub mod cache;
mod coalesce;
mod error;
mod event;
pub mod export;
mod file_history;
mod file_range;
pub mod host;
mod library;
mod line_subscriber;
mod namespace;
mod policy;
mod registry;
pub mod runtime;
pub mod source;
mod supervisor;
mod sync;

pub use baseline::{EagerPolicy, NoopPolicy};
pub use error::{Error, ErrorKind, Result};
pub use event::{Capabilities, Event, EventKind, EventSource, Inode, Waker};
pub use file_range::{FileRange, RangeList};
pub use line_subscriber::LineSubscriber;
pub use namespace::{FileEntry, Namespace};
pub use policy::{FileAccess, Interests, Policy, PolicyContext, PrefetchRequest, ServiceReport};
pub use registry::{PolicyOrigin, PolicyRegistry, Registration};
pub use runtime::Runtime;
pub use supervisor::{PolicyLimits, PolicyOutput, Supervisor, SupervisorStatus};

/// Compiles and runs the README's examples as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
