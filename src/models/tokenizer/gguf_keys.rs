//! The keys of a GGUF from the files of a tokenizer, as llama.cpp's converter writes them.
//!
//! Each architecture's converter reads the files in its own way, of which [`TokenizerReading`] has a row. Files that the
//! converter reads and this module does not are refused by their names.

use serde_json::{Map, Value as Json};

use crate::base::error::{Error, Result};
use crate::models::model_folder::ModelFolder;
use crate::read::format::gguf::GgufValue;

use super::special_token_keys::SpecialTokenKeys;
use super::stored_tokenizer::StoredTokenizer;
use super::vocabulary_keys::TokenizerKeys;

/// How an architecture's converter reads the tokenizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenizerReading {
    /// `tokenizer.json` of byte-level BPE: gpt2, falcon, bloom, starcoder2, stablelm, deepseek2, gpt-oss, command-r,
    /// qwen2moe, qwen3moe.
    ByteLevel,
    /// The same, with tokens that end the turns of a chat: glm4.
    Glm4,
    /// `tokenizer.model` of SentencePiece, else byte-level BPE: qwen2, qwen3.
    SentencePieceElseByteLevel,
    /// The same, and in between SentencePiece's BPE in a `tokenizer.json`: llama, granite.
    Llama,
    /// SentencePiece, without a space in front of texts: gemma2.
    Gemma2,
    /// The same, else byte-level BPE: gemma3.
    Gemma3,
    /// SentencePiece with tokens from all files, or byte-level BPE if the class of the tokenizer says so: phi3.
    Phi3,
    /// Byte-level BPE, else SentencePiece, with a vocabulary that is rounded up: mamba.
    Mamba,
    /// SentencePiece's unigram model: t5.
    Unigram,
    /// BERT's words and their parts: bert.
    WordPiece,
}

/// The facts that decide the keys besides the files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenizerFacts<'a> {
    /// How the architecture reads the files.
    pub(crate) reading: TokenizerReading,
    /// llama.cpp's name of the architecture, which can decide the name of the pre-tokenizer.
    pub(crate) architecture: &'a str,
    /// `vocab_size` of the configuration.
    pub(crate) vocabulary: Option<u64>,
    /// The name of the pre-tokenizer, if it was given. SentencePiece has none, so there it has no effect.
    pub(crate) pre: Option<&'a str>,
}

pub(super) const STORED: &str = "tokenizer.json";
pub(super) const CONFIG: &str = "tokenizer_config.json";
pub(super) const SENTENCEPIECE: &str = "tokenizer.model";

/// Files of tokenizers that the converter reads and this library does not.
const UNREAD: &[&str] = &[
    "tekken.json",
    "tiktoken.model",
    "qwen.tiktoken",
    "rwkv_vocab_v20230424.txt",
    "sentencepiece.bpe.model",
];

/// The keys below `tokenizer.`, in their order.
///
/// # Errors
/// Files that are absent, unreadable or not understood; tokens whose ids contradict each other or the configuration; a
/// pre-tokenizer whose name is not decided; memory that the files' sizes exceed.
pub(crate) fn gguf_keys(
    folder: &ModelFolder<'_>,
    facts: TokenizerFacts<'_>,
) -> Result<Vec<(String, GgufValue)>> {
    use TokenizerReading as Reading;
    let config = folder.json(CONFIG)?.unwrap_or_default();
    let mut folder_keys = FolderKeys {
        folder,
        facts,
        config: &config,
        keys: TokenizerKeys::default(),
    };
    match facts.reading {
        Reading::ByteLevel => folder_keys.byte_level()?,
        Reading::Glm4 => folder_keys.glm4()?,
        Reading::SentencePieceElseByteLevel => {
            if !folder_keys.sentencepiece()? {
                folder_keys.byte_level()?;
            }
        }
        Reading::Llama => folder_keys.llama()?,
        Reading::Gemma2 => {
            folder_keys.needs_sentencepiece()?;
            folder_keys.without_space();
        }
        Reading::Gemma3 => match folder_keys.sentencepiece()? {
            true => folder_keys.without_space(),
            false => folder_keys.byte_level()?,
        },
        Reading::Phi3 => folder_keys.phi3()?,
        Reading::Mamba => folder_keys.mamba()?,
        Reading::Unigram => folder_keys.unigram()?,
        Reading::WordPiece => folder_keys.word_piece()?,
    }
    Ok(folder_keys.keys.into_list())
}

/// The keys of a folder while they are made.
#[derive(Debug)]
pub(super) struct FolderKeys<'f> {
    pub(super) folder: &'f ModelFolder<'f>,
    pub(super) facts: TokenizerFacts<'f>,
    /// `tokenizer_config.json`.
    pub(super) config: &'f Map<String, Json>,
    pub(super) keys: TokenizerKeys,
}

impl<'f> FolderKeys<'f> {
    /// The keys of special tokens and templates.
    pub(super) fn special(
        &self,
        stored: Option<&StoredTokenizer<'_>>,
        roles: &[&'static str],
        tokens: Option<u64>,
    ) -> Result<SpecialTokenKeys<'f>> {
        SpecialTokenKeys::read(self.folder, stored, self.config, roles, tokens)
    }

    /// The first of these files that the folder has.
    pub(super) fn stored_text<'n>(&self, names: &[&'n str]) -> Result<(&'n str, String)> {
        for name in names {
            // line ends are spaces in JSON
            if let Some(text) = self.folder.lines(name)? {
                return Ok((name, text));
            }
        }
        Err(self.absent(names))
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.folder.has(name)
    }

    pub(super) fn in_file(&self, name: &str, error: Error) -> Error {
        error.in_file(&self.folder.at(name))
    }

    /// The error of a folder without any of these files.
    pub(super) fn absent(&self, names: &[&str]) -> Error {
        let others = [UNREAD, &[SENTENCEPIECE, "spiece.model", STORED]].concat();
        let found = others.into_iter().filter(|name| self.has(name));
        let found: Vec<&str> = found.filter(|name| !names.contains(name)).collect();
        let names = names.join(" or ");
        let what = match &*found {
            [] => format!("the folder has no tokenizer: no {names}"),
            _ => format!(
                "the folder has no {names}, and this architecture's tokenizer is not read from {}",
                found.join(", ")
            ),
        };
        Error::unsupported(what).in_file(&self.folder.at(""))
    }
}

#[cfg(test)]
mod tests;
