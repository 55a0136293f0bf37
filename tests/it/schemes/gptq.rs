//! GPTQ, AutoRound in GPTQ and AWQ packing, and EETQ: weights of many shapes, bit widths and dtypes against the formula. The
//! reference outputs of GPTQModel and AutoAWQ are compared in `corpus_references`.

mod awq;
mod refusals;
mod unpacked_weight;

use self::unpacked_weight::{AWQ_ORDER, UnpackedWeight, check_dequantised, config};
use crate::support::checkpoint_builder::CheckpointBuilder;
use crate::support::random::Random;
use anamnesis::{Dtype, remember};

/// Inputs, outputs and group sizes, with and without incomplete vectors and groups.
const SHAPES: &[(usize, usize, usize)] = &[
    (64, 32, 32),
    (96, 40, 32),
    (256, 72, 256),
    (320, 296, 64),
    (544, 1, 544),
    (608, 33, 32),
    (128, 600, 16),
];

#[test]
fn gptq_weights_of_every_bit_width_and_version_equal_the_formula() {
    let mut random = Random(1);
    for &(inputs, outputs, group_size) in SHAPES {
        for (format, planar, zero_offset) in [
            ("gptq", false, 1),
            ("gptq_v2", false, 0),
            ("gptq_p", true, 0),
        ] {
            for bits in if planar { 2..=8 } else { 2..=4 } {
                let bits = if bits == 4 && !planar { 8 } else { bits };
                for dtype in [Dtype::F16, Dtype::BF16, Dtype::F32] {
                    let weight =
                        UnpackedWeight::new(&mut random, inputs, outputs, group_size, bits, dtype);
                    let configured_size = if group_size == inputs {
                        -1
                    } else {
                        i64::try_from(group_size).unwrap()
                    };
                    let config_json = format!(
                        r#"{{"quant_method":"gptq","bits":{bits},"group_size":{configured_size},"checkpoint_format":"{format}"}}"#
                    );
                    for g_idx in [true, false] {
                        let checkpoint = weight.gptq(planar, zero_offset, g_idx);
                        check_dequantised(
                            &checkpoint,
                            &config_json,
                            &weight,
                            "gptq",
                            &format!("{config_json} {inputs} {outputs} {dtype} {g_idx}"),
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn gptq_4_bit_weights_of_every_shape_equal_the_formula() {
    let mut random = Random(2);
    for &(inputs, outputs, group_size) in SHAPES {
        let weight = UnpackedWeight::new(&mut random, inputs, outputs, group_size, 4, Dtype::F16);
        let config_json =
            format!(r#"{{"quant_method":"gptq","bits":4,"group_size":{group_size}}}"#);
        check_dequantised(
            &weight.gptq(false, 1, false),
            &config_json,
            &weight,
            "gptq",
            &config_json,
        );
    }
}

/// The last word of a column may be incomplete; the length of `g_idx` is the number of inputs.
#[test]
fn gptq_input_count_need_not_fill_the_last_word() {
    let mut random = Random(3);
    for (bits, inputs) in [(4, 37), (2, 261), (8, 259), (3, 65), (4, 8)] {
        let weight = UnpackedWeight::new(&mut random, inputs, 48, 16, bits, Dtype::F16);
        let config_json = format!(
            r#"{{"quant_method":"gptq","bits":{bits},"group_size":16,"checkpoint_format":"gptq_v2"}}"#
        );
        check_dequantised(
            &weight.gptq(false, 0, true),
            &config_json,
            &weight,
            "gptq",
            &format!("{config_json} {inputs}"),
        );
    }
}

#[test]
fn gptq_act_order_accepts_any_group_index() {
    let mut random = Random(4);
    for bits in [2, 3, 4, 8] {
        for (inputs, outputs) in [(128, 40), (333 / 32 * 32, 65), (1024, 300)] {
            let mut weight =
                UnpackedWeight::new(&mut random, inputs, outputs, 32, bits, Dtype::F16);
            for whole_groups in [false, true] {
                // a random group for each input, and whole groups in reverse order
                let groups = u32::try_from(weight.groups).unwrap();
                let reversed = |k: usize| weight.groups - 1 - k / 32;
                weight.g_idx = (0..inputs)
                    .map(|k| {
                        if whole_groups {
                            reversed(k)
                        } else {
                            random.below(groups) as usize
                        }
                    })
                    .collect();
                let config_json = format!(
                    r#"{{"quant_method":"gptq","bits":{bits},"group_size":32,"desc_act":true}}"#
                );
                check_dequantised(
                    &weight.gptq(false, 1, true),
                    &config_json,
                    &weight,
                    "gptq",
                    &format!("{config_json} {inputs} {outputs} {whole_groups}"),
                );
            }
        }
    }
}

/// Scales that the conversion to 16 bits treats specially: subnormal, infinite, NaN.
#[test]
fn gptq_special_scales_equal_the_formula() {
    let mut random = Random(5);
    for bits in [4, 8] {
        let mut weight = UnpackedWeight::new(&mut random, 64, 40, 32, bits, Dtype::F32);
        for (i, x) in [
            f32::from_bits(1),
            f32::from_bits(0x7f_ffff),
            f32::INFINITY,
            f32::NAN,
            0.0,
            -1e38,
        ]
        .iter()
        .enumerate()
        {
            weight.scales[i * 7] = *x;
        }
        let config_json = format!(
            r#"{{"quant_method":"gptq","bits":{bits},"group_size":32,"checkpoint_format":"gptq_v2"}}"#
        );
        check_dequantised(
            &weight.gptq(false, 0, false),
            &config_json,
            &weight,
            "gptq",
            &config_json,
        );
    }
}

#[test]
fn symmetric_gptq_needs_no_zero_points() {
    let mut random = Random(6);
    let mut weight = UnpackedWeight::new(&mut random, 64, 40, 32, 4, Dtype::F16);
    weight.zero_points.fill(8);
    let checkpoint = weight.gptq(false, 1, true).without("m.qzeros");
    check_dequantised(
        &checkpoint,
        r#"{"quant_method":"gptq","bits":4,"sym":true}"#,
        &weight,
        "gptq",
        "sym",
    );
    assert_refused(
        &checkpoint,
        r#"{"quant_method":"gptq","bits":4,"sym":false}"#,
        "qzeros",
    );
}

#[test]
fn autoround_packing_format_selects_the_layout() {
    let mut random = Random(9);
    let config_json = |format: &str, bits: u32| {
        format!(
            r#"{{"quant_method":"auto-round","bits":{bits},"group_size":32,"packing_format":"{format}"}}"#
        )
    };
    for bits in 2..=8 {
        let weight = UnpackedWeight::new(&mut random, 96, 64, 32, bits, Dtype::F16);
        for (format, zero_offset) in [
            ("auto_round", 0),
            ("auto_round:gptqmodel", 0),
            ("auto_round:exllamav2", 0),
            ("auto_round:auto_gptq", 1),
            ("auto_round:gptq", 1),
            ("auto", 1),
        ] {
            let config_json = config_json(format, bits);
            check_dequantised(
                &weight.gptq(false, zero_offset, false),
                &config_json,
                &weight,
                "auto-round",
                &config_json,
            );
        }
        let checkpoint = weight.awq(AWQ_ORDER);
        match bits {
            4..=7 => check_dequantised(
                &checkpoint,
                &config_json("auto_round:auto_awq", bits),
                &weight,
                "auto-round",
                "awq",
            ),
            _ => assert_refused(
                &checkpoint,
                &config_json("auto_round:auto_awq", bits),
                "m.qweight",
            ),
        }
    }
}

#[test]
fn eetq_weights_are_transposed() {
    let mut random = Random(10);
    for (inputs, outputs) in [(64, 32), (37, 41), (600, 300), (256, 1)] {
        let mut weight = UnpackedWeight::new(&mut random, inputs, outputs, inputs, 8, Dtype::F16);
        weight.zero_points.fill(128);
        let codes = weight
            .codes
            .iter()
            .map(|c| u8::try_from(*c).unwrap() ^ 0x80)
            .collect();
        let checkpoint = CheckpointBuilder::default()
            .with("m.weight", Dtype::I8, &[inputs, outputs], codes)
            .with(
                "m.weight_scales",
                Dtype::F16,
                &[outputs],
                weight.scale_bytes(&weight.scales),
            );
        check_dequantised(
            &checkpoint,
            r#"{"quant_method":"eetq"}"#,
            &weight,
            "eetq",
            &format!("{inputs} {outputs}"),
        );
    }
}

/// Checks that planning or decoding fails with an error that names the tensor.
fn assert_refused(checkpoint: &CheckpointBuilder, config_json: &str, tensor: &str) {
    let checkpoint = checkpoint.open();
    let error = match remember(&checkpoint).config(config(config_json)).all() {
        Ok(_) => panic!("{config_json}: not refused for {tensor}"),
        Err(error) => error.to_string(),
    };
    assert!(
        error.contains(tensor) && error.contains("m."),
        "{config_json}: {error}"
    );
}
