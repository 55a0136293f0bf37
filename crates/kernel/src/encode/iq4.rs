//! Encoders of IQ4_NL and IQ4_XS (`quantize_row_iq4_nl_impl`), whose codes are entries of a codebook; the layouts are in
//! `block/iq4_nl.rs` and `block/iq4_xs.rs`.

use super::BlockEncoder;
use super::lanes::{
    EPS, EncodedColumns, Lanes, greatest, inverse_or_zero, join, nearest_within, squares,
    sum_squares, weigh,
};
use crate::codebook::IQ4;
use crate::simd::Simd;

pub(super) struct Iq4Nl;

impl BlockEncoder for Iq4Nl {
    const LEN: usize = 32;
    const BYTES: usize = 18;

    #[inline(always)]
    fn encode<S: Simd>(simd: S, blocks: &Lanes<'_, S>, out: &mut EncodedColumns) {
        let square = simd.mul(sum_squares(simd, blocks.x), simd.splat(2.0 / 32.0));
        let x = blocks.x.first_chunk().expect("blocks have 32 elements");
        let importance = match blocks.importance {
            Some(importance) => importance.first_chunk(),
            None => None,
        };
        let d = scale(simd, x, importance, square);
        out.put_f16(simd, 0, d);
        put_codes(simd, x, inverse_or_zero(simd, d), 2, out);
    }
}

pub(super) struct Iq4Xs;

impl BlockEncoder for Iq4Xs {
    const LEN: usize = 256;
    const BYTES: usize = 136;

    #[inline(always)]
    fn encode<S: Simd>(simd: S, blocks: &Lanes<'_, S>, out: &mut EncodedColumns) {
        let square = simd.mul(sum_squares(simd, blocks.x), simd.splat(2.0 / 256.0));
        let (groups, _) = blocks.x.as_chunks::<32>();
        let mut scales = [simd.splat(0.0); 8];
        for (g, (x, found)) in groups.iter().zip(&mut scales).enumerate() {
            let importance = blocks.importance.map(|all| &all.as_chunks().0[g]);
            *found = scale(simd, x, importance, square);
        }
        let [max, _] = greatest(simd, &scales);
        let d = simd.div(simd.sub(simd.splat(-0.0), max), simd.splat(32.0));
        out.put_f16(simd, 0, d);
        let inverse = inverse_or_zero(simd, d);
        for (g, x) in groups.iter().enumerate() {
            let code = nearest_within(simd, simd.mul(inverse, scales[g]), -32, 31);
            // by the scale in full, not as it is stored
            let scale = simd.mul(d, simd.ints_to_f32(code));
            put_codes(simd, x, inverse_or_zero(simd, scale), 8 + 16 * g, out);
            let stored = simd.low_bytes(simd.add_ints(code, simd.splat_int(32)));
            for (lane, stored) in stored.into_iter().enumerate() {
                out.bytes[2 + g / 4][lane] |= stored >> 4 << (g % 4 * 2);
                out.bytes[4 + g / 2][lane] |= (stored & 15) << (g % 2 * 4);
            }
        }
    }
}

/// Searches the scale of 32 elements among 16.
#[inline(always)]
fn scale<S: Simd>(
    simd: S,
    x: &[S::Floats; 32],
    importance: Option<&[S::Floats; 32]>,
    square: S::Floats,
) -> S::Floats {
    let zero = simd.splat(0.0);
    let weights = match importance {
        Some(importance) => weigh(simd, x, importance, square),
        None => squares(simd, x),
    };
    let [max, magnitude] = greatest(simd, x);
    let first = simd.div(
        simd.splat(1.0),
        simd.div(simd.sub(simd.splat(-0.0), max), simd.splat(IQ4[0])),
    );
    let (mut d, mut best) = (zero, zero);
    for trial in -8..=7 {
        let inverse = if trial == -8 {
            first
        } else {
            simd.div(simd.splat(trial as f32 + IQ4[0]), max)
        };
        let (mut with_x, mut with_value) = (zero, zero);
        for i in 0..32 {
            let (_, value) = nearest_entry(simd, simd.mul(inverse, x[i]));
            let product = simd.mul(weights[i], value);
            with_x = simd.add(with_x, simd.mul(product, x[i]));
            with_value = simd.add(with_value, simd.mul(product, value));
        }
        let ratio = simd.div(with_x, with_value);
        let has_any = simd.lt(zero, with_value);
        if trial == -8 {
            d = simd.select(has_any, ratio, zero);
            best = simd.mul(d, with_x);
        } else {
            let better = simd.lt(simd.mul(best, with_value), simd.mul(with_x, with_x));
            let better = simd.both(has_any, better);
            d = simd.select(better, ratio, d);
            best = simd.select(better, simd.mul(ratio, with_x), best);
        }
    }
    simd.select(simd.lt(magnitude, simd.splat(EPS)), zero, d)
}

/// Writes 32 codes, low nibbles first.
#[inline(always)]
fn put_codes<S: Simd>(
    simd: S,
    x: &[S::Floats; 32],
    inverse: S::Floats,
    at: usize,
    out: &mut EncodedColumns,
) {
    for i in 0..16 {
        let (low, _) = nearest_entry(simd, simd.mul(inverse, x[i]));
        let (high, _) = nearest_entry(simd, simd.mul(inverse, x[i + 16]));
        out.put(simd, at + i, join(simd, low, high, 4));
    }
}

/// The code of the entry nearest to `x`, the upper of equals, and its value.
///
/// The reference compares the distances to the two entries around `x`. Both differences are exact near the middle of two
/// entries, so that the comparison is one of `x` with the middle. Codes and values are summed over the middles that `x` reaches.
/// NaN, which reaches none, has the last code there.
#[inline(always)]
fn nearest_entry<S: Simd>(simd: S, x: S::Floats) -> (S::Ints, S::Floats) {
    let (mut code, mut value) = (simd.splat_int(0), simd.splat(IQ4[0]));
    for (i, pair) in (1..).zip(IQ4.windows(2)) {
        let reached = simd.le(simd.splat((pair[0] + pair[1]) / 2.0), x);
        code = simd.select_ints(reached, simd.splat_int(i), code);
        value = simd.select(reached, simd.splat(pair[1]), value);
    }
    let is_number = simd.le(x, x);
    (
        simd.select_ints(is_number, code, simd.splat_int(15)),
        simd.select(is_number, value, simd.splat(IQ4[15])),
    )
}
