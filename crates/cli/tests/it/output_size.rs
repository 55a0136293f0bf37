//! Every view writes at most [`MAX_RATIO`] bytes per byte of the header, whatever the header holds, and no character that a
//! terminal acts on.

use std::path::{Path, PathBuf};

use anamnesis::quote::is_hidden;

use crate::process::{command, path_str};

/// Bytes of output per byte of the file's header.
const MAX_RATIO: usize = 8;
/// The lines that every view has: headings, totals, warnings.
const FIXED_LINES: usize = 16 << 10;

pub(crate) const VIEWS: &[&[&str]] = &[
    &["inspect"],
    &["inspect", "--tree"],
    &["inspect", "--tree", "--all"],
    &["inspect", "--metadata"],
    &["inspect", "--json"],
    &["plan"],
    &["plan", "--json"],
];

/// A safetensors file whose tensors have no elements; `entries` are the members of its header. Returns the header's size.
fn safetensors(path: &Path, entries: impl Iterator<Item = String>) -> usize {
    let header = format!("{{{}}}", entries.collect::<Vec<_>>().join(","));
    let length = (header.len() as u64).to_le_bytes();
    std::fs::write(path, [&length[..], header.as_bytes()].concat()).unwrap();
    header.len()
}

fn empty_tensor(name: &str, shape: &str) -> String {
    let name = serde_json::to_string(name).unwrap();
    format!(r#"{name}:{{"dtype":"F32","shape":[{shape}],"data_offsets":[0,0]}}"#)
}

/// A GGUF file of `count` tensors of one Q4_0 block each, with the shortest names. Returns the header's size.
fn gguf(path: &Path, count: u64) -> usize {
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend(count.to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    for i in 0..count {
        let name = format!("{i:x}");
        bytes.extend((name.len() as u64).to_le_bytes());
        bytes.extend(name.as_bytes());
        bytes.extend(1u32.to_le_bytes());
        bytes.extend(32u64.to_le_bytes());
        bytes.extend(2u32.to_le_bytes());
        bytes.extend((32 * i).to_le_bytes());
    }
    let header = bytes.len().next_multiple_of(32);
    bytes.resize(header + 32 * usize::try_from(count).unwrap(), 0);
    std::fs::write(path, bytes).unwrap();
    header
}

/// Files made to be printed at length, with the sizes of their headers.
fn files(directory: &Path) -> Vec<(PathBuf, usize)> {
    let path = |name: &str| directory.join(name);
    let short = |count: usize| (0..count).map(|i| empty_tensor(&format!("{i:x}"), "0"));
    let mut files = Vec::new();
    let mut add = |path: PathBuf, header: usize| files.push((path, header));

    let one_long_name = path("one_long_name.safetensors");
    let long = empty_tensor(&"x.".repeat(1 << 19), "0");
    let header = safetensors(&one_long_name, short(20_000).chain([long]));
    add(one_long_name, header);

    let one_long_shape = path("one_long_shape.safetensors");
    let shape = ["0"; 1000].join(",");
    let header = safetensors(
        &one_long_shape,
        short(20_000).chain([empty_tensor("wide", &shape)]),
    );
    add(one_long_shape, header);

    let deep = path("deep.safetensors");
    let names = (0..200usize).map(|i| empty_tensor(&format!("{}{i}", "a.".repeat(i)), "0"));
    let header = safetensors(&deep, names);
    add(deep, header);

    let hidden = path("hidden.safetensors");
    let text = "\u{1b}\u{9b}\u{7f}\u{202e}\u{e0041}".repeat(100);
    let metadata = serde_json::json!({ (text.clone()): text.clone() });
    let names = (0..500).map(|i| empty_tensor(&format!("{text}{i}"), "0"));
    let header = safetensors(
        &hidden,
        [format!(r#""__metadata__":{metadata}"#)]
            .into_iter()
            .chain(names),
    );
    add(hidden, header);

    let short_names = path("short_names.gguf");
    let header = gguf(&short_names, 20_000);
    add(short_names, header);
    files
}

#[test]
fn output_is_linear_in_the_header() {
    let directory = tempfile::tempdir().unwrap();
    for (path, header) in files(directory.path()) {
        for view in VIEWS {
            for columns in [None, Some("80"), Some("1")] {
                let mut command = command(view);
                command.arg(path_str(&path));
                command.envs(columns.map(|columns| ("COLUMNS", columns)));
                let output = command.output().unwrap();
                let what = format!("{view:?} {columns:?} {}", path.display());
                let written = output.stdout.len() + output.stderr.len();
                println!("{:6.2} {what}", written as f64 / header as f64);
                assert!(output.status.code().is_some(), "{what}: ended by a signal");
                assert!(
                    written <= MAX_RATIO * header + FIXED_LINES,
                    "{what}: {written} bytes for a header of {header}"
                );
                for text in [output.stdout, output.stderr] {
                    let text = String::from_utf8(text).unwrap();
                    let hidden = text.chars().find(|c| is_hidden(*c) && *c != '\n');
                    assert_eq!(hidden, None, "{what}");
                }
            }
        }
    }
}

/// Views of one model, or of two, that answer a question.
pub(crate) const ANSWERS: &[&[&str]] = &[
    &["fit", "{}"],
    &["fit", "--json", "--tp", "8", "{}"],
    &["check", "{}"],
    &["check", "--json", "{}"],
    &["diff", "--all", "{}", "{}"],
    &["diff", "--json", "--all", "{}", "{}"],
    &["diff", "--all", "{}", "{other}"],
    &["diff", "--json", "{}", "{other}"],
    &["report", "-o", "-", "{}"],
];

/// The script and the style of a page, which it has for every model.
const PAGE: usize = 128 << 10;

#[test]
fn answers_are_linear_in_the_header() {
    let directory = tempfile::tempdir().unwrap();
    let files = files(directory.path());
    let (other, other_header) = files.last().expect("a file").clone();
    for (path, header) in &files {
        for view in ANSWERS {
            let args: Vec<&str> = view
                .iter()
                .map(|word| match *word {
                    "{}" => path_str(path),
                    "{other}" => path_str(&other),
                    word => word,
                })
                .collect();
            let mut bytes = *header;
            if view.contains(&"{other}") {
                bytes += other_header;
            }
            let fixed = if view[0] == "report" {
                PAGE
            } else {
                FIXED_LINES
            };
            assert_bounded(&args, bytes, fixed);
        }
        // statistics are of values, whose bytes count too
        let nbytes = usize::try_from(path.metadata().unwrap().len()).unwrap();
        assert_bounded(
            &["check", "--stats", "--json", path_str(path)],
            nbytes,
            FIXED_LINES,
        );
    }
}

fn assert_bounded(args: &[&str], bytes: usize, fixed: usize) {
    let output = command(args).output().unwrap();
    let written = output.stdout.len() + output.stderr.len();
    println!("{:6.2} {args:?}", written as f64 / bytes as f64);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{args:?}");
    assert!(
        written <= MAX_RATIO * bytes + fixed,
        "{args:?}: {written} bytes for {bytes}"
    );
}

#[test]
fn a_configuration_of_many_layers_is_a_short_answer() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.json");
    for layers in [1024, 60_000] {
        let config = serde_json::json!({"model_type": "llama", "num_hidden_layers": layers, "hidden_size": 64,
            "num_attention_heads": 4});
        let text = config.to_string();
        std::fs::write(&path, &text).unwrap();
        assert_bounded(&["fit", "--json", path_str(&path)], text.len(), FIXED_LINES);
    }
}

/// A finding for each tensor is listed a thousand times; all of them are counted, and decide the status.
#[test]
fn findings_that_are_not_listed_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("zero.gguf");
    gguf(&path, 1_500);
    let found = crate::process::json_of(&["check", "--json", path_str(&path)]);
    let model = &found["models"][0];
    let listed = model["findings"].as_array().unwrap().len() as u64;
    let omitted = model["omitted"].as_array().unwrap();
    let left_out: u64 = omitted
        .iter()
        .map(|row| row["count"].as_u64().unwrap())
        .sum();
    assert!(omitted.iter().all(|row| row["count"] == 500), "{omitted:?}");
    assert_eq!(model["counts"]["note"], listed + left_out);
    let text = crate::process::stdout_of(&["check", path_str(&path)]);
    assert!(text.contains("… 500 more of scale-zero"), "{text}");
    gguf(&path, 1_000);
    let all = crate::process::json_of(&["check", "--json", path_str(&path)]);
    assert!(all["models"][0].get("omitted").is_none());
}
