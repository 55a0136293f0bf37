//! `convert` through the command: what is lost without a configuration is said, and what has no place is refused.

use std::fs;
use std::path::{Path, PathBuf};

use crate::process::{json_of, path_str, run, safetensors, workspace};

fn quant(name: &str) -> PathBuf {
    workspace().join("fixtures/quant").join(name)
}

/// A copy of a quantised fixture's model, without its reference values.
fn copied(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for name in ["model.safetensors", "config.json"] {
        fs::copy(from.join(name), to.join(name)).unwrap();
    }
}

/// Whether two models have the same weights, dequantised.
fn same_weights(scratch: &Path, a: &Path, b: &Path) -> bool {
    let made = |model: &Path, name: &str| {
        let out = scratch.join(name);
        let arguments = ["remember", path_str(model), "-o", path_str(&out)];
        let run = run(&[&arguments[..], &["--dtype", "f32", "--overwrite"]].concat());
        (run.code == 0).then_some(out)
    };
    let (Some(a), Some(b)) = (made(a, "a.safetensors"), made(b, "b.safetensors")) else {
        return false;
    };
    run(&["diff", path_str(&a), path_str(&b), "--filter", "*"]).code == 0
}

/// The keys of a GGUF return from a safetensors header as they were, and are no sign of quantisation there.
#[test]
fn a_gguf_that_was_a_safetensors_file_is_as_it_was() {
    let scratch = tempfile::tempdir().unwrap();
    for fixture in ["gguf/plain_v3.gguf", "model/scribe-Q8_0.gguf"] {
        let source = workspace().join("fixtures").join(fixture);
        let (there, back) = (
            scratch.path().join("t.safetensors"),
            scratch.path().join("b.gguf"),
        );
        for (from, to) in [(&source, &there), (&there, &back)] {
            // blocks of a GGUF have no place in safetensors
            let dtype = if from == &source { "f32" } else { "stored" };
            let dtype = if fixture.contains("Q8_0") {
                dtype
            } else {
                "stored"
            };
            let arguments = ["convert", path_str(from), "-o", path_str(to), "--overwrite"];
            let run = run(&[&arguments[..], &["--dtype", dtype]].concat());
            assert_eq!((run.code, &*run.stderr), (0, ""), "{fixture}");
        }
        for model in [&there, &back] {
            let run = run(&["check", path_str(model)]);
            assert!(
                run.stdout.contains("nothing found"),
                "{fixture}: {}",
                run.stdout
            );
        }
        let run = run(&["diff", path_str(&source), path_str(&back)]);
        // the label of the quantisation, `general.file_type`
        let differing = match fixture.contains("Q8_0") {
            true => Some("metadata: 1 changed\n"),
            false => None,
        };
        let found = run.stdout.split_once("metadata:");
        let found = found
            .map(|(_, rest)| ["metadata:", rest.split_inclusive('\n').next().unwrap()].concat());
        assert_eq!(found.as_deref(), differing, "{fixture}: {}", run.stdout);
    }
}

/// A single file has no configuration: where it is then read otherwise, a note says so.
#[test]
fn a_file_that_is_read_otherwise_without_its_configuration_is_said_to_be() {
    let scratch = tempfile::tempdir().unwrap();
    let (mut otherwise, mut same) = (0, 0);
    for family in [
        "awq",
        "awq_fast",
        "bitnet",
        "ct",
        "gptq",
        "mlx",
        "quark_more",
        "autoround",
        "hqq",
    ] {
        for entry in fs::read_dir(quant(family)).unwrap() {
            let from = entry.unwrap().path();
            if !from.join("config.json").is_file() || !from.join("model.safetensors").is_file() {
                continue;
            }
            let model = scratch.path().join("model");
            copied(&from, &model);
            let out = scratch.path().join("out.safetensors");
            let run = run(&[
                "convert",
                path_str(&model),
                "-o",
                path_str(&out),
                "--overwrite",
            ]);
            if run.code == 0 {
                let is_said = run
                    .stdout
                    .contains("the file has no configuration beside it");
                match same_weights(scratch.path(), &model, &out) {
                    true => same += 1,
                    false => {
                        assert!(is_said, "{}: {}", from.display(), run.stdout);
                        otherwise += 1;
                    }
                }
            }
            fs::remove_dir_all(&model).unwrap();
        }
    }
    assert!(
        otherwise > 10 && same > 10,
        "{otherwise} otherwise, {same} the same"
    );
}

/// The output has one configuration: sources that need two are refused by name.
#[test]
fn sources_whose_configurations_differ_are_no_one_model() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    fs::create_dir(path("plain")).unwrap();
    safetensors(&path("plain/model.safetensors"), "", &[("z.w", &[8])]);
    fs::write(path("plain/config.json"), r#"{"model_type": "llama"}"#).unwrap();
    copied(&quant("awq_fast/fast_g64"), &path("quantised"));
    let (plain, quantised) = (path("plain"), path("quantised"));
    let out = path("out");
    let union = |first: &Path, second: &Path| {
        run(&[
            "convert",
            path_str(first),
            path_str(second),
            "-o",
            path_str(&out),
            "--shard-size",
            "1GB",
        ])
    };
    let refused = union(&plain, &quantised);
    assert_eq!(refused.code, 1);
    assert!(
        refused
            .stderr
            .contains("quantised: not supported: its configuration describes weights otherwise"),
        "{}",
        refused.stderr
    );
    assert!(!out.exists());
    // the configuration of the first is of all
    let made = union(&quantised, &plain);
    assert_eq!(made.code, 0, "{}", made.stderr);
    assert!(
        made.stdout.contains("none of") && made.stdout.contains("plain is copied"),
        "{}",
        made.stderr
    );
    assert!(run(&["plan", path_str(&out)]).stdout.contains("awq"));
}

#[test]
fn keys_of_the_metadata_are_no_names_of_tensors() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    let model = workspace().join("fixtures/model/scribe-Q8_0.gguf");
    let (plain, prefixed, back) = (path("a.safetensors"), path("b.safetensors"), path("c.gguf"));
    let converted = |arguments: &[&str]| {
        let run = run(&[&["convert"], arguments].concat());
        assert_eq!(run.code, 0, "{}", run.stderr);
    };
    converted(&[path_str(&model), "-o", path_str(&plain), "--dtype", "bf16"]);
    converted(&[
        path_str(&plain),
        "-o",
        path_str(&prefixed),
        "--add-prefix",
        "net",
    ]);
    converted(&[
        path_str(&prefixed),
        "-o",
        path_str(&back),
        "--strip-prefix",
        "net",
    ]);
    let architecture =
        |path: &Path| run(&["inspect", path_str(path), "--metadata=general.architecture"]).stdout;
    assert_eq!(architecture(&back), architecture(&model));
    let names = json_of(&["inspect", "--json", path_str(&prefixed)]);
    let names = names["checkpoints"][0]["tensors"].as_array().unwrap();
    assert!(
        names
            .iter()
            .all(|tensor| tensor["name"].as_str().unwrap().starts_with("net."))
    );
}

#[test]
fn shapes_and_names_that_numpy_does_not_have_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let (source, out) = (
        scratch.path().join("a.safetensors"),
        scratch.path().join("a.npz"),
    );
    let convert = || {
        run(&[
            "convert",
            path_str(&source),
            "-o",
            path_str(&out),
            "--overwrite",
        ])
    };
    for (name, shape) in [
        ("a\\u0000b", "[2]"),
        ("w", "[0, 9223372036854775808]"),
        ("w", "[0, 4294967296, 4294967296]"),
    ] {
        let nbytes = if shape == "[2]" { 8 } else { 0 };
        let header = format!(
            r#"{{"{name}":{{"dtype":"F32","shape":{shape},"data_offsets":[0,{nbytes}]}}}}"#
        );
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header.as_bytes());
        file.extend(vec![0; nbytes]);
        fs::write(&source, file).unwrap();
        let run = convert();
        assert_eq!(run.code, 1, "{name} {shape}: {}", run.stderr);
        assert!(!out.exists());
    }
    // an archive without arrays is one
    fs::write(&source, b"\x02\0\0\0\0\0\0\0{}").unwrap();
    assert_eq!(convert().code, 0);
    let bytes = fs::read(&out).unwrap();
    assert!(bytes.starts_with(b"PK\x05\x06") && bytes.len() == 22);
    assert_eq!(run(&["inspect", path_str(&out)]).code, 0);
}

#[test]
fn a_name_stays_a_name() {
    let scratch = tempfile::tempdir().unwrap();
    let (source, out) = (
        scratch.path().join("a.safetensors"),
        scratch.path().join("b.safetensors"),
    );
    safetensors(&source, "", &[("", &[2]), ("b", &[3])]);
    let convert = |arguments: &[&str]| {
        let own = [
            "convert",
            path_str(&source),
            "-o",
            path_str(&out),
            "--overwrite",
        ];
        run(&[&own[..], arguments].concat())
    };
    assert_eq!(convert(&[]).code, 0);
    assert_eq!(run(&["diff", path_str(&source), path_str(&out)]).code, 0);
    let none = convert(&["--rename", "b="]);
    assert_eq!(none.code, 2);
    assert!(
        none.stderr.contains("`b` would have no name"),
        "{}",
        none.stderr
    );
    assert_eq!(convert(&["--add-prefix", ""]).code, 0);
    assert_eq!(run(&["diff", path_str(&source), path_str(&out)]).code, 0);
    let aligned = convert(&["--alignment", "64"]);
    assert!(
        aligned.stderr.contains("a setting of GGUF"),
        "{}",
        aligned.stderr
    );
}

/// Tensors replace tensors: a tokenizer beside a model is no output, whatever the flags say.
#[test]
fn files_of_a_model_without_tensors_are_not_replaced() {
    let scratch = tempfile::tempdir().unwrap();
    let model = scratch.path().join("model");
    fs::create_dir(&model).unwrap();
    let source = scratch.path().join("a.safetensors");
    safetensors(&source, "", &[("w", &[2])]);
    safetensors(&model.join("model.safetensors"), "", &[("w", &[2])]);
    for name in [
        "merges.txt",
        "tokenizer.model",
        "chat_template.jinja",
        "vocab.txt",
        "spiece.model",
        "LICENSE",
    ] {
        let file = model.join(name);
        fs::write(&file, "keep").unwrap();
        for arguments in [&["convert"][..], &["remember"], &["report"]] {
            let output = [path_str(&source), "-o", path_str(&file), "--overwrite"];
            let run = run(&[arguments, &output].concat());
            assert_ne!(run.code, 0, "{arguments:?} {name}");
            assert_eq!(fs::read(&file).unwrap(), b"keep", "{arguments:?} {name}");
        }
    }
}

/// An output directory that had another model: its files that stay are named.
#[test]
fn files_of_the_model_before_are_named() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    for model in ["new", "old"] {
        fs::create_dir(path(model)).unwrap();
        safetensors(&path(model).join("model.safetensors"), "", &[("w", &[2])]);
        fs::write(path(model).join("config.json"), "{}").unwrap();
    }
    let stale = [
        "adapter_config.json",
        "chat_template.jinja",
        "hf_quant_config.json",
        "tokenizer.json",
    ];
    for name in stale {
        fs::write(path("old").join(name), "{}").unwrap();
    }
    // training state lies beside the model, a link leads nowhere
    for name in ["optimizer.pt", "training_args.bin"] {
        fs::write(path("new").join(name), "x").unwrap();
    }
    std::os::unix::fs::symlink("nowhere", path("new").join("tokenizer.json")).unwrap();
    for verb in ["convert", "remember"] {
        let arguments = [
            verb,
            path_str(&path("new")),
            "-o",
            path_str(&path("old")),
            "--overwrite",
            "--json",
        ]
        .map(str::to_owned);
        let document = json_of(&arguments.each_ref().map(String::as_str));
        let notes = document["notes"].to_string();
        for name in stale {
            assert!(
                notes.contains(&format!("{name} was in the directory before")),
                "{verb}: {notes}"
            );
        }
        let left: Vec<_> = document["left_out"].as_array().unwrap().iter().collect();
        let reason = |name: &str| {
            let found = left.iter().find(|left| left["name"] == name);
            found.map(|left| left["reason"].as_str().unwrap().to_owned())
        };
        assert_eq!(
            reason("optimizer.pt").as_deref(),
            Some("other_tensors"),
            "{document}"
        );
        assert_eq!(
            reason("training_args.bin").as_deref(),
            Some("other_tensors")
        );
        assert_eq!(reason("tokenizer.json").as_deref(), Some("broken_link"));
    }
}

/// A limit on the length of files is an error, as a full disk is.
#[test]
fn a_limit_on_the_length_of_files_is_an_error() {
    let scratch = tempfile::tempdir().unwrap();
    let source = scratch.path().join("a.safetensors");
    safetensors(&source, "", &[("w", &[100_000])]);
    for verb in ["convert", "remember"] {
        let program = env!("CARGO_BIN_EXE_anamnesis");
        let mut shell = std::process::Command::new("sh");
        // the program's path may have spaces
        let script = r#"ulimit -f 1; exec "$0" "$@""#;
        shell.args(["-c", script, program, verb]);
        shell.args(["a.safetensors", "-o", "b.safetensors"]);
        shell.current_dir(scratch.path());
        let run = crate::process::finish(shell);
        assert_eq!(run.code, 1, "{}", run.stderr);
        assert!(run.stderr.contains("File too large"), "{}", run.stderr);
        let left = fs::read_dir(scratch.path()).unwrap().count();
        assert_eq!(left, 1, "{verb}");
    }
}

/// The recipe of docs/check.md: digests of tensors are compared where the tensors lie now.
#[test]
fn digests_of_tensors_hold_in_other_shards() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    fs::create_dir(path("model")).unwrap();
    let model = workspace().join("fixtures/model/scribe.safetensors");
    fs::copy(model, path("model/model.safetensors")).unwrap();
    let list = path("llama.json");
    let written = run(&[
        "check",
        "--write",
        path_str(&list),
        path_str(&path("model")),
    ]);
    assert_eq!(written.code, 0, "{}", written.stderr);
    let sharded = path("other");
    let check = |arguments: &[&str]| {
        let convert = [
            "convert",
            path_str(&path("model")),
            "-o",
            path_str(&sharded),
            "--shard-size",
            "50KB",
            "--overwrite",
        ]
        .map(str::to_owned);
        let convert: Vec<&str> = convert
            .iter()
            .map(String::as_str)
            .chain(arguments.iter().copied())
            .collect();
        assert_eq!(run(&convert).code, 0);
        run(&["check", "--manifest", path_str(&list), path_str(&sharded)])
    };
    let same = check(&[]);
    assert_eq!(same.code, 0, "{}{}", same.stdout, same.stderr);
    let less = check(&["--exclude", "*norm*"]);
    assert_eq!(less.code, 1, "{}", less.stdout);
    assert!(less.stdout.contains("hash-missing-file"), "{}", less.stdout);
}

/// Keys that only a writer sets are no metadata, a key keeps its type, and a number fits into it.
#[test]
fn keys_are_set_as_they_are_said_or_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("out.gguf");
    let model = workspace().join("fixtures/model/scribe-Q8_0.gguf");
    let set = |metadata: &str| {
        let arguments = [
            "convert",
            path_str(&model),
            "-o",
            path_str(&out),
            "--overwrite",
            "--metadata",
            metadata,
        ];
        run(&arguments)
    };
    for (metadata, what) in [
        ("general.alignment:u32=64", "is set by --alignment"),
        ("split.count:u16=3", "numbers the files of a split"),
        ("anamnesis.padding=hello", "is the room of a header"),
        (
            "general.architecture:u32=1",
            "has the type str, and keeps it: u32 is another one",
        ),
        ("x:f32=1e39", "is larger than any f32"),
    ] {
        let refused = set(metadata);
        assert_ne!(refused.code, 0, "{metadata}");
        assert!(
            refused.stderr.contains(what),
            "{metadata}: {}",
            refused.stderr
        );
        assert!(!out.exists(), "{metadata}");
    }
    assert_eq!(set("x:f32=inf").code, 0);
    // a layout that is kept on the way through another container
    let [aligned, plain, back] =
        ["a.gguf", "b.safetensors", "c.gguf"].map(|name| scratch.path().join(name));
    for arguments in [
        &[
            "convert",
            path_str(&model),
            "-o",
            path_str(&aligned),
            "--alignment",
            "64",
        ][..],
        &[
            "convert",
            path_str(&aligned),
            "-o",
            path_str(&plain),
            "--dtype",
            "bf16",
        ],
        &["convert", path_str(&plain), "-o", path_str(&back)],
    ] {
        let run = run(arguments);
        assert_eq!(run.code, 0, "{}", run.stderr);
    }
    let alignment = run(&["inspect", path_str(&back), "--metadata=general.alignment"]);
    assert!(
        alignment.stdout.contains("64"),
        "{}{}",
        alignment.stdout,
        alignment.stderr
    );
}

/// A file that no user may replace or remove refuses the run before anything is named, whether it is a configuration, the index or
/// a shard.
#[test]
fn protected_files_refuse_the_run_and_nothing_has_changed() {
    let scratch = tempfile::tempdir().unwrap();
    let (model, out) = (scratch.path().join("model"), scratch.path().join("out/"));
    fs::create_dir(&model).unwrap();
    let tensors: [(&str, &[usize]); 3] = [("a", &[16]), ("b", &[16]), ("c", &[16])];
    safetensors(&model.join("model.safetensors"), "", &tensors);
    let convert = |shard_size: &str| {
        let (from, to) = (path_str(&model), path_str(&out));
        let size = ["--shard-size", shard_size, "--overwrite"];
        run(&[&["convert", from, "-o", to][..], &size].concat())
    };
    let entries = |directory: &Path| {
        let names = fs::read_dir(directory).unwrap();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    fs::write(model.join("config.json"), "{\"a\": 1}").unwrap();
    assert_eq!(convert("100B").code, 0);
    fs::write(model.join("config.json"), "{\"a\": 2}").unwrap();
    let before = (entries(&out), entries(scratch.path()));
    for name in [
        "config.json",
        "model.safetensors.index.json",
        "model-00002-of-00003.safetensors",
    ] {
        let protect = |flag: &str| {
            let mut chattr = std::process::Command::new("chattr");
            let done = chattr.arg(flag).arg(out.join(name)).output();
            done.is_ok_and(|done| done.status.success())
        };
        if !protect("+i") {
            eprintln!("SKIPPED: no file can be made immutable here");
            return;
        }
        let refused = convert("1KB");
        assert!(protect("-i"));
        assert_eq!(refused.code, 1, "{name}: {}", refused.stdout);
        assert!(refused.stderr.contains(name), "{}", refused.stderr);
        assert!(refused.stderr.contains("lsattr"), "{}", refused.stderr);
        assert_eq!((entries(&out), entries(scratch.path())), before, "{name}");
        assert_eq!(fs::read(out.join("config.json")).unwrap(), b"{\"a\": 1}");
    }
    assert_eq!(convert("1KB").code, 0);
}

/// A list of modules that are not quantised names some by a part of their names: it stays, and a note says so.
#[test]
fn an_entry_that_does_not_follow_a_rename_is_named() {
    let scratch = tempfile::tempdir().unwrap();
    let model = scratch.path().join("model");
    fs::create_dir(&model).unwrap();
    let header = serde_json::json!({
        "net.a.weight": {"dtype": "F8_E4M3", "shape": [128, 128], "data_offsets": [0, 16384]},
        "net.a.weight_scale_inv": {"dtype": "F32", "shape": [1, 1], "data_offsets": [16384, 16388]},
        "net.b.weight": {"dtype": "BF16", "shape": [2], "data_offsets": [16388, 16392]},
    })
    .to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend([0x38; 16384]);
    bytes.extend([0, 0, 128, 63, 0, 0, 0, 0]);
    fs::write(model.join("model.safetensors"), bytes).unwrap();
    for (entry, rename, lost) in [
        ("b", "*.b.weight=*.c.weight", true),
        ("re:.*b$", "*.b.weight=*.c.weight", true),
        ("b", "net=model", false),
        ("net.b", "*.b.weight=*.c.weight", false),
    ] {
        let config = serde_json::json!({
            "quantization_config": {
                "quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": [entry],
            },
        });
        fs::write(model.join("config.json"), config.to_string()).unwrap();
        let out = format!("{}/", path_str(&scratch.path().join("out")));
        let run = run(&[
            "convert",
            path_str(&model),
            "-o",
            &out,
            "--rename",
            rename,
            "--overwrite",
        ]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        let named = format!("`{entry}` of modules_to_not_convert");
        assert_eq!(
            run.stdout.contains(&named),
            lost,
            "{entry} {rename}: {}",
            run.stdout
        );
        assert_eq!(run.stdout.contains("net.c.weight"), lost, "{}", run.stdout);
    }
}

/// Keys of the header by which weights are read are not changed without a word, and their values in several files are united.
#[test]
fn keys_that_describe_weights_are_kept_and_united() {
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("out.safetensors");
    let other = scratch.path().join("other.safetensors");
    let comfy = quant("field/comfy-nvfp4-header/model.safetensors");
    let relabelled = r#"_quantization_metadata={"format_version":"1.0","layers":{"blocks.0.attn.to_q":{"format":"float8_e4m3fn"}}}"#;
    let torchao = quant("torchao/int8_row/model.safetensors");
    for (model, change) in [
        (&comfy, ["--drop-metadata", "_quantization_metadata"]),
        (&comfy, ["--metadata", relabelled]),
        (&torchao, ["--drop-metadata", "a.fc.weight"]),
    ] {
        let arguments = ["convert", path_str(model), "-o", path_str(&out)];
        let run = run(&[&arguments[..], &change].concat());
        assert_eq!(run.code, 2, "{change:?}: {}", run.stdout);
        assert!(
            run.stderr.contains("the metadata of the output"),
            "{}",
            run.stderr
        );
        assert!(!out.exists());
    }
    for (model, renames) in [
        (&comfy, &["blocks.0=blocks.1", "norm=norm2"][..]),
        (&torchao, &["a=b"]),
    ] {
        fs::copy(model, &other).unwrap();
        let mut arguments = vec!["edit", path_str(&other)];
        for rename in renames {
            arguments.extend(["--rename", rename]);
        }
        assert_eq!(run(&arguments).code, 0);
        let both = [path_str(model), path_str(&other)];
        let merge = run(&[
            "convert",
            both[0],
            both[1],
            "-o",
            path_str(&out),
            "--overwrite",
        ]);
        assert_eq!(merge.code, 0, "{}", merge.stderr);
        let mut plans = Vec::new();
        for source in [both[0], both[1], path_str(&out)] {
            let plan = json_of(&["plan", "--json", source]);
            assert_eq!(
                plan["refused"].as_array().map(Vec::len),
                Some(0),
                "{source}: {plan}"
            );
            plans.push(plan["jobs"].as_array().unwrap().len());
        }
        assert_eq!(plans[0] + plans[1], plans[2]);
        let header = json_of(&["inspect", "--json", path_str(&out)]);
        let metadata = header["checkpoints"][0]["metadata"].to_string();
        let second = if model == &comfy {
            "blocks.1.attn.to_q"
        } else {
            "b.fc.bias"
        };
        assert!(metadata.contains(second), "{metadata}");
    }
}

/// A name or key that the readers of a container do not find again is refused.
#[test]
fn names_that_readers_do_not_find_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let source = scratch.path().join("a.safetensors");
    safetensors(&source, "", &[("a", &[3]), ("a.npy", &[4])]);
    let (npz, gguf) = (scratch.path().join("a.npz"), scratch.path().join("a.gguf"));
    let long = format!("{}=1", "k".repeat(70_000));
    for (to, more, said, code) in [
        (&npz, &[][..], "have one name to NumPy", 1),
        (&gguf, &["--metadata", &long], "has 70000 bytes", 2),
    ] {
        let arguments = ["convert", path_str(&source), "-o", path_str(to)];
        let run = run(&[&arguments[..], more].concat());
        assert_eq!(run.code, code, "{}", run.stdout);
        assert!(run.stderr.contains(said), "{}", run.stderr);
        assert!(!to.exists());
    }
    let one = run(&[
        "convert",
        path_str(&source),
        "-o",
        path_str(&npz),
        "-x",
        "a.npy",
    ]);
    assert_eq!(one.code, 0, "{}", one.stderr);
    // the value that is set is not dropped
    let arguments = ["convert", path_str(&source), "-o", path_str(&gguf)];
    let set = run(&[&arguments[..], &["--metadata", "k=1"]].concat());
    assert_eq!(set.code, 0, "{}", set.stderr);
    let second = scratch.path().join("b.gguf");
    let again = ["convert", path_str(&gguf), "-o", path_str(&second)];
    let set = run(&[&again[..], &["--metadata", "k=2", "--drop-metadata", "k"]].concat());
    assert_eq!(set.code, 0, "{}", set.stderr);
    let header = json_of(&["inspect", "--json", again[3]]);
    assert_eq!(header["checkpoints"][0]["metadata"]["k"], "2");
}
