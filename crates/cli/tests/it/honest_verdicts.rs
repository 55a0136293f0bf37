//! Verdicts say no more than what was compared: by `check` and `diff`, in text and as JSON.

use std::fs;
use std::path::Path;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::process::{path_str, run, safetensors, workspace};

/// A run over a directory that `make` fills; `M` in an argument stands for its path.
struct VerdictCase {
    name: &'static str,
    make: fn(&Path),
    args: &'static [&'static str],
    code: i32,
    says: &'static [&'static str],
    not: &'static [&'static str],
}

fn digest(path: &Path) -> String {
    let digest = Sha256::digest(fs::read(path).unwrap());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Three shards with an index.
fn shards(m: &Path) {
    let name = |n: usize| format!("model-{n:05}-of-00003.safetensors");
    let mut map = serde_json::Map::new();
    for n in 1..=3 {
        let tensor = format!("w{n}");
        ones(&m.join(name(n)), &tensor);
        map.insert(tensor, Value::String(name(n)));
    }
    let index = serde_json::json!({"metadata": {}, "weight_map": map});
    fs::write(m.join("model.safetensors.index.json"), index.to_string()).unwrap();
}

/// A file with one tensor of other values for each name, none of which is zero.
fn ones(path: &Path, tensor: &str) {
    safetensors(path, "", &[(tensor, &[8])]);
    let mut bytes = fs::read(path).unwrap();
    let start = bytes.len() - 32;
    for (n, value) in bytes[start..].chunks_mut(4).enumerate() {
        #[allow(clippy::cast_precision_loss)] // small
        let number = 0.5
            + n as f32
            + tensor.len() as f32 / 7.0
            + f32::from(tensor.as_bytes()[tensor.len() - 1]);
        value.copy_from_slice(&number.to_le_bytes());
    }
    fs::write(path, bytes).unwrap();
}

fn list(m: &Path, name: &str, files: &[&str]) {
    let line = |file: &&str| format!("{}  {file}\n", digest(&m.join(file)));
    fs::write(m.join(name), files.iter().map(line).collect::<String>()).unwrap();
}

const FIRST: &str = "model-00001-of-00003.safetensors";

static CASES: &[VerdictCase] = &[
    VerdictCase {
        name: "a list of one of three shards",
        make: |m| {
            shards(m);
            list(m, "SHA256SUMS", &[FIRST]);
        },
        args: &["check", "M"],
        code: 0,
        says: &["digests of 1 of 3 files compared", "3 tensors sound"],
        not: &[],
    },
    VerdictCase {
        name: "a list of all shards",
        make: |m| {
            shards(m);
            let name = |n: usize| format!("model-{n:05}-of-00003.safetensors");
            let names = [name(1), name(2), name(3)];
            list(m, "SHA256SUMS", &names.each_ref().map(String::as_str));
        },
        args: &["check", "M"],
        code: 0,
        says: &["3 tensors sound"],
        not: &["digests of"],
    },
    VerdictCase {
        name: "a rule about digests without any",
        make: shards,
        args: &["check", "M", "--only", "hash"],
        code: 2,
        says: &["there is no digest to compare with"],
        not: &["sound"],
    },
    VerdictCase {
        name: "a rule about digests with one",
        make: |m| {
            shards(m);
            list(m, "SHA256SUMS", &[FIRST]);
        },
        args: &["check", "M", "--only", "hash"],
        code: 0,
        says: &[
            "nothing found; by hash alone",
            "digests of 1 of 3 files compared",
        ],
        not: &["nothing was compared"],
    },
    VerdictCase {
        name: "a shard that does not have its digest",
        make: |m| {
            shards(m);
            list(m, "SHA256SUMS", &[FIRST]);
            ones(&m.join(FIRST), "w1");
            let mut bytes = fs::read(m.join(FIRST)).unwrap();
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            fs::write(m.join(FIRST), bytes).unwrap();
        },
        args: &["check", "M"],
        code: 1,
        says: &["1 error; 2 tensors sound"],
        not: &["3 tensors sound"],
    },
    VerdictCase {
        name: "names of lists",
        make: |m| {
            shards(m);
            for name in [
                "sha256.txt",
                "SHASUMS256.txt",
                "hashes.txt",
                "sha256.sum",
                "model.sha256.txt",
            ] {
                let text = format!("{}  {FIRST}\n", "0".repeat(64));
                fs::write(m.join(name), text).unwrap();
            }
        },
        args: &["check", "M"],
        code: 1,
        says: &[
            "(sha256.txt)",
            "(SHASUMS256.txt)",
            "(hashes.txt)",
            "(sha256.sum)",
            "(model.sha256.txt)",
        ],
        not: &[],
    },
    VerdictCase {
        name: "a list in a form that is not known",
        make: |m| {
            shards(m);
            fs::write(m.join("checksums.json"), "{\"a\": 1}").unwrap();
        },
        args: &["check", "M"],
        code: 1,
        says: &["hash-list", "checksums.json"],
        not: &[],
    },
    VerdictCase {
        name: "a list whose lines are private",
        make: |m| {
            shards(m);
            fs::write(
                m.join("SHA256SUMS"),
                "password=hunter2\nAPI (hunter2) = x\n",
            )
            .unwrap();
        },
        args: &["check", "M"],
        code: 1,
        says: &["line 1 is in no known form"],
        not: &["hunter2"],
    },
    VerdictCase {
        name: "files whose names say nothing",
        make: |m| {
            ones(&m.join("model.safetensors"), "w");
            for name in [
                "weights.dat",
                "pytorch_model",
                "README.md",
                "old.safetensors.bak",
            ] {
                fs::write(m.join(name), "x").unwrap();
            }
        },
        args: &["check", "M"],
        code: 0,
        says: &[
            "pytorch_model, weights.dat (unknown)",
            "README.md (no tensors)",
            "old.safetensors.bak (an earlier version of a file)",
        ],
        not: &["weights.dat (no tensors)"],
    },
    VerdictCase {
        name: "an unfinished download",
        make: |m| {
            ones(&m.join("model.safetensors"), "w");
            fs::write(m.join("model.gguf.incomplete"), "x").unwrap();
        },
        args: &["check", "M"],
        code: 1,
        says: &["unfinished", "model.gguf.incomplete", "1 warning"],
        not: &[],
    },
    VerdictCase {
        name: "an ending in capitals",
        make: |m| {
            ones(&m.join("model.safetensors"), "w");
            fs::write(m.join("other.GGUF"), "no model").unwrap();
        },
        args: &["check", "M"],
        code: 2,
        says: &["other.GGUF", "not all of it could be read"],
        not: &["no tensors"],
    },
    VerdictCase {
        name: "headers alone",
        make: pair,
        args: &["diff", "--quick", "M/a.safetensors", "M/b.safetensors"],
        code: 0,
        says: &["same headers; values not compared: 1 with equal headers"],
        not: &["same:", "1 equal\n"],
    },
    VerdictCase {
        name: "headers alone as JSON",
        make: pair,
        args: &[
            "diff",
            "--quick",
            "--json",
            "M/a.safetensors",
            "M/b.safetensors",
        ],
        code: 0,
        says: &[
            "\"verdict\":\"same headers; values not compared\"",
            "\"headers\":true",
        ],
        not: &["\"verdict\":\"same\""],
    },
    VerdictCase {
        name: "values",
        make: pair,
        args: &["diff", "M/a.safetensors", "M/b.safetensors"],
        code: 1,
        says: &["different: 1 changed"],
        not: &["headers"],
    },
    VerdictCase {
        name: "two caches of the hub with blobs of one name and other bytes",
        make: |m| {
            for (cache, value) in [("a", 1), ("b", 2)] {
                let repository = m.join(cache).join("models--o--n");
                for folder in ["blobs", "snapshots/abc"] {
                    fs::create_dir_all(repository.join(folder)).unwrap();
                }
                let blob = "0f".repeat(32);
                ones(&repository.join("blobs").join(&blob), "w");
                let mut bytes = fs::read(repository.join("blobs").join(&blob)).unwrap();
                let last = bytes.len() - 2;
                bytes[last] ^= value;
                fs::write(repository.join("blobs").join(&blob), bytes).unwrap();
                let link = repository.join("snapshots/abc/model.safetensors");
                #[cfg(unix)]
                std::os::unix::fs::symlink(format!("../../blobs/{blob}"), link).unwrap();
                #[cfg(not(unix))]
                fs::copy(repository.join("blobs").join(&blob), link).unwrap();
            }
        },
        args: &["diff", "M/a/models--o--n", "M/b/models--o--n"],
        code: 1,
        says: &["different: 1 changed"],
        not: &["same"],
    },
    VerdictCase {
        name: "a model whose replacement was interrupted is not whole",
        make: half_replaced,
        args: &["check", "M"],
        code: 1,
        says: &[
            "unfinished",
            ".anamnesis-0123456789abcdef-1-1.config.json.old",
        ],
        not: &["nothing found"],
    },
    VerdictCase {
        name: "and said to be that by others",
        make: half_replaced,
        args: &["inspect", "M"],
        code: 0,
        says: &["the next run into the directory finishes it"],
        not: &[],
    },
    VerdictCase {
        name: "an entry that cannot be read is not compared",
        make: unreadable,
        args: &["diff", "M/a.npz", "M/b.npz"],
        code: 1,
        says: &["equal tensors; entries that cannot be read were not compared: 1 equal"],
        not: &["same"],
    },
    VerdictCase {
        name: "the same, of the tensors that can be read",
        make: unreadable,
        args: &["diff", "M/a.npz", "M/b.npz", "--filter", "ok"],
        code: 0,
        says: &["same: 1 equal"],
        not: &["were not compared"],
    },
];

/// The files after a run was killed while it replaced a model in a directory that cannot be exchanged.
fn half_replaced(m: &Path) {
    ones(&m.join("model.safetensors"), "w");
    fs::write(
        m.join(".anamnesis-0123456789abcdef-1-1.config.json.old"),
        "{}",
    )
    .unwrap();
}

/// Two archives with an array of objects.
fn unreadable(m: &Path) {
    let object = workspace().join("fixtures/npz/object.npz");
    for name in ["a.npz", "b.npz"] {
        fs::copy(&object, m.join(name)).unwrap();
    }
}

/// Two files with equal headers and other values.
fn pair(m: &Path) {
    ones(&m.join("a.safetensors"), "w");
    safetensors(&m.join("b.safetensors"), "", &[("w", &[8])]);
}

#[test]
fn verdicts_say_what_was_compared() {
    let mut wrong = Vec::new();
    for case in CASES {
        let scratch = tempfile::tempdir().unwrap();
        (case.make)(scratch.path());
        let root = path_str(scratch.path());
        let args: Vec<String> = case
            .args
            .iter()
            .map(|arg| match arg.strip_prefix('M') {
                Some(below) => format!("{root}{below}"),
                None => (*arg).to_owned(),
            })
            .collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let done = run(&args);
        let text = done.stdout + &done.stderr;
        let lacks = case.says.iter().filter(|part| !text.contains(**part));
        let lacks: Vec<_> = lacks.collect();
        let has = case.not.iter().filter(|part| text.contains(**part));
        let has: Vec<_> = has.collect();
        if done.code != case.code || !lacks.is_empty() || !has.is_empty() {
            let name = case.name;
            wrong.push(format!(
                "{name}: status {}, lacks {lacks:?}, has {has:?}: {text}",
                done.code
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
