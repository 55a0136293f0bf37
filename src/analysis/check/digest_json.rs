//! The list of digests that a check writes as JSON: `files`, of which each has `path` and `sha256`, and `tensors` with `name`
//! and `sha256`. Its entries are made while it is parsed, as a model has hundreds of thousands of tensors.

use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::Value;

use crate::base::error::{Error, Result};
use crate::base::limits::Budget;
use crate::read::json::{JsonReader, Text, Tree};

use super::file_digest::FileDigest;

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

/// Reads a list, and passes the name and the digest of each row to `add`; `None` for one that is not there, or no SHA-256.
/// Whether it has files.
pub(super) fn read(
    text: &str,
    budget: &Budget,
    what: &'static str,
    add: &mut AddRow<'_>,
) -> Result<bool> {
    let reader = JsonReader::new(budget, what);
    let seed = ListSeed(RowContext {
        reader: &reader,
        budget,
        add,
    });
    reader.parse(text, seed, |e| {
        Error::malformed(format!("not a list of digests: {e}"))
    })
}

type AddRow<'a> = dyn FnMut(RowsOf, Option<String>, Option<FileDigest>) -> Result<()> + 'a;

struct RowContext<'r, 'b> {
    reader: &'r JsonReader<'b>,
    budget: &'b Budget,
    add: &'r mut AddRow<'r>,
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
        loop {
            // its tree is gone before the row is added
            let (name, digest) = {
                let _tree = context.budget.scope();
                let Some(mut row) = rows.next_element_seed(Tree(context.reader))? else {
                    return Ok(());
                };
                let mut take = |key: &str| match row.get_mut(key).map(Value::take) {
                    Some(Value::String(text)) => Some(text),
                    _ => None,
                };
                (take(of.name_key()), take("sha256"))
            };
            let digest = digest.and_then(|digest| digest.parse().ok());
            let digest = digest.map(FileDigest::Sha256);
            let added = (context.add)(of, name, digest);
            context.reader.checked(added)?;
        }
    }
}
