//! AWQ in AutoAWQ's `gemm` and `gemv` layouts: weights of many shapes, bit widths and dtypes against the formula.

use anamnesis::Dtype;

use super::unpacked_weight::{AWQ_ORDER, NATURAL_ORDER, UnpackedWeight, check_dequantised, packed};
use crate::support::checkpoint_builder::CheckpointBuilder;
use crate::support::random::Random;

#[test]
fn awq_gemm_weights_equal_the_formula() {
    let mut random = Random(7);
    for (inputs, outputs, group_size) in [
        (64, 8, 32),
        (96, 40, 32),
        (33, 264, 33),
        (544, 600, 32),
        (256, 24, 128),
    ] {
        for dtype in [Dtype::F16, Dtype::F32] {
            let weight = UnpackedWeight::new(&mut random, inputs, outputs, group_size, 4, dtype);
            let config_json = format!(
                r#"{{"quant_method":"awq","bits":4,"group_size":{group_size},"version":"gemm"}}"#
            );
            check_dequantised(
                &weight.awq(AWQ_ORDER),
                &config_json,
                &weight,
                "awq",
                &format!("{config_json} {inputs} {outputs}"),
            );
            check_dequantised(
                &weight.awq(AWQ_ORDER),
                "{}",
                &weight,
                "awq",
                "without configuration",
            );
        }
    }
    for bits in [2, 3, 5, 6, 7, 8] {
        let weight = UnpackedWeight::new(&mut random, 96, 320, 32, bits, Dtype::F16);
        let config_json =
            format!(r#"{{"quant_method":"awq","bits":{bits},"group_size":32,"format":"gemm"}}"#);
        check_dequantised(
            &weight.awq(NATURAL_ORDER),
            &config_json,
            &weight,
            "awq",
            &config_json,
        );
    }
}

/// The `gemv` layout: codes packed along rows of outputs, with the padding of AutoAWQ's `calculate_zeros_width`.
#[test]
fn awq_gemv_weights_equal_the_formula() {
    let mut random = Random(8);
    for (inputs, outputs, group_size) in [
        (256, 40, 128),
        (512, 24, 64),
        (1024, 16, 32),
        (1152, 8, 128),
    ] {
        let weight = UnpackedWeight::new(&mut random, inputs, outputs, group_size, 4, Dtype::F16);
        let multiple = 128 / group_size;
        let words = (inputs / group_size).div_ceil(8).next_multiple_of(multiple);
        let by_row = |values: &[u32], o: usize| {
            values
                .iter()
                .skip(o)
                .step_by(outputs)
                .copied()
                .collect::<Vec<_>>()
        };
        let qweight: Vec<u32> = (0..outputs)
            .flat_map(|o| packed(&by_row(&weight.codes, o), 4, false))
            .collect();
        let (mut qzeros, mut scales) = (Vec::new(), Vec::new());
        for o in 0..outputs {
            let mut zeros = packed(&by_row(&weight.zero_points, o), 4, false);
            zeros.resize(words, 0);
            qzeros.extend(zeros);
            let mut row: Vec<f32> = weight
                .scales
                .iter()
                .skip(o)
                .step_by(outputs)
                .copied()
                .collect();
            row.resize(words * 8, 0.0);
            scales.extend(row);
        }
        let checkpoint = CheckpointBuilder::default()
            .words("m.qweight", &[outputs, inputs / 8], &qweight)
            .words("m.qzeros", &[outputs, words], &qzeros)
            .with(
                "m.scales",
                Dtype::F16,
                &[outputs, words * 8],
                weight.scale_bytes(&scales),
            );
        let config_json = format!(
            r#"{{"quant_method":"awq","bits":4,"group_size":{group_size},"version":"gemv"}}"#
        );
        check_dequantised(&checkpoint, &config_json, &weight, "awq", &config_json);
    }
}
