//! The plan: which stored bytes become which elements.
//!
//! A plan is computed from a catalog and from the few small descriptors that schemes read. It names, for each output, the
//! stored tensors it is made from, the scheme, and the tiles. [`execute`](crate::execute) carries it out; [`Plan::reads`]
//! lists the byte ranges that this will read.
//!
//! For example, a weight of GPTQ is one job: its output is a BF16 matrix, its parts are `qweight`, `qzeros`, `scales` and
//! `g_idx`, and its tiles are rows of the decoder's grid, which workers make in any order.
//!
//! # Why it is as it is
//!
//! - `Decoder` is geometry and arithmetic in one: it tells which ranges its rows need and decodes them. A scheme returns
//!   whole weights, and tiles are computed on demand, so the plan of a 400 GB checkpoint is as small as its list of
//!   weights.
//! - The inputs of a tile are strided ranges in the *logical* bytes of a part. Where a part is stored contiguously they
//!   are ranges of the file; a deflated, strided or big-endian part is read whole first. Strided ranges are what lets
//!   weights stored `[in, out]` come out as `[out, in]` in bounded memory.
//! - Tensors that must be read from the first byte to the last (checksums, deflate, strides) are streams, the second kind
//!   of `Work`; everything else is tiles.

pub(crate) mod decode;
mod decoder;
mod id;
mod numbers;
pub(crate) mod tile;

use std::fmt;
use std::sync::Arc;

use anamnesis_kernel::BlockFormat;
use anamnesis_template::StridedRange;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::kernel::Dtype;
use crate::base::limits::{Budget, text_cost};
use crate::base::note::Note;
use crate::read::catalog::{
    ByteRange, Catalog, Encoding, Endian, Layout, Packing, Shape, TensorInfo, elements,
};
use crate::read::slice::TensorSlice;

pub(crate) use decoder::aligned_scratch;
pub use decoder::{
    DecodeInput, Decoder, Grid, PartBytes, PartRange, PartRanges, PartRangesIntoIter,
};
pub use id::{PLAN_ID_KEY, PlanId};
pub use numbers::{CodeNumbers, NumberKind};
pub use tile::Tile;

/// The scheme of tensors that are not quantised.
pub const PLAIN: &str = "plain";

/// An output: a name, a shape and a dtype.
///
/// ```
/// use anamnesis::catalog::Shape;
/// use anamnesis::plan::TensorSpec;
/// use anamnesis::{BlockFormat, Dtype};
///
/// let plain = TensorSpec::new("w", Shape::from_slice(&[2, 256]), Dtype::BF16);
/// assert_eq!(plain.nbytes(), Some(1024));
/// // two rows of one block each, as a GGUF stores them
/// let stored = TensorSpec { block: BlockFormat::from_name("Q4_K"), dtype: Dtype::U8, ..plain };
/// assert_eq!((stored.nbytes(), stored.to_string()), (Some(288), "w Q4_K [2, 256]".to_owned()));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct TensorSpec {
    /// Name of the logical weight, or of the stored tensor that is copied.
    pub name: Box<str>,
    /// Sizes, outermost first.
    pub shape: Shape,
    /// Dtype of its elements; `U8` where they are copied as blocks, whose bytes they are.
    pub dtype: Dtype,
    /// The blocks as which the elements are stored, of a tensor of a GGUF that is copied.
    pub block: Option<&'static BlockFormat>,
}

impl TensorSpec {
    /// An output of elements of a dtype.
    pub fn new(name: impl Into<Box<str>>, shape: Shape, dtype: Dtype) -> Self {
        Self {
            name: name.into(),
            shape,
            dtype,
            block: None,
        }
    }

    /// How its elements are stored.
    pub fn encoding(&self) -> Encoding {
        match self.block {
            Some(block) => Encoding::Block(block),
            None => Encoding::Plain(self.dtype),
        }
    }

    /// Bytes of its elements; `None` if they do not fit in 64 bits.
    pub fn nbytes(&self) -> Option<u64> {
        let elements = elements(&self.shape)?;
        match self.block {
            Some(block) => block.nbytes(elements),
            None => self.dtype.nbytes(elements),
        }
    }
}

/// A stored tensor that a weight is made from, and its role in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredPart {
    /// Its role: `codes`, `scale`, `zero_point`, …
    pub role: &'static str,
    /// Index into [`Catalog::tensors`].
    pub tensor: usize,
}

/// How one output is made.
#[derive(Clone, Debug)]
pub struct Job {
    /// The output: name, shape and dtype.
    pub output: TensorSpec,
    /// Name of the scheme; [`PLAIN`] for tensors that are not quantised.
    pub scheme: &'static str,
    /// The stored tensors it is made from.
    pub parts: Vec<StoredPart>,
    /// How the output is made.
    pub work: JobWork,
}

/// The two ways to make an output.
#[derive(Clone, Debug)]
pub enum JobWork {
    /// Tile by tile, in any order and in parallel: every tensor that can be read from any offset.
    Tiles {
        /// Computes elements from stored bytes.
        decoder: Arc<dyn Decoder>,
        /// Rows of the decoder's grid per tile; the last tile may have fewer.
        rows: u64,
    },
    /// From its first element to its last: deflated, checksummed, strided or big-endian tensors, read as
    /// [`Tensor::chunks`](crate::Tensor::chunks) gives them.
    Stream {
        /// Dtype of the stored elements.
        from: Dtype,
        /// The part of the tensor that is the output. All of the tensor is read.
        slice: TensorSlice,
    },
}

/// A weight that is part of the checkpoint and cannot be dequantised, and the reason.
#[derive(Debug)]
pub struct RefusedWeight {
    /// Name of the weight, or of the stored tensor that has no scheme.
    pub name: Box<str>,
    /// The reason.
    pub error: Error,
}

/// The jobs that make every output of a checkpoint.
#[derive(Debug, Default)]
pub struct Plan {
    /// One per output, in file order.
    pub jobs: Vec<Job>,
    /// Weights that cannot be dequantised.
    pub refused: Vec<RefusedWeight>,
    /// Whether the checkpoint is quantised: a weight was recognised, or it is configured as such.
    pub quantised: bool,
    /// Decisions between two readings that the files allow, and what decided them; and what is in `unexplained`.
    pub notes: Vec<String>,
    /// Statements about the outputs: which names they have, and what is left out.
    pub output_notes: Vec<Note>,
    /// Statements of the files about stored weights that no scheme explains, where weights are made in spite of them.
    pub unexplained: Vec<String>,
}

impl Plan {
    /// Verifies that every weight can be dequantised.
    ///
    /// # Errors
    /// The first refusal, with the number of refusals if there are more.
    pub fn check(&self) -> Result<()> {
        // nothing is made of a checkpoint with a refused weight: what is left would look like the whole model
        let Some(first) = self.refused.first() else {
            return Ok(());
        };
        let error = first.error.duplicate();
        Err(match self.refused.len() {
            1 => error,
            // the first error in full; all of them are in `refused`
            count => error.context(&format!("{count} weights cannot be made")),
        })
    }

    /// Lists a weight that cannot be made. An exhausted budget ends planning instead: it would refuse every further weight.
    pub(crate) fn refuse(&mut self, name: &str, error: Error, budget: &Budget) -> Result<()> {
        const WHAT: &str = "the plan";
        // further weights would exceed it too: planning ends, in place of a list of the same refusals
        if let ErrorKind::Limit {
            limit: "memory" | "steps",
            ..
        } = error.kind()
        {
            return Err(error);
        }
        budget.memory(text_cost(name.len()) + error.memory(), WHAT)?;
        let refused = RefusedWeight {
            name: name.into(),
            error,
        };
        budget.push(&mut self.refused, refused, WHAT)
    }

    /// Bytes of all outputs; saturates at `u64::MAX`.
    pub fn nbytes(&self) -> u64 {
        self.jobs
            .iter()
            .map(|job| job.output.nbytes().unwrap_or(u64::MAX))
            .fold(0, u64::saturating_add)
    }

    /// The id of this plan, which was made from the checkpoint of this catalog. Computed when it is called.
    pub fn id(&self, catalog: &Catalog) -> PlanId {
        PlanId::of(&self.jobs, catalog)
    }

    /// The byte ranges that executing this plan reads, in the order in which a single worker reads them. A strided
    /// range is given run by run. A tensor that cannot be read from any offset (deflated, strided, big endian) is one
    /// range, its whole stored bytes.
    pub fn reads<'p>(&'p self, catalog: &'p Catalog) -> impl Iterator<Item = ByteRange> + 'p {
        self.jobs.iter().flat_map(move |job| job.reads(catalog))
    }
}

impl Job {
    /// Its tiles in order; none for [`JobWork::Stream`].
    pub fn tiles(&self) -> impl Iterator<Item = Tile> + '_ {
        let (decoder, rows) = match &self.work {
            JobWork::Tiles { decoder, rows } => (Some(decoder), *rows),
            JobWork::Stream { .. } => (None, 1),
        };
        decoder
            .into_iter()
            .flat_map(move |decoder| tile::tiles(&**decoder, rows))
    }

    /// The range of a file whose bytes are the output, if it is one: nothing is computed, and there is a byte.
    #[cfg(unix)]
    pub(crate) fn copied(&self, catalog: &Catalog) -> Option<ByteRange> {
        let JobWork::Tiles { decoder, .. } = &self.work else {
            return None;
        };
        let PartRange { part, bytes } = decoder.copied(self.output.dtype)?;
        let info = &catalog.tensors()[self.parts.get(part)?.tensor];
        // a range that its tensor does not have is an error, which reading it reports
        let is_inside = bytes.checked_end().is_some_and(|end| end <= info.bytes.len);
        let is_run = bytes.count == 1 && bytes.len > 0 && Some(bytes.len) == self.output.nbytes();
        (is_run && is_inside && addressable(info)).then(|| ByteRange {
            file: info.bytes.file,
            start: info.bytes.start + bytes.start,
            len: bytes.len,
        })
    }

    /// The byte ranges that this job reads; see [`Plan::reads`].
    pub fn reads<'p>(&'p self, catalog: &'p Catalog) -> Box<dyn Iterator<Item = ByteRange> + 'p> {
        let stored = move |part: usize| {
            let info = &catalog.tensors()[self.parts[part].tensor];
            let (chunks, whole) = match &info.layout {
                Layout::Chunked(chunks) => (&**chunks, None),
                _ => (&[][..], Some(info.bytes)),
            };
            whole
                .into_iter()
                .chain(chunks.iter().map(|chunk| chunk.part.bytes))
        };
        let JobWork::Tiles { decoder, .. } = &self.work else {
            return Box::new((0..self.parts.len()).flat_map(stored));
        };
        // parts that are inflated, gathered or swapped are read before the first tile
        let whole = (0..self.parts.len())
            .filter(move |&p| !addressable(&catalog.tensors()[self.parts[p].tensor]));
        let spans = decoder
            .shared()
            .into_iter()
            .chain(self.tiles().flat_map(|tile| tile.inputs));
        let runs = spans.flat_map(move |span| {
            let info = &catalog.tensors()[self.parts[span.part].tensor];
            let count = if addressable(info) {
                // ranges of parts that are read whole are not read again
                span.bytes.count
            } else {
                0
            };
            let runs = StridedRange {
                count,
                ..span.bytes
            };
            runs.starts().map(move |start| ByteRange {
                file: info.bytes.file,
                start: info.bytes.start + start,
                len: span.bytes.len,
            })
        });
        Box::new(whole.flat_map(stored).chain(runs))
    }
}

/// Whether a tensor's logical bytes are stored unchanged, so that any range of them can be read on its own. Members of
/// archives are not: they are read from their first byte on, because their checksum covers all of it.
pub(crate) fn addressable(info: &TensorInfo) -> bool {
    // single bytes have no order, and kernels take blocks in either
    let little = match info.endian {
        Endian::Little => true,
        Endian::Big => {
            // the kernels read the blocks of big-endian GGUF files as they are stored
            matches!(info.encoding, Encoding::Block(_)) || info.encoding.item_bytes() == Some(1)
        }
    };
    little
        && info.packing == Packing::Raw
        && info.layout == Layout::RowMajor
        && info.member.is_none()
        // negated or conjugated values are not the stored bytes
        && info.view_flags() == Default::default()
}

impl fmt::Debug for TensorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("TensorSpec");
        fields
            .field("name", &self.name)
            .field("shape", &self.shape)
            .field("dtype", &self.dtype);
        // only where there are blocks: ids of plans are digests of this form, and files that were begun are found by them
        if let Some(block) = self.block {
            fields.field("block", &block.name);
        }
        fields.finish()
    }
}

impl fmt::Display for TensorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} {:?}",
            self.name,
            self.encoding(),
            self.shape.as_slice()
        )
    }
}
