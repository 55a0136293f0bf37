//! What turns stored bytes into elements, and says which bytes it needs for which rows.

use std::fmt::Debug;
use std::ops::Range;

use smallvec::SmallVec;

use crate::Dtype;
use crate::error::{Error, Result};
use crate::kernel;

/// Bytes of output that a tile aims at: with its input they stay in the second-level cache.
const TILE_BYTES: u64 = 512 << 10;

/// `count` runs of `len` bytes, `stride` apart, in the logical bytes of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Index into the job's parts.
    pub part: usize,
    /// Offset of the first run.
    pub start: u64,
    /// Bytes of a run.
    pub len: u64,
    /// Number of runs.
    pub count: u64,
    /// From the start of a run to that of the next.
    pub stride: u64,
}

/// The spans that a tile reads: mostly one or two.
pub type Spans = SmallVec<[Span; 3]>;

impl Span {
    /// One run.
    pub fn run(part: usize, bytes: Range<u64>) -> Self {
        let len = bytes.end.saturating_sub(bytes.start);
        Self {
            part,
            start: bytes.start,
            len,
            count: 1,
            stride: len,
        }
    }

    /// Bytes from the start of the first run to the end of the last.
    pub fn reach(&self) -> Option<u64> {
        match self.count {
            0 => Some(0),
            n => (n - 1).checked_mul(self.stride)?.checked_add(self.len),
        }
    }

    /// Bytes of all runs.
    pub fn nbytes(&self) -> Option<u64> {
        self.len.checked_mul(self.count)
    }
}

/// The bytes of a [`Span`], where they were found.
#[derive(Clone, Copy, Debug)]
pub struct Strip<'b> {
    /// From the first run to the last.
    pub bytes: &'b [u8],
    /// Bytes of a run.
    pub len: usize,
    /// From one run to the next in `bytes`.
    pub stride: usize,
}

impl<'b> Strip<'b> {
    /// One run.
    pub fn whole(bytes: &'b [u8]) -> Self {
        Self {
            bytes,
            len: bytes.len(),
            stride: bytes.len(),
        }
    }

    /// The run with this number.
    #[inline]
    pub fn run(&self, i: usize) -> &'b [u8] {
        &self.bytes[i * self.stride..][..self.len]
    }
}

/// What a decoder is given: the bytes that it asked for, and what to make of them.
#[derive(Clone, Debug)]
pub struct Parts<'p> {
    /// One strip per span of [`Decoder::shared`].
    pub shared: &'p [Strip<'p>],
    /// One strip per span of [`Decoder::inputs`].
    pub inputs: &'p [Strip<'p>],
    /// The rows to make.
    pub rows: Range<u64>,
    /// What their elements become.
    pub dtype: Dtype,
}

/// How an output is cut: `rows` rows of `cols` elements, in multiples of `step` rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Number of rows.
    pub rows: u64,
    /// Elements of a row.
    pub cols: u64,
    /// Rows that cannot be told apart: tiles begin at multiples of it.
    pub step: u64,
    /// Rows that a tile should have at least, so that its reads are long enough.
    pub least: u64,
}

impl Grid {
    /// Rows that can be cut anywhere.
    pub fn new(rows: u64, cols: u64) -> Self {
        Self {
            rows,
            cols,
            step: 1,
            least: 1,
        }
    }

    /// Rows of a tile for outputs of this dtype.
    pub fn rows_per_tile(&self, dtype: Dtype) -> u64 {
        let row = self.cols.saturating_mul(dtype.bits()).div_ceil(8).max(1);
        let rows = (TILE_BYTES / row).max(self.least).max(1);
        rows.div_ceil(self.step.max(1))
            .saturating_mul(self.step.max(1))
    }

    /// Number of tiles of so many rows: none where rows have no elements.
    pub(crate) fn tiles(&self, rows: u64) -> u64 {
        if self.cols == 0 {
            0
        } else {
            self.rows.div_ceil(rows.max(1))
        }
    }
}

/// Geometry and arithmetic of one weight: which bytes make which rows, and how.
///
/// Rows are those of its [`Grid`]; a decoder sees the bytes of the [`Span`]s that it asked for, and never
/// a file.
pub trait Decoder: Debug + Send + Sync {
    /// How its output is cut.
    fn grid(&self) -> Grid;

    /// What every tile needs: fetched once.
    fn shared(&self) -> Spans {
        Spans::new()
    }

    /// What these rows need besides.
    fn inputs(&self, rows: Range<u64>) -> Spans;

    /// Makes the rows of `parts`; `out` is as long as they are in their dtype, little endian.
    ///
    /// # Errors
    /// If stored numbers contradict each other, such as a group index out of range.
    fn decode(&self, parts: Parts<'_>, out: &mut [u8]) -> Result<()>;

    /// As [`decode`](Self::decode), into memory that is in no cache and that nobody reads soon: rows are made in `room`, which
    /// grows as it must, and stored from there past the caches.
    ///
    /// # Errors
    /// As those of `decode`, and for want of memory.
    fn decode_past(&self, parts: Parts<'_>, room: &mut Vec<u8>, out: &mut [u8]) -> Result<()> {
        let made = self::room(room, out.len())?;
        self.decode(parts, made)?;
        kernel::stream(made, out);
        Ok(())
    }
}

/// Bytes of a line of the cache.
const LINE: usize = 64;

/// So many bytes of a buffer that grows as needed, from a line of the cache on.
pub(crate) fn room(buffer: &mut Vec<u8>, nbytes: usize) -> Result<&mut [u8]> {
    let needed = nbytes.saturating_add(LINE - 1);
    if buffer.len() < needed {
        buffer
            .try_reserve_exact(needed - buffer.len())
            .map_err(|_| Error::from(std::io::Error::from(std::io::ErrorKind::OutOfMemory)))?;
        buffer.resize(needed, 0);
    }
    let from = buffer.as_ptr().align_offset(LINE).min(LINE - 1);
    Ok(&mut buffer[from..][..nbytes])
}
