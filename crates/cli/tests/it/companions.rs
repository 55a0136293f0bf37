//! The files that `remember` copies beside the tensors, and those that it leaves out: locally and to a bucket.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

#[cfg(target_os = "linux")]
use crate::process::is_root;
use crate::process::{command, finish, path_str, run, safetensors};

const FILES: [(&str, &str); 8] = [
    ("config.json", "{\"model_type\": \"m\"}"),
    ("tokenizer.json", "{}"),
    ("LICENSE", "free"),
    ("passwords.txt", "hunter2"),
    ("credentials.json", "{\"key\": \"hunter2\"}"),
    ("README.md", "read"),
    ("modeling_m.py", "import os"),
    (".env", "KEY=hunter2"),
];

fn model(directory: &Path, with_config: bool) {
    fs::create_dir(directory).unwrap();
    safetensors(&directory.join("model.safetensors"), "", &[("w", &[8])]);
    for (name, text) in FILES {
        if with_config || name != "config.json" {
            fs::write(directory.join(name), text).unwrap();
        }
    }
}

/// The files that a run names: the copied ones, and the others with the reason.
fn said(document: &Value) -> (Vec<&str>, BTreeSet<(&str, &str)>) {
    let copied = document["companions"].as_array().unwrap().iter();
    let left = document["left_out"].as_array().unwrap().iter();
    let left = left.map(|left| {
        (
            left["name"].as_str().unwrap(),
            left["reason"].as_str().unwrap(),
        )
    });
    (
        copied.map(|name| name.as_str().unwrap()).collect(),
        left.collect(),
    )
}

/// A source, and what is said of the files beside it.
struct Case {
    name: &'static str,
    with_config: bool,
    is_file: bool,
    copied: &'static [&'static str],
    left_out: &'static [(&'static str, &'static str)],
}

static CASES: &[Case] = &[
    Case {
        name: "a directory",
        with_config: true,
        is_file: false,
        copied: &["LICENSE", "config.json", "tokenizer.json"],
        left_out: &[
            (".env", "hidden"),
            ("README.md", "unknown"),
            ("credentials.json", "unknown"),
            ("modeling_m.py", "code"),
            ("passwords.txt", "unknown"),
        ],
    },
    Case {
        name: "a file of a model",
        with_config: true,
        is_file: true,
        copied: &["LICENSE", "config.json", "tokenizer.json"],
        left_out: &[("modeling_m.py", "code")],
    },
    Case {
        name: "a file among others",
        with_config: false,
        is_file: true,
        copied: &[],
        left_out: &[("LICENSE", "no_config"), ("tokenizer.json", "no_config")],
    },
];

/// Each case, written by `run` to a place whose names are returned with what was printed as JSON and as text.
fn assert_cases(write: impl Fn(&str, &str, bool) -> (BTreeSet<String>, String)) {
    for (number, case) in CASES.iter().enumerate() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().join("m");
        model(&directory, case.with_config);
        let source = match case.is_file {
            true => directory.join("model.safetensors"),
            false => directory,
        };
        let (names, json) = write(path_str(&source), &format!("{number}-json"), true);
        let document: Value = serde_json::from_str(&json).unwrap();
        let (copied, left_out) = said(&document);
        assert_eq!(copied, case.copied, "{}", case.name);
        let expected: BTreeSet<_> = case.left_out.iter().copied().collect();
        assert_eq!(left_out, expected, "{}", case.name);
        let tensors = ["model.safetensors"].into_iter();
        let expected = tensors
            .chain(case.copied.iter().copied())
            .map(str::to_owned);
        assert_eq!(names, expected.collect(), "{}", case.name);
        let (_, text) = write(path_str(&source), &format!("{number}-text"), false);
        for name in case
            .copied
            .iter()
            .chain(case.left_out.iter().map(|(name, _)| name))
        {
            assert!(text.contains(name), "{}: {name} in {text}", case.name);
        }
        assert!(!text.contains("hunter2") && !json.contains("hunter2"));
    }
}

fn remember(source: &str, output: &str, json: bool) -> Vec<String> {
    let mut args = vec!["remember", source, "--shard-size", "1GB", "-o", output];
    args.extend(json.then_some("--json"));
    args.into_iter().map(str::to_owned).collect()
}

#[test]
fn known_names_are_copied_and_others_are_named() {
    let out = tempfile::tempdir().unwrap();
    assert_cases(|source, name, json| {
        let to = out.path().join(name);
        let args = remember(source, path_str(&to), json);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let done = run(&args);
        assert_eq!(done.code, 0, "{}", done.stderr);
        let entries = fs::read_dir(&to).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        (names.collect(), done.stdout)
    });
}

/// Private files whose names begin as a model's files do.
#[test]
fn beginnings_of_names_are_not_enough() {
    const PRIVATE: [&str; 14] = [
        ".env",
        "LICENSE.key",
        "LICENSES-internal.xlsx",
        "LICENSE_KEY.pem",
        "NOTICE-of-termination.docx",
        "adapter_config.secret.json",
        "config.production.json",
        "dict.private.txt",
        "keys-of-mine.tiktoken",
        "sentence_of_court.json",
        "tokenizer-passwords.txt",
        "tokenizer.model.bak",
        "tokenizer.secrets.txt",
        "vocab_private.txt",
    ];
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("m");
    model(&directory, true);
    for name in PRIVATE {
        fs::write(directory.join(name), "hunter2").unwrap();
    }
    for folder in ["notes", ".git"] {
        fs::create_dir(directory.join(folder)).unwrap();
        fs::write(directory.join(folder).join("config.json"), "hunter2").unwrap();
    }
    let source = directory.join("model.safetensors");
    for (number, source) in [&directory, &source].into_iter().enumerate() {
        let out = scratch.path().join(format!("out-{number}"));
        let args = remember(path_str(source), path_str(&out), true);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let done = run(&args);
        assert_eq!(done.code, 0, "{}", done.stderr);
        let document: Value = serde_json::from_str(&done.stdout).unwrap();
        let (copied, left_out) = said(&document);
        assert_eq!(copied, ["LICENSE", "config.json", "tokenizer.json"]);
        let is_named = |name: &str| left_out.iter().any(|(left, _)| *left == name);
        // files beside a single one are not its model's, and not named
        assert!(
            number == 1 || PRIVATE.iter().all(|name| is_named(name)),
            "{document}"
        );
        assert!(
            number == 1 || (is_named("notes/") && is_named(".git/")),
            "{document}"
        );
        for entry in fs::read_dir(&out).unwrap() {
            let text = fs::read(entry.unwrap().path()).unwrap();
            assert!(!String::from_utf8_lossy(&text).contains("hunter2"));
        }
    }
}

#[cfg(feature = "remote")]
#[test]
fn a_bucket_gets_the_same_files() {
    let server = crate::web_server::TestServer::start();
    assert_cases(|source, name, json| {
        let args = remember(source, &format!("s3://bucket/{name}"), json);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let done = finish(crate::remote::server_command(&server, &args));
        assert_eq!(done.code, 0, "{}", done.stderr);
        let prefix = format!("/bucket/{name}/");
        let paths = server.paths().into_iter();
        let names = paths.filter_map(|path| Some(path.strip_prefix(&prefix)?.to_owned()));
        (names.collect(), done.stdout)
    });
}

/// Root converts the model of a user, who has put links to files that only root may read in its place.
#[cfg(target_os = "linux")]
#[test]
fn a_link_of_another_user_is_not_copied() {
    if !is_root("links of another user") {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("m");
    model(&directory, true);
    let secret = scratch.path().join("secret");
    fs::write(&secret, "{\"secret\": \"hunter2\"}").unwrap();
    for name in ["tokenizer.json", "vocab.json"] {
        let link = directory.join(name);
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(&secret, &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(7), Some(7)).unwrap();
    }
    let out = scratch.path().join("out");
    let args = remember(path_str(&directory), path_str(&out), true);
    let mut remember: Command = command(&[]);
    let done = finish({
        remember.args(args);
        remember
    });
    assert_eq!(done.code, 0, "{}", done.stderr);
    let document: Value = serde_json::from_str(&done.stdout).unwrap();
    let (copied, left_out) = said(&document);
    assert_eq!(copied, ["LICENSE", "config.json"]);
    for name in ["tokenizer.json", "vocab.json"] {
        assert!(left_out.contains(&(name, "foreign_link")), "{document}");
        assert!(!out.join(name).exists());
    }
    // the owner's own link, and one that root has made, are followed
    for owner in [7, 0] {
        let target = scratch.path().join(format!("target-{owner}"));
        fs::write(&target, "{}").unwrap();
        std::os::unix::fs::chown(&target, Some(7), Some(7)).unwrap();
        let link = directory.join("config.json");
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(owner), Some(owner)).unwrap();
        let out = scratch.path().join(format!("out-{owner}"));
        let done = run(&["remember", path_str(&directory), "-o", path_str(&out)]);
        assert_eq!(done.code, 0, "{}", done.stderr);
        assert!(out.join("config.json").exists());
    }
}
