//! The tokens of a GGUF from `tokenizer.json` and what is added to it.
//!
//! Facts: llama.cpp, `conversion/base.py` (`get_vocab_base`), `gguf-py/gguf/vocab.py` (`LlamaHfVocab`).

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::{Map, Value as Json};

use crate::base::error::{Error, Result};
use crate::base::limits::{Budget, text_cost};
use crate::base::quote::quote;

use super::TOKENIZER;
use super::added_tokens::{AddedEntries, AddedEntry, TokenAdditions};
use super::stored_tokenizer::StoredTokenizer;
use super::token_decoder::{decoded, tidied};
use super::vocabulary::TokenKind;
use super::vocabulary_keys::{ADDED_SCORE, VocabularyRow, VocabularyRows, looks_special};

/// A tokenizer with its added tokens.
#[derive(Debug)]
pub(super) struct AddedTokenizer<'t> {
    stored: &'t StoredTokenizer<'t>,
    added: AddedEntries,
    /// The number of different tokens.
    distinct: u64,
}

impl<'t> AddedTokenizer<'t> {
    pub(super) fn new(
        stored: &'t StoredTokenizer<'t>,
        additions: &TokenAdditions<'_>,
        budget: &Budget,
    ) -> Result<Self> {
        let tokens = &stored.model.tokens;
        // a table is at most half empty, and has one byte of control per entry
        let table = 3 * size_of::<(&str, u32)>() as u64 * tokens.len() as u64;
        let _table = budget.temporary(table, TOKENIZER)?;
        let mut ids = HashMap::with_capacity(tokens.len());
        for (token, id) in tokens {
            if ids.insert(&**token, *id).is_some() {
                let what = format!("the token {} occurs twice", quote(token));
                return Err(Error::malformed(what));
            }
        }
        let added = AddedEntries::read(stored, &ids, additions, budget)?;
        let new = added
            .iter()
            .filter(|entry| !ids.contains_key(&*entry.content));
        let distinct = (ids.len() + new.count()) as u64;
        Ok(Self {
            stored,
            added,
            distinct,
        })
    }

    /// The tokens of byte-level BPE and of WordPiece. `tokens`: how many the model has by its configuration.
    pub(super) fn rows(
        &self,
        tokens: Option<u64>,
        config: &Map<String, Json>,
        budget: &Budget,
    ) -> Result<VocabularyRows<'t>> {
        let mut rows = VocabularyRows::new(tokens.unwrap_or(self.distinct), budget)?;
        for (text, id) in &self.stored.model.tokens {
            // two tokens of one id are refused, so both are put with the texts that they have in the tokenizer
            rows.put(*id, row(&**text, TokenKind::Normal))?;
        }
        for entry in self.added.iter() {
            budget.memory(text_cost(entry.content.len()), TOKENIZER)?;
            rows.put(entry.id, row(entry.content.clone(), TokenKind::Normal))?;
        }
        let tidy = config.get("clean_up_tokenization_spaces") == Some(&Json::Bool(true));
        for entry in self.added.iter() {
            let mut text = Cow::Borrowed(&*entry.content);
            if !entry.normalized {
                self.check_normalized(entry)?;
                text = decoded(&self.stored.decoder, &entry.content)?;
                // transformers does not do it for BPE
                if tidy && self.stored.model.kind == "WordPiece" {
                    text = tidied(&text).into();
                }
            }
            let (text, kind) = match entry.special || looks_special(&text) {
                true => (text.into_owned(), TokenKind::Control),
                false => (text.replace('▁', " "), TokenKind::UserDefined),
            };
            budget.memory(text_cost(text.len()), TOKENIZER)?;
            if let Some(place) = rows.at(entry.id.into()) {
                *place = Some(row(text, kind));
            }
        }
        Ok(rows)
    }

    /// Refuses a token that one file normalises and another does not, where normalising changes it: its text depends on
    /// details of the `tokenizers` crate.
    fn check_normalized(&self, entry: &AddedEntry) -> Result<()> {
        let keeps = self.stored.keeps_small_letters()
            && entry.content.is_ascii()
            && !entry
                .content
                .contains(|c: char| c.is_ascii_uppercase() || c.is_ascii_control());
        match entry.was_normalized && !keeps {
            true => Err(Error::unsupported(format!(
                "tokenizer.json and the other files contradict each other: is the token {} normalised?",
                quote(&entry.content)
            ))),
            false => Ok(()),
        }
    }

    /// The tokens of SentencePiece's BPE that was stored in the form of the `tokenizers` crate.
    pub(super) fn sentencepiece_rows(&self, budget: &Budget) -> Result<VocabularyRows<'t>> {
        let is_special = |text: &str| self.added.special.contains(text);
        let mut rows = VocabularyRows::new(self.distinct, budget)?;
        let base = self.stored.model.tokens.len();
        for (text, id) in &self.stored.model.tokens {
            if *id as usize >= base {
                return Err(Error::malformed(format!(
                    "the token {} has the id {id}, and there are {base} tokens",
                    quote(text)
                )));
            }
            let kind = match is_special(text) {
                _ if is_byte(text) => TokenKind::Byte,
                true => TokenKind::Control,
                false => TokenKind::Normal,
            };
            rows.put(*id, row(&**text, kind))?;
        }
        for entry in self.added.iter().filter(|entry| entry.id as usize >= base) {
            let kind = match is_special(&entry.content) {
                true => TokenKind::Control,
                false => TokenKind::UserDefined,
            };
            budget.memory(text_cost(entry.content.len()), TOKENIZER)?;
            rows.put(entry.id, row(entry.content.clone(), kind))?;
        }
        Ok(rows)
    }

    /// The id of an added token.
    pub(super) fn added_id(&self, content: &str) -> Result<u64> {
        let found = self.added.get(content).map(|entry| entry.id.into());
        found.ok_or_else(|| {
            let what = format!("the tokenizer has no added token {}", quote(content));
            Error::malformed(what)
        })
    }
}

fn row<'t>(text: impl Into<Cow<'t, str>>, kind: TokenKind) -> VocabularyRow<'t> {
    VocabularyRow {
        text: text.into(),
        score: ADDED_SCORE,
        kind,
    }
}

/// Whether a token stands for a byte, as `<0x0A>` does.
fn is_byte(token: &str) -> bool {
    let digits = token.strip_prefix("<0x").and_then(|t| t.strip_suffix('>'));
    digits.is_some_and(|d| d.len() == 2 && d.bytes().all(|b| b.is_ascii_hexdigit()))
}
