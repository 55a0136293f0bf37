//! Names that follow a rename, and metadata that only the source needs.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::process::{json_of, path_str, run, safetensors, stdout_of, stored_tensors, workspace};

/// Writes a safetensors file of F32 zeros, with these keys.
fn file(path: &Path, keys: &Value, tensors: &[(&str, &[usize])]) {
    safetensors(path, &keys.to_string(), tensors);
}

/// Two files with the pieces of one tensor, and a whole one.
fn pieces(directory: &Path) {
    fs::create_dir(directory).unwrap();
    for (number, places, tensors) in [
        (
            1,
            json!({"model.norm": {"saved_offsets": [0]}, "model.a": {"saved_offsets": [0, 0]}}),
            &[("model.norm", &[3][..]), ("model.a", &[2, 2])][..],
        ),
        (
            2,
            json!({"model.norm": {"saved_offsets": [3]}}),
            &[("model.norm", &[3][..])],
        ),
    ] {
        let name = format!("shard-0000{number}-model-00001-of-00001.safetensors");
        let keys = json!({"DCP_SHARDING_INFO": places.to_string(), "DCP_VERSION": "1.0"});
        file(&directory.join(name), &keys, tensors);
    }
}

fn described(path: &Path) -> Value {
    let listed = json_of(&["inspect", path_str(path), "--json"]);
    listed["checkpoints"][0].clone()
}

fn shape_of(path: &Path, tensor: &str) -> Option<Value> {
    let listed = described(path);
    let tensors = listed["tensors"].as_array().unwrap();
    let found = tensors.iter().find(|found| found["name"] == tensor);
    found.map(|found| found["shape"].clone())
}

#[test]
fn pieces_of_tensors_stay_whole_when_they_are_renamed() {
    let scratch = tempfile::tempdir().unwrap();
    let model = scratch.path().join("pieces");
    pieces(&model);
    assert_eq!(shape_of(&model, "model.norm"), Some(json!([6])));
    let edit = run(&["edit", path_str(&model), "--rename", "model=zz.yy"]);
    assert_eq!(edit.code, 0, "{}", edit.stderr);
    assert_eq!(shape_of(&model, "zz.yy.norm"), Some(json!([6])));
    assert_eq!(shape_of(&model, "zz.yy.a"), Some(json!([2, 2])));
    // neither a file alone, nor the key by which they fit together
    let one = model.join("shard-00001-model-00001-of-00001.safetensors");
    for (path, edit, said) in [
        (&one, &["--rename", "zz=x"][..], "pieces of tensors"),
        (&model, &["--unset", "DCP_SHARDING_INFO"], "it stays"),
        (&model, &["--set", "DCP_SHARDING_INFO={}"], "it stays"),
        (&one, &["--rename-key", "DCP_SHARDING_INFO=x"], "it stays"),
    ] {
        let run = run(&[&["edit", path_str(path)], edit].concat());
        assert_ne!(run.code, 0, "{edit:?}: {}", run.stdout);
        assert!(run.stderr.contains(said), "{edit:?}: {}", run.stderr);
        assert!(run.stderr.contains("help: "), "{edit:?}: {}", run.stderr);
    }
    assert_eq!(shape_of(&model, "zz.yy.norm"), Some(json!([6])));
}

#[test]
fn whole_tensors_have_no_places_of_pieces() {
    let scratch = tempfile::tempdir().unwrap();
    let model = scratch.path().join("pieces");
    pieces(&model);
    for name in ["out.safetensors", "out/"] {
        let out = scratch.path().join(name);
        let convert = run(&["convert", path_str(&model), "-o", path_str(&out)]);
        assert_eq!(convert.code, 0, "{}", convert.stderr);
        let shown = run(&["inspect", path_str(&out), "--json"]);
        assert!(
            !shown.stdout.contains("DCP_SHARDING_INFO"),
            "{}",
            shown.stdout
        );
        assert!(
            !shown.stderr.contains("a part of a checkpoint"),
            "{}",
            shown.stderr
        );
        assert_eq!(shape_of(&out, "model.norm"), Some(json!([6])));
    }
}

/// `safetensors.torch.save_model` leaves out a shared tensor, and names it in the metadata.
#[test]
fn the_names_of_shared_tensors_follow_a_rename() {
    let scratch = tempfile::tempdir().unwrap();
    let model = scratch.path().join("model.safetensors");
    let keys = json!({"head.weight": "emb.weight", "format": "pt"});
    file(&model, &keys, &[("emb.weight", &[2, 2])]);
    let out = scratch.path().join("out.safetensors");
    let rename = ["--rename", "*=net.*"];
    let convert = ["convert", path_str(&model), "-o", path_str(&out)];
    stdout_of(&[&convert[..], &rename].concat());
    stdout_of(&[&["edit", path_str(&model)][..], &rename].concat());
    for path in [&model, &out] {
        let keys = &described(path)["metadata"];
        assert_eq!(keys["net.head.weight"], "net.emb.weight", "{keys}");
        assert_eq!(keys["format"], "pt");
    }
}

#[test]
fn modules_of_an_adapter_that_do_not_follow_are_named() {
    let scratch = tempfile::tempdir().unwrap();
    let model = scratch.path().join("adapter");
    fs::create_dir(&model).unwrap();
    let tensor = "base_model.model.layers.0.q_proj.lora_A.weight";
    file(
        &model.join("adapter_model.safetensors"),
        &json!({"format": "pt"}),
        &[(tensor, &[2, 2])],
    );
    let config = json!({"peft_type": "LORA", "target_modules": ["q_proj", "v_proj"],
        "rank_pattern": {"layers.0.q_proj": 4}});
    fs::write(model.join("adapter_config.json"), config.to_string()).unwrap();
    let out = scratch.path().join("out/");
    let rename = ["--rename", "*.q_proj.*=*.query.*"];
    let convert = ["convert", path_str(&model), "-o", path_str(&out)];
    let runs = [
        run(&[&convert[..], &rename].concat()),
        run(&[&["edit", path_str(&model)][..], &rename].concat()),
    ];
    for run in runs {
        assert_eq!(run.code, 0, "{}", run.stderr);
        let said = "adapter_config.json names modules, and does not follow the rename";
        let named = "`layers.0.q_proj` of rank_pattern, `q_proj` of target_modules";
        assert!(run.stdout.contains(said), "{}", run.stdout);
        assert!(run.stdout.contains(named), "{}", run.stdout);
        assert!(!run.stdout.contains("v_proj"), "{}", run.stdout);
    }
    // a prefix of the whole changes none of them
    let moved = run(&["edit", path_str(&model), "--rename", "base_model=other"]);
    assert_eq!(moved.code, 0, "{}", moved.stderr);
    assert!(!moved.stdout.contains("adapter_config"), "{}", moved.stdout);
}

/// An output layer that shares the embedding is left out where a client restores it: with a configuration that says so, under its name.
#[test]
fn a_tied_output_layer_is_left_out_where_it_is_restored() {
    let scratch = tempfile::tempdir().unwrap();
    let model = scratch.path().join("tied");
    fs::create_dir(&model).unwrap();
    let pickle = workspace().join("fixtures/model/tied_head/pytorch_model.bin");
    fs::copy(pickle, model.join("pytorch_model.bin")).unwrap();
    let rename = ["--rename", "lm_head=head"];
    for (config, name, more, head) in [
        (
            json!({"model_type": "llama"}),
            "a/",
            &[][..],
            Some("lm_head.weight"),
        ),
        (
            json!({"model_type": "llama", "tie_word_embeddings": true}),
            "b/",
            &[],
            None,
        ),
        (
            json!({"model_type": "llama", "tie_word_embeddings": true}),
            "c.safetensors",
            &[],
            Some("lm_head.weight"),
        ),
        (
            json!({"model_type": "llama", "tie_word_embeddings": true}),
            "d/",
            &rename,
            Some("head.weight"),
        ),
    ] {
        fs::write(model.join("config.json"), config.to_string()).unwrap();
        for verb in ["convert", "remember"] {
            let out = scratch.path().join(verb).join(name);
            fs::create_dir_all(scratch.path().join(verb)).unwrap();
            let arguments = [verb, path_str(&model), "-o", path_str(&out)];
            let made = run(&[&arguments[..], more].concat());
            assert_eq!(made.code, 0, "{verb} {name}: {}", made.stderr);
            for known in ["lm_head.weight", "head.weight"] {
                let is_there = shape_of(&out, known).is_some();
                assert_eq!(is_there, head == Some(known), "{verb} {name} {known}");
            }
        }
    }
}

/// A weight that is left out is not said to be copied.
#[test]
fn a_note_is_about_weights_that_are_copied() {
    let scratch = tempfile::tempdir().unwrap();
    let model = scratch.path().join("m.safetensors");
    let scales = [0; 12];
    stored_tensors(
        &model,
        &[
            ("a.weight", "F8_E4M3", &[2, 2], &[0x38; 4]),
            ("a.weight_scale", "F32", &[3], &scales),
            ("b", "F32", &[1], &[0; 4]),
        ],
    );
    for (more, is_noted) in [(&[][..], true), (&["--exclude", "a.*"], false)] {
        let out = scratch.path().join("out.safetensors");
        let convert = [
            "convert",
            path_str(&model),
            "-o",
            path_str(&out),
            "--overwrite",
        ];
        let run = run(&[&convert[..], more].concat());
        assert_eq!(run.code, 0, "{}", run.stderr);
        let said = "1 weight is copied as stored, and could not be dequantised";
        assert_eq!(run.stdout.contains(said), is_noted, "{}", run.stdout);
    }
}

/// Keys that only writers set have no remedy that refuses them too, and a key of the architecture is missed.
#[test]
fn keys_of_a_gguf_that_readers_need() {
    let scratch = tempfile::tempdir().unwrap();
    let model = scratch.path().join("m.gguf");
    fs::copy(workspace().join("fixtures/model/scribe-Q8_0.gguf"), &model).unwrap();
    for set in ["GGUF.version=3", "anamnesis.padding=x", "split.count:u16=3"] {
        let run = run(&["edit", path_str(&model), "--set", set]);
        assert_ne!(run.code, 0, "{}", run.stdout);
        assert!(!run.stderr.contains("anamnesis convert"), "{}", run.stderr);
    }
    let run = run(&["edit", path_str(&model), "--unset", "general.architecture"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let said = "llama.cpp opens no file without the key general.architecture";
    assert!(run.stdout.contains(said), "{}", run.stdout);
}

/// Two tensors of one name are an invalid argument where a rename gives it to them, in both verbs.
#[test]
fn a_rename_to_a_name_that_exists_is_invalid() {
    let scratch = tempfile::tempdir().unwrap();
    let model = scratch.path().join("m.safetensors");
    safetensors(&model, "", &[("a", &[1]), ("b", &[1])]);
    let out = scratch.path().join("out.safetensors");
    let convert = ["convert", path_str(&model), "-o", path_str(&out)];
    for verb in [&convert[..], &["edit", path_str(&model)]] {
        for (rename, said) in [("a=b", "would be called `b`"), ("a=Z*", "more `*`")] {
            let run = run(&[verb, &["--rename", rename]].concat());
            assert_eq!(run.code, 2, "{verb:?} {rename}: {}", run.stderr);
            assert!(run.stderr.contains(said), "{}", run.stderr);
        }
    }
}

/// Half of the memory that a reader may use: an edit has several copies of a header, which it opens.
#[test]
fn a_long_header_that_opens_is_edited() {
    let scratch = tempfile::tempdir().unwrap();
    let model = scratch.path().join("m.safetensors");
    let keys = json!({"long": "x".repeat(24 << 20)}).to_string();
    safetensors(&model, &keys, &[("a", &[1])]);
    stdout_of(&["edit", path_str(&model), "--set", "license=mit"]);
    assert_eq!(described(&model)["metadata"]["license"], "mit");
}
