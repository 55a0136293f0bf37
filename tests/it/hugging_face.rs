//! GGUF files as Hugging Face checkpoints: names, values, configuration and tokenizer of the models in
//! `fixtures/gguf/names`, which llama.cpp's converter wrote, against what transformers saved.

use std::collections::BTreeMap;

use anamnesis::companions::CompanionContent;
use anamnesis::plan::JobWork;
use anamnesis::{Checkpoint, Dtype, Names, remember};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};

use crate::support::fixture;
use crate::support::scratch_dir::ScratchDir;

/// Keys of transformers' configuration that say nothing about the model, or have another spelling that means the same.
static OTHER_KEYS: &[&str] = &[
    "dtype",
    "transformers_version",
    "use_cache",
    "initializer_range",
    "rope_parameters",
    // not in the metadata: it follows from the size of the model
    "query_pre_attn_scalar",
];

fn expected() -> BTreeMap<String, Json> {
    let text = std::fs::read_to_string(fixture("gguf/names/expected.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn open(case: &str) -> Checkpoint {
    Checkpoint::open(fixture(&format!("gguf/names/{case}.gguf"))).unwrap()
}

#[test]
fn tensors_are_those_that_transformers_saved() {
    let cases = expected();
    assert!(cases.len() >= 24);
    for (case, expected) in cases {
        let checkpoint = open(&case);
        let made = remember(&checkpoint)
            .names(Names::HuggingFace)
            .dtype(Dtype::F32)
            .cast(true)
            .all()
            .unwrap_or_else(|e| panic!("{case}: {e}"));
        let made: BTreeMap<String, Json> = made
            .iter()
            .map(|weight| {
                let hash: String = Sha256::digest(&weight.bytes)
                    .iter()
                    .map(|byte| format!("{byte:02x}"))
                    .collect();
                let shape = weight.spec.shape.as_slice();
                (
                    weight.spec.name.to_string(),
                    serde_json::json!([shape, hash]),
                )
            })
            .collect();
        let expected = expected["tensors"].as_object().unwrap();
        let names =
            |tensors: &mut dyn Iterator<Item = &String>| tensors.cloned().collect::<Vec<_>>();
        assert_eq!(
            names(&mut made.keys()),
            names(&mut expected.keys()),
            "{case}"
        );
        for (name, tensor) in expected {
            assert_eq!(&made[name], tensor, "{case}: {name}");
        }
    }
}

#[test]
fn outputs_do_not_depend_on_the_tile_or_the_source() {
    for case in expected().keys() {
        let checkpoint = open(case);
        let names = remember(&checkpoint).names(Names::HuggingFace);
        let whole = names.all().unwrap();
        // read with positioned reads, row by row
        let unmapped = anamnesis::OpenOptions::new()
            .mmap(false)
            .open(fixture(&format!("gguf/names/{case}.gguf")))
            .unwrap();
        let narrow = remember(&unmapped).names(Names::HuggingFace).threads(2);
        let mut plan = narrow.plan().unwrap();
        for job in &mut plan.jobs {
            if let JobWork::Tiles { decoder, rows } = &mut job.work {
                *rows = decoder.grid().step * 3;
            }
        }
        let mut buffers: Vec<Vec<u8>> = whole.iter().map(|w| vec![0; w.bytes.len()]).collect();
        let slices = buffers.iter_mut().map(Vec::as_mut_slice).collect();
        narrow
            .run(&plan, &mut anamnesis::sink::MemorySink::new(slices))
            .unwrap();
        for (whole, narrow) in whole.iter().zip(&buffers) {
            assert_eq!(&whole.bytes, narrow, "{case}: {}", whole.spec);
        }
    }
}

#[test]
fn the_configuration_is_that_of_the_model() {
    for (case, expected) in expected() {
        let checkpoint = open(&case);
        let files = remember(&checkpoint)
            .names(Names::HuggingFace)
            .companions()
            .unwrap()
            .files;
        let file = |name: &str| {
            let file = files.iter().find(|file| file.name == name);
            let file = file.unwrap_or_else(|| panic!("{case}: no {name}"));
            let CompanionContent::Bytes(bytes) = &file.content else {
                panic!("{case}: {name} is copied");
            };
            serde_json::from_slice::<Json>(bytes).unwrap()
        };
        let made = file("config.json");
        let expected = expected["config"].as_object().unwrap();
        // every key that we write and transformers writes has the same value
        let mut compared = 0;
        for (key, value) in made.as_object().unwrap() {
            let Some(expected) = expected.get(key) else {
                continue;
            };
            if OTHER_KEYS.contains(&&**key) || expected.is_null() {
                continue;
            }
            let same = match (value.as_f64(), expected.as_f64()) {
                (Some(a), Some(b)) => (a - b).abs() <= 1e-6 * b.abs(),
                _ => value == expected,
            };
            assert!(same, "{case}: {key} is {value}, not {expected}");
            compared += 1;
        }
        assert!(compared > 8, "{case}: {compared} keys");
        check_rotary(&case, &made, expected);
        let tokenizer = file("tokenizer.json");
        let size = tokenizer["model"]["vocab"].as_object().map(|v| v.len());
        assert!(
            size.is_none_or(|size| size > 200),
            "{case}: {size:?} tokens"
        );
        assert_eq!(
            file("tokenizer_config.json")["tokenizer_class"],
            "PreTrainedTokenizerFast"
        );
    }
}

/// Base and scaling of the rotary frequencies, which transformers 5 has under one key: by the type of attention in Gemma 3.
fn check_rotary(case: &str, made: &Json, expected: &serde_json::Map<String, Json>) {
    let Some(parameters) = expected.get("rope_parameters").filter(|p| p.is_object()) else {
        return;
    };
    let parameters = parameters.get("full_attention").unwrap_or(parameters);
    assert_eq!(made["rope_theta"], parameters["rope_theta"], "{case}");
    let kind = parameters["rope_type"].as_str().unwrap();
    if kind == "default" {
        assert!(made.get("rope_scaling").is_none(), "{case}");
        return;
    }
    let scaling = made["rope_scaling"].as_object().unwrap();
    let own = scaling.get("rope_type").or_else(|| scaling.get("type"));
    assert_eq!(own.unwrap(), kind, "{case}");
    for key in ["factor", "short_factor", "long_factor"] {
        assert_eq!(scaling.get(key), parameters.get(key), "{case}: {key}");
    }
}

/// A GGUF whose tensor of this name, F16 in the fixture, is I16: integers under a weight's name are refused.
fn with_integers(case: &str, tensor: &str) -> Vec<u8> {
    let mut bytes = std::fs::read(fixture(&format!("gguf/names/{case}.gguf"))).unwrap();
    let name = tensor.as_bytes();
    let at = bytes.windows(name.len()).position(|w| w == name).unwrap() + name.len();
    let rank = u32::from_le_bytes(bytes[at..][..4].try_into().unwrap()) as usize;
    bytes[at + 4 + 8 * rank..][..4].copy_from_slice(&25_u32.to_le_bytes());
    bytes
}

#[test]
fn a_stored_tensor_that_cannot_be_read_refuses_its_outputs_only() {
    let bytes = with_integers("llama", "blk.0.attn_k.weight");
    let checkpoint = Checkpoint::from_bytes(bytes).unwrap();
    let names = || remember(&checkpoint).names(Names::HuggingFace);
    let output = "model.layers.0.self_attn.k_proj.weight";
    let plan = names().plan().unwrap();
    let refused: Vec<&str> = plan.refused.iter().map(|weight| &*weight.name).collect();
    assert_eq!(refused, [output]);
    let message = names().all().unwrap_err().to_string();
    for part in [output, "blk.0.attn_k.weight", "I16"] {
        assert!(message.contains(part), "{message}");
    }
    // the rest is written if the filter leaves this output out, and refused if it names it
    let whole = remember(&open("llama"))
        .names(Names::HuggingFace)
        .all()
        .unwrap();
    let rest = names().filter(|name| name != output).all().unwrap();
    assert_eq!(rest.len() + 1, whole.len());
    assert!(rest.iter().all(|weight| whole.contains(weight)));
    assert!(names().filter(|name| name == output).all().is_err());
}

#[test]
fn a_stored_tensor_refuses_the_outputs_of_all_that_belong_to_it() {
    // gate and up are one output of gpt-oss, and the stored tensor that is refused is the second
    let bytes = with_integers("gpt-oss", "blk.0.ffn_up_exps.weight");
    let checkpoint = Checkpoint::from_bytes(bytes).unwrap();
    let named = remember(&checkpoint).names(Names::HuggingFace);
    let plan = named.plan().unwrap();
    let refused: Vec<&str> = plan.refused.iter().map(|weight| &*weight.name).collect();
    assert_eq!(refused, ["model.layers.0.mlp.experts.gate_up_proj"]);
    assert!(
        !plan.output_notes.iter().any(|note| note.contains("ffn_")),
        "{:?}",
        plan.output_notes
    );
    // experts of a stack are outputs of their own
    let bytes = with_integers("mixtral", "blk.0.ffn_down_exps.weight");
    let checkpoint = Checkpoint::from_bytes(bytes).unwrap();
    let first = |name: &str| !name.ends_with("experts.0.w2.weight");
    let plan = remember(&checkpoint)
        .names(Names::HuggingFace)
        .filter(first)
        .plan()
        .unwrap();
    let refused: Vec<&str> = plan.refused.iter().map(|weight| &*weight.name).collect();
    assert_eq!(
        refused,
        ["model.layers.0.block_sparse_moe.experts.1.w2.weight"]
    );
    let none = |name: &str| !name.contains(".w2.");
    let plan = remember(&checkpoint)
        .names(Names::HuggingFace)
        .filter(none)
        .plan()
        .unwrap();
    assert!(plan.refused.is_empty());
}

#[test]
fn the_header_holds_no_metadata_that_is_in_other_files() {
    let checkpoint = open("llama");
    let scratch = ScratchDir::new("named-header");
    let header = |names: Names| {
        let path = scratch.path(&format!("{names:?}.safetensors"));
        remember(&checkpoint).names(names).to_file(&path).unwrap();
        let written = Checkpoint::open(&path).unwrap();
        let metadata = written.catalog().metadata().iter();
        metadata.map(|(key, _)| key.to_owned()).collect::<Vec<_>>()
    };
    let stored = header(Names::Stored);
    assert!(stored.iter().any(|key| key == "gguf.tokenizer.ggml.tokens"));
    let named = header(Names::HuggingFace);
    assert!(named.iter().any(|key| key == "format"));
    assert!(named.iter().any(|key| key == "gguf.general.architecture"));
    for key in &named {
        assert!(key == "format" || key.starts_with("gguf.general."), "{key}");
    }
    assert!(!named.iter().any(|key| key == "gguf.general.file_type"));
}

#[test]
fn scores_have_all_digits_of_their_f32() {
    let files = remember(&open("t5"))
        .names(Names::HuggingFace)
        .companions()
        .unwrap()
        .files;
    let file = files
        .iter()
        .find(|file| file.name == "tokenizer.json")
        .unwrap();
    let CompanionContent::Bytes(bytes) = &file.content else {
        panic!("tokenizer.json is copied");
    };
    // `serde_json` rounds what it parses, so the digits are taken from the text: [["token",-1.5],["token",…]]
    let text = std::str::from_utf8(bytes).unwrap();
    let (_, list) = text.split_once("\"vocab\":[[").unwrap();
    let (list, _) = list.split_once("]]").unwrap();
    let entries = list
        .split("],[")
        .filter_map(|entry| entry.rsplit_once("\","));
    let scores: Vec<f64> = entries.map(|(_, score)| score.parse().unwrap()).collect();
    assert!(scores.len() > 200, "{} scores", scores.len());
    for score in scores {
        // the shortest digits of an F32 are another F64
        #[allow(clippy::cast_possible_truncation)]
        let single = score as f32;
        assert_eq!(f64::from(single).to_bits(), score.to_bits(), "{score}");
    }
}

#[test]
fn filters_select_by_the_new_names() {
    let checkpoint = open("mixtral");
    let names = remember(&checkpoint).names(Names::HuggingFace);
    let name = "model.layers.0.block_sparse_moe.experts.1.w2.weight";
    let one = names.tensor(name).unwrap();
    assert_eq!(&*one.spec.name, name);
    let stack = remember(&checkpoint)
        .tensor("blk.0.ffn_down_exps.weight")
        .unwrap();
    let expert = &stack.bytes[one.bytes.len()..][..one.bytes.len()];
    assert_eq!(one.bytes, expert);
}

#[test]
fn an_unknown_architecture_keeps_its_names_and_a_note_says_so() {
    let mut bytes = std::fs::read(fixture("gguf/names/qwen3.gguf")).unwrap();
    let name = b"qwen3";
    // the first occurrence is the value of `general.architecture`
    let at = bytes.windows(name.len()).position(|w| w == name).unwrap();
    bytes[at..][..name.len()].copy_from_slice(b"other");
    let checkpoint = Checkpoint::from_bytes(bytes).unwrap();
    let named = remember(&checkpoint).names(Names::HuggingFace);
    let plan = named.plan().unwrap();
    assert!(
        plan.output_notes
            .iter()
            .any(|note| note.contains("llama.cpp's")),
        "{:?}",
        plan.output_notes
    );
    let stored = remember(&checkpoint).plan().unwrap();
    let of = |plan: &anamnesis::Plan| {
        let names = plan.jobs.iter().map(|job| job.output.name.clone());
        names.collect::<Vec<_>>()
    };
    assert_eq!(of(&plan), of(&stored));
    assert!(named.companions().unwrap().files.is_empty());
}
