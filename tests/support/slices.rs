//! Random slices of tensors, and their elements selected one by one.

use std::ops::Range;

use anamnesis::slice::TensorSlice;

use super::random::Random;

/// Whether a slice of a tensor of this shape has an index of an axis.
fn selects(slice: &TensorSlice, shape: &[u64], axis: usize, index: u64) -> bool {
    match slice {
        TensorSlice::Whole => true,
        TensorSlice::Rows(range) => axis != 0 || range.contains(&index),
        TensorSlice::Range { axis: cut, range } => axis != *cut || range.contains(&index),
        TensorSlice::Axes(ranges) => ranges.get(axis).is_none_or(|range| range.contains(&index)),
        TensorSlice::Joined { axis: cut, ranges } => {
            axis != *cut || ranges.iter().any(|range| range.contains(&index))
        }
        TensorSlice::Shard {
            axis: cut,
            rank,
            of,
        } => {
            let (start, end) = (shape[axis] * rank / of, shape[axis] * (rank + 1) / of);
            axis != *cut || (start..end).contains(&index)
        }
    }
}

/// The numbers of a slice's elements, in C order.
pub fn selected_numbers(shape: &[u64], slice: &TensorSlice) -> Vec<usize> {
    if shape.contains(&0) {
        return Vec::new();
    }
    let contains = |number: &usize| {
        let mut left = *number as u64;
        (0..shape.len()).rev().all(|axis| {
            let index = left % shape[axis];
            left /= shape[axis];
            selects(slice, shape, axis, index)
        })
    };
    let count = usize::try_from(shape.iter().product::<u64>()).unwrap();
    (0..count).filter(contains).collect()
}

/// The bytes of a slice of a row-major tensor with elements of `item` bytes.
pub fn selected_elements(bytes: &[u8], shape: &[u64], item: usize, slice: &TensorSlice) -> Vec<u8> {
    let numbers = selected_numbers(shape, slice).into_iter();
    numbers
        .flat_map(|number| &bytes[number * item..][..item])
        .copied()
        .collect()
}

/// The shape of a slice: the number of indices that it has of each axis.
pub fn sliced_shape(shape: &[u64], slice: &TensorSlice) -> Vec<u64> {
    if *slice == TensorSlice::Whole {
        return shape.to_vec();
    }
    let size = |(axis, &size): (usize, &u64)| {
        let selected = (0..size).filter(|&index| selects(slice, shape, axis, index));
        selected.count() as u64
    };
    shape.iter().enumerate().map(size).collect()
}

/// A slice of any kind, possibly empty. An empty tensor whose other sizes are too large to count through is taken whole.
pub fn random_slice(random: &mut Random, shape: &[u64]) -> TensorSlice {
    let axes = u32::try_from(shape.len()).unwrap();
    if axes == 0 || shape.iter().any(|&size| size > 1 << 24) {
        return TensorSlice::Whole;
    }
    let axis = random.below(axes) as usize;
    match random.below(6) {
        0 => TensorSlice::Rows(random_range(random, shape[0])),
        1 => TensorSlice::Range {
            axis,
            range: random_range(random, shape[axis]),
        },
        2 => {
            let of = u64::from(1 + random.below(4));
            let rank = u64::from(random.next()) % of;
            TensorSlice::Shard { axis, rank, of }
        }
        3 => {
            let middle = random_range(random, shape[axis]);
            let (first, last) = (0..middle.start, middle.end..shape[axis]);
            TensorSlice::Joined {
                axis,
                ranges: vec![first, last],
            }
        }
        _ => {
            let ranges = shape.iter().map(|&size| random_range(random, size));
            TensorSlice::Axes(ranges.take(axis + 1).collect())
        }
    }
}

/// A range of indices of an axis of this size.
pub fn random_range(random: &mut Random, size: u64) -> Range<u64> {
    let [a, b] = [0, 1].map(|_| u64::from(random.next()) % (size + 1));
    a.min(b)..a.max(b)
}
