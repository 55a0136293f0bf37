//! The metadata of an output: the source's, in the form of the container, with the caller's changes.

use std::collections::HashMap;

use crate::base::error::{Error, Result};
use crate::base::kernel::Dtype;
use crate::base::limits::Budget;
use crate::base::quote::quote;
use crate::engine::companions::renamed_metadata;
use crate::engine::remember::metadata::{file_type, safetensors_metadata};
use crate::engine::sink::container::{HeaderValue, HeaderValues, TYPED_KEY};
use crate::engine::sink::{Container, GGUF, GgufType, GgufValue, SAFETENSORS};
use crate::models::conversion::Names;
use crate::plan::PLAN_ID_KEY;
use crate::read::catalog::Value;
use crate::read::catalog::metadata::{OF_GGUF, OF_SAFETENSORS};
use crate::read::checkpoint::{Checkpoint, PIECE_PLACES};
use crate::read::format::gguf;
use crate::read::rename::{RenamedTensors, Renames};

use super::{Convert, united};

/// The types of the keys of a GGUF, in a safetensors header: JSON has one type of numbers.
const TYPES: &str = "anamnesis.gguf_types";
/// The framework of a safetensors file, in a GGUF. Without it the safetensors file that is made of the GGUF has a value of its own.
const FRAMEWORK: &str = "safetensors.format";

/// Bytes of all tensors, in the metadata of an index.
const TOTAL_SIZE: &str = "total_size";

/// A change of the metadata.
#[derive(Clone, Debug)]
pub(super) enum MetadataChange {
    Set(String, HeaderValue),
    Drop(String),
    /// Another name for a key.
    Rename(String, String),
}

impl MetadataChange {
    pub(super) fn key(&self) -> &str {
        let (Self::Set(key, _) | Self::Drop(key) | Self::Rename(key, _)) = self;
        key
    }
}

/// The keys and values of the header.
pub(super) fn values(what: &Convert<'_>, container: &'static Container) -> Result<HeaderValues> {
    let mut values = match container.name {
        name if name == SAFETENSORS.name => texts(what)?,
        name if name == GGUF.name => typed(what)?,
        // an array of numpy has no metadata
        _ => HeaderValues::new(),
    };
    if let Some(dtype) = what.output_dtype()? {
        state_file_type(dtype, &mut values)?;
    }
    let has_metadata = *container == SAFETENSORS || *container == GGUF;
    for change in &what.metadata {
        let key = change.key();
        if !has_metadata {
            let what = format!(
                "the key {} cannot be set: a file of the container {} has no metadata",
                quote(key),
                container.name
            );
            return Err(Error::invalid_argument(what));
        }
        let why = match key {
            gguf::ALIGNMENT => Some("is set by --alignment"),
            key => gguf::set_by_writers(key),
        };
        if let Some(why) = why.filter(|_| *container == GGUF) {
            let what = format!("the key {} {why}", quote(key));
            return Err(Error::invalid_argument(what));
        }
        let at = values.iter().position(|(known, _)| known == key);
        match (change, at) {
            (MetadataChange::Drop(_), Some(at)) => drop(values.remove(at)),
            (MetadataChange::Drop(_), None) => return Err(Error::not_found("metadata key", key)),
            (MetadataChange::Set(_, value), Some(at)) => {
                values[at].1 = of_type(key, &values[at].1, value)?;
            }
            (MetadataChange::Set(_, value), None) => values.push((key.to_owned(), value.clone())),
            (MetadataChange::Rename(_, to), Some(at)) => values[at].0.clone_from(to),
            (MetadataChange::Rename(..), None) => {
                return Err(Error::not_found("metadata key", key));
            }
        }
    }
    if *container == SAFETENSORS
        && let Some((key, _)) = values
            .iter()
            .find(|(_, value)| matches!(value, HeaderValue::Gguf(_)))
    {
        let what = format!("the key {} {TYPED_KEY}", quote(key));
        return Err(Error::invalid_argument(what));
    }
    Ok(values)
}

/// States the dtype of dequantised weights where the source's keys state its quantisation.
fn state_file_type(dtype: Dtype, values: &mut HeaderValues) -> Result<()> {
    for (key, value) in values {
        if let (Some(number), HeaderValue::Gguf(_)) = (file_type(key, dtype), &*value) {
            *value = HeaderValue::Gguf(GgufValue::parse(GgufType::U32, number)?);
        }
    }
    Ok(())
}

/// The keys and values by which the weights of the output are read. Changes that the output cannot have are left out: making it
/// refuses them.
pub(super) fn described(
    what: &Convert<'_>,
    names: &RenamedTensors<'_>,
    budget: &Budget,
) -> Result<Vec<(String, Value)>> {
    let checkpoint = &what.weights.checkpoint;
    let format = checkpoint.catalog().format();
    let mut values = Vec::new();
    // keys of other formats than a GGUF become texts
    if format != "gguf" {
        for (key, value) in texts(what)? {
            if let HeaderValue::Text(text) = value {
                values.push((key, Value::text(text)));
            }
        }
    } else {
        for (key, value) in checkpoint.catalog().metadata.iter() {
            values.push(match value {
                Value::Text(text) => {
                    let (key, text) = renamed_metadata(key, text, names, budget)?;
                    (key, Value::text(text))
                }
                other => (key.to_owned(), other.clone()),
            });
        }
    }
    let mut types = match format == "gguf" && !what.metadata.is_empty() {
        true => typed(what)?,
        false => HeaderValues::new(),
    };
    for change in &what.metadata {
        let key = change.key();
        let typed = types.iter().position(|(known, _)| known == key);
        match change {
            MetadataChange::Drop(_) => {
                values.retain(|(known, _)| known != key);
                types.retain(|(known, _)| known != key);
            }
            MetadataChange::Rename(_, to) => {
                let keys = values.iter_mut().map(|(key, _)| key);
                let keys = keys.chain(types.iter_mut().map(|(key, _)| key));
                keys.filter(|known| *known == key)
                    .for_each(|known| known.clone_from(to));
            }
            MetadataChange::Set(_, value) => {
                let value = match typed {
                    Some(at) => match of_type(key, &types[at].1, value) {
                        Ok(value) => value,
                        Err(_) => continue,
                    },
                    None => value.clone(),
                };
                let value = match value {
                    HeaderValue::Text(text) => Value::text(text),
                    HeaderValue::Gguf(value) if format == "gguf" => {
                        gguf::value_of(value.kind().number(), value.bytes(), budget)?
                    }
                    HeaderValue::Gguf(_) => continue,
                };
                match values.iter_mut().find(|(known, _)| known == key) {
                    Some((_, old)) => *old = value,
                    None => values.push((key.to_owned(), value)),
                }
            }
        }
    }
    Ok(values)
}

/// The new value of a key, of the type that it has.
fn of_type(key: &str, old: &HeaderValue, new: &HeaderValue) -> Result<HeaderValue> {
    match old {
        HeaderValue::Gguf(old) => Ok(HeaderValue::Gguf(new.in_place_of(old, key)?)),
        HeaderValue::Text(_) => Ok(new.clone()),
    }
}

/// The alignment of tensors in a GGUF with these keys; 0 for the usual one.
pub(super) fn alignment(what: &Convert<'_>, values: &HeaderValues) -> Result<u32> {
    if let Some(alignment) = what.alignment {
        return match alignment.is_power_of_two() && alignment >= 8 {
            true => Ok(alignment),
            false => Err(Error::invalid_argument(format!(
                "an alignment of {alignment} is no power of two from 8 on"
            ))),
        };
    }
    let stated = values.iter().find(|(key, _)| key == gguf::ALIGNMENT);
    let stated = stated.and_then(|(_, value)| match value {
        // also of a GGUF that was a safetensors file meanwhile
        HeaderValue::Gguf(value) => value.as_u32(),
        HeaderValue::Text(_) => None,
    });
    Ok(stated.unwrap_or(0))
}

/// The metadata as texts.
fn texts(what: &Convert<'_>) -> Result<HeaderValues> {
    let checkpoint = &what.weights.checkpoint;
    let budget = checkpoint.budget();
    let renames = Renames::new(&what.renames);
    let names = what.renamed_tensors(&renames);
    let format = checkpoint.catalog().format();
    let mut values = HeaderValues::new();
    for (key, text) in safetensors_metadata(checkpoint, Names::Stored, what.output_dtype()?)? {
        if format == "gguf" {
            let inner = key.strip_prefix(OF_GGUF).unwrap_or(&key);
            if gguf::SPLIT_KEYS.contains(&inner) {
                continue;
            }
            // a key that came from a safetensors file returns as it was
            if let Some(own) = inner.strip_prefix(OF_SAFETENSORS)
                && let Some(Value::Text(own_text)) = checkpoint.metadata(inner)?
            {
                values.retain(|(known, _)| known != own);
                values.push((own.to_owned(), HeaderValue::Text(own_text.into())));
                continue;
            }
            values.push((key, HeaderValue::Text(text)));
            continue;
        }
        if is_of_several_files(&key, checkpoint) {
            continue;
        }
        let text = united::value(checkpoint.catalog(), &key, text, &budget)?;
        let (key, text) = match renames.is_empty() {
            true => (key, text),
            false => renamed_metadata(&key, &text, &names, &budget)?,
        };
        values.push((key, HeaderValue::Text(text)));
    }
    if format == "gguf" {
        let stored = stored_values(checkpoint, &budget)?;
        let types = stored.into_iter().filter_map(|value| {
            let is_own = !value.key.starts_with(OF_SAFETENSORS) || &*value.key == FRAMEWORK;
            let is_own = is_own && !gguf::SPLIT_KEYS.contains(&&*value.key);
            let (key, value) = typed_value(value)?;
            is_own.then(|| (key, serde_json::Value::String(value.type_name())))
        });
        let text = serde_json::Value::Object(types.collect()).to_string();
        values.push((TYPES.to_owned(), HeaderValue::Text(text)));
    }
    Ok(values)
}

/// Whether a key describes how several files hold the tensors, which are whole in the output.
fn is_of_several_files(key: &str, checkpoint: &Checkpoint) -> bool {
    (key == TOTAL_SIZE || key == PIECE_PLACES) && checkpoint.catalog().files().len() > 1
}

/// The values of a GGUF as they are stored.
fn stored_values(checkpoint: &Checkpoint, budget: &Budget) -> Result<Vec<gguf::StoredValue>> {
    let stored = gguf::stored_values(checkpoint.source(0), budget);
    checkpoint.check_header(0)?;
    stored
}

/// The keys of a GGUF and their values, as they are stored.
pub(in crate::engine) fn gguf_values(
    checkpoint: &Checkpoint,
    budget: &Budget,
) -> Result<HeaderValues> {
    let stored = stored_values(checkpoint, budget)?;
    let values = stored.into_iter().filter_map(typed_value);
    Ok(values
        .map(|(key, value)| (key, HeaderValue::Gguf(value)))
        .collect())
}

/// The metadata as values of a GGUF.
fn typed(what: &Convert<'_>) -> Result<HeaderValues> {
    let checkpoint = &what.weights.checkpoint;
    let catalog = checkpoint.catalog();
    let budget = checkpoint.budget();
    if catalog.format() == "gguf" {
        return gguf_values(checkpoint, &budget);
    }
    if catalog.format() != "safetensors" {
        return Ok(HeaderValues::new());
    }
    let types = catalog.metadata.text(TYPES);
    let types: Option<HashMap<String, String>> =
        types.and_then(|text| serde_json::from_str(text).ok());
    let is_added = |key: &str| {
        let types = types.as_ref();
        key == "format" && types.is_some_and(|types| !types.contains_key(FRAMEWORK))
    };
    let mut values = HeaderValues::new();
    for (key, value) in catalog.metadata.iter() {
        let Value::Text(text) = value else { continue };
        let is_of_header = key == TYPES || key == PLAN_ID_KEY || is_added(key);
        if is_of_header || is_of_several_files(key, checkpoint) {
            continue;
        }
        // keys that the header itself has are texts here, so that they return
        let own = key.strip_prefix(OF_GGUF);
        let own = own.filter(|own| gguf::set_by_writers(own).is_none());
        let stated = |own| Some(types.as_ref()?.get(own)?.as_str());
        let restored = own.and_then(|own| restored(text.as_ref(), stated(own)));
        values.push(match (own, restored) {
            (Some(own), Some(value)) => (own.to_owned(), HeaderValue::Gguf(value)),
            _ => (
                [OF_SAFETENSORS, key].concat(),
                HeaderValue::Text(text.to_string()),
            ),
        });
    }
    Ok(values)
}

/// The key and the value, with its type.
fn typed_value(value: gguf::StoredValue) -> Option<(String, GgufValue)> {
    let kind = GgufType::from_number(value.kind)?;
    let element = match value.element {
        Some(element) => Some(GgufType::from_number(element)?),
        None => None,
    };
    let stored = GgufValue::stored(kind, element, value.bytes);
    Some((value.key.into(), stored))
}

/// A value of a GGUF that is stored as JSON. Without a stated type, integers are of 32 bits where they fit, and floats are `f32`.
fn restored(text: &str, stated: Option<&str>) -> Option<GgufValue> {
    let json: serde_json::Value = serde_json::from_str(text).ok()?;
    let plain = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    if let Some(name) = stated {
        // the elements of an array are read as JSON themselves
        let text = match &json {
            serde_json::Value::Array(_) => text.to_owned(),
            one => plain(one),
        };
        return GgufValue::parse_named(name, &text)?.ok();
    }
    let numbers = json.as_array().and_then(|items| items.first());
    if numbers.unwrap_or(&json).is_number() && has_long_integer(text) {
        return None;
    }
    match &json {
        serde_json::Value::Array(items) => {
            let first = items.first().map_or(Some(GgufType::Text), implied)?;
            let element = match first {
                GgufType::U32 => GgufType::I32,
                other => other,
            };
            GgufValue::parse_array(element, text).ok()
        }
        one => GgufValue::parse(implied(one)?, &plain(one)).ok(),
    }
}

/// Whether an integer of a JSON text is longer than 64 bits: it would be read as a float.
fn has_long_integer(text: &str) -> bool {
    let is_of_number = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    let mut numbers = text.split(|c: char| !is_of_number(c));
    numbers.any(|number| {
        let digits = number.strip_prefix('-').unwrap_or(number);
        let is_integer = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_integer && number.parse::<u64>().is_err() && number.parse::<i64>().is_err()
    })
}

/// The type of a JSON value without a stated one.
fn implied(value: &serde_json::Value) -> Option<GgufType> {
    Some(match value {
        serde_json::Value::Bool(_) => GgufType::Bool,
        serde_json::Value::String(_) => GgufType::Text,
        serde_json::Value::Number(n) if n.is_f64() => GgufType::F32,
        serde_json::Value::Number(n) => match (n.as_u64(), n.as_i64()) {
            (Some(n), _) if u32::try_from(n).is_ok() => GgufType::U32,
            (Some(_), _) => GgufType::U64,
            (_, Some(n)) if i32::try_from(n).is_ok() => GgufType::I32,
            _ => GgufType::I64,
        },
        _ => return None,
    })
}
