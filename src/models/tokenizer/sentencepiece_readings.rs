//! The readings of SentencePiece's models.

use serde_json::Value as Json;

use crate::base::error::{Error, Result};
use crate::read::format::gguf::GgufValue;

use super::gguf_keys::{CONFIG, FolderKeys, SENTENCEPIECE, STORED};
use super::sentencepiece_keys::{self, BehindEnd};
use super::sentencepiece_model::{BPE, SentencePieceModel, UNIGRAM};
use super::special_token_keys::USUAL_ROLES;
use super::stored_tokenizer::{StoredParts, StoredTokenizer};

impl FolderKeys<'_> {
    /// SentencePiece's model; `false` if the folder has none.
    pub(super) fn sentencepiece(&mut self) -> Result<bool> {
        let Some(bytes) = self.folder.read(SENTENCEPIECE)? else {
            return Ok(false);
        };
        let budget = self.folder.budget;
        let model = SentencePieceModel::parse(&bytes, budget)
            .map_err(|e| self.in_file(SENTENCEPIECE, e))?;
        // a size of 0 is as good as none
        let size = self.facts.vocabulary.filter(|size| *size != 0);
        let size = size.unwrap_or(model.pieces.len() as u64);
        let mut rows = sentencepiece_keys::rows(&model, size, BehindEnd::LeaveOut, budget)?;
        if let Some(added) = self.folder.json("added_tokens.json")? {
            sentencepiece_keys::put_added(&added, &mut rows, budget)
                .map_err(|e| self.in_file("added_tokens.json", e))?;
        }
        sentencepiece_keys::put_configured(self.config, &mut rows, budget)
            .map_err(|e| self.in_file(CONFIG, e))?;
        let len = rows.len() as u64;
        rows.set_keys(("llama", "default"), true, &mut self.keys, budget)?;
        self.special_beside_sentencepiece(USUAL_ROLES, Some(len))?;
        Ok(true)
    }

    pub(super) fn needs_sentencepiece(&mut self) -> Result<()> {
        match self.sentencepiece()? {
            true => Ok(()),
            false => Err(self.absent(&[SENTENCEPIECE])),
        }
    }

    /// Texts do not begin with a space.
    pub(super) fn without_space(&mut self) {
        self.keys.set("add_space_prefix", GgufValue::flag(false));
    }

    pub(super) fn phi3(&mut self) -> Result<()> {
        if !self.config.is_empty() {
            match self.config.get("tokenizer_class").and_then(Json::as_str) {
                Some("GPT2Tokenizer") => return self.byte_level(),
                Some(_) => {}
                None => {
                    let what = Error::malformed("the tokenizer has no tokenizer_class");
                    return Err(self.in_file(CONFIG, what));
                }
            }
        }
        let Some(bytes) = self.folder.read(SENTENCEPIECE)? else {
            return Err(self.absent(&[SENTENCEPIECE]));
        };
        let budget = self.folder.budget;
        let model = SentencePieceModel::parse(&bytes, budget)
            .map_err(|e| self.in_file(SENTENCEPIECE, e))?;
        let size = self.facts.vocabulary.unwrap_or(model.pieces.len() as u64);
        let mut rows = sentencepiece_keys::rows(&model, size, BehindEnd::Refuse, budget)
            .map_err(|e| self.in_file(SENTENCEPIECE, e))?;
        if let Some(added) = self.folder.json("added_tokens.json")? {
            sentencepiece_keys::put_added(&added, &mut rows, budget)
                .map_err(|e| self.in_file("added_tokens.json", e))?;
        }
        sentencepiece_keys::configured(self.config)
            .and_then(|tokens| sentencepiece_keys::put_unchanged(tokens, &mut rows, budget))
            .map_err(|e| self.in_file(CONFIG, e))?;
        let text = self.folder.text(STORED)?;
        let stored = self.around_model(text.as_deref())?;
        if let Some(stored) = &stored {
            sentencepiece_keys::put_unchanged(stored.added.clone(), &mut rows, budget)
                .map_err(|e| self.in_file(STORED, e))?;
        }
        let len = rows.len() as u64;
        rows.set_keys(("llama", "default"), true, &mut self.keys, budget)?;
        let special = self.special(stored.as_ref(), USUAL_ROLES, Some(len))?;
        special.set_keys(&mut self.keys, self.folder)
    }

    pub(super) fn unigram(&mut self) -> Result<()> {
        let names = [SENTENCEPIECE, "spiece.model"];
        let mut found = None;
        for name in names {
            if found.is_none() {
                found = self.folder.read(name)?.map(|bytes| (name, bytes));
            }
        }
        let Some((name, bytes)) = found else {
            return Err(self.absent(&names));
        };
        let budget = self.folder.budget;
        let in_file = |e: Error| e.in_file(&self.folder.at(name));
        let model = SentencePieceModel::parse(&bytes, budget).map_err(in_file)?;
        match model.algorithm {
            UNIGRAM => {}
            BPE if name == SENTENCEPIECE => {
                drop(model);
                return self.needs_sentencepiece();
            }
            other => {
                let what = format!("the SentencePiece model is of the type {other}");
                return Err(in_file(Error::unsupported(what)));
            }
        }
        let size = self.facts.vocabulary.unwrap_or(model.pieces.len() as u64);
        let rows = sentencepiece_keys::rows(&model, size, BehindEnd::Refuse, budget);
        let mut rows = rows.map_err(in_file)?;
        if let Some(added) = self.folder.json("added_tokens.json")? {
            sentencepiece_keys::put_added(&added, &mut rows, budget)
                .map_err(|e| self.in_file("added_tokens.json", e))?;
        }
        let len = rows.len() as u64;
        rows.set_keys(("t5", "default"), true, &mut self.keys, budget)?;
        let normalizer = model.normalizer;
        let flag = GgufValue::flag;
        self.keys
            .set("add_space_prefix", flag(normalizer.add_prefix));
        let removes = flag(normalizer.remove_extra_spaces);
        self.keys.set("remove_extra_whitespaces", removes);
        if !normalizer.table.is_empty() {
            budget.memory(normalizer.table.len() as u64, super::TOKENIZER)?;
            let table = GgufValue::octets(normalizer.table);
            self.keys.set("precompiled_charsmap", table);
        }
        self.special_beside_sentencepiece(USUAL_ROLES, Some(len))
    }

    /// The same, where the tokens are SentencePiece's: a `tokenizer.json` beside them says only which are special.
    pub(super) fn special_beside_sentencepiece(
        &mut self,
        roles: &[&'static str],
        tokens: Option<u64>,
    ) -> Result<()> {
        let text = self.folder.text(STORED)?;
        let stored = self.around_model(text.as_deref())?;
        let special = self.special(stored.as_ref(), roles, tokens)?;
        special.set_keys(&mut self.keys, self.folder)
    }

    pub(super) fn around_model<'t>(
        &self,
        text: Option<&'t str>,
    ) -> Result<Option<StoredTokenizer<'t>>> {
        let parse =
            |text| StoredTokenizer::parse(text, StoredParts::AroundModel, self.folder.budget);
        let stored = text.map(parse).transpose();
        stored.map_err(|e| self.in_file(STORED, e))
    }
}
