//! Root reads the models of users, in whose directories are links to files that only root may read: by every verb, in every
//! place from which a file is opened.

use std::fs;
use std::os::unix::fs::{MetadataExt, lchown, symlink};
use std::path::Path;

use crate::process::{is_root, path_str, run, safetensors};

/// The name of the private tensor, and the text of the private files.
const PRIVATE: &str = "hunter2";
const USER: u32 = 7;

/// Each verb; `M` stands for the model, `O` for the model of root beside it and `D` for a directory of outputs.
pub(crate) static VERBS: &[&[&str]] = &[
    &["inspect", "M"],
    &["inspect", "M", "--json"],
    &["inspect", "--hash", "M"],
    &["inspect", "--recursive", "M"],
    &["ls", "M"],
    &["ls", "M", "--json", "--all"],
    &["check", "M"],
    &["check", "--recursive", "M"],
    &["check", "M", "--json"],
    &["check", "M", "--headers"],
    &["check", "M", "--write", "D/list.txt"],
    &["report", "M", "-o", "D/report.html"],
    &["report", "M", "--check", "-o", "D/check.html"],
    &["remember", "M", "-o", "D/model/"],
    &["remember", "M", "-o", "D/model.safetensors"],
    &["convert", "M", "-o", "D/copy/"],
    &["convert", "M", "-o", "D/copy.safetensors"],
    &["load", "M"],
    &["diff", "M", "O"],
    &["diff", "O", "M"],
    &["fit", "M"],
    &["fit", "--recursive", "M"],
    &["plan", "M"],
    &["template", "predict", "M", "-o", "D/template.json"],
    &["warm", "M"],
    &["edit", "M", "--set", "a=b"],
    &["edit", "M", "--rename", "*=x.*", "--copy"],
];

/// A place from which a file is opened.
struct LinkPlace {
    name: &'static str,
    /// Makes it in the directory `m` beside `private`, `private.safetensors` and `private.json`.
    make: fn(&Path),
    /// Whether no verb opens the model without the file.
    is_needed: bool,
}

static PLACES: &[LinkPlace] = &[
    LinkPlace {
        name: "the only file of weights",
        make: |m| link(m, "../private/model.safetensors", "model.safetensors"),
        is_needed: true,
    },
    LinkPlace {
        name: "an index",
        make: |m| {
            link(m, "../private.json", "model.safetensors.index.json");
            own_model(&m.join("model-00001-of-00001.safetensors"));
        },
        is_needed: true,
    },
    LinkPlace {
        name: "a shard of an index",
        make: |m| {
            write(
                &m.join("model.safetensors.index.json"),
                &index("a.safetensors"),
            );
            link(m, "../private/model.safetensors", "a.safetensors");
        },
        is_needed: true,
    },
    LinkPlace {
        name: "a folder of shards",
        make: |m| {
            write(
                &m.join("model.safetensors.index.json"),
                &index("f/model.safetensors"),
            );
            link(m, "../private", "f");
        },
        is_needed: true,
    },
    LinkPlace {
        name: "one of numbered files",
        make: |m| {
            own_model(&m.join("model-00001-of-00002.safetensors"));
            link(
                m,
                "../private/model.safetensors",
                "model-00002-of-00002.safetensors",
            );
        },
        is_needed: true,
    },
    LinkPlace {
        name: "the metadata of a distributed checkpoint",
        make: |m| {
            link(m, "../private.json", ".metadata");
            write(&m.join("__0_0.distcp"), "");
        },
        is_needed: true,
    },
    LinkPlace {
        name: "one of several models",
        make: |m| {
            own_model(&m.join("model.safetensors"));
            link(m, "../private/model.safetensors", "other.safetensors");
            link(m, "../private/model.safetensors", "model.gguf");
            link(m, "../private.json", "other.safetensors.index.json");
        },
        is_needed: false,
    },
    LinkPlace {
        name: "a configuration without weights",
        make: |m| link(m, "../private.json", "config.json"),
        is_needed: false,
    },
    LinkPlace {
        name: "a configuration",
        make: |m| {
            own_model(&m.join("model.safetensors"));
            link(m, "../private.json", "config.json");
            link(m, "../private.json", "quantize_config.json");
        },
        is_needed: false,
    },
    LinkPlace {
        name: "a list of digests",
        make: |m| {
            own_model(&m.join("model.safetensors"));
            link(m, "../private.json", "SHA256SUMS");
            link(m, "../private.json", "model.safetensors.sha256");
        },
        is_needed: false,
    },
    LinkPlace {
        name: "companions",
        make: |m| {
            own_model(&m.join("model.safetensors"));
            write(&m.join("config.json"), "{}");
            link(m, "../private.json", "tokenizer.json");
            link(m, "../private.json", "LICENSE");
        },
        is_needed: false,
    },
];

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    lchown(path, Some(USER), Some(USER)).unwrap();
}

fn own_model(path: &Path) {
    safetensors(path, "", &[("own", &[8])]);
    lchown(path, Some(USER), Some(USER)).unwrap();
}

/// A link of the user.
fn link(directory: &Path, target: &str, name: &str) {
    let path = directory.join(name);
    symlink(target, &path).unwrap();
    lchown(&path, Some(USER), Some(USER)).unwrap();
}

fn index(file: &str) -> String {
    format!("{{\"metadata\":{{}},\"weight_map\":{{\"{PRIVATE}\":\"{file}\"}}}}")
}

/// A directory with the files of root, which no other user may read, and one of the user.
fn machine() -> tempfile::TempDir {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    fs::create_dir(path("private")).unwrap();
    safetensors(&path("private/model.safetensors"), "", &[(PRIVATE, &[8])]);
    fs::write(
        path("private.json"),
        index("model-00001-of-00001.safetensors"),
    )
    .unwrap();
    for private in ["private", "private/model.safetensors", "private.json"] {
        let mode = if private == "private" { 0o700 } else { 0o600 };
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(path(private), mode).unwrap();
    }
    safetensors(&path("other.safetensors"), "", &[("own", &[8])]);
    for made in ["m", "d"] {
        fs::create_dir(path(made)).unwrap();
    }
    lchown(path("m"), Some(USER), Some(USER)).unwrap();
    scratch
}

/// Runs a verb, and returns its status and all that it has printed and written.
fn all_output(verb: &[&str], scratch: &Path, model: &str) -> (i32, String) {
    let outputs = scratch.join("d");
    let args: Vec<String> = verb
        .iter()
        .map(|arg| match *arg {
            "M" => model.to_owned(),
            "O" => path_str(&scratch.join("other.safetensors")).to_owned(),
            arg => match arg.strip_prefix("D/") {
                Some(name) => format!("{}/{name}", path_str(&outputs)),
                None => arg.to_owned(),
            },
        })
        .collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = run(&args);
    let mut text = done.stdout + &done.stderr;
    let mut folders = vec![outputs.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => text += &String::from_utf8_lossy(&fs::read(path).unwrap()),
            }
        }
    }
    fs::remove_dir_all(&outputs).unwrap();
    fs::create_dir(&outputs).unwrap();
    (done.code, text)
}

#[test]
fn no_verb_follows_a_link_of_another_user() {
    if !is_root("links of another user") {
        return;
    }
    let mut wrong = Vec::new();
    for place in PLACES {
        for verb in VERBS {
            let scratch = machine();
            let model = scratch.path().join("m");
            (place.make)(&model);
            let (code, text) = all_output(verb, scratch.path(), path_str(&model));
            // the user's own index names the tensor
            let shown = text.replace(&index(""), "");
            let leaks = shown.contains(PRIVATE) && !place.name.contains("shard");
            // a page of a damaged model is a success, and shows what is wrong with it
            let is_page = verb.contains(&"--check");
            let is_refused = (code != 0 || is_page) && text.contains("a link of another user");
            if leaks || (place.is_needed && !is_refused) {
                wrong.push(format!("{}: {verb:?}: status {code}: {text}", place.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A pattern names no link: the command finds it, as in a directory. The path of a link is the caller's word.
#[test]
fn patterns_follow_no_link_of_another_user() {
    if !is_root("links of another user") {
        return;
    }
    let scratch = machine();
    let model = scratch.path().join("m");
    link(&model, "../private/model.safetensors", "a.safetensors");
    let pattern = model.join("*.safetensors");
    for verb in [["inspect"], ["check"], ["fit"]] {
        let found = run(&[verb[0], path_str(&pattern)]);
        let text = found.stdout + &found.stderr;
        assert_ne!(found.code, 0, "{verb:?}: {text}");
        assert!(
            !text.contains(PRIVATE) && text.contains("a link of another user"),
            "{verb:?}: {text}"
        );
    }
    let named = run(&["inspect", path_str(&model.join("a.safetensors"))]);
    assert!(named.stdout.contains(PRIVATE), "{}", named.stderr);
}

/// A file in the list of digests that is a link is not read either: a digest of a private file says whether a guess is right.
#[test]
fn no_digest_of_a_foreign_file_is_written() {
    if !is_root("links of another user") {
        return;
    }
    let scratch = machine();
    let model = scratch.path().join("m");
    own_model(&model.join("model.safetensors"));
    link(&model, "../private.json", "tokenizer.json");
    let list = scratch.path().join("d/list.txt");
    let done = run(&["check", path_str(&model), "--write", path_str(&list)]);
    let written = fs::read_to_string(&list).unwrap_or_default();
    assert!(!written.contains("tokenizer.json"), "{written}");
    let said = done.stdout + &done.stderr;
    assert!(
        said.contains("tokenizer.json") && said.contains("a link of another user"),
        "{said}"
    );
}

#[test]
fn honest_links_are_followed() {
    if !is_root("links of another user") {
        return;
    }
    /// A name, what makes it in the directory `m`, and the path below that is opened.
    type HonestLayout = (&'static str, fn(&Path), &'static str);
    let layouts: &[HonestLayout] = &[
        (
            "a snapshot of a shared hub cache, whose blobs are root's",
            |m| {
                fs::create_dir_all(m.join("models--a--b/snapshots/c")).unwrap();
                fs::create_dir_all(m.join("models--a--b/blobs")).unwrap();
                safetensors(&m.join("models--a--b/blobs/d"), "", &[("own", &[8])]);
                link(
                    &m.join("models--a--b/snapshots/c"),
                    "../../blobs/d",
                    "model.safetensors",
                );
            },
            "models--a--b",
        ),
        (
            "a farm of links of the user to own files",
            |m| {
                own_model(&m.join("../kept.safetensors"));
                link(m, "../kept.safetensors", "model.safetensors");
            },
            "",
        ),
        (
            "a link of root",
            |m| {
                symlink("../private/model.safetensors", m.join("model.safetensors")).unwrap();
            },
            "",
        ),
        (
            "a link within the directory",
            |m| {
                fs::create_dir(m.join("files")).unwrap();
                safetensors(&m.join("files/one"), "", &[("own", &[8])]);
                link(m, "files/one", "model.safetensors");
            },
            "",
        ),
        (
            "a file that the caller names",
            |m| link(m, "../private/model.safetensors", "model.safetensors"),
            "model.safetensors",
        ),
        (
            "a directory behind a link of the user",
            |m| link(m, "../private", "latest"),
            "latest",
        ),
    ];
    let mut wrong = Vec::new();
    for (name, make, named) in layouts {
        for verb in VERBS {
            let scratch = machine();
            let model = scratch.path().join("m");
            make(&model);
            assert_eq!(fs::metadata(&model).unwrap().uid(), USER);
            let (_, text) = all_output(verb, scratch.path(), path_str(&model.join(named)));
            if text.contains("a link of another user") {
                wrong.push(format!("{name}: {verb:?}: {text}"));
            }
        }
        let scratch = machine();
        let model = scratch.path().join("m");
        make(&model);
        let (code, text) = all_output(
            &["inspect", "M"],
            scratch.path(),
            path_str(&model.join(named)),
        );
        if code != 0 {
            wrong.push(format!("{name}: {text}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Directories that a directory names: the folder of a component, the snapshot of a repository.
#[test]
fn directories_behind_foreign_links_are_refused() {
    if !is_root("links of another user") {
        return;
    }
    let pipeline = |m: &Path| {
        write(
            &m.join("model_index.json"),
            "{\"unet\":[\"diffusers\",\"U\"]}",
        );
        link(m, "../private", "unet");
    };
    let snapshot = |m: &Path| {
        fs::create_dir_all(m.join("models--a--b/snapshots")).unwrap();
        link(&m.join("models--a--b/snapshots"), "../../../private", "abc");
    };
    type NamedDirectory<'d> = (&'d str, &'d dyn Fn(&Path), &'d [&'d [&'d str]]);
    let cases: [NamedDirectory<'_>; 2] = [
        ("", &pipeline, &[&["remember", "M", "-o", "D/model/"]]),
        ("models--a--b", &snapshot, VERBS),
    ];
    for (named, make, verbs) in cases {
        for verb in verbs {
            let scratch = machine();
            let model = scratch.path().join("m");
            make(&model);
            let (code, text) = all_output(verb, scratch.path(), path_str(&model.join(named)));
            // no file of the hub's cache is edited, behind whatever link
            let is_not_edited = verb[0] == "edit" && text.contains("the cache of the hub");
            let is_refused =
                code != 0 && (is_not_edited || text.contains("a link of another user"));
            assert!(
                is_refused && !text.contains(PRIVATE),
                "{verb:?}: {code}: {text}"
            );
        }
    }
}
