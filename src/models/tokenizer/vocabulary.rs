//! The tokens of a GGUF: texts, kinds and scores.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::base::error::{Error, Result};
use crate::base::limits::Budget;
use crate::models::config::keys;
use crate::read::catalog::metadata::Value;
use crate::read::checkpoint::Checkpoint;

use super::TOKENIZER;

/// The tokens, by id.
#[derive(Debug)]
pub(super) struct TokenList {
    tokens: Vec<Value>,
    /// Empty if the file has none: all tokens are normal.
    kinds: Vec<Value>,
    /// Empty if the file has none.
    scores: Vec<Value>,
}

/// The kind of a token, as llama.cpp numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    Normal,
    Unknown,
    /// Not part of texts: begins or ends sequences, separates the turns of a chat.
    Control,
    /// Added to the vocabulary, and found in texts before the model of the tokenizer.
    UserDefined,
    /// Fills the vocabulary to the size of the embedding.
    Unused,
    Byte,
}

impl TokenKind {
    /// All kinds, in the order of their numbers, which begin with 1.
    const ALL: [Self; 6] = [
        Self::Normal,
        Self::Unknown,
        Self::Control,
        Self::UserDefined,
        Self::Unused,
        Self::Byte,
    ];

    /// The kind of this number; normal if there is none.
    fn from_number(number: u64) -> Self {
        let at = usize::try_from(number)
            .ok()
            .and_then(|number| number.checked_sub(1));
        let kind = at.and_then(|at| Self::ALL.get(at));
        kind.copied().unwrap_or(Self::Normal)
    }

    /// Its number.
    pub(super) fn number(self) -> i32 {
        self as i32 + 1
    }
}

impl TokenList {
    pub(super) fn read(checkpoint: &Checkpoint, budget: &Budget) -> Result<Self> {
        let vocabulary = Self {
            tokens: list(checkpoint, keys::GGUF_TOKENS, budget)?,
            kinds: list(checkpoint, "tokenizer.ggml.token_type", budget)?,
            scores: list(checkpoint, "tokenizer.ggml.scores", budget)?,
        };
        if vocabulary.tokens.is_empty() {
            return Err(Error::malformed(
                "the metadata has a tokenizer without tokens",
            ));
        }
        Ok(vocabulary)
    }

    pub(super) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// The text of a token.
    pub(super) fn token(&self, id: usize) -> Option<&str> {
        match self.tokens.get(id) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    pub(super) fn kind(&self, id: usize) -> TokenKind {
        TokenKind::from_number(match self.kinds.get(id) {
            Some(Value::U64(kind)) => *kind,
            Some(Value::I64(kind)) => u64::try_from(*kind).unwrap_or_default(),
            _ => 1,
        })
    }

    /// The score of a token; 0 if the file has none.
    pub(super) fn score(&self, id: usize) -> f32 {
        match self.scores.get(id) {
            // JSON has no number for NaN or infinity
            Some(Value::F32(score)) if score.is_finite() => *score,
            _ => 0.0,
        }
    }

    /// All tokens with their ids, except those that only fill the vocabulary.
    pub(super) fn used(&self) -> impl Iterator<Item = (&str, usize)> {
        // the converter fills up with texts such as `[PAD151936]`, which the model's own tokenizer does not have
        (0..self.len())
            .filter(|&id| self.kind(id) != TokenKind::Unused)
            .filter_map(|id| Some((self.token(id)?, id)))
    }

    /// The ids of the tokens by their texts.
    pub(super) fn index(&self, budget: &Budget) -> Result<HashMap<&str, usize>> {
        // a table is at least 7/8 full before it doubles, and has one byte of control per entry
        const ENTRY: u64 = 3 * size_of::<(&str, usize)>() as u64;
        budget.memory(ENTRY * self.len() as u64, TOKENIZER)?;
        Ok(self.used().collect())
    }
}

/// The elements of a metadata array; none if there is no such array. They stay charged on the budget.
pub(super) fn list(checkpoint: &Checkpoint, key: &str, budget: &Budget) -> Result<Vec<Value>> {
    match checkpoint.metadata(key)? {
        Some(Value::List(list)) => {
            let list = list.into_vec();
            let texts: u64 = list.iter().map(Value::memory).sum();
            budget.memory(size_of_val(&*list) as u64 + texts, TOKENIZER)?;
            Ok(list)
        }
        _ => Ok(Vec::new()),
    }
}

/// A token as WordPiece has it.
///
/// llama.cpp's converter (`conversion/bert.py`) writes `▁` in front of tokens that begin a word and removes `##` from those
/// that continue one. Here that is undone. `▁` alone continues a word: no word is empty.
pub(super) fn word_piece(token: &str, kind: TokenKind) -> Cow<'_, str> {
    match (token.strip_prefix('▁'), kind) {
        (Some(word), _) if !word.is_empty() => word.into(),
        (_, TokenKind::Normal) => ["##", token].concat().into(),
        _ => token.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::{TokenKind, word_piece};

    #[test]
    fn tokens_continue_words_unless_they_are_marked_as_beginnings() {
        for (stored, kind, expected) in [
            ("▁the", TokenKind::Normal, "the"),
            ("ing", TokenKind::Normal, "##ing"),
            ("▁", TokenKind::Normal, "##▁"),
            ("▁▁", TokenKind::Normal, "▁"),
            ("[CLS]", TokenKind::Control, "[CLS]"),
            ("▁<user>", TokenKind::UserDefined, "<user>"),
        ] {
            assert_eq!(word_piece(stored, kind), expected);
        }
    }
}
