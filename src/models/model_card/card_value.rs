//! The values of a model card, as PyYAML reads them.

use std::rc::Rc;

use crate::base::error::{Error, Result};

/// A value. Maps have the keys that are texts.
#[derive(Debug, PartialEq)]
pub(super) enum CardValue {
    Null,
    Flag(bool),
    /// A whole number; `None` for one of more than 64 bits.
    Integer(Option<i64>),
    Float(f64),
    /// A date, with or without a time. No key of a GGUF can have one.
    Date,
    Text(String),
    List(Vec<Rc<CardValue>>),
    Map(CardMap),
}

/// A map, in file order. Values are shared with the aliases of their anchors.
#[derive(Debug, Default, PartialEq)]
pub(super) struct CardMap(pub(super) Vec<(String, Rc<CardValue>)>);

impl CardMap {
    /// The value of a key. The last of two equal keys counts, as in Python.
    pub(super) fn get(&self, key: &str) -> Option<&CardValue> {
        let mut entries = self.0.iter().rev();
        let found = entries.find(|(name, _)| name == key)?;
        Some(&found.1)
    }

    /// The value of the first key that there is, be it null.
    pub(super) fn first_of(&self, keys: &[&str]) -> Option<&CardValue> {
        keys.iter().find_map(|key| self.get(key))
    }

    /// The first value of these keys that is not null.
    pub(super) fn first_value(&self, keys: &[&str]) -> Option<&CardValue> {
        let mut values = keys.iter().filter_map(|key| self.get(key));
        values.find(|value| **value != CardValue::Null)
    }
}

impl CardValue {
    /// Its kind, for errors.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "empty",
            Self::Flag(_) => "true or false",
            Self::Integer(_) => "a whole number",
            Self::Float(_) => "a number",
            Self::Date => "a date",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }

    /// The text for a key of a GGUF. `None` for what is false for Python, which the converter leaves out, whatever its type.
    ///
    /// # Errors
    /// If it is no text: the converter fails then, except that it writes lists of small numbers as bytes.
    pub(super) fn text(&self, key: &str) -> Result<Option<&str>> {
        let is_false = match self {
            Self::Text(text) if text.is_empty() => true,
            Self::Text(text) => return Ok(Some(text)),
            Self::Null | Self::Flag(false) | Self::Integer(Some(0)) => true,
            Self::Float(number) => *number == 0.0,
            Self::List(items) => items.is_empty(),
            Self::Map(map) => map.0.is_empty(),
            _ => false,
        };
        match is_false {
            true => Ok(None),
            false => Err(no_text(key, self)),
        }
    }
}

/// The error for a value that is no text.
pub(super) fn no_text(key: &str, value: &CardValue) -> Error {
    Error::malformed(format!(
        "the value of {key} is {}, not a text: quote it",
        value.kind()
    ))
}
