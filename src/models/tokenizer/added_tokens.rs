//! The tokens that are found in a text before the model of the tokenizer sees it, as transformers has them: those in
//! `tokenizer.json`, with what `tokenizer_config.json` and older files add to them.
//!
//! Rules: transformers 5.24 (`_from_pretrained`, `TokenizersBackend.__init__`), tokenizers 0.23 (`add_tokens`).

use std::collections::HashMap;

use serde_json::{Map, Value as Json};

use crate::base::error::{Error, Result};
use crate::base::limits::{Budget, text_cost};
use crate::base::quote::quote;

use super::TOKENIZER;
use super::stored_tokenizer::{StoredToken, StoredTokenizer};

/// The attributes of transformers that name a token.
const ROLES: &[&str] = &[
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
];

/// Roles and their tokens where no file names one, by the class of the tokenizer.
static CLASS_TOKENS: &[(&str, &[(&str, &str)])] = &[
    (
        "LlamaTokenizer",
        &[
            ("bos_token", "<s>"),
            ("eos_token", "</s>"),
            ("unk_token", "<unk>"),
        ],
    ),
    (
        "GPT2Tokenizer",
        &[
            ("bos_token", "<|endoftext|>"),
            ("eos_token", "<|endoftext|>"),
            ("unk_token", "<|endoftext|>"),
        ],
    ),
    (
        "Qwen2Tokenizer",
        &[
            ("eos_token", "<|endoftext|>"),
            ("unk_token", "<|endoftext|>"),
            ("pad_token", "<|endoftext|>"),
        ],
    ),
    (
        "GPTNeoXTokenizer",
        &[
            ("bos_token", "<|endoftext|>"),
            ("eos_token", "<|endoftext|>"),
            ("unk_token", "<|endoftext|>"),
            ("pad_token", "<|padding|>"),
        ],
    ),
    (
        "GemmaTokenizer",
        &[
            ("bos_token", "<bos>"),
            ("eos_token", "<eos>"),
            ("unk_token", "<unk>"),
            ("pad_token", "<pad>"),
            ("mask_token", "<mask>"),
        ],
    ),
    (
        "CohereTokenizer",
        &[
            ("bos_token", "<BOS_TOKEN>"),
            ("eos_token", "<|END_OF_TURN_TOKEN|>"),
            ("unk_token", "<UNK>"),
            ("sep_token", "<SEP>"),
            ("pad_token", "<PAD>"),
            ("cls_token", "<CLS>"),
            ("mask_token", "<MASK_TOKEN>"),
        ],
    ),
    (
        "BertTokenizer",
        &[
            ("unk_token", "[UNK]"),
            ("sep_token", "[SEP]"),
            ("pad_token", "[PAD]"),
            ("cls_token", "[CLS]"),
            ("mask_token", "[MASK]"),
        ],
    ),
];

/// The files that add tokens; an absent one is empty.
#[derive(Debug, Default)]
pub(super) struct TokenAdditions {
    /// `tokenizer_config.json`.
    pub(super) config: Map<String, Json>,
    /// `special_tokens_map.json`.
    pub(super) roles: Map<String, Json>,
    /// `added_tokens.json`.
    pub(super) added: Map<String, Json>,
}

/// An added token with its id.
#[derive(Clone, Debug)]
pub(super) struct AddedEntry {
    pub(super) id: u32,
    pub(super) content: String,
    pub(super) special: bool,
    pub(super) normalized: bool,
}

/// All added tokens.
#[derive(Debug)]
pub(super) struct AddedEntries {
    entries: Vec<AddedEntry>,
    positions: HashMap<String, usize>,
    /// The tokens that have a role, in the order of the roles; the additional ones behind them.
    pub(super) special: Vec<String>,
}

impl TokenAdditions {
    /// The class of the tokenizer, whose name ends in `Fast` in older files.
    fn class(&self) -> Option<&str> {
        let class = self.config.get("tokenizer_class")?.as_str()?;
        Some(class.strip_suffix("Fast").unwrap_or(class))
    }

    /// Whether `tokenizer_config.json` lists all added tokens. Files from before it did are read otherwise.
    fn is_complete(&self) -> bool {
        self.config.contains_key("added_tokens_decoder")
    }

    /// The tokens with a role, and the additional special ones.
    fn special(&self, is_byte_level: bool) -> (Vec<String>, Vec<String>) {
        let named = |key: &str| {
            let older = self.roles.get(key).filter(|_| !self.is_complete());
            older.or_else(|| self.config.get(key))
        };
        // the class of Llama's tokenizer leaves byte-level files as they are
        let class = self
            .class()
            .filter(|class| !(is_byte_level && *class == "LlamaTokenizer"));
        let defaults = CLASS_TOKENS.iter().find(|(known, _)| Some(*known) == class);
        let defaults = defaults.map_or(&[][..], |(_, defaults)| defaults);
        let mut roles = Vec::new();
        for role in ROLES {
            let default = || defaults.iter().find(|(known, _)| known == role);
            match named(role) {
                Some(token) => roles.extend(content(token).map(str::to_owned)),
                None => roles.extend(default().map(|(_, token)| (*token).to_owned())),
            }
        }
        let others = self
            .config
            .iter()
            .filter(|(key, _)| key.ends_with("_token") && !ROLES.contains(&&***key));
        roles.extend(others.filter_map(|(_, token)| content(token).map(str::to_owned)));
        let mut more = Vec::new();
        let additional = ["extra_special_tokens", "additional_special_tokens"];
        match additional.iter().find_map(|key| named(key)) {
            Some(Json::Array(list)) => {
                more.extend(list.iter().filter_map(content).map(str::to_owned));
            }
            Some(Json::Object(map)) => {
                roles.extend(map.values().filter_map(content).map(str::to_owned));
            }
            _ => {}
        }
        (roles, more)
    }

    /// The tokens that the configuration lists with their ids, by id.
    fn listed(&self, stored: &[StoredToken], special: &[String]) -> Result<Vec<StoredToken>> {
        let mut listed = Vec::new();
        match self.config.get("added_tokens_decoder") {
            Some(Json::Object(map)) => {
                for (id, token) in map {
                    listed.push(listed_token(id, token)?);
                }
            }
            Some(_) => return Err(Error::malformed("added_tokens_decoder is no object")),
            None => {
                for (token, id) in &self.added {
                    let Some(id) = id.as_u64() else {
                        let what = format!("the id of {} is no whole number", quote(token));
                        return Err(Error::malformed(what));
                    };
                    let special = special.contains(token);
                    listed.push(StoredToken {
                        id,
                        content: token.clone(),
                        special,
                        normalized: !special,
                    });
                }
                listed.retain(|older| !stored.iter().any(|token| token.id == older.id));
                listed.extend_from_slice(stored);
            }
        }
        listed.sort_by_key(|token| token.id);
        Ok(listed)
    }
}

/// An entry of `added_tokens_decoder`.
pub(super) fn listed_token(id: &str, token: &Json) -> Result<StoredToken> {
    let parsed = id.trim().parse();
    let id =
        parsed.map_err(|_| Error::malformed(format!("the token id {} is no number", quote(id))))?;
    let text = token.get("content").and_then(Json::as_str);
    let Some(text) = text else {
        return Err(Error::malformed(format!("the token {id} has no content")));
    };
    let flag = |key: &str| token.get(key).and_then(Json::as_bool);
    let special = flag("special").unwrap_or(false);
    Ok(StoredToken {
        id,
        content: text.to_owned(),
        special,
        normalized: flag("normalized").unwrap_or(!special),
    })
}

/// The text of a token that is given as text or as an object.
pub(super) fn content(token: &Json) -> Option<&str> {
    match token {
        Json::String(text) => Some(text),
        _ => token.get("content")?.as_str(),
    }
}

impl AddedEntries {
    /// The added tokens of a tokenizer whose model has these tokens and ids.
    pub(super) fn read(
        stored: &StoredTokenizer<'_>,
        model: &HashMap<&str, u32>,
        additions: &TokenAdditions,
        budget: &Budget,
    ) -> Result<Self> {
        let is_byte_level = stored.is_byte_level();
        let (roles, more) = additions.special(is_byte_level);
        let listed = additions.listed(&stored.added, &[&*roles, &*more].concat());
        let file = match additions.is_complete() {
            true => "tokenizer_config.json",
            false => "added_tokens.json",
        };
        let listed = listed.map_err(|e| e.context(file))?;
        let mut added = Self {
            entries: Vec::new(),
            positions: HashMap::new(),
            special: [&*roles, &*more].concat(),
        };
        for token in &stored.added {
            added.add(token, Some(token.id), model, budget)?;
        }
        for mut token in listed {
            let id = token.id;
            token.special |= roles.contains(&token.content);
            added.add(&token, Some(id), model, budget)?;
        }
        for content in roles.into_iter().chain(more) {
            if !added.positions.contains_key(&content) {
                let token = StoredToken {
                    id: 0,
                    content,
                    special: true,
                    normalized: false,
                };
                added.add(&token, None, model, budget)?;
            }
        }
        Ok(added)
    }

    /// In the order in which they were added.
    pub(super) fn iter(&self) -> std::slice::Iter<'_, AddedEntry> {
        self.entries.iter()
    }

    /// The token of this text.
    pub(super) fn get(&self, content: &str) -> Option<&AddedEntry> {
        Some(&self.entries[*self.positions.get(content)?])
    }

    /// Adds a token, or changes its flags. `stated` is the id that a file gives it.
    fn add(
        &mut self,
        token: &StoredToken,
        stated: Option<u64>,
        model: &HashMap<&str, u32>,
        budget: &Budget,
    ) -> Result<()> {
        if token.content.is_empty() {
            return Ok(());
        }
        if let Some(&at) = self.positions.get(&token.content) {
            self.entries[at].special = token.special;
            self.entries[at].normalized = token.normalized;
            return Ok(());
        }
        let id = match model.get(&*token.content) {
            Some(id) => u64::from(*id),
            // the `tokenizers` crate numbers them itself, behind the model's tokens
            None => {
                let behind = self.entries.iter().map(|entry| u64::from(entry.id) + 1);
                behind.max().unwrap_or(0).max(model.len() as u64)
            }
        };
        if let Some(stated) = stated.filter(|stated| *stated != id) {
            return Err(Error::malformed(format!(
                "the token {} has the id {stated}, and transformers would give it {id}",
                quote(&token.content)
            )));
        }
        let id = u32::try_from(id).map_err(|_| Error::malformed("more than 2^32 tokens"))?;
        let entry = AddedEntry {
            id,
            content: token.content.clone(),
            special: token.special,
            normalized: token.normalized,
        };
        // the text twice, and the entry of a table that is at most half empty
        let memory = 2 * text_cost(token.content.len()) + 3 * size_of::<(String, usize)>() as u64;
        budget.memory(memory, TOKENIZER)?;
        self.positions
            .insert(token.content.clone(), self.entries.len());
        budget.push(&mut self.entries, entry, TOKENIZER)
    }
}
