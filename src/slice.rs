//! Slices of a tensor: some of its rows, or one worker's shard along an axis.

use std::ops::Range;

use anamnesis_template::StridedRange;

use crate::catalog::{Encoding, Shape, TensorInfo, quote};
use crate::error::{Error, Result};

/// Which part of a tensor is loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TensorSlice {
    /// The whole tensor.
    #[default]
    Whole,
    /// These indices of the first dimension.
    Rows(Range<u64>),
    /// The shard of worker `rank` of `of` along an axis: indices `size·rank/of` to `size·(rank+1)/of`, rounded down, so
    /// that the shards of all workers make up the tensor. Axis 0 of a PyTorch linear layer is its outputs
    /// (column-parallel), axis 1 its inputs (row-parallel).
    Shard {
        /// The dimension that is split.
        axis: usize,
        /// Index of the worker, below `of`.
        rank: u64,
        /// The number of workers.
        of: u64,
    },
}

/// The result of a [`TensorSlice`]: its shape, and its bytes, relative to the tensor's logical bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SliceLayout {
    pub(super) shape: Shape,
    pub(super) bytes: StridedRange,
}

impl TensorSlice {
    /// Bytes of this slice of a tensor: the length of the memory that [`Load::run_into`](super::Load::run_into) needs.
    ///
    /// ```
    /// use anamnesis::load::TensorSlice;
    /// use anamnesis::{Checkpoint, load};
    ///
    /// let checkpoint = Checkpoint::open("fixtures/safetensors/sharded")?;
    /// let half = TensorSlice::Shard { axis: 0, rank: 1, of: 2 };
    /// let head = checkpoint.catalog().get("lm_head.weight").expect("it exists");
    /// let mut out = vec![0; usize::try_from(half.nbytes(head)?).expect("a small tensor")];
    /// load(&checkpoint).slice(move |_| half.clone()).tensor_into("lm_head.weight", &mut out)?;
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    ///
    /// # Errors
    /// If it is out of bounds, or splits a block or a byte.
    pub fn nbytes(&self, info: &TensorInfo) -> Result<u64> {
        Ok(self.layout(info)?.bytes.nbytes())
    }

    /// The layout of this slice of a tensor. Refused if it is out of bounds, or splits a block or a byte.
    pub(super) fn layout(&self, info: &TensorInfo) -> Result<SliceLayout> {
        let total = info.nbytes();
        let whole = SliceLayout {
            shape: info.shape.clone(),
            bytes: StridedRange::contiguous(0, total),
        };
        let wrong =
            |what: String| Error::invalid_argument(format!("tensor {}: {what}", quote(&info.name)));
        let axis = if let Self::Shard { axis, .. } = self {
            *axis
        } else {
            0
        };
        let size = |axis: usize| {
            let size = info.shape.get(axis).copied();
            size.ok_or_else(|| {
                wrong(format!(
                    "axis {axis} does not exist; the tensor has {} dimensions",
                    info.shape.len()
                ))
            })
        };
        let part = match self {
            Self::Whole => return Ok(whole),
            Self::Rows(rows) => rows.clone(),
            Self::Shard { rank, of, .. } => {
                if rank >= of {
                    return Err(wrong(format!(
                        "rank {rank} is not below the number of workers, {of}"
                    )));
                }
                let size = size(axis)?;
                let at = |rank: u64| {
                    // 128 bits, because the product of a size and a rank may exceed 64
                    let at = u128::from(size) * u128::from(rank) / u128::from(*of);
                    u64::try_from(at).expect("no more than the size")
                };
                at(*rank)..at(rank + 1)
            }
        };
        let size = size(axis)?;
        if part.start > part.end || part.end > size {
            return Err(wrong(format!(
                "rows {}..{} are out of bounds; the tensor has {size}",
                part.start, part.end
            )));
        }
        let mut shape = info.shape.clone();
        shape[axis] = part.end - part.start;
        // an empty slice has no first byte to compute
        if total == 0 || part.is_empty() {
            return Ok(SliceLayout {
                shape,
                bytes: StridedRange::default(),
            });
        }
        // the tensor has elements, so that no product of its sizes exceeds their number
        // the runs of the slice, one for each index in front of the axis
        let outer: u64 = info.shape[..axis].iter().product();
        let inner: u64 = info.shape[axis + 1..].iter().product();
        let bytes = |elements: u64| {
            let bytes = match info.encoding {
                Encoding::Plain(dtype) => dtype.nbytes(elements),
                Encoding::Block(format) => format.nbytes(elements),
                Encoding::Opaque(_) => info
                    .encoding
                    .item_bytes()
                    .and_then(|item| item.checked_mul(elements)),
            };
            bytes.ok_or_else(|| {
                wrong(format!(
                    "the slice splits a unit of {}",
                    info.encoding.name()
                ))
            })
        };
        let (start, len, stride) = (
            bytes(part.start * inner)?,
            bytes((part.end - part.start) * inner)?,
            bytes(size * inner)?,
        );
        Ok(SliceLayout {
            shape,
            bytes: StridedRange {
                start,
                len,
                count: outer,
                stride,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{ByteRange, Dtype};

    fn info(shape: &[u64]) -> TensorInfo {
        let nbytes = shape.iter().product::<u64>() * 2;
        TensorInfo::new(
            "t",
            Shape::from_slice(shape),
            Encoding::Plain(Dtype::F16),
            ByteRange::new(0, nbytes),
        )
    }

    /// The elements of a slice, selected one by one.
    fn naive(shape: &[u64], axis: usize, part: &Range<u64>) -> Vec<u64> {
        let inner: u64 = shape[axis + 1..].iter().product();
        let all = 0..shape.iter().product::<u64>();
        all.filter(|i| part.contains(&(i / inner % shape[axis])))
            .collect()
    }

    proptest! {
        #[test]
        fn shards_have_the_naive_elements_and_cover_the_tensor(shape in prop::collection::vec(1u64..7, 1..4), axis in 0usize..4, of in 1u64..5) {
            let axis = axis % shape.len();
            let info = info(&shape);
            let mut size = 0;
            for rank in 0..of {
                let slice = TensorSlice::Shard { axis, rank, of }.layout(&info).unwrap();
                let found: Vec<u64> = slice.bytes.starts().flat_map(|at| (at..at + slice.bytes.len).step_by(2)).map(|at| at / 2).collect();
                let part = size..size + slice.shape[axis];
                prop_assert_eq!(found, naive(&shape, axis, &part));
                size = part.end;
            }
            prop_assert_eq!(size, shape[axis]);
        }
    }

    #[test]
    fn slices_out_of_bounds_or_starting_inside_a_byte_are_refused() {
        let info = info(&[4, 6]);
        assert_eq!(
            TensorSlice::Rows(1..3).layout(&info).unwrap().bytes.start,
            12
        );
        for slice in [
            TensorSlice::Rows(3..5),
            TensorSlice::Shard {
                axis: 2,
                rank: 0,
                of: 2,
            },
            TensorSlice::Shard {
                axis: 0,
                rank: 2,
                of: 2,
            },
        ] {
            let error = slice.layout(&info).unwrap_err();
            assert!(error.to_string().contains("tensor `t`"), "{error}");
        }
        let mut nibbles = info.clone();
        nibbles.encoding = Encoding::Plain(Dtype::F4);
        nibbles.shape = Shape::from_slice(&[3, 3, 16]);
        assert!(
            TensorSlice::Shard {
                axis: 2,
                rank: 0,
                of: 16
            }
            .layout(&nibbles)
            .is_err(),
            "a shard that is half a byte wide"
        );
    }
}
