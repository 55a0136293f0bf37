//! The interface between schemes and execution: a [`Decoder`] names the bytes that a range of rows needs, and computes the
//! rows from them.

use std::fmt::Debug;
use std::ops::{Deref, Range};

use anamnesis_template::StridedRange;
use smallvec::SmallVec;

use crate::base::error::{Error, Result};
use crate::base::kernel;
use crate::base::kernel::Dtype;

use super::numbers::CodeNumbers;

/// Target size of a tile's output. With the tile's input it stays in the second-level cache.
const TILE_BYTES: u64 = 512 << 10;

/// A range of bytes of one part of a weight. Offsets count in the part's logical bytes (row-major, little endian), not in
/// the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartRange {
    /// Index into the job's parts.
    pub part: usize,
    /// Which bytes of the part: one run, or several at a stride.
    pub bytes: StridedRange,
}

/// A list of ranges. Up to three, which is what most decoders need, are stored without an allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartRanges(SmallVec<[PartRange; 3]>);

impl PartRanges {
    /// An empty list.
    #[inline]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a range at the end.
    #[inline]
    pub fn push(&mut self, range: PartRange) {
        self.0.push(range);
    }
}

impl Deref for PartRanges {
    type Target = [PartRange];

    #[inline]
    fn deref(&self) -> &[PartRange] {
        &self.0
    }
}

impl FromIterator<PartRange> for PartRanges {
    #[inline]
    fn from_iter<I: IntoIterator<Item = PartRange>>(ranges: I) -> Self {
        Self(SmallVec::from_iter(ranges))
    }
}

impl Extend<PartRange> for PartRanges {
    #[inline]
    fn extend<I: IntoIterator<Item = PartRange>>(&mut self, ranges: I) {
        self.0.extend(ranges);
    }
}

impl IntoIterator for PartRanges {
    type Item = PartRange;
    type IntoIter = PartRangesIntoIter;

    #[inline]
    fn into_iter(self) -> Self::IntoIter {
        PartRangesIntoIter(self.0.into_iter())
    }
}

/// The ranges of a [`PartRanges`], by value.
#[derive(Debug)]
pub struct PartRangesIntoIter(smallvec::IntoIter<[PartRange; 3]>);

impl Iterator for PartRangesIntoIter {
    type Item = PartRange;

    #[inline]
    fn next(&mut self) -> Option<PartRange> {
        self.0.next()
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<'r> IntoIterator for &'r PartRanges {
    type Item = &'r PartRange;
    type IntoIter = std::slice::Iter<'r, PartRange>;

    #[inline]
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl PartRange {
    /// A range of one contiguous run.
    #[inline]
    pub fn run(part: usize, bytes: Range<u64>) -> Self {
        let len = bytes.end.saturating_sub(bytes.start);
        Self {
            part,
            bytes: StridedRange::contiguous(bytes.start, len),
        }
    }

    /// `count` runs of equal length: the first is `first`, and each begins `stride` bytes after the one before.
    #[inline]
    pub fn strided(part: usize, first: Range<u64>, count: u64, stride: u64) -> Self {
        Self {
            part,
            bytes: StridedRange {
                start: first.start,
                len: first.end.saturating_sub(first.start),
                count,
                stride,
            },
        }
    }
}

/// The bytes of a [`PartRange`], in memory: runs of `len` bytes, `stride` bytes apart.
#[derive(Clone, Copy, Debug)]
pub struct PartBytes<'b> {
    /// All bytes from the first run to the end of the last, including those between runs.
    pub bytes: &'b [u8],
    /// Bytes of a run.
    pub len: usize,
    /// Distance in `bytes` from the start of a run to the start of the next.
    pub stride: usize,
}

impl<'b> PartBytes<'b> {
    /// A single run.
    pub fn whole(bytes: &'b [u8]) -> Self {
        Self {
            bytes,
            len: bytes.len(),
            stride: bytes.len(),
        }
    }

    /// Run number `i`, counted from 0.
    #[inline]
    pub fn run(&self, i: usize) -> &'b [u8] {
        &self.bytes[i * self.stride..][..self.len]
    }
}

/// The arguments of [`Decoder::decode`]: the bytes of the ranges that the decoder named, and what to compute.
#[derive(Clone, Debug)]
pub struct DecodeInput<'p> {
    /// The bytes of each range of [`Decoder::shared`], in order.
    pub shared: &'p [PartBytes<'p>],
    /// The bytes of each range of [`Decoder::inputs`], in order.
    pub inputs: &'p [PartBytes<'p>],
    /// The rows to compute.
    pub rows: Range<u64>,
    /// Dtype of the output: BF16, F16 or F32, or the stored dtype of an unquantised tensor.
    pub dtype: Dtype,
}

/// How an output is divided into tiles: `rows` rows of `cols` elements. Rows of the grid need not be rows of the tensor:
/// for ggml they are blocks, for unquantised tensors single elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Number of rows.
    pub rows: u64,
    /// Elements of a row.
    pub cols: u64,
    /// Tiles begin at multiples of this many rows, because rows share a stored unit, such as a byte or a word.
    pub step: u64,
    /// Minimum rows of a tile, so that the runs it reads are not too short.
    pub least: u64,
}

impl Grid {
    /// A grid whose tiles may begin at any row.
    pub fn new(rows: u64, cols: u64) -> Self {
        Self {
            rows,
            cols,
            step: 1,
            least: 1,
        }
    }

    /// Rows of a tile for outputs of this dtype: about 512 KiB, at least `least`, a multiple of `step`.
    pub fn rows_per_tile(&self, dtype: Dtype) -> u64 {
        // saturating: shapes come from a file, and planning refuses a row that exceeds 64 bits
        let row = self.cols.saturating_mul(dtype.bits()).div_ceil(8).max(1);
        // 512 KiB: with its input a tile stays in the second-level cache
        let rows = (TILE_BYTES / row).max(self.least).max(1);
        rows.div_ceil(self.step.max(1))
            .saturating_mul(self.step.max(1))
    }

    /// Number of tiles of `rows` rows each; 0 if rows have no elements.
    pub(crate) fn tiles(&self, rows: u64) -> u64 {
        if self.cols == 0 {
            0
        } else {
            self.rows.div_ceil(rows.max(1))
        }
    }
}

/// Geometry and arithmetic of one weight: which stored bytes a range of rows needs, and how they become elements.
///
/// Rows are counted by its [`Grid`]. A decoder receives the bytes of the [`PartRange`]s that it named; it never reads a
/// file, so one decoder serves every loader.
pub trait Decoder: Debug + Send + Sync {
    /// How its output is divided into tiles.
    fn grid(&self) -> Grid;

    /// The stored numbers that it reads as codes; `None` if it cannot say, as for numbers that are no codes.
    fn numbers(&self) -> Option<CodeNumbers> {
        None
    }

    /// Ranges that every tile needs, such as a table of codes. They are fetched once, not per tile.
    fn shared(&self) -> PartRanges {
        PartRanges::new()
    }

    /// Ranges that these rows need in addition to [`shared`](Self::shared). `rows` is not empty.
    fn inputs(&self, rows: Range<u64>) -> PartRanges;

    /// The run of bytes of a part that the whole output is in this dtype, if nothing is computed: such an output may be copied
    /// from file to file without [`decode`](Self::decode).
    fn copied(&self, dtype: Dtype) -> Option<PartRange> {
        let _ = dtype;
        None
    }

    /// Computes `parts.rows` in `parts.dtype`, little endian. `out` has exactly their length.
    ///
    /// # Errors
    /// If stored values contradict each other, such as a group index out of range.
    fn decode(&self, parts: DecodeInput<'_>, out: &mut [u8]) -> Result<()>;

    /// Like [`decode`](Self::decode), for output that is not in a cache and will not be read soon: rows are computed in
    /// `room`, which grows as needed, and copied from there to `out` with non-temporal stores. These neither read the
    /// output's cache lines first nor evict others.
    ///
    /// # Errors
    /// The errors of `decode`, and one if `room` cannot grow.
    fn decode_streaming(
        &self,
        parts: DecodeInput<'_>,
        room: &mut Vec<u8>,
        out: &mut [u8],
    ) -> Result<()> {
        let made = self::aligned_scratch(room, out.len())?;
        self.decode(parts, made)?;
        kernel::copy_non_temporal(made, out);
        Ok(())
    }
}

/// Bytes of a cache line. Non-temporal stores write whole lines, so buffers begin at one.
const LINE: usize = 64;

/// `nbytes` bytes of a buffer that grows as needed, aligned to a cache line.
pub(crate) fn aligned_scratch(buffer: &mut Vec<u8>, nbytes: usize) -> Result<&mut [u8]> {
    // over-allocated by a line less one byte: a `Vec<u8>` has no alignment of its own
    let needed = nbytes.saturating_add(LINE - 1);
    if buffer.len() < needed {
        buffer
            .try_reserve_exact(needed - buffer.len())
            .map_err(|_| Error::from(std::io::Error::from(std::io::ErrorKind::OutOfMemory)))?;
        // the lengths of tiles differ, and a buffer that only grows is zeroed once
        buffer.resize(needed, 0);
    }
    // `align_offset` may return `usize::MAX` where alignment is unknown (in const evaluation, under Miri)
    let from = buffer.as_ptr().align_offset(LINE).min(LINE - 1);
    Ok(&mut buffer[from..][..nbytes])
}
