//! Statements that stored weights contradict or lack: group sizes that no writer has, orders of columns that a recipe says and no index
//! has, axes, patterns that are not understood, and rotations that belong to no weight.

use serde_json::json;

use super::StoredCheckpoint;
use super::changes::{check, set};
use super::odd_parts::{INT8, with};
use super::said::Said::{Nothing, Refused, Warned};
use super::uploads::{Row, hold, stored, with_file};

#[test]
fn groups_of_rows_are_whole_words_that_divide_them() {
    let rows: &[Row] = &[
        ("a.fc.qweight", "I16", &[2, 1024]),
        ("a.fc.scales", "F16", &[16, 8]),
        ("a.fc.scaled_zeros", "F16", &[16, 8]),
    ];
    let gemv: &[Row] = &[
        ("a.fc.qweight", "I32", &[8, 128]),
        ("a.fc.qzeros", "I32", &[8, 2]),
        ("a.fc.scales", "F16", &[8, 16]),
    ];
    for (rows, version) in [(rows, "gemv_fast"), (gemv, "gemv")] {
        for size in [127, 100, 96, 1000, 12] {
            let config = json!({"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": size, "version": version}});
            let model = with_file(stored(rows), "config.json", &config.to_string());
            hold([(
                format!("{version} {size}"),
                model,
                Refused("none of 1024 inputs"),
            )]);
        }
    }
}

#[test]
fn an_order_of_columns_that_a_recipe_says_has_an_index() {
    let groups = |scales: usize| {
        let mut model = StoredCheckpoint::default();
        model.add_tensor("l.0.q.weight_packed", "I32", &[8, 32], &[1; 1024]);
        model.add_tensor(
            "l.0.q.weight_scale",
            "F32",
            &[8, scales],
            &vec![1; 32 * scales],
        );
        model.add_tensor(
            "l.0.q.weight_shape",
            "I64",
            &[2],
            &[8u64, 256].map(u64::to_le_bytes).concat(),
        );
        model
    };
    let config = |strategy: &str, version: &str| {
        let size = if strategy == "group" {
            json!(64)
        } else {
            json!(null)
        };
        let weights = json!({"num_bits": 4, "type": "int", "symmetric": true, "strategy": strategy, "group_size": size});
        json!({"quantization_config": {
            "quant_method": "compressed-tensors", "format": "pack-quantized", "version": version,
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
        }})
    };
    let recipe = |order: &str| {
        format!(
            "default_stage:\n  default_modifiers:\n    GPTQModifier:\n      actorder: {order}\n"
        )
    };
    let with = |model: StoredCheckpoint, config: serde_json::Value, order: &str| {
        let model = with_file(model, "config.json", &config.to_string());
        with_file(model, "recipe.yaml", &recipe(order))
    };
    let missing = Warned("`actorder`: group of `recipe.yaml`");
    let mut indexed = groups(4);
    let index: Vec<u8> = (0..256i32)
        .flat_map(|column| (column % 4).to_le_bytes())
        .collect();
    indexed.add_tensor("l.0.q.weight_g_idx", "I32", &[256], &index);
    hold([
        (
            "group".to_owned(),
            with(groups(4), config("group", "0.9.0"), "group"),
            missing,
        ),
        (
            "static".to_owned(),
            with(groups(4), config("group", "0.9.0"), "static"),
            Nothing,
        ),
        (
            "an index".to_owned(),
            with(indexed, config("group", "0.9.0"), "group"),
            Nothing,
        ),
        // no groups, and no index since 0.20
        (
            "channel".to_owned(),
            with(groups(1), config("channel", "0.9.0"), "group"),
            Nothing,
        ),
        (
            "newer".to_owned(),
            with(groups(4), config("group", "0.20.1"), "group"),
            Nothing,
        ),
    ]);
}

#[test]
fn rotations_of_no_weight_are_named() {
    let mut cases = Vec::new();
    for name in [
        "R1",
        "R1.weight",
        "spinquant.R_2",
        "model.R3_T",
        "rotation_matrix",
        "hadamard_K",
        "rotmat",
        "a.online_rotation.matrix",
    ] {
        for dtype in ["F32", "BF16", "F8_E4M3"] {
            cases.push((
                format!("{name} {dtype}"),
                with(INT8, name, dtype, &[16, 16]),
                Warned(name),
            ));
        }
    }
    for (name, dtype) in [
        ("rotation_signs", "F32"),
        ("hadamard", "I8"),
        ("perm", "I32"),
        ("m.permutation", "I64"),
    ] {
        cases.push((
            format!("{name} {dtype}"),
            with(INT8, name, dtype, &[16]),
            Warned(name),
        ));
    }
    // the name of a module behind the first word
    for name in ["perm.l.0.q", "zero_points.l.0.q"] {
        let model = with(INT8, name, "F32", &[16]);
        cases.push((name.to_owned(), model, Refused(name)));
    }
    for name in ["smooth_scale.l.0.q", "outlier.l.0.q", "x.l.0.q"] {
        let model = with(INT8, name, "F32", &[16]);
        cases.push((name.to_owned(), model, Warned(name)));
    }
    for name in [
        "rotary_emb.inv_freq",
        "R1",
        "transformer.bias",
        "permute_proj.bias",
        "ema.l.0.q.bias",
    ] {
        cases.push((
            format!("{name} honest"),
            with(INT8, name, "F32", &[16]),
            Nothing,
        ));
    }
    hold(cases);
}

/// Quark has groups along the columns, and loads no others (`Pack_4_bits._infer_scale_zero_point_shape` of its `torch/utils/pack.py`,
/// 0.8 to 0.13): the second axis is 1 or -1, and 0 would be groups of rows (`PerGroupMinMaxObserver`).
#[test]
fn quark_has_groups_along_the_second_axis() {
    const QUARK: &str = "quark/int4_group_order";
    let axis = |axis: i64| set("global_quant_config/weight/ch_axis", json!(axis));
    check(vec![
        (QUARK, axis(1), Nothing),
        (QUARK, axis(-1), Nothing),
        (QUARK, axis(0), Refused("states")),
    ]);
}

/// Lists of modules that are not quantised may have patterns of Python that are not understood: named, and no more.
#[test]
fn a_pattern_that_is_not_understood_is_a_warning() {
    let group = json!({"targets": ["Linear"], "weights": {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": true}});
    let config = json!({"quantization_config": {
        "quant_method": "compressed-tensors", "format": "int-quantized", "config_groups": {"a": group},
        "ignore": ["lm_head", r"re:^(?!model\.layers).*"],
    }});
    let rows: &[Row] = &[INT8[0], INT8[1], ("visual.0.q.weight", "BF16", &[8, 64])];
    let model = with_file(stored(rows), "config.json", &config.to_string());
    hold([("ignore".to_owned(), model, Warned("is not understood"))]);
}
