//! Encoder of NVFP4 (`quantize_row_nvfp4_ref`); the layout is in `block/nvfp4.rs`. The scales are for the elements as they
//! are: there is no scale of the tensor.

use super::BlockEncoder;
use super::lanes::{EncodedColumns, Lanes, greatest, join};
use super::mxfp4::{nearest_value, scaled_values};
use crate::codebook::ue4m3_halves;
use crate::simd::Simd;

pub(super) struct Nvfp4;

impl BlockEncoder for Nvfp4 {
    const LEN: usize = 64;
    const BYTES: usize = 36;

    #[inline(always)]
    fn encode<S: Simd>(simd: S, blocks: &Lanes<'_, S>, out: &mut EncodedColumns) {
        for (g, x) in blocks.x.as_chunks::<16>().0.iter().enumerate() {
            let [_, magnitude] = greatest(simd, x);
            let magnitude = simd.to_f32_array(simd.div(magnitude, simd.splat(6.0)));
            for (code, x) in out.bytes[g].iter_mut().zip(magnitude) {
                *code = ue4m3(x);
            }
            let words: [[u8; 4]; 4] = bytemuck::must_cast(out.bytes[g]);
            let mut scales = [0; 4];
            for (scale, word) in scales.iter_mut().zip(words) {
                *scale = u32::from_le_bytes(word);
            }
            let values = scaled_values(simd, simd.load_f32(&ue4m3_halves(simd, scales)));
            for i in 0..8 {
                let low = nearest_value(simd, &values, x[i]);
                let high = nearest_value(simd, &values, x[i + 8]);
                out.put(simd, 4 + 8 * g + i, join(simd, low, high, 4));
            }
        }
    }
}

/// Rounds to unsigned E4M3 as the reference does: half up, from 256 on 448, and a subnormal number
/// stays one.
#[inline(always)]
fn ue4m3(x: f32) -> u8 {
    if x <= 0.0 {
        return 0;
    }
    let bits = x.min(448.0).to_bits();
    let exponent = (bits >> 23).cast_signed() - 127 + 7;
    if exponent <= 0 {
        return ((x * 512.0 + 0.5) as u8).min(7);
    }
    // the next bit of the mantissa alone decides, and carries into the exponent
    let rounded = (bits >> 20 & 7) + (bits >> 19 & 1);
    let code = (exponent << 3).cast_unsigned().wrapping_add(rounded);
    // from 256 on the reference gives the greatest code
    if code >= 15 << 3 { 0x7e } else { code as u8 }
}
