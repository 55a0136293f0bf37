//! I/O templates: which worker of an inference service reads which bytes of a model, in which order.
//!
//! An inference service reads its model in an order that is always the same. A [`Template`] is that order written
//! down: files (relative to the model's root), a group per worker, accesses in order, neighbours merged. Whoever has
//! it can bring bytes before they are asked for, and let go of them when they were read.
//!
//! ```
//! use anamnesis_template::parallel::{Rules, Split};
//! use anamnesis_template::{Builder, File, Limits, Template, service_id};
//!
//! // a checkpoint with one row-parallel matrix of 4096 × 4096 BF16 elements that begins at byte 2048
//! let mut builder = Builder::new();
//! let file = builder.file(File::new("model.safetensors", 2048 + 4096 * 4096 * 2)?)?;
//! let rules = Rules::default();
//! for rank in 0..4 {
//!     let split = Split { rank, world: 4, ..Split::default() };
//!     for runs in rules.slices("model.layers.0.self_attn.o_proj.weight", &[4096, 4096], 2, &split)? {
//!         builder.access(rank, runs.placed(file, 2048).expect("in the file"), None)?;
//!     }
//! }
//! let template = builder.finish();
//! assert_eq!(template.group(1).unwrap().accesses()[0].runs.to_string(), "0:4096+2048 ×4096 every 8192");
//!
//! let bytes = template.to_bytes();
//! assert!(bytes.len() < 150);
//! assert_eq!(Template::from_bytes(&bytes, &Limits::default())?, template);
//!
//! // under which name it is kept
//! let id = service_id(template.files(), [("tp", "4")]);
//! assert_eq!(format!("{id}.iot").len(), 36);
//! # Ok::<(), anamnesis_template::Error>(())
//! ```
//!
//! | what | where |
//! |---|---|
//! | making one | [`Builder`], [`merge`] |
//! | keeping one | [`Template::save`], [`Template::load`], `to_bytes`, `to_json`; [`Limits`] for those of strangers |
//! | comparing | [`coverage`], [`diff`], [`order`] |
//! | naming | [`service_id`], [`ContentKey`] |
//! | who reads which part of a tensor | [`parallel`] |

mod binary;
mod builder;
mod coverage;
mod diff;
mod error;
mod file;
mod hash;
mod json;
mod limits;
mod merge;
mod order;
pub mod parallel;
mod range;
mod ranges;
mod runs;
mod save;
mod template;

pub use builder::Builder;
pub use coverage::{Coverage, FileCoverage, coverage};
pub use diff::{Diff, GroupDiff, diff};
pub use error::{Error, ErrorKind, Result};
pub use file::File;
pub use hash::{ContentKey, ServiceId, service_id};
pub use limits::Limits;
pub use merge::merge;
pub use order::order;
pub use range::ByteRange;
pub use runs::Runs;
pub use template::{Access, Group, Template};

/// The examples of the README, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
