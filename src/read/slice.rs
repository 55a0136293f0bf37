//! Slices of tensors: which elements [`load`](crate::load()) and [`remember`](crate::remember()) make of each.
//!
//! A slice is ranges of indices, per axis. Its elements are runs of the tensor's elements (`ElementRuns`), which are
//! computed on demand: a slice of a matrix of 150 000 rows takes no more memory than one of a single row. A
//! `SliceLayout` is the same in bytes.

mod layout;
mod runs;
mod select;

use std::ops::Range;

use smallvec::SmallVec;

use crate::base::error::{Error, Result};
use crate::read::catalog::{Shape, quote};

pub(crate) use layout::SliceLayout;
pub(crate) use runs::ElementRuns;
pub(crate) use select::SelectedBytes;

/// Which part of a tensor is made: its elements are in C order, without gaps.
///
/// ```
/// use anamnesis::slice::TensorSlice;
/// use anamnesis::{Checkpoint, load};
///
/// let checkpoint = Checkpoint::open("fixtures/safetensors/sharded")?;
/// // `[8:16, 4:12]` of a matrix of 32 × 16
/// let corner = load(&checkpoint)
///     .slice(|_| TensorSlice::Axes(vec![8..16, 4..12]))
///     .tensor("lm_head.weight")?;
/// assert_eq!(corner.shape(), [8, 8]);
/// # Ok::<(), anamnesis::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum TensorSlice {
    /// The whole tensor.
    #[default]
    Whole,
    /// These indices of the first axis.
    Rows(Range<u64>),
    /// These indices of one axis, and all of the others.
    Range {
        /// The axis, counted from the outermost.
        axis: usize,
        /// Its indices.
        range: Range<u64>,
    },
    /// A box: a range of indices for each axis from the first on, as Python's `t[a:b, c:d]`. Axes behind the last range are
    /// whole.
    Axes(Vec<Range<u64>>),
    /// Several ranges of one axis, one behind the other: a worker's part of each of the matrices that are fused into a tensor.
    /// They ascend and do not overlap.
    Joined {
        /// The axis, counted from the outermost.
        axis: usize,
        /// Ranges of its indices.
        ranges: Vec<Range<u64>>,
    },
    /// The shard of worker `rank` of `of` along an axis: indices `size·rank/of` to `size·(rank+1)/of`, rounded down, so
    /// that the shards of all workers make up the tensor. Axis 0 of a PyTorch linear layer is its outputs
    /// (column-parallel), axis 1 its inputs (row-parallel).
    Shard {
        /// The axis that is split.
        axis: usize,
        /// Index of the worker, below `of`.
        rank: u64,
        /// The number of workers.
        of: u64,
    },
}

/// Ranges of the indices of one axis.
type AxisRanges = SmallVec<[Range<u64>; 1]>;

impl TensorSlice {
    /// The shape of this slice of a tensor, and its elements.
    ///
    /// # Errors
    /// If an axis does not exist, a range is out of bounds, or ranges overlap. The tensor is called `thing`.
    pub(crate) fn elements(
        &self,
        thing: &str,
        name: &str,
        shape: &[u64],
    ) -> Result<(Shape, ElementRuns)> {
        let wrong =
            |what: String| Error::invalid_argument(format!("{thing} {}: {what}", quote(name)));
        let axes = self.axes(shape).map_err(wrong)?;
        let mut sliced = Shape::from_slice(shape);
        for (size, ranges) in sliced.iter_mut().zip(&axes) {
            *size = ranges.iter().map(|range| range.end - range.start).sum();
        }
        let runs = ElementRuns::new(shape, axes)
            .ok_or_else(|| wrong(format!("{shape:?} has more than 2⁶⁴ elements")))?;
        Ok((sliced, runs))
    }

    /// Memory that it refers to.
    pub(crate) fn memory(&self) -> u64 {
        match self {
            Self::Axes(ranges) | Self::Joined { ranges, .. } => {
                (ranges.capacity() * size_of::<Range<u64>>()) as u64
            }
            _ => 0,
        }
    }

    /// The ranges of each axis, without empty ones.
    fn axes(&self, shape: &[u64]) -> Result<SmallVec<[AxisRanges; 4]>, String> {
        let mut axes: SmallVec<[AxisRanges; 4]> = shape
            .iter()
            .map(|&size| smallvec::smallvec![0..size])
            .collect();
        let size = |axis: usize| {
            let none = || {
                let rank = shape.len();
                format!("axis {axis} does not exist; it has {rank} dimensions")
            };
            shape.get(axis).copied().ok_or_else(none)
        };
        let shard;
        let ranges: &[Range<u64>] = match self {
            Self::Whole | Self::Axes(_) => &[],
            Self::Rows(range) | Self::Range { range, .. } => std::slice::from_ref(range),
            Self::Joined { ranges, .. } => ranges,
            &Self::Shard { axis, rank, of } => {
                if rank >= of {
                    return Err(format!(
                        "rank {rank} is not below the number of workers, {of}"
                    ));
                }
                let size = size(axis)?;
                let at = |rank: u64| {
                    // 128 bits, because the product of a size and a rank may exceed 64
                    let at = u128::from(size) * u128::from(rank) / u128::from(of);
                    u64::try_from(at).expect("no more than the size")
                };
                shard = at(rank)..at(rank + 1);
                std::slice::from_ref(&shard)
            }
        };
        match self {
            Self::Whole => {}
            Self::Axes(ranges) => {
                for (axis, range) in ranges.iter().enumerate() {
                    axes[axis] = within(axis, size(axis)?, std::slice::from_ref(range))?;
                }
            }
            // a scalar has no axis 0, which `size` reports before the index is used
            Self::Rows(_) => axes[0] = within(0, size(0)?, ranges)?,
            Self::Range { axis, .. } | Self::Joined { axis, .. } | Self::Shard { axis, .. } => {
                let found = within(*axis, size(*axis)?, ranges)?;
                axes[*axis] = found;
            }
        }
        Ok(axes)
    }
}

/// The ranges that are not empty, if they ascend and end within the axis.
fn within(axis: usize, size: u64, ranges: &[Range<u64>]) -> Result<AxisRanges, String> {
    let mut end = 0;
    for range in ranges {
        if range.start > range.end || range.end > size {
            return Err(format!(
                "axis {axis}: {}..{} is out of bounds; it has {size} indices",
                range.start, range.end
            ));
        }
        // ascending and disjoint: elements keep their stored order, and none is read twice
        if range.start < end {
            return Err(format!(
                "axis {axis}: {}..{} does not follow a range that ends at {end}",
                range.start, range.end
            ));
        }
        end = range.end;
    }
    // an empty range would be a run without elements
    let used = ranges.iter().filter(|range| !range.is_empty());
    Ok(used.cloned().collect())
}
