//! Codes of 4 bits in the order in which Hopper's matrix instructions take them, so that a thread loads all of its own at
//! once: CUTLASS' memory reordering atoms, over 16 rows each.
//!
//! Tiles of 16 rows lie one behind the other, column of tiles by column of tiles. Within one, element `(r, c)` is the
//! nibble whose number is the sum of these, `%` binding first:
//!
//! | inputs | columns | rows | columns |
//! |---|---|---|---|
//! | BF16 | 16 | `r % 8 * 32 + r / 8` | `c % 2 * 4 + c / 2 % 4 * 8 + c / 8 * 2` |
//! | FP8 | 32 | `r % 8 * 64 + r / 8 * 4` | `c % 4 + c / 4 % 4 * 16 + c / 16 * 8` |

use std::ops::Range;

use crate::error::Result;
use crate::plan::{Grid, Span, Spans, Strip};

use super::derived::{Place, View};
use super::views::pieces;

/// Rows of a tile.
const HIGH: u64 = 16;

/// Codes in that order, seen as rows.
#[derive(Debug)]
pub(crate) struct Shuffled {
    pub(crate) place: Place,
    /// Rows of all matrices and of one, a multiple of 16.
    pub(crate) rows: u64,
    pub(crate) matrix_rows: u64,
    /// A multiple of a tile's columns.
    pub(crate) cols: u64,
    pub(crate) made: Nibbles,
}

/// What is made of the codes.
#[derive(Debug)]
pub(crate) enum Nibbles {
    /// They stay as they are, the first of two in the lower half: of the order for BF16.
    Kept,
    /// What they are worth, in E4M3: of the order for FP8. For each `group` columns of a row there are the products of
    /// its scale with -8, -7, … -1, each rounded. A code has the sign in its highest bit and the number of its product
    /// in the others, but that 0 without the sign is 0.
    LookedUp { products: Place, group: u64 },
}

impl Shuffled {
    /// Columns of a tile.
    pub(crate) fn wide(made: &Nibbles) -> u64 {
        if matches!(made, Nibbles::Kept) {
            16
        } else {
            32
        }
    }

    /// The number of the nibble.
    fn at(&self, r: usize, c: usize) -> usize {
        match self.made {
            Nibbles::Kept => r % 8 * 32 + r / 8 + c % 2 * 4 + c / 2 % 4 * 8 + c / 8 * 2,
            Nibbles::LookedUp { .. } => {
                r % 8 * 64 + r / 8 * 4 + c % 4 + c / 4 % 4 * 16 + c / 16 * 8
            }
        }
    }
}

impl View for Shuffled {
    fn grid(&self) -> Grid {
        let row = if matches!(self.made, Nibbles::Kept) {
            self.cols / 2
        } else {
            self.cols
        };
        Grid {
            step: HIGH,
            ..Grid::new(self.rows, row)
        }
    }

    fn inputs(&self, rows: Range<u64>) -> Spans {
        let wide = Self::wide(&self.made);
        let mut spans = Spans::new();
        for (matrix, rows) in pieces(rows, self.matrix_rows) {
            let (row, count) = (wide / 2, rows.end - rows.start);
            let start = matrix * self.matrix_rows * self.cols / 2 + rows.start * row;
            let (len, stride) = (count * row, self.matrix_rows * row);
            spans.push(self.place.of(Span {
                part: 0,
                start,
                len,
                count: self.cols / wide,
                stride,
            }));
            if let Nibbles::LookedUp { products, group } = self.made {
                let groups = self.cols / group;
                let start = (matrix * groups * self.matrix_rows + rows.start) * 8;
                let (len, stride) = (count * 8, self.matrix_rows * 8);
                spans.push(products.of(Span {
                    part: 0,
                    start,
                    len,
                    count: groups,
                    stride,
                }));
            }
        }
        spans
    }

    fn make(&self, rows: Range<u64>, inputs: &[Strip<'_>], out: &mut [u8]) -> Result<()> {
        let wide = Self::wide(&self.made) as usize;
        let (high, row) = (HIGH as usize, self.grid().cols as usize);
        let per_piece = if matches!(self.made, Nibbles::Kept) {
            1
        } else {
            2
        };
        let mut out = out;
        for ((_, rows), strips) in
            pieces(rows, self.matrix_rows).zip(inputs.chunks_exact(per_piece))
        {
            let (now, behind) = out.split_at_mut((rows.end - rows.start) as usize * row);
            for (i, out) in now.chunks_exact_mut(row).enumerate() {
                for (t, out) in out
                    .chunks_exact_mut(row * wide / self.cols as usize)
                    .enumerate()
                {
                    let tile = &strips[0].run(t)[i / high * high * wide / 2..];
                    let code = |c: usize| {
                        let at = self.at(i % high, c);
                        tile[at / 2] >> (at % 2 * 4) & 15
                    };
                    match self.made {
                        Nibbles::Kept => {
                            out.iter_mut()
                                .enumerate()
                                .for_each(|(c, out)| *out = code(2 * c) | code(2 * c + 1) << 4);
                        }
                        Nibbles::LookedUp { group, .. } => {
                            for (c, out) in out.iter_mut().enumerate() {
                                let products = strips[1].run((t * wide + c) / group as usize);
                                *out = worth(
                                    code(c),
                                    products[i * 8..][..8].as_array().expect("eight bytes"),
                                );
                            }
                        }
                    }
                }
            }
            out = behind;
        }
        Ok(())
    }
}

fn worth(code: u8, products: &[u8; 8]) -> u8 {
    match code {
        0 => 0,
        1..8 => products[usize::from(code)] ^ 0x80,
        _ => products[usize::from(code & 7)],
    }
}
