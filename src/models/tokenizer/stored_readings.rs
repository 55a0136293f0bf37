//! The readings of tokenizers that the `tokenizers` crate has stored.

use serde_json::Value as Json;

use crate::base::error::{Error, Result};
use crate::base::limits::Budget;
use crate::base::quote::quote;
use crate::read::format::gguf::GgufValue;

use super::TOKENIZER;
use super::added_tokens::TokenAdditions;
use super::gguf_keys::{CONFIG, FolderKeys, SENTENCEPIECE, STORED};
use super::json_steps::kind;
use super::pre_tokenizer_name;
use super::special_token_keys::{SpecialTokenKeys, USUAL_ROLES, set_merges};
use super::stored_keys::AddedTokenizer;
use super::stored_tokenizer::{StoredParts, StoredTokenizer};
use super::vocabulary::TokenKind;
use super::vocabulary_keys::VocabularyRow;

impl FolderKeys<'_> {
    /// Byte-level BPE.
    pub(super) fn byte_level(&mut self) -> Result<()> {
        self.byte_level_with(|_, _| Ok(()))
    }

    /// Byte-level BPE, whose special tokens are changed.
    fn byte_level_with(
        &mut self,
        change: impl FnOnce(&AddedTokenizer<'_>, &mut SpecialTokenKeys<'_>) -> Result<()>,
    ) -> Result<()> {
        let (file, text) = self.stored_text(&[STORED, "vocab.json"])?;
        let stored = match file == STORED {
            true => self.parsed(&text)?,
            false => StoredTokenizer::of_ids(&text, self.folder.budget)
                .map_err(|e| self.in_file(file, e))?,
        };
        self.byte_level_of(&stored, file, change)
    }

    /// The same, from the file that was read.
    fn byte_level_of(
        &mut self,
        stored: &StoredTokenizer<'_>,
        file: &str,
        change: impl FnOnce(&AddedTokenizer<'_>, &mut SpecialTokenKeys<'_>) -> Result<()>,
    ) -> Result<()> {
        let budget = self.folder.budget;
        if stored.model.tokens.is_empty() || !["BPE", ""].contains(&&*stored.model.kind) {
            let what = format!(
                "the tokenizer has the model {}, and this architecture has byte-level BPE",
                quote(&stored.model.kind)
            );
            return Err(self.in_file(file, Error::unsupported(what)));
        }
        let pre = match self.facts.pre {
            Some(pre) => pre,
            None => pre_tokenizer_name::byte_level(stored, self.facts.architecture)
                .map_err(|e| self.in_file(file, e))?,
        };
        let tokenizer = self.added(stored, file)?;
        let rows = tokenizer.rows(self.facts.vocabulary, self.config, budget);
        let rows = rows.map_err(|e| self.in_file(file, e))?;
        rows.set_keys(("gpt2", pre), false, &mut self.keys, budget)?;
        let mut special =
            self.special(Some(stored).filter(|_| file == STORED), USUAL_ROLES, None)?;
        change(&tokenizer, &mut special).map_err(|e| self.in_file(file, e))?;
        match stored.model.merges.is_empty() {
            false => set_merges(&stored.model.merges, &mut self.keys, budget)?,
            true => {
                let text = self.folder.lines("merges.txt")?.unwrap_or_default();
                let merges = merges_of_lines(&text, budget)?;
                set_merges(&merges, &mut self.keys, budget)?;
            }
        }
        special.set_keys(&mut self.keys, self.folder)
    }

    /// GLM-4: roles that no file gives.
    pub(super) fn glm4(&mut self) -> Result<()> {
        self.byte_level_with(|tokenizer, special| {
            let end = tokenizer.added_id("<|endoftext|>")?;
            special.add("eos", end)?;
            special.add("eot", tokenizer.added_id("<|user|>")?)?;
            special.add("unk", end)?;
            special.add("bos", end)
        })
    }

    pub(super) fn llama(&mut self) -> Result<()> {
        let has_tekken = self.has("tekken.json");
        if has_tekken && !self.has(STORED) {
            return Err(self.absent(&[STORED]));
        }
        match self.config.get("add_prefix_space") {
            None | Some(Json::Null) => {}
            Some(Json::Bool(flag)) => self.keys.set("add_space_prefix", GgufValue::flag(*flag)),
            Some(_) => {
                let what = Error::malformed("add_prefix_space is neither true nor false");
                return Err(self.in_file(CONFIG, what));
            }
        }
        let class = self.config.get("tokenizer_class").and_then(Json::as_str);
        if class == Some("HybridDNATokenizer") {
            let what = Error::unsupported("the tokenizer is a HybridDNATokenizer");
            return Err(self.in_file(CONFIG, what));
        }
        if !self.sentencepiece()? {
            self.llama_without_sentencepiece()?;
        }
        let size = self.facts.vocabulary.unwrap_or(32_000);
        // Code Llama; gguf-py has no keys for the tokens around what is filled in
        if size == 32_016 {
            let roles = &["prefix", "suffix", "middle", "eot"];
            let text = self.folder.text(STORED)?;
            let stored = self.around_model(text.as_deref())?;
            let mut special = self.special(stored.as_ref(), roles, None)?;
            special.add("eot", 32_010)?;
            special.set_keys(&mut self.keys, self.folder)?;
        }
        // small Granite models
        if size == 49_152 {
            self.keys.set("add_bos_token", GgufValue::flag(false));
        }
        Ok(())
    }

    /// SentencePiece's BPE in a `tokenizer.json`, or byte-level BPE.
    fn llama_without_sentencepiece(&mut self) -> Result<()> {
        let Some(text) = self.folder.text(STORED)? else {
            return self.byte_level();
        };
        let budget = self.folder.budget;
        let stored = self.parsed(&text)?;
        let model = &stored.model;
        if model.kind != "BPE"
            || model.byte_fallback != Some(true)
            || kind(&stored.decoder) != "Sequence"
        {
            return self.byte_level_of(&stored, STORED, |_, _| Ok(()));
        }
        let tokenizer = self.added(&stored, STORED)?;
        let rows = tokenizer.sentencepiece_rows(budget);
        let rows = rows.map_err(|e| self.in_file(STORED, e))?;
        let len = rows.len() as u64;
        rows.set_keys(("llama", "default"), true, &mut self.keys, budget)?;
        let special = self.special(Some(&stored), USUAL_ROLES, Some(len))?;
        special.set_keys(&mut self.keys, self.folder)
    }

    pub(super) fn mamba(&mut self) -> Result<()> {
        let model = self.folder.json("config.json")?.unwrap_or_default();
        let multiple = match model.get("pad_vocab_size_multiple") {
            None => Some(8),
            Some(multiple) => multiple.as_u64().filter(|multiple| *multiple != 0),
        };
        let padded = self.facts.vocabulary.map(|size| {
            let padded = multiple.and_then(|multiple| size.checked_next_multiple_of(multiple));
            padded.ok_or_else(|| {
                Error::malformed("the vocabulary is not padded by pad_vocab_size_multiple")
            })
        });
        self.facts.vocabulary = padded
            .transpose()
            .map_err(|e| self.in_file("config.json", e))?;
        if let Some(text) = self.folder.text(STORED)? {
            let stored = self.parsed(&text)?;
            return self.byte_level_of(&stored, STORED, |_, _| Ok(()));
        }
        match self.sentencepiece()? {
            true => Ok(()),
            // the converter has GPT-NeoX's tokenizer beside it
            false => Err(self.absent(&[STORED, SENTENCEPIECE])),
        }
    }

    pub(super) fn word_piece(&mut self) -> Result<()> {
        let (file, text) = self.stored_text(&[STORED, "vocab.txt"])?;
        let budget = self.folder.budget;
        let is_whole = file == STORED;
        let stored = match is_whole {
            true => self.parsed(&text)?,
            false => StoredTokenizer::of_lines(&text, budget).map_err(|e| self.in_file(file, e))?,
        };
        if stored.model.kind != "WordPiece" {
            let what = format!(
                "the tokenizer has the model {}, and this architecture has WordPiece",
                quote(&stored.model.kind)
            );
            return Err(self.in_file(file, Error::unsupported(what)));
        }
        let pre = match self.facts.pre {
            Some(pre) => pre,
            None => pre_tokenizer_name::word_piece(&stored).map_err(|e| self.in_file(file, e))?,
        };
        let tokenizer = self.added(&stored, file)?;
        let rows = tokenizer.rows(self.facts.vocabulary, self.config, budget);
        let rows = rows.map_err(|e| self.in_file(file, e))?;
        // llama.cpp marks the beginnings of words, and BERT their continuations
        let marked = |row: &VocabularyRow<'_>| match row.kind {
            TokenKind::Control => None,
            _ => Some(match row.text.strip_prefix("##") {
                Some(rest) => rest.to_owned(),
                None => ["▁", &row.text].concat(),
            }),
        };
        let rows = rows.mapped(marked, budget)?;
        let len = rows.len() as u64;
        rows.set_keys(("bert", pre), false, &mut self.keys, budget)?;
        let special = self.special(is_whole.then_some(&stored), USUAL_ROLES, Some(len))?;
        special.set_keys(&mut self.keys, self.folder)
    }

    /// The text of `tokenizer.json`, parsed whole.
    fn parsed<'t>(&self, text: &'t str) -> Result<StoredTokenizer<'t>> {
        let parsed = StoredTokenizer::parse(text, StoredParts::All, self.folder.budget);
        parsed.map_err(|e| self.in_file(STORED, e))
    }

    /// The tokenizer with the tokens that other files add.
    pub(super) fn added<'t>(
        &self,
        stored: &'t StoredTokenizer<'t>,
        file: &str,
    ) -> Result<AddedTokenizer<'t>> {
        let json = |name: &str| self.folder.json(name).map(Option::unwrap_or_default);
        let additions = TokenAdditions {
            config: self.config,
            roles: json("special_tokens_map.json")?,
            added: json("added_tokens.json")?,
            model_type: match json("config.json")?.remove("model_type") {
                Some(Json::String(model)) => Some(model),
                _ => None,
            },
        };
        let made = AddedTokenizer::new(stored, &additions, self.folder.budget);
        made.map_err(|e| self.in_file(file, e))
    }
}

/// The merges of GPT-2's `merges.txt`, as llama.cpp's converter reads them: malformed lines are left out.
fn merges_of_lines(text: &str, budget: &Budget) -> Result<Vec<String>> {
    let mut merges = Vec::new();
    let mut lines = text.lines().peekable();
    lines.next_if(|line| line.trim().starts_with('#'));
    for line in lines {
        let mut parts = line.split_whitespace();
        if let (Some(left), Some(right), None) = (parts.next(), parts.next(), parts.next()) {
            let merge = [left, " ", right].concat();
            budget.text(merge.len(), TOKENIZER)?;
            budget.push(&mut merges, merge, TOKENIZER)?;
        }
    }
    Ok(merges)
}
