//! Operations, token by token, against those of the baseline.

use bytemuck::must_cast;

use super::*;
use crate::dtype::Dtype;
use crate::{Element, kernel};

kernel!(operations);

/// Bytes that one call takes: numbers, four rows of bytes, halves, a word.
const INPUT: usize = 128 + 128 + 32 + 4;
/// Room for all results.
const RESULTS: usize = 8192;

/// Results, one behind another.
struct Results<'a>(&'a mut [u8]);

impl Results<'_> {
    fn push(&mut self, bytes: &[u8]) {
        let (now, later) = std::mem::take(&mut self.0).split_at_mut(bytes.len());
        now.copy_from_slice(bytes);
        self.0 = later;
    }

    fn floats<S: Lanes>(&mut self, s: S, x: S::Floats) {
        self.push(bytemuck::bytes_of(&s.array(x)));
    }

    fn bytes<S: Lanes>(&mut self, s: S, x: S::Bytes) {
        self.push(&s.byte_array(x));
    }

    /// What is written by an element.
    fn cells<O: Element>(&mut self, write: impl FnOnce(&mut [O::Cell; 32])) {
        let mut room = [0; 128];
        write(
            O::cells(&mut room)
                .first_chunk_mut()
                .expect("room for the widest"),
        );
        self.push(&room);
    }
}

/// Every operation, on what the input gives.
#[inline(always)]
fn operations<S: Lanes, O: Element>(s: S, input: &[u8], out: &mut [u8]) {
    let mut out = Results(out);
    let part = |at: usize| -> &[u8; 32] { input[at..].first_chunk().expect("a whole input") };
    let raw: [[f32; 16]; 2] = must_cast([0, 32, 64, 96].map(|at| *part(at)));
    let rows = [128, 160, 192, 224].map(|at| s.bytes(part(at)));
    let halves: [[u8; 2]; 16] = must_cast(*part(256));
    let bits = u32::from_le_bytes(*input[288..].first_chunk().expect("a whole input"));
    let ([low, high], _) = part(128).as_chunks::<16>() else {
        unreachable!("two sixteens")
    };

    let anything = raw.map(|x| s.floats(&x));
    let sane = |x: f32| {
        if x.is_normal() || x.is_infinite() {
            x
        } else {
            0.0
        }
    };
    let plain = raw.map(|x| s.floats(&x.map(sane)));
    let [a, b] = raw.map(|x| s.floats(&x.map(|x| if x.is_nan() { 1.0 } else { x })));
    out.floats(s, s.splat(raw[0][0]));
    out.floats(s, anything[1]);
    out.floats(s, s.add(a, b));
    out.floats(s, s.sub(a, b));
    out.floats(s, s.mul(a, b));
    s.quarters(anything[0])
        .into_iter()
        .for_each(|x| out.floats(s, x));
    out.floats(s, s.widen_f16(&halves));
    let window = |at: usize| -> &[u8; 64] { input[at..].first_chunk().expect("a whole input") };
    for apart in [1, 9, 10] {
        out.floats(
            s,
            s.widen_f16_apart([window(0), window(130), window(66), window(192)], apart),
        );
    }

    let [x, y, ..] = rows;
    out.bytes(s, x);
    out.bytes(s, s.pair(high, low));
    out.bytes(s, s.quads(must_cast(*part(160))));
    out.bytes(s, s.nibbles(low));
    s.nibble_pairs(x).into_iter().for_each(|x| out.bytes(s, x));
    s.turn_words(rows).into_iter().for_each(|x| out.bytes(s, x));
    out.bytes(s, s.turn_bytes(x));
    out.bytes(s, s.nibbles_by_eight(high));
    out.bytes(
        s,
        s.pairs_of_bits(high.first_chunk().expect("sixteen bytes")),
    );
    out.bytes(s, s.splat_byte(low[0]));
    out.bytes(s, s.and(x, y));
    out.bytes(s, s.or(x, y));
    out.bytes(s, s.add_bytes(x, y));
    out.bytes(s, s.sub_bytes(x, y));
    for by in 0..16 {
        out.bytes(s, s.shr_u16(x, by));
        out.bytes(s, s.shl_u16(x, by));
    }
    out.bytes(s, s.keep(bits, x));
    out.bytes(s, s.negate(bits, x));
    for limit in [0, 85, 127, 128, 170, 254, low[1].min(254)] {
        out.bytes(s, s.above(x, limit));
    }
    s.unsigned(x)
        .into_iter()
        .chain(s.signed(x))
        .for_each(|x| out.floats(s, x));

    out.cells::<O>(|cells| O::put::<S, false>(s, anything, cells));
    out.cells::<O>(|cells| O::put::<S, true>(s, plain, cells));
    for tables in [
        O::tables::<S, false>(s, anything),
        O::tables::<S, true>(s, plain),
    ] {
        for which in [[0, 1], [1, 0], [1, 1]] {
            out.cells::<O>(|cells| O::pick(s, tables, which, x, cells));
        }
        out.cells::<O>(|cells| O::pick_nibbles(s, tables, 0, high, cells));
        out.cells::<O>(|cells| O::pick_nibbles(s, tables, 1, low, cells));
    }
    out.cells::<O>(|cells| O::pick_scaled::<S, false>(s, a, [raw[1][0], raw[1][1]], x, cells));
}

/// All tokens give the bits of the baseline, in every operation and for numbers of every kind.
#[test]
fn every_token_does_what_the_baseline_does() {
    let mut state = 1u64;
    let mut random = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    };
    // zero, NaN, infinity, the greatest number, the least normal and subnormal ones
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
        for cell in input[..128].as_chunks_mut::<4>().0 {
            let number = match random() % 8 {
                0 => special[random() as usize % special.len()] | random() & 1 << 31,
                // what F16 holds, what it rounds to nothing or to infinity
                1..5 => {
                    random() & 0x8000_1fff | (100 + random() % 48) << 23 | random() & 0x007f_e000
                }
                // halfway between two F16
                5 => random() & 0x807f_e000 | (112 + random() % 32) << 23 | 0x1000,
                // halfway between two BF16
                6 => random() & 0xffff_0000 | 0x8000,
                _ => random(),
            };
            // arithmetic gives no NaN but quiet ones
            let quiet = if f32::from_bits(number).is_nan() {
                number | 1 << 22
            } else {
                number
            };
            *cell = quiet.to_le_bytes();
        }
        for dtype in [Dtype::F32, Dtype::F16, Dtype::BF16] {
            let mut results = KERNEL.usable().map(|build| {
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
                    "{} {dtype}, round {round}: first byte that differs",
                    isa.name()
                );
            }
        }
    }
}
