//! Layouts that were made for one kernel, seen as rows: transposed factors, and codes and scales in tiles.

use std::ops::Range;

use crate::error::Result;
use crate::plan::{Grid, Span, Spans, Strip};

use super::derived::{Place, View};

/// Factors that are stored the other way round: for each matrix, a line of an entry per row for each group.
#[derive(Debug)]
pub(crate) struct Transposed {
    pub(crate) place: Place,
    /// Rows of all matrices, rows of one, and entries in a line of one: with those that are only room.
    pub(crate) rows: u64,
    pub(crate) matrix_rows: u64,
    pub(crate) room: u64,
    /// Lines that are read of each matrix, and lines that it has.
    pub(crate) groups: u64,
    pub(crate) lines: u64,
    /// Bytes of an entry, and those of it that are the factor.
    pub(crate) entry: u64,
    pub(crate) factor: Range<u64>,
}

impl View for Transposed {
    fn grid(&self) -> Grid {
        Grid::new(
            self.rows,
            self.groups * (self.factor.end - self.factor.start),
        )
    }

    fn inputs(&self, rows: Range<u64>) -> Spans {
        let line = self.room * self.entry;
        pieces(rows, self.matrix_rows)
            .map(|(matrix, rows)| {
                let start = matrix * self.lines * line + rows.start * self.entry;
                let len = (rows.end - rows.start) * self.entry;
                self.place.of(Span {
                    part: 0,
                    start,
                    len,
                    count: self.groups,
                    stride: line,
                })
            })
            .collect()
    }

    fn make(&self, rows: Range<u64>, inputs: &[Strip<'_>], out: &mut [u8]) -> Result<()> {
        let (entry, groups) = (self.entry as usize, self.groups as usize);
        let factor = self.factor.start as usize..self.factor.end as usize;
        let (mut out, row_bytes) = (out, groups * factor.len());
        for ((_, rows), strip) in pieces(rows, self.matrix_rows).zip(inputs) {
            let (now, behind) = out.split_at_mut((rows.end - rows.start) as usize * row_bytes);
            for g in 0..groups {
                for (entry, row) in strip
                    .run(g)
                    .chunks_exact(entry)
                    .zip(now.chunks_exact_mut(row_bytes))
                {
                    row[g * factor.len()..][..factor.len()].copy_from_slice(&entry[factor.clone()]);
                }
            }
            out = behind;
        }
        Ok(())
    }
}

/// The parts of some rows, one for each matrix of so many: its number, and rows from where to where.
pub(super) fn pieces(
    rows: Range<u64>,
    matrix_rows: u64,
) -> impl Iterator<Item = (u64, Range<u64>)> {
    (rows.start / matrix_rows..rows.end.div_ceil(matrix_rows)).map(move |m| {
        let base = m * matrix_rows;
        (
            m,
            rows.start.max(base) - base..(rows.end - base).min(matrix_rows),
        )
    })
}

/// Scales of one byte in blocks of 128 rows by 4, as cuBLAS has them: a block is 32 lines of 16 bytes, and line `l`
/// has four scales each of the rows `l`, `l + 32`, `l + 64` and `l + 96`.
#[derive(Debug)]
pub(crate) struct Swizzled {
    pub(crate) place: Place,
    pub(crate) rows: u64,
    /// Scales of a row.
    pub(crate) groups: u64,
}

/// Bytes of a block of swizzled scales.
const BLOCK: u64 = 512;

impl Swizzled {
    /// Bytes of so many rows with so many scales; `None` if they do not fit in 64 bits.
    pub(crate) fn bytes(rows: u64, groups: u64) -> Option<u64> {
        rows.div_ceil(128)
            .checked_mul(groups.div_ceil(4))?
            .checked_mul(BLOCK)
    }
}

impl View for Swizzled {
    fn grid(&self) -> Grid {
        Grid::new(self.rows, self.groups)
    }

    fn inputs(&self, rows: Range<u64>) -> Spans {
        let high = self.groups.div_ceil(4) * BLOCK;
        Spans::from_iter([self.place.of(Span::run(
            0,
            rows.start / 128 * high..rows.end.div_ceil(128) * high,
        ))])
    }

    fn make(&self, rows: Range<u64>, inputs: &[Strip<'_>], out: &mut [u8]) -> Result<()> {
        let (groups, first) = (self.groups as usize, rows.start / 128);
        for (row, out) in rows.zip(out.chunks_exact_mut(groups)) {
            let block = (row / 128 - first) * self.groups.div_ceil(4);
            let at = (block * BLOCK + row % 32 * 16 + row % 128 / 32 * 4) as usize;
            for (four, out) in inputs[0].bytes[at..]
                .chunks(BLOCK as usize)
                .zip(out.chunks_mut(4))
            {
                out.copy_from_slice(&four[..out.len()]);
            }
        }
        Ok(())
    }
}

/// Codes of 4 bits in tiles of 8 rows, as the kernels of tinygemm want them. A tile has for each `16 * inner`
/// columns 32 lines of `inner / 2` words of 32 bits: four lines for a row, and word `w` of line `l` has the columns
/// `32w + 2l` and one behind, and those 8, 16 and 24 further, the even ones in its lower half.
#[derive(Debug)]
pub(crate) struct Tiled {
    pub(crate) place: Place,
    /// Rows of all matrices and of one, without those that fill its last tile.
    pub(crate) rows: u64,
    pub(crate) matrix_rows: u64,
    /// Columns, with those that are only room: a multiple of `16 * inner`.
    pub(crate) room: u64,
    pub(crate) inner: u64,
}

impl Tiled {
    fn tile(&self, row: u64) -> u64 {
        row / self.matrix_rows * self.matrix_rows.div_ceil(8) + row % self.matrix_rows / 8
    }
}

impl View for Tiled {
    fn grid(&self) -> Grid {
        Grid::new(self.rows, self.room / 2)
    }

    fn inputs(&self, rows: Range<u64>) -> Spans {
        let tile = self.room * 4;
        Spans::from_iter([self.place.of(Span::run(
            0,
            self.tile(rows.start) * tile..(self.tile(rows.end - 1) + 1) * tile,
        ))])
    }

    fn make(&self, rows: Range<u64>, inputs: &[Strip<'_>], out: &mut [u8]) -> Result<()> {
        let (first, tile, words) = (
            self.tile(rows.start),
            self.room as usize * 4,
            self.inner as usize / 2,
        );
        for (row, out) in rows.zip(out.chunks_exact_mut(self.room as usize / 2)) {
            let tile = &inputs[0].bytes[(self.tile(row) - first) as usize * tile..][..tile];
            let line = (row % self.matrix_rows % 8) as usize * 4;
            for (lines, out) in tile
                .chunks_exact(32 * words * 4)
                .zip(out.chunks_exact_mut(words * 16))
            {
                for l in 0..4 {
                    let line = &lines[(line + l) * words * 4..][..words * 4];
                    for ([a, b, c, d], out) in
                        line.as_chunks().0.iter().zip(out.chunks_exact_mut(16))
                    {
                        let (even, odd) = (
                            [a & 15, a >> 4, b & 15, b >> 4],
                            [c & 15, c >> 4, d & 15, d >> 4],
                        );
                        for (i, (even, odd)) in even.into_iter().zip(odd).enumerate() {
                            out[l + 4 * i] = even | odd << 4;
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// Codes of 4 bits of four rows at a time, as llm-awq's kernels want them: for each 64 columns 32 bytes of each of
/// the rows. In each half of those, nibble `8a + 4c + b` is that of column `8b + 2a + c`.
#[derive(Debug)]
pub(crate) struct Woven {
    pub(crate) place: Place,
    /// A multiple of 4.
    pub(crate) rows: u64,
    /// A multiple of 64.
    pub(crate) cols: u64,
}

impl View for Woven {
    fn grid(&self) -> Grid {
        Grid {
            step: 4,
            ..Grid::new(self.rows, self.cols / 2)
        }
    }

    fn inputs(&self, rows: Range<u64>) -> Spans {
        let row = self.cols / 2;
        Spans::from_iter([self
            .place
            .of(Span::run(0, rows.start * row..rows.end * row))])
    }

    fn make(&self, _: Range<u64>, inputs: &[Strip<'_>], out: &mut [u8]) -> Result<()> {
        let row = self.cols as usize / 2;
        for (four, out) in inputs[0]
            .bytes
            .chunks_exact(4 * row)
            .zip(out.chunks_exact_mut(4 * row))
        {
            for (k, block) in four.as_chunks::<128>().0.iter().enumerate() {
                for (i, half) in block.as_chunks::<16>().0.iter().enumerate() {
                    let to = i / 2 * row + k * 32 + i % 2 * 16;
                    unwoven(half, out[to..][..16].as_mut_array().expect("sixteen bytes"));
                }
            }
        }
        Ok(())
    }
}

fn unwoven(half: &[u8; 16], out: &mut [u8; 16]) {
    let nibble = |at: usize| half[at / 2] >> (at % 2 * 4) & 15;
    for (byte, out) in out.iter_mut().enumerate() {
        // columns 8b + 2a and one behind
        let (b, a) = (byte / 4, byte % 4);
        *out = nibble(8 * a + b) | nibble(8 * a + 4 + b) << 4;
    }
}
