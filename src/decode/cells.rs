//! Elements made a cell at a time, and stored past the caches.

use crate::error::Result;
use crate::kernel;
use crate::plan::room;

/// Bytes of a cell: few enough that the stores of one go on while the next is made in the first-level cache.
const CELL: usize = 8 << 10;

/// Has `make` make `out` cell by cell in `room`, and stores each past the caches. A cell is a whole number of steps of
/// `step` bytes; `make` hears how many are in front of it.
pub(super) fn past(
    step: usize,
    room: &mut Vec<u8>,
    out: &mut [u8],
    mut make: impl FnMut(usize, &mut [u8]) -> Result<()>,
) -> Result<()> {
    let step = step.max(1);
    let cell = self::room(room, (CELL / step).max(1) * step)?;
    kernel::stream_made(cell, out, |at, made| make(at / step, made))
}
