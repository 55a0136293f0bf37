//! A programmable page cache on stock Linux kernels.
//!
//! ```text
//! EventSource ──Event──▶ Namespace ──Access──▶ Policy ──Ios──▶ cache (prefetch, evict)
//!  (dev, ino, bytes)     (which file)          (what to do)    (what the machine allows)
//! ```
//!
//! An [`EventSource`] tells which bytes of which inode were asked for. A [`Namespace`] is a directory: it knows which
//! inode is which file, and opens nothing outside. A [`Policy`] is asked at every miss what to prefetch and, when
//! memory is short, what to evict. Its answers are recommendations: what is brought and let go is what the machine
//! allows.
//!
//! The design is that of *Accelerating Model Loading in LLM Inference by Programmable Page Cache* (FAST '26); events
//! come from the kernel's own trace points instead of a module.

pub mod abi;
pub mod cache;
mod eager;
mod error;
mod event;
pub mod export;
mod guard;
pub mod host;
mod io;
mod known;
mod library;
mod lines;
mod namespace;
mod policy;
mod registry;
pub mod runtime;
pub mod source;

pub use eager::{Eager, Nothing};
pub use error::{Error, ErrorKind, Result};
pub use event::{Event, EventSource, Inode, Kind, Sight, Waker};
pub use guard::{Answer, Guarded, Limits, Status};
pub use io::{Io, Ios};
pub use lines::Lines;
pub use namespace::{Entry, Namespace};
pub use policy::{Access, Context, Policy, Prefetch, Wants};
pub use registry::{Origin, Policies, Registered};
pub use runtime::Runtime;

/// The examples of the README, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
