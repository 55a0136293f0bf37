//! Reading `tokenizer.json` of the `tokenizers` crate.
//!
//! Tokens and merges are most of the text: they are borrowed from it, or skipped where only the rest is needed.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::{Value as Json, json};

use crate::base::error::{Error, Result};
use crate::base::limits::{Budget, text_cost};
use crate::base::quote::quote;
use crate::read::json::{JsonReader, Text, Tree};

use super::TOKENIZER;
use super::json_steps::{kind, parts};

/// The parts of the file that decide keys of a GGUF.
#[derive(Debug, Default)]
pub(super) struct StoredTokenizer<'t> {
    pub(super) model: StoredModel<'t>,
    pub(super) added: Vec<StoredToken>,
    /// `null` where the file has none; the same for the steps below.
    pub(super) normalizer: Json,
    pub(super) pre_tokenizer: Json,
    pub(super) post_processor: Json,
    pub(super) decoder: Json,
    /// Whether a step has the name of byte-level BPE's.
    pub(super) names_bytes: bool,
}

/// The model of the tokenizer.
#[derive(Debug, Default)]
pub(super) struct StoredModel<'t> {
    /// `BPE`, `WordPiece`, `Unigram`; empty in old files.
    pub(super) kind: String,
    /// Tokens and ids. Empty if they are a list, as Unigram has it.
    pub(super) tokens: Vec<(Cow<'t, str>, u32)>,
    /// As a GGUF has them: two tokens with a space between them.
    pub(super) merges: Vec<Cow<'t, str>>,
    pub(super) ignore_merges: bool,
    pub(super) byte_fallback: Option<bool>,
}

/// A token in `added_tokens`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StoredToken {
    pub(super) id: u64,
    pub(super) content: String,
    pub(super) special: bool,
    pub(super) normalized: bool,
}

/// Which parts are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoredParts {
    All,
    /// Not the model, which another file has.
    AroundModel,
}

impl<'t> StoredTokenizer<'t> {
    /// Parses the text of a `tokenizer.json`. All that is kept stays charged.
    pub(super) fn parse(text: &'t str, parts: StoredParts, budget: &Budget) -> Result<Self> {
        let reader = JsonReader::new(budget, TOKENIZER);
        let seed = DocumentSeed(StoredParser {
            reader: &reader,
            budget,
            parts,
        });
        let mut stored = reader.parse_last(text, seed, unreadable)?;
        // found in the text, as transformers does
        stored.names_bytes = text.contains("\"ByteLevel\"");
        Ok(stored)
    }

    /// Whether texts begin with a token that is added to them.
    pub(super) fn adds_first(&self) -> bool {
        let steps = self.post_processor.get("processors");
        let steps = steps.and_then(Json::as_array).map(Vec::as_slice);
        let steps = steps.unwrap_or(std::slice::from_ref(&self.post_processor));
        steps.iter().any(|step| {
            let single = step.get("single").and_then(|single| single.get(0));
            single.is_some_and(|part| part.get("SpecialToken").is_some())
        })
    }

    /// Whether normalising leaves ASCII's printable characters as they are, apart from its capitals.
    pub(super) fn keeps_small_letters(&self) -> bool {
        const KNOWN: &[&str] = &[
            "NFC",
            "NFD",
            "NFKC",
            "NFKD",
            "Lowercase",
            "StripAccents",
            "BertNormalizer",
        ];
        parts(&self.normalizer, "normalizers")
            .into_iter()
            .all(|step| KNOWN.contains(&kind(step)))
    }

    /// A tokenizer from its tokens in the order of their ids, one a line, as BERT's `vocab.txt` has them.
    pub(super) fn of_lines(text: &'t str, budget: &Budget) -> Result<Self> {
        let mut tokens = Vec::new();
        for (id, token) in text.lines().enumerate() {
            let id = u32::try_from(id).map_err(|_| Error::malformed("more than 2^32 tokens"))?;
            budget.push(&mut tokens, (Cow::Borrowed(token), id), TOKENIZER)?;
        }
        let mut stored = Self::default();
        stored.model.kind = "WordPiece".to_owned();
        stored.model.tokens = tokens;
        stored.decoder = json!({"type": "WordPiece", "cleanup": true});
        Ok(stored)
    }

    /// A tokenizer from its tokens and ids, as GPT-2's `vocab.json` has them.
    pub(super) fn of_ids(text: &'t str, budget: &Budget) -> Result<Self> {
        let reader = JsonReader::new(budget, TOKENIZER);
        let seed = TokensSeed(StoredParser {
            reader: &reader,
            budget,
            parts: StoredParts::All,
        });
        let mut stored = Self::default();
        stored.model.kind = "BPE".to_owned();
        stored.model.tokens = reader.parse_last(text, seed, unreadable)?;
        stored.decoder = json!({"type": "ByteLevel"});
        Ok(stored)
    }
}

fn unreadable(error: serde_json::Error) -> Error {
    Error::malformed(format!("the tokenizer cannot be read: {error}"))
}

/// The reader that all seeds share.
#[derive(Clone, Copy)]
struct StoredParser<'r, 'b> {
    reader: &'r JsonReader<'b>,
    budget: &'b Budget,
    parts: StoredParts,
}

impl StoredParser<'_, '_> {
    /// Appends an item with this much memory beside its own.
    fn push<T, E: serde::de::Error>(self, list: &mut Vec<T>, item: T, owned: u64) -> Result<(), E> {
        let charged = self.budget.memory(owned, TOKENIZER);
        self.reader.checked(charged)?;
        self.reader.checked(self.budget.push(list, item, TOKENIZER))
    }
}

/// The memory of a text besides its place in a list.
#[expect(clippy::ptr_arg, reason = "a borrowed text has none")]
fn owned_cost(text: &Cow<'_, str>) -> u64 {
    match text {
        Cow::Borrowed(_) => 0,
        Cow::Owned(text) => text_cost(text.len()),
    }
}

/// The whole document.
struct DocumentSeed<'r, 'b>(StoredParser<'r, 'b>);

impl<'de> DeserializeSeed<'de> for DocumentSeed<'_, '_> {
    type Value = StoredTokenizer<'de>;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Self::Value, D::Error> {
        d.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for DocumentSeed<'_, '_> {
    type Value = StoredTokenizer<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let Self(parser) = self;
        let mut found = StoredTokenizer::default();
        while let Some(Text(key)) = map.next_key()? {
            let step = match &*key {
                "model" if parser.parts == StoredParts::All => {
                    found.model = map.next_value_seed(ModelSeed(parser))?;
                    continue;
                }
                "added_tokens" => {
                    found.added = map.next_value_seed(AddedSeed(parser))?;
                    continue;
                }
                "normalizer" => &mut found.normalizer,
                "pre_tokenizer" => &mut found.pre_tokenizer,
                "post_processor" => &mut found.post_processor,
                "decoder" => &mut found.decoder,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            *step = map.next_value_seed(Tree(parser.reader))?;
        }
        Ok(found)
    }
}

/// The model.
struct ModelSeed<'r, 'b>(StoredParser<'r, 'b>);

impl<'de> DeserializeSeed<'de> for ModelSeed<'_, '_> {
    type Value = StoredModel<'de>;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Self::Value, D::Error> {
        d.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ModelSeed<'_, '_> {
    type Value = StoredModel<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a model")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let Self(parser) = self;
        let mut model = StoredModel::default();
        while let Some(Text(key)) = map.next_key()? {
            match &*key {
                "type" => {
                    let Text(kind) = map.next_value()?;
                    model.kind = kind.into_owned();
                }
                "vocab" => model.tokens = map.next_value_seed(TokensSeed(parser))?,
                "merges" => model.merges = map.next_value_seed(MergesSeed(parser))?,
                "ignore_merges" => model.ignore_merges = map.next_value()?,
                "byte_fallback" => model.byte_fallback = Some(map.next_value()?),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(model)
    }
}

/// Tokens and ids.
struct TokensSeed<'r, 'b>(StoredParser<'r, 'b>);

impl<'de> DeserializeSeed<'de> for TokensSeed<'_, '_> {
    type Value = Vec<(Cow<'de, str>, u32)>;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Self::Value, D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for TokensSeed<'_, '_> {
    type Value = Vec<(Cow<'de, str>, u32)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tokens")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let Self(parser) = self;
        let mut tokens = Vec::new();
        while let Some(Text(token)) = map.next_key()? {
            let id: u64 = map.next_value()?;
            let Ok(id) = u32::try_from(id) else {
                let what = format!("the token {} has the id {id}", quote(&token));
                return Err(A::Error::custom(what));
            };
            let owned = owned_cost(&token);
            parser.push(&mut tokens, (token, id), owned)?;
        }
        Ok(tokens)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Vec::new())
    }
}

/// Merges: texts, or pairs since a token may have a space.
struct MergesSeed<'r, 'b>(StoredParser<'r, 'b>);

impl<'de> DeserializeSeed<'de> for MergesSeed<'_, '_> {
    type Value = Vec<Cow<'de, str>>;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Self::Value, D::Error> {
        d.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for MergesSeed<'_, '_> {
    type Value = Vec<Cow<'de, str>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of merges")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let Self(parser) = self;
        let mut merges = Vec::new();
        let mut in_pairs = None;
        while let Some(StoredMerge { text, is_pair }) = list.next_element()? {
            if *in_pairs.get_or_insert(is_pair) != is_pair {
                return Err(A::Error::custom("some merges are pairs and some are texts"));
            }
            let owned = owned_cost(&text);
            parser.push(&mut merges, text, owned)?;
        }
        Ok(merges)
    }
}

/// A merge as a GGUF has it.
struct StoredMerge<'t> {
    text: Cow<'t, str>,
    is_pair: bool,
}

impl<'de> Deserialize<'de> for StoredMerge<'de> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct MergeVisitor;
        impl<'de> Visitor<'de> for MergeVisitor {
            type Value = StoredMerge<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a merge")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(StoredMerge {
                    text: Cow::Borrowed(text),
                    is_pair: false,
                })
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(StoredMerge {
                    text: Cow::Owned(text.to_owned()),
                    is_pair: false,
                })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut pair: A) -> Result<Self::Value, A::Error> {
                let mut token = |at| {
                    let token = pair.next_element()?;
                    token.ok_or_else(|| A::Error::invalid_length(at, &"a pair of tokens"))
                };
                let (Text(left), Text(right)) = (token(0)?, token(1)?);
                if pair.next_element::<IgnoredAny>()?.is_some() {
                    return Err(A::Error::invalid_length(3, &"a pair of tokens"));
                }
                // the space that divides the two is the only one
                let text = match left.contains(' ') || right.contains(' ') {
                    true => [left.replace(' ', "Ġ"), right.replace(' ', "Ġ")].join(" "),
                    false => [&*left, " ", &right].concat(),
                };
                Ok(StoredMerge {
                    text: text.into(),
                    is_pair: true,
                })
            }
        }
        d.deserialize_any(MergeVisitor)
    }
}

/// The added tokens.
struct AddedSeed<'r, 'b>(StoredParser<'r, 'b>);

impl<'de> DeserializeSeed<'de> for AddedSeed<'_, '_> {
    type Value = Vec<StoredToken>;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Self::Value, D::Error> {
        d.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for AddedSeed<'_, '_> {
    type Value = Vec<StoredToken>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of tokens")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let Self(parser) = self;
        let mut tokens = Vec::new();
        while let Some(token) = list.next_element::<StoredToken>()? {
            let owned = text_cost(token.content.len());
            parser.push(&mut tokens, token, owned)?;
        }
        Ok(tokens)
    }
}
