//! `check`: its text at two widths, its document, its lists of digests, and its status.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::process::{command, finish, path_str, run, workspace};

const CHECKS: &str = "fixtures/ask/check";

fn at_width(columns: &str, args: &[&str]) -> String {
    let mut command = command(&[&["check"][..], args].concat());
    command.env("COLUMNS", columns);
    let run = finish(command);
    format!("{}=> {}\n{}", run.stdout, run.code, run.stderr)
}

fn case(name: &str) -> String {
    format!("{CHECKS}/{name}")
}

#[test]
fn the_text_fits_the_screen() {
    for columns in ["80", "200"] {
        let mut text = String::new();
        for args in [
            &["nan.safetensors"][..],
            &["shards-swapped"],
            &["evil.pth"],
            &["pointer/model.safetensors"],
            &["clean.safetensors", "--stats", "--filter", "*norm*"],
        ] {
            let path = case(args[0]);
            let args = [&[&*path][..], &args[1..]].concat();
            text.push_str(&at_width(columns, &args));
        }
        insta::assert_snapshot!(format!("check_{columns}"), text);
    }
}

#[test]
fn the_status_follows_the_level() {
    for (args, expected) in [
        (&["clean.safetensors"][..], 0),
        (&["zero.safetensors"], 1),
        (&["zero.safetensors", "--fail-on", "error"], 0),
        (&["zero.safetensors", "--allow", "zero"], 0),
        (&["zero.safetensors", "--only", "nan"], 0),
        (&["zero.safetensors", "--headers"], 0),
        (&["tied.safetensors"], 0),
        (&["tied.safetensors", "--fail-on", "note"], 1),
        (&["truncated.safetensors"], 2),
        (&["none.safetensors"], 2),
        (&["zero.safetensors", "--only", "nonsense"], 2),
    ] {
        let path = case(args[0]);
        let found = run(&[&["check", &*path][..], &args[1..]].concat());
        assert_eq!(
            found.code, expected,
            "{args:?}: {}{}",
            found.stdout, found.stderr
        );
    }
    let several = run(&[
        "check",
        &case("clean.safetensors"),
        &case("nan.safetensors"),
    ]);
    assert_eq!(several.code, 1, "{}", several.stderr);
}

#[test]
fn the_document_has_the_findings() {
    let found = run(&["check", "--json", "--stats", &case("nan.safetensors")]);
    let document: Value = serde_json::from_str(&found.stdout).unwrap();
    assert_eq!((found.code, &document["version"]), (1, &Value::from(1)));
    let model = &document["models"][0];
    let finding = &model["findings"][0];
    assert_eq!(finding["rule"], "nan");
    assert_eq!(finding["first"], serde_json::json!([2, 7]));
    assert_eq!(model["counts"]["error"], 1);
    let tensors = model["tensors"].as_array().unwrap();
    let values = tensors
        .iter()
        .find(|t| t["name"] == finding["tensor"])
        .unwrap();
    assert_eq!(values["values"]["nan"], 1);
    let failed = run(&["check", "--json", "nowhere.gguf"]);
    let document: Value = serde_json::from_str(&failed.stdout).unwrap();
    assert_eq!(
        (failed.code, &document["error"]["kind"]),
        (2, &Value::from("io"))
    );
}

#[test]
fn a_list_is_written_and_compared() {
    let scratch = tempfile::tempdir().unwrap();
    let model = scratch.path().join("model");
    fs::create_dir(&model).unwrap();
    let file = model.join("model.safetensors");
    fs::copy(workspace().join(case("clean.safetensors")), &file).unwrap();
    for name in ["SHA256SUMS", "list.json"] {
        let list = scratch.path().join(name);
        let written = run(&["check", "--write", path_str(&list), path_str(&model)]);
        assert_eq!(written.code, 0, "{}", written.stderr);
        let compared = |expected| {
            let found = run(&["check", "--manifest", path_str(&list), path_str(&model)]);
            assert_eq!(found.code, expected, "{}{}", found.stdout, found.stderr);
        };
        compared(0);
        let sound = fs::read(&file).unwrap();
        let mut damaged = sound.clone();
        *damaged.last_mut().unwrap() ^= 1;
        fs::write(&file, damaged).unwrap();
        compared(1);
        fs::write(&file, sound).unwrap();
    }
    // the model is not overwritten by its own list
    let refused = run(&["check", "--write", path_str(&file), path_str(&model)]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(fs::metadata(&file).unwrap().len() > 1000 && Path::new(&file).is_file());
}
