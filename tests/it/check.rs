//! `check`: the cases of `fixtures/ask`, statistics against sums over the values one by one, digests from where clients keep
//! them, and hostile files.

mod digests;
mod values;

use std::path::Path;

use anamnesis::check::{Check, CheckReport, DigestList, FindingLevel, check_path};
use anamnesis::{Checkpoint, Limits, OpenOptions, check};
use serde_json::Value;

use crate::support::writers::{StoredTensor, gguf, safetensors};
use crate::support::{fixture, is_memory_limit};

/// The status that the command returns for a report.
fn status(report: &CheckReport) -> u64 {
    match (report.readable, report.found(FindingLevel::Warning)) {
        (false, _) => 2,
        (true, true) => 1,
        (true, false) => 0,
    }
}

/// The check that a case asks for; its paths are below `fixtures/ask`.
fn configured(case: &Value) -> Check<'static> {
    let args: Vec<&str> = case["args"]
        .as_array()
        .unwrap()
        .iter()
        .map(|a| a.as_str().unwrap())
        .collect();
    let path = fixture("ask").join(args.last().unwrap());
    let check = check_path(path, &OpenOptions::new());
    match args[..] {
        [_] => check,
        ["--stats", _] => check.statistics(),
        ["--manifest", list, _] => {
            check.manifest(DigestList::read(fixture("ask").join(list)).unwrap())
        }
        _ => panic!("unknown arguments: {args:?}"),
    }
}

fn cases() -> Vec<Value> {
    let text = std::fs::read(fixture("ask/check.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// Whether a finding has all fields that a case expects, with equal values.
fn fits(found: &Value, expected: &Value) -> bool {
    expected.as_object().unwrap().iter().all(|(key, value)| {
        let found = &found[key];
        found == value || found.as_f64().is_some_and(|f| Some(f) == value.as_f64())
    })
}

#[test]
fn every_case_has_its_findings_and_status() {
    let mut seen = 0;
    for case in cases() {
        let id = case["id"].as_str().unwrap();
        // made in a temporary directory: see `digests`
        if id.starts_with("hf-") {
            continue;
        }
        seen += 1;
        let report = configured(&case)
            .run()
            .unwrap_or_else(|e| panic!("{id}: {e}"));
        let document = serde_json::to_value(&report).unwrap();
        let found = document["findings"].as_array().unwrap();
        assert_eq!(
            status(&report),
            case["exit"].as_u64().unwrap(),
            "{id}: {found:#?}"
        );
        let expected = case["findings"].as_array().map_or(&[][..], Vec::as_slice);
        for expected in expected {
            assert!(
                found.iter().any(|f| fits(f, expected)),
                "{id}: no {expected} in {found:#?}"
            );
        }
        // more rules than the case lists may name a file that cannot be opened
        for finding in found.iter().filter(|_| case["exit"] != 2) {
            let rule = expected.iter().find(|e| e["rule"] == finding["rule"]);
            assert!(
                rule.is_some_and(|e| e["level"] == finding["level"]),
                "{id}: {finding}"
            );
        }
        if let Some(text) = case["message_contains"].as_str() {
            assert!(
                report.findings.iter().any(|f| f.message.contains(text)),
                "{id}"
            );
        }
        for (name, expected) in case["stats"].as_object().into_iter().flatten() {
            let tensors = document["tensors"].as_array().unwrap();
            let tensor = tensors.iter().find(|t| t["name"] == **name).unwrap();
            compare_statistics(id, name, &tensor["values"], expected);
        }
    }
    assert!(seen >= 38, "{seen}");
}

fn compare_statistics(id: &str, name: &str, found: &Value, expected: &Value) {
    let close = |key: &str, found: &Value, expected: &Value, scale: f64| {
        let (found, expected) = (found.as_f64().unwrap(), expected.as_f64().unwrap());
        let allowed = 1e-9 * expected.abs().max(scale);
        assert!(
            (found - expected).abs() <= allowed,
            "{id} {name} {key}: {found}, expected {expected}"
        );
    };
    let std = expected["std"].as_f64().unwrap();
    for key in ["elements", "zeros", "min", "max", "std", "abs_max"] {
        close(key, &found[key], &expected[key], 0.0);
    }
    close("mean", &found["mean"], &expected["mean"], std);
    for (key, value) in expected["percentiles"].as_object().unwrap() {
        close(key, &found["percentiles"][key], value, std);
    }
    assert_eq!(found["bin_width"], 0.0, "{id} {name}");
}

/// Findings as text, without what depends on time.
fn findings(report: &CheckReport) -> String {
    serde_json::to_string(&(&report.findings, &report.tensors)).unwrap()
}

#[test]
fn findings_do_not_depend_on_the_number_of_threads() {
    for case in cases() {
        if case["id"].as_str().unwrap().starts_with("hf-") {
            continue;
        }
        let one = configured(&case).statistics().threads(1).run().unwrap();
        for threads in [2, 5] {
            let several = configured(&case)
                .statistics()
                .threads(threads)
                .run()
                .unwrap();
            assert_eq!(findings(&one), findings(&several), "{}", case["id"]);
        }
    }
}

#[test]
fn every_fault_of_a_directory_is_reported() {
    let scratch = crate::support::scratch_dir::ScratchDir::new("check-faults");
    for entry in std::fs::read_dir(fixture("ask/check/index-absent")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(
            entry.path(),
            scratch.path(entry.file_name().to_str().unwrap()),
        )
        .unwrap();
    }
    std::fs::remove_file(scratch.path("model-00002-of-00003.safetensors")).unwrap();
    std::fs::write(scratch.path("model-00003-of-00003.safetensors"), [0; 5000]).unwrap();
    let root = scratch.path("");
    let report = check_path(&root, &OpenOptions::new()).run().unwrap();
    let rules: Vec<&str> = report.findings.iter().map(|f| f.rule).collect();
    assert_eq!(
        rules,
        ["zero-header", "index-missing-file", "index-missing-tensor"]
    );
    assert!(!report.readable);
    // the first fault ends an opening that is to be complete
    assert!(Checkpoint::open(&root).is_err());
}

#[test]
fn rules_are_left_out_and_unknown_ones_are_refused() {
    let path = fixture("ask/check/nan.safetensors");
    let checkpoint = Checkpoint::open(&path).unwrap();
    let without = check(&checkpoint).allow("nan").run().unwrap();
    assert!(without.findings.is_empty());
    let only = check(&checkpoint).only("inf").run().unwrap();
    assert!(only.findings.is_empty());
    let headers = check(&checkpoint).headers().run().unwrap();
    assert!(headers.findings.is_empty() && headers.readable);
    let filtered = check(&checkpoint)
        .filter(|name| name.contains("q_proj"))
        .run()
        .unwrap();
    assert!(filtered.findings.is_empty());
    assert!(check(&checkpoint).only("nonsense").run().is_err());
}

#[test]
fn the_lines_of_a_list_are_steps() {
    let digest = "0".repeat(64);
    let lines: String = (0..100)
        .map(|n| format!("{digest}  /elsewhere/{n}.bin\n"))
        .collect();
    let list = anamnesis::check::DigestList::from_text(lines.as_bytes()).unwrap();
    let run = |steps| {
        let limits = Limits {
            steps,
            ..Limits::default()
        };
        let options = OpenOptions::new().limits(limits);
        let path = fixture("ask/check/nan.safetensors");
        check_path(&path, &options).manifest(list.clone()).run()
    };
    assert!(run(Limits::default().steps).is_ok());
    let refused = run(50).unwrap_err();
    assert!(
        matches!(
            refused.kind(),
            anamnesis::ErrorKind::Limit { limit: "steps", .. }
        ),
        "{refused}"
    );
}

#[test]
fn memory_is_bounded() {
    let limits = |memory| Limits {
        memory,
        ..Limits::default()
    };
    let path = fixture("ask/check/nan.safetensors");
    for memory in [1 << 10, 8 << 10, 64 << 10] {
        let options = OpenOptions::new().limits(limits(memory));
        if let Err(error) = check_path(&path, &options).statistics().run() {
            assert!(is_memory_limit(&error), "{memory}: {error}");
        }
    }
    let enough = OpenOptions::new().limits(limits(8 << 20));
    assert!(check_path(&path, &enough).statistics().run().is_ok());
}

#[test]
fn ids_of_special_tokens_have_rows() {
    let scratch = crate::support::scratch_dir::ScratchDir::new("check-token-ids");
    let matrix = |name: &str, rows: u8| {
        let values: Vec<u8> = (0..rows * 4).flat_map(|n| [n, 0x3f]).collect();
        StoredTensor::new(name, "BF16", &[rows.into(), 4], values)
    };
    let found = |file: &str| -> Vec<(Option<f64>, FindingLevel)> {
        let report = check_path(scratch.path(file), &OpenOptions::new());
        let report = report.only("out-of-range").headers().run().unwrap();
        let of = |finding: &anamnesis::check::Finding| (finding.value, finding.level);
        report.findings.iter().map(of).collect()
    };
    let tensors = [
        matrix("model.embed_tokens.weight", 10),
        matrix("lm_head.weight", 12),
    ];
    let bytes = safetensors(&tensors, &[]);
    std::fs::write(scratch.path("model.safetensors"), bytes).unwrap();
    for (config, expected) in [
        (
            r#"{"eos_token_id": 11, "pad_token_id": -1, "bos_token_id": null}"#,
            &[][..],
        ),
        (
            r#"{"eos_token_id": [3, 12], "image_token_id": 90}"#,
            &[12.0, 90.0],
        ),
        (
            r#"{"text_config": {"eos_token_id": 1}, "eos_token_id": 99}"#,
            &[],
        ),
    ] {
        std::fs::write(scratch.path("config.json"), config).unwrap();
        let expected: Vec<_> = expected
            .iter()
            .map(|id| (Some(*id), FindingLevel::Warning))
            .collect();
        assert_eq!(found("model.safetensors"), expected, "{config}");
    }
    let mut bytes = safetensors(&[matrix("norm.weight", 1)], &[]);
    std::fs::write(scratch.path("model.safetensors"), &bytes).unwrap();
    assert_eq!(found("model.safetensors"), []);
    // an empty text becomes a number of 64 bits, which takes as many bytes
    let key = "tokenizer.ggml.eos_token_id";
    let mut matrix = matrix("token_embd.weight", 2);
    matrix.dtype = "30".into();
    let metadata = [("general.architecture", "llama"), (key, "")];
    bytes = gguf(false, &metadata, &[matrix]);
    let at = bytes
        .windows(key.len())
        .position(|part| part == key.as_bytes());
    let at = at.unwrap() + key.len();
    for (id, expected) in [(1, None), (2, Some(2.0)), (u8::MAX, Some(255.0))] {
        bytes[at..][..5].copy_from_slice(&[10, 0, 0, 0, id]);
        std::fs::write(scratch.path("model.gguf"), &bytes).unwrap();
        let ids: Vec<_> = found("model.gguf")
            .into_iter()
            .filter_map(|(id, _)| id)
            .collect();
        assert_eq!(ids, Vec::from_iter(expected), "{id}");
    }
}

#[test]
fn a_path_that_is_not_there_is_an_error() {
    let missing = Path::new("fixtures/ask/nowhere.safetensors");
    assert!(check_path(missing, &OpenOptions::new()).run().is_err());
}

/// FP8 in three layers, of which the last has this encoding in `down_proj`, and a scale if it has codes and `is_scaled`.
fn partly_quantised(dtype: &str, is_scaled: bool) -> CheckReport {
    let tensor = |name: String, dtype: &str, shape: &[u64]| {
        let item = match dtype {
            "F32" => 4,
            "BF16" => 2,
            _ => 1,
        };
        let count = usize::try_from(shape.iter().product::<u64>()).unwrap();
        let bytes = (0..count * item).map(|i| if i % item == item - 1 { 0x3c } else { 0x11 });
        StoredTensor {
            name,
            dtype: dtype.to_owned(),
            shape: shape.to_vec(),
            bytes: bytes.collect(),
        }
    };
    let mut tensors = Vec::new();
    for layer in 0..3 {
        for module in ["up_proj", "down_proj", "gate_proj"] {
            let is_odd = layer == 2 && module == "down_proj";
            let name = format!("model.layers.{layer}.mlp.{module}.weight");
            let dtype = if is_odd { dtype } else { "F8_E4M3" };
            tensors.push(tensor(name.clone(), dtype, &[16, 16]));
            if !is_odd || is_scaled {
                tensors.push(tensor(name + "_scale_inv", "F32", &[1, 1]));
            }
        }
    }
    let file = safetensors(&tensors, &[("format", "pt")]);
    check(&Checkpoint::from_bytes(file).unwrap()).run().unwrap()
}

#[test]
fn a_layer_that_is_not_quantised_lacks_no_scale() {
    let missing = |report: &CheckReport| {
        let found = report.findings.iter().map(|finding| finding.rule);
        found.filter(|rule| *rule == "missing-sibling").count()
    };
    assert_eq!(missing(&partly_quantised("BF16", false)), 0);
    assert_eq!(missing(&partly_quantised("F8_E4M3", true)), 0);
    assert_eq!(missing(&partly_quantised("F8_E4M3", false)), 1);
}
