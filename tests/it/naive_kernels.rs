//! Every build of every dequantisation kernel on random blocks, against the oracle in `naive`, which was written from gguf-py's
//! `quants.py`.

mod naive;

use self::naive::{ScaleFields, TYPES};
use crate::support;
use anamnesis::{BlockFormat, Dtype, kernel};
use half::{bf16, f16};

/// Random blocks for each type.
const BLOCKS: usize = 2560;

#[test]
fn every_block_type_has_a_kernel_and_an_oracle() {
    for format in BlockFormat::all() {
        let known = TYPES.iter().any(|(name, ..)| *name == format.name);
        assert!(known && kernel::builds(format).is_ok(), "{}", format.name);
    }
}

#[test]
fn every_build_equals_the_naive_oracle_on_random_blocks() {
    for &(name, element, scales) in TYPES {
        let format = BlockFormat::from_name(name).unwrap();
        let blocks = random_blocks(format, scales);
        let each = blocks.chunks(format.block_bytes as usize);
        let expected_f32: Vec<f32> = each
            .flat_map(|b| (0..format.block_len as usize).map(move |i| element(b, i)))
            .collect();
        assert_eq!(expected_f32.len(), BLOCKS * format.block_len as usize);
        for dtype in [Dtype::F32, Dtype::F16, Dtype::BF16] {
            let expected: Vec<u8> = match dtype {
                Dtype::F32 => expected_f32.iter().flat_map(|x| x.to_le_bytes()).collect(),
                Dtype::F16 => expected_f32
                    .iter()
                    .flat_map(|&x| f16::from_f32(x).to_le_bytes())
                    .collect(),
                _ => expected_f32
                    .iter()
                    .flat_map(|&x| bf16::from_f32(x).to_le_bytes())
                    .collect(),
            };
            for isa in kernel::builds(format).unwrap() {
                let mut out = vec![0x55; expected.len()];
                kernel::dequantize_with(isa, format, &blocks, dtype, &mut out).unwrap();
                if out != expected {
                    // the payload of an F32 NaN is unspecified: compare element by element
                    support::compare_bits(&out, &expected, dtype)
                        .unwrap_or_else(|e| panic!("{name} {dtype} {isa}: {e}"));
                }
            }
        }
    }
}

/// Random blocks. In some of them the scales have special values (zero, subnormal, largest, infinity, NaN), or all bytes are
/// equal.
fn random_blocks(format: &BlockFormat, scales: ScaleFields) -> Vec<u8> {
    const SPECIAL: [u16; 12] = [
        0, 0x8000, 1, 0x8001, 0x03ff, 0x0400, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x7c01,
    ];
    let mut state = 0x9e37_79b9_7f4a_7c15u64 ^ u64::from(format.ggml_type);
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut blocks: Vec<u8> = (0..BLOCKS * format.block_bytes as usize)
        .map(|_| next().to_be_bytes()[0])
        .collect();
    for (i, block) in blocks.chunks_mut(format.block_bytes as usize).enumerate() {
        let special = SPECIAL[i % SPECIAL.len()];
        match (i % 64, scales) {
            (0, _) => block.fill(0),
            (1, _) => block.fill(0xff),
            (2, _) => block.fill(0x7f),
            (3, _) => block.fill(0x80),
            (4..16, ScaleFields::F16(offsets)) => {
                // one scale per block is special, the others stay random, so that special values meet each other and finite ones
                let at = offsets[i / 64 % offsets.len()];
                block[at..at + 2].copy_from_slice(&special.to_le_bytes());
            }
            (4..16, ScaleFields::F32(at)) => {
                let wide = [u32::from(special) << 16, 1, 0x7f7f_ffff, 0x007f_ffff][i % 4];
                block[at..at + 4].copy_from_slice(&wide.to_le_bytes());
            }
            (4..16, ScaleFields::Bytes(n)) => {
                block[..n].fill([0, 1, 2, 0x7e, 0x7f, 0x80, 0xfe, 0xff][i % 8])
            }
            (4..16, ScaleFields::Nibbles(at)) => {
                for (nibble, word) in block[at..].chunks_mut(2).enumerate() {
                    word[1] = word[1] & 0x0f | (special >> (4 * nibble) & 15).to_le_bytes()[0] << 4;
                }
            }
            _ => {}
        }
    }
    blocks
}
