//! WordPiece, as BERT has it.

use serde_json::json;

use crate::base::error::Result;
use crate::read::checkpoint::Checkpoint;

use super::document::{TokenizerDocument, TokenizerDocumentModel};
use super::special_tokens::{AddedTokens, flag, special};
use super::vocabulary::{TokenKind, TokenList};

pub(super) fn document<'v>(
    checkpoint: &Checkpoint,
    vocabulary: &'v TokenList,
) -> Result<TokenizerDocument<'v>> {
    let cased = vocabulary
        .used()
        .any(|(token, id)| vocabulary.kind(id) == TokenKind::Normal && has_capitals(token));
    let unknown = special(checkpoint, vocabulary, "unknown_token_id").map_or("[UNK]", |(_, t)| t);
    let (cls, sep) = (
        special(checkpoint, vocabulary, "cls_token_id")
            .or_else(|| special(checkpoint, vocabulary, "bos_token_id")),
        // the key is spelt so in llama.cpp
        special(checkpoint, vocabulary, "seperator_token_id"),
    );
    let mut document = TokenizerDocument::new(
        AddedTokens::new(checkpoint, vocabulary),
        TokenizerDocumentModel::WordPiece {
            vocabulary,
            unknown,
        },
    );
    // most files have no such key; the vocabulary shows it
    let lowercase = flag(checkpoint, "normalizer.lowercase").unwrap_or(!cased);
    document.normalizer = Some(json!({
        "type": "BertNormalizer",
        "clean_text": true,
        "handle_chinese_chars": true,
        "strip_accents": flag(checkpoint, "normalizer.strip_accents"),
        "lowercase": lowercase,
    }));
    document.pre_tokenizer = Some(json!({"type": "BertPreTokenizer"}));
    document.decoder = Some(json!({"type": "WordPiece", "prefix": "##", "cleanup": true}));
    if let (Some((cls_id, cls)), Some((sep_id, sep))) = (cls, sep) {
        document.post_processor = Some(json!({
            "type": "BertProcessing",
            "sep": [sep, sep_id],
            "cls": [cls, cls_id],
        }));
    }
    Ok(document)
}

/// Whether a token has a letter that lower-casing changes: no vocabulary of lower-cased texts has one. ℝ is a capital that
/// it does not change.
fn has_capitals(token: &str) -> bool {
    token.chars().any(|c| !c.to_lowercase().eq([c]))
}

#[cfg(test)]
mod tests {
    use super::has_capitals;

    #[test]
    fn capitals_without_a_lower_case_are_in_vocabularies_of_lower_case() {
        for token in ["▁the", "ing", "ℝ", "ß", "你", "1"] {
            assert!(!has_capitals(token), "{token}");
        }
        for token in ["▁The", "ING", "Ä", "Ж"] {
            assert!(has_capitals(token), "{token}");
        }
    }
}
