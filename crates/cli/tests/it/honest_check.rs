//! Nothing compared is not equal, and nothing read is not sound: what `check` and `diff` looked at is counted, what they did
//! not look at is named, and evidence that was not used is a finding.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::process::{Run, path_str, run, safetensors, workspace};

const CLEAN: &str = "fixtures/ask/check/clean.safetensors";
const GGUF: &str = "fixtures/ask/check/stats-q8_0.gguf";
/// The digests of [`CLEAN`].
const SHA256: &str = "05cbb92b910a13fb6c23079121918393e23f7b2cee3e0c48c53fb9c311036193";
const SHA512: &str = "5009bd6380a4ac6e9aae06218614737aa6500f400bce5a9bc18db8e746bf7f8e258a3484f1457e72ee417f7be379ae551fae5eb8393172179f576f0ae3b68a91";

/// A directory with these files: copies of fixtures, or texts.
struct Model(tempfile::TempDir);

impl Model {
    fn new(files: &[(&str, &[u8])]) -> Self {
        let model = Self(tempfile::tempdir().unwrap());
        for (name, bytes) in files {
            model.write(name, bytes);
        }
        model
    }

    /// A directory with the sound model alone.
    fn clean() -> Self {
        Self::new(&[("model.safetensors", &fixture(CLEAN))])
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn path(&self) -> &str {
        path_str(self.0.path())
    }

    fn file(&self, name: &str) -> String {
        path_str(&self.0.path().join(name)).to_owned()
    }
}

fn fixture(path: &str) -> Vec<u8> {
    fs::read(workspace().join(path)).unwrap()
}

/// The document of a check, and its status.
fn checked(args: &[&str]) -> (Value, i32) {
    let found = run(&[&["check", "--json"], args].concat());
    let document: Value = serde_json::from_str(&found.stdout)
        .unwrap_or_else(|e| panic!("{args:?}: {e}: {}{}", found.stdout, found.stderr));
    (document["models"][0].clone(), found.code)
}

fn rules(model: &Value) -> Vec<&str> {
    let findings = model["findings"].as_array().unwrap().iter();
    findings.map(|f| f["rule"].as_str().unwrap()).collect()
}

/// Texts are wrapped to the screen.
fn words(run: &Run) -> String {
    let words: Vec<&str> = run.stdout.split_whitespace().collect();
    words.join(" ")
}

#[test]
fn a_damaged_file_beside_a_good_one_is_found() {
    let clean = fixture(CLEAN);
    let model = Model::new(&[
        ("model.safetensors", &clean),
        ("model-b.safetensors", &clean[..clean.len() / 2]),
        ("model-c.safetensors", b"no tensors"),
        ("README.md", b"text"),
        (".hidden", b""),
        ("training_args.bin", b"\x80\x02."),
    ]);
    let text = run(&["check", model.path()]);
    assert_eq!(text.code, 2, "{}", text.stdout);
    let shown = words(&text);
    for part in [
        "truncated model-b.safetensors",
        "model-c.safetensors",
        "21 tensors sound; not all of it could be read",
        "checked 21 of 21 tensors, 1 of 6 files",
        "not looked at: model-b.safetensors, model-c.safetensors (cannot be read)",
        "not looked at: README.md (no tensors)",
        "not looked at: .hidden (hidden)",
        "not looked at: training_args.bin (a state of training)",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let (document, _) = checked(&[model.path()]);
    assert_eq!(document["unread"].as_array().unwrap().len(), 5);
    let counts = serde_json::json!({"tensors": 21, "of_tensors": 21, "files": 1, "of_files": 6});
    assert_eq!(document["checked"], counts);
}

/// A folder is named, with what it is to the model, and its files are looked at where a list names them.
#[test]
fn folders_are_named_as_not_looked_at() {
    let model = Model::clean();
    let folder = |name: &str| {
        let path = Path::new(model.path()).join(name);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("inner.safetensors"), fixture(CLEAN)).unwrap();
    };
    ["old", "original", ".cache", "1_Pooling"]
        .into_iter()
        .for_each(folder);
    model.write("modules.json", b"[]");
    let why = |document: &Value, folder: &str| -> Option<String> {
        let unread = document["unread"].as_array().unwrap().iter();
        let mut found = unread.filter(|file| file["path"] == folder);
        Some(found.next()?["why"].as_str().unwrap().to_owned())
    };
    let (document, code) = checked(&[model.path()]);
    assert_eq!(code, 0, "{document}");
    let counts = serde_json::json!({"tensors": 21, "of_tensors": 21, "files": 1, "of_files": 6});
    assert_eq!(document["checked"], counts, "{document}");
    for (folder, expected) in [
        ("old/", "a folder: check it by its path"),
        (
            "original/",
            "a folder with the weights as they were before conversion",
        ),
        (".cache/", "hidden"),
        (
            "1_Pooling/",
            "a module of sentence-transformers: check it by its path",
        ),
    ] {
        assert_eq!(
            why(&document, folder).as_deref(),
            Some(expected),
            "{document}"
        );
    }
    let text = words(&run(&["check", model.path()]));
    assert!(
        text.contains("not looked at: old/ (a folder: check it by its path)"),
        "{text}"
    );
    let models = "1_Pooling/inner.safetensors, old/inner.safetensors, original/inner.safetensors";
    assert!(
        text.contains(&format!("not looked at: {models} (models in folders)")),
        "{text}"
    );
    // a digest of one file of it
    let digest = format!("{}  old/inner.safetensors\n", "0".repeat(64));
    model.write("SHA256SUMS", digest.as_bytes());
    let (document, code) = checked(&[model.path()]);
    assert_eq!((code, rules(&document)), (1, vec!["hash"]), "{document}");
    assert!(why(&document, "old/").unwrap().contains("a list names"));
    let difference = run(&["diff", "--json", model.path(), CLEAN]);
    let difference: Value = serde_json::from_str(&difference.stdout).unwrap();
    let unread = difference["a"]["unread"].as_array().unwrap();
    assert!(
        unread.iter().any(|file| file["path"] == "old/"),
        "{difference}"
    );
}

/// A pipeline whose components alone have weights: nothing is looked at, and each model is named.
#[test]
fn models_of_components_are_named() {
    let model = Model::new(&[]);
    model.write("model_index.json", b"{\"_class_name\": \"P\"}");
    for component in ["unet", "vae", "tokenizer"] {
        fs::create_dir(Path::new(model.path()).join(component)).unwrap();
    }
    for file in ["unet/one.safetensors", "vae/two.safetensors"] {
        model.write(file, &fixture(CLEAN));
    }
    model.write("tokenizer/tokenizer.json", b"{}");
    let found = run(&["check", model.path()]);
    let text = words(&found);
    assert_eq!(found.code, 2, "{text}");
    let named = "not looked at: unet/one.safetensors, vae/two.safetensors (models in folders)";
    assert!(text.contains(named), "{text}");
    let (document, _) = checked(&[model.path()]);
    let unread = document["unread"].as_array().unwrap();
    let row = unread.iter().find(|row| row["path"] == "vae/").unwrap();
    assert_eq!(row["models"], serde_json::json!(["two.safetensors"]));
    assert_eq!(run(&["check", "--recursive", model.path()]).code, 0);
}

/// Every verb that reads a model names the models of its directory that it does not read; `check` reads all of them.
#[test]
fn several_models_of_a_directory_are_named_by_every_verb() {
    let model = Model::new(&[
        ("model.safetensors", &fixture(CLEAN)),
        ("model-q8.gguf", &fixture(GGUF)),
    ]);
    let path = model.path();
    let out = tempfile::tempdir().unwrap();
    let out = |name: &str| path_str(&out.path().join(name)).to_owned();
    let expected = "the directory holds models of several formats: model.safetensors was read; not read: model-q8.gguf";
    for args in [
        &["inspect", path][..],
        &["inspect", "--json", path],
        &["plan", path],
        &["remember", path, "-o", &out("out.safetensors")],
        &["load", path],
        &["fit", path],
        &["diff", path, CLEAN],
        &["diff", "--json", path, CLEAN],
        &["report", path, "-o", "-"],
        &["template", "predict", path, "-o", &out("out.iot")],
        #[cfg(target_os = "linux")]
        &["warm", path],
    ] {
        let found = run(args);
        let text = format!("{}{}", found.stdout, found.stderr);
        let text: Vec<&str> = text.split_whitespace().collect();
        assert!(text.join(" ").contains(expected), "{args:?}: {text:?}");
    }
    for raw in [&[][..], &["--raw"]] {
        let read = format!("cat '{path}/model.safetensors' > /dev/null");
        let to = out("recorded.iot");
        let record = ["record", "--overwrite", "-o", &to, "--dir", path];
        let found = run(&[&record[..], raw, &["--", "sh", "-c", &read]].concat());
        if found.code != 0 {
            eprintln!("SKIPPED: record: {}", found.stderr);
            break;
        }
        let text: Vec<&str> = found.stderr.split_whitespace().collect();
        assert!(text.join(" ").contains(expected), "record: {text:?}");
    }
    let (document, code) = checked(&[path]);
    assert_eq!((code, rules(&document).len()), (0, 0), "{document}");
    let models = document["models"].as_array().unwrap();
    let formats: Vec<&Value> = models.iter().map(|model| &model["format"]).collect();
    assert_eq!(formats, ["safetensors", "gguf"]);
    assert_eq!(document["checked"]["files"], 2);
    let text = words(&run(&["check", path]));
    assert!(
        text.contains("2 models of several formats: model.safetensors (safetensors, 21 tensors), model-q8.gguf (gguf, 27 tensors)"),
        "{text}"
    );
    // damage in the second one
    let mut damaged = fixture(GGUF);
    damaged.truncate(damaged.len() - 64);
    model.write("model-q8.gguf", &damaged);
    let (document, code) = checked(&[path]);
    assert_eq!((rules(&document), code), (vec!["truncated"], 2));
}

#[test]
fn shards_and_indexes_beside_another_model_are_opened_as_such() {
    let shards = workspace().join("fixtures/ask/check/shards-ok");
    let model = Model::new(&[("all.gguf", &fixture(GGUF))]);
    for entry in fs::read_dir(&shards).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        model.write(&name, &fs::read(entry.path()).unwrap());
    }
    let (document, code) = checked(&[model.path()]);
    assert_eq!((code, rules(&document).len()), (0, 0), "{document}");
    let files = &document["models"][0]["files"];
    assert_eq!(files.as_array().unwrap().len(), 3, "{document}");
    assert_eq!(document["models"].as_array().unwrap().len(), 2);
    // an index of a format that was not downloaded is named, and no fault
    let index = br#"{"metadata":{},"weight_map":{"a":"pytorch_model-00001-of-00001.bin"}}"#;
    model.write("pytorch_model.bin.index.json", index);
    let (document, code) = checked(&[model.path()]);
    assert_eq!(code, 0, "{document}");
    let unread = serde_json::json!([{
        "path": "pytorch_model.bin.index.json",
        "why": "an index of files that are not there",
    }]);
    assert_eq!(document["unread"], unread);
}

#[test]
fn headers_and_single_rules_are_never_called_sound() {
    for (args, expected) in [
        (
            &["--headers"][..],
            "nothing found; headers are well-formed checked 0 of 21 tensors, 1 of 1 files",
        ),
        (
            &["--only", "nan"],
            "nothing found; by nan alone checked 21 of 21 tensors, 1 of 1 files",
        ),
        (
            &["--headers", "--only", "missing-sibling"],
            "headers are well-formed; by missing-sibling alone",
        ),
        (
            &["--filter", "*.mlp.*"],
            "nothing found; 6 tensors sound checked 6 of 21 tensors",
        ),
        (&["--allow", "nan"], "21 tensors sound; without nan"),
        (
            &[],
            "nothing found; 21 tensors sound checked 21 of 21 tensors",
        ),
    ] {
        let found = run(&[&["check", CLEAN], args].concat());
        assert_eq!(found.code, 0, "{args:?}");
        let text = words(&found);
        assert!(text.contains(expected), "{args:?}: {text}");
        let is_partial = args.contains(&"--headers") || args.contains(&"--only");
        assert_eq!(text.contains("sound"), !is_partial, "{args:?}: {text}");
        let (document, _) = checked(&[&[CLEAN], args].concat());
        assert_eq!(document["sound"] == 0, is_partial, "{args:?}");
    }
    let wrong = words(&run(&[
        "check",
        "--headers",
        "fixtures/ask/check/shards-swapped",
    ]));
    assert!(wrong.contains("headers alone were read") && !wrong.contains("well-formed"));
}

#[test]
fn nothing_read_is_status_2() {
    let model = Model::new(&[]);
    safetensors(&model.0.path().join("empty.safetensors"), "{}", &[]);
    let empty = model.file("empty.safetensors");
    let found = run(&["check", &empty]);
    assert_eq!(found.code, 2, "{}", found.stdout);
    assert!(words(&found).contains("nothing found; nothing was read"));
    assert_eq!(run(&["check", "--headers", &empty]).code, 0);
    for args in [
        &["diff", &empty, &empty][..],
        &["diff", "--quick", &empty, &empty],
        &["diff", "--quiet", &empty, &empty],
        &["diff", "--exclude", "*", CLEAN, CLEAN],
    ] {
        let found = run(args);
        assert_eq!(found.code, 2, "{args:?}: {}", found.stdout);
        assert!(!found.stdout.contains("same"), "{args:?}: {}", found.stdout);
    }
    let found = run(&["diff", "--json", "--exclude", "*", CLEAN, CLEAN]);
    let document: Value = serde_json::from_str(&found.stdout).unwrap();
    assert_eq!(
        (&document["same"], &document["compared"]),
        (&false.into(), &0.into())
    );
}

#[test]
fn diff_counts_what_it_compared() {
    let model = Model::clean();
    model.write("LICENSE", b"text");
    model.write("tokenizer.json", b"{}");
    let text = run(&["diff", model.path(), CLEAN, "--filter", "*.mlp.*"]);
    assert_eq!(text.code, 0, "{}{}", text.stdout, text.stderr);
    let shown = words(&text);
    for part in [
        "A: checked 6 of 21 tensors, 1 of 3 files",
        "A: not looked at: LICENSE (no tensors)",
        "A: not looked at: tokenizer.json (not compared with the other side)",
        "B: checked 6 of 21 tensors, 1 of 1 files",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let found = run(&["diff", "--json", model.path(), CLEAN]);
    let document = crate::schema::document(&found.stdout, "diff.schema.json");
    assert_eq!(document["a"]["of_files"], 3);
    assert_eq!(document["a"]["unread"][0]["path"], "LICENSE");
}

/// A list of digests, its name, and what a check of the sound model and of a damaged one says.
struct ListCase {
    name: &'static str,
    list: Vec<u8>,
    /// Rules for the sound model, and for one of which a byte differs.
    sound: &'static [&'static str],
    damaged: &'static [&'static str],
}

fn utf16(text: &str) -> Vec<u8> {
    let units = text.encode_utf16().flat_map(u16::to_le_bytes);
    [0xff, 0xfe].into_iter().chain(units).collect()
}

fn list_cases() -> Vec<ListCase> {
    let line = format!("{SHA256}  model.safetensors\n");
    let signed = format!(
        "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n\n{line}-----BEGIN PGP SIGNATURE-----\n\niQIz\n-----END PGP SIGNATURE-----\n"
    );
    let case = |name, list: String, sound, damaged| ListCase {
        name,
        list: list.into_bytes(),
        sound,
        damaged,
    };
    let md5 = "d41d8cd98f00b204e9800998ecf8427e";
    let mut cases = vec![
        case("SHA256SUMS", line.clone(), &[], &["hash"]),
        case("DIGESTS", line.clone(), &[], &["hash"]),
        case("CHECKSUMS", line.clone(), &[], &["hash"]),
        case("HASHES.txt", line.clone(), &[], &["hash"]),
        case(
            "model.safetensors.crc32",
            "d202ef8d  model.safetensors\n".to_owned(),
            &["hash-list"],
            &["hash-list"],
        ),
        case(
            "release.sfv",
            "; made by cksfv\nmodel.safetensors D202EF8D\n".to_owned(),
            &["hash-list"],
            &["hash-list"],
        ),
        case(
            "integrity.json",
            format!(
                "{{\"files\": [{{\"path\": \"model.safetensors\", \"sha256\": \"{SHA256}\"}}]}}"
            ),
            &[],
            &["hash"],
        ),
        case(
            "integrity.json",
            "{\"model.safetensors\": \"sha256-AAAA\"}".to_owned(),
            &["hash-list"],
            &["hash-list"],
        ),
        case("sha256sum.txt", line.clone(), &[], &["hash"]),
        case("SHA256SUMS", format!("\u{feff}{line}"), &[], &["hash"]),
        case("SHA256SUMS", signed.clone(), &[], &["hash"]),
        case("SHA256SUMS.asc", signed, &[], &["hash"]),
        case(
            "SHA512SUMS",
            format!("{SHA512}  model.safetensors\n"),
            &[],
            &["hash"],
        ),
        case(
            "checksums.txt",
            format!("SHA256 (model.safetensors) = {SHA256}\n"),
            &[],
            &["hash"],
        ),
        case(
            "checksums.txt",
            format!("SHA512 (model.safetensors) = {SHA512}\n"),
            &[],
            &["hash"],
        ),
        case(
            "checksums.txt",
            format!("SHA2-256(model.safetensors)= {SHA256}\n"),
            &[],
            &["hash"],
        ),
        case(
            "SHA256SUMS",
            format!("{SHA256}  some/where/model.safetensors\n"),
            &[],
            &["hash"],
        ),
        case(
            "SHA256SUMS",
            format!("{SHA256} *.\\model.safetensors\n"),
            &[],
            &["hash"],
        ),
        case(
            "model.safetensors.sha256",
            format!("{SHA256}\n"),
            &[],
            &["hash"],
        ),
        case("model.safetensors.sha256", line.clone(), &[], &["hash"]),
        // one line in an odd form does not switch the others off
        case(
            "SHA256SUMS",
            format!("??? what\n{line}"),
            &["hash-list"],
            &["hash", "hash-list"],
        ),
        case(
            "SHA256SUMS",
            format!("{line}{md5}  LICENSE\n"),
            &["hash-list"],
            &["hash", "hash-list"],
        ),
        // another digest of a file that has one is nothing that was not used
        case(
            "SHA256SUMS",
            format!("MD5 (model.safetensors) = {md5}\nSHA256 (model.safetensors) = {SHA256}\n"),
            &[],
            &["hash"],
        ),
        // lists of which nothing can be used
        case(
            "SHA256SUMS",
            "no list\n".into(),
            &["hash-list"],
            &["hash-list"],
        ),
        case("SHA256SUMS", String::new(), &["hash-list"], &["hash-list"]),
        case(
            "MD5SUMS",
            format!("{md5}  model.safetensors\n"),
            &["hash-list"],
            &["hash-list"],
        ),
        case(
            "B2SUMS",
            format!("{SHA512}  model.safetensors\n"),
            &["hash-list"],
            &["hash-list"],
        ),
        case(
            "SHA256SUMS",
            format!(
                "{SHA256}  a/model.safetensors\n{}  b/model.safetensors\n",
                SHA256.replace('0', "1")
            ),
            &["hash-list"],
            &["hash-list"],
        ),
        // a file of a deeper directory is compared too
        case(
            "SHA256SUMS",
            format!("{line}{SHA256}  sub/copy.bin\n"),
            &[],
            &["hash"],
        ),
        case(
            "SHA256SUMS",
            format!("{line}{SHA256}  gone.bin\n"),
            &["hash-missing-file"],
            &["hash", "hash-missing-file"],
        ),
    ];
    cases.push(ListCase {
        name: "SHA256SUMS",
        list: utf16(&line),
        sound: &[],
        damaged: &["hash"],
    });
    cases.push(ListCase {
        name: "SHA256SUMS",
        list: b"\xff\xfe\x00".to_vec(),
        sound: &["hash-list"],
        damaged: &["hash-list"],
    });
    cases
}

#[test]
fn lists_of_digests_are_used_or_are_a_finding() {
    let clean = fixture(CLEAN);
    let mut damaged = clean.clone();
    // a value that no other rule notices
    *damaged.last_mut().unwrap() ^= 1;
    for case in list_cases() {
        let model = Model::clean();
        model.write(case.name, &case.list);
        model.write("sub/copy.bin", &clean);
        let text = String::from_utf8_lossy(&case.list).into_owned();
        for (bytes, expected) in [(&clean, case.sound), (&damaged, case.damaged)] {
            model.write("model.safetensors", bytes);
            let (document, code) = checked(&[model.path()]);
            assert_eq!(
                rules(&document),
                expected,
                "{}: {text}: {document}",
                case.name
            );
            assert_eq!(
                code,
                i32::from(!expected.is_empty()),
                "{}: {text}",
                case.name
            );
            let evidence = &document["evidence"][0];
            assert_eq!(evidence["path"], case.name, "{document}");
            let is_unused = case.damaged == ["hash-list"];
            assert_eq!(evidence["compared"] == 0, is_unused, "{text}: {evidence}");
            if is_unused {
                assert!(evidence["unused"].is_string(), "{evidence}");
            }
            // the same list, given by the caller
            let list = model.file(case.name);
            let other = Model::new(&[("model.safetensors", bytes), ("sub/copy.bin", &clean)]);
            let given = run(&["check", "--manifest", &list, other.path()]);
            // a list that was named and of which nothing can be used is an error
            let expected = if is_unused && !text.contains("a/model") {
                2
            } else {
                code
            };
            assert_eq!(
                given.code, expected,
                "{text}: {}{}",
                given.stdout, given.stderr
            );
        }
    }
}

#[cfg(unix)]
#[test]
fn a_list_that_cannot_be_read_is_a_finding() {
    let model = Model::clean();
    std::os::unix::fs::symlink("/nowhere/at/all", model.file("SHA256SUMS")).unwrap();
    let (document, code) = checked(&[model.path()]);
    assert_eq!(
        (rules(&document), code),
        (vec!["hash-list"], 1),
        "{document}"
    );
}

#[test]
fn several_lists_are_all_compared() {
    let model = Model::clean();
    model.write(
        "SHA256SUMS",
        format!("{SHA256}  model.safetensors\n").as_bytes(),
    );
    let wrong = SHA512.replace('0', "1");
    model.write(
        "SHA512SUMS",
        format!("{wrong}  model.safetensors\n").as_bytes(),
    );
    let (document, code) = checked(&[model.path()]);
    assert_eq!((rules(&document), code), (vec!["hash"], 1), "{document}");
    // the record of the hub's client does not take the place of a list
    let model = Model::clean();
    let wrong = SHA256.replace('0', "1");
    model.write(
        "SHA256SUMS",
        format!("{wrong}  model.safetensors\n").as_bytes(),
    );
    let record = format!("{}\n{SHA256}\n1790000000.0\n", "0".repeat(40));
    model.write(
        ".cache/huggingface/download/model.safetensors.metadata",
        record.as_bytes(),
    );
    let (document, code) = checked(&[model.path()]);
    assert_eq!((rules(&document), code), (vec!["hash"], 1), "{document}");
}

#[test]
fn other_evidence_is_named() {
    let model = Model::clean();
    model.write("model.sig", b"{}");
    model.write(
        "SHA256SUMS",
        format!("{SHA256}  model.safetensors\n").as_bytes(),
    );
    model.write("SHA256SUMS.asc", b"-----BEGIN PGP SIGNATURE-----\n\niQIz\n");
    let (document, code) = checked(&[model.path()]);
    assert_eq!((rules(&document).len(), code), (0, 0), "{document}");
    let evidence = serde_json::json!([
        {"path": "SHA256SUMS", "kind": "digests", "compared": 1, "unused": null},
        {"path": "SHA256SUMS.asc", "kind": "signature", "compared": 0, "unused": "signatures are not verified"},
        {"path": "model.sig", "kind": "signature", "compared": 0, "unused": "signatures are not verified"},
    ]);
    assert_eq!(document["evidence"], evidence);
    let text = words(&run(&["check", model.path()]));
    assert!(
        text.contains("not used: model.sig (signatures are not verified)"),
        "{text}"
    );
    // headers alone: nothing was compared, and that is said
    let (document, code) = checked(&["--headers", model.path()]);
    assert_eq!((rules(&document).len(), code), (0, 0), "{document}");
    assert_eq!(document["evidence"][0]["unused"], "headers alone were read");
}

/// A link that leads nowhere is a finding beside the findings of the other models, each of which names its file.
#[cfg(unix)]
#[test]
fn a_dangling_link_does_not_end_a_check() {
    let model = Model::new(&[]);
    let tensors = |name: &str, value: f32| {
        let mut bytes = value.to_le_bytes().to_vec();
        bytes.extend(value.to_le_bytes());
        let path = model.0.path().join(name);
        crate::process::stored_tensors(&path, &[("w", "F32", &[2], &bytes)]);
    };
    tensors("a.safetensors", f32::NAN);
    tensors("b.safetensors", f32::INFINITY);
    std::os::unix::fs::symlink("nowhere", model.file("c.safetensors")).unwrap();
    let found = run(&["check", model.path()]);
    assert_eq!(found.code, 2, "{}", found.stdout);
    for text in [
        "a.safetensors: w: 2 of 2",
        "b.safetensors: w: 2 of 2",
        "c.safetensors: ",
    ] {
        assert!(found.stdout.contains(text), "{text}: {}", found.stdout);
    }
    let (document, code) = checked(&[model.path()]);
    assert_eq!(
        (code, &document["checked"]["tensors"]),
        (2, &Value::from(2))
    );
}

/// A tensor that is read for other rules is not counted for those that were chosen.
#[test]
fn tensors_that_no_chosen_rule_looks_at_are_not_counted() {
    let model = Model::new(&[]);
    let path = model.0.path().join("m.safetensors");
    crate::process::stored_tensors(
        &path,
        &[
            ("v", "F32", &[2], &[0, 0, 128, 63, 0, 0, 0, 64]),
            ("x.weight", "F8_E4M3", &[8, 8], &[0x38; 64]),
            ("x.weight_scale", "F32", &[1], &[0, 0, 128, 63]),
        ],
    );
    for (more, checked_tensors, code) in [
        (&["--only", "nan"][..], 3, 0),
        (&["--only", "nan", "--filter", "v"], 1, 0),
        (&["--only", "truncated", "--filter", "v"], 0, 0),
        (&["--only", "scale-zero"], 1, 0),
        (&["--only", "scale-zero", "--filter", "x*"], 1, 0),
        // nothing to look at
        (&["--only", "scale-zero", "--filter", "v"], 0, 2),
    ] {
        let (document, found) = checked(&[more, &[path_str(&path)]].concat());
        let tensors = &document["checked"]["tensors"];
        assert_eq!(
            (tensors, found),
            (&Value::from(checked_tensors), code),
            "{more:?}"
        );
    }
}

/// Lines that are no digests do not make a list unreadable, but a text with a digest in it is no list that may be replaced.
#[test]
fn a_text_with_a_digest_is_not_replaced() {
    let model = Model::clean();
    let text = format!("# Model\n\nDigests:\n{SHA256}  model.safetensors\n");
    model.write("README.md", text.as_bytes());
    let args = [
        "check",
        "--overwrite",
        "--write",
        &model.file("README.md"),
        model.path(),
    ];
    assert_eq!(run(&args).code, 2);
    assert_eq!(fs::read_to_string(model.file("README.md")).unwrap(), text);
}

#[test]
fn a_list_that_names_no_file_of_the_model_is_a_finding() {
    let model = Model::clean();
    model.write(
        "SHA256SUMS",
        format!("{SHA256}  other.safetensors\n").as_bytes(),
    );
    // a file alone: the list is of the directory, and says nothing about this file
    let (document, code) = checked(&[&model.file("model.safetensors")]);
    assert_eq!(
        (rules(&document), code),
        (vec!["hash-list"], 1),
        "{document}"
    );
    assert!(Path::new(model.path()).is_dir());
}

/// Each rule alone, on a model that has what it looks at, and on one that has not: there the status is 2, and the verdict
/// says why.
#[test]
fn a_rule_without_anything_to_look_at_is_status_2() {
    let npz = "fixtures/ask/check/ok.npz";
    let pickle = "fixtures/ask/check/plain.pth";
    let shards = "fixtures/ask/check/shards-ok";
    let listed = Model::clean();
    listed.write(
        "SHA256SUMS",
        format!("{SHA256}  model.safetensors\n").as_bytes(),
    );
    let sums = listed.path();
    let is_none = "nothing was looked at: ";
    for (model, args, expected) in [
        (CLEAN, &["--only", "nan"][..], None),
        (
            CLEAN,
            &["--only", "nan", "--headers"],
            Some("headers alone were read"),
        ),
        (
            CLEAN,
            &["--only", "nan", "--allow", "nan"],
            Some("no rule is left"),
        ),
        (CLEAN, &["--only", "crc"], Some("there is no archive")),
        (npz, &["--only", "crc"], None),
        (
            npz,
            &["--only", "crc", "--headers"],
            Some("headers alone were read"),
        ),
        (CLEAN, &["--only", "hash"], Some("there is no digest")),
        (sums, &["--only", "hash"], None),
        (
            sums,
            &["--only", "hash", "--headers"],
            Some("headers alone were read"),
        ),
        (CLEAN, &["--only", "scale-nan"], Some("there are no scales")),
        (GGUF, &["--only", "scale-nan"], None),
        (
            GGUF,
            &["--only", "scale-nan", "--headers"],
            Some("headers alone were read"),
        ),
        (
            CLEAN,
            &["--only", "index-missing-file"],
            Some("no model has an index or several files"),
        ),
        (shards, &["--only", "index-missing-file"], None),
        (shards, &["--only", "index-missing-file", "--headers"], None),
        (
            CLEAN,
            &["--only", "pickle-global"],
            Some("there is no pickle"),
        ),
        (pickle, &["--only", "pickle-global"], None),
        (
            CLEAN,
            &["--only", "unfinished"],
            Some("no directory is checked"),
        ),
        (shards, &["--only", "unfinished"], None),
        (CLEAN, &["--only", "odd-dtype", "--headers"], None),
        (CLEAN, &["--only", "malformed", "--headers"], None),
        (CLEAN, &["--only", "crc", "--only", "nan"], None),
        (
            CLEAN,
            &["--only", "crc", "--only", "hash"],
            Some("there is no archive, whose members have checksums, there is no digest"),
        ),
    ] {
        let found = run(&[&["check", model], args].concat());
        let text = words(&found);
        match expected {
            None => assert!(
                found.code == 0 && !text.contains(is_none),
                "{model} {args:?}: {} {text}",
                found.code
            ),
            Some(why) => {
                assert!(
                    // the list of digests that headers do not compare is a reason of its own
                    found.code == 2 && text.contains(&format!("{is_none}{why}")),
                    "{model} {args:?}: {} {text}",
                    found.code
                );
                // nothing is counted as looked at beside it
                assert!(text.contains("checked 0 of "), "{text}");
                assert!(text.contains("tensors, 0 of "), "{text}");
                let (document, code) = checked(&[args, &[model]].concat());
                let idle = document["why_idle"].as_str().unwrap_or_default();
                assert!(code == 2 && idle.starts_with(why), "{document}");
            }
        }
    }
    // every rule says something where nothing is left of it
    let all = run(&[
        "check",
        CLEAN,
        "--headers",
        "--only",
        "zero",
        "--only",
        "crc",
    ]);
    assert_eq!(all.code, 2, "{}", all.stdout);
}
