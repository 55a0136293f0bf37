//! Groups of 32 codes with their scale in front of them, byte behind byte: Quark's older export of OCP MX.

use std::ops::Range;

use crate::error::Result;
use crate::plan::{Grid, Span, Spans, Strip};

use super::derived::{Place, View};
use super::turned::half_exponent;

/// Rows of groups, seen as their codes or as their scales.
#[derive(Debug)]
pub(crate) struct Mingled {
    pub(crate) place: Place,
    pub(crate) rows: u64,
    /// Groups of a row.
    pub(crate) groups: u64,
    /// Bytes of the codes of a group: 16 of 4 bits, or 24 of 6.
    pub(crate) codes: u64,
    pub(crate) seen: Seen,
}

/// What of it is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// A stream from the lowest bit on.
    Codes,
    /// F32: the byte is an exponent of 2 with a sign, and no bias.
    Scales,
}

impl View for Mingled {
    fn grid(&self) -> Grid {
        let per_group = if self.seen == Seen::Codes {
            self.codes
        } else {
            4
        };
        Grid::new(self.rows, self.groups * per_group)
    }

    fn inputs(&self, rows: Range<u64>) -> Spans {
        let row = self.groups * (self.codes + 1);
        Spans::from_iter([self
            .place
            .of(Span::run(0, rows.start * row..rows.end * row))])
    }

    fn make(&self, _: Range<u64>, inputs: &[Strip<'_>], out: &mut [u8]) -> Result<()> {
        let (codes, per_group) = (
            self.codes as usize,
            self.grid().cols as usize / self.groups as usize,
        );
        for (group, out) in inputs[0]
            .bytes
            .chunks_exact(codes + 1)
            .zip(out.chunks_exact_mut(per_group))
        {
            match (self.seen, codes) {
                // the sign's bit turned is a bias of 128
                (Seen::Scales, _) => {
                    out.copy_from_slice(&half_exponent(group[0] ^ 0x80).to_le_bytes())
                }
                (Seen::Codes, 24) => {
                    let fours = group[1..].as_chunks().0.iter().zip(out.as_chunks_mut().0);
                    fours.for_each(|(four, out)| *out = sixes(*four));
                }
                (Seen::Codes, _) => out.copy_from_slice(&group[1..]),
            }
        }
        Ok(())
    }
}

/// Four codes of 6 bits, whose upper two bits are in the first byte and whose lower four are in the others, from the
/// highest bit on, as a stream from the lowest on.
fn sixes([upper, a, b]: [u8; 3]) -> [u8; 3] {
    let lower = [a >> 4, a & 15, b >> 4, b & 15];
    let code = |i: usize| u32::from(upper >> (6 - 2 * i) & 3) << 4 | u32::from(lower[i]);
    let [first, second, third, _] =
        (code(0) | code(1) << 6 | code(2) << 12 | code(3) << 18).to_le_bytes();
    [first, second, third]
}
