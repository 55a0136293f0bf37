//! `edit` as its users run it: what it prints, what it refuses, and what is left when it is killed, or run several times at once.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anamnesis::{Checkpoint, Remedy};

use crate::process::{
    command, finish, json_of, path_str, run, safetensors, send_signal, stdout_of, workspace,
};

/// Elements of a tensor that takes 8 MiB, so that room is inserted in front of it.
const LARGE: usize = 2 << 20;

fn model(path: &Path, elements: usize) {
    safetensors(
        path,
        r#"{"format":"pt","license":"mit"}"#,
        &[("model.a", &[elements]), ("model.b", &[3])],
    );
}

fn metadata(path: &Path, key: &str) -> Option<String> {
    let checkpoint = Checkpoint::open(path).unwrap();
    let text = checkpoint.catalog().metadata().text(key);
    text.map(str::to_owned)
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[test]
fn metadata_and_names_are_changed_and_the_report_says_how() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("m.safetensors");
    let template = scratch.path().join("chat.jinja");
    model(&path, 5);
    fs::write(&template, "{% for m in messages %}\n").unwrap();
    let file = format!("template={}", path_str(&template));
    let text = stdout_of(&[
        "edit",
        path_str(&path),
        "--rename-key",
        "license=licence",
        "--set",
        "license=bsd=3",
        "--set-file",
        &file,
        "--unset",
        "format",
        "--rename",
        "model=net.model",
    ]);
    assert!(
        text.contains("edited by a copy") && text.contains("written"),
        "{text}"
    );
    assert_eq!(metadata(&path, "licence").as_deref(), Some("mit"));
    assert_eq!(metadata(&path, "license").as_deref(), Some("bsd=3"));
    assert_eq!(
        metadata(&path, "template").as_deref(),
        Some("{% for m in messages %}\n")
    );
    assert_eq!(metadata(&path, "format"), None);
    assert!(
        Checkpoint::open(&path)
            .unwrap()
            .tensor("net.model.a")
            .is_some()
    );
    let document = json_of(&["edit", path_str(&path), "--set", "a=b", "--json"]);
    assert_eq!(document["version"], 1);
    assert_eq!(document["files"][0]["way"], "room");
    assert_eq!(document["files"][0]["bytes_written"], 4096);
    assert_eq!(document["recovered"].as_array().map(Vec::len), Some(0));
    let same = stdout_of(&["edit", path_str(&path), "--set", "a=b"]);
    assert!(same.contains("1 file as before, nothing written"), "{same}");
    let none = stdout_of(&["edit", path_str(&path), "--recover"]);
    assert!(none.contains("no edit was interrupted"), "{none}");
    let compact = stdout_of(&["edit", path_str(&path), "--compact"]);
    assert!(compact.contains("edited by a copy"), "{compact}");
    assert_eq!(names(scratch.path()), ["chat.jinja", "m.safetensors"]);
}

#[test]
fn a_refused_edit_says_why_and_what_to_do() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("m.safetensors");
    model(&path, 5);
    let gguf = scratch.path().join("m.gguf");
    fs::copy(
        crate::process::workspace().join("fixtures/gguf/plain_v3.gguf"),
        &gguf,
    )
    .unwrap();
    let old = (fs::read(&path).unwrap(), fs::read(&gguf).unwrap());
    let (st, gg) = (path_str(&path), path_str(&gguf));
    for (args, code, says) in [
        (&["edit", st][..], 2, "required"),
        (&["edit", st, "--set", "a"], 2, "KEY=VALUE"),
        (&["edit", st, "--set-file", "a"], 2, "KEY=FILE"),
        (&["edit", st, "--rename-key", "a="], 2, "KEY=NEW"),
        (&["edit", gg, "--set", "a:u8=256"], 2, "u8"),
        (
            &["edit", st, "--recover", "--set", "a=b"],
            2,
            "cannot be used with",
        ),
        (
            &["edit", st, "--set", "a:u8=2"],
            2,
            "values of safetensors are texts",
        ),
        (
            &["edit", st, "--unset", "licence"],
            2,
            "`licence` of --unset; the nearest names are `license`",
        ),
        (&["edit", st, "--rename-key", "frmat=x"], 2, "`format`"),
        (&["edit", st, "--rename-key", "license=format"], 2, "format"),
        (&["edit", st, "--rename", "modle=x"], 2, "nearest names"),
        (&["edit", st, "--rename", "model.a=model.b"], 2, "model.b"),
        (
            &["edit", gg, "--set", "general.alignment:u32=4096"],
            2,
            "convert PATH -o OUT --alignment N",
        ),
        (
            &["edit", "fixtures/npz/all_le.npz", "--set", "a=b"],
            1,
            "fixtures/npz/all_le.npz",
        ),
        (
            &["edit", "https://h/m.gguf", "--set", "a=b"],
            1,
            "anamnesis convert PATH -o OUT",
        ),
    ] {
        let done = run(args);
        assert_eq!(done.code, code, "{args:?}: {}{}", done.stdout, done.stderr);
        assert!(done.stderr.contains(says), "{args:?}: {}", done.stderr);
        assert!(!done.stderr.contains("Edit::"), "{args:?}: {}", done.stderr);
    }
    assert_eq!((fs::read(&path).unwrap(), fs::read(&gguf).unwrap()), old);
    let document: serde_json::Value =
        serde_json::from_str(&run(&["edit", st, "--unset", "none", "--json"]).stdout).unwrap();
    assert_eq!(document["error"]["kind"], "not_found");
    assert_eq!(names(scratch.path()), ["m.gguf", "m.safetensors"]);
}

/// A model with its files, and how the command edits it.
struct KilledEdit {
    scratch: tempfile::TempDir,
    /// The path that is edited.
    path: PathBuf,
    files: Vec<(PathBuf, Vec<u8>)>,
}

impl KilledEdit {
    fn file() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("m.safetensors");
        model(&path, LARGE);
        Self::of(scratch, path.clone(), &[path])
    }

    fn directory() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        let shards = [
            "m-00001-of-00002.safetensors",
            "m-00002-of-00002.safetensors",
        ];
        let mut entries = Vec::new();
        for (shard, tensor) in shards.iter().zip(["model.a", "model.b"]) {
            safetensors(
                &path(shard),
                r#"{"format":"pt"}"#,
                &[(tensor, &[LARGE / 2])],
            );
            entries.push(format!("\"{tensor}\":\"{shard}\""));
        }
        let index = format!("{{\"weight_map\":{{{}}}}}", entries.join(","));
        fs::write(path("m.safetensors.index.json"), index).unwrap();
        let files = [
            path(shards[0]),
            path(shards[1]),
            path("m.safetensors.index.json"),
        ];
        let root = scratch.path().to_owned();
        Self::of(scratch, root, &files)
    }

    fn of(scratch: tempfile::TempDir, path: PathBuf, files: &[PathBuf]) -> Self {
        let files = files.iter();
        let files = files.map(|path| (path.clone(), fs::read(path).unwrap()));
        Self {
            files: files.collect(),
            scratch,
            path,
        }
    }

    fn restore(&self) {
        for (path, bytes) in &self.files {
            // as another program would: the inode may be a new one
            fs::write(path, bytes).unwrap();
        }
    }

    fn edit(&self) -> std::process::Command {
        let mut command = command(&["edit", path_str(&self.path), "--rename", "model=net"]);
        command
            .arg("--set")
            .arg(format!("note={}", "x".repeat(6000)));
        command
    }

    /// Whether the model is the new one; `None` if it cannot be opened.
    fn is_new(&self) -> Option<bool> {
        let checkpoint = match Checkpoint::open(&self.path) {
            Ok(checkpoint) => checkpoint,
            Err(error) => {
                assert_eq!(error.remedy(), Some(Remedy::RecoverEdit), "{error}");
                return None;
            }
        };
        let is_new = checkpoint.tensor("net.a").is_some() && checkpoint.tensor("net.b").is_some();
        let is_old =
            checkpoint.tensor("model.a").is_some() && checkpoint.tensor("model.b").is_some();
        for tensor in checkpoint.tensors() {
            assert!(tensor.bytes().unwrap().iter().all(|byte| *byte == 0));
        }
        // names of both are a mixture, and so is an index that lacks some of them
        (is_new != is_old && checkpoint.catalog().warnings().is_empty()).then_some(is_new)
    }
}

#[test]
fn an_edit_that_is_killed_is_old_or_new_or_is_completed() {
    let rounds = 30;
    for model in [KilledEdit::file(), KilledEdit::directory()] {
        let start = Instant::now();
        let done = finish(model.edit());
        assert_eq!(done.code, 0, "{}", done.stderr);
        let span = start.elapsed();
        let (mut random, mut torn, mut new) = (77_u64, 0, 0);
        for round in 0..rounds {
            model.restore();
            let mut child = model.edit().spawn().unwrap();
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let micros = u64::try_from(span.as_micros()).unwrap();
            std::thread::sleep(Duration::from_micros((random >> 33) % (micros + 1000)));
            child.kill().unwrap();
            child.wait().unwrap();
            let found = model.is_new();
            torn += u32::from(found.is_none());
            let recovered = run(&["edit", path_str(&model.path), "--recover"]);
            assert_eq!(recovered.code, 0, "round {round}: {}", recovered.stderr);
            let after = model.is_new();
            assert!(after.is_some(), "round {round}");
            assert!(
                found.is_none() || found == after,
                "round {round}: {found:?} {after:?}"
            );
            new += u32::from(after == Some(true));
            if after == Some(false) {
                let next = finish(model.edit());
                assert_eq!(next.code, 0, "round {round}: {}", next.stderr);
                assert_eq!(model.is_new(), Some(true), "round {round}");
            }
            let left = names(model.scratch.path());
            assert!(
                !left.iter().any(|name| name.starts_with('.')),
                "round {round}: {left:?}"
            );
        }
        println!("{rounds} kills: {torn} left a file to be completed, {new} were the new one");
    }
}

/// A file whose room was inserted, and whose header was not written.
#[test]
fn every_verb_that_opens_a_damaged_file_says_how_the_edit_is_completed() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    for (file, journal) in [
        ("model.safetensors", ".model.safetensors.anamnesis-edit"),
        ("model.safetensors", ".anamnesis-edit"),
    ] {
        model(&path(file), 5);
        let old = fs::read(path(file)).unwrap();
        fs::write(path(file), [&[0; 4096][..], &old].concat()).unwrap();
        fs::write(path(journal), "").unwrap();
        let out = path("out");
        let out = path_str(&out);
        for opened in [path(file), scratch.path().to_owned()] {
            let opened = path_str(&opened);
            for verb in [
                &["inspect", opened][..],
                &["inspect", opened, "--json"],
                &["check", opened],
                &["check", opened, "--json"],
                &["plan", opened],
                &["load", opened],
                &["fit", opened],
                &["diff", opened, "fixtures/model/scribe.safetensors"],
                &["report", opened, "-o", out],
                &["convert", opened, "-o", out, "--to", "gguf"],
                &["remember", opened, "-o", out],
                &["template", "predict", opened, "-o", out],
            ] {
                let done = run(verb);
                let said = done.stdout + &done.stderr;
                let says = said.contains("edit PATH --recover") && said.contains("interrupted");
                assert!(done.code != 0 && says, "{verb:?}: {said}");
            }
        }
        fs::remove_file(path(journal)).unwrap();
    }
}

#[test]
fn edits_at_once_follow_one_another() {
    for elements in [5, LARGE] {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("m.safetensors");
        model(&path, elements);
        let children: Vec<_> = (0..6)
            .map(|n| {
                let set = format!("key{n}={}", "v".repeat(n * 700));
                command(&["edit", path_str(&path), "--set", &set])
                    .stdout(std::process::Stdio::null())
                    .spawn()
                    .unwrap()
            })
            .collect();
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
        for n in 0..6 {
            let value = metadata(&path, &format!("key{n}"));
            assert_eq!(
                value.map(|value| value.len()),
                Some(n * 700),
                "{elements} {n}"
            );
        }
        assert_eq!(names(scratch.path()), ["m.safetensors"]);
    }
}

#[test]
fn an_interrupted_copy_leaves_the_old_file() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("m.safetensors");
    model(&path, 256 << 20 >> 2);
    let old = fs::metadata(&path).unwrap().len();
    let mut interrupted = 0;
    for wait in [5, 20, 60, 150] {
        let child = command(&["edit", path_str(&path), "--copy", "--set", "a=b"])
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn();
        let mut child = child.unwrap();
        std::thread::sleep(Duration::from_millis(wait));
        if child.try_wait().unwrap().is_none() {
            send_signal(&child, "-INT");
        }
        let status = child.wait().unwrap();
        assert_eq!(names(scratch.path()), ["m.safetensors"]);
        if status.success() {
            model(&path, 256 << 20 >> 2);
            continue;
        }
        interrupted += 1;
        assert_eq!(fs::metadata(&path).unwrap().len(), old);
        assert_eq!(metadata(&path, "a"), None);
    }
    println!("{interrupted} of 4 were interrupted before their end");
}

/// Two shards of a directory with an index and a configuration.
fn shards(directory: &Path) {
    fs::create_dir(directory).unwrap();
    let mut places = serde_json::Map::new();
    for (file, names) in [
        ("m-1.safetensors", ["a.0.w", "a.1.w"]),
        ("m-2.safetensors", ["a.2.w", "b.3.w"]),
    ] {
        let tensors = names.map(|name| (name, &[4][..]));
        safetensors(&directory.join(file), "", &tensors);
        places.extend(names.map(|name| (name.to_owned(), file.into())));
    }
    let index = serde_json::json!({"metadata": {}, "weight_map": places});
    fs::write(
        directory.join("model.safetensors.index.json"),
        index.to_string(),
    )
    .unwrap();
    fs::write(directory.join("config.json"), r#"{"model_type": "llama"}"#).unwrap();
}

/// A name that a tensor of another file has is refused as in one file, and nothing has changed.
#[test]
fn no_two_tensors_of_several_files_get_one_name() {
    let scratch = tempfile::tempdir().unwrap();
    let model = scratch.path().join("model");
    shards(&model);
    let split = scratch.path().join("split");
    fs::create_dir(&split).unwrap();
    for file in fs::read_dir(workspace().join("fixtures/gguf/split")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), split.join(file.file_name())).unwrap();
    }
    let first = split.join("m-00001-of-00003.gguf");
    let before = |directory: &Path| -> Vec<Vec<u8>> {
        let files = names(directory).into_iter();
        files
            .map(|name| fs::read(directory.join(name)).unwrap())
            .collect()
    };
    let was = (before(&model), before(&split));
    for (path, rename) in [
        (&model, "a.0.w=b.3.w"),
        (&model, "*=q"),
        (&model, "a.0=a.2"),
        (&first, "blk.0.w=blk.3.w"),
    ] {
        let refused = run(&["edit", path_str(path), "--rename", rename]);
        assert_ne!(refused.code, 0, "{rename}");
    }
    assert!((before(&model), before(&split)) == was);
    // a swap is none
    let swapped = run(&[
        "edit",
        path_str(&model),
        "--rename",
        "a.0=x",
        "--rename",
        "a.2=a.0",
        "--rename",
        "x=a.2",
    ]);
    assert_eq!(swapped.code, 0, "{}", swapped.stderr);
    assert_eq!(run(&["inspect", "--summary", path_str(&model)]).code, 0);
}

/// A list says of a model that does not open any more how the edit is completed.
#[test]
fn a_list_says_how_a_broken_edit_is_completed() {
    let scratch = tempfile::tempdir().unwrap();
    let model = scratch.path().join("model");
    shards(&model);
    let index = model.join("model.safetensors.index.json");
    let text = fs::read_to_string(&index).unwrap();
    fs::write(&index, text.replace("\"a.", "\"other.")).unwrap();
    let journal = model.join(".anamnesis-edit");
    for is_edited in [false, true] {
        if is_edited {
            fs::write(&journal, "").unwrap();
        }
        let list = run(&["ls", path_str(&model)]);
        assert_eq!(list.code, 1, "{}", list.stdout);
        let said = list.stdout.contains("edit PATH --recover");
        assert_eq!(said, is_edited, "{}", list.stdout);
        let said = list.stdout.contains("an edit of it was interrupted");
        assert_eq!(said, is_edited, "{}", list.stdout);
        // on a screen of any width the reason is whole
        for width in ["60", "80", "130"] {
            let mut list = crate::process::command(&["ls", path_str(&model)]);
            list.env("COLUMNS", width);
            let list = crate::process::finish(list).stdout;
            let words: Vec<&str> = list.split_whitespace().collect();
            let said = words
                .join(" ")
                .contains("complete it with `anamnesis edit PATH --recover`");
            assert_eq!(said, is_edited, "{width}: {list}");
        }
        let json = run(&["ls", "--json", path_str(&model)]);
        let row: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
        assert!(row["error"].is_string(), "{row}");
        assert_eq!(row["note"].is_string(), is_edited, "{row}");
    }
}

/// A journal says that names may be old in one file and new in another, also where all of them open.
#[test]
fn an_interrupted_edit_is_said_by_every_verb() {
    let scratch = tempfile::tempdir().unwrap();
    let model = scratch.path().join("model");
    shards(&model);
    // a journal that a killed edit has left begins so
    let description = r#"{"files":[{"file":"m-1.safetensors"}]}"#;
    let mut journal = b"anamnesis edit journal 1\n".to_vec();
    journal.extend((description.len() as u64).to_le_bytes());
    journal.extend(description.as_bytes());
    fs::write(model.join(".anamnesis-edit"), journal).unwrap();
    let out = scratch.path().join("out/");
    for arguments in [
        &["inspect"][..],
        &["plan"],
        &["check"],
        &["convert", "-o", path_str(&out)],
    ] {
        let done = run(&[arguments, &[path_str(&model)]].concat());
        let text = done.stdout + &done.stderr;
        assert!(
            text.contains("an edit of it was interrupted"),
            "{arguments:?}: {text}"
        );
        assert_eq!(done.code, 1, "{arguments:?}: {text}");
        assert!(text.contains("--recover"), "{arguments:?}: {text}");
    }
}

#[test]
fn what_an_edit_cannot_mean_is_refused_at_once() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    let gguf = path("a.gguf");
    fs::copy(workspace().join("fixtures/gguf/plain_v3.gguf"), &gguf).unwrap();
    let was = fs::read(&gguf).unwrap();
    for (set, says) in [
        ("my.scale:float32=1.5", "is no type of a GGUF"),
        ("n:U32=5", "is no type of a GGUF"),
        ("a:[[u8]]=[[1]]", "is no type of a GGUF"),
        (
            "general.architecture:u32=1",
            "has the type str, and keeps it",
        ),
        ("x:f32=1e39", "is larger than any f32"),
        ("anamnesis.plan=x", "names the plan that made a file"),
        (
            "GGUF.version=3",
            "readers of GGUF give to the header itself",
        ),
    ] {
        let refused = run(&["edit", path_str(&gguf), "--set", set]);
        assert_ne!(refused.code, 0, "{set}");
        assert!(refused.stderr.contains(says), "{set}: {}", refused.stderr);
    }
    assert!(fs::read(&gguf).unwrap() == was);
    // a key with a colon of another program has a type behind it
    assert_eq!(
        run(&["edit", path_str(&gguf), "--set", "other:name:str=x"]).code,
        0
    );
    let fifo = path("p.gguf");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    let refused = run(&["edit", path_str(&fifo), "--set", "a=b"]);
    assert!(
        refused.stderr.contains("no regular file"),
        "{}",
        refused.stderr
    );
}

/// The configuration beside a single file names modules too, and is not changed with it.
#[test]
fn a_configuration_beside_a_renamed_file_is_named() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("model.safetensors");
    safetensors(&file, "", &[("a.w", &[4])]);
    fs::write(scratch.path().join("config.json"), "{}").unwrap();
    let renamed = run(&["edit", path_str(&file), "--rename", "a=b"]);
    assert_eq!(renamed.code, 0, "{}", renamed.stderr);
    let text = renamed.stdout + &renamed.stderr;
    assert!(
        text.contains("config.json beside the file may name tensors"),
        "{text}"
    );
}
