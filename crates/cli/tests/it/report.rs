//! `report`: its page, without a browser. `.ci/report` opens pages in one.

mod values;

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::process::{command, path_str, run, safetensors, stdout_of};

const GGUF: &str = "fixtures/model/scribe-Q8_0.gguf";

/// A page, taken apart.
struct Page {
    text: String,
    policy: String,
    style: String,
    script: String,
    data: Value,
}

impl Page {
    fn new(text: String) -> Self {
        let between = |from: &str, to: &str| {
            let (_, rest) = text.split_once(from).unwrap_or_else(|| panic!("no {from}"));
            rest.split_once(to)
                .unwrap_or_else(|| panic!("no {to}"))
                .0
                .to_owned()
        };
        let data = between(
            "<script type=\"application/json\" id=\"data\">",
            "</script>",
        );
        Self {
            policy: between("http-equiv=\"Content-Security-Policy\" content=\"", "\""),
            style: between("<style>", "</style>"),
            script: between("<script>", "</script>"),
            data: serde_json::from_str(&data).unwrap_or_else(|e| panic!("{e}: {data}")),
            text,
        }
    }

    /// The page of a model, on standard output.
    fn of(args: &[&str]) -> Self {
        let page = Self::new(stdout_of(&[&["report", "-o", "-"], args].concat()));
        page.assert_sound();
        page
    }

    /// The policy allows this script and style, by their digests, and nothing else; and there are no others.
    fn assert_sound(&self) {
        let digest = |text: &str| {
            format!(
                "'sha256-{}'",
                STANDARD.encode(Sha256::digest(text.as_bytes()))
            )
        };
        let expected = format!(
            "default-src 'none'; script-src {}; style-src {}; base-uri 'none'; form-action 'none'",
            digest(&self.script),
            digest(&self.style)
        );
        assert_eq!(self.policy, expected);
        let lower = self.text.to_lowercase();
        assert_eq!(
            lower.matches("<script").count(),
            2,
            "the data and the script"
        );
        assert_eq!(lower.matches("</script").count(), 2);
        assert_eq!(lower.matches("<style").count(), 1);
        for absent in [
            " onerror=",
            " onload=",
            "style=\"",
            "<img",
            "<link",
            "<iframe",
            "@@",
            "src=\"",
            "http://",
            "https://",
        ] {
            let here = lower.replace("http://www.w3.org/2000/svg", "");
            let data = self.data.to_string().to_lowercase();
            assert!(!here.contains(absent) || data.contains(absent), "{absent}");
        }
        let (_, data) = self.text.split_once("id=\"data\">").unwrap();
        let (data, _) = data.split_once("</script>").unwrap();
        assert!(!data.contains(['<', '>', '&', '\u{2028}', '\u{2029}']));
        assert!(!data.chars().any(anamnesis::quote::is_hidden));
    }

    /// The names of the tensors, as the page's script reads them.
    fn names(&self) -> Vec<String> {
        let tensors = &self.data["tensors"];
        let numbers = |of: &Value| -> Vec<usize> {
            let list = of.as_array().unwrap().iter();
            list.map(|n| usize::try_from(n.as_u64().unwrap()).unwrap())
                .collect()
        };
        let words = tensors["names"]["words"].as_array().unwrap();
        let (depth, word) = (
            numbers(&tensors["names"]["depth"]),
            numbers(&tensors["names"]["word"]),
        );
        let (mut path, mut at, mut nodes) = (Vec::new(), 0, Vec::new());
        for (depth, word) in depth.iter().zip(word) {
            path.truncate(*depth);
            path.push(words[word].as_str().unwrap());
            nodes.push(path.join("."));
        }
        let steps = numbers(&tensors["node"]).into_iter();
        steps
            .map(|step| {
                at += step;
                nodes[at].clone()
            })
            .collect()
    }

    fn column(&self, name: &str) -> &Vec<Value> {
        self.data["tensors"][name].as_array().unwrap()
    }
}

#[test]
fn a_page_holds_what_inspect_and_fit_say() {
    let page = Page::of(&[GGUF, "--memory", "8MiB", "--batch", "4"]);
    let inspected = crate::process::json_of(&["inspect", "--json", GGUF]);
    let inspected = &inspected["checkpoints"][0];
    let totals = &page.data["totals"];
    for key in ["tensors", "elements", "nbytes", "file_nbytes"] {
        assert_eq!(totals[key], inspected["totals"][key], "{key}");
    }
    let mut expected: Vec<(String, Value, Value, Value)> = Vec::new();
    for tensor in inspected["tensors"].as_array().unwrap() {
        let name = tensor["name"].as_str().unwrap().to_owned();
        expected.push((
            name,
            tensor["dtype"].clone(),
            tensor["nbytes"].clone(),
            tensor["offset"].clone(),
        ));
    }
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    let kinds = &page.data["tensors"]["kinds"];
    let mut end = 0;
    let rows = page
        .names()
        .into_iter()
        .zip(page.column("kind"))
        .zip(page.column("gap"));
    let mut found: Vec<_> = rows
        .map(|((name, kind), gap)| {
            let kind = usize::try_from(kind.as_u64().unwrap()).unwrap();
            let offset = end + gap.as_i64().unwrap();
            end = offset + kinds["nbytes"][kind].as_i64().unwrap();
            (
                name,
                kinds["dtype"][kind].clone(),
                kinds["nbytes"][kind].clone(),
                Value::from(offset.unsigned_abs()),
            )
        })
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(found, expected);
    // the curve's last point, and the memory's line, equal the numbers of `fit`
    let fit = crate::process::json_of(&[
        "fit",
        "--json",
        GGUF,
        "--memory",
        "8MiB",
        "--batch",
        "4",
        "--context",
        "96",
    ]);
    let fit = &fit["models"][0];
    let memory = &page.data["memory"];
    assert_eq!(memory["contexts"].as_array().unwrap().last().unwrap(), 96);
    assert_eq!(memory["memory_nbytes"], 8 << 20);
    let first = &memory["engines"][0];
    assert_eq!(first["engine"], "llama.cpp");
    assert_eq!(
        first["total_nbytes"].as_array().unwrap().last().unwrap(),
        &fit["total_nbytes"]
    );
    assert_eq!(
        first["cache_nbytes"].as_array().unwrap().last().unwrap(),
        &fit["cache"]["nbytes"]
    );
    assert_eq!(
        first["memory"]["largest_context"],
        fit["memory"]["largest_context"]
    );
    assert_eq!(memory["engines"].as_array().unwrap().len(), 4);
}

#[test]
fn every_kind_of_file_has_a_page() {
    for path in [
        "fixtures/gguf/empty.gguf",
        "fixtures/gguf/only_kv.gguf",
        "fixtures/gguf/split/m-00002-of-00003.gguf",
        "fixtures/model/scribe.safetensors",
        "fixtures/npy/bf16.npy",
        "fixtures/dcp/four",
    ] {
        let page = Page::of(&[path]);
        let count = page.data["totals"]["tensors"].as_u64().unwrap();
        assert_eq!(page.names().len() as u64, count, "{path}");
        assert!(page.text.len() < 200_000, "{path}: {}", page.text.len());
    }
}

#[test]
fn the_bits_of_quantised_weights_count_their_scales() {
    let directory = tempfile::tempdir().unwrap();
    let mut tensors = Vec::new();
    for name in ["w.weight", "w.weight_scale_inv"] {
        tensors.push(format!(
            "\"model.layers.0.{name}\":{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}}",
            if tensors.is_empty() { "F8_E4M3" } else { "F32" },
            if tensors.is_empty() {
                "[128,128]"
            } else {
                "[1,1]"
            },
            if tensors.is_empty() { 0 } else { 16384 },
            if tensors.is_empty() { 16384 } else { 16388 }
        ));
    }
    let header = format!("{{{}}}", tensors.join(","));
    let bytes = [
        &(header.len() as u64).to_le_bytes()[..],
        header.as_bytes(),
        &[0; 16388],
    ]
    .concat();
    std::fs::write(directory.path().join("model.safetensors"), bytes).unwrap();
    let config = r#"{"quantization_config":{"quant_method":"fp8","weight_block_size":[128,128]}}"#;
    std::fs::write(directory.path().join("config.json"), config).unwrap();
    let page = Page::of(&[path_str(directory.path())]);
    let kinds = &page.data["tensors"]["kinds"];
    assert_eq!(kinds["weights"], serde_json::json!([16384, 0]));
    assert_eq!(kinds["role"], serde_json::json!(["codes", "scale"]));
    assert_eq!(page.data["totals"]["weights"], 16384);
}

#[test]
fn names_of_hostile_files_are_data() {
    let directory = tempfile::tempdir().unwrap();
    let marks = [
        "</script><script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "</style><style>*{display:none}",
        "<!--<script>",
        "@@script@@",
        "a\u{202e}b\u{2028}c\u{2029}d\u{1b}[31m",
        "__proto__",
        "&lt;b&gt;",
    ];
    let long = "<b>.".repeat(300_000);
    let names: Vec<&str> = marks
        .iter()
        .copied()
        .chain([long.as_str(), "", "..."])
        .collect();
    let tensors: Vec<(&str, &[usize])> = names.iter().map(|name| (*name, &[1usize][..])).collect();
    let metadata: Value = marks
        .iter()
        .map(|mark| ((*mark).to_owned(), Value::from(*mark)))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let path = directory
        .path()
        .join("<img src=x onerror=alert(1)>.safetensors");
    safetensors(&path, &metadata.to_string(), &tensors);
    let page = Page::of(&[path_str(&path)]);
    assert!(page.text.len() < 200_000, "{}", page.text.len());
    let found: HashSet<String> = page.names().into_iter().collect();
    for mark in marks {
        assert!(found.contains(&*anamnesis::quote::escape(mark)), "{mark}");
    }
    assert!(found.contains("(unnamed)") && found.contains("..."));
    let cut = found.iter().find(|name| name.contains('…')).unwrap();
    assert!(
        cut.chars().count() <= 240 && cut.starts_with("<b>."),
        "{cut}"
    );
    let values = page.data["metadata"].as_array().unwrap();
    assert!(
        values
            .iter()
            .any(|row| row[0] == marks[0] && row[1] == marks[0])
    );
}

#[test]
fn twenty_thousand_tensors_are_less_than_two_megabytes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("many.safetensors");
    let mut names = Vec::new();
    for n in 0..20_000usize {
        let (layer, expert) = (n / 500, n % 500);
        let part = if n % 2 == 0 {
            "weight"
        } else {
            "weight_scale_inv"
        };
        names.push(format!(
            "language_model.model.layers.{layer}.mlp.experts.{expert}.down_proj.{part}"
        ));
    }
    let tensors: Vec<(&str, &[usize])> = names
        .iter()
        .map(|name| (name.as_str(), &[1usize, 2][..]))
        .collect();
    safetensors(&path, "", &tensors);
    let page = Page::of(&[path_str(&path)]);
    assert!(page.text.len() < 1_000_000, "{}", page.text.len());
    let (mut found, mut expected) = (page.names(), names);
    found.sort();
    expected.sort();
    assert!(found == expected);
    // names that share nothing, which is the worst that a file can hold
    let names: Vec<String> = (0..20_000u64)
        .map(|n| format!("{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        .collect();
    let shapes: Vec<[usize; 3]> = (0..20_000).map(|n| [1, 1, n % 7]).collect();
    let tensors: Vec<(&str, &[usize])> = names
        .iter()
        .zip(&shapes)
        .map(|(name, shape)| (name.as_str(), &shape[..]))
        .collect();
    safetensors(&path, "", &tensors);
    let page = Page::of(&[path_str(&path)]);
    assert!(page.text.len() < 2_000_000, "{}", page.text.len());
}

#[test]
fn twenty_thousand_unrelated_names_are_less_than_two_megabytes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("unrelated.safetensors");
    let mut state = 1u64;
    let mut word = |most: u64| -> String {
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        let length = most / 2 + next() % (most / 2);
        (0..length)
            .map(|_| char::from(b'a' + u8::try_from(next() % 26).unwrap()))
            .collect()
    };
    // as long as published names are, and as names that a file can hold besides
    for (most, cut) in [(60, true), (500, true), (8, false)] {
        let names: Vec<String> = (0..20_000)
            .map(|_| format!("{}.{}", word(most), word(most)))
            .collect();
        let tensors: Vec<(&str, &[usize])> = names
            .iter()
            .map(|name| (name.as_str(), &[1usize][..]))
            .collect();
        safetensors(&path, "", &tensors);
        for args in [&[path_str(&path)][..], &[path_str(&path), "--stats"]] {
            let page = Page::of(args);
            assert!(page.text.len() < 2_000_000, "{most}: {}", page.text.len());
            let omitted = page.data["tensors"]["omitted"][0].as_u64().unwrap();
            assert_eq!(page.names().len() as u64 + omitted, 20_000);
            assert_eq!(omitted > 0, cut, "{most}: {omitted}");
        }
    }
}

/// A header of many tensors without elements, in text alone.
fn header(path: &Path, count: usize, shape: &str) {
    let mut header = String::from("{");
    for n in 0..count {
        write!(
            header,
            "\"{n}\":{{\"dtype\":\"F32\",\"shape\":[{shape}],\"data_offsets\":[0,0]}},"
        )
        .unwrap();
    }
    header.pop();
    header.push('}');
    std::fs::write(
        path,
        [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat(),
    )
    .unwrap();
}

#[test]
fn what_a_page_leaves_out_is_counted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("many.safetensors");
    header(&path, 130_000, "0");
    let page = Page::of(&[path_str(&path)]);
    let omitted = page.data["tensors"]["omitted"][0].as_u64().unwrap();
    assert_eq!(page.names().len() as u64 + omitted, 130_000);
    assert!(omitted >= 10_000 && page.data["totals"]["weights"].is_null());
    assert!(page.text.len() < 6_000_000, "{}", page.text.len());
    // long shapes
    header(&path, 2_000, &["0"; 1000].join(","));
    let page = Page::of(&[path_str(&path)]);
    assert!(page.text.len() < 400_000, "{}", page.text.len());
}

#[test]
fn a_page_is_written_whole_or_not_at_all() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.html");
    let out = path_str(&path);
    let text = stdout_of(&["report", GGUF, "-o", out]);
    assert!(
        text.starts_with(out) && text.contains("20 tensors in a page of"),
        "{text}"
    );
    let written = std::fs::read_to_string(&path).unwrap();
    Page::new(written.clone()).assert_sound();
    let refused = run(&["report", "fixtures/npy/bf16.npy", "-o", out]);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("--overwrite"), "{}", refused.stderr);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), written);
    stdout_of(&["report", "fixtures/npy/bf16.npy", "-o", out, "--overwrite"]);
    assert_ne!(std::fs::read_to_string(&path).unwrap(), written);
    for (args, code) in [
        (&["report", "missing.gguf", "-o", "x.html"][..], 1),
        // the pattern is at fault, which names several models
        (&["report", "fixtures/gguf/*.gguf", "-o", "x.html"], 2),
        (&["report", GGUF, "-o", "/nowhere/at/all.html"], 1),
        (
            &[
                "report",
                GGUF,
                "-o",
                path_str(directory.path()),
                "--overwrite",
            ],
            1,
        ),
    ] {
        let failed = run(args);
        assert_eq!(
            (failed.code, failed.stdout.as_str()),
            (code, ""),
            "{args:?}"
        );
        assert!(failed.stderr.contains("help:"), "{}", failed.stderr);
    }
    for args in [
        &["report", GGUF][..],
        &["report", "-o", "x.html"],
        &["report", GGUF, "-o", "x", "--memory", "much"],
    ] {
        assert_eq!(run(args).code, 2, "{args:?}");
    }
    assert!(!crate::process::workspace().join("x.html").exists());
    let names: Vec<_> = std::fs::read_dir(directory.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(names, ["model.html"], "no temporary file is left");
}

#[test]
fn a_model_is_read_from_standard_input() {
    let mut command = command(&["report", "-", "-o", "-"]);
    let file = std::fs::File::open(crate::process::workspace().join(GGUF)).unwrap();
    command.stdin(file);
    let page = Page::new(crate::process::finish(command).stdout);
    page.assert_sound();
    assert!(page.data["path"].is_null());
}
