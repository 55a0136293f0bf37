//! Codes packed along the rows: a matrix of words with a column for each group.
use std::ops::Range;

use crate::kernel::{self, Packing};

/// How the codes of a stack of matrices are packed along their rows. Units of rows whose codes begin with a
/// word are looked at together.
pub(super) struct PackedRows {
    pub(super) packing: Packing,
    pub(super) bits: u32,
    /// Rows of one matrix.
    pub(super) rows: u64,
    /// Rows of words of one matrix.
    pub(super) words: u64,
}

impl PackedRows {
    /// Rows of a unit, and its rows of words.
    fn unit(&self) -> (u64, u64) {
        match self.packing {
            Packing::Words(_) => (u64::from(32 / self.bits), 1),
            _ => (32, self.bits.into()),
        }
    }

    /// The first row of words of a row's unit.
    fn start(&self, row: u64) -> u64 {
        let (codes, words) = self.unit();
        row / self.rows * self.words + row % self.rows / codes * words
    }

    /// The rows of words that these rows need.
    pub(super) fn words(&self, rows: &Range<u64>) -> Range<u64> {
        let last = rows.end - 1;
        let end = self.start(last) + self.unit().1;
        self.start(rows.start)..end.min((last / self.rows + 1) * self.words)
    }

    /// The codes of these rows, one for each group, from the words they need.
    pub(super) fn codes(&self, words: &[u8], rows: &Range<u64>, groups: usize) -> Vec<f32> {
        let (words, (per_unit, step)) = (words.as_chunks::<4>().0, self.unit());
        let first = self.start(rows.start);
        // the words of one unit, a column for each group
        let (mut columns, mut at) = (vec![[0u8; 32]; groups], u64::MAX);
        let mut codes = Vec::new();
        for row in rows.clone() {
            let unit = self.start(row);
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
                    .map(|c| f32::from(kernel::code(self.packing, self.bits, c, i))),
            );
        }
        codes
    }
}
