//! Groups of 32 codes with an inline scale: Quark's older export of OCP MX.
//!
//! A row is a sequence of groups, each a byte with the scale followed by 16 bytes (FP4) or 24 bytes (FP6) of codes. One view
//! extracts the codes, another the scales; both read the same contiguous run, because scale and codes alternate.

// Planning has verified that the bytes of a tile can be counted in a `usize`.
#![allow(clippy::cast_possible_truncation)]

use std::ops::Range;

use crate::base::error::Result;
use crate::plan::decode::{PartOffset, PartView, half_exponent};
use crate::plan::{Grid, PartBytes, PartRange, PartRanges};

/// Rows of groups, read as their codes or as their scales.
#[derive(Debug)]
pub(crate) struct InlineScales {
    pub(crate) place: PartOffset,
    pub(crate) rows: u64,
    /// Groups of a row.
    pub(crate) groups: u64,
    /// Bytes of the codes of a group: 16 of 4 bits, or 24 of 6.
    pub(crate) codes: u64,
    /// The part that the view extracts.
    pub(crate) extract: InlinePart,
}

/// The part that an [`InlineScales`] view extracts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InlinePart {
    /// A bit stream, the lowest bit first.
    Codes,
    /// F32: the byte is a signed exponent of 2.
    Scales,
}

impl PartView for InlineScales {
    fn grid(&self) -> Grid {
        let per_group = if self.extract == InlinePart::Codes {
            self.codes
        } else {
            4
        };
        Grid::new(self.rows, self.groups * per_group)
    }

    fn inputs(&self, rows: Range<u64>) -> PartRanges {
        // a scale byte in front of each group
        let row = self.groups * (self.codes + 1);
        PartRanges::from_iter([self
            .place
            .of(PartRange::run(0, rows.start * row..rows.end * row))])
    }

    fn make(&self, _: Range<u64>, inputs: &[PartBytes<'_>], out: &mut [u8]) -> Result<()> {
        let (codes, per_group) = (
            self.codes as usize,
            self.grid().cols as usize / self.groups as usize,
        );
        for (group, out) in inputs[0]
            .bytes
            .chunks_exact(codes + 1)
            .zip(out.chunks_exact_mut(per_group))
        {
            match (self.extract, codes) {
                // flipping the sign bit of a signed exponent adds a bias of 128
                (InlinePart::Scales, _) => {
                    out.copy_from_slice(&half_exponent(group[0] ^ 0x80).to_le_bytes())
                }
                (InlinePart::Codes, 24) => {
                    let fours = group[1..].as_chunks().0.iter().zip(out.as_chunks_mut().0);
                    fours.for_each(|(four, out)| *out = repack_6_bits(*four));
                }
                (InlinePart::Codes, _) => out.copy_from_slice(&group[1..]),
            }
        }
        Ok(())
    }
}

/// Repacks four codes of 6 bits. Quark stores their upper two bits in the first byte and their lower four in the next two,
/// the first code in the highest bits; the result is a bit stream, the first code in the lowest bits.
fn repack_6_bits([upper, a, b]: [u8; 3]) -> [u8; 3] {
    let lower = [a >> 4, a & 15, b >> 4, b & 15];
    let code = |i: usize| u32::from(upper >> (6 - 2 * i) & 3) << 4 | u32::from(lower[i]);
    let [first, second, third, _] =
        (code(0) | code(1) << 6 | code(2) << 12 | code(3) << 18).to_le_bytes();
    [first, second, third]
}
