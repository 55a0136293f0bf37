//! Parts that an algorithm or a version has not, settings that say nothing where they must say something, and parts under names that
//! few writers use.

use serde_json::json;

use super::StoredCheckpoint;
use super::changes::{Change, all, attribute, check, describe, rename, set};
use super::said::Said::{Nothing, Refused, Warned};
use super::uploads::{Row, hold, hold_in, stored, with_file, with_metadata};
use crate::support::fixture;

const FP8: &[Row] = &[("l.0.fc.weight", "F8_E4M3", &[32, 64])];

/// Only `W4A8_AWQ` has a second scale, which is one number.
#[test]
fn the_step_of_activations_is_one_number_of_one_algorithm() {
    let weight = |stored: &StoredCheckpoint| {
        let mut names = stored.tensors.iter().map(|tensor| tensor.name.as_str());
        let scale = names.find_map(|name| name.strip_suffix(".weight_scale"));
        scale.unwrap().to_owned()
    };
    let step = |shape: &'static [usize]| -> Change {
        Box::new(move |stored| {
            let name = weight(stored) + ".weight_scale_2";
            let bytes = vec![1; 4 * shape.iter().product::<usize>()];
            stored.add_tensor(&name, "F32", shape, &bytes);
        })
    };
    check(vec![
        (
            "modelopt/int4_awq",
            step(&[24, 2]),
            Refused("weight_scale_2"),
        ),
        ("modelopt/int4_awq", step(&[]), Refused("weight_scale_2")),
        ("modelopt/int4_w4a8", all(vec![]), Nothing),
    ]);
}

#[test]
fn empty_texts_are_no_settings() {
    check(vec![
        (
            "bitnet/autobitlinear",
            set("linear_class", json!("")),
            Refused("linear_class"),
        ),
        (
            "autoround/e5m3_g32",
            set("data_type", json!("")),
            Refused("data_type"),
        ),
        ("bitnet/autobitlinear", set("note", json!("")), Nothing),
    ]);
}

/// Older files of GPTQ and AWQ name no method, and describe the weights of no other one.
#[test]
fn settings_of_bits_are_of_gptq_and_awq() {
    let int8: &[Row] = &[
        ("l.0.q.weight", "I8", &[8, 64]),
        ("l.0.q.weight_scale", "F32", &[8, 1]),
    ];
    let weights = json!({"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": true});
    let config = json!({"quantization_config": {
        "quant_method": "compressed-tensors", "format": "int-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    }});
    let model = || with_file(stored(int8), "config.json", &config.to_string());
    let beside = |name: &str, settings: serde_json::Value| {
        (
            name.to_owned(),
            with_file(model(), name, &settings.to_string()),
            Refused("bits"),
        )
    };
    hold([
        ("alone".to_owned(), model(), Nothing),
        beside("quantize_config.json", json!({"bits": 3, "group_size": 64})),
        beside(
            "quant_config.json",
            json!({"w_bit": 8, "q_group_size": 32, "version": "GEMM"}),
        ),
    ]);
}

/// Codes that are called symmetric have the middle of the range as zero point, in the version that stored them.
#[test]
fn zero_points_of_symmetric_codes_are_the_middle() {
    let notes = |path: &str, change: Change| {
        let mut model =
            StoredCheckpoint::read(&fixture(&format!("quant/gptq/{path}/model.safetensors")));
        change(&mut model);
        model.plan("model.safetensors").notes
    };
    let of_symmetry = |notes: &[String]| notes.iter().any(|note| note.contains("`sym`: true"));
    for (path, key, value) in [
        ("4bit_seq_sym_v1", "checkpoint_format", json!("gptq_v2")),
        ("4bit_act_asym_v1", "sym", json!(true)),
    ] {
        let notes = notes(path, set(key, value));
        assert!(of_symmetry(&notes), "{path}: {notes:?}");
    }
    let intact = notes("4bit_seq_sym_v1", all(vec![]));
    assert!(!of_symmetry(&intact), "{intact:?}");
}

#[test]
fn settings_that_contradict_themselves_or_are_absent_are_refused() {
    check(vec![
        (
            "gptq/4bit_seq_sym_v1",
            set("w_bit", json!(8)),
            Refused("bits"),
        ),
        ("gptq/4bit_seq_sym_v1", set("w_bit", json!(4)), Nothing),
        (
            "bnb/nf4_nested_bfloat16",
            describe("quant_state", "nested_dtype", json!(null)),
            Refused("nested_dtype"),
        ),
        (
            "quark_more/mx_fp4",
            rename(".weight", ".bias"),
            Refused("down_proj.bias"),
        ),
    ]);
}

#[test]
fn groups_of_torchao_divide_rows() {
    check(vec![
        (
            "torchao/int4",
            attribute("/_data/block_size/1", json!(33)),
            Refused("33"),
        ),
        (
            "torchao/intx_group",
            attribute("/_data/block_size/1", json!(33)),
            Refused("33"),
        ),
    ]);
}

#[test]
fn parts_of_rare_names_are_seen() {
    let fp8 = || stored(FP8);
    let part = |name: &str, dtype: &str, shape: &[usize]| {
        let mut model = fp8();
        model.add_tensor(
            name,
            dtype,
            shape,
            &vec![1; 4 * shape.iter().product::<usize>()],
        );
        model
    };
    hold([
        (
            "scale".to_owned(),
            with_metadata(fp8(), json!({"scale": "0.5"})),
            Warned("scale"),
        ),
        (
            "absmax".to_owned(),
            with_metadata(fp8(), json!({"absmax": "0.5"})),
            Warned("absmax"),
        ),
        (
            "perm".to_owned(),
            with_metadata(fp8(), json!({"perm": "0,1"})),
            Warned("perm"),
        ),
        (
            "lut".to_owned(),
            with_metadata(fp8(), json!({"lut": "a"})),
            Warned("lut"),
        ),
        (
            "config".to_owned(),
            with_file(fp8(), "config.json", r#"{"weight_scale": 0.5}"#),
            Warned("weight_scale"),
        ),
        (
            "settings of a method".to_owned(),
            with_file(fp8(), "awq_config.json", r#"{"w_bit": 4}"#),
            Warned("awq_config.json"),
        ),
        (
            "exponents".to_owned(),
            part("exponents.l.0.fc.weight", "F32", &[32]),
            Refused("exponents"),
        ),
        (
            "recipe".to_owned(),
            with_file(fp8(), "recipe.yaml", "a:\n  QuIPModifier: {}\n"),
            Refused("QuIPModifier"),
        ),
    ]);
    let values = |value: serde_json::Value| with_metadata(fp8(), value);
    hold_in(
        "model.pth",
        ["exponents", "multipliers", "amax", "shifts"].map(|mapping| {
            let name = format!("{mapping}.l.0.fc.weight");
            let model = values(json!({name: 2.0}));
            (mapping.to_owned(), model, Refused("l.0.fc.weight"))
        }),
    );
}
