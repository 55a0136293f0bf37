//! Parts of a tensor: some of its rows, or one worker's share along an axis.

use std::ops::Range;

use crate::catalog::{Encoding, Shape, TensorInfo, quote};
use crate::error::{Error, Result};

/// Which part of a tensor is loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cut {
    /// All of it.
    #[default]
    Whole,
    /// These indices of its first dimension.
    Rows(Range<u64>),
    /// The share of worker `rank` of `of` along an axis: `size·rank/of` to `size·(rank+1)/of`, so that all shares
    /// together are the tensor. Axis 0 of a PyTorch linear layer is its outputs (column-parallel), axis 1 its inputs
    /// (row-parallel).
    Shard {
        /// Which dimension is shared out.
        axis: usize,
        /// Which worker.
        rank: u64,
        /// How many workers there are.
        of: u64,
    },
}

/// A part of a tensor as runs of its logical bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Runs {
    pub(super) shape: Shape,
    /// Where the first begins.
    pub(super) start: u64,
    /// Bytes of each.
    pub(super) len: u64,
    pub(super) count: u64,
    /// From one to the next.
    pub(super) stride: u64,
}

impl Runs {
    pub(super) fn nbytes(&self) -> u64 {
        self.len * self.count
    }

    /// From the first byte to the last.
    pub(super) fn reach(&self) -> u64 {
        if self.nbytes() == 0 {
            0
        } else {
            (self.count - 1) * self.stride + self.len
        }
    }

    pub(super) fn starts(&self) -> impl Iterator<Item = u64> + use<> {
        let (start, stride) = (self.start, self.stride);
        (0..self.count).map(move |i| start + i * stride)
    }
}

impl Cut {
    /// The runs of this part of a tensor.
    pub(super) fn runs(&self, info: &TensorInfo) -> Result<Runs> {
        let total = info.nbytes();
        let whole = Runs {
            shape: info.shape.clone(),
            start: 0,
            len: total,
            count: 1,
            stride: total,
        };
        let wrong = |what: String| Error::misuse(format!("tensor {}: {what}", quote(&info.name)));
        let axis = if let Self::Shard { axis, .. } = self {
            *axis
        } else {
            0
        };
        let size = |axis: usize| {
            let size = info.shape.get(axis).copied();
            size.ok_or_else(|| {
                wrong(format!(
                    "it has {} dimensions, and no axis {axis}",
                    info.shape.len()
                ))
            })
        };
        let part = match self {
            Self::Whole => return Ok(whole),
            Self::Rows(rows) => rows.clone(),
            Self::Shard { rank, of, .. } => {
                if rank >= of {
                    return Err(wrong(format!("there is no worker {rank} of {of}")));
                }
                let size = size(axis)?;
                let at = |rank: u64| {
                    let at = u128::from(size) * u128::from(rank) / u128::from(*of);
                    u64::try_from(at).expect("no more than the size")
                };
                at(*rank)..at(rank + 1)
            }
        };
        let size = size(axis)?;
        if part.start > part.end || part.end > size {
            return Err(wrong(format!(
                "{}..{} of {size} rows",
                part.start, part.end
            )));
        }
        let mut shape = info.shape.clone();
        shape[axis] = part.end - part.start;
        if total == 0 || part.is_empty() {
            return Ok(Runs {
                shape,
                start: 0,
                len: 0,
                count: 0,
                stride: 0,
            });
        }
        // the tensor has elements, so that none of these is more than it has
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
            bytes.ok_or_else(|| wrong(format!("{} cannot be cut there", info.encoding.name())))
        };
        let (start, len, stride) = (
            bytes(part.start * inner)?,
            bytes((part.end - part.start) * inner)?,
            bytes(size * inner)?,
        );
        Ok(Runs {
            shape,
            start,
            len,
            count: outer,
            stride,
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

    /// The elements of a cut, found one by one.
    fn naive(shape: &[u64], axis: usize, part: &Range<u64>) -> Vec<u64> {
        let inner: u64 = shape[axis + 1..].iter().product();
        let all = 0..shape.iter().product::<u64>();
        all.filter(|i| part.contains(&(i / inner % shape[axis])))
            .collect()
    }

    proptest! {
        #[test]
        fn shares_are_what_they_say(shape in prop::collection::vec(1u64..7, 1..4), axis in 0usize..4, of in 1u64..5) {
            let axis = axis % shape.len();
            let info = info(&shape);
            let mut size = 0;
            for rank in 0..of {
                let runs = Cut::Shard { axis, rank, of }.runs(&info).unwrap();
                let found: Vec<u64> = runs.starts().flat_map(|at| (at..at + runs.len).step_by(2)).map(|at| at / 2).collect();
                let part = size..size + runs.shape[axis];
                prop_assert_eq!(found, naive(&shape, axis, &part));
                size = part.end;
            }
            prop_assert_eq!(size, shape[axis]);
        }
    }

    #[test]
    fn what_cannot_be_cut_is_refused() {
        let info = info(&[4, 6]);
        assert_eq!(Cut::Rows(1..3).runs(&info).unwrap().start, 12);
        for cut in [
            Cut::Rows(3..5),
            Cut::Shard {
                axis: 2,
                rank: 0,
                of: 2,
            },
            Cut::Shard {
                axis: 0,
                rank: 2,
                of: 2,
            },
        ] {
            let error = cut.runs(&info).unwrap_err();
            assert!(
                error.to_string().contains("\"t\"") || error.to_string().contains('t'),
                "{error}"
            );
        }
        let mut nibbles = info.clone();
        nibbles.encoding = Encoding::Plain(Dtype::F4);
        nibbles.shape = Shape::from_slice(&[3, 3, 16]);
        assert!(
            Cut::Shard {
                axis: 2,
                rank: 0,
                of: 16
            }
            .runs(&nibbles)
            .is_err(),
            "half a byte"
        );
    }
}
