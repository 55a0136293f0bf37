//! Every operation of every token gives the baseline's bits, on random and special values.

use bytemuck::must_cast;

use super::*;
use crate::dtype::Dtype;
use crate::{OutputElement, kernel};

kernel!(operations);

/// Input bytes of one call: 32 F32, four vectors of bytes, 16 F16, one word of bits.
const INPUT: usize = 128 + 128 + 32 + 4;
/// At least the bytes of all results.
const RESULTS: usize = 8192;

/// Concatenated results, as a cursor over the output.
struct Results<'a>(&'a mut [u8]);

impl Results<'_> {
    fn push(&mut self, bytes: &[u8]) {
        let (now, later) = std::mem::take(&mut self.0).split_at_mut(bytes.len());
        now.copy_from_slice(bytes);
        self.0 = later;
    }

    fn floats<S: Simd>(&mut self, simd: S, x: S::Floats) {
        self.push(bytemuck::bytes_of(&simd.to_f32_array(x)));
    }

    fn bytes<S: Simd>(&mut self, simd: S, x: S::Bytes) {
        self.push(&simd.to_u8_array(x));
    }

    /// Appends 32 elements that `write` stores, padded to the widest element type.
    fn elements<O: OutputElement>(&mut self, write: impl FnOnce(&mut [O::Stored; 32])) {
        let mut padded = [0; 128];
        write(
            O::as_stored(&mut padded)
                .first_chunk_mut()
                .expect("as long as 32 of the widest elements"),
        );
        self.push(&padded);
    }
}

/// Applies every operation to the input and concatenates the results.
#[inline(always)]
fn operations<S: Simd, O: OutputElement>(simd: S, input: &[u8], out: &mut [u8]) {
    let mut out = Results(out);
    let part = |at: usize| -> &[u8; 32] { input[at..].first_chunk().expect("a whole input") };
    let raw: [[f32; 16]; 2] = must_cast([0, 32, 64, 96].map(|at| *part(at)));
    let rows = [128, 160, 192, 224].map(|at| simd.load_u8(part(at)));
    let halves: [[u8; 2]; 16] = must_cast(*part(256));
    let bits = u32::from_le_bytes(*input[288..].first_chunk().expect("a whole input"));
    let ([low, high], _) = part(128).as_chunks::<16>() else {
        unreachable!("32 bytes are two halves")
    };

    let any = raw.map(|x| simd.load_f32(&x));
    let without_nan_or_subnormal = |x: f32| {
        if x.is_normal() || x.is_infinite() {
            x
        } else {
            0.0
        }
    };
    let normal = raw.map(|x| simd.load_f32(&x.map(without_nan_or_subnormal)));
    let [a, b] = raw.map(|x| simd.load_f32(&x.map(|x| if x.is_nan() { 1.0 } else { x })));
    out.floats(simd, simd.splat(raw[0][0]));
    out.floats(simd, any[1]);
    out.floats(simd, simd.add(a, b));
    out.floats(simd, simd.sub(a, b));
    out.floats(simd, simd.mul(a, b));
    simd.repeat_each_4(any[0])
        .into_iter()
        .for_each(|x| out.floats(simd, x));
    out.floats(simd, simd.widen_f16(&halves));
    let window = |at: usize| -> &[u8; 64] { input[at..].first_chunk().expect("a whole input") };
    for stride in [1, 9, 10] {
        out.floats(
            simd,
            simd.widen_f16_strided([window(0), window(130), window(66), window(192)], stride),
        );
    }

    let [x, y, ..] = rows;
    out.bytes(simd, x);
    out.bytes(simd, simd.concat_u8x16(high, low));
    out.bytes(simd, simd.load_u64x4(must_cast(*part(160))));
    out.bytes(simd, simd.unpack_nibbles(low));
    simd.unpack_nibbles_interleaved(x)
        .into_iter()
        .for_each(|x| out.bytes(simd, x));
    simd.transpose_u32(rows)
        .into_iter()
        .for_each(|x| out.bytes(simd, x));
    out.bytes(simd, simd.transpose_u8(x));
    out.bytes(simd, simd.unpack_nibbles_per_8(high));
    out.bytes(
        simd,
        simd.unpack_bit_pairs(high.first_chunk().expect("sixteen bytes")),
    );
    out.bytes(simd, simd.splat_u8(low[0]));
    out.bytes(simd, simd.and(x, y));
    out.bytes(simd, simd.or(x, y));
    out.bytes(simd, simd.add_u8(x, y));
    out.bytes(simd, simd.sub_u8(x, y));
    for by in 0..16 {
        out.bytes(simd, simd.shr_u16(x, by));
        out.bytes(simd, simd.shl_u16(x, by));
    }
    out.bytes(simd, simd.select_or_zero(bits, x));
    out.bytes(simd, simd.negate_where(bits, x));
    for limit in [0, 85, 127, 128, 170, 254, low[1].min(254)] {
        out.bytes(simd, simd.gt_u8(x, limit));
    }
    simd.u8_to_f32(x)
        .into_iter()
        .chain(simd.i8_to_f32(x))
        .for_each(|x| out.floats(simd, x));

    out.elements::<O>(|stored| O::store::<S, false>(simd, any, stored));
    out.elements::<O>(|stored| O::store::<S, true>(simd, normal, stored));
    for tables in [
        O::tables::<S, false>(simd, any),
        O::tables::<S, true>(simd, normal),
    ] {
        for which in [[0, 1], [1, 0], [1, 1]] {
            out.elements::<O>(|stored| O::lookup(simd, tables, which, x, stored));
        }
        out.elements::<O>(|stored| O::lookup_nibbles(simd, tables, 0, high, stored));
        out.elements::<O>(|stored| O::lookup_nibbles(simd, tables, 1, low, stored));
    }
    out.elements::<O>(|stored| {
        O::lookup_scaled::<S, false>(simd, a, [raw[1][0], raw[1][1]], x, stored)
    });
}

#[test]
fn every_token_equals_the_baseline() {
    let mut state = 1u64;
    let mut random = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    };
    // zero, NaNs, infinity, the largest finite value, the smallest normal and the smallest subnormal one
    let special = [
        0,
        0x7fc0_0000,
        0x7fff_ffff,
        0x7fc0_0001,
        0x7f80_0000,
        0x7f7f_ffff,
        0x0080_0000,
        1,
    ];
    for round in 0..4000 {
        let mut input: Vec<u8> = (0..INPUT).map(|_| random() as u8).collect();
        for element in input[..128].as_chunks_mut::<4>().0 {
            let number = match random() % 8 {
                0 => special[random() as usize % special.len()] | random() & 1 << 31,
                // values in F16's range, and some that round to zero or to infinity
                1..5 => {
                    random() & 0x8000_1fff | (100 + random() % 48) << 23 | random() & 0x007f_e000
                }
                // halfway between two F16
                5 => random() & 0x807f_e000 | (112 + random() % 32) << 23 | 0x1000,
                // halfway between two BF16
                6 => random() & 0xffff_0000 | 0x8000,
                _ => random(),
            };
            // arithmetic gives quiet NaNs only
            let quiet = if f32::from_bits(number).is_nan() {
                number | 1 << 22
            } else {
                number
            };
            *element = quiet.to_le_bytes();
        }
        for dtype in [Dtype::F32, Dtype::F16, Dtype::BF16] {
            let mut results = KERNEL.supported().map(|build| {
                let mut out = vec![0x55; RESULTS];
                build.run(dtype, &(), &[&input], &mut out).unwrap();
                (build.isa, out)
            });
            let results: Vec<_> = results.by_ref().collect();
            let (_, expected) = results.last().expect("the baseline runs everywhere");
            for (isa, found) in &results {
                let differs = found.iter().zip(expected).position(|(a, b)| a != b);
                assert_eq!(
                    differs,
                    None,
                    "{} {dtype}, round {round}: first differing byte",
                    isa.name()
                );
            }
        }
    }
}
