//! Q4_0: 32 codes of 4 bits around 8, one scale. `d (f16) | qs[16]`; low nibbles first.

use crate::{Element, Lanes, batch, kernel};

kernel!(q4_0);

/// What the codes stand for.
static VALUES: [f32; 16] = [
    -8.0, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0,
];

#[inline(always)]
fn q4_0<S: Lanes, O: Element>(s: S, blocks: &[u8], out: &mut [u8]) {
    chosen::<S, O>(s, &VALUES, blocks, out);
}

/// Blocks of one scale and 32 codes, each of which chooses one of sixteen values.
#[inline(always)]
pub(super) fn chosen<S: Lanes, O: Element>(
    s: S,
    values: &[f32; 16],
    blocks: &[u8],
    out: &mut [u8],
) {
    let values = s.floats(values);
    let mut pieces = batch::Pieces::<O, 18, 32>::new(blocks, out);
    while let Some((blocks, out)) = pieces.more() {
        let d = batch::scales(s, blocks, 0);
        let (finite, d) = (batch::finite(d.as_flattened()), batch::in_memory(&d));
        for ((blocks, d), out) in blocks.iter().zip(d).zip(out) {
            if O::PARTICULAR && !finite {
                batch::nibbles::<S, O, false, 18>(s, blocks, 2, values, d, None, out);
            } else {
                batch::nibbles::<S, O, true, 18>(s, blocks, 2, values, d, None, out);
            }
        }
    }
}
