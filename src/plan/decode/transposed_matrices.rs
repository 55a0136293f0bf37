//! A stack of matrices of another decoder, each transposed: weights of PyTorch's `Conv1D`, experts stored `[in, out]`.
//!
//! A tile of output rows is a range of columns of every stored row of a matrix, so a tile reads one run per stored row.
//! Where the runs are equally long and equally spaced, which they are for ggml's blocks and for floats, they are one strided
//! range. Where the inner decoder makes whole stored rows, fewer columns would decode every row several times, and a
//! matrix is one tile: the models whose schemes do so have matrices of at most 40 MB in F32 (GPT-2 XL), and
//! `Limits::tile_bytes` bounds what other files may cost.

// Planning has verified that the bytes of a tile can be counted in a `usize`.
#![allow(clippy::cast_possible_truncation)]

use std::ops::Range;
use std::sync::Arc;

use anamnesis_template::StridedRange;

use crate::base::error::{Error, Result};
use crate::plan::{DecodeInput, Decoder, Grid, PartBytes, PartRange, PartRanges};

use super::elements::{decode_elements, rows_with};
use super::input_cursor::InputCursor;
use super::tile_rows::{scratch, split_by_matrix};

/// Output rows of a tile at least: the runs of a tile have this many elements.
const LEAST: u64 = 256;

/// Elements of the side of a square that is transposed at a time: both its sides stay in the first-level cache.
const SQUARE: usize = 32;

/// Element `[m, c, r]` of the output is element `[m, r, c]` of `inner`, which has `[matrices, rows, cols]`.
#[derive(Debug)]
pub(crate) struct TransposedMatrices {
    pub(crate) inner: Arc<dyn Decoder>,
    pub(crate) matrices: u64,
    pub(crate) rows: u64,
    pub(crate) cols: u64,
}

/// The inputs of a range of columns of a matrix.
enum ColumnInputs {
    /// One run for each stored row.
    Strided(PartRange),
    /// The ranges of each group of stored rows that are decoded together.
    PerGroup(Vec<PartRanges>),
}

impl TransposedMatrices {
    /// Elements that the inner decoder makes at a time.
    fn unit(&self) -> u64 {
        let grid = self.inner.grid();
        grid.cols.saturating_mul(grid.step).max(1)
    }

    /// Stored rows that are decoded together: their elements are consecutive if all columns are needed.
    fn rows_together(&self, columns: &Range<u64>) -> u64 {
        if *columns != (0..self.cols) {
            return 1;
        }
        let unit = self.unit().div_ceil(self.cols.max(1));
        // whole units, and no fewer rows than a square has
        unit.saturating_mul((SQUARE as u64).div_ceil(unit))
            .min(self.rows)
            .max(1)
    }

    /// The groups of stored rows that are decoded together, each with the elements of these columns.
    fn groups(
        &self,
        matrix: u64,
        columns: &Range<u64>,
    ) -> impl Iterator<Item = (Range<u64>, Range<u64>)> {
        let (columns, cols, together) = (columns.clone(), self.cols, self.rows_together(columns));
        let (first, rows) = (matrix * self.rows, self.rows);
        (0..rows.div_ceil(together)).map(move |group| {
            let group = group * together..((group + 1) * together).min(rows);
            let last = (first + group.end - 1) * cols;
            let elements = (first + group.start) * cols + columns.start..last + columns.end;
            (group, elements)
        })
    }

    fn column_inputs(&self, matrix: u64, columns: &Range<u64>) -> ColumnInputs {
        let grid = self.inner.grid();
        let ranges = |(_, elements)| self.inner.inputs(rows_with(grid, &elements));
        let single = |ranges: &PartRanges| match ranges[..] {
            // elements in several runs have no one start
            [range] if range.bytes.count == 1 => Some(range),
            _ => None,
        };
        let mut groups = self.groups(matrix, columns);
        // two rows determine the stride; where they do not, the other rows need no look
        let first = groups.next().map(ranges).and_then(|line| single(&line));
        let second = groups.next().map(ranges).and_then(|line| single(&line));
        if let (Some(first), Some(second), 1) = (first, second, self.rows_together(columns))
            && let Some(stride) = second.bytes.start.checked_sub(first.bytes.start)
        {
            // each row is verified: where rows end within a block, the runs of some are longer
            let regular = self.groups(matrix, columns).zip(0..).all(|(line, number)| {
                single(&ranges(line)).is_some_and(|range| {
                    range.part == first.part
                        && range.bytes.len == first.bytes.len
                        && range.bytes.start == first.bytes.start + number * stride
                })
            });
            // a strided range has no overlapping runs
            if regular && stride >= first.bytes.len {
                let bytes = StridedRange {
                    count: self.rows,
                    stride,
                    ..first.bytes
                };
                return ColumnInputs::Strided(PartRange { bytes, ..first });
            }
        }
        ColumnInputs::PerGroup(self.groups(matrix, columns).map(ranges).collect())
    }
}

impl Decoder for TransposedMatrices {
    fn grid(&self) -> Grid {
        let whole = self.unit() >= self.cols;
        Grid {
            // tiles are whole matrices where the inner decoder makes whole rows
            step: if whole { self.cols.max(1) } else { 1 },
            least: LEAST.max(self.unit()).min(self.cols),
            ..Grid::new(self.matrices * self.cols, self.rows)
        }
    }

    fn shared(&self) -> PartRanges {
        self.inner.shared()
    }

    fn inputs(&self, rows: Range<u64>) -> PartRanges {
        let mut all = PartRanges::new();
        for (matrix, columns) in split_by_matrix(rows, self.cols) {
            match self.column_inputs(matrix, &columns) {
                ColumnInputs::Strided(range) => all.push(range),
                ColumnInputs::PerGroup(groups) => all.extend(groups.into_iter().flatten()),
            }
        }
        all
    }

    fn decode(&self, parts: DecodeInput<'_>, out: &mut [u8]) -> Result<()> {
        let DecodeInput {
            shared,
            inputs,
            rows,
            dtype,
        } = parts;
        let (mut cursor, mut out, item) = (InputCursor::new(inputs), out, dtype.width());
        for (matrix, columns) in split_by_matrix(rows, self.cols) {
            let line = (columns.end - columns.start) as usize * item;
            let made = out
                .split_off_mut(..line * self.rows as usize)
                .expect("as long as the columns");
            let inputs = self.column_inputs(matrix, &columns);
            let strided = match &inputs {
                ColumnInputs::Strided(_) => Some(cursor.next()),
                ColumnInputs::PerGroup(_) => None,
            };
            // whole squares are transposed, whatever number of rows is decoded together
            let square = SQUARE.max(self.rows_together(&columns) as usize);
            let mut stored = scratch(square.min(self.rows as usize), line)?;
            let mut first = 0;
            for (number, (group, elements)) in self.groups(matrix, &columns).enumerate() {
                let run;
                let own = match (&strided, &inputs) {
                    (None, ColumnInputs::PerGroup(groups)) => cursor.take(groups[number].len()),
                    (strided, _) => {
                        let strided = strided.expect("inputs are strided or listed per group");
                        run = [PartBytes::whole(strided.run(number))];
                        &run[..]
                    }
                };
                let (start, end) = (group.start as usize - first, group.end as usize - first);
                let lines = &mut stored[start * line..end * line];
                decode_elements(&*self.inner, &elements, shared, own, dtype, lines)?;
                if end == square || group.end == self.rows {
                    let transposed = Transposition {
                        rows: end,
                        cols: line / item,
                        first,
                        length: self.rows as usize,
                    };
                    transposed.write(&stored[..end * line], item, made)?;
                    first += end;
                }
            }
        }
        Ok(())
    }
}

/// Rows that become columns: `rows` of `cols` elements, whose transpose begins at element `first` of rows of `length`.
struct Transposition {
    rows: usize,
    cols: usize,
    first: usize,
    length: usize,
}

impl Transposition {
    /// Writes elements of `item` bytes.
    fn write(&self, from: &[u8], item: usize, to: &mut [u8]) -> Result<()> {
        match item {
            1 => self.write_as::<1>(from, to),
            2 => self.write_as::<2>(from, to),
            4 => self.write_as::<4>(from, to),
            8 => self.write_as::<8>(from, to),
            _ => {
                let what = format!("elements of {item} bytes cannot be transposed");
                return Err(Error::unsupported(what));
            }
        }
        Ok(())
    }

    fn write_as<const ITEM: usize>(&self, from: &[u8], to: &mut [u8]) {
        let (from, to) = (from.as_chunks::<ITEM>().0, to.as_chunks_mut::<ITEM>().0);
        for first_row in (0..self.rows).step_by(SQUARE) {
            for first_col in (0..self.cols).step_by(SQUARE) {
                for col in first_col..self.cols.min(first_col + SQUARE) {
                    let column = &mut to[col * self.length + self.first..][..self.rows];
                    for row in first_row..self.rows.min(first_row + SQUARE) {
                        column[row] = from[row * self.cols + col];
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::kernel::Dtype;
    use crate::plan::decode::Cast;

    /// Another decoder's rows under a grid of its own: rows of `cols` elements, which tiles take `step` at a time.
    #[derive(Debug)]
    struct Regridded {
        inner: Cast,
        cols: u64,
        step: u64,
    }

    impl Decoder for Regridded {
        fn grid(&self) -> Grid {
            Grid {
                step: self.step,
                ..Grid::new(self.inner.elements / self.cols, self.cols)
            }
        }

        fn inputs(&self, rows: Range<u64>) -> PartRanges {
            self.inner
                .inputs(rows.start * self.cols..rows.end * self.cols)
        }

        fn decode(&self, parts: DecodeInput<'_>, out: &mut [u8]) -> Result<()> {
            let rows = parts.rows.start * self.cols..parts.rows.end * self.cols;
            self.inner.decode(DecodeInput { rows, ..parts }, out)
        }
    }

    #[test]
    fn every_shape_and_grid_is_transposed() {
        for (matrices, rows, cols) in [
            (1, 0, 3),
            (1, 1, 1),
            (2, 3, 5),
            (1, 32, 32),
            (3, 33, 70),
            (1, 100, 31),
            (2, 40, 600),
        ] {
            let elements: u64 = matrices * rows * cols;
            if cfg!(miri) && elements > 1024 {
                continue;
            }
            let stored: Vec<u8> = (0..elements)
                .flat_map(|n| (n as f32).to_le_bytes())
                .collect();
            // single elements, parts of rows, rows, and several rows at a time
            for (width, step) in [
                (1, 1),
                (5, 1),
                (cols, 1),
                (cols, 2),
                (cols, 7),
                (1, cols + 3),
            ] {
                if !elements.is_multiple_of(width) {
                    continue;
                }
                let inner = Cast {
                    from: Dtype::F32,
                    elements,
                };
                let inner = Regridded {
                    inner,
                    cols: width,
                    step,
                };
                let decoder = TransposedMatrices {
                    inner: Arc::new(inner),
                    matrices,
                    rows,
                    cols,
                };
                let (grid, mut made) = (decoder.grid(), Vec::new());
                assert_eq!(grid.rows * grid.cols, elements);
                let tile = grid.least.div_ceil(grid.step) * grid.step;
                for first in (0..grid.rows).step_by(tile as usize) {
                    let tile = first..(first + tile).min(grid.rows);
                    let ranges = decoder.inputs(tile.clone());
                    let inputs: Vec<PartBytes<'_>> = ranges
                        .iter()
                        .map(|range| {
                            let bytes = range.bytes;
                            let span = (bytes.count.max(1) - 1) * bytes.stride + bytes.len;
                            PartBytes {
                                bytes: &stored[bytes.start as usize..][..span as usize],
                                len: bytes.len as usize,
                                stride: bytes.stride as usize,
                            }
                        })
                        .collect();
                    let mut out = vec![0; ((tile.end - tile.start) * rows * 4) as usize];
                    let parts = DecodeInput {
                        shared: &[],
                        inputs: &inputs,
                        rows: tile,
                        dtype: Dtype::F32,
                    };
                    decoder.decode(parts, &mut out).unwrap();
                    made.extend(out);
                }
                let made: Vec<f32> = made
                    .as_chunks()
                    .0
                    .iter()
                    .map(|b| f32::from_le_bytes(*b))
                    .collect();
                let expected = (0..matrices)
                    .flat_map(|m| (0..cols).map(move |c| (m, c)))
                    .flat_map(|(m, c)| (0..rows).map(move |r| ((m * rows + r) * cols + c) as f32));
                assert!(
                    made.into_iter().eq(expected),
                    "{matrices} {rows} {cols}: {width} {step}"
                );
            }
        }
    }
}
