//! `diff`: its text at two widths, its document, and its status.

use serde_json::Value;

use crate::process::{Run, command, finish, path_str, run, stdout_of, stored_tensors};
use crate::schema;

const BASE: &str = "fixtures/ask/diff/base/model.safetensors";

fn pair(name: &str) -> String {
    format!("fixtures/ask/diff/{name}")
}

fn at_width(width: &str, args: &[&str]) -> Run {
    let mut command = command(&[&["diff"], args].concat());
    command.env("COLUMNS", width);
    finish(command)
}

#[test]
fn texts_match_their_snapshots() {
    let (qwen, q8) = (pair("qwen2"), pair("qwen2-q8_0.gguf"));
    let (folder, config) = (pair("base"), pair("config"));
    let (renamed, transposed) = (pair("renamed.safetensors"), pair("transposed.safetensors"));
    let (stored, omitted) = (
        pair("tied-stored.safetensors"),
        pair("tied-omitted.safetensors"),
    );
    let reordered = pair("reordered.safetensors");
    for width in ["80", "200"] {
        for (name, args) in [
            ("quantised", &[&*qwen, &*q8][..]),
            ("config", &[&folder, &config]),
            ("renamed", &[BASE, &renamed, "--sort", "name"]),
            ("reshaped", &[BASE, &transposed]),
            ("tied", &[&stored, &omitted]),
            ("metadata", &[BASE, &reordered, "--metadata"]),
            ("same", &[BASE, BASE, "--all"]),
        ] {
            let run = at_width(width, args);
            assert!(run.stderr.is_empty(), "{}", run.stderr);
            insta::assert_snapshot!(format!("{name}_{width}"), run.stdout);
        }
    }
}

/// 2⁵³ + 1 is no F64: the nearest is another number, and not the same.
#[test]
fn integers_and_floats_are_compared_exactly() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    let large = 1i64 << 53;
    for (number, code) in [(large + 1, 1), (large, 0)] {
        let (integer, float) = (path("i.safetensors"), path("f.safetensors"));
        stored_tensors(&integer, &[("w", "I64", &[1], &number.to_le_bytes())]);
        let bytes = 9_007_199_254_740_992f64.to_le_bytes();
        stored_tensors(&float, &[("w", "F64", &[1], &bytes)]);
        for (a, b) in [(&integer, &float), (&float, &integer)] {
            let found = run(&["diff", "--values", path_str(a), path_str(b)]);
            assert_eq!(
                found.code, code,
                "{number}: {}{}",
                found.stdout, found.stderr
            );
        }
    }
}

#[test]
fn documents_are_valid() {
    let others = [
        "same.pth",
        "one-ulp.safetensors",
        "renamed.safetensors",
        "transposed.safetensors",
        "llama-bf16.gguf",
        "nan-b.safetensors",
        "added-removed.safetensors",
    ];
    for other in others {
        for more in [
            &[][..],
            &["--all"],
            &["--quick"],
            &["--values", "--metadata"],
        ] {
            let other = pair(other);
            let found = run(&[&["diff", "--json", BASE, &other][..], more].concat());
            let document = schema::document(&found.stdout, "diff.schema.json");
            assert_eq!(
                document["same"] == Value::Bool(true),
                found.code == 0,
                "{other}"
            );
            let rows = document["tensors"].as_array().unwrap().len() as u64;
            let counts = document["counts"].as_object().unwrap();
            let sum: u64 = counts.values().map(|count| count.as_u64().unwrap()).sum();
            let equal = counts["equal"].as_u64().unwrap();
            let expected = if more == ["--all"] { sum } else { sum - equal };
            assert_eq!(rows, expected, "{other}");
        }
    }
    let failed = run(&["diff", "--json", BASE, "missing.gguf"]);
    let document = schema::document(&failed.stdout, "diff.schema.json");
    assert_eq!((failed.code, &document["error"]["kind"]), (2, &"io".into()));
}

#[test]
fn the_status_is_that_of_diff() {
    let code = |other: &str, args: &[&str]| {
        let other = pair(other);
        let found = run(&[&["diff", BASE, &other][..], args].concat());
        assert!(!args.contains(&"--quiet") || found.stdout.is_empty());
        found.code
    };
    for quiet in [&[][..], &["--quiet"]] {
        assert_eq!(code("same.pth", quiet), 0);
        assert_eq!(code("one-ulp.safetensors", quiet), 1);
        assert_eq!(code("truncated.safetensors", quiet), 2);
        assert_eq!(code("missing.safetensors", quiet), 2);
        assert_eq!(code("retyped.safetensors", quiet), 1);
        assert_eq!(
            code("retyped.safetensors", &[&["--values"], quiet].concat()),
            0
        );
        assert_eq!(
            code("one-ulp.safetensors", &[&["--values"], quiet].concat()),
            1
        );
        assert_eq!(
            code(
                "one-ulp.safetensors",
                &[&["--nmse", "1e-6"], quiet].concat()
            ),
            0
        );
        assert_eq!(
            code(
                "one-ulp.safetensors",
                &[&["--max-abs", "1e-6"], quiet].concat()
            ),
            1
        );
        assert_eq!(
            code("reordered.safetensors", &[&["--metadata"], quiet].concat()),
            1
        );
    }
    assert_eq!(code("renamed.safetensors", &["--rename", "model.="]), 0);
    assert_eq!(code("one-ulp.safetensors", &["--quick"]), 0);
    assert_eq!(
        code("one-ulp.safetensors", &["--exclude", "*.down_proj.*"]),
        0
    );
    assert_eq!(
        code("one-ulp.safetensors", &["--filter", "*.down_proj.*"]),
        1
    );
    assert_eq!(code("one-ulp.safetensors", &["--nmse", "x"]), 2);
    assert_eq!(code("one-ulp.safetensors", &["--quick", "--values"]), 2);
    let (folder, config) = (pair("base"), pair("config"));
    assert_eq!(run(&["diff", &folder, &config]).code, 1);
    assert_eq!(run(&["diff", &folder, &config, "--no-config"]).code, 0);
}

#[test]
fn standard_input_is_a_side() {
    let mut command = command(&["diff", "-", BASE]);
    let path = crate::process::workspace().join(pair("one-ulp.safetensors"));
    command.stdin(std::fs::File::open(path).unwrap());
    let found = finish(command);
    assert_eq!(found.code, 1, "{}", found.stderr);
    assert!(
        found
            .stdout
            .starts_with("A  standard input  21 tensors, BF16\n")
    );
}

#[test]
fn counts_alone_and_all_tensors() {
    let other = pair("one-ulp.safetensors");
    let stat = run(&["diff", BASE, &other, "--stat"]).stdout;
    assert!(stat.contains("different: 20 equal, 1 changed") && !stat.contains("down_proj"));
    let all = run(&["diff", BASE, &other, "--all"]).stdout;
    assert_eq!(
        all.lines().filter(|line| line.contains(".weight")).count(),
        21
    );
    let help = stdout_of(&["diff", "--help"]);
    assert!(help.contains("Exit status: 0 the same, 1 they differ"));
}
