//! Zero points of compressed-tensors: codes packed along the rows, a matrix of 32-bit words with a column for each group.

use std::ops::Range;

use crate::base::kernel::{self, CodePacking};

/// Codes of a stack of matrices, packed along the rows. They are unpacked in units: the fewest rows whose codes fill whole
/// words, so that every unit begins at a word.
pub(super) struct PackedZeros {
    pub(super) packing: CodePacking,
    pub(super) bits: u32,
    /// Rows of one matrix.
    pub(super) rows: u64,
    /// Rows of words of one matrix.
    pub(super) words: u64,
}

impl PackedZeros {
    /// Rows of a unit, and the rows of words that hold it.
    fn unit(&self) -> (u64, u64) {
        match self.packing {
            CodePacking::Words(_) => (u64::from(32 / self.bits), 1),
            _ => (32, self.bits.into()),
        }
    }

    /// The first row of words of the unit that contains `row`.
    fn start(&self, row: u64) -> u64 {
        let (codes, words) = self.unit();
        row / self.rows * self.words + row % self.rows / codes * words
    }

    /// The rows of words that these rows need.
    pub(crate) fn words(&self, rows: &Range<u64>) -> Range<u64> {
        let last = rows.end - 1;
        let end = self.start(last) + self.unit().1;
        self.start(rows.start)..end.min((last / self.rows + 1) * self.words)
    }

    /// The codes of these rows, `[rows, groups]`; `words` are the rows that [`words`](Self::words) named.
    pub(crate) fn codes(&self, words: &[u8], rows: &Range<u64>, groups: usize) -> Vec<f32> {
        let (words, (per_unit, step)) = (words.as_chunks::<4>().0, self.unit());
        let first = self.start(rows.start);
        // the words of the current unit, transposed: the words of a group are contiguous
        let (mut columns, mut at) = (vec![[0u8; 32]; groups], u64::MAX);
        let mut codes = Vec::new();
        for row in rows.clone() {
            let unit = self.start(row);
            // rows of a tile are in order, so that each unit is transposed once
            if std::mem::replace(&mut at, unit) != unit {
                let words = words[(unit - first) as usize * groups..]
                    .chunks(groups)
                    .take(step as usize);
                for (w, words) in words.enumerate() {
                    columns
                        .iter_mut()
                        .zip(words)
                        .for_each(|(c, word)| c[4 * w..][..4].copy_from_slice(word));
                }
            }
            let i = (row % self.rows % per_unit) as usize;
            codes.extend(
                columns
                    .iter()
                    .map(|c| f32::from(kernel::row_code(self.packing, self.bits, c, i))),
            );
        }
        codes
    }
}
