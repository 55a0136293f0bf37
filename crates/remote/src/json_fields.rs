//! JSON of servers, read as it comes: object by object, without a tree of values, of which a few bytes of text make many.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Reads a text that is one JSON object and nothing else.
pub(crate) fn read_whole(text: &[u8], fields: &mut impl ObjectFields) -> serde_json::Result<()> {
    let mut json = serde_json::Deserializer::from_slice(text);
    ReadObject(fields).deserialize(&mut json)?;
    json.end()
}

/// Reads an object field by field, keeping none that its reader does not take.
pub(crate) trait ObjectFields {
    fn field<'de, M: MapAccess<'de>>(&mut self, key: &str, map: &mut M) -> Result<(), M::Error>;
}

pub(crate) struct ReadObject<'f, F>(pub(crate) &'f mut F);

impl<'de, F: ObjectFields> DeserializeSeed<'de> for ReadObject<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, F: ObjectFields> Visitor<'de> for ReadObject<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        while let Some(key) = map.next_key::<ShortText>()? {
            self.0.field(&key.0, &mut map)?;
        }
        Ok(())
    }
}

/// An object, or null in its place.
pub(crate) struct Nested<'f, F>(pub(crate) &'f mut F);

impl<'de, F: ObjectFields> DeserializeSeed<'de> for Nested<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de, F: ObjectFields> Visitor<'de> for Nested<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        ReadObject(self.0).deserialize(deserializer)
    }
}

/// The longest text that is kept, in bytes: no file has a longer name.
const LONGEST_TEXT: usize = 4096;

/// A text; empty for a longer one and for a value of another type, which are no names.
pub(crate) struct ShortText(pub(crate) String);

impl<'de> serde::Deserialize<'de> for ShortText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrNone)
    }
}

struct TextOrNone;

impl<'de> Visitor<'de> for TextOrNone {
    type Value = ShortText;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_str<E>(self, text: &str) -> Result<ShortText, E> {
        let text = Some(text).filter(|text| text.len() <= LONGEST_TEXT);
        Ok(ShortText(text.unwrap_or_default().to_owned()))
    }

    fn visit_bool<E>(self, _: bool) -> Result<ShortText, E> {
        Ok(ShortText(String::new()))
    }

    fn visit_u64<E>(self, _: u64) -> Result<ShortText, E> {
        Ok(ShortText(String::new()))
    }

    fn visit_i64<E>(self, _: i64) -> Result<ShortText, E> {
        Ok(ShortText(String::new()))
    }

    fn visit_f64<E>(self, _: f64) -> Result<ShortText, E> {
        Ok(ShortText(String::new()))
    }

    fn visit_unit<E>(self) -> Result<ShortText, E> {
        Ok(ShortText(String::new()))
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<ShortText, S::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(ShortText(String::new()))
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<ShortText, M::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(ShortText(String::new()))
    }
}
