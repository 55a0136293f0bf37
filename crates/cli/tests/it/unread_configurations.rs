//! A configuration that is there and cannot be read is an error that names it, and never counts as none.

use std::fs;
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::path::Path;

use crate::process::{is_root, path_str, run, safetensors};

const NAMES: [&str; 3] = [
    "config.json",
    "quantize_config.json",
    "hf_quant_config.json",
];

/// The verbs that read weights by a configuration, or write it.
fn verbs<'a>(model: &'a str, other: &'a str, out: &'a str) -> Vec<Vec<&'a str>> {
    let made = |words: &[&'a str]| words.to_vec();
    vec![
        made(&["inspect", model]),
        made(&["plan", model]),
        made(&["check", model]),
        made(&["fit", model]),
        made(&["diff", model, other]),
        made(&["convert", model, "-o", out]),
        made(&["remember", model, "-o", out]),
        made(&["edit", model, "--rename", "own=new"]),
        made(&["report", model, "-o", "-"]),
        made(&["ls", model]),
    ]
}

fn all_name(directory: &Path, name: &str, why: &str) {
    let model = directory.join("model");
    fs::create_dir(&model).unwrap();
    safetensors(&model.join("model.safetensors"), "", &[("own", &[8])]);
    let other = directory.join("other.safetensors");
    safetensors(&other, "", &[("own", &[8])]);
    let out = directory.join("out/");
    let before = fs::read(model.join("model.safetensors")).unwrap();
    match why {
        "does not exist" => symlink("nowhere.json", model.join(name)).unwrap(),
        "a link of another user" => {
            let target = directory.join("elsewhere.json");
            fs::write(&target, "{}").unwrap();
            symlink(&target, model.join(name)).unwrap();
            lchown(model.join(name), Some(1), Some(1)).unwrap();
        }
        _ => {
            fs::write(model.join(name), "{}").unwrap();
            fs::set_permissions(model.join(name), fs::Permissions::from_mode(0o000)).unwrap();
        }
    }
    for words in verbs(path_str(&model), path_str(&other), path_str(&out)) {
        // these read `config.json` alone
        if name != "config.json" && matches!(words[0], "fit" | "ls") {
            continue;
        }
        let run = run(&words);
        let text = run.stdout + &run.stderr;
        // a list and a description say what they have not, as of a configuration that is no JSON; others so of one that is about the
        // decoding of weights alone
        let is_description = matches!(words[0], "inspect" | "ls")
            || (matches!(words[0], "diff" | "report") && name != "config.json");
        assert!(run.code != 0 || is_description, "{words:?} {name}: {text}");
        assert!(
            text.contains(name) && text.contains(why),
            "{words:?} {name}: {text}"
        );
        assert!(!out.exists(), "{words:?}");
    }
    assert_eq!(fs::read(model.join("model.safetensors")).unwrap(), before);
}

#[test]
fn a_link_that_leads_nowhere_is_no_missing_configuration() {
    for name in NAMES {
        let scratch = tempfile::tempdir().unwrap();
        all_name(scratch.path(), name, "does not exist");
    }
}

#[test]
fn a_foreign_link_is_no_missing_configuration() {
    // only root gives a link to another user
    if !is_root("links of another user") {
        return;
    }
    for name in NAMES {
        let scratch = tempfile::tempdir().unwrap();
        all_name(scratch.path(), name, "a link of another user");
    }
}

#[test]
fn a_configuration_without_the_right_to_read_it_is_no_missing_one() {
    let scratch = tempfile::tempdir().unwrap();
    let probe = scratch.path().join("probe");
    fs::write(&probe, "").unwrap();
    fs::set_permissions(&probe, fs::Permissions::from_mode(0o000)).unwrap();
    // root reads every file
    if fs::read(&probe).is_ok() {
        eprintln!("SKIPPED: this user reads every file");
        return;
    }
    all_name(scratch.path(), "config.json", "ermission denied");
}
