//! The scales inside of ggml's blocks, looked at while the tile with them is in the cache.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anamnesis_kernel::BlockFormat;
use half::f16;

use crate::base::error::Result;
use crate::base::sync::AtomicU64;
use crate::plan::{DecodeInput, Decoder, Grid, PartRanges};

use super::scales::ScaleCounts;

/// How a scale is stored in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScaleField {
    /// F16 at this offset.
    F16(usize),
    /// F16 at this offset that is added or subtracted: zero is normal.
    Minimum(usize),
    /// F32 at this offset.
    F32(usize),
    /// The top nibbles of four 16-bit words at this offset are an F16.
    Nibbles(usize),
    /// An exponent (E8M0) at this offset.
    E8m0(usize),
    /// Codes of FP8 (E4M3 without a sign) at this offset, of which 127 is not a number.
    Ue4m3(usize, usize),
}

/// The scales of each block type, as `crates/kernel/src/block` documents them.
#[rustfmt::skip]
static FIELDS: &[(&str, &[ScaleField])] = {
    use ScaleField::{E8m0, F16, F32, Minimum, Nibbles, Ue4m3};
    &[
        ("Q4_0", &[F16(0)]), ("Q4_1", &[F16(0), Minimum(2)]), ("Q5_0", &[F16(0)]), ("Q5_1", &[F16(0), Minimum(2)]),
        ("Q8_0", &[F16(0)]), ("Q8_1", &[F16(0), Minimum(2)]), ("Q2_K", &[F16(80), Minimum(82)]), ("Q3_K", &[F16(108)]),
        ("Q4_K", &[F16(0), Minimum(2)]), ("Q5_K", &[F16(0), Minimum(2)]), ("Q6_K", &[F16(208)]), ("Q8_K", &[F32(0)]),
        ("IQ2_XXS", &[F16(0)]), ("IQ2_XS", &[F16(0)]), ("IQ2_S", &[F16(0)]), ("IQ3_XXS", &[F16(0)]), ("IQ3_S", &[F16(0)]),
        ("IQ1_S", &[F16(0)]), ("IQ1_M", &[Nibbles(48)]), ("IQ4_NL", &[F16(0)]), ("IQ4_XS", &[F16(0)]),
        ("TQ1_0", &[F16(52)]), ("TQ2_0", &[F16(64)]), ("Q1_0", &[F16(0)]), ("Q2_0", &[F16(0)]),
        ("MXFP4", &[E8m0(0)]), ("MXFP4_OLLAMA", &[E8m0(0)]), ("NVFP4", &[Ue4m3(0, 4)]),
    ]
};

/// Counts of blocks whose scale cannot be right, and the first of each.
#[derive(Debug, Default)]
pub(super) struct BlockCounts {
    nan: CountedBlocks,
    inf: CountedBlocks,
    zero: CountedBlocks,
}

#[derive(Debug)]
struct CountedBlocks {
    count: AtomicU64,
    first: AtomicU64,
}

impl Default for CountedBlocks {
    fn default() -> Self {
        Self {
            count: AtomicU64::new(0),
            // the least number is kept
            first: AtomicU64::new(u64::MAX),
        }
    }
}

impl CountedBlocks {
    fn add(&self, count: u64, first: u64) {
        if count > 0 {
            // relaxed: read when all threads of the pass have ended
            self.count.fetch_add(count, Ordering::Relaxed);
            self.first.fetch_min(first, Ordering::Relaxed);
        }
    }

    /// The count, and the number of the first block's first element.
    fn of_elements(&self, block_len: u64) -> (u64, u64) {
        let first = self.first.load(Ordering::Relaxed);
        (
            self.count.load(Ordering::Relaxed),
            first.saturating_mul(block_len),
        )
    }
}

impl BlockCounts {
    /// As counts of scales, with the first by the number of its first element.
    pub(super) fn counts(&self, format: &BlockFormat) -> ScaleCounts {
        let len = format.block_len.into();
        ScaleCounts {
            nan: self.nan.of_elements(len),
            inf: self.inf.of_elements(len),
            zero: self.zero.of_elements(len),
            negative: (0, 0),
        }
    }
}

/// The decoder of a tensor of blocks, which looks at their scales before they are decoded.
#[derive(Debug)]
pub(super) struct WatchedBlocks {
    inner: Arc<dyn Decoder>,
    format: &'static BlockFormat,
    fields: &'static [ScaleField],
    big: bool,
    counts: Arc<BlockCounts>,
}

impl WatchedBlocks {
    /// A decoder whose rows are the blocks of part 0; `None` if it is none, or the scales of the format are not known.
    pub(super) fn of(
        inner: &Arc<dyn Decoder>,
        format: &'static BlockFormat,
        blocks: u64,
        big: bool,
        counts: &Arc<BlockCounts>,
    ) -> Option<Self> {
        let grid = inner.grid();
        // decoders that slice or transpose have rows of their own, which are not the stored blocks
        let are_blocks = grid.rows == blocks && grid.cols == u64::from(format.block_len);
        let (_, fields) = FIELDS
            .iter()
            .find(|row| row.0 == format.name)
            .filter(|_| are_blocks)?;
        Some(Self {
            inner: Arc::clone(inner),
            format,
            fields,
            big,
            counts: Arc::clone(counts),
        })
    }

    fn look(&self, parts: &DecodeInput<'_>) {
        let Some(stored) = parts.inputs.first() else {
            return;
        };
        let size = self.format.block_bytes as usize;
        let swapped;
        let blocks = if self.big {
            let mut copy = stored.bytes.to_vec();
            // a copy, because the decoder swaps the stored bytes itself
            self.format.swap_bytes(&mut copy);
            swapped = copy;
            &swapped[..]
        } else {
            stored.bytes
        };
        for field in self.fields {
            let [mut nan, mut inf, mut zero] = [(0, u64::MAX); 3];
            for (number, block) in (parts.rows.start..).zip(blocks.chunks_exact(size)) {
                let kind = field.kind(block);
                for (counted, found) in [
                    (&mut nan, kind == ScaleKind::Nan),
                    (&mut inf, kind == ScaleKind::Infinite),
                    (&mut zero, kind == ScaleKind::Zero),
                ] {
                    if found {
                        // counted locally and added once, so that threads do not contend for each block
                        *counted = (counted.0 + 1, counted.1.min(number));
                    }
                }
            }
            self.counts.nan.add(nan.0, nan.1);
            self.counts.inf.add(inf.0, inf.1);
            self.counts.zero.add(zero.0, zero.1);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ScaleKind {
    Sound,
    Nan,
    Infinite,
    Zero,
}

impl ScaleField {
    fn kind(self, block: &[u8]) -> ScaleKind {
        let half = |at: usize| u16::from_le_bytes([block[at], block[at + 1]]);
        match self {
            Self::F16(at) => Self::of_half(half(at), true),
            Self::Minimum(at) => Self::of_half(half(at), false),
            Self::Nibbles(at) => {
                let nibble = |i: usize| (half(at + 2 * i) >> 12) << (4 * i);
                Self::of_half(nibble(0) | nibble(1) | nibble(2) | nibble(3), true)
            }
            Self::F32(at) => {
                let bytes = [block[at], block[at + 1], block[at + 2], block[at + 3]];
                match f32::from_le_bytes(bytes) {
                    value if value.is_nan() => ScaleKind::Nan,
                    value if value.is_infinite() => ScaleKind::Infinite,
                    0.0 => ScaleKind::Zero,
                    _ => ScaleKind::Sound,
                }
            }
            // the only code of E8M0 that is no number
            Self::E8m0(at) if block[at] == 255 => ScaleKind::Nan,
            Self::Ue4m3(at, n) if block[at..][..n].iter().any(|code| code & 0x7f == 0x7f) => {
                ScaleKind::Nan
            }
            // exponents have no infinity, and a zero of FP8 is usual in blocks of small weights
            Self::E8m0(_) | Self::Ue4m3(..) => ScaleKind::Sound,
        }
    }

    fn of_half(bits: u16, zero_counts: bool) -> ScaleKind {
        let value = f16::from_bits(bits);
        if value.is_nan() {
            ScaleKind::Nan
        } else if value.is_infinite() {
            ScaleKind::Infinite
        // minus zero too
        } else if zero_counts && bits & 0x7fff == 0 {
            ScaleKind::Zero
        } else {
            ScaleKind::Sound
        }
    }
}

impl Decoder for WatchedBlocks {
    fn grid(&self) -> Grid {
        self.inner.grid()
    }

    fn shared(&self) -> PartRanges {
        self.inner.shared()
    }

    fn inputs(&self, rows: Range<u64>) -> PartRanges {
        self.inner.inputs(rows)
    }

    fn decode(&self, parts: DecodeInput<'_>, out: &mut [u8]) -> Result<()> {
        // before decoding, while the tile that was read is in the cache
        self.look(&parts);
        self.inner.decode(parts, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_type_has_its_scales() {
        for format in BlockFormat::all() {
            let row = FIELDS.iter().find(|row| row.0 == format.name);
            let (_, fields) = row.unwrap_or_else(|| panic!("{} has no row", format.name));
            let block = vec![0xff; format.block_bytes as usize];
            assert!(
                fields
                    .iter()
                    .all(|field| field.kind(&block) == ScaleKind::Nan),
                "{}: all ones are no scale",
                format.name
            );
        }
    }
}
