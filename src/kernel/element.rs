//! What a kernel writes: F32, F16 or BF16, as bytes.

/// An output element. Cells are byte arrays, so alignment and byte order never arise.
pub(crate) trait Element: 'static {
    type Cell: Copy;
    fn cells(out: &mut [u8]) -> &mut [Self::Cell];
    /// One rounding to nearest even.
    fn cell(x: f32) -> Self::Cell;
}

pub(crate) struct F32;
pub(crate) struct F16;
pub(crate) struct Bf16;

impl Element for F32 {
    type Cell = [u8; 4];

    #[inline(always)]
    fn cells(out: &mut [u8]) -> &mut [[u8; 4]] {
        out.as_chunks_mut().0
    }

    #[inline(always)]
    fn cell(x: f32) -> [u8; 4] {
        x.to_le_bytes()
    }
}

impl Element for Bf16 {
    type Cell = [u8; 2];

    #[inline(always)]
    fn cells(out: &mut [u8]) -> &mut [[u8; 2]] {
        out.as_chunks_mut().0
    }

    #[inline(always)]
    fn cell(x: f32) -> [u8; 2] {
        super::half::bf16(x).to_le_bytes()
    }
}

impl Element for F16 {
    type Cell = [u8; 2];

    #[inline(always)]
    fn cells(out: &mut [u8]) -> &mut [[u8; 2]] {
        out.as_chunks_mut().0
    }

    #[inline(always)]
    fn cell(x: f32) -> [u8; 2] {
        super::half::f16(x).to_le_bytes()
    }
}
