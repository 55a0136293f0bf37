//! Output directories of `remember`: which files they get, and which outputs are refused.

use std::fs;
use std::io;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::scratch_dir::ScratchDir;
use crate::support::writers::{StoredTensor, safetensors};
use anamnesis::companions::{LeftOut, LeftOutReason};
use anamnesis::sink::Sharding;
use anamnesis::{Checkpoint, Dtype, ErrorKind, OutputDtype, convert, remember};

/// A directory with a tensor `w` of two F16 elements, and these other files.
fn source(scratch: &ScratchDir, name: &str, others: &[(&str, &str)]) -> Checkpoint {
    let directory = scratch.path(name);
    fs::create_dir(&directory).unwrap();
    let file = safetensors(
        &[StoredTensor::new("w", "F16", &[2], vec![0, 60, 0, 64])],
        &[],
    );
    fs::write(directory.join("model.safetensors"), file).unwrap();
    for (name, text) in others {
        fs::write(directory.join(name), text).unwrap();
    }
    Checkpoint::open(directory).unwrap()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries
        .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn a_directory_gets_the_files_that_clients_read() {
    let scratch = ScratchDir::new("companions");
    let config = "{\n  \"model_type\": \"x\",\n  \"quantization_config\": {\"bits\": 4},\n  \"eps\": 1e-05,\n  \"limit\": [0.0, Infinity]\n}\n";
    let others = [
        ("config.json", config),
        ("tokenizer.json", "{\"a\": \"\u{e9}\"}"),
        ("chat_template.jinja", "{{ messages }}"),
        ("quantize_config.json", "{}"),
        ("model.safetensors.index.json.bak", ""),
        ("modeling_x.py", "import os"),
        ("README.md", "quantised"),
        ("optimizer.bin", "state"),
    ];
    let checkpoint = source(&scratch, "in", &others);
    let out = scratch.path("out");
    let remember = remember(&checkpoint).dtype(OutputDtype::Auto);
    assert_eq!(remember.output_dtype().unwrap(), Dtype::F16);
    remember.to_dir(&out, 1 << 20).unwrap();
    // no scheme has recognised a weight, so what describes quantisation stays
    let expected = [
        "chat_template.jinja",
        "config.json",
        "model.safetensors",
        "quantize_config.json",
        "tokenizer.json",
    ];
    assert_eq!(names(&out), expected);
    assert_eq!(
        read(&out.join("config.json")),
        "{\n  \"torch_dtype\": \"float16\",\n  \"model_type\": \"x\",\n  \"quantization_config\": {\"bits\": 4},\n  \"eps\": 1e-05,\n  \"limit\": [0.0, Infinity]\n}\n"
    );
    assert_eq!(read(&out.join("tokenizer.json")), others[1].1);
    let left_out = |reason| {
        let found = remember.companions().unwrap().left_out.into_iter();
        let of = found.filter(|left| left.reason == reason);
        of.map(|left| left.name).collect::<Vec<_>>()
    };
    assert_eq!(left_out(LeftOutReason::Code), ["modeling_x.py"]);
    let with_code = scratch.path("with-code");
    remember
        .clone()
        .code(true)
        .to_dir(&with_code, 1 << 20)
        .unwrap();
    assert_eq!(read(&with_code.join("modeling_x.py")), "import os");
    // one file has no companions
    fs::create_dir(scratch.path("alone")).unwrap();
    remember
        .to_file(scratch.path("alone/x.safetensors"))
        .unwrap();
    assert_eq!(names(&scratch.path("alone")), ["x.safetensors"]);
}

#[test]
fn links_of_a_hub_cache_are_followed_and_devices_are_not() {
    let scratch = ScratchDir::new("companion-links");
    fs::write(scratch.path("blob"), "{\"tokenizer\": 1}").unwrap();
    let checkpoint = source(&scratch, "in", &[]);
    #[cfg(unix)]
    {
        let link = |to: &Path, name: &str| {
            std::os::unix::fs::symlink(to, scratch.path("in").join(name)).unwrap();
        };
        link(&scratch.path("blob"), "tokenizer.json");
        link(Path::new("/dev/zero"), "vocab.json");
        link(Path::new("missing"), "merges.txt");
        let found = remember(&checkpoint).companions().unwrap();
        let left_out = [
            ("vocab.json", LeftOutReason::NotRegular),
            ("merges.txt", LeftOutReason::BrokenLink),
        ];
        let left_out = left_out.map(|(name, reason)| LeftOut {
            name: name.into(),
            reason,
        });
        assert_eq!(found.left_out, left_out);
        let out = scratch.path("out");
        remember(&checkpoint).to_dir(&out, 1 << 20).unwrap();
        assert_eq!(read(&out.join("tokenizer.json")), "{\"tokenizer\": 1}");
        assert!(
            !fs::symlink_metadata(out.join("tokenizer.json"))
                .unwrap()
                .is_symlink()
        );
    }
    let _ = checkpoint;
}

#[test]
fn a_configuration_that_cannot_be_edited_writes_nothing() {
    let scratch = ScratchDir::new("companion-config");
    for (n, text) in ["[]", "{\"a\": ", "\u{0}"].into_iter().enumerate() {
        let checkpoint = source(&scratch, &format!("in-{n}"), &[]);
        fs::write(scratch.path(&format!("in-{n}/config.json")), text).unwrap();
        let out = scratch.path("out");
        let error = remember(&checkpoint).to_dir(&out, 1 << 20).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Malformed(_)), "{error}");
        assert!(error.path().unwrap().ends_with("config.json"), "{error}");
        assert!(!out.exists());
    }
}

#[test]
fn the_dtype_of_the_configuration_is_chosen_first() {
    let scratch = ScratchDir::new("companion-dtype");
    let cases = [
        ("{\"torch_dtype\": \"bfloat16\"}", Dtype::BF16),
        ("{\"dtype\": \"float32\"}", Dtype::F32),
        ("{\"text_config\": {\"dtype\": \"float32\"}}", Dtype::F32),
        // not a dtype that weights become: the stored tensors decide
        ("{\"dtype\": \"float8_e4m3fn\"}", Dtype::F16),
        ("{}", Dtype::F16),
    ];
    for (n, (text, expected)) in cases.into_iter().enumerate() {
        let checkpoint = source(&scratch, &format!("in-{n}"), &[("config.json", text)]);
        let remember = remember(&checkpoint).dtype(OutputDtype::Auto);
        assert_eq!(remember.output_dtype().unwrap(), expected, "{text}");
    }
    let gguf = Checkpoint::open("fixtures/gguf/types/q4_k.gguf").unwrap();
    let remember = remember(&gguf).dtype(OutputDtype::Auto);
    assert_eq!(remember.output_dtype().unwrap(), Dtype::BF16);
}

#[test]
fn companions_in_the_target_are_kept_unless_they_are_equal() {
    let scratch = ScratchDir::new("companion-overwrite");
    let checkpoint = source(
        &scratch,
        "in",
        &[("config.json", "{}"), ("vocab.json", "[1]")],
    );
    let out = scratch.path("out");
    fs::create_dir(&out).unwrap();
    fs::write(out.join("vocab.json"), "[1]").unwrap();
    fs::write(out.join("config.json"), "{\"other\": 1}").unwrap();
    fs::write(out.join("mine.txt"), "mine").unwrap();
    let error = remember(&checkpoint).to_dir(&out, 1 << 20).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Io(e) if e.kind() == io::ErrorKind::AlreadyExists),
        "{error}"
    );
    assert!(error.path().unwrap().ends_with("config.json"), "{error}");
    assert_eq!(names(&out), ["config.json", "mine.txt", "vocab.json"]);
    assert_eq!(read(&out.join("config.json")), "{\"other\": 1}");
    let replace = remember(&checkpoint).overwrite(true);
    replace.to_dir(&out, 1 << 20).unwrap();
    assert_eq!(read(&out.join("config.json")), "{}");
    assert_eq!(read(&out.join("mine.txt")), "mine");
    assert_eq!(names(&out).len(), 4);
}

#[test]
fn an_overwrite_removes_what_the_old_index_names_and_no_other_file() {
    let scratch = ScratchDir::new("companion-stale");
    let checkpoint = source(&scratch, "in", &[]);
    let out = scratch.path("out");
    fs::create_dir(&out).unwrap();
    let index = json!({"weight_map": {"a": "odd.safetensors", "b": "../in/model.safetensors", "c": "kept.bin"}});
    fs::write(out.join("model.safetensors.index.json"), index.to_string()).unwrap();
    for name in ["odd.safetensors", "other.safetensors", "kept.bin"] {
        fs::write(out.join(name), name).unwrap();
    }
    fs::write(out.join("model-00001-of-00002.safetensors"), "stale").unwrap();
    remember(&checkpoint)
        .overwrite(true)
        .to_dir(&out, 1 << 20)
        .unwrap();
    assert_eq!(
        names(&out),
        ["kept.bin", "model.safetensors", "other.safetensors"]
    );
    assert!(scratch.path("in/model.safetensors").exists());
    // without `overwrite`, numbered shards of another run are refused
    let out = scratch.path("numbered");
    fs::create_dir(&out).unwrap();
    fs::write(out.join("model-00001-of-00002.safetensors"), "stale").unwrap();
    let error = remember(&checkpoint).to_dir(&out, 1 << 20).unwrap_err();
    assert!(
        error
            .path()
            .unwrap()
            .ends_with("model-00001-of-00002.safetensors")
    );
    assert_eq!(names(&out), ["model-00001-of-00002.safetensors"]);
}

#[test]
fn an_output_that_is_the_source_is_refused() {
    let scratch = ScratchDir::new("companion-source");
    let checkpoint = source(&scratch, "in", &[]);
    let refused = |checkpoint: &Checkpoint, path: &Path, is_directory: bool| {
        let remember = remember(checkpoint).overwrite(true);
        let error = if is_directory {
            remember.to_dir(path, 1 << 20).unwrap_err()
        } else {
            remember.to_file(path).unwrap_err()
        };
        assert!(
            matches!(error.kind(), ErrorKind::InvalidArgument(_)),
            "{error}"
        );
        assert!(error.to_string().contains("source"), "{error}");
    };
    refused(&checkpoint, &scratch.path("in"), true);
    refused(&checkpoint, &scratch.path("in/deeper/out"), true);
    refused(&checkpoint, &scratch.path("in/x.safetensors"), false);
    refused(&checkpoint, &scratch.path("in/../in/new"), true);
    let file = Checkpoint::open(scratch.path("in/model.safetensors")).unwrap();
    refused(&file, &scratch.path("in/model.safetensors"), false);
    refused(&file, &scratch.path("in"), true);
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(scratch.path("in"), scratch.path("link")).unwrap();
        refused(&checkpoint, &scratch.path("link"), true);
        refused(&checkpoint, &scratch.path("link/out"), true);
        refused(&file, &scratch.path("link/model.safetensors"), false);
    }
    // a neighbour of one file is no source
    remember(&file)
        .to_file(scratch.path("in/other.safetensors"))
        .unwrap();
    assert_eq!(
        names(&scratch.path("in")),
        ["model.safetensors", "other.safetensors"]
    );
}

#[test]
fn a_path_means_a_file_or_a_directory() {
    let scratch = ScratchDir::new("companion-form");
    let directory = source(&scratch, "in", &[]);
    let file = Checkpoint::open(scratch.path("in/model.safetensors")).unwrap();
    fs::create_dir(scratch.path("there.gguf")).unwrap();
    let form = |checkpoint: &Checkpoint, name: &str, shard_bytes| {
        let path = scratch.path("x").with_file_name(name);
        let sharding = remember(checkpoint).sharding(path, shard_bytes);
        sharding.map(|sharding| match sharding {
            Sharding::SingleFile => 0,
            Sharding::Shards(bytes) => bytes,
        })
    };
    let default = 5_000_000_000;
    for (checkpoint, name, shard_bytes, expected) in [
        (&file, "out", None, 0),
        (&file, "out.safetensors", None, 0),
        (&file, "out/", None, default),
        (&file, "out.safetensors/", None, default),
        (&file, "there.gguf", None, default),
        (&file, "out", Some(7), 7),
        (&directory, "out", None, default),
        (&directory, "v1.5", None, default),
        (&directory, "out.safetensors", None, 0),
        (&directory, "out", Some(7), 7),
    ] {
        assert_eq!(
            form(checkpoint, name, shard_bytes).unwrap(),
            expected,
            "{name}"
        );
    }
    for name in ["out.gguf", "out.BIN", "out.pth", "out.npz"] {
        let error = form(&file, name, None).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::InvalidArgument(_)),
            "{error}"
        );
        assert!(error.to_string().contains("safetensors"), "{error}");
    }
}

#[test]
fn files_that_clients_find_by_name_keep_it() {
    let scratch = ScratchDir::new("companion-stem");
    let bytes = safetensors(&[StoredTensor::new("w", "F16", &[2], vec![0; 4])], &[]);
    for (name, expected) in [
        ("adapter_model.safetensors", "adapter_model.safetensors"),
        (
            "diffusion_pytorch_model.safetensors",
            "diffusion_pytorch_model.safetensors",
        ),
        (
            "diffusion_pytorch_model.fp16.safetensors",
            "diffusion_pytorch_model.fp16.safetensors",
        ),
        ("weights.safetensors", "model.safetensors"),
    ] {
        let input = scratch.path(&format!("in-{name}"));
        fs::create_dir(&input).unwrap();
        fs::write(input.join(name), &bytes).unwrap();
        let checkpoint = Checkpoint::open(&input).unwrap();
        let out = scratch.path(&format!("out-{name}"));
        remember(&checkpoint).to_dir(&out, 1 << 20).unwrap();
        assert_eq!(names(&out), [expected]);
    }
    let two = [("a", 1), ("b", 2)].map(|(n, v)| StoredTensor::new(n, "U8", &[2], vec![v; 2]));
    let input = scratch.path("adapter_model.safetensors");
    fs::write(&input, safetensors(&two, &[])).unwrap();
    let out = scratch.path("sharded");
    remember(&Checkpoint::open(&input).unwrap())
        .to_dir(&out, 2)
        .unwrap();
    let expected = [
        "adapter_model-00001-of-00002.safetensors",
        "adapter_model-00002-of-00002.safetensors",
        "adapter_model.safetensors.index.json",
    ];
    assert_eq!(names(&out), expected);
    let index: Value = serde_json::from_str(&read(&out.join(expected[2]))).unwrap();
    assert_eq!(index["weight_map"]["b"], expected[1]);
    assert_eq!(Checkpoint::open(&out).unwrap().tensors().len(), 2);
}

#[test]
fn renamed_outputs_must_differ() {
    let scratch = ScratchDir::new("companion-rename");
    let two = ["m.a", "m.b"].map(|n| StoredTensor::new(n, "U8", &[1], vec![1]));
    let bytes = safetensors(&two, &[]);
    let checkpoint = Checkpoint::from_bytes(bytes).unwrap();
    let out = scratch.path("out.safetensors");
    let stripped = remember(&checkpoint).rename(|name| name.replace("m.", ""));
    stripped.to_file(&out).unwrap();
    let written = Checkpoint::open(&out).unwrap();
    let found: Vec<_> = written
        .catalog()
        .tensors()
        .iter()
        .map(|t| &*t.name)
        .collect();
    assert_eq!(found, ["a", "b"]);
    let one = remember(&checkpoint).rename(|_| "x".to_owned());
    let error = one.to_file(scratch.path("twice.safetensors")).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("two weights would be called `x`"),
        "{error}"
    );
    assert!(!scratch.path("twice.safetensors").exists());
}

/// GPT-2's `c_proj` as bitsandbytes stores it: int8 codes `[out, in]` and a scale per row.
#[test]
fn conv1d_weights_come_out_as_their_class_stores_them() {
    let scratch = ScratchDir::new("companion-conv1d");
    let module = "transformer.h.0.attn.c_proj";
    let scales: Vec<u8> = [127.0_f32, 254.0]
        .iter()
        .flat_map(|s| s.to_le_bytes())
        .collect();
    let tensors = [
        StoredTensor::new(&format!("{module}.SCB"), "F32", &[2], scales),
        StoredTensor::new(
            &format!("{module}.weight"),
            "I8",
            &[2, 3],
            vec![1, 2, 3, 4, 5, 6],
        ),
        StoredTensor::new("transformer.ln_f.weight", "F32", &[1], vec![0; 4]),
    ];
    let elements = |model_type: &str| {
        let directory = scratch.path(model_type);
        fs::create_dir(&directory).unwrap();
        fs::write(
            directory.join("model.safetensors"),
            safetensors(&tensors, &[]),
        )
        .unwrap();
        let config = json!({
            "model_type": model_type,
            "quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": true},
        });
        fs::write(directory.join("config.json"), config.to_string()).unwrap();
        let checkpoint = Checkpoint::open(&directory).unwrap();
        let weight = remember(&checkpoint)
            .dtype(Dtype::F32)
            .tensor(&format!("{module}.weight"))
            .unwrap();
        let elements = weight.bytes.as_chunks::<4>().0.iter();
        let elements: Vec<f32> = elements.map(|b| f32::from_le_bytes(*b)).collect();
        (weight.spec.shape.to_vec(), elements)
    };
    assert_eq!(
        elements("llama"),
        (vec![2, 3], vec![1.0, 2.0, 3.0, 8.0, 10.0, 12.0])
    );
    assert_eq!(
        elements("gpt2"),
        (vec![3, 2], vec![1.0, 8.0, 2.0, 10.0, 3.0, 12.0])
    );
}

#[test]
fn tied_output_layers_are_written_once() {
    let scratch = ScratchDir::new("companion-tied");
    for (n, (config, untie, expected)) in [
        (Some("{\"model_type\": \"x\"}"), false, 3),
        (Some("{\"model_type\": \"llama\"}"), false, 3),
        (Some("{\"model_type\": \"gpt2\"}"), false, 2),
        (Some("{\"model_type\": \"gpt2\"}"), true, 3),
        (
            Some("{\"model_type\": \"x\", \"tie_word_embeddings\": true}"),
            false,
            2,
        ),
        (
            Some("{\"model_type\": \"x\", \"tie_word_embeddings\": false}"),
            false,
            3,
        ),
        (None, false, 3),
    ]
    .into_iter()
    .enumerate()
    {
        let directory = scratch.path(&n.to_string());
        fs::create_dir(&directory).unwrap();
        fs::copy(
            "fixtures/model/tied_head/pytorch_model.bin",
            directory.join("pytorch_model.bin"),
        )
        .unwrap();
        if let Some(config) = config {
            fs::write(directory.join("config.json"), config).unwrap();
        }
        let checkpoint = Checkpoint::open(&directory).unwrap();
        let plan = remember(&checkpoint).untie(untie).plan().unwrap();
        let names: Vec<_> = plan.jobs.iter().map(|job| &*job.output.name).collect();
        assert_eq!(names.len(), expected, "{config:?}: {names:?}");
        assert_eq!(names[0], "model.embed_tokens.weight");
        let notes = crate::support::texts(&plan.output_notes);
        assert_eq!(notes.contains("`lm_head.weight`"), expected == 2, "{notes}");
        // a file has no configuration beside it
        let file = scratch.path(&format!("{n}.safetensors"));
        remember(&checkpoint).to_file(&file).unwrap();
        assert_eq!(Checkpoint::open(&file).unwrap().tensors().len(), 3);
        let copied = scratch.path(&format!("{n}-stored.safetensors"));
        convert(&checkpoint).to_file(&copied).unwrap();
        assert_eq!(Checkpoint::open(&copied).unwrap().tensors().len(), 3);
    }
}

#[test]
fn what_describes_quantisation_leaves_with_it() {
    let scratch = ScratchDir::new("companions-quantised");
    let directory = scratch.path("in");
    fs::create_dir_all(&directory).unwrap();
    let tensors = [
        StoredTensor::new("a.weight", "F8_E4M3", &[1, 2], vec![0x38; 2]),
        StoredTensor::new("a.weight_scale", "F32", &[1], 2f32.to_le_bytes().to_vec()),
    ];
    fs::write(
        directory.join("model.safetensors"),
        safetensors(&tensors, &[]),
    )
    .unwrap();
    let config = r#"{"model_type": "x", "quantization_config": {"quant_method": "fp8"}}"#;
    fs::write(directory.join("config.json"), config).unwrap();
    fs::write(directory.join("hf_quant_config.json"), "{}").unwrap();
    let out = scratch.path("out");
    let checkpoint = Checkpoint::open(&directory).unwrap();
    remember(&checkpoint).to_dir(&out, 1 << 20).unwrap();
    assert_eq!(names(&out), ["config.json", "model.safetensors"]);
    assert_eq!(
        read(&out.join("config.json")),
        r#"{"torch_dtype": "bfloat16","model_type": "x"}"#
    );
}
