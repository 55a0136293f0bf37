//! Encoder of TQ1_0 (`quantize_row_tq1_0_ref`); the layout is in `block/tq1_0.rs`.

use super::BlockEncoder;
use super::lanes::{EncodedColumns, Lanes, greatest, inverse_or_zero};
use super::tq2_0::trit;
use crate::simd::Simd;

pub(super) struct Tq1_0;

impl BlockEncoder for Tq1_0 {
    const LEN: usize = 256;
    const BYTES: usize = 54;

    #[inline(always)]
    fn encode<S: Simd>(simd: S, blocks: &Lanes<'_, S>, out: &mut EncodedColumns) {
        let [_, d] = greatest(simd, blocks.x);
        out.put_f16(simd, 52, d);
        let inverse = inverse_or_zero(simd, d);
        // (first element, bytes, distance of a byte's elements, their number)
        for (first, at, stride, count) in [(0, 0, 32, 5), (160, 32, 16, 5), (240, 48, 4, 4)] {
            for i in 0..stride {
                let mut packed = [0u8; 16];
                for n in 0..count {
                    let trit =
                        simd.low_bytes(trit(simd, blocks.x[first + i + n * stride], inverse));
                    for (packed, trit) in packed.iter_mut().zip(trit) {
                        *packed = packed.wrapping_mul(3).wrapping_add(trit);
                    }
                }
                for packed in &mut packed {
                    // four trits count as five of which the last is zero
                    let five = if count == 4 {
                        packed.wrapping_mul(3)
                    } else {
                        *packed
                    };
                    *packed = (u16::from(five).wrapping_mul(256).wrapping_add(242) / 243) as u8;
                }
                out.bytes[at + i] = packed;
            }
        }
    }
}
