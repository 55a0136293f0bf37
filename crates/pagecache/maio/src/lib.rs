//! Model-accelerated I/O (MAIO): a page-cache policy that follows the I/O template of an inference
//! service, after the case study of *Accelerating Model Loading in LLM Inference by Programmable
//! Page Cache* (FAST '26).
//!
//! A service reads its model files in the same order each time. A
//! [`Template`](anamnesis_template::Template) records that order per worker. From it follows at every
//! page-cache miss what the worker reads next and what no worker will read again. [`Maio`] returns
//! both to the runtime of [`anamnesis_ppc`], which prefetches and evicts. A [`MaioConfig`]
//! configures the policy; a [`MaioState`] describes what it is doing.
//!
//! ```
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! use anamnesis_maio::{Maio, MaioPhase};
//! use anamnesis_ppc::{FileAccess, PolicyContext, EventKind, Namespace, Policy};
//! use anamnesis_template::{TemplateBuilder, ByteRange, File};
//!
//! // a model of 8 MiB, and the template of a service that reads its second half
//! let model = tempfile::tempdir()?;
//! std::fs::File::create(model.path().join("model.gguf"))?.set_len(8 << 20)?;
//! let mut builder = TemplateBuilder::new();
//! let file = builder.file(File::probe(model.path(), "model.gguf")?)?;
//! builder.access(0, ByteRange { file, start: 4 << 20, len: 4 << 20 }, None)?;
//! let templates = tempfile::tempdir()?;
//! let path = templates.path().join("service.iot");
//! builder.finish().save(&path, false)?;
//!
//! // what a runtime does with a policy
//! let namespace = Arc::new(Namespace::scan(model.path())?);
//! let mut maio = Maio::new();
//! maio.init(&PolicyContext { namespace, config: path.display().to_string(), memory: 1 << 30 })?;
//! assert_eq!(maio.state().phase, MaioPhase::Following);
//!
//! // a process misses a page: everything from there on is prefetched
//! let path: Arc<Path> = Path::new("model.gguf").into();
//! let miss = FileAccess { kind: EventKind::Miss, path, start: 5 << 20, len: 4096, pid: 1, tid: 1, time: 0 };
//! let prefetch = maio.prefetch(&miss).unwrap();
//! assert_eq!(prefetch.ranges.iter().map(|io| io.start >> 20).collect::<Vec<_>>(), [5, 6, 7]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Behaviour
//!
//! - **Template prefetch.** After a miss, everything that the worker will read next is prefetched: to
//!   the end of its schedule if the model fits into memory, otherwise to the end of a window that
//!   advances with the worker.
//! - **Interruptible.** A miss ahead of the running prefetch restarts it there. A miss shortly behind
//!   it (a slower thread), of the chunk it began with, or at the beginning of another file (a header)
//!   does not; one far behind restarts it only when more follow in sequence.
//! - **Merged.** If memory has room for all bytes, all workers share one schedule in file order, which
//!   begins with the first miss of any worker. A worker that falls behind or jumps gets its own.
//! - **Affinity.** Prefetched bytes are placed on the NUMA node of the accelerator that the worker uses.
//! - **Eviction behind the reader** (the paper's *burn after reading*). Under memory pressure, bytes
//!   that every worker on this machine has passed by more than a distance are evicted.
//! - **Several models.** With a directory of templates, each model below the directory of the policy is a service of its own, whose
//!   template has the id of that model: a directory with weights and a `config.json` or an index, the directory of a pipeline
//!   (`model_index.json`), or a file of weights among others. A model that is added changes no other's template.
//! - **Recording.** A recording ends when nothing was read for a minute, or when the processes that have read the model have ended. From
//!   then on it is followed, without a new registration.
//! - **Stale templates.** A template that is named must describe the existing files, or the registration
//!   fails. One found by the service's id ([`model_service_id`]) that does not is recorded again. If the
//!   service reads much that its template lacks, the log and [`MaioPhase::OffTemplate`] report it; the
//!   rest of the template is still followed.
//!
//! # Data flow
//!
//! ```text
//! registration ─▶ maio ─▶ models ─▶ service ── template exists ──▶ follower ◀── load ended ── recorder ─▶ T.iot
//!                                      │ └────── missing ──────────────────────────────────────▲
//! miss, access ─▶ worker_identity ─▶ schedule ─▶ followed_group ─▶ merged_schedule ─▶ PrefetchRequest
//!                 which worker       position    read_position     one list, if all
//!                                                prefetch_state    fits into memory
//! memory pressure ─▶ window_sizes (shrink) ─▶ eviction ─▶ ranges to evict
//! ```
//!
//! | file | content |
//! |---|---|
//! | `maio.rs` | the policy: passes calls to the service that a file belongs to |
//! | `models.rs` | which files are a model: one service each |
//! | `service.rs` | one model: searches the template, then follows, records or stays idle |
//! | `config.rs`, `options.rs`, `state.rs` | options of a registration, and their table; the state as data |
//! | `model_files.rs` | the files of a model, comparison with a template, service id |
//! | `follower.rs` | events to requests: the steps of the picture above |
//! | `worker_identity.rs`, `worker_identity/` | which worker a process is, one file per rule |
//! | `chunks.rs`, `schedule.rs` | a worker's accesses as chunks in order; the position of any byte |
//! | `followed_group.rs` | the state of one worker |
//! | `read_position.rs` | how far a worker has read |
//! | `prefetch_state.rs` | the prefetch that runs for a worker, and the misses that interrupt it |
//! | `merged_schedule.rs` | one schedule for all workers |
//! | `window_sizes.rs` | memory divided into bytes ahead of and behind each worker |
//! | `eviction.rs` | the ranges that may be evicted behind the readers |
//! | `off_template.rs` | accesses that the template lacks |
//! | `recorder.rs` | recording a missing template |

mod chunks;
mod config;
mod eviction;
mod followed_group;
mod follower;
mod maio;
mod merged_schedule;
mod model_files;
mod models;
mod off_template;
mod options;
mod prefetch_state;
mod read_position;
mod recorder;
mod schedule;
mod service;
mod state;
mod window_sizes;
mod worker_identity;

pub use config::{InvalidValue, MaioConfig, MaioConfigError, PrefetchWindow, WorkerRule};
pub use maio::Maio;
pub use model_files::model_service_id;
pub use options::MaioOption;
pub use state::{GroupState, MaioPhase, MaioState, StateWatch};

// the same policy as a shared library: `anamnesis ppc run --policy libanamnesis_maio.so:T.iot`
anamnesis_ppc::export_policy!(Maio::new());

/// Runs the examples of the README as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
