//! Encoder of Q5_K (`quantize_row_q5_K_ref`, `quantize_row_q5_K_impl`); the layout is in `block/q5_k.rs`.

use super::affine::AffineTrials;
use super::lanes::{EncodedColumns, Lanes};
use super::{BlockEncoder, k_affine};
use crate::simd::Simd;

pub(super) struct Q5K;

impl BlockEncoder for Q5K {
    const LEN: usize = 256;
    const BYTES: usize = 176;

    #[inline(always)]
    fn encode<S: Simd>(simd: S, blocks: &Lanes<'_, S>, out: &mut EncodedColumns) {
        let unweighted = AffineTrials {
            max: 31,
            first: -0.5,
            step: 0.1,
            last: 15,
            by_magnitude: false,
        };
        let codes = k_affine::encode(simd, blocks, unweighted, out);
        for (pair, codes) in codes.as_chunks::<64>().0.iter().enumerate() {
            for i in 0..32 {
                for lane in 0..16 {
                    let [low, high] = [codes[i][lane], codes[i + 32][lane]];
                    out.bytes[16 + i][lane] |= (low >> 4 | high >> 4 << 1) << (2 * pair);
                    out.bytes[48 + 32 * pair + i][lane] = low & 15 | high << 4;
                }
            }
        }
    }
}
