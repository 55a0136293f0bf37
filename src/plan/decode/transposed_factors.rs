//! Factors that are stored `[matrices, groups, rows]`, read as `[rows of all matrices, groups]`.
//!
//! A tile needs the factors of some rows: the same range of every stored line, which is a strided range.

use std::ops::Range;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::plan::{Grid, PartBytes, PartRange, PartRanges};

use super::composite::{PartOffset, PartView};
use super::tile_rows::split_by_matrix;

/// Factors stored group-major: for each matrix and group, a line with one entry per row.
#[derive(Debug)]
pub(crate) struct TransposedFactors {
    pub(crate) place: PartOffset,
    /// Rows of all matrices; rows of one matrix; entries of a line, including padding.
    pub(crate) rows: u64,
    pub(crate) matrix_rows: u64,
    pub(crate) padded_rows: u64,
    /// Lines of a matrix that are read; lines that it has, including padding.
    pub(crate) groups: u64,
    pub(crate) lines: u64,
    /// Bytes of an entry; the bytes within it that are the factor (an entry may hold scale and zero point).
    pub(crate) entry: u64,
    pub(crate) factor: Range<u64>,
}

impl TransposedFactors {
    /// A part that holds nothing but these factors, without padding between the rows. `rows` are of all matrices and of one.
    pub(crate) fn alone(
        part: usize,
        dtype: Dtype,
        [rows, matrix_rows]: [u64; 2],
        groups: u64,
        lines: u64,
    ) -> Self {
        let entry = dtype.bits() / 8;
        Self {
            place: PartOffset::whole(part),
            rows,
            matrix_rows,
            padded_rows: matrix_rows,
            groups,
            lines,
            entry,
            factor: 0..entry,
        }
    }
}

impl PartView for TransposedFactors {
    fn grid(&self) -> Grid {
        Grid::new(
            self.rows,
            self.groups * (self.factor.end - self.factor.start),
        )
    }

    fn inputs(&self, rows: Range<u64>) -> PartRanges {
        let line = self.padded_rows * self.entry;
        split_by_matrix(rows, self.matrix_rows)
            .map(|(matrix, rows)| {
                let start = matrix * self.lines * line + rows.start * self.entry;
                let len = (rows.end - rows.start) * self.entry;
                self.place
                    .of(PartRange::strided(0, start..start + len, self.groups, line))
            })
            .collect()
    }

    fn make(&self, rows: Range<u64>, inputs: &[PartBytes<'_>], out: &mut [u8]) -> Result<()> {
        let (entry, groups) = (self.entry as usize, self.groups as usize);
        let factor = self.factor.start as usize..self.factor.end as usize;
        let (mut out, row_bytes) = (out, groups * factor.len());
        for ((_, rows), strip) in split_by_matrix(rows, self.matrix_rows).zip(inputs) {
            let (now, behind) = out.split_at_mut((rows.end - rows.start) as usize * row_bytes);
            for g in 0..groups {
                for (entry, row) in strip
                    .run(g)
                    .chunks_exact(entry)
                    .zip(now.chunks_exact_mut(row_bytes))
                {
                    // an entry may hold scale and zero point, of which a view copies one
                    row[g * factor.len()..][..factor.len()].copy_from_slice(&entry[factor.clone()]);
                }
            }
            out = behind;
        }
        Ok(())
    }
}
