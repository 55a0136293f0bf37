//! Messages name no Rust API: they are shown by the command and to users of Python too. Only the wording of a remedy does, and each
//! front end words these itself.

use std::path::Path;

use anamnesis::load::load;
use anamnesis::{Checkpoint, Error, Limits, ModelConfig, OpenOptions, Remedy, remember};

use crate::support::fixture;
use crate::support::rust_code::{StringLiteral, crates, string_literals};
use crate::support::scratch_dir::ScratchDir;

/// Where remedies are worded with the library's own API.
const WORDING: [&str; 2] = ["src/base/error/remedy.rs", "crates/template/src/error.rs"];

/// Crates whose messages reach users of the command or of Python; the others' users are programmers, or their texts are flags.
const LIBRARIES: [&str; 6] = [
    "anamnesis",
    "kernel",
    "os",
    "remote",
    "template",
    "zeropool",
];

/// A path of Rust, or a call: `OpenOptions::single`, `single()`.
fn rust_api(text: &str) -> Option<&str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let paths = text.match_indices("::").filter_map(|(at, _)| {
        let start = text[..at].rfind(|c| !is_word(c)).map_or(0, |i| i + 1);
        let behind = &text[at + 2..];
        let end = behind.find(|c| !is_word(c)).unwrap_or(behind.len());
        (start < at && end > 0).then(|| &text[start..at + 2 + end])
    });
    // `name()` in quotes: a function of another language is not called without an argument here
    let quoted = text.split('`').skip(1).step_by(2);
    let calls = quoted.filter(|quoted| quoted.ends_with("()"));
    paths.chain(calls).next()
}

#[test]
fn rust_api_is_recognised() {
    assert_eq!(
        rust_api("leave it out with `Remember::filter`"),
        Some("Remember::filter")
    );
    assert_eq!(rust_api("call `run()` again"), Some("run()"));
    assert_eq!(rust_api("no tensor `a` (at byte 3): `b::`, `::c`"), None);
}

#[test]
fn no_message_names_rust_api() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut found, mut literals) = (Vec::new(), 0);
    for krate in crates() {
        if !LIBRARIES.contains(&&*krate.name) {
            continue;
        }
        for file in krate.files() {
            let path = file.path.strip_prefix(root).unwrap();
            if WORDING.iter().any(|wording| path == Path::new(wording)) {
                continue;
            }
            let text = std::fs::read_to_string(&file.path).unwrap();
            // tests within a file are at its end
            let code = text.split("#[cfg(test)]\nmod ").next().unwrap();
            let lines: Vec<&str> = code.lines().collect();
            for StringLiteral { line, text, .. } in string_literals(code) {
                literals += 1;
                let is_attribute = lines[line - 1].trim_start().starts_with("#[");
                // names of PyTorch and C++, which are in the files
                let is_foreign = ["c10::", "at::", "torch::", "std::"]
                    .iter()
                    .any(|foreign| text.contains(foreign));
                if let Some(api) = rust_api(&text).filter(|_| !is_attribute && !is_foreign) {
                    found.push(format!("{}:{line}: {api}", path.display()));
                }
            }
        }
    }
    assert!(literals > 3000, "{literals}");
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// A remedy that the library words with its API has words of their own in the command and in Python.
#[test]
fn front_ends_word_each_remedy_that_names_an_option() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let library = read(WORDING[0]);
    let (_, display) = library.split_once("impl fmt::Display").unwrap();
    let fronts = ["crates/cli/src/remedies.rs", "crates/python/src/errors.rs"].map(|path| {
        let text = read(path);
        let (_, words) = text
            .split_once("\nfn remedy")
            .or_else(|| text.split_once("\npub(crate) fn remedy"))
            .expect("the words of remedies");
        (path, words.split("\n}\n").next().unwrap().to_owned())
    });
    let mut named = 0;
    for arm in display.split("Self::").skip(1) {
        let variant: String = arm.chars().take_while(|c| c.is_alphanumeric()).collect();
        let texts = string_literals(arm);
        if !texts
            .iter()
            .any(|literal| rust_api(&literal.text).is_some())
        {
            continue;
        }
        named += 1;
        for (path, words) in &fronts {
            assert!(
                words.contains(&format!("Remedy::{variant}")),
                "{path}: {variant} is worded with the library's API"
            );
        }
    }
    assert!(named > 9, "{named}");
    for (path, words) in &fronts {
        for StringLiteral { text, .. } in string_literals(words) {
            assert_eq!(rust_api(&text), None, "{path}: {text}");
        }
    }
}

/// Failures that a change of options helps against, and the remedy of each.
#[test]
fn failures_have_remedies_as_data() {
    let scratch = ScratchDir::new("remedies");
    let open = |path: &str| Checkpoint::open(fixture(path));
    let plan_error = |path: &str| {
        let plan = remember(&open(path).unwrap()).plan().unwrap();
        plan.check().unwrap_err()
    };
    let split = scratch.path("renamed.gguf");
    std::fs::copy(fixture("gguf/split/m-00001-of-00003.gguf"), &split).unwrap();
    let small = Limits {
        tensors: 1,
        ..Limits::default()
    };
    let reserved = scratch.path("reserved.safetensors");
    let checkpoint = open("gguf/types/q4_k.gguf").unwrap();
    let rename = remember(&checkpoint).rename(|_| "__metadata__".to_owned());
    let existing = scratch.path("existing.safetensors");
    std::fs::write(&existing, b"").unwrap();
    let pool = zeropool::BufferPool::builder()
        .budget(1 << 16)
        .build()
        .unwrap();
    let sharded = open("model/scribe.safetensors").unwrap();
    // as a run replaces a model: the name leads to another file, and the configuration beside it may be of another model
    let (model, other) = (scratch.path("model"), scratch.path("other"));
    let replaced = model.join("model.safetensors");
    std::fs::create_dir(&model).unwrap();
    for copy in [&replaced, &other] {
        std::fs::copy(fixture("model/scribe.safetensors"), copy).unwrap();
    }
    std::fs::write(model.join("config.json"), "{\"model_type\": \"llama\"}").unwrap();
    let opened = Checkpoint::open(&model).unwrap();
    std::fs::rename(&other, &replaced).unwrap();
    let replaced = ModelConfig::of(&opened).unwrap_err();
    assert!(replaced.is_replaced(), "{replaced}");
    let cases: Vec<(Error, Remedy)> = vec![
        (plan_error("pth/sparse.pth"), Remedy::LeaveOut),
        (plan_error("pth/meta_device.pth"), Remedy::LeaveOut),
        (plan_error("npz/odd_dtypes.npz"), Remedy::LeaveOut),
        (plan_error("npz/object.npz"), Remedy::LeaveOut),
        (plan_error("npy/bf16.npy"), Remedy::LeaveOutOrReadItems),
        (
            rename.to_file(&reserved).unwrap_err(),
            Remedy::LeaveOutOrRename,
        ),
        (
            Checkpoint::open(&split).unwrap_err(),
            Remedy::RenameOrOpenAlone,
        ),
        (replaced, Remedy::RunAgain),
        (open("ask/check/evil.pth").unwrap_err(), Remedy::KeepOpaque),
        (
            open("ask/check/shard-missing").unwrap_err(),
            Remedy::AddMissingFile,
        ),
        (
            open("ask/check/truncated.safetensors").unwrap_err(),
            Remedy::ReplaceFile,
        ),
        (
            OpenOptions::new()
                .limits(small)
                .open(fixture("gguf/plain_v3.gguf"))
                .unwrap_err(),
            Remedy::RaiseLimit { limit: "tensors" },
        ),
        (
            remember(&checkpoint).to_file(&existing).unwrap_err(),
            Remedy::AllowOverwrite,
        ),
        (
            load(&sharded).pool(&pool).run().unwrap_err(),
            Remedy::EnlargePoolBudget,
        ),
        (open("no/such.gguf").unwrap_err(), Remedy::CheckPath),
        (
            load(&sharded).tensor("no such name").unwrap_err(),
            Remedy::CheckName,
        ),
    ];
    for (error, remedy) in cases {
        assert_eq!(error.remedy(), Some(remedy), "{error}");
        assert_eq!(rust_api(&error.to_string()), None, "{error}");
    }
    // a note and a warning
    let stored = remember(&open("gguf/names/llama.gguf").unwrap())
        .plan()
        .unwrap();
    let remedies = stored.output_notes.iter().map(anamnesis::Note::remedy);
    assert!(remedies.eq([Some(Remedy::NameAsTransformers)]));
    let raw = open("npy/bf16.npy").unwrap();
    let [warning] = raw.catalog().warnings() else {
        panic!("{:?}", raw.catalog().warnings())
    };
    assert_eq!(warning.remedy(), Some(Remedy::ReadItems { dtype: "BF16" }));
    assert_eq!(rust_api(warning), None);
}
