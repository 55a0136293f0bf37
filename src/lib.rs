//! Inspect, dequantise and load tensor files, without trusting them.
//!
//! ```text
//! path / reader / map     header bytes
//! Source ──probe, read──▶ Catalog ──▶ Tensor ──▶ bytes
//!                            │
//!                      inspect stops here
//! ```
//!
//! A checkpoint is files; a [`Catalog`] says what lies where; a [`Tensor`] brings the bytes.
//! safetensors, GGUF, NPY, NPZ and PyTorch files are reached through the same [`Checkpoint::open`],
//! which reads headers only and believes nothing it has not checked against its [`Limits`].
//!
//! List a file:
//!
//! ```
//! let checkpoint = anamnesis::Checkpoint::open("fixtures/gguf/plain_v3.gguf")?;
//! for tensor in checkpoint.catalog().tensors() {
//!     println!("{:20} {:8} {:?}", tensor.name, tensor.encoding, tensor.shape);
//! }
//! # Ok::<(), anamnesis::Error>(())
//! ```
//!
//! Read one tensor, whatever its order and packing in the file:
//!
//! ```
//! let checkpoint = anamnesis::Checkpoint::open("fixtures/npz/all_le_compressed.npz")?;
//! let bytes = checkpoint.tensor("x_f4").expect("it is there").bytes()?;
//! # Ok::<(), anamnesis::Error>(())
//! ```
//!
//! Sum up a checkpoint as data:
//!
//! ```
//! let summary = anamnesis::Checkpoint::open("fixtures/safetensors/sharded")?.inspect();
//! println!("{} tensors, {} bytes", summary.totals.tensors, summary.totals.nbytes);
//! # Ok::<(), anamnesis::Error>(())
//! ```

pub mod catalog;
mod checkpoint;
#[cfg(test)]
#[path = "../tests/common/clock.rs"]
mod clock;
mod decode;
mod error;
pub mod execute;
pub mod format;
pub mod inspect;
mod json;
pub mod kernel;
mod limits;
pub mod load;
mod metadata;
pub mod plan;
mod predict;
mod remember;
pub mod scheme;
pub mod sink;
pub mod source;
mod tensor;

pub use anamnesis_kernel::{BlockFormat, Dtype};
/// I/O templates: their files, and the rules by which tensors are split over workers.
pub use anamnesis_template as template;
pub use catalog::{ByteRange, Catalog, Encoding, Endian, Layout, TensorInfo};
pub use checkpoint::{Checkpoint, OpenOptions};
pub use error::{Error, ErrorKind, Result};
pub use format::Format;
pub use inspect::Summary;
pub use limits::Limits;
pub use load::{Load, Loaded, load};
pub use metadata::{Item, Metadata, StoredArray, Value};
pub use plan::Plan;
pub use predict::{Order, Predict, complete, predict};
pub use remember::{Remember, Remembered, remember};
pub use scheme::QuantConfig;
pub use source::Source;
pub use tensor::{Element, Tensor};

/// The documents' examples run as tests.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/untrusted.md")]
    struct Untrusted;
}
