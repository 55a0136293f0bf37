//! `report --check` and `report --stats`: the page holds what `check --json` prints.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::Page;
use crate::process::{command, path_str, run, workspace};

/// How far a float of 24 bits is from the number: 16 bits of it are kept.
const ROUNDING: f64 = 1.0 / 65_536.0;

/// The statistics of a page by the name of the tensor, as its script reads them.
fn statistics(page: &Page) -> HashMap<String, HashMap<String, f32>> {
    let names = page.names();
    let statistics = &page.data["statistics"];
    let mut tensor = 0;
    let mut rows: Vec<(String, HashMap<String, f32>)> = Vec::new();
    for step in statistics["tensors"].as_array().unwrap() {
        tensor += usize::try_from(step.as_u64().unwrap()).unwrap();
        rows.push((names[tensor].clone(), HashMap::new()));
    }
    for (name, text) in statistics["columns"].as_object().unwrap() {
        let bytes = STANDARD.decode(text.as_str().unwrap()).unwrap();
        let (floats, rest) = bytes.as_chunks::<3>();
        assert!(rest.is_empty() && floats.len() == rows.len(), "{name}");
        for ([a, b, c], (_, row)) in floats.iter().zip(&mut rows) {
            row.insert(name.clone(), f32::from_be_bytes([*a, *b, *c, 0]));
        }
    }
    let count = rows.len();
    let rows: HashMap<_, _> = rows.into_iter().collect();
    assert_eq!(rows.len(), count, "one row of each tensor");
    rows
}

/// The model of `check --json`, whatever its status.
fn checked(args: &[&str]) -> Value {
    let found = run(&[&["check", "--json"], args].concat());
    let document: Value = serde_json::from_str(&found.stdout).unwrap();
    document["models"][0].clone()
}

/// The name of the tensor that holds the codes of each quantised weight.
fn codes(path: &str) -> HashMap<String, String> {
    let inspected = crate::process::json_of(&["inspect", "--json", path]);
    let weights = inspected["checkpoints"][0]["weights"].as_array().unwrap();
    let name = |value: &Value| value["name"].as_str().unwrap().to_owned();
    weights
        .iter()
        .filter(|weight| !weight["scheme"].is_null())
        .map(|weight| (name(weight), name(&weight["parts"][0])))
        .collect()
}

fn assert_statistics(path: &str) -> usize {
    let page = Page::of(&[path, "--stats"]);
    let mut found = statistics(&page);
    let codes = codes(path);
    let model = checked(&["--stats", path]);
    let mut compared = 0;
    for tensor in model["tensors"].as_array().unwrap() {
        let values = &tensor["values"];
        if values.is_null() {
            continue;
        }
        let weight = tensor["name"].as_str().unwrap();
        let name = codes.get(weight).map_or(weight, String::as_str);
        let name = if name.is_empty() { "(unnamed)" } else { name };
        let row = found
            .remove(name)
            .unwrap_or_else(|| panic!("{path}: no row of {name}"));
        let nonfinite = values["nan"].as_u64().unwrap() + values["inf"].as_u64().unwrap();
        let percentiles = &values["percentiles"];
        for (column, expected) in [
            ("elements", &values["elements"]),
            ("min", &values["min"]),
            ("max", &values["max"]),
            ("mean", &values["mean"]),
            ("std", &values["std"]),
            ("zeros", &values["zeros"]),
            ("nonfinite", &Value::from(nonfinite)),
            ("p0_1", &percentiles["0.1"]),
            ("p1", &percentiles["1"]),
            ("p50", &percentiles["50"]),
            ("p99", &percentiles["99"]),
            ("p99_9", &percentiles["99.9"]),
        ] {
            let found = f64::from(row[column]);
            match expected.as_f64() {
                None => assert!(found.is_nan(), "{path}: {name}: {column}: {found}"),
                Some(expected) => assert!(
                    (found - expected).abs() <= ROUNDING * expected.abs() + 1e-40,
                    "{path}: {name}: {column}: {found} for {expected}"
                ),
            }
        }
        assert_eq!(row.len(), 12);
        compared += 1;
    }
    assert!(found.is_empty(), "{path}: {found:?}");
    assert!(compared > 0, "{path}");
    compared
}

#[test]
fn statistics_are_those_of_check() {
    for path in [
        "fixtures/ask/check/clean.safetensors",
        "fixtures/ask/check/nan.safetensors",
        "fixtures/ask/check/inf.safetensors",
        "fixtures/ask/check/zero.safetensors",
        "fixtures/ask/check/constant.safetensors",
        "fixtures/ask/check/stats-q8_0.gguf",
        "fixtures/ask/check/plain.pth",
        "fixtures/npy/f_order.npy",
    ] {
        assert_statistics(path);
    }
    // scales have no row
    let rows = assert_statistics("fixtures/ask/check/fp8-clean");
    let page = Page::of(&["fixtures/ask/check/fp8-clean"]);
    assert!(rows < page.names().len());
    // weights whose codes have other names
    for path in ["fixtures/ask/check/mxfp4", GPTQ] {
        let renamed = codes(path)
            .into_iter()
            .filter(|(weight, codes)| weight != codes);
        assert!(renamed.count() > 0, "{path}");
        assert_statistics(path);
    }
}

const GPTQ: &str = "fixtures/quant/gptq/4bit_act_asym_v2/model.safetensors";

/// Rule, level and tensor of each finding of a page that has a rule.
fn findings(page: &Page) -> Vec<[Value; 4]> {
    let rows = page.data["findings"].as_array().unwrap().iter();
    rows.filter(|row| !row["rule"].is_null())
        .map(|row| ["rule", "level", "tensor", "file"].map(|key| row[key].clone()))
        .collect()
}

#[test]
fn findings_are_those_of_check() {
    for (name, partial) in [
        ("clean.safetensors", false),
        ("nan.safetensors", false),
        ("zero-run.safetensors", false),
        ("tied.safetensors", false),
        ("duplicate.safetensors", false),
        ("crc.npz", false),
        ("q8_0-scale-zero.gguf", false),
        ("index-total", false),
        ("shards-ok", false),
        ("index-extra", false),
        // these do not open
        ("shard-missing", true),
        ("shards-swapped", true),
        ("index-absent", true),
        ("evil.pth", true),
    ] {
        let path = &format!("fixtures/ask/check/{name}");
        let page = Page::of(&[path, "--check"]);
        let model = checked(&[path]);
        let expected: Vec<[Value; 4]> = model["findings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| ["rule", "level", "tensor", "file"].map(|key| row[key].clone()))
            .collect();
        assert_eq!(findings(&page), expected, "{name}");
        assert_eq!(page.data["checked"], true);
        assert_eq!(page.data["partial"], partial, "{name}");
        assert!(page.data["statistics"].is_null(), "{name}");
        if partial {
            let failed = run(&["report", path, "-o", "-"]);
            assert_eq!((failed.code, failed.stdout.as_str()), (1, ""), "{name}");
            assert!(!page.names().is_empty(), "{name}");
        } else {
            let page = Page::of(&[path]);
            assert_eq!(page.data["checked"], false);
            assert!(findings(&page).is_empty(), "{name}");
        }
    }
    // the place and, once for each, the remedy
    let page = Page::of(&["fixtures/ask/check/nan.safetensors", "--check"]);
    let [finding] = &page.data["findings"].as_array().unwrap()[..] else {
        panic!("{}", page.data["findings"]);
    };
    let message = finding["message"].as_str().unwrap();
    assert!(message.ends_with("first at [2,7]"), "{message}");
    assert!(finding["remedy"].as_str().unwrap().contains("convert"));
    // nothing is left to show
    for name in ["truncated.safetensors", "pointer/model.safetensors"] {
        let failed = run(&[
            "report",
            "--stats",
            &format!("fixtures/ask/check/{name}"),
            "-o",
            "-",
        ]);
        assert_eq!((failed.code, failed.stdout.as_str()), (1, ""), "{name}");
    }
}

#[test]
fn what_cannot_be_decoded_is_found_once() {
    // texts and records are listed and refused
    let path = "fixtures/npz/object.npz";
    let opening = Page::of(&[path]);
    let refused = opening.data["findings"].as_array().unwrap();
    assert!(!refused.is_empty());
    let page = Page::of(&[path, "--check"]);
    let mut names: Vec<&Value> = page.data["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row["tensor"])
        .filter(|tensor| !tensor.is_null())
        .collect();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count, "{names:?}");
    for row in refused {
        assert!(
            row["tensor"].is_null() || names.contains(&&row["tensor"]),
            "{row}"
        );
    }
}

/// Writes a safetensors file of F32 tensors with the same shape and these values each.
fn write_f32(path: &Path, names: &[&str], shape: &str, values: impl Fn(usize) -> Vec<f32>) {
    let (mut header, mut bytes) = (String::from("{"), Vec::new());
    for (n, name) in names.iter().enumerate() {
        let start = bytes.len();
        bytes.extend(values(n).iter().flat_map(|value| value.to_le_bytes()));
        let name = serde_json::to_string(name).unwrap();
        header.push_str(&format!(
            "{name}:{{\"dtype\":\"F32\",\"shape\":{shape},\"data_offsets\":[{start},{}]}},",
            bytes.len()
        ));
    }
    header.pop();
    header.push('}');
    let file = [
        &(header.len() as u64).to_le_bytes()[..],
        header.as_bytes(),
        &bytes,
    ]
    .concat();
    std::fs::write(path, file).unwrap();
}

#[test]
fn findings_of_hostile_files_are_data() {
    let directory = tempfile::tempdir().unwrap();
    let marks = [
        "</script><script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "a\u{202e}b\u{2028}c\u{2029}d\u{1b}[31m",
        "@@data@@",
    ];
    let long = "<b>".repeat(100_000);
    let names = [&marks[..], &[&long]].concat();
    let shard = "<img src=x onerror=alert(1)>.safetensors";
    // as many values as a matrix needs for the rule about equal ones
    write_f32(&directory.path().join(shard), &names, "[16,17]", |_| {
        (0..272u16)
            .map(|n| if n == 7 { f32::NAN } else { f32::from(n) })
            .collect()
    });
    let missing = "<svg onload=alert(1)>\u{202e}.safetensors";
    let mut map: serde_json::Map<String, Value> = names
        .iter()
        .map(|name| ((*name).to_owned(), Value::from(shard)))
        .collect();
    map.insert("<i>absent</i>".to_owned(), Value::from(missing));
    let index = serde_json::json!({"metadata": {}, "weight_map": map});
    std::fs::write(
        directory.path().join("model.safetensors.index.json"),
        index.to_string(),
    )
    .unwrap();
    let page = Page::of(&[path_str(directory.path()), "--stats"]);
    assert!(page.text.len() < 200_000, "{}", page.text.len());
    let found = findings(&page);
    let escaped = anamnesis::quote::escape(missing).into_owned();
    let of = |rule: &'static str| found.iter().filter(move |row| row[0] == rule);
    assert!(
        of("index-missing-file").any(|row| row[3] == escaped),
        "{found:?}"
    );
    assert_eq!(of("nan").count(), names.len());
    for mark in marks {
        let escaped = anamnesis::quote::escape(mark).into_owned();
        assert!(of("nan").any(|row| row[2] == escaped), "{mark}: {found:?}");
    }
    assert!(of("nan").any(|row| row[2].as_str().unwrap().contains('…')));
    assert_eq!(of("duplicate").count(), 1);
    assert_eq!(statistics(&page).len(), names.len());
}

#[test]
fn twenty_thousand_statistics_are_less_than_two_megabytes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("many.safetensors");
    let names: Vec<String> = (0..20_000)
        .map(|n| {
            let (layer, expert, part) = (n / 500, n % 500 / 3, ["gate", "up", "down"][n % 3]);
            format!(
                "language_model.model.layers.{layer}.mlp.experts.{expert}.{part}_proj{}.weight",
                n % 2
            )
        })
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    // each of its own values, and a finding of each
    write_f32(&path, &names, "[3]", |n| vec![n as f32, 0.1, f32::INFINITY]);
    let page = Page::of(&[path_str(&path), "--stats"]);
    assert!(page.text.len() < 2_000_000, "{}", page.text.len());
    assert_eq!(statistics(&page).len(), names.len());
    let shown = page.data["findings"].as_array().unwrap().len() as u64;
    let omitted = page.data["omitted"][2].as_u64().unwrap();
    assert!(
        shown >= 1000 && shown + omitted >= 20_000,
        "{shown} {omitted}"
    );
}

#[test]
fn a_stream_is_checked_too() {
    let path = "fixtures/ask/check/nan.safetensors";
    let bytes = std::fs::read(workspace().join(path)).unwrap();
    let mut command = command(&["report", "-", "-o", "-", "--stats"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let page = Page::new(String::from_utf8(output.stdout).unwrap());
    page.assert_sound();
    assert_eq!(findings(&page)[0][0], "nan");
    let by_path = Page::of(&[path, "--stats"]);
    assert_eq!(page.data["statistics"], by_path.data["statistics"]);
}

/// A run that is interrupted in the middle of its pass over the bytes ends, with nothing written.
#[cfg(target_os = "linux")]
#[test]
fn a_check_for_a_page_can_be_interrupted() {
    use anamnesis::CancelToken;
    use anamnesis_cli::{Interrupt, run_with};

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("holes.safetensors");
    let nbytes = 64u64 << 30;
    let header = format!(
        "{{\"holes\":{{\"dtype\":\"U8\",\"shape\":[{nbytes}],\"data_offsets\":[0,{nbytes}]}}}}"
    );
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat();
    std::fs::write(&path, &bytes).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(bytes.len() as u64 + nbytes).unwrap();
    let page = directory.path().join("page.html");
    let token = CancelToken::new();
    let interrupt = Interrupt::by_token(&token);
    let words = [
        "anamnesis",
        "report",
        "--stats",
        path_str(&path),
        "-o",
        path_str(&page),
    ];
    let status = std::thread::scope(|scope| {
        let run = scope.spawn(|| run_with(words, &interrupt));
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert!(!run.is_finished(), "the pass takes longer than this");
        token.cancel();
        run.join().unwrap()
    });
    assert_eq!(status, 130);
    let left: Vec<_> = std::fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["holes.safetensors"]);
}
