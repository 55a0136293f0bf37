//! JSON types for untrusted files: strings that are borrowed where possible, and objects that refuse repeated names.
//!
//! `serde_json` keeps the last of two equal keys, other parsers the first. A file with a repeated name would have two
//! readings, so it is refused.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};

use crate::catalog::{quote, repeated};

/// A string, borrowed from the text where it has no escapes.
pub(crate) struct Text<'a>(pub(crate) Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Borrow;
        impl<'de> Visitor<'de> for Borrow {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, s: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(s)))
            }
            // a string with escapes has no contiguous text to borrow
            fn visit_str<E>(self, s: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(s.to_owned())))
            }
        }
        d.deserialize_str(Borrow)
    }
}

/// An object of strings, in file order. A repeated name is an error.
#[derive(Default)]
pub(crate) struct StringPairs(pub(crate) Vec<(Box<str>, Box<str>)>);

impl<'de> Deserialize<'de> for StringPairs {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = StringPairs;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<StringPairs, A::Error> {
                let mut pairs: Vec<(Box<str>, Box<str>)> = Vec::new();
                while let Some((Text(key), Text(value))) = map.next_entry()? {
                    pairs.push((key.into(), value.into()));
                }
                if let Some(twice) = repeated(pairs.iter().map(|(key, _)| &**key)) {
                    return Err(A::Error::custom(format!(
                        "the name {} occurs twice",
                        quote(twice)
                    )));
                }
                Ok(StringPairs(pairs))
            }
        }
        d.deserialize_map(Collect)
    }
}
