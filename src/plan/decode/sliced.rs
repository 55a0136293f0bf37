//! A slice of another decoder's output: a worker's share of a dequantised weight, a box of its elements.
//!
//! The rows of the inner grid that contain elements of a tile are decoded, and the elements are copied out of them. So a
//! slice may begin inside of a block. A tile of a slice of rows reads the inputs of these rows. A tile of a slice of columns
//! reads the blocks that contain them where the inner grid's rows are blocks (ggml), and whole rows where they are rows.

// Planning has verified that the bytes of a tile can be counted in a `usize`.
#![allow(clippy::cast_possible_truncation)]

use std::ops::Range;
use std::sync::Arc;

use anamnesis_template::StridedRange;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::plan::{DecodeInput, Decoder, Grid, PartBytes, PartRange, PartRanges, aligned_scratch};
use crate::read::slice::ElementRuns;

use super::elements::rows_with;
use super::input_cursor::InputCursor;

/// Elements between two runs that are decoded along with them: decoding takes less time than starting it again.
const GAP: u64 = 64;

/// The elements of `runs` in the output of `inner`. A row of the grid is one element.
#[derive(Debug)]
pub(crate) struct Sliced {
    pub(crate) inner: Arc<dyn Decoder>,
    pub(crate) runs: ElementRuns,
}

/// Rows of the inner decoder that are decoded together.
struct RowGroup {
    rows: Range<u64>,
    /// How many runs of the slice begin in them.
    runs: usize,
}

/// The inputs of the groups of a tile.
enum GroupInputs {
    /// Every group has a run of each of these ranges.
    Strided(PartRanges),
    /// The ranges of each group.
    PerGroup(Vec<PartRanges>),
}

impl Sliced {
    /// Elements of a tile: the elements of the slice in about a tile of the inner decoder, so that a tile decodes no more
    /// than a tile of the whole weight.
    pub(crate) fn rows_per_tile(&self, dtype: Dtype) -> u64 {
        let grid = self.inner.grid();
        let decoded = grid.rows_per_tile(dtype).saturating_mul(grid.cols).max(1);
        let line = self.runs.line_distance().max(1);
        let elements = match decoded / line {
            // a tile is a part of a line, whose runs are about as long as the line
            0 => decoded,
            lines => lines.saturating_mul(self.runs.line_elements()),
        };
        if dtype.item_bytes().is_some() {
            elements.max(1)
        } else {
            // eight elements of any width fill whole bytes
            elements.max(1).next_multiple_of(8)
        }
    }

    /// The groups of these elements of the slice. Runs ascend, so that only neighbours share rows.
    fn groups(&self, elements: Range<u64>) -> Vec<RowGroup> {
        let grid = self.inner.grid();
        // runs are in elements, groups in rows
        let gap = GAP / grid.cols.max(1);
        let mut groups: Vec<RowGroup> = Vec::new();
        for run in self.runs.within(elements) {
            let rows = rows_with(grid, &run);
            match groups.last_mut() {
                Some(group) if rows.start <= group.rows.end.saturating_add(gap) => {
                    group.rows.end = group.rows.end.max(rows.end);
                    group.runs += 1;
                }
                _ => groups.push(RowGroup { rows, runs: 1 }),
            }
        }
        groups
    }

    fn group_inputs(&self, groups: &[RowGroup]) -> GroupInputs {
        let ranges = |group: &RowGroup| self.inner.inputs(group.rows.clone());
        let listed: Vec<PartRanges> = groups.iter().map(ranges).collect();
        match strided(&listed) {
            Some(ranges) => GroupInputs::Strided(ranges),
            None => GroupInputs::PerGroup(listed),
        }
    }
}

/// The ranges of several groups as one strided range for each range of a group, if they are equally long and equally
/// spaced: a tile of thousands of rows would be as many ranges.
fn strided(groups: &[PartRanges]) -> Option<PartRanges> {
    // one group has no distance to a next one
    let [first, second, ..] = groups else {
        return None;
    };
    let over_groups = |(number, range): (usize, &PartRange)| {
        let (start, len) = (range.bytes.start, range.bytes.len);
        let bytes = StridedRange {
            count: groups.len() as u64,
            stride: second.get(number)?.bytes.start.checked_sub(start)?,
            ..range.bytes
        };
        let is_run = |(group, start): (&PartRanges, u64)| {
            let run = PartRange::run(range.part, start..start + len);
            group.len() == first.len() && group[number] == run
        };
        // ranges that overlap or descend have no stride
        let apart = len > 0 && bytes.stride >= len && bytes.checked_end().is_some();
        let regular = apart && groups.iter().zip(bytes.starts()).all(is_run);
        regular.then_some(PartRange { bytes, ..*range })
    };
    first.iter().enumerate().map(over_groups).collect()
}

impl Decoder for Sliced {
    fn grid(&self) -> Grid {
        Grid::new(self.runs.elements(), 1)
    }

    fn shared(&self) -> PartRanges {
        self.inner.shared()
    }

    fn inputs(&self, rows: Range<u64>) -> PartRanges {
        match self.group_inputs(&self.groups(rows)) {
            GroupInputs::Strided(ranges) => ranges,
            GroupInputs::PerGroup(groups) => groups.into_iter().flatten().collect(),
        }
    }

    fn copied(&self, dtype: Dtype) -> Option<PartRange> {
        // elements that share a byte begin inside of one
        let item = dtype.item_bytes()?;
        if self.runs.count() != 1 {
            return None;
        }
        let (run, whole) = (self.runs.run(0), self.inner.copied(dtype)?);
        let at = |element: u64| whole.bytes.start.checked_add(element.checked_mul(item)?);
        Some(PartRange::run(whole.part, at(run.start)?..at(run.end)?))
    }

    fn decode(&self, parts: DecodeInput<'_>, mut out: &mut [u8]) -> Result<()> {
        let DecodeInput {
            shared,
            inputs,
            rows: elements,
            dtype,
        } = parts;
        let (cols, bits) = (self.inner.grid().cols, dtype.bits());
        // whole bytes, except at the end of a tensor whose last byte is not full
        let nbytes = |elements: u64| (elements * bits).div_ceil(8) as usize;
        // the same computation as in `inputs`, so that ranges and bytes correspond
        let groups = self.groups(elements.clone());
        let group_inputs = self.group_inputs(&groups);
        let mut runs = self.runs.within(elements);
        let (mut cursor, mut buffer) = (InputCursor::new(inputs), Vec::new());
        for (number, group) in groups.into_iter().enumerate() {
            let of_group: Vec<PartBytes<'_>>;
            let own = match &group_inputs {
                GroupInputs::PerGroup(listed) => cursor.take(listed[number].len()),
                GroupInputs::Strided(_) => {
                    let runs = inputs.iter().map(|input| input.run(number));
                    of_group = runs.map(PartBytes::whole).collect();
                    &of_group
                }
            };
            let start = group.rows.start * cols;
            let made = nbytes((group.rows.end - group.rows.start) * cols);
            let input = DecodeInput {
                shared,
                inputs: own,
                rows: group.rows,
                dtype,
            };
            let mut runs = runs.by_ref().take(group.runs).peekable();
            // decoded in place where the group is exactly its one run
            if let Some(run) = runs.peek()
                && group.runs == 1
                && (run.start, nbytes(run.end - run.start)) == (start, made)
            {
                let all = out.split_off_mut(..made).expect("as long as the slice");
                self.inner.decode(input, all)?;
                runs.next();
                continue;
            }
            let decoded = aligned_scratch(&mut buffer, made)?;
            self.inner.decode(input, decoded)?;
            for run in runs {
                let from = &decoded[nbytes(run.start - start)..nbytes(run.end - start)];
                let to = out.split_off_mut(..from.len());
                to.expect("as long as the slice").copy_from_slice(from);
            }
        }
        Ok(())
    }
}
