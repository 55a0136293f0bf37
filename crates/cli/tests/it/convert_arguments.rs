//! Arguments of `convert` and `edit` that mean nothing, or something else than they say: each is refused with a remedy that works.

use std::fs;
use std::path::Path;

use crate::process::{path_str, run, safetensors, stored_tensors, workspace};

/// The names of a model's tensors.
fn names(model: &Path) -> Vec<String> {
    let listed = run(&["inspect", "--json", path_str(model)]);
    let document: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    let tensors = document["checkpoints"][0]["tensors"].as_array().unwrap();
    let mut names: Vec<String> = tensors
        .iter()
        .map(|tensor| tensor["name"].as_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

/// A swap by two renames gives both tensors one name. The remedy is what swaps them.
#[test]
fn a_swap_goes_by_a_third_name() {
    let scratch = tempfile::tempdir().unwrap();
    let (model, out) = (
        scratch.path().join("m.safetensors"),
        scratch.path().join("out.safetensors"),
    );
    let (one, two) = ([1, 0, 0, 0], [2, 0, 0, 0]);
    let make = || {
        stored_tensors(
            &model,
            &[("a.w", "U8", &[4], &one), ("b.w", "U8", &[4], &two)],
        );
    };
    make();
    let convert = [
        "convert",
        path_str(&model),
        "-o",
        path_str(&out),
        "--overwrite",
    ];
    let edit = ["edit", path_str(&model)];
    for words in [&convert[..], &edit] {
        let swap = ["--rename", "a=b", "--rename", "b=a"];
        let refused = run(&[words, &swap].concat());
        assert_ne!(refused.code, 0, "{}", refused.stdout);
        let remedy = "--rename A=C --rename B=A --rename C=B";
        assert!(refused.stderr.contains(remedy), "{}", refused.stderr);
        let swap = ["--rename", "a=c", "--rename", "b=a", "--rename", "c=b"];
        let swapped = run(&[words, &swap].concat());
        assert_eq!(swapped.code, 0, "{}", swapped.stderr);
        let made = match words[0] {
            "edit" => &model,
            _ => &out,
        };
        let filter = ["diff", path_str(made), path_str(&model), "--filter", "a.w"];
        // `edit` has made the model what the output is
        let same = run(&filter).code == 0;
        assert_eq!(same, words[0] == "edit");
        let bytes = fs::read(made).unwrap();
        let is_swapped = bytes.ends_with(&[&two[..], &one].concat())
            || bytes.ends_with(&[&one[..], &two].concat());
        assert!(is_swapped && names(made) == ["a.w", "b.w"]);
    }
}

/// Renames that leave every name as it was are a mistake, and no success.
#[test]
fn a_rename_that_is_undone_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let (model, out) = (
        scratch.path().join("m.safetensors"),
        scratch.path().join("out.safetensors"),
    );
    safetensors(&model, "", &[("a.w", &[4]), ("c", &[2])]);
    let before = fs::read(&model).unwrap();
    let (model, out) = (path_str(&model), path_str(&out));
    for words in [
        &["edit", model][..],
        &["convert", model, "-o", out],
        &["remember", model, "-o", out],
    ] {
        for renames in [
            &["--rename", "a=b", "--rename", "b=a"][..],
            &["--rename", "a=b", "--rename", "b=a", "--rename", "c=d"],
            &["--rename", "a=a"],
        ] {
            let refused = run(&[words, renames].concat());
            assert_eq!(refused.code, 2, "{words:?} {renames:?}: {}", refused.stdout);
            let said = "no name is another one by --rename of `a`";
            assert!(refused.stderr.contains(said), "{}", refused.stderr);
        }
    }
    assert_eq!(fs::read(model).unwrap(), before);
    assert!(!Path::new(out).exists());
}

/// Names have equals signs too.
#[test]
fn an_equals_sign_in_a_name_is_escaped() {
    let scratch = tempfile::tempdir().unwrap();
    let model = scratch.path().join("m.safetensors");
    safetensors(&model, "", &[("x=1.w", &[4])]);
    let edit = |rename: &str| run(&["edit", path_str(&model), "--rename", rename]);
    let refused = edit("x=1.w=y=2.w");
    assert_eq!(refused.code, 2, "{}", refused.stdout);
    assert!(refused.stderr.contains(r"`\=`"), "{}", refused.stderr);
    let renamed = edit(r"x\=1.w=y\=2.w");
    assert_eq!(renamed.code, 0, "{}", renamed.stderr);
    assert_eq!(names(&model), ["y=2.w"]);
}

/// A size of shards makes a directory: of the name of a file it would be a surprise.
#[test]
fn shards_have_no_name_of_a_file() {
    let scratch = tempfile::tempdir().unwrap();
    let model = scratch.path().join("m.safetensors");
    safetensors(&model, "", &[("a", &[4]), ("b", &[4])]);
    for verb in ["convert", "remember"] {
        let out = scratch.path().join("out.safetensors");
        let words = [verb, path_str(&model), "--shard-size", "16B", "-o"];
        let refused = run(&[&words[..], &[path_str(&out)]].concat());
        assert_eq!(refused.code, 2, "{verb}: {}", refused.stdout);
        assert!(
            refused.stderr.contains("name it NAME/"),
            "{}",
            refused.stderr
        );
        assert!(!out.exists());
        let directory = format!("{}/", path_str(&scratch.path().join(verb)));
        let made = run(&[&words[..], &[&directory]].concat());
        assert_eq!(made.code, 0, "{}", made.stderr);
    }
}

/// Patterns that the shell did not expand are expanded, as for other verbs.
#[test]
fn quoted_patterns_are_expanded() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    safetensors(&path("a.safetensors"), "", &[("a", &[4])]);
    safetensors(&path("b.safetensors"), "", &[("b", &[4])]);
    fs::create_dir(path("more")).unwrap();
    safetensors(&path("more/c.safetensors"), "", &[("c", &[4])]);
    let out = path("out/model.safetensors");
    fs::create_dir(path("out")).unwrap();
    let pattern = format!("{}/*.safetensors", path_str(scratch.path()));
    let further = path("more/c.safetensors");
    let made = run(&[
        "convert",
        &pattern,
        path_str(&further),
        "-o",
        path_str(&out),
    ]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    assert_eq!(names(&out), ["a", "b", "c"]);
    let none = format!("{}/*.gguf", path_str(scratch.path()));
    let failed = run(&["convert", &none, "-o", path_str(&out), "--overwrite"]);
    assert_eq!(failed.code, 1, "{}", failed.stdout);
    assert!(
        failed.stderr.contains("no file matches"),
        "{}",
        failed.stderr
    );
    let split = workspace().join("fixtures/gguf/split/m-*.gguf");
    let merged = path("out/merged.gguf");
    let made = run(&["convert", path_str(&split), "-o", path_str(&merged)]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    // the numbers of the files are written anew, and there is no word about them
    assert!(!made.stdout.contains("note"), "{}", made.stdout);
}

/// Each remedy of a share, and of an alignment, is one that works.
#[test]
fn remedies_of_shares_and_alignments_work() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    let model = path("m.safetensors");
    safetensors(&model, "", &[("l.mlp.up_proj.weight", &[8, 8])]);
    let share = |model: &Path, more: &[&str]| {
        let out = path("share.safetensors");
        let words = [
            "convert",
            path_str(model),
            "-o",
            path_str(&out),
            "--overwrite",
        ];
        run(&[&words[..], more].concat())
    };
    let none = share(&model, &["--tp", "0", "--rank", "0"]);
    assert_eq!(none.code, 2, "{}", none.stdout);
    assert!(
        none.stderr.contains("--tp 0 has no workers"),
        "{}",
        none.stderr
    );
    assert!(
        none.stderr.contains("give --tp 1 or more"),
        "{}",
        none.stderr
    );
    assert_eq!(share(&model, &["--tp", "1", "--rank", "0"]).code, 0);
    // a weight whose parts are not divisible
    let packed = workspace().join("fixtures/quant/ct");
    let mut tried = 0;
    for case in fs::read_dir(packed).unwrap() {
        let source = case.unwrap().path();
        let has_shape = || {
            fs::read(source.join("model.safetensors"))
                .is_ok_and(|bytes| bytes.windows(12).any(|window| window == b"weight_shape"))
        };
        if !source.join("config.json").is_file() || !has_shape() {
            continue;
        }
        let tp = [
            "--tp",
            "2",
            "--rank",
            "0",
            "--rename",
            "*=model.layers.0.mlp.up_proj.*",
        ];
        let refused = share(&source, &tp[..4]);
        if refused.code == 0 || !refused.stderr.contains("cannot be divided") {
            continue;
        }
        let remedy =
            "dequantise it with --dtype bf16, or leave the weight out with --exclude or --filter";
        assert!(refused.stderr.contains(remedy), "{}", refused.stderr);
        let made = share(&source, &[&tp[..4], &["--dtype", "bf16"]].concat());
        assert_eq!(made.code, 0, "{}: {}", source.display(), made.stderr);
        tried += 1;
    }
    println!("{tried} weights with packed words");
    let gguf = path("m.gguf");
    fs::copy(workspace().join("fixtures/gguf/plain_v3.gguf"), &gguf).unwrap();
    let set = ["edit", path_str(&gguf), "--set", "general.alignment:u32=64"];
    let refused = run(&set);
    assert_eq!(refused.code, 2, "{}", refused.stdout);
    let remedy = "`anamnesis convert PATH -o OUT --alignment N`";
    assert!(refused.stderr.contains(remedy), "{}", refused.stderr);
    let out = path("aligned.gguf");
    let words = ["convert", path_str(&gguf), "-o", path_str(&out)];
    let set = ["--metadata", "general.alignment:u32=64"];
    let refused = run(&[&words[..], &set].concat());
    assert_eq!(refused.code, 2, "{}", refused.stdout);
    assert!(refused.stderr.contains("--alignment"), "{}", refused.stderr);
    let made = run(&[&words[..], &["--alignment", "64"]].concat());
    assert_eq!(made.code, 0, "{}", made.stderr);
}

/// The padding of a vocabulary is of all workers: where it is longer than the vocabulary, later ones have no rows.
#[test]
fn shares_of_a_short_vocabulary_agree() {
    let scratch = tempfile::tempdir().unwrap();
    let model = scratch.path().join("m.safetensors");
    for (rows, expected) in [(20, [20, 0]), (40, [32, 8]), (130, [96, 34])] {
        let bytes: Vec<u8> = (0..rows * 2)
            .map(|n| u8::try_from(n % 251).unwrap())
            .collect();
        let shape = [rows, 2];
        stored_tensors(
            &model,
            &[("model.embed_tokens.weight", "I8", &shape, &bytes)],
        );
        let bf16: Vec<u8> = bytes.iter().flat_map(|byte| [*byte, 0x3f]).collect();
        stored_tensors(
            &model,
            &[("model.embed_tokens.weight", "BF16", &shape, &bf16)],
        );
        for dtype in ["stored", "bf16"] {
            let mut joined = Vec::new();
            for (rank, rows) in expected.iter().enumerate() {
                let out = scratch.path().join(format!("r{rank}.safetensors"));
                let rank = rank.to_string();
                let made = run(&[
                    "convert",
                    path_str(&model),
                    "-o",
                    path_str(&out),
                    "--overwrite",
                    "--tp",
                    "2",
                    "--rank",
                    &rank,
                    "--dtype",
                    dtype,
                ]);
                assert_eq!(made.code, 0, "{rows} {dtype}: {}", made.stderr);
                let bytes = fs::read(&out).unwrap();
                let len = usize::try_from(rows * 4).unwrap();
                joined.extend_from_slice(&bytes[bytes.len() - len..]);
            }
            assert!(joined == bf16, "{rows} {dtype}");
        }
    }
}

/// Arguments that only reading shows to be wrong end with the status of others.
#[test]
fn invalid_arguments_have_one_status() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    let model = path("m.safetensors");
    safetensors(&model, "", &[("a", &[4])]);
    let (model, out, other) = (path_str(&model), path("o.npz"), path("o.safetensors"));
    let (out, other) = (path_str(&out), path_str(&other));
    for words in [
        &["convert", model, "-o", out, "--metadata", "k=v"][..],
        &["convert", model, "-o", other, "--alignment", "64"],
        &["convert", model, "-o", "o.bin"],
        &["convert", model, "-o", model, "--overwrite"],
        &["edit", model, "--set", "anamnesis.plan=1"],
        &["edit", model, "--set", "=v"],
    ] {
        let run = run(words);
        assert_eq!(run.code, 2, "{words:?}: {}{}", run.stdout, run.stderr);
    }
}

/// A report that cannot be written says that the files are as they should be.
#[cfg(target_os = "linux")]
#[test]
fn a_report_without_a_place_says_that_the_output_is_complete() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    let (model, out) = (path("m.safetensors"), path("out.safetensors"));
    safetensors(&model, "", &[("a", &[4])]);
    let (model, out) = (path_str(&model), path_str(&out));
    for json in [&[][..], &["--json"]] {
        for (words, done) in [
            (
                &["convert", model, "-o", out, "--overwrite"][..],
                "the output is complete",
            ),
            (
                &["remember", model, "-o", out, "--overwrite"],
                "the output is complete",
            ),
            (&["edit", model, "--set", "a=b"], "the edit is complete"),
        ] {
            let mut command = crate::process::command(&[words, json].concat());
            command.stdout(fs::File::create("/dev/full").unwrap());
            let found = command.output().unwrap();
            let text = String::from_utf8(found.stderr).unwrap();
            assert_eq!(found.status.code(), Some(1), "{words:?}: {text}");
            assert!(
                text.contains(done) && text.contains("standard output"),
                "{text}"
            );
            assert_eq!(
                names(Path::new(words[if words[0] == "edit" { 1 } else { 3 }])),
                ["a"]
            );
        }
    }
    for place in ["/nonexistent/page.html", "/dev/full", model] {
        let found = run(&["report", model, "-o", place, "--overwrite"]);
        assert_ne!(found.code, 0, "{place}: {}", found.stdout);
        assert!(found.stderr.contains(place), "{}", found.stderr);
    }
}
