//! The runs of a slice: copying them out of the bytes of their tensor.

use std::ops::Range;

use crate::base::error::Result;
use crate::base::progress::TaskProgress;
use crate::read::slice::SliceLayout;
use crate::read::tensor::Tensor;

/// Copies these runs to the front of `out`, from bytes that begin with the first of them, and removes what it has filled
/// from `out`. `before` bytes of the task are complete. Returns the number of bytes copied.
pub(super) fn gather(
    layout: &SliceLayout,
    runs: Range<u64>,
    from: &[u8],
    before: u64,
    out: &mut &mut [u8],
    progress: &mut TaskProgress<'_, '_>,
) -> Result<u64> {
    let (start, mut copied) = (layout.run(runs.start).start, 0);
    for run in runs {
        let run = layout.run(run);
        let from = &from[to_usize(run.start - start)..to_usize(run.end - start)];
        let to = out
            .split_off_mut(..from.len())
            .expect("as long as the runs");
        progress.copy(before + copied, from, to)?;
        copied += from.len() as u64;
    }
    Ok(copied)
}

/// Reads a tensor that no loader reads, or a slice of it: an inflated, gathered or byte-swapped one, or a slice of a checked
/// one. All of it is read even for a slice: a checksum covers all of it, and a deflate stream has no other entrance.
pub(super) fn read_transformed(
    tensor: &Tensor<'_>,
    layout: &SliceLayout,
    out: &mut [u8],
    progress: &mut TaskProgress<'_, '_>,
) -> Result<()> {
    let watch = &mut |done, worked| {
        progress.advance_to(done);
        progress.worked(worked)
    };
    // without selecting bytes as they pass by
    if layout.is_whole() {
        tensor.read_watched(out, watch)
    } else {
        tensor.read_slice(layout, out, watch)
    }
}

pub(super) fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).expect("no longer than a buffer")
}
