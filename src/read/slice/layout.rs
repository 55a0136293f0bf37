//! A slice in bytes.

use std::ops::Range;

use super::{ElementRuns, TensorSlice};
use crate::base::error::{Error, Result};
use crate::read::catalog::{Encoding, Shape, TensorInfo, quote};

/// The result of a [`TensorSlice`]: its shape, and its bytes, relative to the tensor's logical bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SliceLayout {
    pub(crate) shape: Shape,
    pub(crate) runs: ElementRuns,
    /// Elements of a block, or of the least number of whole bytes, and their bytes.
    unit: (u64, u64),
}

impl TensorSlice {
    /// Bytes of this slice of a tensor: the length of the memory that [`Load::run_into`](crate::load::Load::run_into) needs.
    ///
    /// ```
    /// use anamnesis::slice::TensorSlice;
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
        let layout = self.layout("tensor", &info.name, &info.shape, &info.encoding)?;
        Ok(layout.nbytes())
    }

    /// The layout of this slice of a tensor.
    ///
    /// # Errors
    /// The errors of [`elements`](Self::elements), and one if the slice splits a block or a byte.
    pub(crate) fn layout(
        &self,
        thing: &str,
        name: &str,
        shape: &[u64],
        encoding: &Encoding,
    ) -> Result<SliceLayout> {
        let (sliced, runs) = self.elements(thing, name, shape)?;
        let (per_unit, _) = encoding.unit();
        if let Some(axis) = split_axis(&runs, per_unit) {
            let unit = match encoding {
                Encoding::Block(_) => format!("a block of {per_unit} elements"),
                _ => format!("bytes that {per_unit} elements share"),
            };
            return Err(Error::invalid_argument(format!(
                "{thing} {}: the slice of axis {axis} splits {unit} ({})",
                quote(name),
                encoding.name()
            )));
        }
        Ok(SliceLayout {
            shape: sliced,
            runs,
            unit: encoding.unit(),
        })
    }
}

/// The axis of a range that begins or ends inside of a unit. The end of the tensor splits none.
fn split_axis(runs: &ElementRuns, per_unit: u64) -> Option<usize> {
    let splits = |element: u64| !element.is_multiple_of(per_unit);
    let (outer, line, axis) = runs.parts();
    let outer = outer.iter().find(|axis| {
        let mut ranges = axis.indices.ranges.iter();
        ranges.any(|range| {
            // each of several indices begins at a multiple of the stride
            splits(range.start * axis.stride) || range.end - range.start > 1 && splits(axis.stride)
        })
    });
    let in_line = || {
        let end = |end: u64| splits(end) && end != runs.total();
        let split = line.iter().any(|run| splits(run.start) || end(run.end));
        split.then_some(axis)
    };
    outer.map(|axis| axis.axis).or_else(in_line)
}

impl SliceLayout {
    /// Nothing of a tensor that cannot be read.
    pub(crate) fn of_no_elements(shape: Shape) -> Self {
        Self {
            shape,
            runs: ElementRuns::none(),
            unit: (1, 1),
        }
    }

    /// Bytes of the slice.
    pub(crate) fn nbytes(&self) -> u64 {
        self.bytes_of(self.runs.elements())
    }

    /// Whether the slice is the whole tensor.
    pub(crate) fn is_whole(&self) -> bool {
        self.runs.is_whole()
    }

    /// The bytes of run number `number`, which is below the count.
    pub(crate) fn run(&self, number: u64) -> Range<u64> {
        let run = self.runs.run(number);
        self.bytes_of(run.start)..self.bytes_of(run.end)
    }

    /// The bytes of the first run; none of an empty slice.
    pub(crate) fn first(&self) -> Range<u64> {
        if self.runs.count() == 0 {
            0..0
        } else {
            self.run(0)
        }
    }

    /// The bytes from the first of `count` runs to the last, from run `first` on.
    pub(crate) fn covering(&self, first: u64, count: u64) -> Range<u64> {
        self.run(first).start..self.run(first + count - 1).end
    }

    /// How many runs are read at a time. One, unless that is more than `close` reads while the bytes between two runs are no
    /// more than `gap`, or more than `apart` reads otherwise: then whole lines, or more.
    pub(crate) fn runs_per_read(&self, gap: u64, close: u64, apart: u64) -> u64 {
        let count = self.runs.count();
        if count <= 1 {
            return 1;
        }
        let between = self.run(1).start - self.run(0).end;
        let most = if between <= gap { close } else { apart };
        let mut sizes = self.runs.group_sizes();
        sizes.find(|size| count / size <= most).unwrap_or(count)
    }

    fn bytes_of(&self, elements: u64) -> u64 {
        let (per_unit, bytes) = self.unit;
        // the rest belongs to a tensor whose last byte is not full
        elements / per_unit * bytes + (elements % per_unit * bytes).div_ceil(per_unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::kernel::Dtype;
    use anamnesis_kernel::BlockFormat;

    fn layout(slice: &TensorSlice, shape: &[u64], encoding: &Encoding) -> Result<SliceLayout> {
        slice.layout("tensor", "t", shape, encoding)
    }

    #[test]
    fn what_splits_a_block_or_a_byte_is_refused_with_its_axis() {
        let q4_0 = Encoding::Block(BlockFormat::from_name("Q4_0").unwrap());
        let (f4, f6) = (Encoding::Plain(Dtype::F4), Encoding::Plain(Dtype::F6_E2M3));
        let range = |axis, range| TensorSlice::Range { axis, range };
        type Case<'c> = (&'c Encoding, &'c [u64], TensorSlice, Result<u64, &'c str>);
        let cases: &[Case<'_>] = &[
            (&q4_0, &[3, 64], range(1, 32..64), Ok(3 * 18)),
            (
                &q4_0,
                &[3, 64],
                TensorSlice::Axes(vec![1..2, 0..32]),
                Ok(18),
            ),
            (
                &q4_0,
                &[3, 64],
                range(1, 0..40),
                Err("axis 1 splits a block of 32 elements (Q4_0)"),
            ),
            (
                &f4,
                &[3, 3, 16],
                range(2, 0..1),
                Err("axis 2 splits bytes that 2 elements share (F4)"),
            ),
            (&f4, &[3, 3, 16], range(2, 2..4), Ok(9)),
            // a row ends inside a byte, two rows do not
            (&f4, &[4, 3], range(0, 0..2), Ok(3)),
            (&f4, &[4, 3], range(0, 1..2), Err("axis 0 splits")),
            (
                &f4,
                &[4, 3],
                TensorSlice::Axes(vec![2..4, 0..2]),
                Err("axis 0 splits"),
            ),
            (&f4, &[4, 3], TensorSlice::Axes(vec![2..3, 0..2]), Ok(1)),
            (&f6, &[2, 8], range(1, 4..8), Ok(6)),
            (
                &f6,
                &[2, 8],
                range(1, 2..8),
                Err("4 elements share (F6_E2M3)"),
            ),
        ];
        for (encoding, shape, slice, expected) in cases {
            match (layout(slice, shape, encoding), expected) {
                (Ok(layout), Ok(nbytes)) => assert_eq!(layout.nbytes(), *nbytes, "{slice:?}"),
                (Err(error), Err(part)) => {
                    let error = error.to_string();
                    assert!(
                        error.contains("tensor `t`") && error.contains(part),
                        "{error}"
                    );
                }
                (found, expected) => panic!("{slice:?}: {found:?} instead of {expected:?}"),
            }
        }
        // PyTorch's type of two elements per byte may end inside of one
        let quint = Encoding::Plain(Dtype::QUINT4X2);
        let found = layout(&range(0, 2..3), &[3], &quint).unwrap();
        assert_eq!((found.nbytes(), found.run(0)), (1, 1..2));
    }

    #[test]
    fn runs_are_read_one_by_one_until_they_are_too_many() {
        let u8 = Encoding::Plain(Dtype::U8);
        // 6 × 5 runs of 2 bytes, 8 apart; 6 groups of 5
        let slice = TensorSlice::Axes(vec![0..6, 1..6, 2..4]);
        let layout = layout(&slice, &[9, 7, 10], &u8).unwrap();
        let per_read = |gap, close, apart| layout.runs_per_read(gap, close, apart);
        assert_eq!(per_read(0, 0, 30), 1);
        assert_eq!(per_read(0, 0, 29), 5);
        assert_eq!(per_read(0, 0, 5), 30);
        assert_eq!(per_read(8, 29, 100), 5);
        assert_eq!(layout.covering(5, 5), 82..124);
    }
}
