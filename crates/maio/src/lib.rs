//! Model-accelerated I/O: a page cache policy that follows the I/O template of an inference service.
//!
//! A service loads its model in an order that is always the same. [`Maio`] has that order as a
//! [`Template`](anamnesis_template::Template), and so knows at every miss what is read next, by which worker, and what
//! is not read again. It is set by a [`Config`] and says what it does in a [`State`],
//! also to a [`Watch`] once a runtime has it.
//!
//! ```
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! use anamnesis_maio::{Maio, Phase};
//! use anamnesis_ppc::{Access, Context, Kind, Namespace, Policy};
//! use anamnesis_template::{Builder, ByteRange, File};
//!
//! // a model of 8 MiB, and the template of a service that reads its second half
//! let model = tempfile::tempdir()?;
//! std::fs::File::create(model.path().join("model.gguf"))?.set_len(8 << 20)?;
//! let mut builder = Builder::new();
//! let file = builder.file(File::probe(model.path(), "model.gguf")?)?;
//! builder.access(0, ByteRange { file, start: 4 << 20, len: 4 << 20 }, None)?;
//! let templates = tempfile::tempdir()?;
//! let path = templates.path().join("service.iot");
//! builder.finish().save(&path, false)?;
//!
//! // what a runtime does with a policy
//! let namespace = Arc::new(Namespace::scan(model.path())?);
//! let mut maio = Maio::new();
//! maio.init(&Context { namespace, config: path.display().to_string(), memory: 1 << 30 })?;
//! assert_eq!(maio.state().phase, Phase::Following);
//!
//! // a process waits for a page: all that follows is brought
//! let path: Arc<Path> = Path::new("model.gguf").into();
//! let miss = Access { kind: Kind::Miss, path, start: 5 << 20, len: 4096, pid: 1, tid: 1, time: 0 };
//! let prefetch = maio.prefetch(&miss).unwrap();
//! assert_eq!(prefetch.ios.iter().map(|io| io.start >> 20).collect::<Vec<_>>(), [5, 6, 7]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What it does
//!
//! - **Template.** One that is named must be for the files that are there, or the registration fails. One that is found
//!   by the service's id ([`service`]) and is not, is recorded anew or left alone, as is one that is missing. A
//!   recording is kept when the registration ends or nothing was read for a while; the next registration follows it.
//! - **Prefetching** from a miss to the end of what the worker reads, or as far as memory allows. A miss ahead begins
//!   it anew there. Not so: one a little behind (another thread), one of the piece it began with, a look at the first
//!   bytes of a file elsewhere, and one far behind unless others follow it.
//! - **Workers that load in step** are brought one list, where memory has room for all: what they read at a time, in the
//!   order of the files, from the first miss of any of them. One that lags, or goes elsewhere, has its own.
//! - **The front** is how far a worker has come, as its misses and, when memory is short, all its accesses tell. It is
//!   not moved by accesses elsewhere until they go on for a while and nothing moves it where it is.
//! - **Window and distance.** When what the workers read does not fit, seven eighths of what memory may take are divided
//!   among them: bytes ahead of the front that are brought, and bytes behind it that are kept (1 GiB, at most a tenth of
//!   memory).
//!   Prefetching follows the front from access to access, so that nothing is brought that had to be let go unread. If
//!   memory stays short though all behind was let go, others have part of it, and the window becomes smaller.
//! - **Burn after reading.** What lies behind the distance is let go, in the order of the template, except for what any
//!   worker that runs here still reads.
//! - **Workers** are known by the bytes they read, their environment, the accelerator they hold, or their order.
//! - **A template that the service leaves** is still followed where it is right; the rest is the kernel's, and
//!   [`Phase::Left`] and the log say that it is stale.

mod burn;
mod config;
mod convoy;
mod follow;
mod front;
mod group;
mod lane;
mod maio;
mod model;
mod pieces;
mod record;
mod route;
mod share;
mod state;
mod strays;
mod workers;

pub use config::{Config, ConfigError, Why, Window, Workers};
pub use maio::Maio;
pub use model::service;
pub use state::{GroupState, Phase, State, Watch};

// as a shared library: `anamnesis ppc run --policy libanamnesis_maio.so:T.iot`
anamnesis_ppc::export_policy!(Maio::new());

/// The examples of the README, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
