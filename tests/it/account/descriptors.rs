//! Settings and descriptors of weights: one that says what the file does not have, or what is not known, is refused or named; one
//! that is off, or known to be harmless, changes no byte.

use serde_json::{Value, json};

use super::changes::{Change, all, attribute, check, describe, remove, rename, set};
use super::said::Said::{Nothing, Refused, Warned};

#[test]
fn parts_that_settings_demand_are_missed() {
    // a setting of the weights of all groups
    let groups = |key: &'static str, value: Value| -> Change {
        Box::new(move |stored| {
            let changed = stored.change_settings(&|map| {
                for group in map["config_groups"].as_object_mut().unwrap().values_mut() {
                    group["weights"][key] = value.clone();
                }
            });
            assert!(changed, "no configuration");
        })
    };
    let order = |value: Value| groups("actorder", value);
    let symmetric = |value: Value| groups("symmetric", value);
    let other = |bits: u64, symmetric: bool| {
        let weights = json!({"num_bits": bits, "type": "int", "symmetric": symmetric});
        set("config_groups/group_9/weights", weights)
    };
    let no_index = Refused("`weight_g_idx` is missing");

    check(vec![
        (
            "ct_written/w4a16_sym_g128",
            symmetric(json!(false)),
            Refused("`symmetric`: false"),
        ),
        (
            "ct_written/w8a16_sym_g128",
            symmetric(json!(false)),
            Refused("`weight_zero_point` is missing"),
        ),
        (
            "ct_written/int8_channel_bf16",
            symmetric(json!(false)),
            Refused("`weight_zero_point` is missing"),
        ),
        (
            "ct_written/w4a16_sym_g128",
            symmetric(json!("False")),
            Refused("`weight_zero_point` is missing"),
        ),
        // groups of another width say nothing, and those that differ leave it open
        ("ct_written/w4a16_sym_g128", other(8, false), Nothing),
        ("ct_written/w4a16_sym_g128", other(4, false), Nothing),
        // a zero point that the configuration does not mention is used
        (
            "ct_written/w4a16_asym_g128",
            symmetric(json!(true)),
            Nothing,
        ),
        (
            "ct/g_idx",
            all(vec![order(json!("group")), remove(".weight_g_idx")]),
            no_index,
        ),
        (
            "ct_written/w4a16_sym_g128",
            order(json!("dynamic")),
            Refused("`actorder`: dynamic"),
        ),
        (
            "ct_written/w4a16_sym_g128",
            order(json!(true)),
            Refused("`actorder`: true"),
        ),
        ("ct_written/w4a16_sym_g128", order(json!("weight")), Nothing),
        ("ct_written/w4a16_sym_g128", order(json!("static")), Nothing),
        // one group for all columns
        ("ct_written/w4a16_channel", order(json!("group")), Nothing),
        (
            "quark/uint4_group_order",
            remove(".weight_zero_point"),
            Refused("`symmetric`: false"),
        ),
        (
            "quark_more/fp8_int4_per_channel",
            remove(".weight_zero_point_2"),
            Refused("`weight_zero_point_2` is missing"),
        ),
        (
            "quark_more/scales_int4_per_group_fp8_e4m3",
            remove(".weight_scale_2"),
            Refused("`weight_scale_2` is missing"),
        ),
        (
            "torchao/int4",
            remove("_zero_point"),
            Refused("`zero_point` is missing"),
        ),
        (
            "torchao/nvfp4",
            remove("_per_tensor_scale"),
            Refused("`per_tensor_scale` is missing"),
        ),
        (
            "mlx/affine4_g64",
            remove(".biases"),
            Refused("`biases` is missing"),
        ),
        (
            "bnb/nf4_bf16",
            rename("__nf4", "__nf3"),
            Refused("its quant_state is of `nf3`"),
        ),
        (
            "field/modelopt-compressed-fp8",
            remove("._scale"),
            Refused("weight_quantizer._scale"),
        ),
        (
            "field/comfy-scaled-fp8-old",
            remove("q.scale_weight"),
            Refused("it has no scale"),
        ),
    ]);
}

#[test]
fn descriptors_are_compared_with_what_their_writers_have() {
    let mlx = "mlx/affine4_g64";
    let observer = "config_groups/group_0/weights/observer_kwargs";
    check(vec![
        (
            "bnb/nf4_dq_bf16",
            describe("quant_state", "transform", json!("hadamard")),
            Refused("`transform`"),
        ),
        (
            "bnb/nf4_dq_bf16",
            describe("quant_state", "writer", json!("x")),
            Warned("`writer`"),
        ),
        (
            "bnb/nf4_dq_bf16",
            describe("quant_state", "transform", json!(null)),
            Nothing,
        ),
        (
            "torchao/int4",
            attribute(
                "/_data",
                json!({"block_size": [1, 32], "shape": [12, 96], "rotation": 4}),
            ),
            Refused("`_data.rotation`: 4"),
        ),
        (
            "ct_written/fp8_channel_bf16",
            set(observer, json!({"rotation": true})),
            Refused("observer_kwargs.rotation"),
        ),
        (
            "ct_written/fp8_channel_bf16",
            set(observer, json!({"maxshrink": 0.2})),
            Nothing,
        ),
        (
            "ct_written/fp8_channel_bf16",
            set("config_groups/group_0/weights/scale_dtype", json!("float9")),
            Warned("scale_dtype"),
        ),
        (
            "ct_written/fp8_channel_bf16",
            set(
                "config_groups/group_0/weights/scale_dtype",
                json!("torch.bfloat16"),
            ),
            Nothing,
        ),
        (
            "ct_written/fp8_channel_bf16",
            set("rotation_size", json!(0)),
            Nothing,
        ),
        (
            "ct_written/fp8_channel_bf16",
            set("rotation_size", json!(64)),
            Refused("`rotation_size`: 64"),
        ),
        (mlx, set("rotate", json!(true)), Refused("`rotate`: true")),
        (
            mlx,
            set("hadamard", json!(true)),
            Refused("`hadamard`: true"),
        ),
        (
            mlx,
            set("compiled", json!(true)),
            Warned("`compiled`: true"),
        ),
        (
            mlx,
            set("model.layers.0.mlp.down_proj", json!(true)),
            Nothing,
        ),
        (mlx, set("layers.0.mlp.down_proj", json!(true)), Nothing),
        (mlx, set("model.embed_tokens", json!(true)), Nothing),
        (
            "quark/fp4",
            set("algo_config", json!([{"name": "gptq", "block_size": 128}])),
            Nothing,
        ),
        (
            "quark/fp4",
            set("algo_config", json!({"name": "gptq", "block_size": 128})),
            Nothing,
        ),
        (
            "quark/fp4",
            set("algo_config", json!([{"name": "rotation"}])),
            Refused("\"rotation\""),
        ),
        (
            "autoround/auto_gptq",
            set("enable_torch_compile", json!(true)),
            Nothing,
        ),
        (
            "autoround/auto_gptq",
            set("damp_percent", json!(0.01)),
            Nothing,
        ),
        (
            "gptq/4bit_act_asym_v1",
            set("checkpoint_format", json!("gptq_v3")),
            Refused("`gptq_v3`"),
        ),
    ]);
}
