//! `edit` and `convert` say and refuse the same: of keys by which weights are read, and of entries that do not follow a rename.

use std::fs;
use std::path::{Path, PathBuf};

use crate::process::{Run, path_str, run, stored_tensors, workspace};

/// A directory of one FP8 weight `net.a` and one that is not quantised, `net.b`, with this section of quantisation.
fn fp8_model(directory: &Path, section: &serde_json::Value) {
    fs::create_dir_all(directory).unwrap();
    stored_tensors(
        &directory.join("model.safetensors"),
        &[
            ("net.a.weight", "F8_E4M3", &[128, 128], &[0x38; 16384]),
            ("net.a.weight_scale", "F32", &[1], &[0, 0, 128, 63]),
            ("net.b.weight", "BF16", &[2, 2], &[0; 8]),
        ],
    );
    let config = serde_json::json!({"quantization_config": section});
    fs::write(directory.join("config.json"), config.to_string()).unwrap();
}

/// Both verbs with one change, on a copy of a model: `convert` with the first arguments, `edit` with the second.
fn both(model: &Path, scratch: &Path, convert: &[&str], edit: &[&str]) -> [Run; 2] {
    let (copy, out) = (scratch.join("copy"), scratch.join("out"));
    for old in [&copy, &out] {
        let _ = fs::remove_dir_all(old);
    }
    fs::create_dir(&copy).unwrap();
    let files: Vec<PathBuf> = match model.is_dir() {
        true => fs::read_dir(model)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect(),
        false => vec![model.to_owned()],
    };
    for file in &files {
        fs::copy(file, copy.join(file.file_name().unwrap())).unwrap();
    }
    let edited = match model.is_dir() {
        true => copy.clone(),
        false => copy.join(model.file_name().unwrap()),
    };
    let before = fs::read(copy.join(files[0].file_name().unwrap())).unwrap();
    let out = format!("{}/", path_str(&out));
    let converted = run(&[&["convert", path_str(model), "-o", &out][..], convert].concat());
    let edited = run(&[&["edit", path_str(&edited)][..], edit].concat());
    if edited.code != 0 {
        let after = fs::read(copy.join(files[0].file_name().unwrap())).unwrap();
        assert!(before == after, "a refused edit has changed a file");
    }
    [converted, edited]
}

/// Keys by which weights are read are not removed, renamed or changed, whichever verb it is.
#[test]
fn keys_by_which_weights_are_read_stay() {
    let scratch = tempfile::tempdir().unwrap();
    let quant = |name: &str| workspace().join("fixtures/quant").join(name);
    let comfy = quant("field/comfy-nvfp4-header/model.safetensors");
    let torchao = quant("torchao/int8_row/model.safetensors");
    let relabelled = r#"_quantization_metadata={"format_version":"1.0","layers":{"blocks.0.attn.to_q":{"format":"float8_e4m3fn"}}}"#;
    let key = "_quantization_metadata";
    for (model, convert, edit) in [
        (&comfy, ["--drop-metadata", key], ["--unset", key]),
        (&comfy, ["--metadata", relabelled], ["--set", relabelled]),
        (
            &torchao,
            ["--drop-metadata", "a.fc.weight"],
            ["--unset", "a.fc.weight"],
        ),
        (
            &torchao,
            ["--drop-metadata", "a.fc.weight"],
            ["--rename-key", "a.fc.weight=b.fc.weight"],
        ),
        (
            &torchao,
            ["--drop-metadata", "tensor_names"],
            ["--unset", "tensor_names"],
        ),
        (
            &torchao,
            ["--metadata", "tensor_names=[]"],
            ["--rename-key", "tensor_names=names"],
        ),
    ] {
        for run in both(model, scratch.path(), &convert, &edit) {
            assert_eq!(run.code, 2, "{edit:?}: {}", run.stdout);
            let said = "keep the keys that describe it";
            assert!(run.stderr.contains(said), "{edit:?}: {}", run.stderr);
        }
    }
    // other keys are free
    let other = "license=mit";
    for run in both(
        &comfy,
        scratch.path(),
        &["--metadata", other],
        &["--set", other],
    ) {
        assert_eq!(run.code, 0, "{}", run.stderr);
        assert!(!run.stdout.contains("note"), "{}", run.stdout);
    }
    // a version of ggml's types that is not known is said by both
    let gguf = workspace().join("fixtures/model/scribe-Q8_0.gguf");
    let version = "general.quantization_version:u32=3";
    for run in both(
        &gguf,
        scratch.path(),
        &["--metadata", version],
        &["--set", version],
    ) {
        assert_eq!(run.code, 0, "{}", run.stderr);
        let said = "`general.quantization_version`: 3 of the metadata is not known";
        assert!(run.stdout.contains(said), "{}", run.stdout);
    }
}

/// A pattern that has matched a weight, and matches its new name no longer, is named; and one that matches it only now.
#[test]
fn patterns_that_match_other_names_are_named() {
    let scratch = tempfile::tempdir().unwrap();
    let model = scratch.path().join("model");
    let ct = |ignore: &str, target: &str| {
        serde_json::json!({
            "quant_method": "compressed-tensors", "format": "float-quantized", "ignore": [ignore],
            "config_groups": {"g": {"targets": [target],
                "weights": {"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": true}}},
        })
    };
    for (section, rename, named) in [
        (
            ct("net.b", r"re:.*\.a$"),
            "net.a=net.d",
            Some(r"`re:.*\.a$` of targets"),
        ),
        (ct("net.b", r"re:.*\.a$"), "net=model", None),
        (ct("net.b", "net.a"), "net.a=net.d", None),
        (
            ct(r"re:.*\.b$", "Linear"),
            "net.b=net.c",
            Some(r"`re:.*\.b$` of ignore"),
        ),
        (
            ct(r"re:.*\.c$", "Linear"),
            "net.b=net.c",
            Some(r"`re:.*\.c$` of ignore"),
        ),
        (ct("net.b", "Linear"), "net.b=net.c", None),
    ] {
        let _ = fs::remove_dir_all(&model);
        fp8_model(&model, &section);
        let rename = ["--rename", rename];
        for run in both(&model, scratch.path(), &rename, &rename) {
            assert_eq!(run.code, 0, "{rename:?}: {}", run.stderr);
            let is_said = run.stdout.contains("do not match the new name");
            assert_eq!(
                is_said,
                named.is_some(),
                "{section} {rename:?}: {}",
                run.stdout
            );
            if let Some(named) = named {
                assert!(run.stdout.contains(named), "{named}: {}", run.stdout);
            }
        }
    }
}

/// The same of GPTQModel's `dynamic`, whose patterns are the keys of an object.
#[test]
fn patterns_of_dynamic_are_named() {
    let scratch = tempfile::tempdir().unwrap();
    let source = workspace().join("fixtures/quant/gptq/4bit_seq_sym_v1");
    let model = scratch.path().join("model");
    fs::create_dir(&model).unwrap();
    let name = "model.safetensors";
    fs::copy(source.join(name), model.join(name)).unwrap();
    let config = fs::read(source.join("config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_slice(&config).unwrap();
    let mut section = config["quantization_config"].clone();
    let listed = run(&["plan", "--json", path_str(&model)]);
    let plan: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    let weight = plan["jobs"][0]["name"].as_str().unwrap().to_owned();
    let module = weight.strip_suffix(".weight").unwrap();
    let pattern = format!("+:.*{}$", module.replace('.', r"\."));
    let own = serde_json::json!({"bits": section["bits"], "group_size": section["group_size"]});
    section["dynamic"] = serde_json::json!({&*pattern: own});
    let config = serde_json::json!({"quantization_config": section});
    fs::write(model.join("config.json"), config.to_string()).unwrap();
    let rename = format!("{module}=renamed.module");
    let rename = ["--rename", &*rename];
    for run in both(&model, scratch.path(), &rename, &rename) {
        assert_eq!(run.code, 0, "{}", run.stderr);
        assert!(run.stdout.contains("of dynamic"), "{}", run.stdout);
        assert!(run.stdout.contains("renamed.module"), "{}", run.stdout);
    }
}

/// The texts by which a pickle describes its weights go to the header of a safetensors file; weights that it describes otherwise are refused.
#[test]
fn weights_of_a_pickle_are_the_same_ones_in_another_format() {
    let scratch = tempfile::tempdir().unwrap();
    let file = |name: &str| scratch.path().join(name);
    let (kept, of_source, of_kept) = (
        file("kept.safetensors"),
        file("a.safetensors"),
        file("b.safetensors"),
    );
    let mut copied = 0;
    for folder in ["hqq", "torchao_pickled"] {
        let folder = workspace().join("fixtures/quant").join(folder);
        for case in fs::read_dir(folder).unwrap() {
            let case = case.unwrap().path();
            let names = ["model.pth", "qmodel.pt"].map(|name| case.join(name));
            let Some(source) = names.iter().find(|path| path.is_file()) else {
                continue;
            };
            let source = path_str(source);
            for rename in [&[][..], &["--add-prefix", "net"]] {
                let words = ["convert", source, "-o", path_str(&kept), "--overwrite"];
                let made = run(&[&words[..], rename].concat());
                if made.code != 0 {
                    assert!(made.stderr.contains("another format"), "{}", made.stderr);
                    assert!(!made.stderr.contains("torchao,"), "{}", made.stderr);
                    continue;
                }
                copied += 1;
                let remember = |from: &str, to: &Path| {
                    let words = ["remember", from, "-o", path_str(to), "--overwrite"];
                    assert_eq!(run(&words).code, 0, "{from}");
                };
                remember(source, &of_source);
                remember(path_str(&kept), &of_kept);
                let mut words = vec!["diff", path_str(&of_source), path_str(&of_kept)];
                if !rename.is_empty() {
                    words.extend(["--rename", "*=net.*"]);
                }
                let same = run(&words);
                assert_eq!(same.code, 0, "{source}: {}{}", same.stdout, same.stderr);
            }
        }
    }
    assert!(copied >= 6, "{copied}");
}

/// The label of a GGUF's quantisation is the label of the output.
#[test]
fn a_dequantised_gguf_states_its_dtype() {
    let scratch = tempfile::tempdir().unwrap();
    let source = workspace().join("fixtures/model/scribe-Q8_0.gguf");
    for (dtype, label) in [("f32", "F32"), ("f16", "F16"), ("bf16", "BF16")] {
        for ending in ["gguf", "safetensors"] {
            let out = scratch.path().join(format!("out.{ending}"));
            let out = path_str(&out);
            let made = run(&[
                "convert",
                path_str(&source),
                "-o",
                out,
                "--dtype",
                dtype,
                "--overwrite",
            ]);
            assert!(
                made.code == 0 && !made.stdout.contains("--names"),
                "{}",
                made.stdout
            );
            let back = scratch.path().join("back.gguf");
            let back = path_str(&back);
            assert_eq!(run(&["convert", out, "-o", back, "--overwrite"]).code, 0);
            let row = run(&["ls", "--json", back]).stdout;
            let row: serde_json::Value = serde_json::from_str(row.trim()).unwrap();
            assert_eq!(row["quantisation"], *label, "{ending}: {row}");
        }
        // `remember` carries the keys of a GGUF too
        let out = scratch.path().join("remembered.safetensors");
        let words = [
            "remember",
            path_str(&source),
            "-o",
            path_str(&out),
            "--overwrite",
        ];
        let made = run(&[&words[..], &["--dtype", dtype]].concat());
        assert_eq!(made.code, 0, "{}", made.stderr);
        let back = scratch.path().join("back.gguf");
        let words = [
            "convert",
            path_str(&out),
            "-o",
            path_str(&back),
            "--overwrite",
        ];
        assert_eq!(run(&words).code, 0);
        let row = run(&["ls", "--json", path_str(&back)]).stdout;
        let row: serde_json::Value = serde_json::from_str(row.trim()).unwrap();
        assert_eq!(row["quantisation"], *label, "remember: {row}");
    }
}

#[test]
fn a_rename_has_no_more_stars_than_its_pattern() {
    let scratch = tempfile::tempdir().unwrap();
    let model = scratch.path().join("model.safetensors");
    stored_tensors(&model, &[("a.weight", "F32", &[1], &[0; 4])]);
    let before = fs::read(&model).unwrap();
    let out = scratch.path().join("out.safetensors");
    let (model, out) = (path_str(&model), path_str(&out));
    for words in [
        &["edit", model][..],
        &["convert", model, "-o", out],
        &["remember", model, "-o", out],
        &["diff", model, model],
    ] {
        let refused = run(&[words, &["--rename", "*.weight=*.*.w"]].concat());
        assert_eq!(refused.code, 2, "{words:?}: {}", refused.stderr);
        assert!(refused.stderr.contains("more `*`"), "{}", refused.stderr);
    }
    assert_eq!(fs::read(model).unwrap(), before);
    assert!(!Path::new(out).exists());
}
