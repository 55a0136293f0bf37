//! Tokenizers from the metadata of a GGUF, as the files that transformers and the `tokenizers` crate read.
//!
//! A GGUF holds the vocabulary, the merges or scores, the kinds of the tokens and the ids of the special ones. It does not
//! hold the steps before and after the model of the tokenizer; a name (`tokenizer.ggml.pre`) stands for them, and
//! [`PRE_TOKENIZERS`] has a row for each. A tokenizer whose steps are unknown is not written: one with other steps would
//! make other tokens of most texts, without a warning.
//!
//! The other direction, from the files to the keys of a GGUF, is [`gguf_keys`]. Rows of [`PRE_TOKENIZERS`], roles and kinds of
//! tokens are the same in both.

mod added_tokens;
mod base64;
mod bpe;
mod charged_text;
mod chat_templates;
mod document;
mod gguf_keys;
mod json_steps;
mod pre_tokenizer_name;
mod pre_tokenizers;
mod sentencepiece;
mod sentencepiece_keys;
mod sentencepiece_model;
mod sentencepiece_readings;
mod special_token_keys;
mod special_tokens;
mod stored_keys;
mod stored_readings;
mod stored_tokenizer;
mod template_steps;
mod token_decoder;
mod vocabulary;
mod vocabulary_keys;
mod wordpiece;

use serde_json::Value as Json;

use crate::base::error::Result;
use crate::base::limits::Budget;
use crate::models::config::keys;
use crate::read::catalog::metadata::Value;
use crate::read::catalog::quote;
use crate::read::checkpoint::Checkpoint;

use charged_text::ChargedText;
use document::TokenizerDocument;
pub(crate) use gguf_keys::{TokenizerFacts, TokenizerReading, gguf_keys};
use vocabulary::TokenList;

#[cfg(doc)]
use pre_tokenizers::PRE_TOKENIZERS;

const TOKENIZER: &str = "the tokenizer";

/// The models of tokenizers, by the value of `tokenizer.ggml.model`.
#[derive(Clone, Copy, Debug)]
enum TokenizerModel {
    /// Byte-level BPE, with the steps of this row.
    ByteLevel(&'static pre_tokenizers::PreTokenizer),
    /// SentencePiece's BPE: merges by the scores of the tokens.
    SentencePiece,
    /// SentencePiece's unigram model.
    Unigram,
    WordPiece,
}

/// Why no tokenizer is written, if it is so: for the notes of a plan.
pub(crate) fn unsupported(checkpoint: &Checkpoint) -> Option<String> {
    model(checkpoint).err()
}

/// The files of the tokenizer, each with its name; none if its steps are unknown. Chat templates are always written.
pub(crate) fn files(checkpoint: &Checkpoint, budget: &Budget) -> Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    // otherwise the checkpoint is written all the same, and a note of the plan says why
    if let Ok(model) = model(checkpoint) {
        let vocabulary = TokenList::read(checkpoint, budget)?;
        special_tokens::charge(checkpoint, &vocabulary, budget)?;
        let document = match model {
            TokenizerModel::ByteLevel(steps) => {
                bpe::document(checkpoint, &vocabulary, steps, budget)?
            }
            TokenizerModel::SentencePiece => sentencepiece::bpe(checkpoint, &vocabulary, budget)?,
            TokenizerModel::Unigram => sentencepiece::unigram(checkpoint, &vocabulary, budget)?,
            TokenizerModel::WordPiece => wordpiece::document(checkpoint, &vocabulary)?,
        };
        files.push(("tokenizer.json".to_owned(), written(&document, budget)?));
        let config = special_tokens::config(checkpoint, &vocabulary);
        files.push(("tokenizer_config.json".to_owned(), pretty(&config, budget)?));
    }
    template(checkpoint, budget, &mut files)?;
    Ok(files)
}

/// The model of the checkpoint's tokenizer, or why there is none.
fn model(checkpoint: &Checkpoint) -> Result<TokenizerModel, String> {
    let text = |key: &str| match checkpoint.catalog().metadata().get(key) {
        Some(Value::Text(text)) => Some(&**text),
        _ => None,
    };
    let Some(model) = text("tokenizer.ggml.model") else {
        return Err("the file has no tokenizer: no tokenizer.json is written".to_owned());
    };
    // llama.cpp's names: each is a language model that has such a tokenizer
    match model {
        "gpt2" => {
            // files from before the key have none
            let name = text("tokenizer.ggml.pre").unwrap_or("default");
            let known = pre_tokenizers::find(name, text(keys::MODEL_TYPE.key(true)));
            known.map(TokenizerModel::ByteLevel).ok_or_else(|| {
                format!(
                    "the pre-tokenizer {} is unknown: no tokenizer.json is written",
                    quote(name)
                )
            })
        }
        "llama" => Ok(TokenizerModel::SentencePiece),
        "t5" => Ok(TokenizerModel::Unigram),
        "bert" => Ok(TokenizerModel::WordPiece),
        other => Err(format!(
            "the tokenizer model {} is unknown: no tokenizer.json is written",
            quote(other)
        )),
    }
}

/// The template of chats, where transformers looks for it. Named templates are in `tokenizer_config.json`, together with this
/// one.
fn template(
    checkpoint: &Checkpoint,
    budget: &Budget,
    files: &mut Vec<(String, Vec<u8>)>,
) -> Result<()> {
    // transformers reads a list of templates from the configuration only
    if special_tokens::named_templates(checkpoint).next().is_some() {
        return Ok(());
    }
    if let Some(Value::Text(text)) = checkpoint
        .catalog()
        .metadata()
        .get(special_tokens::TEMPLATE)
    {
        budget.text(text.len(), "a chat template")?;
        files.push(("chat_template.jinja".to_owned(), text.as_bytes().to_vec()));
    }
    Ok(())
}

fn written(document: &TokenizerDocument<'_>, budget: &Budget) -> Result<Vec<u8>> {
    let mut text = ChargedText::new(budget, TOKENIZER);
    let result = serde_json::to_writer(&mut text, document);
    text.finish(result)
}

fn pretty(json: &Json, budget: &Budget) -> Result<Vec<u8>> {
    let mut text = ChargedText::new(budget, TOKENIZER);
    let result = serde_json::to_writer_pretty(&mut text, json);
    text.finish(result)
}
