//! Kinds of changes to the configuration of every quantised checkpoint of the fixtures: values in another case, values that are left
//! out, and the configuration of another method.

use serde_json::{Map, Value, json};

use super::StoredCheckpoint;
use super::kinds::{MadeOutputs, intact};
use super::said::Said::{Nothing, Refused, Warned};
use super::said::{mentions, statements};
use super::uploads::{Row, hold, stored, with_file};

/// Keys whose values are names of modules or of things beside the weights.
static NAMES: &[&str] = &[
    "targets",
    "ignore",
    "exclude",
    "modules_to_not_convert",
    "producer",
];

/// The paths of the texts of a configuration.
fn texts(map: &Map<String, Value>) -> Vec<String> {
    let mut found = Vec::new();
    let mut left: Vec<(String, &Value)> = map
        .iter()
        .map(|(key, value)| (format!("/{key}"), value))
        .collect();
    while let Some((path, value)) = left.pop() {
        let last = path.rsplit('/').next().unwrap();
        if NAMES.contains(&last) || last.contains('.') {
            continue;
        }
        match value {
            Value::String(_) => found.push(path),
            Value::Object(map) => {
                let inside = map.iter();
                left.extend(inside.map(|(key, value)| (format!("{path}/{key}"), value)));
            }
            Value::Array(items) => {
                let inside = items.iter().enumerate();
                left.extend(inside.map(|(i, value)| (format!("{path}/{i}"), value)));
            }
            _ => {}
        }
    }
    found.sort();
    found
}

fn settings(stored: &StoredCheckpoint) -> Option<Map<String, Value>> {
    let found = std::cell::RefCell::new(None);
    let mut copy = stored.clone();
    copy.change_settings(&|map| *found.borrow_mut() = Some(map.clone()));
    found.into_inner()
}

/// A checkpoint with other settings.
fn with(stored: &StoredCheckpoint, settings: &Map<String, Value>) -> StoredCheckpoint {
    let mut changed = stored.clone();
    assert!(changed.change_settings(&|map| *map = settings.clone()));
    changed
}

/// Every one of [`intact`] that has a configuration, with its settings.
pub(super) fn configured() -> Vec<(String, StoredCheckpoint, Map<String, Value>, MadeOutputs)> {
    let all = intact().into_iter().filter_map(|(case, stored, made)| {
        let settings = settings(&stored)?;
        Some((case, stored, settings, made))
    });
    all.collect()
}

#[test]
fn values_are_the_same_in_any_case() {
    let (mut changes, mut failures) = (0, Vec::new());
    for (case, stored, settings, before) in configured() {
        for path in texts(&settings) {
            for change in [str::to_uppercase, str::to_lowercase] {
                let mut other = Value::Object(settings.clone());
                let text = other.pointer_mut(&path).unwrap();
                let spelt = change(text.as_str().unwrap());
                if *text == spelt {
                    continue;
                }
                *text = Value::String(spelt);
                changes += 1;
                let changed = with(&stored, other.as_object().unwrap());
                let after = MadeOutputs::of(&changed).unwrap();
                if let Some(weight) = after.silently_other(&before) {
                    failures.push(format!("{case} {path}: {weight}"));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{changes}:\n{}", failures.join("\n"));
    assert!(changes >= 200, "only {changes}");
}

/// Settings without which nothing in a file tells two readings apart, by case and path.
static UNKNOWABLE: &[(&str, &str, &str)] = &[];

#[test]
fn missing_settings_are_defaults_or_missed() {
    let (mut changes, mut failures) = (0, Vec::new());
    for (case, stored, settings, before) in configured() {
        for path in texts(&settings) {
            let (parent, key) = path.rsplit_once('/').unwrap();
            let mut other = Value::Object(settings.clone());
            let Some(Value::Object(map)) = other.pointer_mut(parent) else {
                continue;
            };
            map.remove(key);
            changes += 1;
            let changed = with(&stored, other.as_object().unwrap());
            let after = MadeOutputs::of(&changed).unwrap();
            if let Some(weight) = after.silently_other(&before) {
                failures.push(format!("{case} {path}: {weight}"));
            }
        }
    }
    let is_known = |failure: &String| {
        let mut rows = UNKNOWABLE.iter();
        rows.any(|(case, path, _)| failure.starts_with(case) && failure.contains(path))
    };
    failures.retain(|failure| !is_known(failure));
    assert!(failures.is_empty(), "{changes}:\n{}", failures.join("\n"));
    assert!(changes >= 200, "only {changes}");
}

/// Settings of the numbers of weights.
static SIZES: &[&str] = &[
    "bits",
    "num_bits",
    "nbits",
    "group_size",
    "axis",
    "block_structure",
    "weight_block_size",
];

/// Sizes of groups or blocks of which a weight has one, so that a larger one is the same: `(case, path, value, reason)`.
static TOO_LARGE: &[(&str, &str, i64, &str)] = &[(
    "ct_written/",
    "/block_structure/1",
    5000,
    "one block across",
)];

#[test]
fn sizes_that_no_scheme_has_are_refused_or_named() {
    let (mut changes, mut failures) = (0, Vec::new());
    for (case, stored, settings, before) in configured() {
        let mut paths = Vec::new();
        let members = settings.iter();
        let mut left: Vec<(String, &Value)> = members
            .map(|(key, value)| (format!("/{key}"), value))
            .collect();
        while let Some((path, value)) = left.pop() {
            if path.contains("_activations")
                || path.contains("input_tensors")
                || path.contains("output_tensors")
            {
                continue;
            }
            // MLX's settings of all modules, where each has its own
            let of_modules = |key: &str| settings.values().any(|own| own.get(key).is_some());
            let is_unused = path.rfind('/') == Some(0) && of_modules(&path[1..]);
            let is_size = !is_unused && path.split('/').any(|key| SIZES.contains(&key));
            match value {
                Value::Number(_) if is_size => paths.push(path),
                Value::Object(map) => {
                    left.extend(
                        map.iter()
                            .map(|(key, value)| (format!("{path}/{key}"), value)),
                    );
                }
                Value::Array(items) => {
                    let items = items.iter().enumerate();
                    left.extend(items.map(|(i, value)| (format!("{path}/{i}"), value)));
                }
                _ => {}
            }
        }
        for path in paths {
            for wrong in [json!(-7), json!("4"), json!(5000)] {
                let mut other = Value::Object(settings.clone());
                *other.pointer_mut(&path).unwrap() = wrong.clone();
                changes += 1;
                let plan = with(&stored, other.as_object().unwrap()).plan("model.safetensors");
                let is_new = |note: &String| !before.plan.notes.contains(note);
                let says = !plan.refused.is_empty()
                    || !plan.unexplained.is_empty()
                    || plan.notes.iter().any(is_new);
                let is_known = |(start, end, value, _): &(&str, &str, i64, &str)| {
                    case.starts_with(start) && path.ends_with(end) && wrong.as_i64() == Some(*value)
                };
                if !says && !TOO_LARGE.iter().any(is_known) {
                    failures.push(format!("{case} {path} {wrong}"));
                }
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {changes}:\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert!(changes >= 200, "only {changes}");
}

#[test]
fn settings_with_two_values_are_refused() {
    let (mut changes, mut failures) = (0, Vec::new());
    for (case, stored, settings, _) in configured() {
        for path in texts(&settings) {
            let (parent, key) = path.rsplit_once('/').unwrap();
            let mut other = Value::Object(settings.clone());
            let Some(Value::Object(map)) = other.pointer_mut(parent) else {
                continue;
            };
            // a second entry of the same name, which no tree of JSON can have
            let again = format!("{key}\u{1}");
            map.insert(again.clone(), json!("another"));
            let mut changed = with(&stored, other.as_object().unwrap());
            let of_text = |text: &str| Value::String(text.to_owned()).to_string();
            for (_, text) in &mut changed.beside {
                let whole = String::from_utf8(text.clone()).unwrap();
                *text = whole.replace(&of_text(&again), &of_text(key)).into_bytes();
            }
            changes += 1;
            let plan = changed.plan("model.safetensors");
            if plan.refused.is_empty() || !mentions(&plan, "the first of two values") {
                failures.push(format!("{case} {path}: {}", statements(&plan)));
            }
        }
    }
    assert!(failures.is_empty(), "{changes}:\n{}", failures.join("\n"));
    assert!(changes >= 200, "only {changes}");
}

#[test]
fn names_that_are_repeated_elsewhere_are_warned_of_or_say_the_same() {
    let rows: &[Row] = &[
        ("q.weight", "F8_E4M3", &[8, 64]),
        ("q.weight_scale", "F32", &[8, 1]),
    ];
    let plain: &[Row] = &[("q.weight", "BF16", &[8, 64])];
    let quantisation = r#""quantization_config": {"quant_method": "fbgemm_fp8"}"#;
    let cases = [
        (
            rows,
            format!(r#"{{{quantisation}, "hidden_size": 64, "hidden_size": 32}}"#),
            Warned("`hidden_size` of config.json"),
        ),
        (
            rows,
            format!(r#"{{{quantisation}, "hidden_size": 64, "hidden_size": 64}}"#),
            Nothing,
        ),
        (
            rows,
            format!(r#"{{{quantisation}, {quantisation}}}"#),
            Nothing,
        ),
        (
            rows,
            format!(r#"{{"quantization_config": {{"quant_method": "zz"}}, {quantisation}}}"#),
            Refused("`quantization_config` of config.json"),
        ),
        (
            plain,
            r#"{"hidden_size": 64, "hidden_size": 32}"#.to_owned(),
            Nothing,
        ),
    ];
    hold(cases.map(|(rows, text, said)| {
        (
            text.clone(),
            with_file(stored(rows), "config.json", &text),
            said,
        )
    }));
    let marker = r#"{"format": "int8_tensorwise", "convrot": false, "convrot": true}"#;
    let mut marked = stored(&[
        ("b.weight", "I8", &[8, 64]),
        ("b.weight_scale", "F32", &[8, 1]),
    ]);
    marked.add_tensor("b.comfy_quant", "U8", &[marker.len()], marker.as_bytes());
    hold([(
        "marker".to_owned(),
        marked,
        Refused("`convrot` has two values"),
    )]);
}

#[test]
fn a_file_without_a_method_completes_the_first() {
    // FP4 under GPTQ, beside the file of an older GPTQ
    let rows: &[Row] = &[
        ("q.weight", "U8", &[8, 64]),
        ("q.weight_scale", "F8_E8M0", &[8, 4]),
    ];
    let config =
        json!({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32}});
    let one = with_file(stored(rows), "config.json", &config.to_string());
    let both = with_file(
        one.clone(),
        "quantize_config.json",
        r#"{"bits": 4, "group_size": 32}"#,
    );
    hold([
        ("one".to_owned(), one, Refused("is of `gptq`")),
        ("both".to_owned(), both, Refused("is of `gptq`")),
    ]);
}

/// A checkpoint of each method.
static METHODS: &[&str] = &[
    "awq/g128",
    "bitnet/autobitlinear",
    "bnb/nf4_f32",
    "ct_written/int8_channel_f32",
    "fbgemm/rows",
    "gptq/4bit_act_asym_v2",
    "hqq/4bit_ax1",
    "modelopt/nvfp4",
    "quanto/qint8",
    "quark/int4_group_order",
    "quark/fp4",
    "autoround/auto_gptq",
    "autoround/mxint4",
    "torchao/float8_row",
];

/// Tensors of two methods that have the same names and shapes, so that the configuration decides: `(tensors, configuration)`.
static ALIKE: &[(&str, &str, &str)] = &[(
    "autoround/gptqmodel",
    "gptq/4bit_act_asym_v2",
    "widths of 5 to 7 bits, which GPTQModel and AutoRound pack differently into words of the same shape",
)];

#[test]
fn configurations_of_other_methods_are_refused_or_named() {
    let (mut pairs, mut failures) = (0, Vec::new());
    let all = configured();
    let of = |case: &str| all.iter().find(|(other, ..)| other == case);
    for (case, stored, own, before) in &all {
        for other in METHODS {
            let (_, _, settings, _) = of(other).unwrap_or_else(|| panic!("no {other}"));
            if own.get("quant_method") == settings.get("quant_method") {
                continue;
            }
            pairs += 1;
            let after = MadeOutputs::of(&with(stored, settings)).unwrap();
            if let Some(weight) = after.silently_other(before) {
                failures.push(format!("{case} under {other}: {weight}"));
            }
        }
    }
    let is_known = |failure: &String| {
        let mut rows = ALIKE.iter();
        rows.any(|(tensors, method, _)| {
            failure.starts_with(tensors) && failure.contains(&format!(" under {method}"))
        })
    };
    failures.retain(|failure| !is_known(failure));
    assert!(failures.is_empty(), "{pairs}:\n{}", failures.join("\n"));
    assert!(pairs >= 1000, "only {pairs}");
}
