//! Weights whose values are known without the reference: by another file, or by hand.

mod common;

use std::ops::ControlFlow;

use anamnesis::plan::Work;
use anamnesis::sink::Memory;
use anamnesis::{
    BlockFormat, Checkpoint, Dtype, Encoding, QuantConfig, Remembered, kernel, remember,
};
use common::schemes::fp8;
use common::scratch::random;
use common::write::{Stored, gguf, safetensors};
use proptest::prelude::*;

fn all(checkpoint: &Checkpoint, dtype: Dtype) -> Vec<Remembered> {
    remember(checkpoint).dtype(dtype).threads(1).all().unwrap()
}

/// Words of more than a byte in a block: `(offset, bytes of one, how many)`.
type Words = &'static [(usize, usize, usize)];

/// As the structs of `ggml-common.h` declare them, and where they are bytes there, as `ggml-quants.c` reads them.
#[rustfmt::skip]
static WORDS: &[(&str, Words)] = &[
    ("q4_0", &[(0, 2, 1)]), ("q4_1", &[(0, 2, 2)]), ("q5_0", &[(0, 2, 1), (2, 4, 1)]),
    ("q5_1", &[(0, 2, 2), (4, 4, 1)]), ("q8_0", &[(0, 2, 1)]), ("q8_1", &[(0, 2, 2)]),
    ("q8_k", &[(0, 4, 1), (260, 2, 16)]), ("iq2_xxs", &[(0, 2, 33)]), ("q2_k", &[(80, 2, 2)]), ("q3_k", &[(108, 2, 1)]),
    ("q4_k", &[(0, 2, 2)]), ("q5_k", &[(0, 2, 2)]), ("q6_k", &[(208, 2, 1)]), ("iq2_xs", &[(0, 2, 33)]),
    ("iq2_s", &[(0, 2, 1)]), ("iq3_xxs", &[(0, 2, 1), (66, 4, 8)]), ("iq3_s", &[(0, 2, 1)]),
    ("iq1_s", &[(0, 2, 1), (34, 2, 8)]), ("iq1_m", &[(48, 2, 4)]), ("iq4_nl", &[(0, 2, 1)]), ("iq4_xs", &[(0, 2, 2)]),
    ("tq1_0", &[(52, 2, 1)]), ("tq2_0", &[(64, 2, 1)]), ("q1_0", &[(0, 2, 1)]), ("q2_0", &[(0, 2, 1)]),
    ("mxfp4", &[]), ("nvfp4", &[]),
];

#[test]
fn big_endian_blocks_are_turned_around() {
    for format in BlockFormat::all() {
        let name = format.name.to_lowercase();
        let (_, words) = WORDS
            .iter()
            .find(|(of, _)| *of == name)
            .unwrap_or_else(|| panic!("{name} has no line"));
        let random = || {
            let (bytes, cols) = (
                random(5, 6 * format.block_bytes as usize),
                2 * u64::from(format.block_len),
            );
            gguf(
                false,
                &[],
                &[Stored::new(
                    "a.weight",
                    &format.ggml_type.to_string(),
                    &[3, cols],
                    bytes,
                )],
            )
        };
        // what is not written to files has no fixture
        let file = common::fixture(&format!("gguf/types/{name}.gguf"));
        let little = if file.exists() {
            Checkpoint::open(file)
        } else {
            Checkpoint::from_bytes(random())
        }
        .unwrap();
        let mut stored = Vec::new();
        for tensor in little.tensors() {
            let Encoding::Block(format) = tensor.info().encoding else {
                panic!("{name}")
            };
            let mut bytes = tensor.bytes().unwrap().into_owned();
            for block in bytes.chunks_mut(format.block_bytes as usize) {
                for &(at, width, n) in *words {
                    block[at..at + width * n]
                        .chunks_mut(width)
                        .for_each(<[u8]>::reverse);
                }
            }
            stored.push(Stored::new(
                &tensor.info().name,
                &format.ggml_type.to_string(),
                &tensor.info().shape,
                bytes,
            ));
        }
        let big = Checkpoint::from_bytes(gguf(true, &[], &stored)).unwrap();
        for dtype in [Dtype::F32, Dtype::BF16] {
            assert!(all(&big, dtype) == all(&little, dtype), "{name} {dtype}");
        }
    }
}

#[test]
fn a_scale_beside_blocks_multiplies_them() {
    let format = BlockFormat::from_name("NVFP4").unwrap();
    let (blocks, factors) = (random(77, 6 * 36), [0.37f32, -1.5, 1e-3]);
    let mut plain = vec![0; 6 * 64 * 4];
    kernel::dequantize(format, &blocks, Dtype::F32, &mut plain).unwrap();
    let plain: Vec<f32> = plain
        .as_chunks()
        .0
        .iter()
        .map(|x| f32::from_le_bytes(*x))
        .collect();
    for (shape, n, suffix, big) in [
        (&[3, 128][..], 1, ".scale", false),
        (&[3, 2, 64], 3, ".scale", false),
        (&[3, 2, 64], 1, ".weight.scale", false),
        (&[3, 2, 64], 3, ".weight.scale", true),
    ] {
        let bytes = |x: &f32| {
            if big {
                x.to_be_bytes()
            } else {
                x.to_le_bytes()
            }
        };
        let scale = factors[..n].iter().flat_map(bytes).collect();
        let input = Stored::new("blk.0.up.input_scale", "0", &[1], vec![0; 4]);
        let stored = [
            Stored::new("blk.0.up.weight", "40", shape, blocks.clone()),
            Stored::new(&format!("blk.0.up{suffix}"), "0", &[n as u64], scale),
            input,
        ];
        let checkpoint = Checkpoint::from_bytes(gguf(big, &[], &stored)).unwrap();
        let made = plain
            .iter()
            .enumerate()
            .map(|(i, x)| x * factors[i / (plain.len() / n)]);
        let wide: Vec<f32> = made.collect();
        for dtype in [Dtype::F32, Dtype::F16, Dtype::BF16] {
            let expected: Vec<u8> = match dtype {
                Dtype::F32 => wide.iter().flat_map(|x| x.to_le_bytes()).collect(),
                Dtype::F16 => wide
                    .iter()
                    .flat_map(|&x| half::f16::from_f32(x).to_le_bytes())
                    .collect(),
                _ => wide
                    .iter()
                    .flat_map(|&x| half::bf16::from_f32(x).to_le_bytes())
                    .collect(),
            };
            let all = all(&checkpoint, dtype);
            assert_eq!(all.len(), 1, "the scales are used up");
            common::same_bits(&all[0].bytes, &expected, dtype)
                .unwrap_or_else(|e| panic!("{shape:?} {n} {dtype}: {e}"));
        }
    }
    // one that fits neither
    let stored = [
        Stored::new("blk.0.up.weight", "40", &[3, 2, 64], blocks),
        Stored::new("blk.0.up.scale", "0", &[2], vec![0; 8]),
    ];
    let checkpoint = Checkpoint::from_bytes(gguf(false, &[], &stored)).unwrap();
    let plan = remember(&checkpoint).plan().unwrap();
    assert!(
        plan.refused[0]
            .error
            .to_string()
            .contains("`blk.0.up.scale`"),
        "{:?}",
        plan.refused
    );
}

/// A scale for a whole stack of matrices, or none: the stack is like one matrix of all its rows.
#[test]
fn a_stack_may_share_one_scale() {
    let codes: Vec<u8> = random(3, 400 * 3 * 5 * 70)
        .iter()
        .map(|b| b & 0x7e)
        .collect();
    for scale in [
        None,
        Some(("F32", 0.3f32.to_le_bytes().to_vec())),
        Some(("BF16", vec![0x40, 0x3e])),
    ] {
        let made = |shape: &[u64]| {
            let mut stored = vec![Stored::new("a.weight", "F8_E4M3", shape, codes.clone())];
            stored.extend(
                scale
                    .clone()
                    .map(|(dtype, bytes)| Stored::new("a.weight_scale", dtype, &[1], bytes)),
            );
            all(
                &Checkpoint::from_bytes(safetensors(&stored, &[])).unwrap(),
                Dtype::F32,
            )
            .remove(0)
            .bytes
        };
        let matrix = made(&[400 * 15, 70]);
        assert!(
            made(&[400 * 3, 5, 70]) == matrix && made(&[400, 3, 5, 70]) == matrix,
            "{scale:?}"
        );
        assert!(matrix.iter().any(|b| *b != 0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    /// Scales per tensor, matrix, row, group or block with ragged edges, in tiles of any height.
    #[test]
    fn fp8_is_code_times_the_scale_of_its_block(
        stack in 1u64..4, rows in 1u64..24, cols in 1u64..700, high in 1u64..24, wide in 1u64..700,
        grain in 0usize..5, kind in 0usize..4, per_tile in 1u64..40, seed in any::<u64>(),
    ) {
        let (high, wide) = (high.min(rows), wide.min(cols));
        let shape = if stack == 1 { vec![rows, cols] } else { vec![stack, rows, cols] };
        let with = |across: u64, along: u64| if stack == 1 { vec![across, along] } else { vec![stack, across, along] };
        // the shape of the scales, and the sides of a block
        let (scales, high, wide) = match grain {
            0 => (vec![], u64::MAX, u64::MAX),
            1 if stack > 1 => (vec![stack], rows, cols),
            1 => (vec![rows], 1, cols),
            2 => (with(rows, 1), 1, cols),
            3 => (with(rows, cols.div_ceil(wide)), 1, wide),
            _ => (with(rows.div_ceil(high), cols.div_ceil(wide)), high, wide),
        };
        let count = usize::try_from(scales.iter().product::<u64>()).unwrap();
        let (dtype, numbers): (&str, Vec<f32>) = match kind {
            0 => ("F32", random(seed, count * 4).as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()),
            1 => ("F16", random(seed, count * 2).as_chunks().0.iter().map(|b| half::f16::from_le_bytes(*b).to_f32()).collect()),
            2 => ("BF16", random(seed, count * 2).as_chunks().0.iter().map(|b| half::bf16::from_le_bytes(*b).to_f32()).collect()),
            _ => ("U8", random(seed, count).iter().map(|b| match b {
                0 => 2f32.powi(-127),
                255 => f32::NAN,
                b => f32::from_bits(u32::from(*b) << 23),
            }).collect()),
        };
        let codes = random(!seed, usize::try_from(stack * rows * cols).unwrap());
        let file = [
            Stored::new("m.weight", "F8_E4M3", &shape, codes.clone()),
            Stored::new("m.weight_scale_inv", dtype, &scales, random(seed, count * [4, 2, 2, 1][kind])),
        ];
        let mut expected = Vec::new();
        for (i, code) in (0u64..).zip(&codes) {
            let (matrix, row, col) = (i / (rows * cols), i / cols % rows, i % cols);
            let per_matrix = if high == u64::MAX { 0 } else { rows.div_ceil(high) * cols.div_ceil(wide) };
            let at = matrix * per_matrix + row / high * cols.div_ceil(wide) + col / wide;
            expected.extend((fp8(*code, 3, 7, true) * numbers[usize::try_from(at).unwrap()]).to_le_bytes());
        }
        let checkpoint = Checkpoint::from_bytes(safetensors(&file, &[])).unwrap();
        let config = format!("{{\"quant_method\":\"fp8\",\"weight_block_size\":[{high},{wide}]}}");
        let remember = remember(&checkpoint).dtype(Dtype::F32).config(QuantConfig::from_json(config.as_bytes()).unwrap());
        let mut plan = remember.plan().unwrap();
        prop_assert!(plan.refused.is_empty(), "{:?}", plan.refused);
        let Work::Tiles { rows, .. } = &mut plan.jobs[0].work else { panic!("a stream") };
        *rows = per_tile;
        let mut out = vec![0; expected.len()];
        remember.threads(1).run(&mut plan, &mut Memory::new(vec![&mut out]), &mut |_| ControlFlow::Continue(())).unwrap();
        prop_assert_eq!(common::same_bits(&out, &expected, Dtype::F32), Ok(()));
    }
}

/// Parts that are not in the file as they are: members of archives, read whole.
#[test]
fn weights_may_lie_in_archives() {
    for dtype in ["e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz"] {
        for ending in ["pth", "legacy.pth"] {
            let archive =
                Checkpoint::open(common::fixture(&format!("pth/dtype/t_f8_{dtype}.{ending}")))
                    .unwrap();
            let stored: Vec<Stored> = archive
                .tensors()
                .map(|tensor| {
                    let info = tensor.info();
                    let bytes = tensor.bytes().unwrap().into_owned();
                    Stored::new(&info.name, info.encoding.name(), &info.shape, bytes)
                })
                .collect();
            let copied = Checkpoint::from_bytes(safetensors(&stored, &[])).unwrap();
            assert!(
                all(&archive, Dtype::BF16) == all(&copied, Dtype::BF16),
                "{dtype} {ending}"
            );
            let plan = remember(&archive).plan().unwrap();
            assert!(
                plan.jobs.iter().any(|job| job.scheme == "fp8"),
                "{dtype} {ending}"
            );
        }
    }
}
