//! Settings of single layers, and parts that only some schemes have.

use anamnesis::{Checkpoint, remember};
use serde_json::{Value, json};

use super::StoredCheckpoint;
use super::changes::{Change, all, check, set};
use super::kinds::{intact, part};
use super::said::Said::{Nothing, Refused, Warned};
use super::said::{mentions, statements};
use super::uploads::{Row, hold, hold_in, stored, with_file, with_metadata};
use crate::support::fixture;
use crate::support::scratch_dir::ScratchDir;

const GPTQ: &str = "gptq/4bit_act_asym_v2";
const QUARK: &str = "quark/int4_group_order";
const MXINT4: &str = "autoround/mxint4";

#[test]
fn settings_of_layers_are_read_or_refused() {
    let layer = json!({"Linear": {"weight": {"dtype": "uint4", "qscheme": "per_group"}}});
    check(vec![
        (
            QUARK,
            set("layer_type_quant_config", layer),
            Refused("layer_type_quant_config"),
        ),
        (QUARK, set("layer_type_quant_config", json!({})), Nothing),
        (
            GPTQ,
            set(
                "dynamic",
                json!({".*q_proj": {"checkpoint_format": "gptq"}}),
            ),
            Refused("checkpoint_format"),
        ),
        (
            GPTQ,
            set("dynamic", json!({".*q_proj": {"group_size": 64}})),
            Refused("64 columns"),
        ),
        (
            GPTQ,
            set(
                "dynamic",
                json!({".*k_proj": {"group_size": 64}, "-:.*lm_head": {}}),
            ),
            Warned("`.*k_proj` in dynamic"),
        ),
        // GPTQModel's two names of the method
        (GPTQ, set("method", json!("gptq")), Nothing),
        (GPTQ, set("method", json!("awq")), Refused("`method`")),
        ("awq/g128", set("method", json!("awq")), Nothing),
        (
            MXINT4,
            set("extra_config", json!({r".*\.b": {"data_type": "mx_fp"}})),
            Nothing,
        ),
        (
            MXINT4,
            set("extra_config", json!({"m.(?=a)": {"data_type": "mx_fp"}})),
            Refused("`m.(?=a)`"),
        ),
        // the same codes, whether it is meant or not
        (
            MXINT4,
            set("extra_config", json!({"m.(?=a)": {"bits": 16}})),
            Warned("`m.(?=a)` in `extra_config`"),
        ),
    ]);
}

/// A checkpoint of INT8 whose configuration has these groups.
fn groups(groups: Value) -> StoredCheckpoint {
    let rows: &[Row] = &[
        ("l.0.down_proj.weight", "I8", &[8, 64]),
        ("l.0.down_proj.weight_scale", "F32", &[8, 1]),
    ];
    let config = json!({"quantization_config": {
        "quant_method": "compressed-tensors", "format": "int-quantized", "config_groups": groups,
    }});
    with_file(stored(rows), "config.json", &config.to_string())
}

#[test]
fn groups_of_targets_are_those_of_the_module() {
    let group = |target: &str, kind: &str, symmetric: bool| json!({"targets": [target], "weights": {"num_bits": 8, "type": kind, "strategy": "channel", "symmetric": symmetric}});
    let linear = || group("Linear", "int", true);
    let with = |other: Value| groups(json!({"group_0": linear(), "group_1": other}));
    let floats = Refused("states floats");
    hold([
        ("one".to_owned(), groups(json!({"a": linear()})), Nothing),
        (
            "pattern".to_owned(),
            with(group("re:.*down_proj", "float", true)),
            floats,
        ),
        (
            "name".to_owned(),
            with(group("l.0.down_proj", "float", true)),
            floats,
        ),
        (
            "another".to_owned(),
            with(group("re:.*up_proj$", "float", true)),
            Nothing,
        ),
        (
            "zero points".to_owned(),
            with(group("l.0.down_proj", "int", false)),
            Refused("`weight_zero_point` is missing"),
        ),
        (
            "alternatives".to_owned(),
            with(group("re:.*(up|down)_proj", "float", true)),
            floats,
        ),
        // not understood, so that any of the groups may be meant
        (
            "unknown".to_owned(),
            with(group("re:.*(?=down)", "float", true)),
            Warned("`.*(?=down)` in `targets`"),
        ),
    ]);
}

#[test]
fn modules_that_are_not_there_are_named() {
    let plan = |config: Value| {
        let mut stored =
            StoredCheckpoint::read(&fixture("quant/mlx/affine2_g128_stack/model.safetensors"));
        stored.change_file("config.json", &|whole| {
            whole.insert("quantization".to_owned(), config.clone());
        });
        stored.plan("model.safetensors")
    };
    let named = |config: Value| {
        let plan = plan(config);
        plan.notes.iter().any(|note| note.contains("`a.other`"))
    };
    let own = json!({"bits": 2, "group_size": 128});
    assert!(!named(json!({"bits": 4, "group_size": 64, "a.fc": own})));
    assert!(named(json!({"bits": 4, "group_size": 64, "a.other": own})));
}

#[test]
fn factors_of_columns_are_of_few_schemes() {
    let (mut added, mut failures) = (0, Vec::new());
    for (case, intact, before) in intact() {
        let has_own = ["modelopt/", "comfy-nvfp4", "modelopt-compressed"];
        if has_own.iter().any(|has| case.contains(has)) || part(&intact, &["codes"]).is_empty() {
            continue;
        }
        for job in before.plan.jobs.iter().filter(|job| job.parts.len() > 1) {
            let name = &job.output.name;
            let (Some(stem), &[_, cols]) = (name.strip_suffix(".weight"), &job.output.shape[..])
            else {
                continue;
            };
            let cols = usize::try_from(cols).unwrap();
            let mut changed = intact.clone();
            let factor = format!("{stem}.pre_quant_scale");
            changed.add_tensor(&factor, "F32", &[cols], &0.5f32.to_le_bytes().repeat(cols));
            added += 1;
            let plan = changed.plan("model.safetensors");
            if plan.refused.is_empty() && !mentions(&plan, "pre_quant_scale") {
                failures.push(format!("{case} {name}: {}", statements(&plan)));
            }
        }
    }
    assert!(failures.is_empty(), "{added}:\n{}", failures.join("\n"));
    assert!(added >= 100, "only {added}");
}

const WEIGHT: Row = ("model.layers.0.down_proj.weight", "F8_E4M3", &[24, 96]);

#[test]
fn columns_of_factors_beside_float8_are_named() {
    let cases: &[(&'static str, &'static str)] = &[
        ("m.l.qdata", "m.l.amax"),
        ("m.l.fp8", "m.l.s"),
        ("m.l.weight_q", "m.l.wscale"),
        ("m.l.w", "m.l.weight_s"),
        ("m.l.weight", "amax.m.l.weight"),
        ("m.l.weight", "M.L.WEIGHT_SCALE"),
        ("m.l.weight", "m.l.lora_scale"),
        ("m.l.base_layer.weight", "l.scale"),
        ("m.l.base_layer.weight", "m.l.scale"),
        ("w", "weight_scales.w"),
        ("w", "w/scale"),
        ("weights.0", "s.0"),
    ];
    hold(
        cases
            .iter()
            .filter(|(_, scale)| *scale != "l.scale")
            .map(|&(weight, scale)| {
                let rows: &[Row] = &[(weight, "F8_E4M3", &[24, 96]), (scale, "F32", &[24, 1])];
                let said = match scale {
                    "weight_scales.w" | "amax.m.l.weight" => Refused(scale),
                    _ => Warned(scale),
                };
                (format!("{weight} {scale}"), stored(rows), said)
            }),
    );
    let honest: &[Row] = &[
        ("a.modulation", "F8_E4M3", &[24, 96]),
        ("a.gamma", "F32", &[24]),
        ("a.table", "F32", &[6, 24]),
        ("b.norm.gamma", "F32", &[24]),
        ("b.weight", "F8_E4M3", &[24, 24]),
    ];
    hold([("honest".to_owned(), stored(honest), Nothing)]);
}

#[test]
fn an_output_layer_is_scaled_as_the_layers_are() {
    let rows: &[Row] = &[
        WEIGHT,
        ("model.layers.0.down_proj.weight_scale", "F32", &[24, 1]),
        ("lm_head.weight", "F8_E4M3", &[24, 96]),
    ];
    hold([(
        "lm_head".to_owned(),
        stored(rows),
        Warned("`lm_head.weight`"),
    )]);
}

#[test]
fn values_of_dictionaries_beside_those_of_weights() {
    let with = |key: &str, value: Value| {
        let mut stored = stored(&[WEIGHT]);
        stored.metadata.insert(key.to_owned(), value);
        stored
    };
    let key = "scale.model.layers.0.down_proj.weight";
    let inner = "x.weight.meta.scale";
    let mut dictionary = stored(&[("x.weight.data", "F8_E4M3", &[24, 96])]);
    dictionary.metadata.insert(inner.to_owned(), json!(0.02));
    hold_in(
        "model.pth",
        [
            ("parallel".to_owned(), with(key, json!(0.02)), Refused(key)),
            ("inner".to_owned(), dictionary, Refused(inner)),
            ("honest".to_owned(), with("epoch", json!(3)), Nothing),
        ],
    );
    let packed: &[Row] = &[
        ("x._packed_params.0", "I8", &[8, 64]),
        ("norm.weight", "BF16", &[2000]),
    ];
    for file in ["model.pth", "model.safetensors"] {
        hold_in(
            file,
            [(
                "packed".to_owned(),
                stored(packed),
                Refused("_packed_params"),
            )],
        );
    }
}

#[test]
fn headers_of_several_files_have_their_own_layers() {
    let shard = |layer: &str, directory: &ScratchDir, file: &str| {
        let layers = json!({"layers": {layer: {"format": "int8_tensorwise"}}});
        let mut part = with_metadata(
            StoredCheckpoint::default(),
            json!({"_quantization_metadata": layers.to_string()}),
        );
        part.add_tensor(&format!("{layer}.weight"), "I8", &[8, 64], &[1; 512]);
        part.add_tensor(&format!("{layer}.weight_scale"), "F32", &[8, 1], &[1; 32]);
        part.write(directory, file);
    };
    let directory = ScratchDir::new("account-layers");
    shard("b.0.q", &directory, "model-00001-of-00002.safetensors");
    shard("b.1.q", &directory, "model-00002-of-00002.safetensors");
    let checkpoint = Checkpoint::open(directory.path("")).unwrap();
    let plan = remember(&checkpoint).plan().unwrap();
    assert!(Nothing.holds(&plan), "{}", statements(&plan));
    assert!(plan.jobs.iter().all(|job| job.scheme == "int8"));
}

#[test]
fn settings_of_architectures_are_no_rotations() {
    let member = |key: &'static str, value: Value| -> Change {
        Box::new(move |stored| {
            stored.change_file("config.json", &|whole| {
                whole.insert(key.to_owned(), value.clone());
            });
        })
    };
    let harmless = [
        ("rotate_every_two", json!(true)),
        ("rotate_half", json!(true)),
        ("random_rotation", json!(true)),
        ("rotated_boxes", json!(true)),
        ("rotation_mode", json!("bilinear")),
        ("rotation_augmentation", json!(true)),
        ("transform", json!({"mean": [0.5]})),
        ("permutation_invariant", json!(true)),
    ];
    let harmless = harmless.map(|(key, value)| member(key, value));
    check(vec![
        (GPTQ, all(Vec::from(harmless)), Nothing),
        (
            GPTQ,
            member("transform", json!({"type": "hadamard"})),
            Refused("transform"),
        ),
        (
            GPTQ,
            member("transform", json!("hadamard")),
            Refused("transform"),
        ),
    ]);
}
