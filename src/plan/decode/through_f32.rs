//! The output of another decoder, changed in memory.

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::plan::{DecodeInput, Decoder};

use super::cast;
use super::tile_rows::scratch;

/// Decodes rows in F32, changes these numbers (little-endian), and writes them to `out`: there is one rounding, at the end.
///
/// # Errors
/// If the inner decoder fails, the change does, or the memory is missing.
pub(crate) fn through_f32(
    inner: &dyn Decoder,
    parts: DecodeInput<'_>,
    out: &mut [u8],
    change: impl FnOnce(&mut [[u8; 4]]) -> Result<()>,
) -> Result<()> {
    let dtype = parts.dtype;
    let mut values = scratch(out.len() / dtype.width(), Dtype::F32.width())?;
    let parts = DecodeInput {
        dtype: Dtype::F32,
        ..parts
    };
    inner.decode(parts, &mut values)?;
    change(values.as_chunks_mut().0)?;
    cast::cast(Dtype::F32, &values, dtype, out)
}
