//! Byte-level BPE, as GPT-2 has it.

use serde_json::json;

use crate::base::error::Result;
use crate::base::limits::Budget;
use crate::read::catalog::metadata::Value;
use crate::read::checkpoint::Checkpoint;

use super::TOKENIZER;
use super::document::{TokenizerDocument, TokenizerDocumentModel};
use super::pre_tokenizers::PreTokenizer;
use super::special_tokens::{AddedTokens, flag, template};
use super::vocabulary::{TokenList, list};

pub(super) fn document<'v>(
    checkpoint: &Checkpoint,
    vocabulary: &'v TokenList,
    steps: &PreTokenizer,
    budget: &Budget,
) -> Result<TokenizerDocument<'v>> {
    let index = vocabulary.index(budget)?;
    let mut merges = Vec::new();
    for merge in list(checkpoint, "tokenizer.ggml.merges", budget)? {
        let Value::Text(merge) = merge else { continue };
        // the first character is part of the left token, which may be a space
        let first = merge.chars().next().map_or(0, char::len_utf8);
        let Some(at) = merge[first..].find(' ').map(|at| first + at) else {
            continue;
        };
        // the texts of the vocabulary, which outlive the list of merges; a merge of tokens that do not exist, or into one, is
        // without effect in llama.cpp, and the `tokenizers` crate refuses it
        let (left, right) = (&merge[..at], &merge[at + 1..]);
        let found = (index.get_key_value(left), index.get_key_value(right));
        if let (Some((left, _)), Some((right, _))) = found {
            // in place: a merge may be as long as the file
            let mut joined = merge.into_string();
            joined.remove(at);
            if index.contains_key(&*joined) {
                budget.push(&mut merges, (*left, *right), TOKENIZER)?;
            }
        }
    }
    let prefix = flag(checkpoint, "add_space_prefix").unwrap_or(false);
    let mut document = TokenizerDocument::new(
        AddedTokens::new(checkpoint, vocabulary),
        TokenizerDocumentModel::Bpe {
            vocabulary,
            merges,
            unknown: None,
            byte_fallback: false,
            ignore_merges: steps.ignore_merges,
        },
    );
    document.normalizer = steps.nfc.then(|| json!({"type": "NFC"}));
    document.pre_tokenizer = Some(steps.document(prefix));
    // `add_prefix_space` and `use_regex` have no effect after the model
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true});
    document.post_processor =
        Some(template(checkpoint, vocabulary, steps.first, false).unwrap_or_else(|| bytes.clone()));
    document.decoder = Some(bytes);
    Ok(document)
}
