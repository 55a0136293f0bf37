//! Outputs are read again: at the default limits, whatever the limits of the run were, and with the values that the source had.

use std::fs;
use std::path::Path;

use crate::process::{path_str, run, safetensors, stored_tensors, workspace};

/// A header that is over a limit of the reader is not written, by either verb.
#[test]
fn headers_over_the_limits_of_the_reader_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let value = scratch.path().join("value.txt");
    fs::write(&value, "x".repeat(95_000_000)).unwrap();
    let st = scratch.path().join("m.safetensors");
    safetensors(&st, "", &[("a", &[4])]);
    let gguf = scratch.path().join("m.gguf");
    fs::copy(workspace().join("fixtures/gguf/plain_v3.gguf"), &gguf).unwrap();
    for path in [&st, &gguf] {
        let before = fs::read(path).unwrap();
        let set = format!("k={}", path_str(&value));
        let edit = run(&["edit", path_str(path), "--set-file", &set, "--no-limits"]);
        assert_eq!(edit.code, 1, "{}", edit.stdout);
        assert!(
            edit.stderr.contains("the limit `memory` of 167772160"),
            "{}",
            edit.stderr
        );
        assert!(fs::read(path).unwrap() == before);
    }
    // a file of another program is over the limit, and may be cut down, not copied as it is
    let over = scratch.path().join("over.safetensors");
    let header = format!(
        r#"{{"__metadata__":{{"k":"{}","license":"mit"}},"a":{{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}}}"#,
        "x".repeat(95_000_000)
    );
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend([0; 4]);
    fs::write(&over, bytes).unwrap();
    for ending in ["safetensors", "gguf"] {
        let out = scratch.path().join("out").with_extension(ending);
        let copy = run(&[
            "convert",
            path_str(&over),
            "-o",
            path_str(&out),
            "--no-limits",
        ]);
        assert_eq!(copy.code, 1, "{}", copy.stdout);
        assert!(
            copy.stderr.contains("the limit `memory`"),
            "{}",
            copy.stderr
        );
        assert!(!out.exists());
    }
    let cut = run(&["edit", path_str(&over), "--unset", "k", "--no-limits"]);
    assert_eq!(cut.code, 0, "{}", cut.stderr);
    assert_eq!(run(&["inspect", path_str(&over)]).code, 0);
}

/// Sizes that overflow in front of a 0 are no shape to other readers.
#[test]
fn shapes_that_readers_refuse_are_not_written() {
    let scratch = tempfile::tempdir().unwrap();
    let source = scratch.path().join("a.safetensors");
    stored_tensors(
        &source,
        &[
            ("a", "F32", &[1 << 63, 2, 0], &[]),
            ("b", "F32", &[0, 2], &[]),
        ],
    );
    for ending in ["safetensors", "npz"] {
        let out = scratch.path().join("out").with_extension(ending);
        let arguments = ["convert", path_str(&source), "-o", path_str(&out)];
        let refused = run(&arguments);
        assert_eq!(refused.code, 1, "{}", refused.stdout);
        let said = "tensor `a`: its shape [9223372036854775808, 2, 0]";
        assert!(refused.stderr.contains(said), "{}", refused.stderr);
        assert!(!out.exists());
        assert_eq!(run(&[&arguments[..], &["-x", "a"]].concat()).code, 0);
    }
}

fn metadata(path: &Path) -> serde_json::Value {
    let header = crate::process::json_of(&["inspect", "--json", path_str(path)]);
    header["checkpoints"][0]["metadata"].clone()
}

/// Values that a GGUF cannot have as its own are kept as texts, and return.
#[test]
fn values_return_from_a_gguf() {
    let scratch = tempfile::tempdir().unwrap();
    let [source, gguf, back] =
        ["a.safetensors", "b.gguf", "c.safetensors"].map(|name| scratch.path().join(name));
    let long = "123456789012345678901234567890";
    let keys = serde_json::json!({
        "format": "pt", "gguf.long": long, "gguf.negative": "-99999999999999999999",
        "gguf.list": format!("[1,{long}]"), "gguf.lists": format!("[{long}]"), "gguf.text": format!("\"{long}\""),
        "gguf.split.count": "3", "gguf.split.no": "0", "gguf.anamnesis.padding": "\"x\"", "gguf.small": "12",
        "gguf.most": "18446744073709551615",
    });
    safetensors(&source, &keys.to_string(), &[("a", &[2])]);
    for (from, to) in [(&source, &gguf), (&gguf, &back)] {
        let copy = run(&["convert", path_str(from), "-o", path_str(to)]);
        assert_eq!(copy.code, 0, "{}", copy.stderr);
    }
    let (was, is) = (metadata(&source), metadata(&back));
    for key in keys.as_object().unwrap().keys() {
        assert_eq!(is[key], was[key], "{key}");
    }
    assert_eq!(metadata(&gguf)["small"], 12);
}

/// A word behind a colon that is no type is no part of a new key of a GGUF, unless its value has a type.
#[test]
fn a_type_that_is_none_is_named() {
    let scratch = tempfile::tempdir().unwrap();
    let model = workspace().join("fixtures/gguf/plain_v3.gguf");
    let (out, edited) = (
        scratch.path().join("out.gguf"),
        scratch.path().join("m.gguf"),
    );
    fs::copy(&model, &edited).unwrap();
    let convert = [
        "convert",
        path_str(&model),
        "-o",
        path_str(&out),
        "--overwrite",
        "--metadata",
    ];
    let edit = ["edit", path_str(&edited), "--set"];
    for verb in [&convert[..], &edit] {
        let refused = run(&[verb, &["x:foo=3"]].concat());
        assert_eq!(refused.code, 2, "{}", refused.stdout);
        let said = "no key is called `x:foo`: `foo` is no type of a GGUF: u8, i8";
        assert!(refused.stderr.contains(said), "{}", refused.stderr);
        let set = run(&[verb, &["x:foo:str=3"]].concat());
        assert_eq!(set.code, 0, "{}", set.stderr);
    }
    // the key is there
    assert_eq!(run(&[&edit[..], &["x:foo=4"]].concat()).code, 0);
    assert_eq!(metadata(&edited)["x:foo"], "4");
    // texts have no type, and keys of other programs have colons
    let st = scratch.path().join("m.safetensors");
    safetensors(&st, "", &[("a", &[2])]);
    assert_eq!(run(&["edit", path_str(&st), "--set", "x:foo=3"]).code, 0);
    assert_eq!(metadata(&st)["x:foo"], "3");
}
