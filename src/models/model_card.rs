//! The general keys of a GGUF, `general.sampling.*` to `general.languages`: what a model is called, who made it of what, under which
//! licence, and how it is sampled.
//!
//! llama.cpp's converter takes them from four places, the first of which counts: the front matter of `README.md`, the `_name_or_path` of
//! `config.json`, the name of the folder, and the number of parameters; sampling is in `generation_config.json`. A value of another type
//! than its key has is left out where the converter leaves it out (`license: no` is false in YAML 1.1), and an error where it fails.
//! One thing it writes is an error here: a list of small numbers where a text belongs, which it takes for bytes.
//!
//! Source: gguf-py of llama.cpp (commit 86a2835) `metadata.py`, `gguf_writer.py`; `conversion/base.py` (`prepare_metadata`).

mod card_value;
mod front_matter;
mod key_list;
mod model_name;
mod parameter_counts;
mod plain_scalar;
mod sampling;
mod sources;

#[cfg(test)]
mod tests;

use crate::base::error::{Error, Result};
use crate::models::model_folder::ModelFolder;
use crate::read::format::gguf::GgufValue;

use card_value::{CardMap, CardValue, no_text};
use key_list::KeyList;
use model_name::NameParts;

pub(crate) use parameter_counts::ParameterCounts;

const CARD: &str = "README.md";
const CONFIG: &str = "config.json";
const GENERATION: &str = "generation_config.json";

/// A key with a text.
struct TextKey {
    /// The name of the key behind `general.`.
    key: &'static str,
    /// Its names in a card, the first of which counts that has a value.
    card: &'static [&'static str],
    /// The part of a name that it has otherwise.
    part: Option<NamePart>,
}

#[derive(Clone, Copy)]
enum NamePart {
    Title,
    Version,
    Organization,
    Finetune,
    Basename,
    SizeLabel,
}

const fn text_key(
    key: &'static str,
    card: &'static [&'static str],
    part: Option<NamePart>,
) -> TextKey {
    TextKey { key, card, part }
}

/// In the order of the converter.
static TEXT_KEYS: &[TextKey] = &[
    text_key("name", &["name", "model_name"], Some(NamePart::Title)),
    text_key("author", &["author", "model_author", "model_creator"], None),
    text_key(
        "version",
        &["version", "model_version"],
        Some(NamePart::Version),
    ),
    text_key(
        "organization",
        &["organization", "model_organization"],
        Some(NamePart::Organization),
    ),
    text_key(
        "finetune",
        &["finetune", "model_finetune"],
        Some(NamePart::Finetune),
    ),
    text_key(
        "basename",
        &["basename", "model_basename", "model_type"],
        Some(NamePart::Basename),
    ),
    text_key("description", &["description", "model_description"], None),
    text_key(
        "size_label",
        &["size_label", "model_size_label"],
        Some(NamePart::SizeLabel),
    ),
    text_key("license", &["license"], None),
    text_key("license.name", &["license_name"], None),
    text_key("license.link", &["license_link"], None),
    text_key("source.url", &["url", "model_url"], None),
    text_key("source.doi", &["doi", "model_doi"], None),
    text_key("source.uuid", &["uuid", "model_uuid"], None),
    text_key("source.repo_url", &["repo_url", "model_repo_url"], None),
];

/// The keys of lists, with their names in a card: one after the other, all count.
static LIST_KEYS: [(&str, [&str; 2]); 2] = [
    ("tags", ["tags", "pipeline_tag"]),
    ("languages", ["languages", "language"]),
];

/// The keys from `general.sampling.*` to `general.languages`, in the order of the converter.
///
/// # Errors
/// A file that cannot be read, or a value that the converter fails at: the error names the file and the key.
pub(crate) fn general_keys(
    folder: &ModelFolder<'_>,
    counts: &ParameterCounts,
) -> Result<Vec<(String, GgufValue)>> {
    let in_file = |name: &'static str| move |e: Error| e.in_file(&folder.at(name));
    let mut keys = KeyList::new(folder.budget);
    if let Some(text) = folder.text(GENERATION)? {
        let added = sampling::add(&text, folder.budget, &mut keys);
        added.map_err(in_file(GENERATION))?;
    }
    let card = match folder.text(CARD)? {
        Some(text) => front_matter::read(&text, folder.budget).map_err(in_file(CARD))?,
        None => CardMap::default(),
    };
    let names = names(folder, counts.total)?;
    for row in TEXT_KEYS {
        let written = match card.first_value(row.card) {
            Some(value) => card_text(row.key, value).map_err(in_file(CARD))?,
            None => named_text(row, &names, counts)?,
        };
        if let Some(text) = written.filter(|text| !text.is_empty()) {
            keys.push(row.key, GgufValue::text(&text))?;
        }
    }
    sources::add(&card, counts.total, &mut keys).map_err(in_file(CARD))?;
    for (key, names) in LIST_KEYS {
        let list = list(key, &listed(&card, &names)).map_err(in_file(CARD))?;
        if let Some(list) = list {
            keys.push(key, list)?;
        }
    }
    Ok(keys.keys)
}

/// The parts of the model's names: in its configuration, and of the folder.
fn names(folder: &ModelFolder<'_>, parameters: u64) -> Result<Vec<NameParts>> {
    let mut names = Vec::new();
    let config = folder.json(CONFIG)?;
    match config.as_ref().and_then(|keys| keys.get("_name_or_path")) {
        None | Some(serde_json::Value::Null) => {}
        // more are a path of the machine that the model was made on
        Some(serde_json::Value::String(id)) if id.matches('/').count() > 1 => {}
        Some(serde_json::Value::String(id)) => {
            let parts = NameParts::of(id, parameters);
            names.push(parts.map_err(|e| e.in_file(&folder.at(CONFIG)))?);
        }
        Some(_) => {
            let what = Error::malformed("`_name_or_path` is no text");
            return Err(what.in_file(&folder.at(CONFIG)));
        }
    }
    let name = folder.name().unwrap_or_default();
    let parts = match name.contains(char::REPLACEMENT_CHARACTER) {
        true => Err(Error::unsupported("the name of the folder is not UTF-8")),
        false => NameParts::of(&name, parameters),
    };
    names.push(parts.map_err(|e| e.in_file(&folder.at("")))?);
    Ok(names)
}

/// The text of a key that the card does not have.
fn named_text(
    row: &TextKey,
    names: &[NameParts],
    counts: &ParameterCounts,
) -> Result<Option<String>> {
    let Some(part) = row.part else {
        return Ok(None);
    };
    if let NamePart::Title = part {
        // every name has one, be it empty
        return names
            .first()
            .map(|parts| model_name::title(&parts.name))
            .transpose();
    }
    let found = names.iter().find_map(|parts| match part {
        NamePart::Title => None,
        NamePart::Version => parts.version.clone(),
        NamePart::Organization => parts.organization.clone(),
        NamePart::Finetune => parts.finetune.clone(),
        NamePart::Basename => parts.basename.clone(),
        NamePart::SizeLabel => parts.size_label.clone(),
    });
    match (part, found) {
        (NamePart::Organization, Some(found)) => model_name::title(&found).map(Some),
        (NamePart::SizeLabel, None) => Ok(counts.size_label()),
        (_, found) => Ok(found),
    }
}

/// A text of the card; several licences are joined.
fn card_text(key: &str, value: &CardValue) -> Result<Option<String>> {
    match value {
        CardValue::List(items) if key == "license" => {
            let texts = items.iter().map(|item| match &**item {
                CardValue::Text(text) => Ok(&**text),
                other => Err(no_text(key, other)),
            });
            Ok(Some(texts.collect::<Result<Vec<&str>>>()?.join(",")))
        }
        value => Ok(value.text(key)?.map(str::to_owned)),
    }
}

/// The values of several names: texts, and the items of lists. Other values are no lists, and the converter leaves them out.
fn listed<'c>(card: &'c CardMap, names: &[&str]) -> Vec<&'c CardValue> {
    let mut values = Vec::new();
    for name in names {
        match card.get(name) {
            Some(one @ CardValue::Text(_)) => values.push(one),
            Some(CardValue::List(items)) => values.extend(items.iter().map(|item| &**item)),
            _ => {}
        }
    }
    values
}

/// An array of values of one type; `None` without values.
fn list(key: &str, values: &[&CardValue]) -> Result<Option<GgufValue>> {
    let Some(first) = values.first() else {
        return Ok(None);
    };
    let mixed = |other: &CardValue| {
        let what = format!(
            "{key} has {} and {}: values of one type are needed, texts in quotes",
            first.kind(),
            other.kind()
        );
        Error::malformed(what)
    };
    let large = || Error::malformed(format!("{key} has a number of more than 32 bits"));
    Ok(Some(match first {
        CardValue::Text(_) => {
            let texts = values.iter().map(|value| match value {
                CardValue::Text(text) => Ok(&**text),
                other => Err(mixed(other)),
            });
            GgufValue::texts(texts.collect::<Result<Vec<&str>>>()?.into_iter())
        }
        CardValue::Flag(_) => {
            let flags = values.iter().map(|value| match value {
                CardValue::Flag(flag) => Ok(*flag),
                other => Err(mixed(other)),
            });
            GgufValue::flags(&flags.collect::<Result<Vec<bool>>>()?)
        }
        CardValue::Integer(_) => {
            let numbers = values.iter().map(|value| match value {
                CardValue::Integer(number) => {
                    let number = number.and_then(|number| number.try_into().ok());
                    number.ok_or_else(large)
                }
                other => Err(mixed(other)),
            });
            GgufValue::integers(&numbers.collect::<Result<Vec<i32>>>()?)
        }
        CardValue::Float(_) => {
            let numbers = values.iter().map(|value| match value {
                CardValue::Float(number) => sampling::narrowed(*number).ok_or_else(large),
                other => Err(mixed(other)),
            });
            GgufValue::floats(&numbers.collect::<Result<Vec<f32>>>()?)
        }
        other => {
            let what = format!("{key} has an item that is {}, not a text", other.kind());
            return Err(Error::malformed(what));
        }
    }))
}
