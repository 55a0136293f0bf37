//! The runs of a slice: copying them out of the bytes of their tensor.

use anamnesis_template::StridedRange;

use crate::error::Result;
use crate::progress::TaskProgress;
use crate::tensor::Tensor;

/// Copies runs into `out`, which has their length, from bytes that begin with the first run.
pub(super) fn gather(
    runs: &StridedRange,
    from: &[u8],
    out: &mut [u8],
    progress: &mut TaskProgress<'_, '_>,
) -> Result<()> {
    let outs = out.chunks_mut(to_usize(runs.len).max(1));
    for (i, (start, out)) in runs.starts().zip(outs).enumerate() {
        let run = &from[to_usize(start - runs.start)..][..out.len()];
        progress.copy(i as u64 * runs.len, run, out)?;
    }
    Ok(())
}

/// Reads runs of a tensor that no loader reads: an inflated, gathered or byte-swapped one, or a slice of a checked one. It is
/// read from its first byte to its last even for a slice: a checksum covers all of it, and a deflate stream has no other
/// entrance.
pub(super) fn read_transformed(
    tensor: &Tensor<'_>,
    runs: &StridedRange,
    out: &mut [u8],
    progress: &mut TaskProgress<'_, '_>,
) -> Result<()> {
    let watch = &mut |done, worked| {
        progress.advance_to(done);
        progress.worked(worked)
    };
    if runs.nbytes() == tensor.info().nbytes() {
        return tensor.read_watched(out, watch);
    }
    let mut at = 0;
    let each = &mut |values: &[u8]| {
        copy_runs(runs, at, values, out);
        at += values.len() as u64;
    };
    tensor.chunks_watched(each, watch)
}

/// Copies what runs have of `values`, which begin at offset `at` of the tensor, to where it is in the slice.
fn copy_runs(runs: &StridedRange, at: u64, values: &[u8], out: &mut [u8]) {
    if runs.nbytes() == 0 {
        return;
    }
    let end = at + values.len() as u64;
    // a run that begins before may reach into the values
    let first = at.saturating_sub(runs.start).checked_div(runs.stride);
    for number in first.unwrap_or(0)..runs.count {
        let start = runs.start + number * runs.stride;
        if start >= end {
            break;
        }
        let (from, to) = (start.max(at), (start + runs.len).min(end));
        if from < to {
            let values = &values[to_usize(from - at)..to_usize(to - at)];
            let place = to_usize(number * runs.len + (from - start));
            out[place..place + values.len()].copy_from_slice(values);
        }
    }
}

pub(super) fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).expect("no longer than a buffer")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn runs_are_copied_from_values_in_any_pieces(
            start in 0u64..20, len in 0u64..8, gap in 0u64..6, count in 0u64..10, piece in 1usize..40, rest in 0usize..10,
        ) {
            let runs = StridedRange { start, len, count, stride: len + gap };
            let total = to_usize(start + count * (len + gap)) + rest;
            let values: Vec<u8> = (0..total).map(|i| (i % 251).to_le_bytes()[0]).collect();
            let expected: Vec<u8> = (0..count)
                .flat_map(|run| (0..len).map(move |i| to_usize(start + run * (len + gap) + i)))
                .map(|at| values[at])
                .collect();
            let mut out = vec![255; expected.len()];
            let mut at = 0;
            for values in values.chunks(piece) {
                copy_runs(&runs, at, values, &mut out);
                at += values.len() as u64;
            }
            prop_assert_eq!(out, expected);
        }
    }
}
