//! I/O templates: which worker of an inference service reads which bytes of a model, in which order.
//!
//! A service reads its model in the same order each time. A [`Template`] records that order: files (relative
//! to the model's root), one group of accesses per worker, adjacent accesses merged. A page-cache policy can
//! then prefetch bytes before they are requested, and evict them after they were read.
//!
//! ```
//! use anamnesis_template::parallel::{Rules, Split};
//! use anamnesis_template::{TemplateBuilder, File, StridedFileRange, TemplateLimits, Template, service_id};
//!
//! // a checkpoint with one row-parallel matrix of 4096 × 4096 BF16 elements that begins at byte 2048
//! let mut builder = TemplateBuilder::new();
//! let file = builder.file(File::new("model.safetensors", 2048 + 4096 * 4096 * 2)?)?;
//! let rules = Rules::default();
//! for rank in 0..4 {
//!     let split = Split { rank, world: 4, ..Split::default() };
//!     for slice in rules.slices("model.layers.0.self_attn.o_proj.weight", &[4096, 4096], 2, &split)? {
//!         let bytes = slice.shifted(2048).expect("in the file");
//!         builder.access(rank, StridedFileRange { file, bytes }, None)?;
//!     }
//! }
//! let template = builder.finish();
//! assert_eq!(template.group(1).unwrap().accesses()[0].bytes.to_string(), "4096+2048 ×4096 every 8192");
//!
//! let bytes = template.to_bytes();
//! assert!(bytes.len() < 150);
//! assert_eq!(Template::from_bytes(&bytes, &TemplateLimits::default())?, template);
//!
//! // the file name under which it is stored
//! let id = service_id(template.files(), [("tp", "4")]);
//! assert_eq!(format!("{id}.iot").len(), 36);
//! # Ok::<(), anamnesis_template::Error>(())
//! ```
//!
//! | task | items |
//! |---|---|
//! | creating | [`TemplateBuilder`], [`merge`] |
//! | storing | [`Template::save`], [`Template::load`], `to_bytes`, `to_json`; [`TemplateLimits`] for untrusted files |
//! | comparing | [`coverage`], [`diff`], [`order`] |
//! | reading ahead | [`page_spans`], [`footprint`] |
//! | identifying | [`service_id`], [`ContentKey`] |
//! | splitting tensors among workers | [`parallel`] |
//!
//! [`Error`] and [`TemplateLimits`] resemble the types of the `anamnesis` crate, but are types of their own: this crate
//! depends on no other crate of the workspace, so that a page cache can use templates without the tensor library.

mod binary;
mod builder;
mod byte_range;
mod byte_set;
mod content_key;
mod coverage;
mod diff;
mod error;
mod file;
mod json;
mod limits;
mod matched_files;
mod merge;
mod order;
mod page_spans;
pub mod parallel;
mod save;
mod service_id;
mod strided_range;
mod template;
mod weight_files;

pub use builder::TemplateBuilder;
pub use byte_range::ByteRange;
pub use content_key::ContentKey;
pub use coverage::{Coverage, FileCoverage, coverage};
pub use diff::{Diff, GroupDiff, diff};
pub use error::{Error, ErrorKind, Result};
pub use file::File;

pub use limits::TemplateLimits;
pub use merge::merge;
pub use order::order;
pub use page_spans::{FileSpan, PAGE, footprint, page_spans};
pub use service_id::{ServiceId, service_id};
pub use strided_range::{StridedFileRange, StridedRange};
pub use template::{Access, AccessGroup, Template};
pub use weight_files::{WEIGHT_ENDINGS, is_weight_file, weight_ending};

/// Runs the examples of the README as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
