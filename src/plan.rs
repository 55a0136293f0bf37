//! The plan: which bytes become which elements. Everything decided, nothing done.
//!
//! A plan is made from a catalog, the few small descriptors that schemes peek at, and nothing else.
//! It says for each output which stored tensors it is made from, by which scheme, and in which tiles;
//! [`execute`](crate::execute) does it, and whoever wants to know what will be read asks
//! [`Plan::reads`].

mod decoder;
pub(crate) mod tile;

use std::fmt;
use std::sync::Arc;

use crate::Dtype;
use crate::catalog::{ByteRange, Catalog, Endian, Layout, Packing, Shape, TensorInfo, elements};
use crate::error::Error;
use crate::scheme::Weight;

pub(crate) use decoder::room;
pub use decoder::{Decoder, Grid, Parts, Span, Spans, Strip};
pub use tile::Tile;

/// The scheme of tensors that are not quantised.
pub const PLAIN: &str = "plain";

/// What comes out: a name, a shape and a dtype.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Name of the logical weight.
    pub name: Box<str>,
    /// Sizes, outermost first.
    pub shape: Shape,
    /// Dtype of its elements.
    pub dtype: Dtype,
}

impl TensorSpec {
    /// Bytes of its elements; `None` if they do not fit in 64 bits.
    pub fn nbytes(&self) -> Option<u64> {
        self.dtype.nbytes(elements(&self.shape)?)
    }
}

/// A stored tensor that a weight is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// What it is to the weight: `codes`, `scale`, `zero_point`, …
    pub role: &'static str,
    /// Index into [`Catalog::tensors`].
    pub tensor: usize,
}

/// How one output is made.
#[derive(Clone, Debug)]
pub struct Job {
    /// What comes out.
    pub output: TensorSpec,
    /// Name of the scheme; [`PLAIN`] for tensors that are not quantised.
    pub scheme: &'static str,
    /// The stored tensors it is made from.
    pub parts: Vec<Part>,
    /// How.
    pub work: Work,
}

/// The two ways to make an output.
#[derive(Clone, Debug)]
pub enum Work {
    /// Tile by tile, in any order and in parallel.
    Tiles {
        /// Turns bytes into elements.
        decoder: Arc<dyn Decoder>,
        /// Rows of a tile; the last one may have fewer.
        rows: u64,
    },
    /// From its first element to its last: deflated, checksummed, strided or big-endian tensors, read as
    /// [`Tensor::chunks`](crate::Tensor::chunks) gives them.
    Stream {
        /// Dtype of the stored elements.
        from: Dtype,
    },
}

/// A weight that is listed and will not be made, and why.
#[derive(Debug)]
pub struct Refusal {
    /// Name of the weight, or of the stored tensor that has no scheme.
    pub name: Box<str>,
    /// Why.
    pub error: Error,
}

/// What to do to make every output of a checkpoint.
#[derive(Debug, Default)]
pub struct Plan {
    /// One per output, in file order.
    pub jobs: Vec<Job>,
    /// What cannot be made.
    pub refused: Vec<Refusal>,
    /// Whether the checkpoint is quantised: a weight was recognised, or it is configured as such.
    pub quantised: bool,
    /// Choices between two readings, and what decided.
    pub notes: Vec<String>,
}

impl Plan {
    /// Bytes of all outputs.
    pub fn nbytes(&self) -> u64 {
        self.jobs
            .iter()
            .map(|job| job.output.nbytes().unwrap_or(u64::MAX))
            .fold(0, u64::saturating_add)
    }

    /// Everything that carrying it out reads, in the order in which it is first asked for. Stored bytes of
    /// strided spans are given run by run.
    pub fn reads<'p>(&'p self, catalog: &'p Catalog) -> impl Iterator<Item = ByteRange> + 'p {
        self.jobs.iter().flat_map(move |job| job.reads(catalog))
    }
}

impl Job {
    /// A job that decodes a weight's tiles into `dtype`.
    pub(crate) fn decode(weight: Weight, dtype: Dtype) -> Self {
        let rows = weight.decoder.grid().rows_per_tile(dtype);
        Self {
            output: TensorSpec {
                name: weight.name,
                shape: weight.shape,
                dtype,
            },
            scheme: weight.scheme,
            parts: weight.parts,
            work: Work::Tiles {
                decoder: weight.decoder,
                rows,
            },
        }
    }

    /// Its tiles in order; none for a stream.
    pub fn tiles(&self) -> impl Iterator<Item = Tile> + '_ {
        let (decoder, rows) = match &self.work {
            Work::Tiles { decoder, rows } => (Some(decoder), *rows),
            Work::Stream { .. } => (None, 1),
        };
        decoder
            .into_iter()
            .flat_map(move |decoder| tile::tiles(&**decoder, rows))
    }

    /// What it reads of the files.
    pub fn reads<'p>(&'p self, catalog: &'p Catalog) -> Box<dyn Iterator<Item = ByteRange> + 'p> {
        let stored = move |part: usize| catalog.tensors()[self.parts[part].tensor].bytes;
        let Work::Tiles { decoder, .. } = &self.work else {
            return Box::new((0..self.parts.len()).map(stored));
        };
        let whole = (0..self.parts.len())
            .filter(move |&p| !addressable(&catalog.tensors()[self.parts[p].tensor]));
        let spans = decoder
            .shared()
            .into_iter()
            .chain(self.tiles().flat_map(|tile| tile.inputs));
        let runs = spans.flat_map(move |span| {
            let info = &catalog.tensors()[self.parts[span.part].tensor];
            let count = if addressable(info) { span.count } else { 0 };
            (0..count).map(move |i| ByteRange {
                file: info.bytes.file,
                start: info.bytes.start + span.start + i * span.stride,
                len: span.len,
            })
        });
        Box::new(whole.map(stored).chain(runs))
    }
}

/// Whether a tensor's logical bytes lie in the file as they are, so that any part of them can be read.
/// Members of archives are read from their start, since their checksum is.
pub(crate) fn addressable(info: &TensorInfo) -> bool {
    let little = match info.endian {
        Endian::Little => true,
        Endian::Big => {
            matches!(info.encoding, crate::Encoding::Block(_))
                || info.encoding.item_bytes() == Some(1)
        }
    };
    little
        && info.packing == Packing::Raw
        && info.layout == Layout::RowMajor
        && info.member.is_none()
        && info.lazy == Default::default()
}

impl fmt::Display for TensorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} {:?}",
            self.name,
            self.dtype,
            self.shape.as_slice()
        )
    }
}
