//! Decoding in chunks that are copied to the output with non-temporal stores.
//!
//! A chunk is computed in a buffer that stays in the first-level cache. Compared with computing a whole tile first, the
//! stores of one chunk overlap with the computation of the next.

use crate::base::error::Result;
use crate::base::kernel;
use crate::plan::aligned_scratch;

/// Bytes of a chunk. It fits in the first-level cache with its input.
const CHUNK_BYTES: usize = 8 << 10;

/// Fills `out` chunk by chunk: `make` computes a chunk in `room`, and non-temporal stores copy it to `out`. A chunk is a
/// whole number of steps of `step` bytes (blocks, rows); `make` receives the number of steps before it.
pub(crate) fn decode_in_chunks(
    step: usize,
    room: &mut Vec<u8>,
    out: &mut [u8],
    mut make: impl FnMut(usize, &mut [u8]) -> Result<()>,
) -> Result<()> {
    let step = step.max(1);
    // 8 KiB: chunks of 4 to 16 KiB were the fastest of 1 KiB to 512 KiB for outputs beyond the caches (experiment 42)
    let chunk = self::aligned_scratch(room, (CHUNK_BYTES / step).max(1) * step)?;
    kernel::fill_non_temporal(chunk, out, |at, made| make(at / step, made))
}
