//! Lists of modules that are not quantised, and of those that are, against the tensors of every scheme.

use anamnesis::Checkpoint;
use serde_json::{Value, json};

use super::StoredCheckpoint;
use super::changes::set;
use super::kinds_of_settings::configured;
use super::said::Said::{self, Nothing, Refused, Warned};
use super::said::{mentions, outputs, statements};
use super::uploads::{Row, hold, stored, with_file};
use crate::support::scratch_dir::ScratchDir;

/// The lists of all writers.
static LISTS: &[&str] = &[
    "modules_to_not_convert",
    "ignore",
    "ignored_layers",
    "exclude_modules",
    "llm_int8_skip_modules",
    "exclude",
    "skip_modules",
];

#[test]
fn quantised_weights_on_a_list_of_others_are_named() {
    let (mut lists, mut failures) = (0, Vec::new());
    for (case, intact, _, before) in configured() {
        let Some(name) = before.quantised().next() else {
            continue;
        };
        let module = name.strip_suffix(".weight").unwrap_or(&name).to_owned();
        let entries = [
            module.clone(),
            format!("re:{module}$"),
            format!("re:(other|{module})$"),
            format!("{module}*"),
        ];
        for (list, entry) in LISTS
            .iter()
            .flat_map(|list| entries.iter().map(move |e| (*list, e)))
        {
            let mut changed = intact.clone();
            assert!(changed.change_settings(&|map| {
                map.insert(list.to_owned(), json!([entry]));
            }));
            lists += 1;
            let plan = changed.plan("model.safetensors");
            if !mentions(&plan, list) || !mentions(&plan, &module) {
                failures.push(format!("{case} {list} {entry}: {}", statements(&plan)));
            }
            // honest lists name what is stored plain
            let mut honest = intact.clone();
            honest.change_settings(&|map| {
                map.insert(list.to_owned(), json!(["lm_head", "re:.*other.*", "x.y*"]));
            });
            let plan = honest.plan("model.safetensors");
            if plan.refused.len() > before.plan.refused.len()
                || mentions(&plan, "says that it is not")
            {
                failures.push(format!("{case} {list} of others: {}", statements(&plan)));
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {lists}:\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert!(lists >= 500, "only {lists}");
}

/// The key and the value of a setting, by the name of a module.
type ModuleSetting = dyn Fn(&str) -> (&'static str, Value);

#[test]
fn settings_of_single_modules_are_compared_with_them() {
    const GPTQ: &str = "gptq/4bit_act_asym_v2";
    const AUTOROUND: &str = "autoround/auto_gptq";
    const NVFP4: &str = "modelopt/nvfp4";
    const MLX: &str = "mlx/affine4_g64";
    const QUARK: &str = "quark/int4_group_order";
    let cases: Vec<(&str, &ModuleSetting, Said)> = vec![
        (
            GPTQ,
            &|_| ("dynamic", json!({"-:.*": {}})),
            Warned("`-:.*` in `dynamic`"),
        ),
        (GPTQ, &|_| ("dynamic", json!({"-:.*lm_head": {}})), Nothing),
        (
            AUTOROUND,
            &|m| ("extra_config", json!({m: {"bits": 16}})),
            Warned("`extra_config`"),
        ),
        (
            AUTOROUND,
            &|_| ("extra_config", json!({"lm_head": {"bits": 16}})),
            Nothing,
        ),
        (QUARK, &|m| ("exclude", json!([m])), Refused("`exclude`")),
        (
            QUARK,
            &|_| ("exclude", json!(["lm_head", "*.gate"])),
            Nothing,
        ),
        (
            NVFP4,
            &|m| ("quantized_layers", json!({m: {"quant_algo": "NVFP4"}})),
            Nothing,
        ),
        (
            NVFP4,
            &|_| {
                (
                    "quantized_layers",
                    json!({"other": {"quant_algo": "NVFP4"}}),
                )
            },
            Warned("`quantized_layers`"),
        ),
        (
            NVFP4,
            &|m| ("quantized_layers", json!({m: {"quant_algo": "FP8"}})),
            Refused("states floats E4M3"),
        ),
    ];
    let mut failures = Vec::new();
    let all = configured();
    for (path, setting, said) in cases {
        let (_, intact, _, before) = all.iter().find(|(case, ..)| case == path).unwrap();
        let name = before.quantised().next().unwrap();
        let (key, value) = setting(name.strip_suffix(".weight").unwrap());
        let mut changed = intact.clone();
        assert!(changed.change_settings(&|map| {
            map.insert(key.to_owned(), value.clone());
            if key == "quantized_layers" {
                map.insert("quant_algo".to_owned(), json!("MIXED_PRECISION"));
            }
        }));
        let plan = changed.plan("model.safetensors");
        if !said.holds(&plan) {
            failures.push(format!(
                "{path} {key} {value} {said:?}: {}",
                statements(&plan)
            ));
        }
    }
    let (_, mlx, _, before) = all.iter().find(|(case, ..)| case == MLX).unwrap();
    let module = before.quantised().next().unwrap();
    let module = module.strip_suffix(".weight").unwrap();
    let mut changed = mlx.clone();
    changed.change_settings(&|map| {
        map.insert(module.to_owned(), json!(false));
    });
    let plan = changed.plan("model.safetensors");
    if !Warned("says that it is not quantised").holds(&plan) {
        failures.push(format!("{MLX}: {}", statements(&plan)));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn plain_weights_with_settings_of_quantisation_are_named() {
    let rows: &[Row] = &[
        ("a.q.weight", "F8_E4M3", &[8, 64]),
        ("a.q.weight_scale", "F32", &[1]),
        ("a.k.weight", "BF16", &[8, 64]),
    ];
    let mixed = |layers: Value| json!({"quantization_config": {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}});
    let group = |targets: Value| json!({"quantization_config": {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"group_0": {"targets": targets, "weights": {"num_bits": 8, "type": "float", "strategy": "tensor"}}}}});
    let fp8 = json!({"quant_algo": "FP8"});
    let cases = [
        (mixed(json!({"a.q": fp8})), Nothing),
        // a multimodal model under another prefix
        (mixed(json!({"x.layers.0.q": fp8, "a.q": fp8})), Nothing),
        (
            mixed(json!({"a.q": fp8, "a.k": fp8})),
            Warned("`a.k.weight`: `quantized_layers`"),
        ),
        (group(json!(["Linear"])), Nothing),
        (
            group(json!(["a.q", "a.k"])),
            Warned("`a.k.weight`: `targets`"),
        ),
    ];
    hold(cases.map(|(config, said)| {
        let text = config.to_string();
        (
            text.clone(),
            with_file(stored(rows), "config.json", &text),
            said,
        )
    }));
}

#[test]
fn settings_of_hqq_are_those_of_its_layers() {
    let (mut compared, mut failures) = (0, Vec::new());
    for (path, intact) in super::containers::written() {
        if !path.to_string_lossy().contains("/quant/hqq/") {
            continue;
        }
        let before = intact.plan("model.safetensors");
        for (key, value) in [
            ("nbits", json!(7)),
            ("group_size", json!(7)),
            ("axis", json!(7)),
        ] {
            let has = |end: &str| intact.tensors.iter().any(|t| t.name.ends_with(end));
            if !has(&format!(".{key}")) || !before.refused.is_empty() {
                continue;
            }
            let config = json!({"quantization_config": {"quant_method": "hqq", "quant_config": {"weight_quant_params": {key: value}}}});
            let changed = with_file(intact.clone(), "config.json", &config.to_string());
            compared += 1;
            let plan = changed.plan("model.safetensors");
            if !Refused("states").holds(&plan) {
                failures.push(format!("{} {key}: {}", path.display(), statements(&plan)));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(compared >= 20, "only {compared}");
}

#[test]
fn a_recipe_with_rotations_refuses_every_scheme() {
    let quip = "quant_stage:\n  quant_modifiers:\n    QuIPModifier:\n      rotations: [u, v]\n";
    let honest = "default_stage:\n  default_modifiers:\n    AWQModifier:\n      targets: [Linear]\n      ignore: [lm_head, 're:.*rotation.*']\n";
    let mut failures = Vec::new();
    for (case, intact, _, before) in configured() {
        let with =
            |text: &str| with_file(intact.clone(), "recipe.yaml", text).plan("model.safetensors");
        let (rotated, same) = (with(quip), with(honest));
        if !mentions(&rotated, "`QuIPModifier` of recipe.yaml") || rotated.refused.is_empty() {
            failures.push(format!("{case}: {}", statements(&rotated)));
        }
        if same.unexplained != before.plan.unexplained || !same.refused.is_empty() {
            failures.push(format!("{case} honest: {}", statements(&same)));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn widths_of_single_modules_are_those_of_the_configuration() {
    // a layer of 8 bits among 4, whose shapes fit both
    let rows: &[Row] = &[
        ("a.0.q.qweight", "I32", &[16, 32]),
        ("a.0.q.qzeros", "I32", &[2, 8]),
        ("a.0.q.scales", "F16", &[2, 32]),
    ];
    let gptq = |dynamic: Value| json!({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": true, "checkpoint_format": "gptq", "dynamic": dynamic}});
    let auto = |extra: Value| json!({"quantization_config": {"quant_method": "auto-round", "bits": 4, "group_size": 32, "sym": true, "packing_format": "auto_round:auto_gptq", "extra_config": extra}});
    let own = json!({"bits": 8});
    for (config, is_said) in [
        (gptq(json!({"+:.*q$": own})), true),
        (gptq(json!({".*k$": own})), false),
        (auto(json!({"a.0.q": own})), true),
        (auto(json!({"a.0.k": own})), false),
    ] {
        let stored = with_file(stored(rows), "config.json", &config.to_string());
        let plan = stored.plan("model.safetensors");
        let noted = plan
            .notes
            .iter()
            .any(|note| note.contains("codes of 8 bits, by the shapes"));
        assert!(plan.refused.is_empty(), "{}", statements(&plan));
        assert_eq!(noted, !is_said, "{config}: {:?}", plan.notes);
    }
}

#[test]
fn assumptions_that_files_do_not_tell_are_notes() {
    let note = |case: &str, change: &dyn Fn(&mut StoredCheckpoint), text: &str| {
        let all = configured();
        let (_, intact, ..) = all.iter().find(|(other, ..)| other == case).unwrap();
        let mut changed = intact.clone();
        change(&mut changed);
        let plan = changed.plan("model.safetensors");
        let notes = &plan.notes;
        assert!(
            notes.iter().any(|note| note.contains(text)),
            "{case}: {notes:?} {}",
            statements(&plan)
        );
    };
    let e5m2 = |stored: &mut StoredCheckpoint| {
        for tensor in &mut stored.tensors {
            if tensor.dtype == "F8_E4M3" {
                tensor.dtype = "F8_E5M2".to_owned();
            }
        }
    };
    note("torchao/float8_row", &e5m2, "FP8 read as E5M2");
    note(
        "autoround/mxint4",
        &|_| {},
        "the files do not tell them apart",
    );
    let layer = json!({"*": {"weight": {"dtype": "uint4", "qscheme": "per_group", "group_size": 32, "symmetric": false}}});
    note(
        "awq_fast/fast_g128",
        &set("group_size", json!(64)),
        "padding of another size",
    );
    note(
        "awq/g128",
        &set("zero_point", json!(false)),
        "zero points are subtracted",
    );
    let symmetric = |stored: &mut StoredCheckpoint| {
        stored.change_settings(&|map| {
            for group in map["config_groups"].as_object_mut().unwrap().values_mut() {
                group["weights"]["symmetric"] = json!(true);
            }
        });
    };
    note(
        "ct_written/int8_channel_asym",
        &symmetric,
        "zero points are subtracted",
    );
    note(
        "ct_written/w4a16_asym_g128",
        &symmetric,
        "zero points are subtracted",
    );
    note(
        "quark/int4_group_order",
        &set("layer_quant_config", layer),
        "the files do not tell them apart",
    );
}

/// A pattern that is not understood could name the weight.
#[test]
fn patterns_that_are_not_understood_are_named() {
    let behind = r"(?!other).*";
    let cases: Vec<(&str, &ModuleSetting)> = vec![
        ("gptq/4bit_act_asym_v2", &|_| {
            ("dynamic", json!({r"-:(?!other).*": {}}))
        }),
        ("autoround/auto_gptq", &|_| {
            ("extra_config", json!({r"(?!other).*": {"bits": 16}}))
        }),
        ("ct_written/w4a16_asym_g128", &|_| {
            ("ignore", json!([r"re:(?!other).*"]))
        }),
        ("quark/int4_group_order", &|_| {
            ("exclude", json!(["*[", r"re:(?!other).*"]))
        }),
    ];
    let all = configured();
    let mut failures = Vec::new();
    for (path, setting) in cases {
        let (_, intact, ..) = all.iter().find(|(case, ..)| case == path).unwrap();
        let mut changed = intact.clone();
        let (key, value) = setting("");
        assert!(changed.change_settings(&|map| {
            map.insert(key.to_owned(), value.clone());
        }));
        let plan = changed.plan("model.safetensors");
        let warning = plan
            .unexplained
            .iter()
            .find(|text| text.contains("is not understood"));
        if !warning.is_some_and(|text| {
            text.contains(behind) && text.contains(key) && text.contains("look-around")
        }) {
            failures.push(format!("{path}: {}", statements(&plan)));
        }
    }
    // the targets of two groups, of which a weight has one
    let (_, intact, ..) = all
        .iter()
        .find(|(case, ..)| case == "ct_written/w4a16_asym_g128")
        .unwrap();
    let mut changed = intact.clone();
    changed.change_settings(&|map| {
        let groups = map["config_groups"].as_object_mut().unwrap();
        let mut other = groups.values().next().unwrap().clone();
        other["targets"] = json!([r"re:(?!other).*"]);
        groups.insert("group_9".to_owned(), other);
    });
    let plan = changed.plan("model.safetensors");
    if !mentions(&plan, r"`re:(?!other).*`") && !mentions(&plan, "`(?!other).*` in `targets`") {
        failures.push(format!("targets: {}", statements(&plan)));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Larger groups than the stored ones have the same padding, which is zero behind the stored ones.
#[test]
fn padding_with_scales_refuses_the_size_of_groups() {
    let rows: &[Row] = &[
        ("a.fc.qweight", "I16", &[2, 1024]),
        ("a.fc.scales", "F16", &[8, 8]),
        ("a.fc.scaled_zeros", "F16", &[8, 8]),
    ];
    let config = |size: u64| json!({"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": size, "version": "gemv_fast"}});
    let case = |size: u64, said| {
        let stored = with_file(stored(rows), "config.json", &config(size).to_string());
        (size.to_string(), stored, said)
    };
    hold([
        case(128, Nothing),
        case(256, Refused("there are more scales")),
    ]);
}

/// ModelOpt's blocks of 128 keep their sides as dimensions of 1.
#[test]
fn blocks_of_modelopt_have_four_dimensions() {
    let mut stored = stored(&[("a.fc.weight", "F8_E4M3", &[200, 300])]);
    let scales: Vec<u8> = (1u8..=6).flat_map(|n| f32::from(n).to_le_bytes()).collect();
    stored.add_tensor("a.fc.weight_scale", "F32", &[2, 1, 3, 1], &scales);
    let config =
        json!({"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"}});
    let stored = with_file(stored, "config.json", &config.to_string());
    let directory = ScratchDir::new("modelopt-blocks");
    let path = stored.write(&directory, "model.safetensors");
    let (plan, made) = outputs(&Checkpoint::open(path).unwrap());
    assert!(
        plan.refused.is_empty() && plan.unexplained.is_empty(),
        "{}",
        statements(&plan)
    );
    let [(_, made)] = &made[..] else { panic!() };
    // BF16
    let values: Vec<f32> = made
        .as_chunks()
        .0
        .iter()
        .map(|b| f32::from_bits(u32::from(u16::from_le_bytes(*b)) << 16))
        .collect();
    // the code 1 is the smallest number, 2^-9
    for (at, value) in values.iter().enumerate() {
        let (row, col) = (at / 300, at % 300);
        let block = u8::try_from(row / 128 * 3 + col / 128 + 1).unwrap();
        assert_eq!(*value, f32::from(block) / 512.0, "{row} {col}");
    }
    assert_eq!(values.len(), 200 * 300);
}
