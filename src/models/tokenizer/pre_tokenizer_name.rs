//! The name that llama.cpp gives to the steps of a tokenizer, for `tokenizer.ggml.pre`.
//!
//! llama.cpp's converter finds it by a digest of the tokens of one text, so only for the vocabularies of published models.
//! Here the steps are compared with the rows of [`PRE_TOKENIZERS`]. Several names can have equal steps: llama.cpp treats
//! them alike, but the bytes of the file differ, so the name is decided only where the architecture and the number of
//! tokens decide it.

use serde_json::Value as Json;

use crate::base::error::{Error, Remedy, Result};

use super::json_steps::{kind, parts};
use super::pre_tokenizers::{DEFAULTS, PRE_TOKENIZERS, PreTokenizer, Step};
use super::stored_tokenizer::StoredTokenizer;

/// Names that llama.cpp reads and its converter does not write: other names of the same, and one whose digest another name
/// has too.
const NEVER_WRITTEN: &[&str] = &["llama3", "llama-v3", "glm5", "jina-es", "jina-de", "mpt"];

/// A name among several with equal steps: architecture, number of tokens of the model, and whether texts begin with a
/// token that is added to them.
struct PublishedName {
    name: &'static str,
    architectures: &'static [&'static str],
    tokens: usize,
    first: bool,
}

static PUBLISHED: &[PublishedName] = &[
    PublishedName {
        name: "llama-bpe",
        architectures: &["llama"],
        tokens: 128_000,
        first: true,
    },
    PublishedName {
        name: "deepseek-v3",
        architectures: &["deepseek2"],
        tokens: 128_000,
        first: true,
    },
    PublishedName {
        name: "deepseek-r1-qwen",
        architectures: &["qwen2"],
        tokens: 151_643,
        first: true,
    },
    PublishedName {
        name: "gpt-4o",
        architectures: &["gpt-oss"],
        tokens: 199_998,
        first: false,
    },
];

/// Names of WordPiece vocabularies by their size: of BERT, uncased and Chinese. The steps of all are alike, and llama.cpp
/// does not look at the name.
static WORD_PIECE_SIZES: &[(usize, &str)] = &[(30_522, "jina-v2-en"), (21_128, "bert-bge-large")];

/// The name for a byte-level tokenizer.
pub(super) fn byte_level(stored: &StoredTokenizer<'_>, architecture: &str) -> Result<&'static str> {
    let adds_first = stored.adds_first();
    let alike = || PRE_TOKENIZERS.iter().filter(|row| is_row(row, stored));
    // rows that differ in nothing else
    let nearest = alike().filter(|row| row.first == adds_first);
    let rows: Vec<&PreTokenizer> = match nearest.clone().count() {
        0 => alike().collect(),
        _ => nearest.collect(),
    };
    let names = rows.iter().flat_map(|row| row.names.iter().copied());
    let names: Vec<&str> = names.filter(|name| !NEVER_WRITTEN.contains(name)).collect();
    if let [name] = *names {
        return Ok(name);
    }
    let published = PUBLISHED.iter().find(|row| {
        names.contains(&row.name)
            && row.architectures.contains(&architecture)
            && (row.tokens, row.first) == (stored.model.tokens.len(), adds_first)
    });
    if let Some(row) = published {
        return Ok(row.name);
    }
    let default = DEFAULTS.iter().find(|(known, _)| *known == architecture);
    let default = default
        .map(|(_, name)| *name)
        .filter(|name| names.contains(name) && rows.iter().any(|row| row.first == adds_first));
    default.ok_or_else(|| undecided(&names))
}

/// The name for a WordPiece tokenizer.
pub(super) fn word_piece(stored: &StoredTokenizer<'_>) -> Result<&'static str> {
    let count = stored.model.tokens.len();
    let found = WORD_PIECE_SIZES.iter().find(|(size, _)| *size == count);
    found.map(|(_, name)| *name).ok_or_else(|| undecided(&[]))
}

fn undecided(names: &[&str]) -> Error {
    let what = match names {
        [] => "llama.cpp's name for the pre-tokenizer is not known".to_owned(),
        _ => format!(
            "the pre-tokenizer has several names in llama.cpp: {}",
            names.join(", ")
        ),
    };
    Error::unsupported(what).with_remedy(Remedy::NamePreTokenizer)
}

/// Whether a tokenizer has the steps of a row.
fn is_row(row: &PreTokenizer, stored: &StoredTokenizer<'_>) -> bool {
    if row.ignore_merges != stored.model.ignore_merges {
        return false;
    }
    let mut normalizers = parts(&stored.normalizer, "normalizers");
    let is_nfc = normalizers.len() == 1 && kind(normalizers[0]) == "NFC";
    normalizers.retain(|step| !(row.nfc && is_nfc && kind(step) == "NFC"));
    let steps = parts(&stored.pre_tokenizer, "pretokenizers");
    let is_one = row.steps.len() == 2;
    normalizers.is_empty()
        && (is_nfc == row.nfc)
        && steps.len() == row.steps.len()
        && row
            .steps
            .iter()
            .zip(steps)
            .all(|(known, step)| is_step(*known, step, is_one))
}

/// Whether a step is this one. `is_only`: no other step divides the text.
fn is_step(known: Step, step: &Json, is_only: bool) -> bool {
    let flag = |key: &str, default| step.get(key).and_then(Json::as_bool).unwrap_or(default);
    let text = |key: &str| step.get(key).and_then(Json::as_str);
    match known {
        Step::Split(pattern) => {
            let stored = step.get("pattern").and_then(|pattern| pattern.get("Regex"));
            // words are the matches, or what lies between matches: the same where expressions match all characters
            let division = match text("behavior") {
                Some("Isolated") => !flag("invert", false),
                Some("Removed") => is_only && flag("invert", false),
                _ => false,
            };
            kind(step) == "Split" && stored.and_then(Json::as_str) == Some(pattern) && division
        }
        Step::Digits { individual } => {
            kind(step) == "Digits" && flag("individual_digits", false) == individual
        }
        Step::Punctuation => kind(step) == "Punctuation" && text("behavior") == Some("Contiguous"),
        Step::Bytes { gpt2 } => kind(step) == "ByteLevel" && flag("use_regex", true) == gpt2,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::pre_tokenizers::PRE_TOKENIZERS;
    use super::super::stored_tokenizer::StoredTokenizer;
    use super::{NEVER_WRITTEN, byte_level, is_row};

    /// A tokenizer with the steps of a row.
    fn stored(at: usize) -> StoredTokenizer<'static> {
        let row = &PRE_TOKENIZERS[at];
        let mut stored = StoredTokenizer::default();
        stored.model.ignore_merges = row.ignore_merges;
        stored.pre_tokenizer = row.document(false);
        if row.nfc {
            stored.normalizer = json!({"type": "Sequence", "normalizers": [{"type": "NFC"}]});
        }
        if row.first {
            stored.post_processor = json!({
                "type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
            });
        }
        stored
    }

    #[test]
    fn the_steps_of_a_row_have_its_names_and_no_others() {
        for (at, row) in PRE_TOKENIZERS.iter().enumerate() {
            let stored = stored(at);
            assert!(is_row(row, &stored), "{row:?}");
            let written = |name: &&str| !NEVER_WRITTEN.contains(name);
            let names: Vec<&str> = row.names.iter().copied().filter(written).collect();
            match (&*names, byte_level(&stored, "an architecture")) {
                ([name], found) => assert_eq!(found.unwrap(), *name),
                (several, found) => {
                    let error = found.unwrap_err().to_string();
                    assert!(several.iter().all(|name| error.contains(name)), "{error}");
                }
            }
        }
    }

    #[test]
    fn architectures_decide_between_names_of_equal_steps() {
        let with = |name: &str| {
            let mut rows = PRE_TOKENIZERS.iter();
            stored(rows.position(|row| row.names.contains(&name)).unwrap())
        };
        assert_eq!(byte_level(&with("qwen2"), "qwen3").unwrap(), "qwen2");
        assert_eq!(byte_level(&with("gpt-2"), "gpt2").unwrap(), "gpt-2");
        assert_eq!(byte_level(&with("olmo"), "mamba").unwrap(), "olmo");
        let mut llama = with("llama-bpe");
        assert!(byte_level(&llama, "llama").is_err());
        llama.model.tokens = (0..128_000).map(|id| ("".into(), id)).collect();
        assert_eq!(byte_level(&llama, "llama").unwrap(), "llama-bpe");
        // DeepSeek's models that were made of Qwen's begin texts with a token
        let mut distilled = with("qwen2");
        distilled.post_processor = llama.post_processor;
        assert!(byte_level(&distilled, "qwen2").is_err());
        distilled.model.tokens = (0..151_643).map(|id| ("".into(), id)).collect();
        assert_eq!(byte_level(&distilled, "qwen2").unwrap(), "deepseek-r1-qwen");
    }

    #[test]
    fn other_steps_have_no_name() {
        let mut gpt2 = StoredTokenizer::default();
        assert!(byte_level(&gpt2, "gpt2").is_err());
        gpt2.pre_tokenizer = json!({"type": "ByteLevel", "use_regex": true});
        assert!(byte_level(&gpt2, "gpt2").is_ok());
        gpt2.normalizer = json!({"type": "Lowercase"});
        assert!(byte_level(&gpt2, "gpt2").is_err());
    }
}
