//! Q2_0 (`block_q2_0`): 64 codes of 2 bits, one scale, 18 bytes.
//!
//! | offset | field | content |
//! |---|---|---|
//! | 0 | `d` | F16 scale |
//! | 2 | `qs[16]` | codes, lowest bits first |
//!
//! `x = d * (q - 1)`.

/// The values of codes in bits 0 and 1, and of codes in bits 2 and 3 (see [`Simd::unpack_bit_pairs`](crate::Simd::unpack_bit_pairs)), the
/// other bits being zero. Other indices do not occur.
static VALUES: [f32; 16] = [
    -1.0, 0.0, 1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0,
];

/// Defines a kernel for blocks of `$len` elements that are an F16 scale and 16 bytes of codes, as Q1_0 and Q2_0 are:
/// `x = d * VALUES[code]`. `$codes` makes a byte of each of the 32 codes in `$bytes`.
///
/// A macro, since a function would need the expression as a closure (see [`crate::isa::kernel`]).
macro_rules! low_bit_kernel {
    ($len:literal, $simd:ident, $bytes:ident => $codes:expr) => {
        $crate::isa::kernel!(decode);

        #[inline(always)]
        fn decode<S: $crate::Simd, O: $crate::OutputElement>(
            $simd: S,
            blocks: &[u8],
            out: &mut [u8],
        ) {
            let values = $simd.load_f32(&VALUES);
            let mut batches = $crate::batch::Batches::<O, 18, $len>::new(blocks, out);
            while let Some((blocks, out)) = batches.next_batch() {
                // a batch of 64 blocks as for the small types, though blocks have more elements: the scale's latency is
                // the same
                let d = $crate::batch::widen_scales($simd, blocks, 0);
                let d = $crate::batch::force_memory_operand(&d).as_flattened();
                for ((block, d), out) in blocks
                    .as_flattened()
                    .iter()
                    .zip(d)
                    .zip(out.as_flattened_mut())
                {
                    // one pair of equal tables per block, so there is no separate path for finite scales
                    let tables =
                        O::tables::<S, false>($simd, [$simd.mul(values, $simd.splat(*d)); 2]);
                    let (parts, _) = $crate::field::field::<16>(block, 2).as_chunks();
                    for ($bytes, out) in parts.iter().zip(out.as_chunks_mut::<32>().0) {
                        O::lookup($simd, tables, [0; 2], $codes, out);
                    }
                }
            }
        }
    };
}
pub(super) use low_bit_kernel;

low_bit_kernel!(64, simd, eight => simd.unpack_bit_pairs(eight));
