//! The keys of folders, which are the same as llama.cpp's converter makes (`fixtures/tokenizers/make.py`), and files that
//! contradict themselves.

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

/// A folder of these files, which is removed.
struct ScratchFolder(PathBuf);

impl ScratchFolder {
    fn new(name: &str, files: &[(&str, &[u8])]) -> Self {
        let name = format!("anamnesis-tokenizer-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        for (name, bytes) in files {
            fs::write(path.join(name), bytes).unwrap();
        }
        Self(path)
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn facts(reading: TokenizerReading) -> TokenizerFacts<'static> {
    TokenizerFacts {
        reading,
        architecture: "gpt2",
        vocabulary: Some(8),
        pre: Some("gpt-2"),
    }
}

/// A `tokenizer.json` with this vocabulary and added tokens.
fn stored(vocabulary: &Json, added: &Json) -> Vec<u8> {
    let whole = json!({
        "added_tokens": added,
        "pre_tokenizer": {"type": "ByteLevel"},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": [["a", "b"]]},
    });
    whole.to_string().into_bytes()
}

/// A field of a message with bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let len = u8::try_from(bytes.len()).unwrap();
    [&[number << 3 | 2, len], bytes].concat()
}

fn piece(text: &str, kind: u8) -> Vec<u8> {
    let inner = [field(1, text.as_bytes()), vec![3 << 3, kind]].concat();
    field(1, &inner)
}

/// Files with their names, a part of the error's text, and the file that it names.
type RefusedFolder<'a> = (TokenizerReading, &'a [(&'a str, Vec<u8>)], &'a str, &'a str);

#[test]
fn files_that_contradict_themselves_are_refused_by_name() {
    use TokenizerReading::{ByteLevel, Gemma2, Glm4, Llama, Mamba, Phi3, Unigram, WordPiece};
    let none = json!([]);
    let plain = stored(&json!({"a": 0, "b": 1, "ab": 2}), &none);
    let token = |id: u64, content: &str| json!({"id": id, "content": content, "special": false, "normalized": true});
    let config = |json: Json| json.to_string().into_bytes();
    let model = |pieces: &[(&str, u8)]| -> Vec<u8> {
        pieces
            .iter()
            .flat_map(|(text, kind)| piece(text, *kind))
            .collect()
    };
    let unknown = model(&[("<unk>", 2), ("a", 1)]);
    let deep = [b"{\"normalizer\": ".to_vec(), vec![b'['; 10_000]].concat();
    let stored_as = "tokenizer.json";
    let cases: &[RefusedFolder<'_>] = &[
        (
            ByteLevel,
            &[(stored_as, stored(&json!({"a": 0, "b": 0}), &none))],
            "`a` and `b` have the id 0",
            stored_as,
        ),
        (
            ByteLevel,
            &[(stored_as, stored(&json!({"a": 8}), &none))],
            "`a` has the id 8",
            stored_as,
        ),
        (
            ByteLevel,
            &[(stored_as, stored(&json!({"a": 1_u64 << 63}), &none))],
            "`a` has the id 9223372036854775808",
            stored_as,
        ),
        (
            ByteLevel,
            &[(stored_as, stored(&json!({"a": -1}), &none))],
            "-1",
            stored_as,
        ),
        (
            ByteLevel,
            &[(
                stored_as,
                plain
                    .iter()
                    .map(|b| if *b == b'2' { b'x' } else { *b })
                    .collect(),
            )],
            "cannot be read",
            stored_as,
        ),
        (
            ByteLevel,
            &[(
                stored_as,
                b"{\"model\": {\"vocab\": {\"a\": 0, \"a\": 1}}}".to_vec(),
            )],
            "`a` occurs twice",
            stored_as,
        ),
        (
            ByteLevel,
            &[(
                stored_as,
                stored(&json!({"a": 0}), &json!([token(1 << 63, "x")])),
            )],
            "`x` has the id 9223372036854775808",
            stored_as,
        ),
        (
            ByteLevel,
            &[(stored_as, stored(&json!({"a": 0}), &json!([token(2, "x")])))],
            "would give it 1",
            stored_as,
        ),
        (
            ByteLevel,
            &[
                (stored_as, plain.clone()),
                (
                    "tokenizer_config.json",
                    config(json!({"added_tokens_decoder": {"x": {}}})),
                ),
            ],
            "`x` is no number",
            stored_as,
        ),
        (
            ByteLevel,
            &[
                (stored_as, plain.clone()),
                ("config.json", config(json!({"bos_token_id": -2}))),
            ],
            "`bos_token_id` is -2",
            "config.json",
        ),
        (
            ByteLevel,
            &[(stored_as, stored(&json!([["a", 0.0]]), &none))],
            "the model `BPE`",
            stored_as,
        ),
        (
            ByteLevel,
            &[(
                stored_as,
                b"{\"model\": {\"merges\": [\"a b\", [\"a\", \"b\"]]}}".to_vec(),
            )],
            "some merges are pairs",
            stored_as,
        ),
        (
            ByteLevel,
            &[(stored_as, deep)],
            "recursion limit",
            stored_as,
        ),
        (
            ByteLevel,
            &[("tiktoken.model", Vec::new())],
            "not read from tiktoken.model",
            "",
        ),
        (ByteLevel, &[], "the folder has no tokenizer", ""),
        (
            Glm4,
            &[(stored_as, plain.clone())],
            "no added token `<|endoftext|>`",
            stored_as,
        ),
        (
            Llama,
            &[("tekken.json", Vec::new())],
            "not read from tekken.json",
            "",
        ),
        (
            Llama,
            &[
                (stored_as, plain.clone()),
                (
                    "tokenizer_config.json",
                    config(json!({"add_prefix_space": 1})),
                ),
            ],
            "add_prefix_space",
            "tokenizer_config.json",
        ),
        (
            Mamba,
            &[("config.json", config(json!({"pad_vocab_size_multiple": 0})))],
            "pad_vocab_size_multiple",
            "config.json",
        ),
        (
            WordPiece,
            &[(stored_as, plain.clone())],
            "the model `BPE`",
            stored_as,
        ),
        (
            Gemma2,
            &[(stored_as, plain.clone())],
            "no tokenizer.model",
            "",
        ),
        (
            Gemma2,
            &[(
                "tokenizer.model",
                model(&[("<unk>", 2), ("a", 1), ("a", 1)]),
            )],
            "`a` occurs twice",
            "tokenizer.model",
        ),
        (
            Gemma2,
            &[("tokenizer.model", model(&[("a", 1)]))],
            "0 tokens stand for unknown",
            "tokenizer.model",
        ),
        (
            Gemma2,
            &[("tokenizer.model", model(&[("a", 9)]))],
            "of the type 9",
            "tokenizer.model",
        ),
        (
            Gemma2,
            &[("tokenizer.model", vec![0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f])],
            "a field of 4294967295 bytes",
            "tokenizer.model",
        ),
        (
            Gemma2,
            &[("tokenizer.model", vec![0x80; 11])],
            "more than 64 bits",
            "tokenizer.model",
        ),
        (
            Gemma2,
            &[("tokenizer.model", field(1, &field(1, &[0xff])))],
            "not UTF-8",
            "tokenizer.model",
        ),
        (
            Gemma2,
            &[("tokenizer.model", b"gw== 0\n".to_vec())],
            "wire type",
            "tokenizer.model",
        ),
        (
            Gemma2,
            &[
                ("tokenizer.model", unknown.clone()),
                ("added_tokens.json", config(json!({"x": -1}))),
            ],
            "`x` is no whole number",
            "added_tokens.json",
        ),
        (
            Phi3,
            &[
                ("tokenizer.model", unknown.clone()),
                (
                    "tokenizer_config.json",
                    config(
                        json!({"tokenizer_class": "A", "added_tokens_decoder": {"8": {"content": "x"}}}),
                    ),
                ),
            ],
            "`x` has the id 8",
            "tokenizer_config.json",
        ),
        (
            Phi3,
            &[
                ("tokenizer.model", unknown),
                ("tokenizer_config.json", config(json!({"a": 1}))),
            ],
            "no tokenizer_class",
            "tokenizer_config.json",
        ),
        (
            Unigram,
            &[(
                "spiece.model",
                [model(&[("<unk>", 2)]), field(2, &[3 << 3, 2])].concat(),
            )],
            "of the type 2",
            "spiece.model",
        ),
    ];
    for (at, (reading, files, expected, file)) in cases.iter().enumerate() {
        let files: Vec<(&str, &[u8])> = files.iter().map(|(name, b)| (*name, &**b)).collect();
        let folder = ScratchFolder::new(&format!("refused-{at}"), &files);
        let error = keys_of(&folder.0, facts(*reading)).expect_err(expected);
        let text = error.to_string();
        assert!(text.contains(expected), "{expected}: {text}");
        assert_eq!(error.path(), Some(&*folder.0.join(file)), "{text}");
    }
}

#[test]
fn a_vocabulary_is_charged_before_it_is_made() {
    let plain = stored(&json!({"a": 0}), &json!([]));
    let folder = ScratchFolder::new("charged", &[("tokenizer.json", &plain)]);
    for vocabulary in [1 << 32, 1 << 62, u64::MAX] {
        let mut facts = facts(TokenizerReading::ByteLevel);
        facts.vocabulary = Some(vocabulary);
        let error = keys_of(&folder.0, facts).unwrap_err();
        assert!(
            matches!(
                error.kind(),
                ErrorKind::Limit { .. } | ErrorKind::Malformed(_)
            ),
            "{error}"
        );
    }
}

#[test]
fn a_pre_tokenizer_without_a_name_needs_one() {
    let mut facts = facts(TokenizerReading::ByteLevel);
    facts.pre = None;
    let folder = fixtures().join("added-tokens");
    facts.vocabulary = Some(330);
    let keys = keys_of(&folder, facts).unwrap();
    assert_eq!(
        keys[1],
        ("tokenizer.ggml.pre".to_owned(), GgufValue::text("gpt-2"))
    );
    facts.architecture = "llama";
    let error = keys_of(&folder, facts).unwrap_err();
    assert_eq!(error.remedy(), Some(Remedy::NamePreTokenizer));
    assert!(error.to_string().contains("gpt-2, phi-2"), "{error}");
}

#[test]
fn files_that_are_cut_are_refused_or_read() {
    let cuts = |name: &str, file: &str, reading: TokenizerReading| {
        let whole = fs::read(fixtures().join(name).join(file)).unwrap();
        let step = 1 + whole.len() / 300;
        let mut refused = 0;
        for len in (0..whole.len()).step_by(step) {
            let folder = ScratchFolder::new(&format!("cut-{name}"), &[(file, &whole[..len])]);
            refused += u32::from(keys_of(&folder.0, facts(reading)).is_err());
        }
        refused
    };
    assert!(
        cuts(
            "added-tokens",
            "tokenizer.json",
            TokenizerReading::ByteLevel
        ) > 200
    );
    assert!(cuts("unigram", "spiece.model", TokenizerReading::Unigram) > 200);
}

#[test]
fn a_large_vocabulary_is_within_the_default_limits() {
    const TOKENS: u32 = 256_000;
    let vocabulary: serde_json::Map<String, Json> = (0..TOKENS)
        .map(|id| (format!("token\u{120}{id}"), id.into()))
        .collect();
    let merges: Vec<Json> = (0..2 * TOKENS)
        .map(|id| json!([format!("\u{120}left{id}"), format!("right\"{id}")]))
        .collect();
    let whole = json!({
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": merges},
    });
    let whole = serde_json::to_vec_pretty(&whole).unwrap();
    let folder = ScratchFolder::new("large", &[("tokenizer.json", &whole)]);
    let mut facts = facts(TokenizerReading::ByteLevel);
    facts.vocabulary = Some(u64::from(TOKENS) + 64);
    let keys = keys_of(&folder.0, facts).unwrap();
    let tokens = &keys[2].1;
    assert_eq!(tokens.bytes()[4..12], u64::from(TOKENS + 64).to_le_bytes());
    assert_eq!(
        keys[4].1.bytes()[4..12],
        u64::from(2 * TOKENS).to_le_bytes()
    );
}
