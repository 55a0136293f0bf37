//! The settings of sampling that a model is published with, from `generation_config.json`.
//!
//! Source: gguf-py `metadata.py` (`load_generation_config`, `load`), `gguf_writer.py` (`add_sampling_*`).

use std::borrow::Cow;

use serde::de::IgnoredAny;
use serde_json::{Map, Number, Value as Json};

use super::key_list::KeyList;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits::Budget;
use crate::models::config::document;
use crate::read::format::gguf::GgufValue;
use crate::read::json::edit::{python_numbers_cost, without_python_numbers};

const WHAT: &str = "the settings of generation";

#[derive(Clone, Copy)]
enum SettingType {
    Text,
    Integer,
    Float,
}

/// A setting: its key behind `general.sampling.`, its type, and its names in the file. The first that there is counts, be it null.
type Setting = (&'static str, SettingType, &'static [&'static str]);

/// In the order of the converter.
static SETTINGS: &[Setting] = &[
    ("sequence", SettingType::Text, &["sequence"]),
    ("top_k", SettingType::Integer, &["top_k"]),
    ("top_p", SettingType::Float, &["top_p"]),
    ("min_p", SettingType::Float, &["min_p"]),
    ("xtc_probability", SettingType::Float, &["xtc_probability"]),
    ("xtc_threshold", SettingType::Float, &["xtc_threshold"]),
    ("temp", SettingType::Float, &["temperature"]),
    ("penalty_last_n", SettingType::Integer, &["penalty_last_n"]),
    (
        "penalty_repeat",
        SettingType::Float,
        &["penalty_repeat", "repetition_penalty"],
    ),
    ("mirostat", SettingType::Integer, &["mirostat"]),
    ("mirostat_tau", SettingType::Float, &["mirostat_tau"]),
    ("mirostat_eta", SettingType::Float, &["mirostat_eta"]),
];

/// Adds the keys of the settings in a text. A text that is not JSON has none: the converter ignores it too.
///
/// # Errors
/// If a setting has a value that the converter cannot write, or the text is one that Python reads and this library does not.
pub(super) fn add(text: &str, budget: &Budget, keys: &mut KeyList<'_>) -> Result<()> {
    // for Python a byte order mark is not JSON
    if text.starts_with('\u{feff}') {
        return Ok(());
    }
    let _copy = budget.temporary(python_numbers_cost(text) + text.len() as u64, WHAT)?;
    let plain = without_python_numbers(text);
    let has_python_numbers = matches!(&plain, Cow::Owned(changed) if changed != text);
    let settings = match document::parse(text.as_bytes(), budget) {
        // numbers and letters that are not looked at have no bounds, as in Python
        Err(e)
            if matches!(e.kind(), ErrorKind::Malformed(_))
                && serde_json::from_str::<IgnoredAny>(&plain).is_err() =>
        {
            return Ok(());
        }
        parsed => parsed?,
    };
    for (key, kind, names) in SETTINGS {
        let Some((name, value)) = first_of(&settings, names) else {
            continue;
        };
        if value.is_null() {
            if has_python_numbers {
                let what = format!("{name} is null or no finite number");
                return Err(Error::unsupported(what));
            }
            continue;
        }
        let written = match kind {
            SettingType::Text => text_setting(name, value)?,
            SettingType::Integer => Some(GgufValue::i32(integer(name, value)?)),
            SettingType::Float => Some(GgufValue::f32(float(name, value)?)),
        };
        if let Some(written) = written {
            keys.push(&format!("sampling.{key}"), written)?;
        }
    }
    Ok(())
}

fn first_of<'s>(
    settings: &'s Map<String, Json>,
    names: &[&'static str],
) -> Option<(&'static str, &'s Json)> {
    let mut found = names.iter().map(|name| Some((*name, settings.get(*name)?)));
    found.find_map(|pair| pair)
}

/// A text; `None` for what is false for Python, which the converter leaves out.
fn text_setting(name: &str, value: &Json) -> Result<Option<GgufValue>> {
    let is_false = match value {
        Json::String(text) if text.is_empty() => true,
        Json::String(text) => return Ok(Some(GgufValue::text(text))),
        Json::Bool(flag) => !flag,
        Json::Number(number) => number.as_f64() == Some(0.0),
        Json::Array(items) => items.is_empty(),
        Json::Object(map) => map.is_empty(),
        Json::Null => true,
    };
    match is_false {
        true => Ok(None),
        false => Err(Error::malformed(format!("{name} is no text"))),
    }
}

fn integer(name: &str, value: &Json) -> Result<i32> {
    let number = match value {
        // for Python a flag is a number
        Json::Bool(flag) => Some(i32::from(*flag)),
        Json::Number(number) => number.as_i64().and_then(|number| number.try_into().ok()),
        _ => None,
    };
    let what = || Error::malformed(format!("{name} is no whole number of 32 bits"));
    number.ok_or_else(what)
}

fn float(name: &str, value: &Json) -> Result<f32> {
    let number = match value {
        Json::Bool(flag) => Some(f32::from(u8::from(*flag))),
        Json::Number(number) => number_of_32_bits(number),
        _ => None,
    };
    let what = || Error::malformed(format!("{name} is no number of 32 bits"));
    number.ok_or_else(what)
}

fn number_of_32_bits(number: &Number) -> Option<f32> {
    number.as_f64().and_then(narrowed)
}

/// The nearest float of 32 bits; `None` for infinity, which Python refuses where the number was finite.
#[expect(clippy::cast_possible_truncation, reason = "rounds")]
pub(super) fn narrowed(number: f64) -> Option<f32> {
    Some(number as f32).filter(|number| number.is_finite())
}
