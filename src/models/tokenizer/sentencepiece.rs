//! SentencePiece's two models: BPE by scores (Llama 2, Gemma, Phi 3) and unigram (T5).

use std::cmp::Reverse;
use std::collections::HashMap;

use serde_json::{Value as Json, json};

use crate::base::error::Result;
use crate::base::limits::Budget;
use crate::read::catalog::metadata::Value;
use crate::read::checkpoint::Checkpoint;

use super::document::{TokenizerDocument, TokenizerDocumentModel};
use super::special_tokens::{AddedTokens, flag, special, template};
use super::vocabulary::{TokenKind, TokenList, list};
use super::{TOKENIZER, base64};

/// SentencePiece's space.
const SPACE: &str = "\u{2581}";

/// Bytes that are hashed per step.
const HASHED_PER_STEP: u64 = 16;

/// BPE whose merges follow from the scores.
///
/// Steps: transformers' `LlamaConverter` and `GemmaConverter` of `convert_slow_tokenizer.py`.
pub(super) fn bpe<'v>(
    checkpoint: &Checkpoint,
    vocabulary: &'v TokenList,
    budget: &Budget,
) -> Result<TokenizerDocument<'v>> {
    let index = vocabulary.index(budget)?;
    let merges = merges(vocabulary, &index, budget)?;
    let unknown = unknown(checkpoint, vocabulary).map(|(_, token)| token);
    let mut document = TokenizerDocument::new(
        AddedTokens::new(checkpoint, vocabulary),
        TokenizerDocumentModel::Bpe {
            vocabulary,
            merges,
            unknown,
            byte_fallback: true,
            ignore_merges: false,
        },
    );
    let prefix = flag(checkpoint, "add_space_prefix").unwrap_or(true);
    let replaced = json!({"type": "Replace", "pattern": {"String": " "}, "content": SPACE});
    document.normalizer = Some(if prefix {
        // every text between special tokens has the prefix, as in llama.cpp
        let prepended = json!({"type": "Prepend", "prepend": SPACE});
        json!({"type": "Sequence", "normalizers": [prepended, replaced]})
    } else {
        replaced
    });
    let mut decoders = vec![
        json!({"type": "Replace", "pattern": {"String": SPACE}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if prefix {
        // the inverse of the prefix
        decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    document.decoder = Some(json!({"type": "Sequence", "decoders": decoders}));
    document.post_processor = template(checkpoint, vocabulary, true, false);
    Ok(document)
}

/// The token for what no other token stands for: by its id in the metadata, or by its kind.
fn unknown<'v>(checkpoint: &Checkpoint, vocabulary: &'v TokenList) -> Option<(usize, &'v str)> {
    special(checkpoint, vocabulary, "unknown_token_id").or_else(|| {
        vocabulary
            .used()
            .find(|(_, id)| vocabulary.kind(*id) == TokenKind::Unknown)
            .map(|(token, id)| (id, token))
    })
}

/// The pairs of tokens that make each token, in the order in which SentencePiece joins them: by the score of the token that
/// they make, highest first.
///
/// Equals have the order of transformers' `generate_merges`: longer left parts first, then longer right parts, then the
/// larger id of the token, and of two ways to make one token the way with the larger ids.
fn merges<'v>(
    vocabulary: &'v TokenList,
    index: &HashMap<&'v str, usize>,
    budget: &Budget,
) -> Result<Vec<(&'v str, &'v str)>> {
    struct Merge<'v> {
        score: f32,
        lengths: (usize, usize),
        parts: (&'v str, &'v str),
    }
    let mut merges: Vec<Merge<'v>> = Vec::new();
    for (token, id) in vocabulary.used() {
        // `<0x41>` stands for a byte, and must not be made of its letters
        if vocabulary.kind(id) == TokenKind::Byte {
            continue;
        }
        let first = merges.len();
        let chars = token.chars().count();
        // both parts are hashed at each place: the square of the length
        let hashed = (token.len() as u64).saturating_mul(chars as u64);
        budget.steps(1 + hashed / HASHED_PER_STEP, TOKENIZER)?;
        for (left_chars, (at, _)) in token.char_indices().enumerate().skip(1) {
            let (left, right) = token.split_at(at);
            if index.contains_key(left) && index.contains_key(right) {
                let merge = Merge {
                    score: vocabulary.score(id),
                    lengths: (left_chars, chars - left_chars),
                    parts: (left, right),
                };
                budget.push(&mut merges, merge, TOKENIZER)?;
            }
        }
        merges[first..].sort_by_key(|merge| (index[merge.parts.0], index[merge.parts.1]));
    }
    // stable, as Python's sort in reverse order is
    merges.sort_by(|a, b| {
        let key = |merge: &Merge<'_>| Reverse(merge.lengths);
        b.score.total_cmp(&a.score).then(key(a).cmp(&key(b)))
    });
    let mut pairs = Vec::new();
    budget.reserve(&mut pairs, merges.len(), TOKENIZER)?;
    pairs.extend(merges.into_iter().map(|merge| merge.parts));
    Ok(pairs)
}

/// The unigram model.
///
/// Steps: transformers' `SpmConverter` and `T5Converter`.
pub(super) fn unigram<'v>(
    checkpoint: &Checkpoint,
    vocabulary: &'v TokenList,
    budget: &Budget,
) -> Result<TokenizerDocument<'v>> {
    let unknown = unknown(checkpoint, vocabulary).map(|(id, _)| id);
    let mut document = TokenizerDocument::new(
        AddedTokens::new(checkpoint, vocabulary),
        TokenizerDocumentModel::Unigram {
            vocabulary,
            unknown,
        },
    );
    let mut normalizers: Vec<Json> = Vec::new();
    let charsmap: Vec<u8> = list(checkpoint, "tokenizer.ggml.precompiled_charsmap", budget)?
        .iter()
        .filter_map(|value| match value {
            Value::U64(byte) => u8::try_from(*byte).ok(),
            // files have both signs
            Value::I64(byte) => i8::try_from(*byte).ok().map(i8::cast_unsigned),
            _ => None,
        })
        .collect();
    if !charsmap.is_empty() {
        // the bytes, and a third more of them as text, rounded up
        budget.memory(charsmap.len() as u64 * 3, TOKENIZER)?;
        normalizers.push(
            json!({"type": "Precompiled", "precompiled_charsmap": base64::encode(&charsmap)}),
        );
    }
    if flag(checkpoint, "remove_extra_whitespaces").unwrap_or(true) {
        normalizers.push(json!({"type": "Strip", "strip_left": false, "strip_right": true}));
        normalizers
            .push(json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": SPACE}));
    }
    document.normalizer = Some(json!({"type": "Sequence", "normalizers": normalizers}));
    let prefix = flag(checkpoint, "add_space_prefix").unwrap_or(true);
    let metaspace = json!({
        "type": "Metaspace",
        "replacement": SPACE,
        "prepend_scheme": if prefix { "always" } else { "never" },
        "split": true,
    });
    document.pre_tokenizer = Some(metaspace.clone());
    document.decoder = Some(metaspace);
    document.post_processor = template(checkpoint, vocabulary, false, true);
    Ok(document)
}
