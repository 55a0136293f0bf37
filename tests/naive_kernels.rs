//! Kernels against the plain reading of the specification, on random bits.

mod common;
mod naive;

use anamnesis::{BlockFormat, Dtype, kernel};
use half::{bf16, f16};
use naive::{Scales, TYPES};

/// Blocks of each type.
const BLOCKS: usize = 2560;

#[test]
fn every_type_with_weights_has_its_oracle() {
    for format in BlockFormat::all() {
        let known = TYPES.iter().any(|(name, ..)| *name == format.name);
        assert!(known && kernel::builds(format).is_ok(), "{}", format.name);
    }
}

#[test]
fn every_build_reads_random_blocks_as_specified() {
    for &(name, element, scales) in TYPES {
        let format = BlockFormat::from_name(name).unwrap();
        let blocks = random(format, scales);
        let each = blocks.chunks(format.block_bytes as usize);
        let wide: Vec<f32> = each
            .flat_map(|b| (0..format.block_len as usize).map(move |i| element(b, i)))
            .collect();
        assert_eq!(wide.len(), BLOCKS * format.block_len as usize);
        for dtype in [Dtype::F32, Dtype::F16, Dtype::BF16] {
            let expected: Vec<u8> = match dtype {
                Dtype::F32 => wide.iter().flat_map(|x| x.to_le_bytes()).collect(),
                Dtype::F16 => wide
                    .iter()
                    .flat_map(|&x| f16::from_f32(x).to_le_bytes())
                    .collect(),
                _ => wide
                    .iter()
                    .flat_map(|&x| bf16::from_f32(x).to_le_bytes())
                    .collect(),
            };
            for isa in kernel::builds(format).unwrap() {
                let mut out = vec![0x55; expected.len()];
                kernel::dequantize_with(isa, format, &blocks, dtype, &mut out).unwrap();
                if out != expected {
                    // NaNs may differ in their bits
                    common::same_bits(&out, &expected, dtype)
                        .unwrap_or_else(|e| panic!("{name} {dtype} {isa}: {e}"));
                }
            }
        }
    }
}

/// Random blocks; in some, scales are of each special kind, or all bits are equal.
fn random(format: &BlockFormat, scales: Scales) -> Vec<u8> {
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
            (4..16, Scales::F16(places)) => {
                // the others keep their bits, so that specials meet numbers and each other
                let at = places[i / 64 % places.len()];
                block[at..at + 2].copy_from_slice(&special.to_le_bytes());
            }
            (4..16, Scales::F32(at)) => {
                let wide = [u32::from(special) << 16, 1, 0x7f7f_ffff, 0x007f_ffff][i % 4];
                block[at..at + 4].copy_from_slice(&wide.to_le_bytes());
            }
            (4..16, Scales::Bytes(n)) => {
                block[..n].fill([0, 1, 2, 0x7e, 0x7f, 0x80, 0xfe, 0xff][i % 8])
            }
            (4..16, Scales::Spread(at)) => {
                for (piece, word) in block[at..].chunks_mut(2).enumerate() {
                    word[1] = word[1] & 0x0f | (special >> (4 * piece) & 15).to_le_bytes()[0] << 4;
                }
            }
            _ => {}
        }
    }
    blocks
}
