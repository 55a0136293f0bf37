//! FP8: every code of every type, scales of every granularity, stacks of matrices, and weights in PyTorch archives.

use crate::support;
use crate::support::random::random_bytes;
use crate::support::scheme_checks::{
    assert_same_bits, dequantised, f32_bytes, fp8_value, random_scales,
    safetensors as safetensors_of,
};
use crate::support::writers::{StoredTensor, safetensors};
use anamnesis::plan::JobWork;
use anamnesis::sink::MemorySink;
use anamnesis::{Checkpoint, Dtype, QuantConfig, Remembered, remember};
use proptest::prelude::*;

fn all(checkpoint: &Checkpoint, dtype: Dtype) -> Vec<Remembered> {
    remember(checkpoint).dtype(dtype).threads(1).all().unwrap()
}

#[test]
fn every_code_of_every_fp8_is_worth_what_its_type_says() {
    let s = random_scales(4, 7);
    for (dtype, mantissa, bias, ocp) in [
        ("F8_E4M3", 3, 7, true),
        ("F8_E5M2", 2, 15, true),
        ("F8_E4M3FNUZ", 3, 8, false),
        ("F8_E5M2FNUZ", 2, 16, false),
    ] {
        // seven rows of 256 in blocks of 3 rows by 100 columns, whose edges are ragged
        let codes: Vec<u8> = (0..7).flat_map(|_| 0..=255u8).collect();
        for (shape, high, wide) in [(vec![7, 1], 1, 256), (vec![3, 3], 3, 100), (vec![], 7, 256)] {
            let n = usize::try_from(shape.iter().product::<u64>()).unwrap();
            let s: Vec<f32> = s.iter().cycle().take(n).copied().collect();
            let file = safetensors_of(&[
                ("m.weight", dtype, &[7, 256], codes.clone()),
                ("m.weight_scale", "F32", &shape, f32_bytes(&s)),
            ]);
            let config = format!(r#"{{"quant_method":"fp8","weight_block_size":[{high},{wide}]}}"#);
            let (_, values) = dequantised(file, &config, "m.weight");
            let per_row = 256usize.div_ceil(wide);
            let value = |i: usize| {
                fp8_value(codes[i], mantissa, bias, ocp)
                    * s[i / 256 / high * per_row + i % 256 / wide]
            };
            assert_same_bits(&values, &(0..codes.len()).map(value).collect::<Vec<_>>());
        }
    }
}

/// A scale for a whole stack of matrices, or none: the stack is like one matrix of all its rows.
#[test]
fn a_stack_may_share_one_scale() {
    let codes: Vec<u8> = random_bytes(3, 400 * 3 * 5 * 70)
        .iter()
        .map(|b| b & 0x7e)
        .collect();
    for scale in [
        None,
        Some(("F32", 0.3f32.to_le_bytes().to_vec())),
        Some(("BF16", vec![0x40, 0x3e])),
    ] {
        let decode = |shape: &[u64]| {
            let mut stored = vec![StoredTensor::new(
                "a.weight",
                "F8_E4M3",
                shape,
                codes.clone(),
            )];
            stored.extend(
                scale
                    .clone()
                    .map(|(dtype, bytes)| StoredTensor::new("a.weight_scale", dtype, &[1], bytes)),
            );
            all(
                &Checkpoint::from_bytes(safetensors(&stored, &[])).unwrap(),
                Dtype::F32,
            )
            .remove(0)
            .bytes
        };
        let matrix = decode(&[400 * 15, 70]);
        assert!(
            decode(&[400 * 3, 5, 70]) == matrix && decode(&[400, 3, 5, 70]) == matrix,
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
            0 => ("F32", random_bytes(seed, count * 4).as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()),
            1 => ("F16", random_bytes(seed, count * 2).as_chunks().0.iter().map(|b| half::f16::from_le_bytes(*b).to_f32()).collect()),
            2 => ("BF16", random_bytes(seed, count * 2).as_chunks().0.iter().map(|b| half::bf16::from_le_bytes(*b).to_f32()).collect()),
            _ => ("U8", random_bytes(seed, count).iter().map(|b| match b {
                0 => 2f32.powi(-127),
                255 => f32::NAN,
                b => f32::from_bits(u32::from(*b) << 23),
            }).collect()),
        };
        let codes = random_bytes(!seed, usize::try_from(stack * rows * cols).unwrap());
        let file = [
            StoredTensor::new("m.weight", "F8_E4M3", &shape, codes.clone()),
            StoredTensor::new("m.weight_scale_inv", dtype, &scales, random_bytes(seed, count * [4, 2, 2, 1][kind])),
        ];
        let mut expected = Vec::new();
        for (i, code) in (0u64..).zip(&codes) {
            let (matrix, row, col) = (i / (rows * cols), i / cols % rows, i % cols);
            let per_matrix = if high == u64::MAX { 0 } else { rows.div_ceil(high) * cols.div_ceil(wide) };
            let at = matrix * per_matrix + row / high * cols.div_ceil(wide) + col / wide;
            expected.extend((fp8_value(*code, 3, 7, true) * numbers[usize::try_from(at).unwrap()]).to_le_bytes());
        }
        let checkpoint = Checkpoint::from_bytes(safetensors(&file, &[])).unwrap();
        let config = format!("{{\"quant_method\":\"fp8\",\"weight_block_size\":[{high},{wide}]}}");
        let remember = remember(&checkpoint).dtype(Dtype::F32).config(QuantConfig::from_json(config.as_bytes()).unwrap());
        let mut plan = remember.plan().unwrap();
        prop_assert!(plan.refused.is_empty(), "{:?}", plan.refused);
        let JobWork::Tiles { rows, .. } = &mut plan.jobs[0].work else { panic!("a stream") };
        *rows = per_tile;
        let mut out = vec![0; expected.len()];
        remember.threads(1).run(&plan, &mut MemorySink::new(vec![&mut out])).unwrap();
        prop_assert_eq!(support::compare_bits(&out, &expected, Dtype::F32), Ok(()));
    }
}

/// Parts that are not in the file as they are: members of archives, read whole.
#[test]
fn weights_may_lie_in_archives() {
    for dtype in ["e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz"] {
        for ending in ["pth", "legacy.pth"] {
            let archive = Checkpoint::open(support::fixture(&format!(
                "pth/dtype/t_f8_{dtype}.{ending}"
            )))
            .unwrap();
            let stored: Vec<StoredTensor> = archive
                .tensors()
                .map(|tensor| {
                    let info = tensor.info();
                    let bytes = tensor.bytes().unwrap().into_owned();
                    StoredTensor::new(&info.name, info.encoding.name(), &info.shape, bytes)
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
