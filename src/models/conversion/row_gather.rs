//! Outputs whose rows are rows of other decoders in another order: permuted, a range of a stack, or several weights stacked.

// Planning has verified that the bytes of a tile can be counted in a `usize`.
#![allow(clippy::cast_possible_truncation)]

use std::ops::Range;
use std::sync::Arc;

use crate::base::error::Result;
use crate::plan::decode::{InputCursor, decode_elements, rows_with};
use crate::plan::{DecodeInput, Decoder, Grid, PartRange, PartRanges};

/// Rows of `cols` elements, each a row of one of the sources.
#[derive(Debug)]
pub(in crate::models) struct RowGather {
    pub(in crate::models) sources: Vec<RowSource>,
    pub(in crate::models) rows: u64,
    pub(in crate::models) cols: u64,
    pub(in crate::models) order: RowOrder,
}

/// A decoder whose parts are the job's parts from `first_part` on.
#[derive(Clone, Debug)]
pub(in crate::models) struct RowSource {
    pub(in crate::models) decoder: Arc<dyn Decoder>,
    pub(in crate::models) first_part: usize,
}

/// Which row of which source an output row is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::models) enum RowOrder {
    /// The rows of the first source from this one on.
    From(u64),
    /// The rows of the first source are `[n, a, b, inner]`; the rows of the output `[n, b, a, inner]`.
    Swapped { a: u64, b: u64, inner: u64 },
    /// `run` rows of every `period` rows of the first source, from the row `first` on.
    Strided { first: u64, run: u64, period: u64 },
    /// All sources, one after another, with this many rows each.
    Stacked { each: u64 },
    /// Groups of rows: the first count is of the first source, the second of the second, and so on.
    Interleaved(Vec<u64>),
}

impl RowOrder {
    /// The source of an output row, and the row within it.
    fn source(&self, row: u64) -> (usize, u64) {
        match self {
            Self::From(first) => (0, first + row),
            &Self::Swapped { a, b, inner } => {
                let (outer, within) = (row / inner, row % inner);
                let (n, i, j) = (outer / (a * b), outer / a % b, outer % a);
                (0, ((n * a + j) * b + i) * inner + within)
            }
            &Self::Strided { first, run, period } => (0, row / run * period + first + row % run),
            &Self::Stacked { each } => ((row / each) as usize, row % each),
            Self::Interleaved(counts) => {
                let all: u64 = counts.iter().sum();
                let (group, mut within) = (row / all, row % all);
                for (source, &count) in counts.iter().enumerate() {
                    if within < count {
                        return (source, group * count + within);
                    }
                    within -= count;
                }
                unreachable!("the counts add up to a group")
            }
        }
    }
}

impl RowSource {
    fn in_job(&self, ranges: PartRanges) -> impl Iterator<Item = PartRange> {
        let first = self.first_part;
        ranges.into_iter().map(move |range| PartRange {
            part: first + range.part,
            ..range
        })
    }
}

impl RowGather {
    /// The runs of consecutive rows that these rows are made of: the source, and the range of its rows.
    fn runs(&self, rows: Range<u64>) -> Vec<(usize, Range<u64>)> {
        let mut runs: Vec<(usize, Range<u64>)> = Vec::new();
        for row in rows {
            let (source, at) = self.order.source(row);
            match runs.last_mut() {
                // one range for neighbours, instead of one per row
                Some((last, run)) if *last == source && run.end == at => run.end += 1,
                _ => runs.push((source, at..at + 1)),
            }
        }
        runs
    }

    fn elements(&self, rows: &Range<u64>) -> Range<u64> {
        rows.start * self.cols..rows.end * self.cols
    }
}

impl Decoder for RowGather {
    fn grid(&self) -> Grid {
        Grid::new(self.rows, self.cols)
    }

    fn shared(&self) -> PartRanges {
        self.sources
            .iter()
            .flat_map(|source| source.in_job(source.decoder.shared()))
            .collect()
    }

    fn inputs(&self, rows: Range<u64>) -> PartRanges {
        let mut ranges = PartRanges::new();
        for (source, run) in self.runs(rows) {
            let source = &self.sources[source];
            let rows = rows_with(source.decoder.grid(), &self.elements(&run));
            ranges.extend(source.in_job(source.decoder.inputs(rows)));
        }
        ranges
    }

    fn decode(&self, parts: DecodeInput<'_>, out: &mut [u8]) -> Result<()> {
        let DecodeInput {
            shared,
            inputs,
            rows,
            dtype,
        } = parts;
        let mut cursor = InputCursor::new(shared);
        let shared: Vec<_> = self
            .sources
            .iter()
            .map(|source| cursor.take(source.decoder.shared().len()))
            .collect();
        let mut cursor = InputCursor::new(inputs);
        let (mut out, row) = (out, self.cols as usize * dtype.width());
        for (source, run) in self.runs(rows) {
            let decoder = &*self.sources[source].decoder;
            let elements = self.elements(&run);
            // the same computation as in `inputs`, so that ranges and bytes correspond
            let count = decoder.inputs(rows_with(decoder.grid(), &elements)).len();
            let made = out
                .split_off_mut(..(run.end - run.start) as usize * row)
                .expect("as long as the rows");
            let own = cursor.take(count);
            decode_elements(decoder, &elements, shared[source], own, dtype, made)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::RowOrder;

    #[test]
    fn a_rotary_order_separates_the_halves_of_a_head() {
        // two heads of six rows: pairs (0, 1), (2, 3), (4, 5) become halves
        let order = RowOrder::Swapped {
            a: 3,
            b: 2,
            inner: 1,
        };
        let rows: Vec<u64> = (0..12).map(|row| order.source(row).1).collect();
        assert_eq!(rows, [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]);
    }

    #[test]
    fn interleaved_rows_come_from_each_source_in_turn() {
        let order = RowOrder::Interleaved(vec![2, 1]);
        let rows: Vec<_> = (0..6).map(|row| order.source(row)).collect();
        assert_eq!(rows, [(0, 0), (0, 1), (1, 0), (0, 2), (0, 3), (1, 1)]);
    }
}
