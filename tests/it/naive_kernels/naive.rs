//! The oracle of the kernels: every ggml block type, element by element.
//!
//! Written from gguf-py's `quants.py` and the format notes (Q8_1, Q8_K, Q1_0 and Q2_0 from `ggml-common.h`), without reference
//! to the kernels. Slow on purpose: each function computes element `i` of a block from the stored bits alone.

#![allow(unreachable_pub)]

mod grids;

use std::sync::LazyLock;

use half::f16;

/// A block type: its name, the function from a block and `i` to the value of element `i`, and the location of its scales.
pub type BlockTypeOracle = (&'static str, fn(&[u8], usize) -> f32, ScaleFields);

/// The location of a block's scales, which the test overwrites with special values.
#[derive(Clone, Copy, Debug)]
pub enum ScaleFields {
    /// F16 at these offsets.
    F16(&'static [usize]),
    /// One F32 at this offset.
    F32(usize),
    /// This many bytes at the start of the block, each an 8-bit scale.
    Bytes(usize),
    /// An F16 in four nibbles: the highest four bits of each of four words from this offset on.
    Nibbles(usize),
}

/// All block types.
pub static TYPES: &[BlockTypeOracle] = &[
    ("Q4_0", q4_0, ScaleFields::F16(&[0])),
    ("Q4_1", q4_1, ScaleFields::F16(&[0, 2])),
    ("Q5_0", q5_0, ScaleFields::F16(&[0])),
    ("Q5_1", q5_1, ScaleFields::F16(&[0, 2])),
    ("Q8_0", q8_0, ScaleFields::F16(&[0])),
    ("Q8_1", q8_1, ScaleFields::F16(&[0, 2])),
    ("Q2_K", q2_k, ScaleFields::F16(&[80, 82])),
    ("Q3_K", q3_k, ScaleFields::F16(&[108])),
    ("Q4_K", q4_k, ScaleFields::F16(&[0, 2])),
    ("Q5_K", q5_k, ScaleFields::F16(&[0, 2])),
    ("Q6_K", q6_k, ScaleFields::F16(&[208])),
    ("Q8_K", q8_k, ScaleFields::F32(0)),
    ("IQ2_XXS", iq2_xxs, ScaleFields::F16(&[0])),
    ("IQ2_XS", iq2_xs, ScaleFields::F16(&[0])),
    ("IQ3_XXS", iq3_xxs, ScaleFields::F16(&[0])),
    ("IQ1_S", iq1_s, ScaleFields::F16(&[0])),
    ("IQ4_NL", iq4_nl, ScaleFields::F16(&[0])),
    ("IQ3_S", iq3_s, ScaleFields::F16(&[0])),
    ("IQ2_S", iq2_s, ScaleFields::F16(&[0])),
    ("IQ4_XS", iq4_xs, ScaleFields::F16(&[0])),
    ("IQ1_M", iq1_m, ScaleFields::Nibbles(48)),
    ("TQ1_0", tq1_0, ScaleFields::F16(&[52])),
    ("TQ2_0", tq2_0, ScaleFields::F16(&[64])),
    ("MXFP4", mxfp4, ScaleFields::Bytes(1)),
    ("MXFP4_OLLAMA", mxfp4_ollama, ScaleFields::Bytes(1)),
    ("NVFP4", nvfp4, ScaleFields::Bytes(4)),
    ("Q1_0", q1_0, ScaleFields::F16(&[0])),
    ("Q2_0", q2_0, ScaleFields::F16(&[0])),
];

fn f16_at(b: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([b[at], b[at + 1]]).to_f32()
}

fn u16_at(b: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([b[at], b[at + 1]]))
}

fn u32_at(b: &[u8], at: usize) -> usize {
    u16_at(b, at) | u16_at(b, at + 2) << 16
}

/// `n` bits of byte `at`, from bit `shift` on.
fn bits(b: &[u8], at: usize, shift: usize, n: usize) -> usize {
    usize::from(b[at]) >> shift & ((1 << n) - 1)
}

/// Converts a small integer, exactly.
fn float(n: usize) -> f32 {
    f32::from(u16::try_from(n).unwrap())
}

/// `code - offset`.
fn difference(code: usize, offset: usize) -> f32 {
    float(code) - float(offset)
}

fn i8_at(b: &[u8], at: usize) -> f32 {
    f32::from(b[at].cast_signed())
}

/// Code `i` of 32 codes of four bits in 16 bytes: the low nibbles first, then the high ones.
fn nibble(b: &[u8], at: usize, i: usize) -> usize {
    bits(b, at + i % 16, i / 16 * 4, 4)
}

/// Code `i` of two bits: each 32 bytes hold 128 codes, the lowest bits of all bytes first.
fn two_bits(b: &[u8], at: usize, i: usize) -> usize {
    bits(b, at + i / 128 * 32 + i % 32, i % 128 / 32 * 2, 2)
}

fn q4_0(b: &[u8], i: usize) -> f32 {
    f16_at(b, 0) * difference(nibble(b, 2, i), 8)
}

fn q4_1(b: &[u8], i: usize) -> f32 {
    f16_at(b, 0) * float(nibble(b, 4, i)) + f16_at(b, 2)
}

fn q5_0(b: &[u8], i: usize) -> f32 {
    f16_at(b, 0) * difference(nibble(b, 6, i) | (u32_at(b, 2) >> i & 1) << 4, 16)
}

fn q5_1(b: &[u8], i: usize) -> f32 {
    f16_at(b, 0) * float(nibble(b, 8, i) | (u32_at(b, 4) >> i & 1) << 4) + f16_at(b, 2)
}

fn q8_0(b: &[u8], i: usize) -> f32 {
    i8_at(b, 2 + i) * f16_at(b, 0)
}

fn q8_1(b: &[u8], i: usize) -> f32 {
    i8_at(b, 4 + i) * f16_at(b, 0)
}

fn q2_k(b: &[u8], i: usize) -> f32 {
    let scale = f16_at(b, 80) * float(bits(b, i / 16, 0, 4));
    let min = f16_at(b, 82) * float(bits(b, i / 16, 4, 4));
    scale * float(two_bits(b, 16, i)) - min
}

fn q3_k(b: &[u8], i: usize) -> f32 {
    let group = i / 16;
    let scale =
        bits(b, 96 + group % 8, group / 8 * 4, 4) | bits(b, 104 + group % 4, group / 4 * 2, 2) << 4;
    // 4 is subtracted where the high bit is clear
    let offset = if bits(b, i % 32, i / 32, 1) == 1 {
        0
    } else {
        4
    };
    f16_at(b, 108) * difference(scale, 32) * difference(two_bits(b, 32, i), offset)
}

/// Scale and minimum of the group of element `i`: six bits each; in the last four groups they are split over two bytes.
fn scale_min(b: &[u8], i: usize) -> (f32, f32) {
    let (s, j) = (4, i / 32);
    let (scale, min) = match j {
        0..4 => (bits(b, s + j, 0, 6), bits(b, s + 4 + j, 0, 6)),
        _ => (
            bits(b, s + 4 + j, 0, 4) | bits(b, s + j - 4, 6, 2) << 4,
            bits(b, s + 4 + j, 4, 4) | bits(b, s + j, 6, 2) << 4,
        ),
    };
    (f16_at(b, 0) * float(scale), f16_at(b, 2) * float(min))
}

fn q4_k(b: &[u8], i: usize) -> f32 {
    let (scale, min) = scale_min(b, i);
    scale * float(bits(b, 16 + i / 64 * 32 + i % 32, i % 64 / 32 * 4, 4)) - min
}

fn q5_k(b: &[u8], i: usize) -> f32 {
    let (scale, min) = scale_min(b, i);
    let code = bits(b, 48 + i / 64 * 32 + i % 32, i % 64 / 32 * 4, 4)
        | bits(b, 16 + i % 32, i / 32, 1) << 4;
    scale * float(code) - min
}

fn q6_k(b: &[u8], i: usize) -> f32 {
    let low = bits(b, i / 128 * 64 + i % 64, i % 128 / 64 * 4, 4);
    f16_at(b, 208) * i8_at(b, 192 + i / 16) * difference(low | two_bits(b, 128, i) << 4, 32)
}

fn q8_k(b: &[u8], i: usize) -> f32 {
    f32::from_le_bytes(b[..4].try_into().unwrap()) * i8_at(b, 4 + i)
}

fn tq1_0(b: &[u8], i: usize) -> f32 {
    // five base-3 digits per byte, four in the last four bytes
    let (at, digit) = match i {
        0..160 => (i % 32, i / 32),
        160..240 => (32 + i % 16, (i - 160) / 16),
        _ => (48 + i % 4, (i - 240) / 4),
    };
    let shifted = b[at].wrapping_mul([1, 3, 9, 27, 81][digit]);
    f16_at(b, 52) * difference((usize::from(shifted) * 3) >> 8, 1)
}

fn tq2_0(b: &[u8], i: usize) -> f32 {
    f16_at(b, 64) * difference(two_bits(b, 0, i), 1)
}

/// Twice the values of FP4.
static E2M1: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

fn mxfp4(b: &[u8], i: usize) -> f32 {
    // 2^(x - 128), exactly: half of E8M0, since the table is doubled
    let scale = f32::from_bits(if b[0] < 2 {
        0x0020_0000 << b[0]
    } else {
        u32::from(b[0] - 1) << 23
    });
    scale * f32::from(E2M1[nibble(b, 1, i)])
}

/// Ollama's type 4: ggml's MXFP4, after its rearrangement of neighbours into the halves of a block.
fn mxfp4_ollama(b: &[u8], i: usize) -> f32 {
    let (mut rearranged, code) = ([0u8; 17], |i: usize| b[1 + i / 2] >> (4 * (i % 2)) & 15);
    rearranged[0] = b[0];
    for half in 0..16 {
        rearranged[1 + half] = code(half) | code(half + 16) << 4;
    }
    mxfp4(&rearranged, i)
}

fn nvfp4(b: &[u8], i: usize) -> f32 {
    let group = i / 16;
    let (exponent, mantissa) = (bits(b, group, 3, 4), float(bits(b, group, 0, 3)));
    let scale = match (b[group], exponent) {
        (0 | 0x7f, _) => 0.0,
        (_, 0) => mantissa / 512.0,
        _ => (1.0 + mantissa / 8.0) * (float(exponent) - 7.0).exp2(),
    };
    scale * 0.5 * f32::from(E2M1[bits(b, 4 + group * 8 + i % 8, i % 16 / 8 * 4, 4)])
}

fn q1_0(b: &[u8], i: usize) -> f32 {
    let d = f16_at(b, 0);
    if bits(b, 2 + i / 8, i % 8, 1) == 1 {
        d
    } else {
        -d
    }
}

fn q2_0(b: &[u8], i: usize) -> f32 {
    difference(bits(b, 2 + i / 4, i % 4 * 2, 2), 1) * f16_at(b, 0)
}

type Codebook = LazyLock<Vec<f32>>;
static IQ2_XXS: Codebook = LazyLock::new(|| grids::IQ2_XXS.expand());
static IQ2_XS: Codebook = LazyLock::new(|| grids::IQ2_XS.expand());
static IQ2_S: Codebook = LazyLock::new(|| grids::IQ2_S.expand());
static IQ3_XXS: Codebook = LazyLock::new(|| grids::IQ3_XXS.expand());
static IQ3_S: Codebook = LazyLock::new(|| grids::IQ3_S.expand());
static IQ1_S: Codebook = LazyLock::new(|| grids::IQ1_S.expand());

/// The sign of element `i` of eight, from seven stored signs: the last sign makes the number of negative elements even.
fn even_sign(seven: usize, i: usize) -> f32 {
    let all = seven | (seven.count_ones() as usize & 1) << 7;
    if all >> (i % 8) & 1 == 1 { -1.0 } else { 1.0 }
}

/// The sign of element `i`, from one stored bit per element.
fn sign(b: &[u8], at: usize, i: usize) -> f32 {
    if bits(b, at + i / 8, i % 8, 1) == 1 {
        -1.0
    } else {
        1.0
    }
}

fn iq2_xxs(b: &[u8], i: usize) -> f32 {
    let (at, eight) = (2 + i / 32 * 8, i % 32 / 8);
    let packed = u32_at(b, at + 4);
    let scale = f16_at(b, 0) * (0.5 + float(packed >> 28)) * 0.25;
    scale
        * IQ2_XXS[bits(b, at + eight, 0, 8) * 8 + i % 8]
        * even_sign(packed >> (7 * eight) & 127, i)
}

fn iq2_xs(b: &[u8], i: usize) -> f32 {
    let code = u16_at(b, 2 + i / 8 * 2);
    let scale = f16_at(b, 0) * (0.5 + float(bits(b, 66 + i / 32, i / 16 % 2 * 4, 4))) * 0.25;
    scale * IQ2_XS[(code & 511) * 8 + i % 8] * even_sign(code >> 9, i)
}

fn iq2_s(b: &[u8], i: usize) -> f32 {
    let eight = i / 8;
    let code = bits(b, 2 + eight, 0, 8) | bits(b, 66 + eight / 4, eight % 4 * 2, 2) << 8;
    let scale = f16_at(b, 0) * (0.5 + float(bits(b, 74 + i / 32, i / 16 % 2 * 4, 4))) * 0.25;
    scale * IQ2_S[code * 8 + i % 8] * sign(b, 34, i)
}

fn iq3_xxs(b: &[u8], i: usize) -> f32 {
    let packed = u32_at(b, 66 + i / 32 * 4);
    let scale = f16_at(b, 0) * (0.5 + float(packed >> 28)) * 0.5;
    scale
        * IQ3_XXS[bits(b, 2 + i / 4, 0, 8) * 4 + i % 4]
        * even_sign(packed >> (7 * (i % 32 / 8)) & 127, i)
}

fn iq3_s(b: &[u8], i: usize) -> f32 {
    let four = i / 4;
    let code = bits(b, 2 + four, 0, 8) | bits(b, 66 + four / 8, four % 8, 1) << 8;
    let scale = f16_at(b, 0) * float(1 + 2 * bits(b, 106 + i / 64, i / 32 % 2 * 4, 4));
    scale * IQ3_S[code * 4 + i % 4] * sign(b, 74, i)
}

fn iq1_s(b: &[u8], i: usize) -> f32 {
    let high = u16_at(b, 34 + i / 32 * 2);
    let scale = f16_at(b, 0) * float(2 * (high >> 12 & 7) + 1);
    let delta = if high & 0x8000 == 0 { 0.125 } else { -0.125 };
    let code = bits(b, 2 + i / 8, 0, 8) | (high >> (i / 8 % 4 * 3) & 7) << 8;
    scale * (IQ1_S[code * 8 + i % 8] + delta)
}

fn iq1_m(b: &[u8], i: usize) -> f32 {
    let words: [usize; 4] = std::array::from_fn(|j| u16_at(b, 48 + 2 * j));
    let d: usize = (0..4).map(|j| (words[j] >> 12) << (4 * j)).sum();
    let scale = f16::from_bits(u16::try_from(d).unwrap()).to_f32()
        * float(2 * (words[i / 64] >> (i / 16 % 4 * 3) & 7) + 1);
    let high = bits(b, 32 + i / 16, i / 8 % 2 * 4, 4);
    let delta = if high & 8 == 0 { 0.125 } else { -0.125 };
    scale * (IQ1_S[(bits(b, i / 8, 0, 8) | (high & 7) << 8) * 8 + i % 8] + delta)
}

static IQ4: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];

fn iq4_nl(b: &[u8], i: usize) -> f32 {
    f16_at(b, 0) * f32::from(IQ4[nibble(b, 2, i)])
}

fn iq4_xs(b: &[u8], i: usize) -> f32 {
    let group = i / 32;
    let scale = bits(b, 4 + group / 2, group % 2 * 4, 4) | (u16_at(b, 2) >> (2 * group) & 3) << 4;
    f16_at(b, 0) * difference(scale, 32) * f32::from(IQ4[nibble(b, 8 + group * 16, i % 32)])
}
