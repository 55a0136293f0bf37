//! The text of one token by the steps behind the model: what `decode` of transformers makes of its id.
//!
//! llama.cpp finds added tokens in texts as they are written, so its converter writes the texts that they stand for.
//! Steps: tokenizers 0.23 (`decoders`).

use std::borrow::Cow;

use serde_json::Value as Json;

use crate::base::error::{Error, Result};
use crate::base::quote::quote;

/// Spaces that are removed in front of punctuation and endings.
const TIDIED: &[(&str, &str)] = &[
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
];

/// The text of a token by these steps.
///
/// # Errors
/// A step that is not known.
pub(super) fn decoded<'t>(decoder: &Json, token: &'t str) -> Result<Cow<'t, str>> {
    let mut text = Cow::Borrowed(token);
    // the steps that are left, the next one last
    let mut steps = vec![decoder];
    while let Some(step) = steps.pop() {
        let name = step.get("type").and_then(Json::as_str);
        let changed = match name {
            None if step.is_null() => None,
            Some("Sequence") => {
                let parts = step.get("decoders").and_then(Json::as_array);
                steps.extend(parts.into_iter().flatten().rev());
                None
            }
            Some("ByteLevel") => byte_level(&text),
            Some("WordPiece") => match step.get("cleanup").and_then(Json::as_bool) {
                Some(false) => None,
                // as for English contractions in BERT's texts
                _ => Some(tidied(&text).replace(" do not", " don't")),
            },
            Some("Metaspace") => {
                let scheme = step.get("prepend_scheme").and_then(Json::as_str);
                let space = match scheme {
                    Some("never") => " ",
                    // the first token of a text begins without a space
                    _ => "",
                };
                let mark = step.get("replacement").and_then(Json::as_str);
                Some(text.replace(mark.unwrap_or("▁"), space))
            }
            Some("Replace") => {
                let pattern = step.get("pattern").and_then(|p| p.get("String"));
                let new = step.get("content").and_then(Json::as_str);
                match (pattern.and_then(Json::as_str), new) {
                    (Some(old), Some(new)) => Some(text.replace(old, new)),
                    _ => return Err(unknown("Replace with an expression", token)),
                }
            }
            Some("Strip") => Some(stripped(step, &text)),
            Some("ByteFallback") => byte_fallback(&text),
            Some("Fuse") => None,
            other => return Err(unknown(other.unwrap_or("without a type"), token)),
        };
        if let Some(changed) = changed {
            text = changed.into();
        }
    }
    Ok(text)
}

fn unknown(step: &str, token: &str) -> Error {
    Error::unsupported(format!(
        "the decoder's step {} is not known, so neither is the text of the added token {}",
        quote(step),
        quote(token)
    ))
}

/// A text without the spaces that tokens of words leave.
pub(super) fn tidied(text: &str) -> String {
    let all = TIDIED.iter();
    all.fold(text.to_owned(), |text, (old, new)| text.replace(old, new))
}

/// The bytes that the characters stand for, if each stands for one.
fn byte_level(text: &str) -> Option<String> {
    let bytes: Option<Vec<u8>> = text.chars().map(byte_of).collect();
    Some(String::from_utf8_lossy(&bytes?).into_owned())
}

/// The byte that a character stands for in byte-level BPE: printable ones for themselves, the others in their order from
/// U+0100 on.
fn byte_of(c: char) -> Option<u8> {
    match c {
        '!'..='~' | '¡'..='¬' | '®'..='ÿ' => u8::try_from(c).ok(),
        _ => {
            let at = u32::from(c).checked_sub(0x100)?;
            let byte = match at {
                0..=0x20 => at,
                0x21..=0x42 => at - 0x21 + 0x7f,
                0x43 => 0xad,
                _ => return None,
            };
            u8::try_from(byte).ok()
        }
    }
}

/// The byte of a token such as `<0x0A>`.
fn byte_fallback(text: &str) -> Option<String> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    let byte = u8::from_str_radix(digits, 16).ok()?;
    (digits.len() == 2).then(|| String::from_utf8_lossy(&[byte]).into_owned())
}

fn stripped(step: &Json, text: &str) -> String {
    let number = |key: &str| step.get(key).and_then(Json::as_u64).unwrap_or(0);
    let content = step.get("content").and_then(Json::as_str).unwrap_or(" ");
    let mut text = text;
    for _ in 0..number("start").min(text.len() as u64) {
        text = text.strip_prefix(content).unwrap_or(text);
    }
    for _ in 0..number("stop").min(text.len() as u64) {
        text = text.strip_suffix(content).unwrap_or(text);
    }
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{byte_of, decoded};

    #[test]
    fn each_byte_has_one_character() {
        let mut bytes: Vec<u8> = (0..=0x200_u32)
            .filter_map(char::from_u32)
            .filter_map(byte_of)
            .collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
        // as the codes of GPT-2's vocabulary show
        for (c, byte) in [('Ġ', b' '), ('Ċ', b'\n'), ('ł', 0xa0), ('Ń', 0xad)] {
            assert_eq!(byte_of(c), Some(byte), "{c}");
        }
    }

    #[test]
    fn tokens_are_decoded_by_the_steps() {
        let llama = json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ]});
        let bytes = json!({"type": "ByteLevel"});
        for (decoder, token, expected) in [
            (&llama, "▁▁x", " x"),
            (&llama, "<0x41>", "A"),
            (&llama, "<|im_end|>", "<|im_end|>"),
            (&bytes, "Ġword", " word"),
            (&bytes, "<｜end｜>", "<｜end｜>"),
            (&json!(null), "Ġ", "Ġ"),
            (
                &json!({"type": "WordPiece", "cleanup": true}),
                "a . b",
                "a. b",
            ),
        ] {
            assert_eq!(decoded(decoder, token).unwrap(), expected, "{token}");
        }
        assert!(decoded(&json!({"type": "CTC"}), "x").is_err());
    }
}
