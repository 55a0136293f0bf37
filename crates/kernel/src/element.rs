//! What a kernel writes: F32, F16 or BF16, as bytes.

use super::{Lanes, half};

/// An output element. Cells are byte arrays, so alignment and byte order never arise.
pub(crate) trait Element: 'static {
    type Cell: Copy;
    /// Two tables of sixteen cells.
    type Tables<S: Lanes>: Copy;
    /// Whether `PLAIN` makes a difference: that values are neither subnormal nor NaN.
    const PARTICULAR: bool;

    fn cells(out: &mut [u8]) -> &mut [Self::Cell];
    /// One rounding to nearest even.
    fn cell(x: f32) -> Self::Cell;
    /// Thirty-two values, each rounded once to nearest even.
    fn put<S: Lanes, const PLAIN: bool>(s: S, x: [S::Floats; 2], out: &mut [Self::Cell; 32]);
    /// Tables of values, rounded, for [`Element::pick`].
    fn tables<S: Lanes, const PLAIN: bool>(s: S, values: [S::Floats; 2]) -> Self::Tables<S>;
    /// Entries by the low four bits of each code, from these tables for the first and the second sixteen codes.
    fn pick<S: Lanes>(
        s: S,
        tables: Self::Tables<S>,
        which: [usize; 2],
        codes: S::Bytes,
        out: &mut [Self::Cell; 32],
    );
    /// Entries of a table by the low four bits of each code, times a factor for the first and one for the second sixteen.
    fn pick_scaled<S: Lanes, const PLAIN: bool>(
        s: S,
        table: S::Floats,
        factors: [f32; 2],
        codes: S::Bytes,
        out: &mut [Self::Cell; 32],
    );
    /// Entries of one table by all low nibbles, then by all high ones.
    fn pick_nibbles<S: Lanes>(
        s: S,
        tables: Self::Tables<S>,
        which: usize,
        codes: &[u8; 16],
        out: &mut [Self::Cell; 32],
    );
}

pub(crate) struct F32;
pub(crate) struct F16;
pub(crate) struct Bf16;

impl Element for F32 {
    type Cell = [u8; 4];
    type Tables<S: Lanes> = [S::Floats; 2];
    const PARTICULAR: bool = false;

    #[inline(always)]
    fn cells(out: &mut [u8]) -> &mut [[u8; 4]] {
        out.as_chunks_mut().0
    }

    #[inline(always)]
    fn cell(x: f32) -> [u8; 4] {
        x.to_le_bytes()
    }

    #[inline(always)]
    fn put<S: Lanes, const PLAIN: bool>(s: S, x: [S::Floats; 2], out: &mut [[u8; 4]; 32]) {
        s.put_f32(x, out);
    }

    #[inline(always)]
    fn tables<S: Lanes, const PLAIN: bool>(_: S, values: [S::Floats; 2]) -> [S::Floats; 2] {
        values
    }

    #[inline(always)]
    fn pick<S: Lanes>(
        s: S,
        tables: [S::Floats; 2],
        which: [usize; 2],
        codes: S::Bytes,
        out: &mut [[u8; 4]; 32],
    ) {
        s.pick_f32([tables[which[0]], tables[which[1]]], codes, out);
    }

    #[inline(always)]
    fn pick_scaled<S: Lanes, const PLAIN: bool>(
        s: S,
        table: S::Floats,
        factors: [f32; 2],
        codes: S::Bytes,
        out: &mut [[u8; 4]; 32],
    ) {
        s.pick_scaled_f32(table, factors, codes, out);
    }

    #[inline(always)]
    fn pick_nibbles<S: Lanes>(
        s: S,
        tables: [S::Floats; 2],
        which: usize,
        codes: &[u8; 16],
        out: &mut [[u8; 4]; 32],
    ) {
        s.pick_nibbles_f32(tables[which], codes, out);
    }
}

/// The two 16-bit elements differ in how they round.
macro_rules! half {
    ($element:ident, $cell:path, $put:ident, $put_plain:ident, $cells:ident, $cells_plain:ident) => {
        impl Element for $element {
            type Cell = [u8; 2];
            type Tables<S: Lanes> = S::Cells;
            const PARTICULAR: bool = true;

            #[inline(always)]
            fn cells(out: &mut [u8]) -> &mut [[u8; 2]] {
                out.as_chunks_mut().0
            }

            #[inline(always)]
            fn cell(x: f32) -> [u8; 2] {
                $cell(x).to_le_bytes()
            }

            #[inline(always)]
            fn put<S: Lanes, const PLAIN: bool>(s: S, x: [S::Floats; 2], out: &mut [[u8; 2]; 32]) {
                if PLAIN {
                    s.$put_plain(x, out)
                } else {
                    s.$put(x, out)
                }
            }

            #[inline(always)]
            fn tables<S: Lanes, const PLAIN: bool>(s: S, values: [S::Floats; 2]) -> S::Cells {
                if PLAIN {
                    s.$cells_plain(values)
                } else {
                    s.$cells(values)
                }
            }

            #[inline(always)]
            fn pick<S: Lanes>(
                s: S,
                tables: S::Cells,
                which: [usize; 2],
                codes: S::Bytes,
                out: &mut [[u8; 2]; 32],
            ) {
                s.pick_16(tables, which, codes, out);
            }

            /// Multiplied and rounded, then picked: sixteen entries of each instead of thirty-two elements.
            #[inline(always)]
            fn pick_scaled<S: Lanes, const PLAIN: bool>(
                s: S,
                table: S::Floats,
                factors: [f32; 2],
                codes: S::Bytes,
                out: &mut [[u8; 2]; 32],
            ) {
                let [first, second] = [s.splat(factors[0]), s.splat(factors[1])];
                let tables =
                    Self::tables::<S, PLAIN>(s, [s.mul(table, first), s.mul(table, second)]);
                Self::pick(s, tables, [0, 1], codes, out);
            }

            #[inline(always)]
            fn pick_nibbles<S: Lanes>(
                s: S,
                tables: S::Cells,
                which: usize,
                codes: &[u8; 16],
                out: &mut [[u8; 2]; 32],
            ) {
                s.pick_nibbles_16(tables, which, codes, out);
            }
        }
    };
}

half!(
    F16,
    half::f16,
    put_f16,
    put_plain_f16,
    cells_f16,
    cells_plain_f16
);
half!(
    Bf16,
    half::bf16,
    put_bf16,
    put_plain_bf16,
    cells_bf16,
    cells_plain_bf16
);
