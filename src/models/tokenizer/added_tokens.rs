//! The tokens that are found in a text before the model of the tokenizer sees it, as transformers has them: those in
//! `tokenizer.json`, with what `tokenizer_config.json` and older files add to them.
//!
//! Rules: transformers 5.24 (`_from_pretrained`, `TokenizersBackend.__init__`), tokenizers 0.23 (`add_tokens`).

use std::collections::{BTreeMap, HashMap, HashSet};

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

/// The classes that transformers has for types of models. The class in a tokenizer's file counts, except where there is none for the
/// type, or where the files of published models have a wrong one.
static TYPE_CLASSES: &[(&str, Option<&str>)] = &[
    ("qwen2", Some("Qwen2Tokenizer")),
    ("qwen2_moe", Some("Qwen2Tokenizer")),
    ("qwen3", Some("Qwen2Tokenizer")),
    ("qwen3_moe", Some("Qwen2Tokenizer")),
    ("gemma2", Some("GemmaTokenizer")),
    ("gemma3", Some("GemmaTokenizer")),
    ("gemma3_text", Some("GemmaTokenizer")),
    ("gpt2", Some("GPT2Tokenizer")),
    ("starcoder2", Some("GPT2Tokenizer")),
    ("cohere", Some("CohereTokenizer")),
    ("mamba", Some("GPTNeoXTokenizer")),
    ("bert", Some("BertTokenizer")),
    ("mistral", None),
    ("mixtral", None),
    ("phi3", None),
    ("glm4", None),
    ("granite", None),
    ("stablelm", None),
];
const WRONG_CLASS: &str = "qwen2";

/// The files that add tokens; an absent one is empty.
#[derive(Debug)]
pub(super) struct TokenAdditions<'c> {
    /// `tokenizer_config.json`.
    pub(super) config: &'c Map<String, Json>,
    /// `special_tokens_map.json`.
    pub(super) roles: Map<String, Json>,
    /// `added_tokens.json`.
    pub(super) added: Map<String, Json>,
    /// `model_type` of `config.json`.
    pub(super) model_type: Option<String>,
}

/// An added token with its id.
#[derive(Clone, Debug)]
pub(super) struct AddedEntry {
    pub(super) id: u32,
    pub(super) content: String,
    pub(super) special: bool,
    pub(super) normalized: bool,
    /// Whether a file says so: then the `tokenizers` crate decodes the normalised text, whatever another file says later.
    pub(super) was_normalized: bool,
}

/// All added tokens.
#[derive(Debug)]
pub(super) struct AddedEntries {
    entries: Vec<AddedEntry>,
    positions: HashMap<String, usize>,
    /// The tokens that have a role, and the additional special ones.
    pub(super) special: HashSet<String>,
    /// The id behind the model's tokens and those that were added.
    behind: u64,
}

impl TokenAdditions<'_> {
    /// The class of the tokenizer that has tokens of its own. Its name ends in `Fast` in older files.
    fn class(&self) -> Option<&str> {
        let stated = self.config.get("tokenizer_class").and_then(Json::as_str);
        let stated = stated.map(|class| class.strip_suffix("Fast").unwrap_or(class));
        let model = self.model_type.as_deref();
        let of_type = TYPE_CLASSES.iter().find(|(known, _)| Some(*known) == model);
        match (stated, of_type) {
            (Some(_), Some((WRONG_CLASS, class) | (_, class @ None)))
            | (None, Some((_, class))) => *class,
            _ => stated,
        }
    }

    /// Whether `tokenizer_config.json` lists all added tokens. Files from before it did are read otherwise.
    fn is_complete(&self) -> bool {
        self.config.contains_key("added_tokens_decoder")
    }

    /// The tokens with a role, and the additional special ones.
    fn special(&self, names_bytes: bool, budget: &Budget) -> Result<SpecialTokens> {
        let named = |key: &str| {
            let older = self.roles.get(key).filter(|_| !self.is_complete());
            older.or_else(|| self.config.get(key))
        };
        // the class of Llama's tokenizer is not used for byte-level files
        let class = self
            .class()
            .filter(|class| !(names_bytes && *class == "LlamaTokenizer"));
        let defaults = CLASS_TOKENS.iter().find(|(known, _)| Some(*known) == class);
        let defaults = defaults.map_or(&[][..], |(_, defaults)| defaults);
        let (mut roles, mut more) = (Vec::new(), Vec::new());
        for role in ROLES {
            let default = || defaults.iter().find(|(known, _)| known == role);
            match named(role) {
                Some(token) => push_special(&mut roles, token, budget)?,
                None => roles.extend(default().map(|(_, token)| special_token(token, None))),
            }
        }
        let others = self.config.iter();
        for (_, token) in
            others.filter(|(key, _)| key.ends_with("_token") && !ROLES.contains(&&***key))
        {
            push_special(&mut roles, token, budget)?;
        }
        let additional = ["extra_special_tokens", "additional_special_tokens"];
        match additional.iter().find_map(|key| named(key)) {
            Some(Json::Array(list)) => {
                for token in list {
                    push_special(&mut more, token, budget)?;
                }
            }
            Some(Json::Object(map)) => {
                for token in map.values() {
                    push_special(&mut roles, token, budget)?;
                }
            }
            _ => {}
        }
        Ok(SpecialTokens { roles, more })
    }

    /// The tokens that files list with their ids, by id.
    fn listed(
        &self,
        stored: &[StoredToken],
        special: &SpecialTokens,
        budget: &Budget,
    ) -> Result<BTreeMap<u64, StoredToken>> {
        let mut listed = BTreeMap::new();
        let mut list = |token: StoredToken| -> Result<()> {
            budget.memory(LISTED_COST + text_cost(token.content.len()), TOKENIZER)?;
            listed.insert(token.id, token);
            Ok(())
        };
        match self.config.get("added_tokens_decoder") {
            Some(Json::Object(map)) => {
                for (id, token) in map {
                    list(listed_token(id, token)?)?;
                }
            }
            Some(_) => return Err(Error::malformed("added_tokens_decoder is no object")),
            None => {
                let all = special.roles.iter().chain(&special.more);
                let all: HashSet<&str> = all.map(|token| &*token.content).collect();
                for (content, id) in &self.added {
                    let Some(id) = id.as_u64() else {
                        let what = format!("the id of {} is no whole number", quote(content));
                        return Err(Error::malformed(what));
                    };
                    let special = all.contains(&**content);
                    list(StoredToken {
                        id,
                        content: content.clone(),
                        special,
                        normalized: !special,
                    })?;
                }
                for token in stored {
                    list(token.clone())?;
                }
            }
        }
        Ok(listed)
    }
}

/// Memory of a token in a list by id, without its text.
const LISTED_COST: u64 = 4 * size_of::<(u64, StoredToken)>() as u64;

/// Tokens that have a role, and others that are special.
#[derive(Debug)]
struct SpecialTokens {
    roles: Vec<StoredToken>,
    more: Vec<StoredToken>,
}

fn push_special(list: &mut Vec<StoredToken>, token: &Json, budget: &Budget) -> Result<()> {
    let Some(text) = content(token) else {
        return Ok(());
    };
    budget.text(text.len(), TOKENIZER)?;
    // as text it is found before a text is normalised, as an object only if it says so
    let normalized = match token.get("normalized") {
        None => token.is_object(),
        Some(flag) => flag == &Json::Bool(true),
    };
    budget.push(list, special_token(text, Some(normalized)), TOKENIZER)
}

fn special_token(content: &str, normalized: Option<bool>) -> StoredToken {
    StoredToken {
        // it is numbered where it is added
        id: 0,
        content: content.to_owned(),
        special: true,
        normalized: normalized.unwrap_or(false),
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
        additions: &TokenAdditions<'_>,
        budget: &Budget,
    ) -> Result<Self> {
        let special = additions.special(stored.names_bytes, budget)?;
        let file = match additions.is_complete() {
            true => "tokenizer_config.json",
            false => "added_tokens.json",
        };
        let listed = additions.listed(&stored.added, &special, budget);
        let listed = listed.map_err(|e| e.context(file))?;
        let roles: HashSet<&str> = special.roles.iter().map(|token| &*token.content).collect();
        let mut added = Self {
            entries: Vec::new(),
            positions: HashMap::new(),
            special: HashSet::new(),
            behind: model.len() as u64,
        };
        for token in &stored.added {
            added.add(token, Some(token.id), model, budget)?;
        }
        for (id, mut token) in listed {
            token.special |= roles.contains(&*token.content);
            added.add(&token, Some(id), model, budget)?;
        }
        for token in special.roles.into_iter().chain(special.more) {
            if !added.positions.contains_key(&token.content) {
                added.add(&token, None, model, budget)?;
            }
            added.special.insert(token.content);
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
            let entry = &mut self.entries[at];
            entry.special = token.special;
            entry.normalized = token.normalized;
            entry.was_normalized |= token.normalized;
            return Ok(());
        }
        let id = match model.get(&*token.content) {
            Some(id) => u64::from(*id),
            // the `tokenizers` crate numbers them itself, behind the model's tokens
            None => self.behind,
        };
        if let Some(stated) = stated.filter(|stated| *stated != id) {
            return Err(Error::malformed(format!(
                "the token {} has the id {stated}, and transformers would give it {id}",
                quote(&token.content)
            )));
        }
        let id = u32::try_from(id).map_err(|_| Error::malformed("more than 2^32 tokens"))?;
        self.behind = self.behind.max(u64::from(id) + 1);
        let entry = AddedEntry {
            id,
            content: token.content.clone(),
            special: token.special,
            normalized: token.normalized,
            was_normalized: token.normalized,
        };
        // the text twice, and the entry of a table that is at most half empty
        let memory = 2 * text_cost(token.content.len()) + 3 * size_of::<(String, usize)>() as u64;
        budget.memory(memory, TOKENIZER)?;
        self.positions
            .insert(token.content.clone(), self.entries.len());
        budget.push(&mut self.entries, entry, TOKENIZER)
    }
}
