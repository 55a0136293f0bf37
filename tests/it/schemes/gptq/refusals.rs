//! GPTQ, AWQ and EETQ parts that contradict each other or the configuration: refused by name, or decoded with a note.

use anamnesis::{Dtype, remember};

use super::assert_refused;
use super::unpacked_weight::{AWQ_ORDER, UnpackedWeight, check_dequantised, config};
use crate::support::checkpoint_builder::CheckpointBuilder;
use crate::support::random::Random;

#[test]
fn inconsistent_parts_are_refused_by_name() {
    let mut random = Random(11);
    let weight = UnpackedWeight::new(&mut random, 64, 40, 32, 4, Dtype::F16);
    let valid = weight.gptq(false, 1, true);
    let config_json = r#"{"quant_method":"gptq","bits":4,"group_size":32}"#;
    check_dequantised(&valid, config_json, &weight, "gptq", "valid parts");
    let with_shape = |name: &str, shape: &[usize]| {
        let count = shape.iter().product();
        let checkpoint = valid.clone().without(name);
        if name == "m.scales" {
            checkpoint.with(name, Dtype::F16, shape, vec![0; count * 2])
        } else {
            checkpoint.words(name, shape, &vec![0; count])
        }
    };
    assert_refused(&valid.clone().without("m.scales"), config_json, "scales");
    assert_refused(&with_shape("m.scales", &[80]), config_json, "m.scales");
    assert_refused(&with_shape("m.scales", &[2, 41]), config_json, "m.qweight");
    assert_refused(&with_shape("m.scales", &[3, 40]), config_json, "m.q");
    assert_refused(&with_shape("m.scales", &[0, 40]), config_json, "m.qweight");
    assert_refused(&with_shape("m.qzeros", &[2, 4]), config_json, "m.qweight");
    assert_refused(&with_shape("m.qzeros", &[1, 5]), config_json, "m.qzeros");
    assert_refused(&with_shape("m.qzeros", &[10]), config_json, "m.qzeros");
    assert_refused(&with_shape("m.g_idx", &[65]), config_json, "m.qweight");
    assert_refused(&with_shape("m.g_idx", &[8, 8]), config_json, "m.g_idx");
    assert_refused(&with_shape("m.qweight", &[9, 40]), config_json, "m.qweight");
    assert_refused(&with_shape("m.qweight", &[8, 39]), config_json, "m.qweight");
    // a group index beyond the last group, and a negative one
    for group in [2, u32::MAX] {
        let mut g_idx = vec![0; 64];
        g_idx[63] = group;
        assert_refused(
            &valid
                .clone()
                .without("m.g_idx")
                .words("m.g_idx", &[64], &g_idx),
            config_json,
            "m.g_idx",
        );
    }
    assert_refused(
        &valid,
        r#"{"quant_method":"gptq","bits":4,"checkpoint_format":"marlin"}"#,
        "marlin",
    );
    let without_g_idx = valid.clone().without("m.g_idx");
    assert_refused(
        &without_g_idx,
        r#"{"quant_method":"gptq","bits":4,"group_size":32,"desc_act":true}"#,
        "g_idx",
    );
    // scales of an integer dtype
    let integer_scales = valid
        .clone()
        .without("m.scales")
        .words("m.scales", &[2, 40], &[0; 80]);
    assert_refused(&integer_scales, config_json, "m.scales");
    // AWQ: zero points of other shapes, missing ones, groups that do not divide the inputs
    let awq = weight.awq(AWQ_ORDER);
    let config_json = r#"{"quant_method":"awq","bits":4}"#;
    assert_refused(&awq.clone().without("m.qzeros"), config_json, "qzeros");
    assert_refused(
        &awq.clone()
            .without("m.qzeros")
            .words("m.qzeros", &[1, 5], &[0; 5]),
        config_json,
        "m.qzeros",
    );
    let three_groups =
        awq.clone()
            .without("m.scales")
            .without("m.qzeros")
            .words("m.qzeros", &[3, 5], &[0; 15]);
    assert_refused(
        &three_groups.with("m.scales", Dtype::F16, &[3, 40], vec![0; 240]),
        config_json,
        "m.scales",
    );
    // EETQ: scales of another length
    let eetq = CheckpointBuilder::default().with("m.weight", Dtype::I8, &[8, 4], vec![0; 32]);
    assert_refused(
        &eetq.with("m.weight_scales", Dtype::F16, &[8], vec![0; 16]),
        "{}",
        "m.weight_scales",
    );
}

/// Shapes take precedence over the configuration, and the plan notes the choice.
#[test]
fn contradictions_between_shapes_and_configuration_are_noted() {
    let mut random = Random(12);
    let weight = UnpackedWeight::new(&mut random, 64, 64, 32, 8, Dtype::F16);
    let checkpoint = weight.gptq(false, 1, true);
    let config_json = r#"{"quant_method":"gptq","bits":4,"group_size":32,"sym":false}"#;
    check_dequantised(
        &checkpoint,
        config_json,
        &weight,
        "gptq",
        "eight bits configured as four",
    );
    let notes = |config_json: &str| {
        remember(&checkpoint.open())
            .config(config(config_json))
            .plan()
            .unwrap()
            .notes
            .join("\n")
    };
    assert!(
        notes(config_json).contains("8 bits") && notes(config_json).contains("highest code"),
        "{}",
        notes(config_json)
    );
    assert!(notes("{}").contains("version 1"), "{}", notes("{}"));
    // its zero points are any of the range
    let symmetric = notes(r#"{"quant_method":"gptq","bits":8,"sym":true}"#);
    assert!(symmetric.starts_with("`sym`: true"), "{symmetric}");
    assert!(!symmetric.contains('\n'), "{symmetric}");
}
