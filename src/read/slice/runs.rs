//! The elements of a slice, as runs of consecutive elements of its tensor.

use std::ops::Range;

use smallvec::SmallVec;

use super::AxisRanges;

/// The runs of a slice, in the order of its elements. Runs ascend.
///
/// All indices of the outer axes are enumerated, the last one fastest; for each combination the slice has the same runs,
/// which are a *line* here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ElementRuns {
    /// From the outermost in. Adjacent axes of which one needs no enumeration of its own are one.
    outer: SmallVec<[OuterAxis; 2]>,
    /// The runs of the first line, in elements.
    line: IndexList,
    /// The innermost axis of which the line is ranges, for messages.
    axis: usize,
    /// Elements of the tensor.
    total: u64,
}

/// An axis that is enumerated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OuterAxis {
    pub(super) indices: IndexList,
    /// Elements from one index to the next.
    pub(super) stride: u64,
    /// The innermost of the tensor's axes that it stands for.
    pub(super) axis: usize,
}

/// Ascending ranges of indices, numbered one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IndexList {
    pub(super) ranges: AxisRanges,
    /// The number of indices in front of each range, and of all.
    before: SmallVec<[u64; 2]>,
}

impl IndexList {
    fn new(ranges: AxisRanges) -> Self {
        let mut count = 0;
        let mut before: SmallVec<[u64; 2]> = ranges
            .iter()
            .map(|range| {
                let before = count;
                count += range.end - range.start;
                before
            })
            .collect();
        before.push(count);
        Self { ranges, before }
    }

    pub(super) fn count(&self) -> u64 {
        self.before[self.ranges.len()]
    }

    /// The range that contains index number `number`, which is below the count.
    fn range_of(&self, number: u64) -> usize {
        self.before.partition_point(|&before| before <= number) - 1
    }

    /// Index number `number`.
    fn index(&self, number: u64) -> u64 {
        let range = self.range_of(number);
        self.ranges[range].start + (number - self.before[range])
    }
}

impl ElementRuns {
    /// No elements of a tensor that has one.
    pub(super) fn none() -> Self {
        Self {
            outer: SmallVec::new(),
            line: IndexList::new(AxisRanges::new()),
            axis: 0,
            total: 1,
        }
    }

    /// The runs of these ranges of each axis; `None` if the tensor has more elements than 64 bits count.
    pub(super) fn new(shape: &[u64], axes: SmallVec<[AxisRanges; 4]>) -> Option<Self> {
        let total = crate::read::catalog::elements(shape)?;
        let mut runs = Self {
            total,
            ..Self::none()
        };
        // an empty slice has no first element to compute
        if total == 0 || axes.iter().any(|ranges| ranges.is_empty()) {
            return Some(runs);
        }
        // the whole tensor is the only index of an axis in front of the first
        let mut levels: SmallVec<[(AxisRanges, u64, usize); 4]> = SmallVec::new();
        levels.push((smallvec::smallvec![0..1], total, 0));
        for (axis, (ranges, &size)) in axes.into_iter().zip(shape).enumerate() {
            // no product exceeds the number of elements, as no size is 0
            let (last, stride, innermost) = levels.last_mut().expect("one in front");
            *stride /= size;
            let one_index = matches!(&last[..], [only] if only.end - only.start == 1);
            let whole = 0..size;
            if *ranges == [whole] {
                // consecutive indices of the axis in front are consecutive here
                for range in last.iter_mut() {
                    *range = range.start * size..range.end * size;
                }
            } else if one_index {
                // the only index of the axis in front shifts all ranges of this one
                let start = last[0].start * size;
                *last = ranges
                    .into_iter()
                    .map(|range| start + range.start..start + range.end)
                    .collect();
                *innermost = axis;
            } else {
                // the axis in front is enumerated, so that its stride spans this axis again
                let stride = *stride;
                let (_, outer_stride, _) = levels.last_mut().expect("one in front");
                *outer_stride *= size;
                levels.push((ranges, stride, axis));
            }
        }
        let (ranges, stride, axis) = levels.pop().expect("one in front");
        let in_elements = ranges
            .into_iter()
            .map(|range| range.start * stride..range.end * stride);
        runs.line = IndexList::new(in_elements.collect());
        runs.axis = axis;
        runs.outer = levels
            .into_iter()
            .map(|(ranges, stride, axis)| OuterAxis {
                indices: IndexList::new(ranges),
                stride,
                axis,
            })
            .collect();
        Some(runs)
    }

    /// Elements of the slice.
    pub(crate) fn elements(&self) -> u64 {
        self.lines() * self.line_elements()
    }

    /// Elements of the tensor.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Whether the slice is the whole tensor.
    pub(crate) fn is_whole(&self) -> bool {
        self.elements() == self.total
    }

    /// Combinations of indices of the outer axes.
    pub(crate) fn lines(&self) -> u64 {
        self.outer.iter().map(|axis| axis.indices.count()).product()
    }

    /// Elements of the slice in a line.
    pub(crate) fn line_elements(&self) -> u64 {
        self.line.count()
    }

    /// Elements of the tensor from one line to the next; all, if there is one line.
    pub(crate) fn line_distance(&self) -> u64 {
        self.outer.last().map_or(self.total, |axis| axis.stride)
    }

    /// Number of runs.
    pub(crate) fn count(&self) -> u64 {
        self.lines() * self.line.ranges.len() as u64
    }

    /// Run number `number`, which is below the count.
    pub(crate) fn run(&self, number: u64) -> Range<u64> {
        let per_line = self.line.ranges.len() as u64;
        let start = self.line_start(number / per_line);
        let within = usize::try_from(number % per_line).expect("as many as are in memory");
        let run = &self.line.ranges[within];
        start + run.start..start + run.end
    }

    /// How many runs a group has that is made of whole lines, or of all indices of some of the inner axes: ascending, from
    /// a single run to all of them.
    pub(crate) fn group_sizes(&self) -> impl Iterator<Item = u64> + '_ {
        let mut size = self.line.ranges.len() as u64;
        let outer = self.outer.iter().rev().map(move |axis| {
            size *= axis.indices.count();
            size
        });
        [1, self.line.ranges.len() as u64].into_iter().chain(outer)
    }

    /// The runs of a range of the slice's elements, the first and the last of them cut off where the range begins and ends.
    pub(crate) fn within(&self, elements: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let per_line = self.line_elements().max(1);
        let (mut line, mut at) = (elements.start / per_line, elements.start % per_line);
        let mut left = elements.end.saturating_sub(elements.start);
        let mut start = None;
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            // the start of a line takes a division per axis, which all its runs share
            let first = *start.get_or_insert_with(|| self.line_start(line));
            let range = self.line.range_of(at);
            let inside = at - self.line.before[range];
            let run = &self.line.ranges[range];
            let len = (run.end - run.start - inside).min(left);
            let from = first + run.start + inside;
            left -= len;
            at += len;
            if at == per_line {
                (line, at, start) = (line + 1, 0, None);
            }
            Some(from..from + len)
        })
    }

    /// The axes whose indices are enumerated, and the runs of a line with their axis.
    pub(super) fn parts(&self) -> (&[OuterAxis], &[Range<u64>], usize) {
        (&self.outer, &self.line.ranges, self.axis)
    }

    /// The distance of a line's elements from the elements of the first line.
    fn line_start(&self, mut line: u64) -> u64 {
        let mut start = 0;
        for axis in self.outer.iter().rev() {
            let count = axis.indices.count();
            start += axis.indices.index(line % count) * axis.stride;
            line /= count;
        }
        start
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::read::slice::TensorSlice;

    /// Sizes of up to four axes, and ranges of each.
    fn boxes() -> impl Strategy<Value = (Vec<u64>, Vec<std::ops::Range<u64>>)> {
        let axis = (1u64..7)
            .prop_flat_map(|size| (Just(size), 0..=size, 0..=size))
            .prop_map(|(size, a, b)| (size, a.min(b)..a.max(b)));
        prop::collection::vec(axis, 0..5).prop_map(|axes| axes.into_iter().unzip())
    }

    /// The numbers of the elements whose indices are all selected, one by one.
    fn naive(shape: &[u64], is_selected: impl Fn(usize, u64) -> bool) -> Vec<u64> {
        let all = 0..shape.iter().product::<u64>();
        let contains = |element: &u64| {
            let mut left = *element;
            (0..shape.len()).rev().all(|axis| {
                let index = left % shape[axis];
                left /= shape[axis];
                is_selected(axis, index)
            })
        };
        all.filter(contains).collect()
    }

    fn elements(slice: &TensorSlice, shape: &[u64]) -> Vec<u64> {
        let (sliced, runs) = slice.elements("tensor", "t", shape).unwrap();
        assert_eq!(sliced.iter().product::<u64>(), runs.elements());
        let found: Vec<u64> = (0..runs.count()).flat_map(|run| runs.run(run)).collect();
        let within: Vec<u64> = runs.within(0..runs.elements()).flatten().collect();
        assert_eq!(found, within);
        assert_eq!(runs.group_sizes().last(), Some(runs.count()));
        found
    }

    proptest! {
        #[test]
        fn a_box_has_the_elements_whose_indices_are_in_it((shape, ranges) in boxes(), from in 0u64..200, len in 0u64..200) {
            let slice = TensorSlice::Axes(ranges.clone());
            let expected = naive(&shape, |axis, index| ranges[axis].contains(&index));
            prop_assert_eq!(&elements(&slice, &shape), &expected);
            let (_, runs) = slice.elements("tensor", "t", &shape).unwrap();
            let part = from.min(runs.elements())..(from + len).min(runs.elements());
            let expected = &expected[usize::try_from(part.start).unwrap()..usize::try_from(part.end).unwrap()];
            prop_assert_eq!(runs.within(part).flatten().collect::<Vec<_>>(), expected);
        }

        #[test]
        fn joined_ranges_have_the_elements_of_all((shape, ranges) in boxes(), axis in 0usize..4, bounds in prop::collection::vec(0u64..7, 4)) {
            prop_assume!(!shape.is_empty());
            let axis = axis % shape.len();
            let mut bounds: Vec<u64> = bounds.into_iter().map(|bound| bound.min(shape[axis])).collect();
            bounds.sort_unstable();
            let joined = vec![bounds[0]..bounds[1], bounds[2]..bounds[3]];
            let slice = TensorSlice::Joined { axis, ranges: joined.clone() };
            let expected = naive(&shape, |found, index| found != axis || joined.iter().any(|range| range.contains(&index)));
            prop_assert_eq!(elements(&slice, &shape), expected);
            let one = TensorSlice::Range { axis, range: ranges[axis].clone() };
            let expected = naive(&shape, |found, index| found != axis || ranges[axis].contains(&index));
            prop_assert_eq!(elements(&one, &shape), expected);
        }

        #[test]
        fn the_shards_of_all_workers_are_the_tensor((shape, _) in boxes(), axis in 0usize..4, of in 1u64..5) {
            prop_assume!(!shape.is_empty());
            let axis = axis % shape.len();
            let mut all: Vec<u64> = (0..of).flat_map(|rank| elements(&TensorSlice::Shard { axis, rank, of }, &shape)).collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..shape.iter().product()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn slices_that_do_not_exist_are_refused_with_tensor_and_axis() {
        let range = |axis, range| TensorSlice::Range { axis, range };
        let joined = |ranges| TensorSlice::Joined { axis: 1, ranges };
        for (slice, part) in [
            (TensorSlice::Rows(3..5), "axis 0: 3..5 is out of bounds"),
            (range(1, 7..7), "axis 1: 7..7 is out of bounds"),
            #[allow(clippy::reversed_empty_ranges)]
            (range(1, 3..2), "axis 1: 3..2 is out of bounds"),
            (range(2, 0..1), "axis 2 does not exist"),
            (
                TensorSlice::Axes(vec![0..1, 0..1, 0..1]),
                "axis 2 does not exist",
            ),
            (joined(vec![0..3, 2..4]), "axis 1: 2..4 does not follow"),
            (joined(vec![3..4, 0..1]), "axis 1: 0..1 does not follow"),
            (
                TensorSlice::Shard {
                    axis: 0,
                    rank: 2,
                    of: 2,
                },
                "rank 2 is not below",
            ),
            (
                TensorSlice::Shard {
                    axis: 5,
                    rank: 0,
                    of: 2,
                },
                "axis 5 does not exist",
            ),
        ] {
            let error = slice
                .elements("tensor", "t", &[4, 6])
                .unwrap_err()
                .to_string();
            assert!(
                error.contains("tensor `t`") && error.contains(part),
                "{error}"
            );
        }
        assert!(
            TensorSlice::Rows(0..1)
                .elements("tensor", "t", &[])
                .is_err()
        );
        let huge = TensorSlice::Whole.elements("tensor", "t", &[u64::MAX, 2]);
        assert!(huge.is_err());
        let (shape, runs) = TensorSlice::Rows(0..0)
            .elements("tensor", "t", &[u64::MAX, u64::MAX, 0])
            .unwrap();
        assert_eq!((shape.as_slice(), runs.count()), (&[0, u64::MAX, 0][..], 0));
    }
}
