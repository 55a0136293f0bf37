//! The templates of chats: where a folder has them, and their keys.

use std::borrow::Cow;

use serde_json::{Map, Value as Json, json};

use crate::base::error::{Error, Result};
use crate::base::limits::text_cost;
use crate::models::model_folder::ModelFolder;
use crate::read::format::gguf::GgufValue;

use super::TOKENIZER;
use super::special_tokens::TEMPLATE;
use super::vocabulary_keys::TokenizerKeys;

/// The folder of templates with names.
const MORE_TEMPLATES: &str = "additional_chat_templates";

/// The key of the names of templates.
const TEMPLATE_NAMES: &str = "tokenizer.chat_templates";

/// The template, or a list of named ones; null if there is none.
///
/// `tokenizer_config.json` has precedence, also where it says that there is none.
pub(super) fn read<'c>(
    folder: &ModelFolder<'_>,
    config: &'c Map<String, Json>,
) -> Result<Cow<'c, Json>> {
    let template = match config.get("chat_template") {
        Some(template) => Cow::Borrowed(template),
        None => Cow::Owned(of_files(folder)?),
    };
    match *template {
        Json::Null | Json::String(_) | Json::Array(_) => Ok(template),
        _ => Err(
            Error::malformed("chat_template is neither a text nor a list")
                .in_file(&folder.at("tokenizer_config.json")),
        ),
    }
}

/// The templates in files of their own.
fn of_files(folder: &ModelFolder<'_>) -> Result<Json> {
    let Some(default) = folder.lines("chat_template.jinja")? else {
        let file = folder.json("chat_template.json")?;
        return Ok(file
            .and_then(|mut file| file.remove("chat_template"))
            .unwrap_or_default());
    };
    let names = folder.names_in(MORE_TEMPLATES, ".jinja")?;
    if names.is_empty() {
        return Ok(default.into());
    }
    let mut list = vec![json!({"name": "default", "template": default})];
    for name in names {
        let text = folder.lines(&[MORE_TEMPLATES, "/", &name].concat())?;
        let name = name.trim_end_matches(".jinja");
        list.push(json!({"name": name, "template": text}));
    }
    Ok(list.into())
}

/// Sets the keys.
///
/// The order of the names of several templates is unspecified in llama.cpp's converter, which has them in a set; here it is the
/// order of the file.
pub(super) fn set_keys(
    template: &Json,
    keys: &mut TokenizerKeys,
    folder: &ModelFolder<'_>,
) -> Result<()> {
    let mut default = template.as_str();
    let mut names = Vec::<String>::new();
    for entry in template.as_array().into_iter().flatten() {
        let text = |key: &str| entry.get(key).and_then(Json::as_str);
        // other characters have no place in a key
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let name: String = text("name").unwrap_or("").chars().map(plain).collect();
        match text("template") {
            Some(text) if name == "default" => default = Some(text),
            Some(text) if !name.is_empty() => {
                set(keys, [TEMPLATE, ".", &name].concat(), text, folder)?;
                if !names.contains(&name) {
                    folder.budget.push(&mut names, name, TOKENIZER)?;
                }
            }
            _ => {}
        }
    }
    if !names.is_empty() {
        let texts = names.iter().map(String::as_str);
        keys.set_whole(TEMPLATE_NAMES.to_owned(), GgufValue::texts(texts));
    }
    if let Some(text) = default {
        set(keys, TEMPLATE.to_owned(), text, folder)?;
    }
    Ok(())
}

/// Sets a key to a text. An empty one is no value in gguf-py.
fn set(keys: &mut TokenizerKeys, key: String, text: &str, folder: &ModelFolder<'_>) -> Result<()> {
    if !text.is_empty() {
        folder.budget.memory(text_cost(8 + text.len()), TOKENIZER)?;
        keys.set_whole(key, GgufValue::text(text));
    }
    Ok(())
}
