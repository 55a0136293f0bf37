//! Special tokens: `tokenizer_config.json`, the added tokens of `tokenizer.json`, and the template that surrounds a text.

use serde::{Serialize, Serializer};
use serde_json::{Map, Value as Json, json};

use crate::base::limits::{Budget, text_cost};
use crate::models::config::keys;
use crate::read::catalog::metadata::Value;
use crate::read::checkpoint::Checkpoint;

use super::TOKENIZER;
use super::vocabulary::{TokenKind, TokenList};

/// transformers' names of the special tokens, and the keys of their ids in a GGUF.
pub(super) static ROLES: &[(&str, &str)] = &[
    ("bos_token", "bos_token_id"),
    ("eos_token", "eos_token_id"),
    ("unk_token", "unknown_token_id"),
    // llama.cpp's spelling
    ("sep_token", "seperator_token_id"),
    ("pad_token", "padding_token_id"),
    ("cls_token", "cls_token_id"),
    ("mask_token", "mask_token_id"),
];

/// Memory of a JSON object with two members.
const TEMPLATE_COST: u64 = 512;

/// The key of the default template of chats.
pub(super) const TEMPLATE: &str = "tokenizer.chat_template";

/// Templates for other uses, such as calls of tools: name and text.
pub(super) fn named_templates(checkpoint: &Checkpoint) -> impl Iterator<Item = (&str, &str)> {
    let all = checkpoint.catalog().metadata().iter();
    all.filter_map(|(key, value)| {
        let Value::Text(text) = value else {
            return None;
        };
        let name = key.strip_prefix(TEMPLATE)?.strip_prefix('.')?;
        Some((name, &**text))
    })
}

/// The id and the text of the special token with this key.
pub(super) fn special<'v>(
    checkpoint: &Checkpoint,
    vocabulary: &'v TokenList,
    key: &str,
) -> Option<(usize, &'v str)> {
    let key = ["tokenizer.ggml.", key].concat();
    let id = match checkpoint.catalog().metadata().get(&key)? {
        Value::U64(id) => usize::try_from(*id).ok()?,
        Value::I64(id) => usize::try_from(*id).ok()?,
        _ => return None,
    };
    Some((id, vocabulary.token(id)?))
}

/// A boolean of the tokenizer's metadata.
pub(super) fn flag(checkpoint: &Checkpoint, key: &str) -> Option<bool> {
    let key = ["tokenizer.ggml.", key].concat();
    match checkpoint.catalog().metadata().get(&key)? {
        Value::Bool(flag) => Some(*flag),
        _ => None,
    }
}

/// Copies of a special token at one time: in `tokenizer_config.json` for two roles, and in the template of texts.
const COPIES: u64 = 12;

/// Charges the copies of special tokens and chat templates that this module makes.
pub(super) fn charge(
    checkpoint: &Checkpoint,
    vocabulary: &TokenList,
    budget: &Budget,
) -> crate::base::error::Result<()> {
    for (_, key) in ROLES {
        if let Some((_, token)) = special(checkpoint, vocabulary, key) {
            budget.memory(COPIES * text_cost(token.len()), TOKENIZER)?;
        }
    }
    for (name, text) in named_templates(checkpoint) {
        budget.memory(
            TEMPLATE_COST + text_cost(name.len()) + text_cost(text.len()),
            TOKENIZER,
        )?;
    }
    Ok(())
}

/// `tokenizer_config.json`. Its memory is charged by [`charge`].
pub(super) fn config(checkpoint: &Checkpoint, vocabulary: &TokenList) -> Json {
    let mut keys = Map::new();
    for (role, key) in ROLES {
        if let Some((_, token)) = special(checkpoint, vocabulary, key) {
            keys.insert((*role).to_owned(), token.into());
        }
    }
    // `true`, once transformers' default, removes spaces in front of punctuation
    keys.insert("clean_up_tokenization_spaces".into(), false.into());
    let metadata = checkpoint.catalog().metadata();
    if let Some(Value::Text(architecture)) = metadata.get(keys::MODEL_TYPE.key(true))
        && let Some(Value::U64(length)) = metadata.get(&[architecture, ".context_length"].concat())
    {
        keys.insert("model_max_length".into(), (*length).into());
    }
    let mut templates: Vec<Json> = named_templates(checkpoint)
        .map(|(name, text)| json!({"name": name, "template": text}))
        .collect();
    if let (false, Some(Value::Text(text))) = (templates.is_empty(), metadata.get(TEMPLATE)) {
        // a list of templates is read in place of the file with the one
        templates.push(json!({"name": "default", "template": text}));
        keys.insert("chat_template".into(), templates.into());
    }
    // the class that reads tokenizer.json as it is; the classes of the architectures make steps of their own
    keys.insert("tokenizer_class".into(), "PreTrainedTokenizerFast".into());
    keys.into()
}

/// The tokens that are found in a text before the model of the tokenizer sees it. They are made while the document is
/// written: all of a large vocabulary may be of this kind.
#[derive(Debug)]
pub(super) struct AddedTokens<'v> {
    vocabulary: &'v TokenList,
    /// The ids of the tokens that have a role.
    roles: Vec<usize>,
}

/// A token in `added_tokens` of `tokenizer.json`.
#[derive(Serialize)]
struct AddedToken<'v> {
    id: usize,
    content: &'v str,
    single_word: bool,
    lstrip: bool,
    rstrip: bool,
    normalized: bool,
    special: bool,
}

impl<'v> AddedTokens<'v> {
    pub(super) fn new(checkpoint: &Checkpoint, vocabulary: &'v TokenList) -> Self {
        let roles = ROLES
            .iter()
            .filter_map(|(_, key)| Some(special(checkpoint, vocabulary, key)?.0))
            .collect();
        Self { vocabulary, roles }
    }

    fn is_special(&self, id: usize) -> Option<bool> {
        match self.vocabulary.kind(id) {
            TokenKind::Control | TokenKind::Unknown => Some(true),
            // found in texts like special tokens, but kept where these are left out of an output
            TokenKind::UserDefined => Some(false),
            // a token with a role is special, whatever its kind
            _ => self.roles.contains(&id).then_some(true),
        }
    }
}

impl Serialize for AddedTokens<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(self.vocabulary.used().filter_map(|(content, id)| {
            Some(AddedToken {
                id,
                content,
                single_word: false,
                lstrip: false,
                rstrip: false,
                normalized: false,
                special: self.is_special(id)?,
            })
        }))
    }
}

/// The step that adds the first and the last token to a text, if one of them is added. `first` and `last` are what an
/// absent flag means.
pub(super) fn template(
    checkpoint: &Checkpoint,
    vocabulary: &TokenList,
    first: bool,
    last: bool,
) -> Option<Json> {
    let token = |added: &str, default: bool, id: &str| {
        if flag(checkpoint, added).unwrap_or(default) {
            special(checkpoint, vocabulary, id)
        } else {
            None
        }
    };
    let first = token("add_bos_token", first, "bos_token_id");
    let last = token("add_eos_token", last, "eos_token_id");
    surrounding(first, last)
}

/// A template of one text, or two, each between these tokens.
fn surrounding(first: Option<(usize, &str)>, last: Option<(usize, &str)>) -> Option<Json> {
    if first.is_none() && last.is_none() {
        return None;
    }
    let mut ids = Map::new();
    for (id, token) in [first, last].into_iter().flatten() {
        let entry = json!({"id": token, "ids": [id], "tokens": [token]});
        ids.insert(token.to_owned(), entry);
    }
    let mark = |token: Option<(usize, &str)>, text: u8| {
        token.map(|(_, token)| json!({"SpecialToken": {"id": token, "type_id": text}}))
    };
    let of = |name: &str, text: u8| {
        let sequence = json!({"Sequence": {"id": name, "type_id": text}});
        [mark(first, text), Some(sequence), mark(last, text)]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
    };
    let pair = [of("A", 0), of("B", 1)].concat();
    Some(json!({
        "type": "TemplateProcessing",
        "single": of("A", 0),
        "pair": pair,
        "special_tokens": ids,
    }))
}
