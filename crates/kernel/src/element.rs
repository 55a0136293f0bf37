//! Output element types: F32, F16 and BF16, stored as little-endian bytes.

use super::{Simd, half};

/// An output element type. Elements are stored as byte arrays, so a kernel's output needs neither alignment nor a byte order.
pub(crate) trait OutputElement: 'static {
    /// One stored element.
    type Stored: Copy;
    /// Two lookup tables of 16 elements, in the form that the instruction set looks up fastest.
    type Tables<S: Simd>: Copy;
    /// Whether storing rounds. If so, `ASSUME_NORMAL` of [`OutputElement::store`] and [`OutputElement::tables`] makes a difference.
    ///
    /// `ASSUME_NORMAL = true` promises that no value is subnormal or NaN (zero and infinity are allowed). Rounding then
    /// needs no handling of NaN, and for BF16 can be one instruction (experiment 13). Kernels establish the promise once
    /// per block or batch, from the scales: `if O::IS_ROUNDED && !all_finite { …::<false> } else { …::<true> }`. For F32
    /// nothing is rounded, so the check and the second copy of the loop are left out.
    const IS_ROUNDED: bool;

    /// Views output bytes as elements, leaving out an incomplete one at the end.
    fn as_stored(out: &mut [u8]) -> &mut [Self::Stored];

    /// Rounds one value, to nearest even.
    fn round(x: f32) -> Self::Stored;

    /// Rounds 32 values once, to nearest even, and stores them.
    fn store<S: Simd, const ASSUME_NORMAL: bool>(
        simd: S,
        x: [S::Floats; 2],
        out: &mut [Self::Stored; 32],
    );

    /// Makes two lookup tables of 16 values, rounded as by [`OutputElement::store`].
    fn tables<S: Simd, const ASSUME_NORMAL: bool>(
        simd: S,
        values: [S::Floats; 2],
    ) -> Self::Tables<S>;

    /// Stores the entries at the low four bits of 32 codes: of table `which[0]` for the first 16 codes, of `which[1]` for the
    /// rest.
    fn lookup<S: Simd>(
        simd: S,
        tables: Self::Tables<S>,
        which: [usize; 2],
        codes: S::Bytes,
        out: &mut [Self::Stored; 32],
    );

    /// Like [`OutputElement::lookup`] in one table of F32, times a factor for the first and another for the last 16 codes.
    fn lookup_scaled<S: Simd, const ASSUME_NORMAL: bool>(
        simd: S,
        table: S::Floats,
        factors: [f32; 2],
        codes: S::Bytes,
        out: &mut [Self::Stored; 32],
    );

    /// Like [`OutputElement::lookup`] in one table, with the codes of [`Simd::unpack_nibbles`].
    fn lookup_nibbles<S: Simd>(
        simd: S,
        tables: Self::Tables<S>,
        which: usize,
        codes: &[u8; 16],
        out: &mut [Self::Stored; 32],
    );
}

pub(crate) struct F32;
pub(crate) struct F16;
pub(crate) struct Bf16;

impl OutputElement for F32 {
    type Stored = [u8; 4];
    type Tables<S: Simd> = [S::Floats; 2];
    // values are stored as computed, so that no promise about them is needed
    const IS_ROUNDED: bool = false;

    #[inline(always)]
    fn as_stored(out: &mut [u8]) -> &mut [[u8; 4]] {
        out.as_chunks_mut().0
    }

    #[inline(always)]
    fn round(x: f32) -> [u8; 4] {
        x.to_le_bytes()
    }

    #[inline(always)]
    fn store<S: Simd, const ASSUME_NORMAL: bool>(
        simd: S,
        x: [S::Floats; 2],
        out: &mut [[u8; 4]; 32],
    ) {
        simd.store_f32(x, out);
    }

    #[inline(always)]
    fn tables<S: Simd, const ASSUME_NORMAL: bool>(_: S, values: [S::Floats; 2]) -> [S::Floats; 2] {
        values
    }

    #[inline(always)]
    fn lookup<S: Simd>(
        simd: S,
        tables: [S::Floats; 2],
        which: [usize; 2],
        codes: S::Bytes,
        out: &mut [[u8; 4]; 32],
    ) {
        simd.lookup_f32([tables[which[0]], tables[which[1]]], codes, out);
    }

    #[inline(always)]
    fn lookup_scaled<S: Simd, const ASSUME_NORMAL: bool>(
        simd: S,
        table: S::Floats,
        factors: [f32; 2],
        codes: S::Bytes,
        out: &mut [[u8; 4]; 32],
    ) {
        simd.lookup_scaled_f32(table, factors, codes, out);
    }

    #[inline(always)]
    fn lookup_nibbles<S: Simd>(
        simd: S,
        tables: [S::Floats; 2],
        which: usize,
        codes: &[u8; 16],
        out: &mut [[u8; 4]; 32],
    ) {
        simd.lookup_nibbles_f32(tables[which], codes, out);
    }
}

/// Implements [`OutputElement`] for a 16-bit type; the two differ in how they round.
macro_rules! element_16 {
    ($element:ident, $round:path, $store:ident, $store_normal:ident, $tables:ident, $tables_normal:ident) => {
        impl OutputElement for $element {
            type Stored = [u8; 2];
            type Tables<S: Simd> = S::Tables16;
            const IS_ROUNDED: bool = true;

            #[inline(always)]
            fn as_stored(out: &mut [u8]) -> &mut [[u8; 2]] {
                out.as_chunks_mut().0
            }

            #[inline(always)]
            fn round(x: f32) -> [u8; 2] {
                $round(x).to_le_bytes()
            }

            #[inline(always)]
            fn store<S: Simd, const ASSUME_NORMAL: bool>(
                simd: S,
                x: [S::Floats; 2],
                out: &mut [[u8; 2]; 32],
            ) {
                if ASSUME_NORMAL {
                    simd.$store_normal(x, out)
                } else {
                    simd.$store(x, out)
                }
            }

            #[inline(always)]
            fn tables<S: Simd, const ASSUME_NORMAL: bool>(
                simd: S,
                values: [S::Floats; 2],
            ) -> S::Tables16 {
                if ASSUME_NORMAL {
                    simd.$tables_normal(values)
                } else {
                    simd.$tables(values)
                }
            }

            #[inline(always)]
            fn lookup<S: Simd>(
                simd: S,
                tables: S::Tables16,
                which: [usize; 2],
                codes: S::Bytes,
                out: &mut [[u8; 2]; 32],
            ) {
                simd.lookup_16(tables, which, codes, out);
            }

            // multiplies and rounds first, looks up afterwards: 16 entries per factor instead of 32 elements
            #[inline(always)]
            fn lookup_scaled<S: Simd, const ASSUME_NORMAL: bool>(
                simd: S,
                table: S::Floats,
                factors: [f32; 2],
                codes: S::Bytes,
                out: &mut [[u8; 2]; 32],
            ) {
                let [first, second] = [simd.splat(factors[0]), simd.splat(factors[1])];
                let products = [simd.mul(table, first), simd.mul(table, second)];
                let tables = Self::tables::<S, ASSUME_NORMAL>(simd, products);
                Self::lookup(simd, tables, [0, 1], codes, out);
            }

            #[inline(always)]
            fn lookup_nibbles<S: Simd>(
                simd: S,
                tables: S::Tables16,
                which: usize,
                codes: &[u8; 16],
                out: &mut [[u8; 2]; 32],
            ) {
                simd.lookup_nibbles_16(tables, which, codes, out);
            }
        }
    };
}

element_16!(
    F16,
    half::f16,
    store_f16,
    store_f16_normal,
    tables_f16,
    tables_f16_normal
);
element_16!(
    Bf16,
    half::bf16,
    store_bf16,
    store_bf16_normal,
    tables_bf16,
    tables_bf16_normal
);
