//! Parts that the same weight of other layers has: every quantised checkpoint of the fixtures, stored three times as the layers of one
//! model, lacks each part of the second layer in turn.

use std::collections::BTreeSet;

use anamnesis::plan::{PLAIN, Plan};
use anamnesis::{Checkpoint, remember};
use serde_json::{Map, Value, json};

use super::StoredCheckpoint;
use super::containers::CONTAINERS;
use super::said::Said::{Nothing, Refused, Warned};
use super::said::{outputs, statements};
use super::uploads::{Row, hold, stored, with_file};
use crate::support::scratch_dir::ScratchDir;

const LAYERS: usize = 3;

/// The name of a tensor or module in one of the layers: with another number, or behind one.
fn in_layer(name: &str, layer: usize) -> String {
    let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let parts: Vec<&str> = name.split('.').collect();
    // the last two components may be a module that is called by a number, and its parameter
    let number = parts
        .iter()
        .take(parts.len().saturating_sub(2))
        .position(is_number);
    let Some(at) = number.filter(|at| *at > 0) else {
        return format!("stack.{layer}.{name}");
    };
    let mut parts: Vec<String> = parts.into_iter().map(str::to_owned).collect();
    parts[at] = layer.to_string();
    parts.join(".")
}

/// The names of tensors and of the modules around them.
fn names(stored: &StoredCheckpoint) -> BTreeSet<String> {
    let tensors = stored.tensors.iter().map(|tensor| tensor.name.as_str());
    let around = |name: &'_ str| {
        let ends = name.match_indices('.').map(|(at, _)| name[..at].to_owned());
        ends.chain([name.to_owned()]).collect::<Vec<_>>()
    };
    tensors.flat_map(around).collect()
}

/// Whether a key or a text is the name of a tensor, of a module or of its weight.
fn is_name(text: &str, names: &BTreeSet<String>) -> bool {
    let module = text.strip_suffix(".weight").unwrap_or(text);
    let is_long = text.contains('.') || text.bytes().all(|b| b.is_ascii_digit());
    is_long && (names.contains(text) || names.contains(module))
}

/// Whether a key of the metadata is of a weight: a value in its module, or torchao's description.
fn is_of_weight(key: &str, names: &BTreeSet<String>) -> bool {
    let module = key.split_once('.').map(|(module, _)| module);
    module.is_some_and(|module| names.contains(module)) || names.contains(&format!("_{key}_qdata"))
}

/// A setting of the whole model, with the settings of its modules for each layer.
fn for_layers(value: &Value, names: &BTreeSet<String>) -> Value {
    match value {
        Value::Object(map) => {
            let rows = map.iter().flat_map(|(key, value)| {
                let value = for_layers(value, names);
                let keys = match is_name(key, names) {
                    true => (0..LAYERS).map(|layer| in_layer(key, layer)).collect(),
                    false => vec![key.clone()],
                };
                keys.into_iter().map(move |key| (key, value.clone()))
            });
            Value::Object(rows.collect::<Map<_, _>>())
        }
        Value::Array(items) => {
            let items = items.iter().flat_map(|item| match item.as_str() {
                Some(name) if is_name(name, names) => (0..LAYERS)
                    .map(|layer| json!(in_layer(name, layer)))
                    .collect(),
                _ => vec![for_layers(item, names)],
            });
            Value::Array(items.collect())
        }
        Value::String(text) => match serde_json::from_str::<Value>(text) {
            Ok(inner @ (Value::Object(_) | Value::Array(_))) => {
                let changed = for_layers(&inner, names);
                match changed == inner {
                    true => value.clone(),
                    false => json!(changed.to_string()),
                }
            }
            _ => value.clone(),
        },
        other => other.clone(),
    }
}

/// The model whose layers are each this checkpoint.
fn layered(stored: &StoredCheckpoint) -> StoredCheckpoint {
    let names = names(stored);
    let mut made = StoredCheckpoint::default();
    for layer in 0..LAYERS {
        for tensor in &stored.tensors {
            let mut tensor = tensor.clone();
            tensor.name = in_layer(&tensor.name, layer);
            made.tensors.push(tensor);
        }
        let fields = stored.fields.iter();
        made.fields.extend(
            fields
                .map(|(name, field, value)| (in_layer(name, layer), field.clone(), value.clone())),
        );
    }
    for (key, value) in &stored.metadata {
        let value = for_layers(value, &names);
        match is_of_weight(key, &names) {
            true => made
                .metadata
                .extend((0..LAYERS).map(|layer| (in_layer(key, layer), value.clone()))),
            false => drop(made.metadata.insert(key.clone(), value)),
        }
    }
    made.beside = stored.beside.clone();
    for (_, text) in &mut made.beside {
        let whole: Value = serde_json::from_slice(text).unwrap();
        *text = for_layers(&whole, &names).to_string().into_bytes();
    }
    made
}

type Outputs = Vec<(String, Vec<u8>)>;

fn made(stored: &StoredCheckpoint, file: &str) -> Option<(Plan, Outputs)> {
    let directory = ScratchDir::new("across-layers");
    Some(outputs(
        &Checkpoint::open(stored.write(&directory, file)).ok()?,
    ))
}

/// The bytes of an output.
fn bytes<'o>(all: &'o Outputs, name: &str) -> Option<&'o Vec<u8>> {
    let found = all.iter().find(|(other, _)| other == name);
    found.map(|(_, bytes)| bytes)
}

#[test]
fn a_part_that_one_layer_lacks_is_missed() {
    for container in CONTAINERS {
        let (mut models, mut removed) = (0, 0);
        let (mut failures, mut unequal) = (Vec::new(), Vec::new());
        for (path, single) in (container.checkpoints)() {
            let Some((plan, alone)) = made(&single, container.file) else {
                continue;
            };
            if !plan.refused.is_empty() || plan.jobs.iter().all(|job| job.scheme == PLAIN) {
                continue;
            }
            let intact = layered(&single);
            let Some((before, whole)) = made(&intact, container.file) else {
                continue;
            };
            // three equal layers are made as one is
            let are_equal = alone.iter().all(|(name, one)| {
                (0..LAYERS).all(|layer| bytes(&whole, &in_layer(name, layer)) == Some(one))
            });
            if !are_equal || !before.refused.is_empty() || before.unexplained != plan.unexplained {
                unequal.push(format!("{}: {}", path.display(), statements(&before)));
                continue;
            }
            models += 1;
            let directory = ScratchDir::new("across-layers-parts");
            let file = intact.write(&directory, container.file);
            let checkpoint = Checkpoint::open(file).unwrap();
            let jobs = remember(&checkpoint).plan().unwrap().jobs;
            for job in jobs
                .iter()
                .filter(|job| job.scheme != PLAIN && job.parts.len() > 1)
            {
                let weight = &*job.output.name;
                let codes = &*checkpoint.catalog().tensors()[job.parts[0].tensor].name;
                let is_second =
                    (0..LAYERS).all(|layer| (in_layer(weight, layer) == weight) == (layer == 1));
                for part in job
                    .parts
                    .iter()
                    .filter(|part| is_second && part.role != "codes")
                {
                    let name = checkpoint.catalog().tensors()[part.tensor].name.to_string();
                    let mut changed = intact.clone();
                    changed.remove_tensor(&name);
                    removed += 1;
                    let Some((plan, after)) = made(&changed, container.file) else {
                        continue;
                    };
                    let is_same = bytes(&after, weight) == bytes(&whole, weight);
                    // by its name, or by the name of the weight or of its codes
                    let module = weight.strip_suffix(".weight").unwrap_or(weight);
                    let mut named = [&*name, module, codes].into_iter();
                    let is_named = named.any(|name| super::mentions(&plan, name));
                    if !is_same && !is_named {
                        let path = path.display();
                        failures.push(format!(
                            "{path} {name} ({}): {}",
                            job.scheme,
                            statements(&plan)
                        ));
                    }
                }
            }
        }
        let file = container.file;
        assert!(
            failures.is_empty(),
            "{file}, {removed}:\n{}",
            failures.join("\n")
        );
        assert!(
            unequal.is_empty(),
            "{file}, {models}:\n{}",
            unequal.join("\n")
        );
        assert!(models >= container.at_least, "{file}: only {models}");
    }
}

const CODES: &[usize] = &[8, 64];

/// INT8 in two layers, of which the first has zero points, under these groups.
fn zero_points_in_one_layer(groups: &Value) -> StoredCheckpoint {
    let rows: &[Row] = &[
        ("l.0.q.weight", "I8", CODES),
        ("l.0.q.weight_scale", "F32", &[8, 1]),
        ("l.0.q.weight_zero_point", "I8", &[8, 1]),
        ("l.1.q.weight", "I8", CODES),
        ("l.1.q.weight_scale", "F32", &[8, 1]),
    ];
    let config = json!({"quantization_config": {
        "quant_method": "compressed-tensors", "format": "int-quantized", "config_groups": groups,
    }});
    with_file(stored(rows), "config.json", &config.to_string())
}

#[test]
fn layers_with_settings_of_their_own_may_differ() {
    let group = |target: &str, symmetric: Value| {
        let weights =
            json!({"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": symmetric});
        json!({"targets": [target], "weights": weights})
    };
    let one = json!({"a": group("Linear", Value::Null)});
    let two = json!({"a": group("l.0.q", json!(false)), "b": group("re:l.1.*", json!(true))});
    let missing = Refused("`weight_zero_point` is missing, which the same weight of another layer");
    hold([
        (
            "one group".to_owned(),
            zero_points_in_one_layer(&one),
            missing,
        ),
        (
            "two groups".to_owned(),
            zero_points_in_one_layer(&two),
            Nothing,
        ),
    ]);
}

/// A matrix of NVFP4 as ModelOpt stores it.
fn nvfp4(stored: &mut StoredCheckpoint, module: &str, is_smoothed: bool) {
    stored.add_tensor(&format!("{module}.weight"), "U8", &[8, 32], &[1; 256]);
    stored.add_tensor(
        &format!("{module}.weight_scale"),
        "F8_E4M3",
        &[8, 4],
        &[56; 32],
    );
    stored.add_tensor(
        &format!("{module}.weight_scale_2"),
        "F32",
        &[],
        &1f32.to_le_bytes(),
    );
    if is_smoothed {
        let factors = 0.5f32.to_le_bytes().repeat(64);
        stored.add_tensor(&format!("{module}.pre_quant_scale"), "F32", &[64], &factors);
    }
}

#[test]
fn only_the_same_module_is_compared() {
    let model = |modules: &[(&str, bool)]| {
        let mut made = StoredCheckpoint::default();
        for (module, is_smoothed) in modules {
            nvfp4(&mut made, module, *is_smoothed);
        }
        let config =
            json!({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4_AWQ"}});
        with_file(made, "config.json", &config.to_string())
    };
    let plain: &[Row] = &[("l.2.fc.weight", "BF16", &[8, 64])];
    let mut last_is_plain = model(&[("l.0.fc", true), ("l.1.fc", true)]);
    last_is_plain.tensors.extend(stored(plain).tensors);
    let missing = Refused("`pre_quant_scale` is missing, which the same weight of another layer");
    hold([
        (
            "layers".to_owned(),
            model(&[("l.0.fc", true), ("l.1.fc", false)]),
            missing,
        ),
        (
            "experts".to_owned(),
            model(&[("l.0.experts.0.fc", true), ("l.0.experts.1.fc", false)]),
            missing,
        ),
        // ModelOpt folds the factors of a module into the norm in front of it
        (
            "another".to_owned(),
            model(&[("l.0.q", true), ("l.0.k", false)]),
            Nothing,
        ),
        (
            "a sequence".to_owned(),
            model(&[("l.0.mlp.0", true), ("l.0.mlp.2", false)]),
            Nothing,
        ),
        ("last".to_owned(), last_is_plain, Nothing),
    ]);
}

#[test]
fn layers_of_other_schemes_are_not_compared() {
    let rows: &[Row] = &[
        ("l.0.q.weight", "I8", CODES),
        ("l.0.q.weight_scale", "F32", &[8, 1]),
        ("l.0.q.weight_zero_point", "I8", &[8, 1]),
        ("l.1.q.weight", "F8_E4M3", CODES),
        ("l.1.q.weight_scale", "F32", &[8, 1]),
        ("l.2.q.weight", "BF16", CODES),
    ];
    let plan = stored(rows).plan("model.safetensors");
    assert!(plan.refused.is_empty(), "{}", statements(&plan));
    assert!(
        !super::mentions(&plan, "another layer"),
        "{}",
        statements(&plan)
    );
}

/// Codes that no scheme claims without their scale, under a name that a weight does not have.
#[test]
fn codes_without_the_scale_of_other_layers_are_no_integers() {
    let rows: &[Row] = &[
        ("l.0.q.weight._data", "I8", CODES),
        ("l.0.q.weight._scale", "BF16", &[8, 1]),
        ("l.1.q.weight._data", "I8", CODES),
        ("norm.weight", "BF16", &[2000]),
    ];
    hold([(
        "quanto".to_owned(),
        stored(rows),
        Refused("`_scale` is missing, which the same weight of another layer has"),
    )]);
    let data: &[Row] = &[
        ("l.0.q.weight._data", "I8", CODES),
        ("l.0.q.weight._scale", "BF16", &[8, 1]),
        ("l.1.other.relative_position", "I8", CODES),
    ];
    hold([("data".to_owned(), stored(data), Nothing)]);
}

/// llama.cpp's converter leaves out a factor of 1.
#[test]
fn a_factor_of_a_gguf_that_is_missing_is_a_warning() {
    let mut model = StoredCheckpoint::default();
    for layer in 0..2 {
        let name = format!("blk.{layer}.ffn_up.weight");
        // NVFP4 of 64 elements in 36 bytes
        model.add_tensor(&name, "40", &[8, 64], &[1; 8 * 36]);
    }
    model.add_tensor("blk.0.ffn_up.scale", "F32", &[1], &2f32.to_le_bytes());
    super::uploads::hold_in(
        "model.gguf",
        [(
            "scale".to_owned(),
            model,
            Warned("`scale` is missing, which the same weight of another layer has"),
        )],
    );
}
