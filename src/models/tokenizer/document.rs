//! `tokenizer.json` of the `tokenizers` crate.
//!
//! The vocabulary and the merges, which are most of the text, are serialised from the metadata without a copy.

use serde::ser::{SerializeMap, SerializeSeq, SerializeStruct, SerializeTuple};
use serde::{Serialize, Serializer};
use serde_json::Value as Json;

use super::special_tokens::AddedTokens;
use super::vocabulary::{TokenList, word_piece};

/// The whole document.
#[derive(Debug, Serialize)]
pub(super) struct TokenizerDocument<'v> {
    pub(super) version: &'static str,
    pub(super) truncation: Option<Json>,
    pub(super) padding: Option<Json>,
    pub(super) added_tokens: AddedTokens<'v>,
    pub(super) normalizer: Option<Json>,
    pub(super) pre_tokenizer: Option<Json>,
    pub(super) post_processor: Option<Json>,
    pub(super) decoder: Option<Json>,
    pub(super) model: TokenizerDocumentModel<'v>,
}

/// The model of the tokenizer.
#[derive(Debug)]
pub(super) enum TokenizerDocumentModel<'v> {
    Bpe {
        vocabulary: &'v TokenList,
        merges: Vec<(&'v str, &'v str)>,
        unknown: Option<&'v str>,
        byte_fallback: bool,
        ignore_merges: bool,
    },
    Unigram {
        vocabulary: &'v TokenList,
        unknown: Option<usize>,
    },
    WordPiece {
        vocabulary: &'v TokenList,
        unknown: &'v str,
    },
}

impl<'v> TokenizerDocument<'v> {
    pub(super) fn new(added_tokens: AddedTokens<'v>, model: TokenizerDocumentModel<'v>) -> Self {
        Self {
            version: "1.0",
            truncation: None,
            padding: None,
            added_tokens,
            normalizer: None,
            pre_tokenizer: None,
            post_processor: None,
            decoder: None,
            model,
        }
    }
}

/// Tokens and ids as an object.
struct TokenIds<'v>(&'v TokenList);

impl Serialize for TokenIds<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map(self.0.used())
    }
}

/// Tokens and scores as a list of pairs, by id.
struct TokenScores<'v>(&'v TokenList);

impl Serialize for TokenScores<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut list = s.serialize_seq(Some(self.0.len()))?;
        for id in 0..self.0.len() {
            // all digits of the F32: the reader has F64, in which the shortest digits are another value, and sums of
            // scores that are equal would differ
            let score = f64::from(self.0.score(id));
            list.serialize_element(&(self.0.token(id).unwrap_or_default(), score))?;
        }
        list.end()
    }
}

/// Pairs as arrays of two.
struct Merges<'m>(&'m [(&'m str, &'m str)]);

impl Serialize for Merges<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(self.0.iter().map(|(left, right)| Pair(left, right)))
    }
}

struct Pair<'m>(&'m str, &'m str);

impl Serialize for Pair<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut pair = s.serialize_tuple(2)?;
        pair.serialize_element(self.0)?;
        pair.serialize_element(self.1)?;
        pair.end()
    }
}

impl Serialize for TokenizerDocumentModel<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Bpe {
                vocabulary,
                merges,
                unknown,
                byte_fallback,
                ignore_merges,
            } => {
                let mut model = s.serialize_struct("BPE", 10)?;
                model.serialize_field("type", "BPE")?;
                model.serialize_field("dropout", &None::<f32>)?;
                model.serialize_field("unk_token", unknown)?;
                model.serialize_field("continuing_subword_prefix", &None::<&str>)?;
                model.serialize_field("end_of_word_suffix", &None::<&str>)?;
                // both for SentencePiece and neither for byte-level BPE, which has a token for each byte
                model.serialize_field("fuse_unk", byte_fallback)?;
                model.serialize_field("byte_fallback", byte_fallback)?;
                model.serialize_field("ignore_merges", ignore_merges)?;
                model.serialize_field("vocab", &TokenIds(vocabulary))?;
                model.serialize_field("merges", &Merges(merges))?;
                model.end()
            }
            Self::Unigram {
                vocabulary,
                unknown,
            } => {
                let mut model = s.serialize_struct("Unigram", 4)?;
                model.serialize_field("type", "Unigram")?;
                model.serialize_field("unk_id", unknown)?;
                model.serialize_field("vocab", &TokenScores(vocabulary))?;
                model.serialize_field("byte_fallback", &false)?;
                model.end()
            }
            Self::WordPiece {
                vocabulary,
                unknown,
            } => {
                let mut model = s.serialize_map(Some(5))?;
                model.serialize_entry("type", "WordPiece")?;
                model.serialize_entry("unk_token", unknown)?;
                model.serialize_entry("continuing_subword_prefix", "##")?;
                // BERT's: longer words are unknown
                model.serialize_entry("max_input_chars_per_word", &100)?;
                model.serialize_entry("vocab", &WordPieces(vocabulary))?;
                model.end()
            }
        }
    }
}

/// Tokens as WordPiece has them, and ids, as an object.
struct WordPieces<'v>(&'v TokenList);

impl Serialize for WordPieces<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let pieces = self.0.used();
        s.collect_map(pieces.map(|(token, id)| (word_piece(token, self.0.kind(id)), id)))
    }
}
