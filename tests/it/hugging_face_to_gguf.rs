//! Hugging Face checkpoints as GGUF files: the models in `fixtures/gguf/names`, which llama.cpp's converter wrote, through a checkpoint
//! of transformers' names and back.

use std::collections::BTreeMap;
use std::path::Path;

use anamnesis::catalog::Value;
use anamnesis::{Checkpoint, Dtype, FileType, Names, quantise, remember};

use crate::support::fixture;
use crate::support::scratch_dir::ScratchDir;

/// Architectures that are read from a GGUF and not written to one.
const READ_ONLY: [&str; 1] = ["gpt-oss"];

/// Differences by intention: a file of an older converter, and the exponential of a logarithm.
static OTHERS: &[&str] = &["mixtral-2023: ", "mamba: values of blk.0.ssm_a"];

fn cases() -> Vec<String> {
    let text = std::fs::read_to_string(fixture("gguf/names/expected.json")).unwrap();
    let all: BTreeMap<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
    all.into_keys().collect()
}

fn text<'c>(checkpoint: &'c Checkpoint, key: &str) -> Option<&'c str> {
    match checkpoint.catalog().metadata().get(key) {
        Some(Value::Text(text)) => Some(text),
        _ => None,
    }
}

/// Names, shapes and values in F32.
fn values(path: &Path) -> BTreeMap<String, (Vec<u64>, Vec<u8>)> {
    let checkpoint = Checkpoint::open(path).unwrap();
    let weights = remember(&checkpoint).dtype(Dtype::F32).cast(true).all();
    let all = weights.unwrap().into_iter();
    all.map(|weight| {
        let mut shape = weight.spec.shape.to_vec();
        // ggml counts no dimensions of 1 at the end
        while shape.len() > 1 && shape.first() == Some(&1) {
            shape.remove(0);
        }
        (weight.spec.name.to_string(), (shape, weight.bytes))
    })
    .collect()
}

/// The bytes of a `tokenizer.model` with three pieces: `remember` writes a `tokenizer.json`, which these architectures' converters do
/// not read.
fn sentencepiece(architecture: &str) -> Option<Vec<u8>> {
    let kind = match architecture {
        "gemma2" | "phi3" => 2,
        "t5" => 1,
        _ => return None,
    };
    let mut model = Vec::new();
    for (piece, class) in [("<unk>", 2), ("<s>", 3), ("a", 1)] {
        let mut entry = vec![0x0a, u8::try_from(piece.len()).unwrap()];
        entry.extend(piece.as_bytes());
        entry.extend([0x18, class]);
        model.extend([0x0a, u8::try_from(entry.len()).unwrap()]);
        model.extend(entry);
    }
    // the kind of the tokenizer, among the settings of its training
    model.extend([0x12, 2, 0x18, kind]);
    Some(model)
}

#[test]
fn a_model_returns_through_the_names_of_transformers() {
    let f32 = FileType::from_name("f32").unwrap();
    let (mut compared, mut read_only, mut different) = (0, 0, Vec::new());
    for case in cases() {
        let original = fixture(&format!("gguf/names/{case}.gguf"));
        let gguf = Checkpoint::open(&original).unwrap();
        let architecture = text(&gguf, "general.architecture").unwrap();
        let scratch = ScratchDir::new("to-gguf");
        let folder = scratch.path(&case);
        let names = remember(&gguf).names(Names::HuggingFace).dtype(Dtype::F32);
        names.cast(true).to_dir(&folder, 1 << 30).unwrap();
        if let Some(tokenizer) = sentencepiece(architecture) {
            std::fs::write(folder.join("tokenizer.model"), tokenizer).unwrap();
        }
        let model = Checkpoint::open(&folder).unwrap();
        let mut back = quantise(&model, f32);
        if let Some(name) = text(&gguf, "tokenizer.ggml.pre") {
            back = back.pre_tokenizer(name);
        }
        if READ_ONLY.contains(&architecture) {
            let refused = back.plan().unwrap_err().to_string();
            assert!(refused.contains("no GGUF is written"), "{case}: {refused}");
            read_only += 1;
            continue;
        }
        let out = scratch.path("back.gguf");
        if let Err(error) = back.to_file(&out) {
            different.push(format!("{case}: {error}"));
            continue;
        }
        let (before, after) = (values(&original), values(&out));
        let mut differ = |text: String| different.push(format!("{case}: {text}"));
        for name in before.keys().filter(|name| !after.contains_key(*name)) {
            differ(format!("{name} is missing"));
        }
        for (name, tensor) in &after {
            match before.get(name) {
                None => differ(format!("{name} is new")),
                Some(old) if old.0 != tensor.0 => differ(format!("shape of {name}")),
                Some(old) if old.1 != tensor.1 => differ(format!("values of {name}")),
                Some(_) => {}
            }
        }
        let made = Checkpoint::open(&out).unwrap();
        for (key, value) in gguf.catalog().metadata().iter() {
            let own = key
                .strip_prefix(architecture)
                .and_then(|key| key.strip_prefix('.'));
            if own.is_none() {
                continue;
            }
            let ours = made.catalog().metadata().get(key);
            if ours != Some(value) {
                differ(format!("{key} is {ours:?}, not {value:?}"));
            }
            compared += 1;
        }
    }
    different.retain(|text| !OTHERS.iter().any(|known| text.starts_with(known)));
    assert!(different.is_empty(), "{different:#?}");
    assert!(compared > 200 && read_only == 1, "{compared} {read_only}");
}

/// The checkpoint of a fixture, in the names of transformers.
fn checkpoint_of(case: &str, scratch: &ScratchDir) -> std::path::PathBuf {
    let gguf = Checkpoint::open(fixture(&format!("gguf/names/{case}.gguf"))).unwrap();
    let folder = scratch.path(case);
    let names = remember(&gguf).names(Names::HuggingFace).dtype(Dtype::F32);
    names.cast(true).to_dir(&folder, 1 << 30).unwrap();
    folder
}

/// Why a checkpoint becomes no GGUF; `None` if one is written.
fn refusal(folder: &Path, out: &Path) -> Option<String> {
    let model = Checkpoint::open(folder).unwrap();
    let q8_0 = FileType::from_name("q8_0").unwrap();
    let made = quantise(&model, q8_0)
        .pre_tokenizer("llama-bpe")
        .overwrite(true)
        .to_file(out);
    let error = made.err()?;
    Some(error.to_string())
}

#[test]
fn numbers_that_contradict_the_tensors_are_refused() {
    let scratch = ScratchDir::new("to-gguf");
    let out = scratch.path("out.gguf");
    for case in ["mixtral", "llama", "deepseek2", "falcon-40b", "bloom"] {
        let folder = checkpoint_of(case, &scratch);
        let config = folder.join("config.json");
        let text = std::fs::read_to_string(&config).unwrap();
        let whole: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(&text).unwrap();
        let numbers = whole.iter().filter(|(_, value)| value.is_number());
        let keys: Vec<&String> = numbers.map(|(key, _)| key).collect();
        assert!(keys.len() > 5, "{case}");
        for key in keys {
            for number in [
                "0",
                "3",
                "-1",
                "18446744073709551615",
                "1e300",
                "null",
                "\"x\"",
            ] {
                let mut changed = whole.clone();
                changed[key] = serde_json::from_str(number).unwrap();
                std::fs::write(&config, serde_json::to_vec(&changed).unwrap()).unwrap();
                // refused or, where the number says nothing about the tensors, written: never a panic
                if refusal(&folder, &out).is_some() {
                    assert!(!out.exists(), "{case}: {key} {number}");
                } else {
                    std::fs::remove_file(&out).unwrap();
                }
            }
        }
        std::fs::write(&config, &text).unwrap();
    }
}

#[test]
fn experts_are_there_once_each() {
    let scratch = ScratchDir::new("to-gguf");
    let folder = checkpoint_of("mixtral", &scratch);
    let out = scratch.path("out.gguf");
    let weights = folder.join("model.safetensors");
    let whole = std::fs::read(&weights).unwrap();
    let renamed = |from: &str, to: &str| {
        let mut bytes = whole.clone();
        let at = bytes
            .windows(from.len())
            .position(|part| part == from.as_bytes());
        let at = at.unwrap_or_else(|| panic!("no {from}"));
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
        std::fs::write(&weights, bytes).unwrap();
        let refused = refusal(&folder, &out).expect("is refused");
        assert!(!out.exists());
        refused
    };
    let name = |expert: &str| format!("layers.0.block_sparse_moe.experts.{expert}.w1.weight");
    let behind = renamed(&name("1"), &name("7"));
    assert!(
        behind.contains("experts.7.w1") || behind.contains("missing"),
        "{behind}"
    );
    // another projection's name: one is there twice, and one is missing
    let other = "layers.0.block_sparse_moe.experts.1.w9.weight";
    let unknown = renamed(&name("1"), other);
    assert!(
        unknown.contains("w9") || unknown.contains("missing"),
        "{unknown}"
    );
}
