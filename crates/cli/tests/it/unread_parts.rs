//! A part of a model that a verb could not read is named and counted, and nothing is counted twice.

use std::fs;

use serde_json::Value;

use crate::process::{path_str, run, safetensors, workspace};

/// The report of a check, and its status.
fn check(words: &[&str]) -> (i32, Value) {
    let run = run(&[&["check", "--json"], words].concat());
    let report: Value = serde_json::from_str(&run.stdout).expect(&run.stdout);
    (run.code, report["models"][0].clone())
}

/// A member that is damaged is small enough to be read with the header: it is one of the tensors that the others are counted of.
#[test]
fn a_damaged_member_of_an_archive_is_counted_and_named() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("m.npz");
    let mut bytes = fs::read(workspace().join("fixtures/npz/all_le.npz")).unwrap();
    let whole = check(&[path_str(&workspace().join("fixtures/npz/all_le.npz"))]).1;
    let count = whole["checked"]["of_tensors"].as_u64().unwrap();
    // the last byte in front of the second member
    let second = bytes.windows(4).enumerate().skip(1);
    let mut second = second.filter(|(_, magic)| *magic == b"PK\x03\x04");
    let (second, _) = second.next().expect("several members");
    bytes[second - 1] ^= 1;
    fs::write(&path, bytes).unwrap();
    let model = path_str(&path);
    let (code, report) = check(&[model]);
    assert_eq!(code, 1, "{report}");
    let checked = &report["checked"];
    assert_eq!(
        (&checked["tensors"], &checked["of_tensors"]),
        (&(count - 1).into(), &count.into())
    );
    let listed = run(&["ls", "--json", model]);
    let row: Value = serde_json::from_str(&listed.stdout).unwrap();
    let note = row["note"].as_str().unwrap_or_default();
    assert!(note.contains("does not match its checksum"), "{row}");
    let loaded = run(&["load", model]);
    assert_eq!(loaded.code, 1, "{}", loaded.stdout);
    assert!(
        loaded.stderr.contains("does not match its checksum"),
        "{}",
        loaded.stderr
    );
}

/// Shards of which none can be read: each is one finding, and none was looked at.
#[test]
fn a_damaged_shard_is_found_once() {
    let scratch = tempfile::tempdir().unwrap();
    for number in [1, 2] {
        let path = scratch
            .path()
            .join(format!("model-0000{number}-of-00002.safetensors"));
        safetensors(&path, "", &[(&format!("t{number}"), &[8])]);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..20]).unwrap();
    }
    let (code, report) = check(&[path_str(scratch.path())]);
    assert_ne!(code, 0);
    let findings = report["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 2, "{report}");
}

#[test]
fn a_list_of_digests_does_not_make_a_file_read() {
    let scratch = tempfile::tempdir().unwrap();
    let model = scratch.path().join("model");
    fs::create_dir(&model).unwrap();
    safetensors(&model.join("a.safetensors"), "", &[("a", &[8])]);
    safetensors(&model.join("b.safetensors"), "", &[("b", &[8])]);
    let bytes = fs::read(model.join("b.safetensors")).unwrap();
    fs::write(model.join("b.safetensors"), &bytes[..20]).unwrap();
    let sums = scratch.path().join("SUMS");
    let directory = path_str(&model);
    let (_, plain) = check(&[directory]);
    let (_, written) = check(&[directory, "--write", path_str(&sums)]);
    for report in [&plain, &written] {
        assert_eq!(report["checked"]["files"], 1, "{report}");
        assert_eq!(report["unread"][0]["path"], "b.safetensors", "{report}");
    }
    // it has a digest all the same
    let list = fs::read_to_string(&sums).unwrap();
    assert_eq!(list.lines().count(), 2, "{list}");
}

/// A name that is no text is shown with its bytes, and a verb that does not open it says so.
#[cfg(target_os = "linux")]
#[test]
fn names_that_are_not_utf_8_are_shown_and_never_skipped() {
    use std::os::unix::ffi::OsStrExt;

    let scratch = tempfile::tempdir().unwrap();
    let odd = std::ffi::OsStr::from_bytes(b"a\xff.safetensors");
    let made = scratch.path().join("b.safetensors");
    safetensors(&made, "", &[("a", &[8])]);
    fs::copy(&made, scratch.path().join(odd)).unwrap();
    let directory = path_str(scratch.path());
    let says = |words: &[&str], code: i32| {
        let run = run(&[words, &[directory]].concat());
        let text = run.stdout + &run.stderr;
        assert!(text.contains(r"a\xff.safetensors"), "{words:?}: {text}");
        assert_eq!(run.code, code, "{words:?}: {text}");
    };
    says(&["inspect"], 0);
    says(&["plan"], 0);
    says(&["ls"], 0);
    says(&["inspect", "--recursive"], 0);
    says(&["check", "--recursive"], 0);
    // not all of it was read
    says(&["check"], 2);
    fs::remove_file(&made).unwrap();
    for verb in ["inspect", "plan", "load"] {
        says(&[verb], 1);
    }
    says(&["check"], 2);
}
