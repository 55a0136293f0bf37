//! Reading the fields of a packed block.

/// The `N` bytes of a block from `offset` on.
///
/// A block is an array whose length is known to the compiler, so for a constant offset the check vanishes.
#[inline(always)]
pub(crate) fn field<const N: usize>(block: &[u8], offset: usize) -> &[u8; N] {
    block[offset..]
        .first_chunk()
        .expect("the field lies within the block's layout")
}
