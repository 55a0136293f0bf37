//! GPTQ, AWQ, AutoRound and EETQ against their formulas, written out: what the reference outputs do not cover.

mod unpacked_weight;

use self::unpacked_weight::{AWQ, NATURAL, UnpackedWeight, check, config, packed};
use crate::support::checkpoint_builder::CheckpointBuilder;
use crate::support::random::Random;
use anamnesis::{Dtype, remember};

/// Depths, outputs and group sizes with whole and ragged tails.
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
fn gptq_of_every_width_and_version() {
    let mut random = Random(1);
    for &(depth, out, group) in SHAPES {
        for (format, planar, less) in [
            ("gptq", false, 1),
            ("gptq_v2", false, 0),
            ("gptq_p", true, 0),
        ] {
            for bits in if planar { 2..=8 } else { 2..=4 } {
                let bits = if bits == 4 && !planar { 8 } else { bits };
                for dtype in [Dtype::F16, Dtype::BF16, Dtype::F32] {
                    let plain = UnpackedWeight::new(&mut random, depth, out, group, bits, dtype);
                    let size = if group == depth {
                        -1
                    } else {
                        i64::try_from(group).unwrap()
                    };
                    let text = format!(
                        r#"{{"quant_method":"gptq","bits":{bits},"group_size":{size},"checkpoint_format":"{format}"}}"#
                    );
                    for index in [true, false] {
                        let made = plain.gptq(planar, less, index);
                        check(
                            &made,
                            &text,
                            &plain,
                            "gptq",
                            &format!("{text} {depth} {out} {dtype} {index}"),
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn four_bits_of_every_shape() {
    let mut random = Random(2);
    for &(depth, out, group) in SHAPES {
        let plain = UnpackedWeight::new(&mut random, depth, out, group, 4, Dtype::F16);
        let text = format!(r#"{{"quant_method":"gptq","bits":4,"group_size":{group}}}"#);
        check(&plain.gptq(false, 1, false), &text, &plain, "gptq", &text);
    }
}

/// The last words of a column may be half empty; `g_idx` says how many inputs there are.
#[test]
fn inputs_that_fill_no_word() {
    let mut random = Random(3);
    for (bits, depth) in [(4, 37), (2, 261), (8, 259), (3, 65), (4, 8)] {
        let plain = UnpackedWeight::new(&mut random, depth, 48, 16, bits, Dtype::F16);
        let text = format!(
            r#"{{"quant_method":"gptq","bits":{bits},"group_size":16,"checkpoint_format":"gptq_v2"}}"#
        );
        check(
            &plain.gptq(false, 0, true),
            &text,
            &plain,
            "gptq",
            &format!("{text} {depth}"),
        );
    }
}

#[test]
fn act_order_takes_any_group() {
    let mut random = Random(4);
    for bits in [2, 3, 4, 8] {
        for (depth, out) in [(128, 40), (333 / 32 * 32, 65), (1024, 300)] {
            let mut plain = UnpackedWeight::new(&mut random, depth, out, 32, bits, Dtype::F16);
            for runs in [false, true] {
                // one by one, and long runs out of order
                let groups = u32::try_from(plain.groups).unwrap();
                let backwards = |k: usize| plain.groups - 1 - k / 32;
                plain.index = (0..depth)
                    .map(|k| {
                        if runs {
                            backwards(k)
                        } else {
                            random.below(groups) as usize
                        }
                    })
                    .collect();
                let text = format!(
                    r#"{{"quant_method":"gptq","bits":{bits},"group_size":32,"desc_act":true}}"#
                );
                check(
                    &plain.gptq(false, 1, true),
                    &text,
                    &plain,
                    "gptq",
                    &format!("{text} {depth} {out} {runs}"),
                );
            }
        }
    }
}

/// Scales that conversions to 16 bits must look at: subnormal, infinite, NaN.
#[test]
fn particular_scales_are_kept() {
    let mut random = Random(5);
    for bits in [4, 8] {
        let mut plain = UnpackedWeight::new(&mut random, 64, 40, 32, bits, Dtype::F32);
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
            plain.scales[i * 7] = *x;
        }
        let text = format!(
            r#"{{"quant_method":"gptq","bits":{bits},"group_size":32,"checkpoint_format":"gptq_v2"}}"#
        );
        check(&plain.gptq(false, 0, false), &text, &plain, "gptq", &text);
    }
}

#[test]
fn symmetric_without_zero_points() {
    let mut random = Random(6);
    let mut plain = UnpackedWeight::new(&mut random, 64, 40, 32, 4, Dtype::F16);
    plain.zeros.fill(8);
    let made = plain.gptq(false, 1, true).without("m.qzeros");
    check(
        &made,
        r#"{"quant_method":"gptq","bits":4,"sym":true}"#,
        &plain,
        "gptq",
        "sym",
    );
    refused(
        &made,
        r#"{"quant_method":"gptq","bits":4,"sym":false}"#,
        "qzeros",
    );
}

#[test]
fn awq_of_every_layout() {
    let mut random = Random(7);
    for (depth, out, group) in [
        (64, 8, 32),
        (96, 40, 32),
        (33, 264, 33),
        (544, 600, 32),
        (256, 24, 128),
    ] {
        for dtype in [Dtype::F16, Dtype::F32] {
            let plain = UnpackedWeight::new(&mut random, depth, out, group, 4, dtype);
            let text = format!(
                r#"{{"quant_method":"awq","bits":4,"group_size":{group},"version":"gemm"}}"#
            );
            check(
                &plain.awq(AWQ),
                &text,
                &plain,
                "awq",
                &format!("{text} {depth} {out}"),
            );
            check(
                &plain.awq(AWQ),
                "{}",
                &plain,
                "awq",
                "without configuration",
            );
        }
    }
    for bits in [2, 3, 5, 6, 7, 8] {
        let plain = UnpackedWeight::new(&mut random, 96, 320, 32, bits, Dtype::F16);
        let text =
            format!(r#"{{"quant_method":"awq","bits":{bits},"group_size":32,"format":"gemm"}}"#);
        check(&plain.awq(NATURAL), &text, &plain, "awq", &text);
    }
}

/// AutoAWQ's `calculate_zeros_width`.
#[test]
fn awq_in_rows() {
    let mut random = Random(8);
    for (depth, out, group) in [
        (256, 40, 128),
        (512, 24, 64),
        (1024, 16, 32),
        (1152, 8, 128),
    ] {
        let plain = UnpackedWeight::new(&mut random, depth, out, group, 4, Dtype::F16);
        let times = 128 / group;
        let words = (depth / group).div_ceil(8).div_ceil(times) * times;
        let by_row = |values: &[u32], o: usize| {
            values
                .iter()
                .skip(o)
                .step_by(out)
                .copied()
                .collect::<Vec<_>>()
        };
        let qweight: Vec<u32> = (0..out)
            .flat_map(|o| packed(&by_row(&plain.codes, o), 4, false))
            .collect();
        let (mut qzeros, mut scales) = (Vec::new(), Vec::new());
        for o in 0..out {
            let mut zeros = packed(&by_row(&plain.zeros, o), 4, false);
            zeros.resize(words, 0);
            qzeros.extend(zeros);
            let mut row: Vec<f32> = plain.scales.iter().skip(o).step_by(out).copied().collect();
            row.resize(words * 8, 0.0);
            scales.extend(row);
        }
        let made = CheckpointBuilder::default()
            .words("m.qweight", &[out, depth / 8], &qweight)
            .words("m.qzeros", &[out, words], &qzeros)
            .with(
                "m.scales",
                Dtype::F16,
                &[out, words * 8],
                plain.scale_bytes(&scales),
            );
        let text =
            format!(r#"{{"quant_method":"awq","bits":4,"group_size":{group},"version":"gemv"}}"#);
        check(&made, &text, &plain, "awq", &text);
    }
}

#[test]
fn autoround_by_its_packing_format() {
    let mut random = Random(9);
    let text = |format: &str, bits: u32| {
        format!(
            r#"{{"quant_method":"auto-round","bits":{bits},"group_size":32,"packing_format":"{format}"}}"#
        )
    };
    for bits in 2..=8 {
        let plain = UnpackedWeight::new(&mut random, 96, 64, 32, bits, Dtype::F16);
        for (format, less) in [
            ("auto_round", 0),
            ("auto_round:gptqmodel", 0),
            ("auto_round:exllamav2", 0),
            ("auto_round:auto_gptq", 1),
            ("auto_round:gptq", 1),
            ("auto", 1),
        ] {
            let text = text(format, bits);
            check(
                &plain.gptq(false, less, false),
                &text,
                &plain,
                "auto-round",
                &text,
            );
        }
        let made = plain.awq(AWQ);
        match bits {
            4..=7 => check(
                &made,
                &text("auto_round:auto_awq", bits),
                &plain,
                "auto-round",
                "awq",
            ),
            _ => refused(&made, &text("auto_round:auto_awq", bits), "m.qweight"),
        }
    }
}

#[test]
fn eetq_is_turned() {
    let mut random = Random(10);
    for (depth, out) in [(64, 32), (37, 41), (600, 300), (256, 1)] {
        let mut plain = UnpackedWeight::new(&mut random, depth, out, depth, 8, Dtype::F16);
        plain.zeros.fill(128);
        let codes = plain
            .codes
            .iter()
            .map(|c| u8::try_from(*c).unwrap() ^ 0x80)
            .collect();
        let made = CheckpointBuilder::default()
            .with("m.weight", Dtype::I8, &[depth, out], codes)
            .with(
                "m.weight_scales",
                Dtype::F16,
                &[out],
                plain.scale_bytes(&plain.scales),
            );
        check(
            &made,
            r#"{"quant_method":"eetq"}"#,
            &plain,
            "eetq",
            &format!("{depth} {out}"),
        );
    }
}

/// Planning or decoding refuses it, and names the tensor.
fn refused(made: &CheckpointBuilder, text: &str, named: &str) {
    let checkpoint = made.open();
    let error = match remember(&checkpoint).config(config(text)).all() {
        Ok(_) => panic!("{text}: not refused, for {named}"),
        Err(error) => error.to_string(),
    };
    assert!(
        error.contains(named) && error.contains("m."),
        "{text}: {error}"
    );
}

#[test]
fn what_does_not_go_together_is_refused() {
    let mut random = Random(11);
    let plain = UnpackedWeight::new(&mut random, 64, 40, 32, 4, Dtype::F16);
    let good = plain.gptq(false, 1, true);
    let text = r#"{"quant_method":"gptq","bits":4,"group_size":32}"#;
    check(&good, text, &plain, "gptq", "as a control");
    let instead = |name: &str, shape: &[usize]| {
        let count = shape.iter().product();
        let made = good.clone().without(name);
        if name == "m.scales" {
            made.with(name, Dtype::F16, shape, vec![0; count * 2])
        } else {
            made.words(name, shape, &vec![0; count])
        }
    };
    refused(&good.clone().without("m.scales"), text, "scales");
    refused(&instead("m.scales", &[80]), text, "m.scales");
    refused(&instead("m.scales", &[2, 41]), text, "m.qweight");
    refused(&instead("m.scales", &[3, 40]), text, "m.q");
    refused(&instead("m.scales", &[0, 40]), text, "m.qweight");
    refused(&instead("m.qzeros", &[2, 4]), text, "m.qweight");
    refused(&instead("m.qzeros", &[1, 5]), text, "m.qzeros");
    refused(&instead("m.qzeros", &[10]), text, "m.qzeros");
    refused(&instead("m.g_idx", &[65]), text, "m.qweight");
    refused(&instead("m.g_idx", &[8, 8]), text, "m.g_idx");
    refused(&instead("m.qweight", &[9, 40]), text, "m.qweight");
    refused(&instead("m.qweight", &[8, 39]), text, "m.qweight");
    // a group that is not there, and a negative one
    for group in [2, u32::MAX] {
        let mut index = vec![0; 64];
        index[63] = group;
        refused(
            &good
                .clone()
                .without("m.g_idx")
                .words("m.g_idx", &[64], &index),
            text,
            "m.g_idx",
        );
    }
    refused(
        &good,
        r#"{"quant_method":"gptq","bits":4,"checkpoint_format":"marlin"}"#,
        "marlin",
    );
    let without = good.clone().without("m.g_idx");
    refused(
        &without,
        r#"{"quant_method":"gptq","bits":4,"group_size":32,"desc_act":true}"#,
        "g_idx",
    );
    // scales as whole numbers
    let whole = good
        .clone()
        .without("m.scales")
        .words("m.scales", &[2, 40], &[0; 80]);
    refused(&whole, text, "m.scales");
    // AWQ: zero points of other shapes, missing ones, groups that do not divide the inputs
    let awq = plain.awq(AWQ);
    let text = r#"{"quant_method":"awq","bits":4}"#;
    refused(&awq.clone().without("m.qzeros"), text, "qzeros");
    refused(
        &awq.clone()
            .without("m.qzeros")
            .words("m.qzeros", &[1, 5], &[0; 5]),
        text,
        "m.qzeros",
    );
    let three =
        awq.clone()
            .without("m.scales")
            .without("m.qzeros")
            .words("m.qzeros", &[3, 5], &[0; 15]);
    refused(
        &three.with("m.scales", Dtype::F16, &[3, 40], vec![0; 240]),
        text,
        "m.scales",
    );
    // EETQ: scales of another length
    let eetq = CheckpointBuilder::default().with("m.weight", Dtype::I8, &[8, 4], vec![0; 32]);
    refused(
        &eetq.with("m.weight_scales", Dtype::F16, &[8], vec![0; 16]),
        "{}",
        "m.weight_scales",
    );
}

/// Shapes count more than the configuration, and what was chosen is said.
#[test]
fn choices_are_noted() {
    let mut random = Random(12);
    let plain = UnpackedWeight::new(&mut random, 64, 64, 32, 8, Dtype::F16);
    let made = plain.gptq(false, 1, true);
    let text = r#"{"quant_method":"gptq","bits":4,"group_size":32,"sym":false}"#;
    check(&made, text, &plain, "gptq", "eight bits configured as four");
    let notes = |text: &str| {
        remember(&made.open())
            .config(config(text))
            .plan()
            .unwrap()
            .notes
            .join("\n")
    };
    assert!(
        notes(text).contains("8 bits") && notes(text).contains("highest code"),
        "{}",
        notes(text)
    );
    assert!(notes("{}").contains("version 1"), "{}", notes("{}"));
    assert_eq!(notes(r#"{"quant_method":"gptq","bits":8,"sym":true}"#), "");
}
