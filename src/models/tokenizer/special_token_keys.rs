//! The keys of merges, special tokens, flags, chat templates and normalisation.
//!
//! Conditions and order: llama.cpp, `gguf-py/gguf/vocab.py` (`SpecialVocab`).

use std::borrow::Cow;

use serde_json::{Map, Value as Json};

use crate::base::error::{Error, Result};
use crate::base::limits::Budget;
use crate::base::quote::quote;
use crate::models::model_folder::ModelFolder;
use crate::read::format::gguf::GgufValue;

use super::TOKENIZER;
use super::added_tokens::content;
use super::chat_templates;
use super::json_steps::kind;
use super::special_tokens::ROLES;
use super::stored_tokenizer::{StoredToken, StoredTokenizer};
use super::template_steps::AddedEnds;
use super::vocabulary_keys::TokenizerKeys;

/// The roles that every model has.
pub(super) const USUAL_ROLES: &[&str] = &["bos", "eos", "unk", "sep", "pad", "cls", "mask"];

/// The roles with a key besides [`ROLES`].
const TURN_ROLES: &[(&str, &str)] = &[("eot", "eot_token_id"), ("eom", "eom_token_id")];

/// The special tokens by the files.
#[derive(Debug)]
pub(super) struct SpecialTokenKeys<'c> {
    ids: Vec<(&'static str, u32)>,
    flags: Vec<(&'static str, bool)>,
    /// `null` if there is none.
    chat_template: Cow<'c, Json>,
    lowercase: Option<bool>,
    strip_accents: Option<bool>,
    /// The number of tokens, where ids are compared with it.
    tokens: Option<u64>,
}

impl<'c> SpecialTokenKeys<'c> {
    /// Reads the files of a folder. `tokens`: larger ids are left out.
    pub(super) fn read(
        folder: &ModelFolder<'_>,
        stored: Option<&StoredTokenizer<'_>>,
        config: &'c Map<String, Json>,
        roles: &[&'static str],
        tokens: Option<u64>,
    ) -> Result<Self> {
        let mut keys = Self {
            ids: Vec::new(),
            flags: Vec::new(),
            chat_template: Cow::Owned(Json::Null),
            lowercase: None,
            strip_accents: None,
            tokens,
        };
        let mut ends = AddedEnds::new(config, roles);
        let added: &[StoredToken] = match stored {
            Some(stored) => {
                keys.normalizer(&stored.normalizer)
                    .map_err(|e| e.in_file(&folder.at("tokenizer.json")))?;
                ends.read(&stored.post_processor);
                &stored.added
            }
            None => &[],
        };
        keys.flags.clone_from(&ends.flags);
        if !config.is_empty() {
            keys.chat_template = chat_templates::read(folder, config)?;
            keys.configured(&ends, added)
                .map_err(|e| e.in_file(&folder.at("tokenizer_config.json")))?;
        }
        if let Some(model) = folder.json("config.json")? {
            keys.ids_of_model(&model, &ends.roles)
                .map_err(|e| e.in_file(&folder.at("config.json")))?;
        }
        Ok(keys)
    }

    /// Gives a role to a token, unless a token has it.
    pub(super) fn add(&mut self, role: &'static str, id: u64) -> Result<()> {
        let is_known = self.ids.iter().any(|(known, _)| *known == role);
        if is_known || self.tokens.is_some_and(|tokens| id >= tokens) {
            return Ok(());
        }
        let id = u32::try_from(id)
            .map_err(|_| Error::malformed(format!("the {role} token has the id {id}")))?;
        self.ids.push((role, id));
        Ok(())
    }

    /// The flags that decide how texts are normalised.
    fn normalizer(&mut self, normalizer: &Json) -> Result<()> {
        // the steps that are left, the next one last
        let mut steps = vec![normalizer];
        while let Some(step) = steps.pop() {
            match kind(step) {
                "Lowercase" => self.lowercase = Some(true),
                "StripAccents" => self.strip_accents = Some(true),
                "BertNormalizer" => {
                    if let Some(flag) = step.get("lowercase") {
                        self.lowercase = optional_flag(flag, "lowercase")?;
                    }
                    if let Some(flag) = step.get("strip_accents") {
                        self.strip_accents = optional_flag(flag, "strip_accents")?;
                    }
                }
                "Sequence" => {
                    let parts = step.get("normalizers").and_then(Json::as_array);
                    steps.extend(parts.into_iter().flatten().rev());
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Flags and tokens of `tokenizer_config.json`.
    fn configured(&mut self, ends: &AddedEnds<'_>, added: &[StoredToken]) -> Result<()> {
        for role in &ends.roles {
            let flag = ends.configured(&["add_", role, "_token"].concat());
            // the steps of tokenizer.json have precedence
            if let (Some(Json::Bool(flag)), false) =
                (flag, self.flags.iter().any(|(known, _)| known == role))
            {
                self.flags.push((role, *flag));
            }
            let token = ends
                .configured(&[role, "_token"].concat())
                .and_then(content);
            let found = token.and_then(|token| added.iter().find(|row| row.content == token));
            if let Some(found) = found {
                self.add(role, found.id)?;
            }
        }
        Ok(())
    }

    /// Ids of `config.json`.
    fn ids_of_model(&mut self, config: &Map<String, Json>, roles: &[&'static str]) -> Result<()> {
        for role in roles {
            let key = [role, "_token_id"].concat();
            let text = || config.get("text_config")?.get(&key);
            let id = config.get(&key).filter(|id| !id.is_null()).or_else(text);
            match id {
                Some(Json::Number(number)) if number.is_i64() || number.is_u64() => {
                    let Some(id) = number.as_u64() else {
                        let what = format!("{} is {number}", quote(&key));
                        return Err(Error::malformed(what));
                    };
                    self.add(role, id)?;
                }
                Some(Json::Bool(_)) => {
                    return Err(Error::malformed(format!("{} is no number", quote(&key))));
                }
                // several ids of the end, as generation has them: no single one is the role's
                _ => {}
            }
        }
        Ok(())
    }

    /// Sets the keys.
    pub(super) fn set_keys(
        &self,
        keys: &mut TokenizerKeys,
        folder: &ModelFolder<'_>,
    ) -> Result<()> {
        for (role, id) in &self.ids {
            // gguf-py has no key for the others
            if let Some(key) = id_key(role) {
                keys.set(key, GgufValue::u32(*id));
            }
        }
        for (role, flag) in &self.flags {
            if ["bos", "eos", "sep"].contains(role) {
                keys.set(&["add_", role, "_token"].concat(), GgufValue::flag(*flag));
            }
        }
        chat_templates::set_keys(&self.chat_template, keys, folder)?;
        if let Some(flag) = self.lowercase {
            keys.set("normalizer.lowercase", GgufValue::flag(flag));
        }
        if let Some(flag) = self.strip_accents {
            keys.set("normalizer.strip_accents", GgufValue::flag(flag));
        }
        Ok(())
    }
}

/// Sets the key of the merges, if there are some. It is in front of the keys of special tokens.
pub(super) fn set_merges(
    merges: &[impl AsRef<str>],
    keys: &mut TokenizerKeys,
    budget: &Budget,
) -> Result<()> {
    if !merges.is_empty() {
        let bytes: u64 = merges
            .iter()
            .map(|merge| 8 + merge.as_ref().len() as u64)
            .sum();
        budget.memory(bytes, TOKENIZER)?;
        let texts = merges.iter().map(AsRef::as_ref);
        keys.set("merges", GgufValue::texts(texts));
    }
    Ok(())
}

/// The key of the id of a role. `cls` has none for writing, although llama.cpp reads one.
fn id_key(role: &str) -> Option<&'static str> {
    let usual = ROLES
        .iter()
        .find(|(known, _)| known.strip_suffix("_token") == Some(role) && role != "cls");
    let all = usual.or_else(|| TURN_ROLES.iter().find(|(known, _)| *known == role));
    all.map(|(_, key)| *key)
}

fn optional_flag(flag: &Json, name: &str) -> Result<Option<bool>> {
    match flag {
        Json::Null => Ok(None),
        Json::Bool(flag) => Ok(Some(*flag)),
        _ => Err(Error::malformed(format!(
            "{name} of the normalizer is neither true nor false"
        ))),
    }
}
