//! Digests: from the hub's client, from lists, and written.

use std::fs;
use std::path::PathBuf;

use anamnesis::check::{DigestList, check_path, json_list, sha256_lines};
use anamnesis::{CancelToken, ErrorKind, OpenOptions};

use crate::support::fixture;
use crate::support::scratch_dir::ScratchDir;

const SHA256: &str = "05cbb92b910a13fb6c23079121918393e23f7b2cee3e0c48c53fb9c311036193";
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A directory with the sound file under this name.
fn download(name: &str) -> (ScratchDir, PathBuf) {
    let scratch = ScratchDir::new(name);
    let path = scratch.path("model.safetensors");
    fs::copy(fixture("ask/check/clean.safetensors"), &path).unwrap();
    let root = path.parent().unwrap().to_owned();
    (scratch, root)
}

fn rules(root: &std::path::Path) -> Vec<(&'static str, Option<String>)> {
    let report = check_path(root, &OpenOptions::new()).run().unwrap();
    report
        .findings
        .into_iter()
        .map(|f| (f.rule, f.file))
        .collect()
}

#[test]
fn what_the_client_wrote_about_a_download_is_compared() {
    let (_scratch, root) = download("check-local");
    let folder = root.join(".cache/huggingface/download");
    fs::create_dir_all(&folder).unwrap();
    fs::write(root.join("config.json"), "{}\n").unwrap();
    let metadata = |name: &str, etag: &str| {
        fs::write(
            folder.join(format!("{name}.metadata")),
            format!("{COMMIT}\n{etag}\n1790000000.0\n"),
        )
        .unwrap();
    };
    metadata("model.safetensors", SHA256);
    // git hash-object of the text
    metadata("config.json", "0967ef424bce6791893e9a57bb952f80fd536e93");
    let report = check_path(&root, &OpenOptions::new()).run().unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    let compared = report.files.iter().filter(|file| file.expected.is_some());
    assert_eq!(compared.count(), 2);
    metadata("model.safetensors", &SHA256.replace('0', "1"));
    metadata("config.json", COMMIT);
    let wrong = |file: &str| ("hash", Some(file.to_owned()));
    assert_eq!(
        rules(&root),
        [wrong("model.safetensors"), wrong("config.json")]
    );
}

#[cfg(unix)]
#[test]
fn the_name_of_a_blob_is_compared() {
    let scratch = ScratchDir::new("check-hub");
    for (digest, expected) in [(SHA256.to_owned(), 0), (SHA256.replace('0', "1"), 1)] {
        let root = scratch.path(&digest);
        let snapshot = root.join("snapshots/0123456");
        fs::create_dir_all(&snapshot).unwrap();
        fs::create_dir_all(root.join("blobs")).unwrap();
        fs::copy(
            fixture("ask/check/clean.safetensors"),
            root.join("blobs").join(&digest),
        )
        .unwrap();
        let link = snapshot.join("model.safetensors");
        std::os::unix::fs::symlink(format!("../../blobs/{digest}"), &link).unwrap();
        for path in [&snapshot, &link] {
            let report = check_path(path, &OpenOptions::new()).run().unwrap();
            assert_eq!(report.findings.len(), expected, "{:?}", report.findings);
            assert_eq!(report.files[0].source.as_deref(), Some("hub cache"));
        }
    }
}

#[test]
fn lists_that_are_written_are_read_again() {
    let (_scratch, root) = download("check-lists");
    fs::write(root.join("notes.txt"), "text").unwrap();
    let report = check_path(&root, &OpenOptions::new())
        .tensor_digests()
        .run()
        .unwrap();
    assert_eq!(report.files.len(), 2);
    let (lines, json) = (sha256_lines(&report), json_list(&report));
    assert!(
        lines.contains(&format!("{SHA256}  model.safetensors\n")),
        "{lines}"
    );
    for text in [&lines, &json] {
        let list = DigestList::from_text(text.as_bytes()).unwrap();
        let again = check_path(&root, &OpenOptions::new())
            .manifest(list)
            .run()
            .unwrap();
        assert!(again.findings.is_empty(), "{:?}", again.findings);
        assert!(again.files.iter().any(|file| file.sha256.is_some()));
    }
    // without a list, `SHA256SUMS` next to the files is read
    fs::write(
        root.join("SHA256SUMS"),
        format!("{lines}{SHA256}  gone.safetensors\n"),
    )
    .unwrap();
    assert_eq!(
        rules(&root),
        [("hash-missing-file", Some("gone.safetensors".to_owned()))]
    );
    fs::write(root.join("notes.txt"), "other").unwrap();
    assert_eq!(rules(&root)[0], ("hash", Some("notes.txt".to_owned())));
}

#[test]
fn digests_of_tensors_are_compared_by_name() {
    let path = fixture("ask/check/stats-q8_0.gguf");
    let report = check_path(&path, &OpenOptions::new())
        .tensor_digests()
        .run()
        .unwrap();
    let tensor = report
        .tensors
        .iter()
        .find(|t| t.name == "output_norm.weight")
        .unwrap();
    let digest = tensor.stored.sha256.unwrap();
    let line = |name: &str| format!("sha256    {digest}  models/a.gguf:{name}\n");
    let run = |text: String| {
        let list = DigestList::from_text(text.as_bytes()).unwrap();
        let report = check_path(&path, &OpenOptions::new())
            .manifest(list)
            .run()
            .unwrap();
        report
            .findings
            .into_iter()
            .map(|f| (f.rule, f.tensor))
            .collect::<Vec<_>>()
    };
    assert_eq!(run(line("output_norm.weight")), []);
    assert_eq!(
        run(line("output.weight")),
        [("hash", Some("output.weight".to_owned()))]
    );
    assert_eq!(
        run(line("none")),
        [("hash-missing-file", Some("none".to_owned()))]
    );
}

#[test]
fn a_cancelled_check_is_an_error() {
    let token = CancelToken::new();
    token.cancel();
    let path = fixture("ask/check/clean.safetensors");
    for check in [
        check_path(&path, &OpenOptions::new()),
        check_path(&path, &OpenOptions::new()).file_digests(),
    ] {
        let error = check.cancel(&token).run().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Cancelled));
    }
}
