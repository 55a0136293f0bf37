//! The tokens of a GGUF from a SentencePiece model, and the files that change some of them.
//!
//! Facts: llama.cpp, `conversion/base.py` (`_create_vocab_sentencepiece`), `phi.py` and `t5.py` (`set_vocab`).

use serde_json::{Map, Value as Json};

use crate::base::error::{Error, Result};
use crate::base::limits::{Budget, text_cost};
use crate::base::quote::quote;

use super::TOKENIZER;
use super::added_tokens::listed_token;
use super::sentencepiece_model::SentencePieceModel;
use super::stored_tokenizer::StoredToken;
use super::vocabulary::TokenKind;
use super::vocabulary_keys::{ADDED_SCORE, VocabularyRow, VocabularyRows, looks_special};

/// The treatment of tokens behind the end of the vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BehindEnd {
    LeaveOut,
    Refuse,
}

/// The tokens of a model, of which the vocabulary may have more or fewer.
pub(super) fn rows<'t>(
    model: &SentencePieceModel<'t>,
    tokens: u64,
    behind_end: BehindEnd,
    budget: &Budget,
) -> Result<VocabularyRows<'t>> {
    let pieces = model.pieces.len() as u64;
    if pieces > tokens && behind_end == BehindEnd::Refuse {
        return Err(Error::malformed(format!(
            "the tokenizer has {pieces} tokens, and the model {tokens} by its configuration"
        )));
    }
    let mut rows = VocabularyRows::new(tokens, budget)?;
    for (id, piece) in (0..tokens).zip(&model.pieces) {
        if let Some(place) = rows.at(id) {
            *place = Some(VocabularyRow {
                text: piece.text.into(),
                score: piece.score,
                kind: piece.kind,
            });
        }
    }
    Ok(rows)
}

/// Puts the tokens of `added_tokens.json`.
pub(super) fn put_added(
    added: &Map<String, Json>,
    rows: &mut VocabularyRows<'_>,
    budget: &Budget,
) -> Result<()> {
    for (token, id) in added {
        let Some(id) = id.as_u64() else {
            let what = format!("the id of {} is no whole number", quote(token));
            return Err(Error::malformed(what));
        };
        let _is_behind = !put(rows, id, token.clone(), TokenKind::UserDefined, budget)?;
    }
    Ok(())
}

/// Puts the tokens of `added_tokens_decoder`, as most models have them.
pub(super) fn put_configured(
    config: &Map<String, Json>,
    rows: &mut VocabularyRows<'_>,
    budget: &Budget,
) -> Result<()> {
    for token in configured(config)? {
        let StoredToken { id, content, .. } = token;
        let (content, kind) = match token.special || looks_special(&content) {
            true => (content, TokenKind::Control),
            // llama.cpp finds them in texts as they are written
            false => (content.replace('▁', " "), TokenKind::UserDefined),
        };
        let _is_behind = !put(rows, id, content, kind, budget)?;
    }
    Ok(())
}

/// Puts tokens as Phi-3 has them: as they are, and none behind the end.
pub(super) fn put_unchanged(
    tokens: Vec<StoredToken>,
    rows: &mut VocabularyRows<'_>,
    budget: &Budget,
) -> Result<()> {
    for StoredToken {
        id,
        content,
        special,
        ..
    } in tokens
    {
        let kind = match special {
            true => TokenKind::Control,
            false => TokenKind::UserDefined,
        };
        let named = quote(&content);
        if !put(rows, id, content, kind, budget)? {
            let len = rows.len();
            return Err(Error::malformed(format!(
                "the token {named} has the id {id}, and the model has {len} tokens by its configuration"
            )));
        }
    }
    Ok(())
}

/// The tokens of `added_tokens_decoder`.
pub(super) fn configured(config: &Map<String, Json>) -> Result<Vec<StoredToken>> {
    match config.get("added_tokens_decoder") {
        Some(Json::Object(map)) => map
            .iter()
            .map(|(id, token)| listed_token(id, token))
            .collect(),
        Some(_) => Err(Error::malformed("added_tokens_decoder is no object")),
        None => Ok(Vec::new()),
    }
}

/// Whether the vocabulary has this id, whose token is then this one.
fn put(
    rows: &mut VocabularyRows<'_>,
    id: u64,
    text: String,
    kind: TokenKind,
    budget: &Budget,
) -> Result<bool> {
    let Some(place) = rows.at(id) else {
        return Ok(false);
    };
    budget.memory(text_cost(text.len()), TOKENIZER)?;
    *place = Some(VocabularyRow {
        text: text.into(),
        score: ADDED_SCORE,
        kind,
    });
    Ok(true)
}
