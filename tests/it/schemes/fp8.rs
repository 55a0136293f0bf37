//! FP8: every code of every type and scales of every granularity against the definitions of the types, stacks of matrices, and
//! weights in PyTorch archives.

use crate::support;
use crate::support::random::random_bytes;
use crate::support::scheme_checks::{
    assert_same_bits, dequantised, f32_bytes, fp8_value, random_scales,
    safetensors as safetensors_of_parts,
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
fn every_code_of_every_fp8_type_has_its_defined_value() {
    let seven_scales = random_scales(4, 7);
    for (dtype, mantissa, bias, ocp) in [
        ("F8_E4M3", 3, 7, true),
        ("F8_E5M2", 2, 15, true),
        ("F8_E4M3FNUZ", 3, 8, false),
        ("F8_E5M2FNUZ", 2, 16, false),
    ] {
        // per row, in blocks of 3 by 100 elements with smaller blocks at the edges, per tensor
        let codes: Vec<u8> = (0..7).flat_map(|_| 0..=255u8).collect();
        for (shape, block_rows, block_cols) in
            [(vec![7, 1], 1, 256), (vec![3, 3], 3, 100), (vec![], 7, 256)]
        {
            let n = usize::try_from(shape.iter().product::<u64>()).unwrap();
            let scales: Vec<f32> = seven_scales.iter().cycle().take(n).copied().collect();
            let file = safetensors_of_parts(&[
                ("m.weight", dtype, &[7, 256], codes.clone()),
                ("m.weight_scale", "F32", &shape, f32_bytes(&scales)),
            ]);
            let config = format!(
                r#"{{"quant_method":"fp8","weight_block_size":[{block_rows},{block_cols}]}}"#
            );
            let (_, values) = dequantised(file, &config, "m.weight");
            let per_row = 256usize.div_ceil(block_cols);
            let value = |i: usize| {
                fp8_value(codes[i], mantissa, bias, ocp)
                    * scales[i / 256 / block_rows * per_row + i % 256 / block_cols]
            };
            assert_same_bits(&values, &(0..codes.len()).map(value).collect::<Vec<_>>());
        }
    }
}

/// A stack of matrices with one scale or none gives the bytes of one matrix with all its rows.
#[test]
fn stack_of_matrices_may_share_one_scale() {
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

    /// Scales per tensor, matrix, row, group or block with smaller blocks at the edges, in tiles of any height.
    #[test]
    fn fp8_weight_is_code_times_scale_of_its_block(
        stack in 1u64..4, rows in 1u64..24, cols in 1u64..700, block_rows in 1u64..24, block_cols in 1u64..700,
        granularity in 0usize..5, scale_dtype in 0usize..4, tile_rows in 1u64..40, seed in any::<u64>(),
    ) {
        let (block_rows, block_cols) = (block_rows.min(rows), block_cols.min(cols));
        let shape = if stack == 1 { vec![rows, cols] } else { vec![stack, rows, cols] };
        let with = |across: u64, along: u64| if stack == 1 { vec![across, along] } else { vec![stack, across, along] };
        // the shape of the scales, and the size of a block
        let (scales, block_rows, block_cols) = match granularity {
            0 => (vec![], u64::MAX, u64::MAX),
            1 if stack > 1 => (vec![stack], rows, cols),
            1 => (vec![rows], 1, cols),
            2 => (with(rows, 1), 1, cols),
            3 => (with(rows, cols.div_ceil(block_cols)), 1, block_cols),
            _ => (with(rows.div_ceil(block_rows), cols.div_ceil(block_cols)), block_rows, block_cols),
        };
        let count = usize::try_from(scales.iter().product::<u64>()).unwrap();
        let (dtype, scale_values): (&str, Vec<f32>) = match scale_dtype {
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
            StoredTensor::new("m.weight_scale_inv", dtype, &scales, random_bytes(seed, count * [4, 2, 2, 1][scale_dtype])),
        ];
        let mut expected = Vec::new();
        for (i, code) in (0u64..).zip(&codes) {
            let (matrix, row, col) = (i / (rows * cols), i / cols % rows, i % cols);
            let per_matrix = if block_rows == u64::MAX { 0 } else { rows.div_ceil(block_rows) * cols.div_ceil(block_cols) };
            let at = matrix * per_matrix + row / block_rows * cols.div_ceil(block_cols) + col / block_cols;
            expected.extend((fp8_value(*code, 3, 7, true) * scale_values[usize::try_from(at).unwrap()]).to_le_bytes());
        }
        let checkpoint = Checkpoint::from_bytes(safetensors(&file, &[])).unwrap();
        let config = format!("{{\"quant_method\":\"fp8\",\"weight_block_size\":[{block_rows},{block_cols}]}}");
        let remember = remember(&checkpoint).dtype(Dtype::F32).config(QuantConfig::from_json(config.as_bytes()).unwrap());
        let mut plan = remember.plan().unwrap();
        prop_assert!(plan.refused.is_empty(), "{:?}", plan.refused);
        let JobWork::Tiles { rows, .. } = &mut plan.jobs[0].work else { panic!("a stream") };
        *rows = tile_rows;
        let mut out = vec![0; expected.len()];
        remember.threads(1).run(&plan, &mut MemorySink::new(vec![&mut out])).unwrap();
        prop_assert_eq!(support::compare_bits(&out, &expected, Dtype::F32), Ok(()));
    }
}

/// Parts in archives may be deflated, strided or big-endian, so that they are read whole.
#[test]
fn weights_in_pytorch_archives_equal_those_in_safetensors_files() {
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
