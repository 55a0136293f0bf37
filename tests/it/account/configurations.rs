//! The places of configurations, and what they say beside the known settings: a section is read at any depth, two that differ
//! and values that are not known refuse the weights, and what is off changes no byte.

use serde_json::{Map, Value, json};

use super::StoredCheckpoint;
use super::changes::{Change, check, set};
use super::said::Said::{self, Nothing, Refused, Warned};

/// The object at a path of keys, which is made where there is none.
fn object<'m>(whole: &'m mut Map<String, Value>, path: &str) -> &'m mut Map<String, Value> {
    path.split('.').fold(whole, |map, key| {
        let inside = map.entry(key).or_insert_with(|| json!({}));
        inside.as_object_mut().unwrap()
    })
}

/// Moves the section of `config.json` into an object at this path.
fn moved(path: &'static str) -> Change {
    Box::new(move |stored| {
        stored.change_file("config.json", &|whole| {
            let section = ["quantization_config", "quantization"]
                .iter()
                .find_map(|key| Some((*key, whole.remove(*key)?)));
            let (key, section) = section.unwrap();
            object(whole, path).insert(key.to_owned(), section);
        });
    })
}

/// Copies the section of `config.json` into an object at this path, with one setting changed.
fn copied(path: &'static str, key: &'static str, value: Value) -> Change {
    Box::new(move |stored| {
        stored.change_file("config.json", &|whole| {
            let mut section = whole["quantization_config"].clone();
            section[key] = value.clone();
            object(whole, path).insert("quantization_config".to_owned(), section);
        });
    })
}

/// Adds a member to `config.json`.
fn member(key: &'static str, value: Value) -> Change {
    in_file("config.json", key, value)
}

fn in_file(file: &'static str, key: &'static str, value: Value) -> Change {
    Box::new(move |stored| {
        stored.change_file(file, &|whole| {
            whole.insert(key.to_owned(), value.clone());
        });
    })
}

/// Writes a file in place of `config.json`, or beside it.
fn file(name: &'static str, value: Value, is_alone: bool) -> Change {
    Box::new(move |stored| {
        stored
            .beside
            .retain(|(other, _)| !(is_alone && other == "config.json"));
        let text = serde_json::to_vec(&value).unwrap();
        stored.beside.push((name.to_owned(), text));
    })
}

const GPTQ: &str = "gptq/4bit_act_asym_v2";
const FP8: &str = "ct_written/fp8_channel_bf16";
const NVFP4: &str = "modelopt/nvfp4";
const MLX: &str = "mlx/affine2_g64";

#[test]
fn a_section_is_read_at_any_place() {
    let places = [
        "text_config",
        "llm_config",
        "language_config",
        "thinker_config.text_config",
        "vision_config",
        "model",
        "a.b.c.d",
    ];
    // without it, zero points would be read as in version 1, and widths would be ambiguous
    let read = places
        .iter()
        .flat_map(|place| [GPTQ, MLX, FP8].map(|checkpoint| (checkpoint, moved(place), Nothing)));
    check(read.collect());
    check(vec![
        (
            GPTQ,
            moved("a.b.c.d.e"),
            Refused("`quantization_config` of `a.b.c.d.e`"),
        ),
        (
            GPTQ,
            member("sub_configs", json!([{"quantization_config": {"bits": 4}}])),
            Refused("`quantization_config` of `sub_configs.[]`"),
        ),
        (
            GPTQ,
            copied("text_config", "checkpoint_format", json!("gptq")),
            Refused("`checkpoint_format`: `gptq` of quantization_config of `text_config`"),
        ),
        (
            GPTQ,
            copied("text_config", "damp_percent", json!(0.1)),
            Nothing,
        ),
        (
            FP8,
            copied("audio_config", "quant_method", json!("new")),
            Refused("`quant_method`: `new` of quantization_config of `audio_config`"),
        ),
        (
            MLX,
            member("quantization_config", json!({"bits": 4, "group_size": 32})),
            Refused("`bits`"),
        ),
        (
            MLX,
            member("quantization_config", json!({"bits": 2, "group_size": 64})),
            Nothing,
        ),
    ]);
}

#[test]
fn further_files_are_configurations() {
    let settings = |version: &str| json!({"bits": 4, "group_size": 32, "desc_act": true, "sym": false, "checkpoint_format": version});
    let algorithm = |name: &str| json!({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": name}});
    check(vec![
        (
            GPTQ,
            file("quantize_config.json", settings("gptq_v2"), true),
            Nothing,
        ),
        (
            GPTQ,
            file("quantize_config.json", settings("gptq_v2"), false),
            Nothing,
        ),
        (
            GPTQ,
            file("quantize_config.json", settings("gptq"), false),
            Refused("`checkpoint_format`: `gptq` of quantize_config.json"),
        ),
        (
            NVFP4,
            file("hf_quant_config.json", algorithm("NVFP4"), true),
            Nothing,
        ),
        (
            NVFP4,
            file("hf_quant_config.json", algorithm("FP8"), false),
            Refused("`quant_algo`"),
        ),
        (
            NVFP4,
            file("hf_quant_config.json", json!({"quant_algo": "NVFP9"}), true),
            Refused("NVFP9"),
        ),
        (
            NVFP4,
            file(
                "hf_quant_config.json",
                json!({"quantization": "NVFP9"}),
                true,
            ),
            Refused("NVFP9"),
        ),
        (
            NVFP4,
            file("hf_quant_config.json", json!({"quant_algo": "NVFP4"}), true),
            Nothing,
        ),
        (
            NVFP4,
            in_file("hf_quant_config.json", "rotation", json!("hadamard")),
            Refused("`rotation`: `hadamard` of hf_quant_config.json"),
        ),
        (
            NVFP4,
            Box::new(move |stored| {
                file("hf_quant_config.json", algorithm("NVFP4"), false)(stored);
                in_file("hf_quant_config.json", "unknown", json!(1))(stored);
            }),
            Warned("`unknown`: 1 of hf_quant_config.json"),
        ),
        (
            NVFP4,
            file("hf_quant_config.json", json!({"quantization": null}), false),
            Nothing,
        ),
    ]);
}

/// The plan of FP8 in Mistral's own names, with this `params.json`.
fn mistral(params: &Value, has_scale: bool) -> anamnesis::plan::Plan {
    let mut stored = StoredCheckpoint::default();
    stored.add_tensor("layers.0.wo.weight", "F8_E4M3", &[8, 16], &[1; 128]);
    if has_scale {
        let scale = 0.5f32.to_le_bytes();
        stored.add_tensor("layers.0.wo.qscale_weight", "F32", &[], &scale);
    }
    let text = serde_json::to_vec(params).unwrap();
    stored.beside.push(("params.json".to_owned(), text));
    stored.plan("consolidated.safetensors")
}

#[test]
fn mistrals_params_are_a_configuration() {
    let quantised = |settings: Value| json!({"dim": 16, "quantization": settings});
    let known = json!({"qformat_weight": "fp8_e4m3", "qscheme_act": "TENSOR"});
    let with = |key: &str, value: Value| {
        let mut settings = known.clone();
        settings[key] = value;
        quantised(settings)
    };
    let cases = [
        (quantised(known.clone()), true, Nothing),
        (json!({"dim": 16}), true, Nothing),
        (
            with("qformat_weight", json!("fp8_had")),
            true,
            Refused("fp8_had"),
        ),
        (with("qformat_weight", json!("int4")), true, Refused("int4")),
        (
            with("rotation", json!("hadamard")),
            true,
            Refused("rotation"),
        ),
        (with("unknown", json!(5)), true, Warned("unknown")),
        (json!({"rotation": "hadamard"}), true, Refused("rotation")),
        (
            json!({"quantization_config": {"quant_method": "unknown"}}),
            true,
            Refused("unknown"),
        ),
        (
            json!({"quantization_args": {"scheme": "int4", "spinquant": true}}),
            true,
            Refused("quantization_args"),
        ),
        (
            quantised(known.clone()),
            false,
            Refused("`qscale_weight` is missing"),
        ),
    ];
    for (params, has_scale, said) in cases {
        let plan = mistral(&params, has_scale);
        assert!(
            said.holds(&plan),
            "{params} {said:?}: {}",
            super::said::statements(&plan)
        );
    }
}

#[test]
fn values_of_deciding_settings_are_known_texts() {
    const AWQ: &str = "awq/g128";
    const AUTOROUND: &str = "autoround/mxint4";
    const TORCHAO: &str = "torchao/int4";
    let refused = |checkpoint, path, value: Value, text| -> (&'static str, Change, Said) {
        (checkpoint, set(path, value), Refused(text))
    };
    check(vec![
        refused(AWQ, "quant_method", json!(7), "`quant_method`"),
        refused(AWQ, "quant_method", json!(["awq"]), "`quant_method`"),
        refused(
            GPTQ,
            "checkpoint_format",
            json!(["gptq_v2"]),
            "`checkpoint_format`",
        ),
        refused(GPTQ, "checkpoint_format", json!(2), "`checkpoint_format`"),
        refused(GPTQ, "format", json!("gptq"), "beside the `format` `gptq`"),
        refused(GPTQ, "meta", json!({"rotation": "hadamard"}), "`meta`"),
        refused(
            GPTQ,
            "meta",
            json!({"a": {"transform": {"type": "x"}}}),
            "`meta`",
        ),
        refused(
            AUTOROUND,
            "packing_format",
            json!("auto_round:zz"),
            "`packing_format`",
        ),
        refused(
            "autoround/auto_awq",
            "packing_format",
            json!("auto_round:auto_gptq"),
            "AWQ's layout",
        ),
        refused(TORCHAO, "quant_type", json!("int4_rotated"), "int4_rotated"),
        refused(
            TORCHAO,
            "quant_type",
            json!({"default": {"_type": "NewConfig"}}),
            "NewConfig",
        ),
        refused(
            TORCHAO,
            "quant_type",
            json!({"default": {"_type": "Int4WeightOnlyConfig", "_data": {"rotation": "x"}}}),
            "rotation",
        ),
        (
            TORCHAO,
            set(
                "quant_type",
                json!({"default": {"_type": "Int4WeightOnlyConfig", "_version": 2, "_data": {"group_size": 32}}}),
            ),
            Nothing,
        ),
        (
            TORCHAO,
            set("quant_type", json!("int4_weight_only")),
            Nothing,
        ),
    ]);
}

#[test]
fn specifications_of_quark_are_known() {
    const INT8: &str = "quark/int8_group_reorder";
    const INT3: &str = "quark_more/int3_zeros_per_group";
    const FP4: &str = "quark_more/fp4_e5m3_32";
    let spec =
        |checkpoint, key: &'static str, value: Value, text| -> (&'static str, Change, Said) {
            let change: Change = Box::new(move |stored| {
                let changed = stored.change_settings(&|map| {
                    map["global_quant_config"]["weight"][key] = value.clone();
                });
                assert!(changed, "no configuration");
            });
            (checkpoint, change, Refused(text))
        };
    let weight = |checkpoint, value: Value, text| -> (&'static str, Change, Said) {
        (
            checkpoint,
            set("global_quant_config/weight", value),
            Refused(text),
        )
    };
    check(vec![
        spec(INT8, "qscheme", json!("zz"), "qscheme"),
        spec(INT8, "dtype", json!("zz"), "zz"),
        spec(INT8, "dtype", json!("fp8_e4m3"), "fp8_e4m3"),
        weight(INT8, json!({"unknown": 1}), "Quark's configuration"),
        weight(INT8, Value::Null, "does not quantise it"),
        spec(
            FP4,
            "scale_format",
            json!(7),
            "`global_quant_config.weight.scale_format`: 7",
        ),
        spec(FP4, "scale_format", json!("e9m1"), "e9m1"),
        spec(FP4, "dtype", json!("fp4_rotated"), "fp4_rotated"),
        weight(FP4, json!({"unknown": 1}), "Quark's configuration"),
        spec(INT3, "symmetric", json!(true), "`symmetric`: true"),
        spec(
            "quark_more/int2_per_group",
            "qscheme",
            json!("zz"),
            "qscheme",
        ),
    ]);
}

#[test]
fn settings_that_are_off_say_nothing() {
    check(vec![
        (
            FP8,
            set("transform_config", json!({"config_groups": {}})),
            Nothing,
        ),
        (
            NVFP4,
            set("rotate", json!({"enable": false, "size": 128})),
            Nothing,
        ),
        (
            FP8,
            set("spinquant_config", json!({"r1": false, "r2": null})),
            Nothing,
        ),
        (
            FP8,
            member("spinquant_config", json!({"r1": false})),
            Nothing,
        ),
        (
            FP8,
            set(
                "transform_config",
                json!({"config_groups": {"R1": {"type": "hadamard"}}}),
            ),
            Refused("transform_config"),
        ),
        // transformers knows the first files of bitsandbytes by these
        (
            "bnb/int8",
            Box::new(|stored| {
                let changed = stored.change_settings(&|map| {
                    map.remove("quant_method");
                });
                assert!(changed, "no configuration");
            }),
            Nothing,
        ),
    ]);
}

#[test]
fn members_of_a_model_that_alter_weights_are_named() {
    check(vec![
        (FP8, member("permute", json!(true)), Warned("`permute`")),
        (FP8, member("lut", json!([1])), Warned("`lut`")),
        (FP8, member("had_dim", json!(64)), Warned("`had_dim`")),
        (
            FP8,
            member("smooth_scales", json!({"a": 1})),
            Warned("`smooth_scales`"),
        ),
        (
            FP8,
            member("gptq_config", json!({"rotation": "hadamard"})),
            Refused("`gptq_config`"),
        ),
        (
            FP8,
            member("quantization_configs", json!([{"quant_method": "new"}])),
            Refused("`quantization_configs`"),
        ),
        (
            FP8,
            member("codec", json!({"quantizer": {"codebook_dim": 8}})),
            Nothing,
        ),
        (
            FP8,
            member("codec", json!({"quantization": {"levels": 8}})),
            Nothing,
        ),
        (FP8, member("label_smoothing", json!(0.1)), Nothing),
    ]);
}

#[test]
fn settings_of_single_modules_have_any_prefix() {
    // the same bits per group: 4 bits in groups of 32, which make half of the columns
    let other = json!({"bits": 4, "group_size": 32});
    let module = "model.layers.0.mlp.down_proj";
    for name in [
        module.to_owned(),
        format!("language_model.{module}"),
        format!("text_model.language_model.{module}"),
        format!("{module}.weight"),
        "mlp.down_proj".to_owned(),
    ] {
        let path = crate::support::fixture(&format!("quant/{MLX}/model.safetensors"));
        let mut stored = StoredCheckpoint::read(&path);
        let columns = |stored: &StoredCheckpoint| {
            let plan = stored.plan("model.safetensors");
            assert!(plan.refused.is_empty(), "{name}: {:?}", plan.refused);
            plan.jobs[0].output.shape[1]
        };
        let before = columns(&stored);
        stored.change_file("config.json", &|whole| {
            object(whole, "quantization").insert(name.clone(), other.clone());
        });
        assert_eq!(columns(&stored) * 2, before, "{name}");
    }
}
