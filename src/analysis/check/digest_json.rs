//! The list of digests that a check writes as JSON: `files`, of which each has `path` and `sha256`, and `tensors` with `name`
//! and `sha256`. Its entries are made while it is parsed, as a model has hundreds of thousands of tensors.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use crate::base::error::{Error, Result};
use crate::base::limits::Budget;
use crate::read::json::{JsonReader, Text};

use super::file_digest::FileDigest;

/// A row of a list.
pub(super) struct JsonRow<'t> {
    pub(super) of: RowsOf,
    pub(super) name: Option<Cow<'t, str>>,
    /// `None` for one that is not there, or not a SHA-256.
    pub(super) digest: Option<FileDigest>,
}

/// The kind of an array's rows.
#[derive(Clone, Copy)]
pub(super) enum RowsOf {
    Files,
    Tensors,
}

impl RowsOf {
    /// The key of their names.
    pub(super) fn name_key(self) -> &'static str {
        match self {
            Self::Files => "path",
            Self::Tensors => "name",
        }
    }
}

/// Reads a list, and passes its rows to `add` in their order; whether it has files.
pub(super) fn read(
    text: &str,
    budget: &Budget,
    what: &'static str,
    add: &mut dyn FnMut(JsonRow<'_>) -> Result<()>,
) -> Result<bool> {
    let reader = JsonReader::new(budget, what);
    let seed = ListSeed(RowContext {
        reader: &reader,
        add,
    });
    reader.parse(text, seed, |e| {
        Error::malformed(format!("not a list of digests: {e}"))
    })
}

struct RowContext<'r, 'b> {
    reader: &'r JsonReader<'b>,
    add: &'r mut dyn FnMut(JsonRow<'_>) -> Result<()>,
}

/// The whole document; its value is whether there are files.
struct ListSeed<'r, 'b>(RowContext<'r, 'b>);

impl<'de> DeserializeSeed<'de> for ListSeed<'_, '_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<bool, D::Error> {
        d.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ListSeed<'_, '_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with `files`")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<bool, A::Error> {
        let mut seen = [false; 2];
        while let Some(Text(key)) = map.next_key()? {
            let of = match &*key {
                "files" => RowsOf::Files,
                "tensors" => RowsOf::Tensors,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            if std::mem::replace(&mut seen[of as usize], true) {
                return Err(A::Error::custom(format!("the name `{key}` occurs twice")));
            }
            map.next_value_seed(RowsSeed(of, &mut self.0))?;
        }
        Ok(seen[RowsOf::Files as usize])
    }
}

struct RowsSeed<'s, 'r, 'b>(RowsOf, &'s mut RowContext<'r, 'b>);

impl<'de> DeserializeSeed<'de> for RowsSeed<'_, '_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for RowsSeed<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut rows: A) -> Result<(), A::Error> {
        let Self(of, context) = self;
        while rows.next_element_seed(RowSeed(of, context))?.is_some() {}
        Ok(())
    }
}

struct RowSeed<'s, 'r, 'b>(RowsOf, &'s mut RowContext<'r, 'b>);

impl<'de> DeserializeSeed<'de> for RowSeed<'_, '_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for RowSeed<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with `{}` and `sha256`", self.0.name_key())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut row: A) -> Result<(), A::Error> {
        let Self(of, context) = self;
        let (mut name, mut digest) = (None, None);
        while let Some(Text(key)) = row.next_key()? {
            if key == of.name_key() {
                name = row.next_value::<PerhapsText<'de>>()?.0;
            } else if key == "sha256" {
                let text = row.next_value::<PerhapsText<'de>>()?.0;
                digest = text.and_then(|Text(text)| text.parse().ok().map(FileDigest::Sha256));
            } else {
                row.next_value::<IgnoredAny>()?;
            }
        }
        let name = name.map(|Text(name)| name);
        let added = (context.add)(JsonRow { of, name, digest });
        context.reader.checked(added)
    }
}

/// A text, or nothing for a value of another type.
struct PerhapsText<'a>(Option<Text<'a>>);

impl<'de> Deserialize<'de> for PerhapsText<'de> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(PerhapsVisitor)
    }
}

struct PerhapsVisitor;

impl<'de> Visitor<'de> for PerhapsVisitor {
    type Value = PerhapsText<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(PerhapsText(Some(Text(text.into()))))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(PerhapsText(Some(Text(text.to_owned().into()))))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(PerhapsText(None))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(PerhapsText(None))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(PerhapsText(None))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(PerhapsText(None))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(PerhapsText(None))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(PerhapsText(None))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(PerhapsText(None))
    }
}
