//! The keys of the tokens: texts, scores and kinds, by id.

use std::borrow::Cow;

use crate::base::error::{Error, Result};
use crate::base::limits::{Budget, text_cost};
use crate::base::quote::quote;
use crate::read::format::gguf::GgufValue;

use super::TOKENIZER;
use super::vocabulary::TokenKind;

/// The keys of a tokenizer in their order in the file. A key that is set again keeps its place, and has the last value.
#[derive(Debug, Default)]
pub(super) struct TokenizerKeys(Vec<(String, GgufValue)>);

impl TokenizerKeys {
    /// Sets a key below `tokenizer.ggml.`.
    pub(super) fn set(&mut self, key: &str, value: GgufValue) {
        self.set_whole(["tokenizer.ggml.", key].concat(), value);
    }

    pub(super) fn set_whole(&mut self, key: String, value: GgufValue) {
        match self.0.iter_mut().find(|(known, _)| *known == key) {
            Some((_, earlier)) => *earlier = value,
            None => self.0.push((key, value)),
        }
    }

    pub(super) fn into_list(self) -> Vec<(String, GgufValue)> {
        self.0
    }
}

/// A token of the GGUF.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct VocabularyRow<'t> {
    pub(super) text: Cow<'t, str>,
    pub(super) score: f32,
    pub(super) kind: TokenKind,
}

/// The tokens of the GGUF by id; the model has an embedding for each, also for those that the tokenizer does not have.
#[derive(Debug)]
pub(super) struct VocabularyRows<'t>(Vec<Option<VocabularyRow<'t>>>);

/// The score of added tokens, which llama.cpp does not merge from parts.
pub(super) const ADDED_SCORE: f32 = -1000.0;
/// The score of tokens that only fill the vocabulary.
const UNUSED_SCORE: f32 = -10_000.0;

impl<'t> VocabularyRows<'t> {
    /// Rows without tokens.
    pub(super) fn new(len: u64, budget: &Budget) -> Result<Self> {
        let what = || Error::malformed(format!("the vocabulary has {len} tokens"));
        let rows = usize::try_from(len).map_err(|_| what())?;
        let memory = len.checked_mul(size_of::<Option<VocabularyRow<'_>>>() as u64);
        budget.memory(memory.ok_or_else(what)?, TOKENIZER)?;
        Ok(Self(vec![None; rows]))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The row of an id; `None` if the id is too large.
    pub(super) fn at(&mut self, id: u64) -> Option<&mut Option<VocabularyRow<'t>>> {
        self.0.get_mut(usize::try_from(id).ok()?)
    }

    /// Puts the only token of an id.
    pub(super) fn put(&mut self, id: u32, row: VocabularyRow<'t>) -> Result<()> {
        let len = self.len();
        let Some(place) = self.at(id.into()) else {
            return Err(Error::malformed(format!(
                "the token {} has the id {id}, and the model has {len} tokens by its configuration",
                quote(&row.text)
            )));
        };
        match place {
            Some(earlier) if earlier.text != row.text => Err(Error::malformed(format!(
                "the tokens {} and {} have the id {id}",
                quote(&earlier.text),
                quote(&row.text)
            ))),
            _ => {
                *place = Some(row);
                Ok(())
            }
        }
    }

    /// Sets the keys: the name of the model, the steps before it, the tokens with their scores if they have some, and their
    /// kinds. Tokens are changed by `text` last.
    pub(super) fn set_keys(
        self,
        (model, pre): (&str, &str),
        has_scores: bool,
        keys: &mut TokenizerKeys,
        budget: &Budget,
    ) -> Result<()> {
        keys.set("model", GgufValue::text(model));
        keys.set("pre", GgufValue::text(pre));
        if self.0.is_empty() {
            return Ok(());
        }
        let rows = self.filled(budget)?;
        let texts: u64 = rows.iter().map(|row| 8 + row.text.len() as u64).sum();
        // the texts, and the scores and kinds twice: as numbers and as bytes
        budget.memory(texts + 16 * rows.len() as u64, TOKENIZER)?;
        let tokens = GgufValue::texts(rows.iter().map(|row| &*row.text));
        keys.set("tokens", tokens);
        if has_scores {
            let scores: Vec<f32> = rows.iter().map(|row| row.score).collect();
            keys.set("scores", GgufValue::floats(&scores));
        }
        let kinds: Vec<i32> = rows.iter().map(|row| row.kind.number()).collect();
        keys.set("token_type", GgufValue::integers(&kinds));
        Ok(())
    }

    /// The rows, with a token in each.
    fn filled(self, budget: &Budget) -> Result<Vec<VocabularyRow<'t>>> {
        let mut rows = self.0;
        for (id, row) in rows.iter_mut().enumerate() {
            if row.is_none() {
                let text = format!("[PAD{id}]");
                budget.memory(text_cost(text.len()), TOKENIZER)?;
                *row = Some(VocabularyRow {
                    text: text.into(),
                    score: UNUSED_SCORE,
                    kind: TokenKind::Unused,
                });
            }
        }
        // in place: an option of a row is as large as a row
        Ok(rows.into_iter().flatten().collect())
    }

    /// Changes the texts of all tokens, which then stay charged.
    pub(super) fn mapped(
        self,
        change: impl Fn(&VocabularyRow<'t>) -> Option<String>,
        budget: &Budget,
    ) -> Result<Self> {
        let mut rows = self.filled(budget)?;
        for row in &mut rows {
            if let Some(text) = change(row) {
                budget.memory(text_cost(text.len()), TOKENIZER)?;
                row.text = text.into();
            }
        }
        Ok(Self(rows.into_iter().map(Some).collect()))
    }
}

/// Whether a token looks like one that is no part of a text, although it is not marked so.
pub(super) fn looks_special(token: &str) -> bool {
    // in the tokenizers of DeepSeek-Coder and Gemma
    let known = ["<pad>", "<mask>", "<2mass>", "[@BOS@]"];
    let between = |start: &str, end: &str| token.starts_with(start) && token.ends_with(end);
    known.contains(&token)
        || between("<|", "|>")
        || between("<｜", "｜>")
        || between("<unused", ">")
}
