//! Files under construction that a killed edit has left before its journal: they are named, and the next edit removes them.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use crate::process::{json_of, path_str, run, safetensors};

/// The name that a file under construction has which is to take the place of another one (`names.rs` of the sink).
fn part_of(name: &str) -> String {
    let hash = OsStr::new(name).as_encoded_bytes().iter();
    let hash = hash.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!(".anamnesis-{hash:016x}-1-0.part")
}

fn hidden(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with('.')).collect()
}

#[test]
fn what_a_killed_edit_left_is_named_and_removed() {
    let files = [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ];
    for of_directory in [true, false] {
        for args in [&["--recover"][..], &["--set", "a=b"]] {
            let scratch = tempfile::tempdir().unwrap();
            let path = |name: &str| scratch.path().join(name);
            for (name, tensor) in files.iter().zip(["a", "b"]) {
                safetensors(&path(name), "{\"format\":\"pt\"}", &[(tensor, &[4])]);
                fs::write(path(&part_of(name)), "half").unwrap();
            }
            // another program has one, and a run that replaces a checkpoint
            let others = [
                ".other.part".to_owned(),
                part_of("model.safetensors").replace(".part", ".2-of-6.part"),
            ];
            others
                .iter()
                .for_each(|name| fs::write(path(name), "kept").unwrap());
            let model = match of_directory {
                true => scratch.path().to_owned(),
                false => path(files[0]),
            };
            let edited: &[&str] = match of_directory {
                true => &files,
                false => &files[..1],
            };
            if of_directory {
                let report = json_of_check(scratch.path());
                for name in files {
                    let part = part_of(name);
                    let found = report["findings"].as_array().unwrap().iter();
                    let mut found = found.filter(|found| found["file"] == *part);
                    let found = found.next().unwrap();
                    assert_eq!(found["rule"], "unfinished", "{report}");
                    let message = found["message"].as_str().unwrap();
                    assert!(
                        message.contains("killed") && !message.contains("download"),
                        "{message}"
                    );
                    assert_eq!(found["remedy"], "remove the file", "{report}");
                }
            }
            let words = [&["edit", path_str(&model)], args, &["--json"]].concat();
            let document = json_of(&words);
            let removed = document["removed"].as_array().unwrap();
            for name in edited {
                let part = path_str(&path(&part_of(name))).to_owned();
                assert!(removed.contains(&part.into()), "{document}");
                assert!(!path(&part_of(name)).exists());
            }
            let mut left: Vec<String> = files
                .iter()
                .filter(|name| !edited.contains(name))
                .map(|name| part_of(name))
                .chain(others)
                .collect();
            let mut found = hidden(scratch.path());
            left.sort();
            found.sort();
            assert_eq!(found, left);
            // there is nothing left to say
            let text = run(&["edit", path_str(&model), "--recover"]);
            assert!(text.stdout.contains("no edit was interrupted"));
        }
    }
}

fn json_of_check(model: &Path) -> serde_json::Value {
    let run = run(&["check", "--json", path_str(model)]);
    let mut document: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    document["models"][0].take()
}

/// A file that a living process is writing is no fault.
#[test]
fn a_file_that_is_being_written_is_no_finding() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    safetensors(&path("model.safetensors"), "", &[("a", &[4])]);
    let part = part_of("model.safetensors");
    let file = fs::File::create(path(&part)).unwrap();
    file.try_lock().unwrap();
    let report = json_of_check(scratch.path());
    let unread = report["unread"].as_array().unwrap();
    let row = unread.iter().find(|row| row["path"] == *part).unwrap();
    assert_eq!(row["why"], "of a run that is writing it", "{report}");
    let rules = report["findings"].as_array().unwrap().iter();
    assert!(!rules.into_iter().any(|found| found["rule"] == "unfinished"));
    drop(file);
    let report = json_of_check(scratch.path());
    assert!(report["findings"].to_string().contains("unfinished"));
}

/// A file that the journal of an interrupted edit may name is not to be removed.
#[test]
fn a_part_beside_a_journal_belongs_to_the_edit() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    safetensors(&path("model.safetensors"), "", &[("a", &[4])]);
    let part = part_of("model.safetensors.index.json");
    fs::write(path(&part), "half").unwrap();
    fs::write(path(".anamnesis-edit"), "anamnesis edit journal 1\n").unwrap();
    let report = json_of_check(scratch.path());
    let mut found = report["findings"].as_array().unwrap().iter();
    let found = found.find(|found| found["file"] == *part).unwrap();
    let remedy = found["remedy"].as_str().unwrap();
    assert!(remedy.contains("--recover"), "{report}");
    assert!(
        !report["findings"].to_string().contains("remove"),
        "{report}"
    );
}
