//! The keys of folders, against those of llama.cpp's converter (`fixtures/tokenizers/make.py`), and files that contradict
//! themselves.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};
use sha2::{Digest as _, Sha256};

use super::{TokenizerFacts, TokenizerReading, gguf_keys};
use crate::base::error::{ErrorKind, Remedy, Result};
use crate::base::limits::{Budget, Limits};
use crate::models::model_folder::ModelFolder;
use crate::read::checkpoint::Checkpoint;
use crate::read::format::gguf::{GgufType, GgufValue};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/tokenizers")
}

fn keys_of(path: &Path, facts: TokenizerFacts<'_>) -> Result<Vec<(String, GgufValue)>> {
    let weights = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/gguf/plain_v3.gguf");
    let checkpoint = Checkpoint::open(weights).unwrap();
    let budget = Budget::new(Limits::default());
    gguf_keys(
        &ModelFolder::without_weights(&checkpoint, path, &budget),
        facts,
    )
}

/// A value as `expected.json` has it.
fn shown(value: &GgufValue) -> Json {
    let bytes = value.bytes();
    match value.kind() {
        GgufType::Text => std::str::from_utf8(&bytes[8..]).unwrap().into(),
        GgufType::Bool => (bytes[0] == 1).into(),
        GgufType::U32 => value.as_u32().unwrap().into(),
        GgufType::Array => {
            let element = u32::from_le_bytes(bytes[..4].try_into().unwrap());
            let count = u64::from_le_bytes(bytes[4..12].try_into().unwrap());
            let mut digest = String::new();
            for byte in &Sha256::digest(&bytes[12..])[..4] {
                write!(digest, "{byte:02x}").unwrap();
            }
            format!("array of {count}, type {element}, {digest}").into()
        }
        other => panic!("no key has the type {other:?}"),
    }
}

fn reading(converter: &str) -> TokenizerReading {
    match converter {
        "LlamaModel" => TokenizerReading::Llama,
        "Qwen2Model" => TokenizerReading::SentencePieceElseByteLevel,
        "Gemma2Model" => TokenizerReading::Gemma2,
        "Gemma3Model" => TokenizerReading::Gemma3,
        "Phi3MiniModel" => TokenizerReading::Phi3,
        "MambaModel" => TokenizerReading::Mamba,
        "Glm4Model" => TokenizerReading::Glm4,
        "T5Model" => TokenizerReading::Unigram,
        "BertModel" => TokenizerReading::WordPiece,
        _ => TokenizerReading::ByteLevel,
    }
}

#[test]
fn folders_have_the_keys_of_the_converter() {
    let text = fs::read_to_string(fixtures().join("expected.json")).unwrap();
    let cases: BTreeMap<String, Json> = serde_json::from_str(&text).unwrap();
    assert!(cases.len() > 20);
    for (name, case) in &cases {
        let text = |key: &str| case[key].as_str();
        let facts = TokenizerFacts {
            reading: reading(text("converter").unwrap()),
            architecture: text("architecture").unwrap(),
            vocabulary: case["vocab_size"].as_u64(),
            pre: text("pre"),
        };
        let keys = keys_of(&fixtures().join(name), facts);
        let keys = keys.unwrap_or_else(|e| panic!("{name}: {e}"));
        let found: Vec<Json> = keys
            .iter()
            .map(|(key, value)| json!([key, value.kind().number(), shown(value)]))
            .collect();
        assert_eq!(Json::from(found), case["keys"], "{name}");
    }
}
