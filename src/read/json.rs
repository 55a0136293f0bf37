//! JSON from untrusted files: what parsing allocates is charged on the [`Budget`], and objects that repeat a name are
//! refused.
//!
//! `serde_json` allocates as it parses: a value of four bytes (`[0],`) becomes 360 bytes. So no tree of it is made here
//! without a charge per node: a reader is handed to each seed ([`Pairs`], [`Tree`]), which charges before it stores. Text
//! with escapes is decoded in a buffer that `serde_json` grows by itself; it is charged in advance, by the longest string.
//!
//! `serde_json` keeps the last of two equal keys, other parsers the first. A file with a repeated name would have two
//! readings, so it is refused. The configuration of a model may repeat what concerns no weight: there the last counts, and the
//! names are kept ([`JsonReader::parse_last`]).

pub(crate) mod edit;

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Value};

use crate::base::error::{Error, Result};
use crate::base::limits::{Budget, text_cost};
use crate::read::catalog::{quote, repeated};

/// The budget of one JSON text, and what it refused.
pub(crate) struct JsonReader<'b> {
    budget: &'b Budget,
    what: &'static str,
    /// An error of this crate, kept here because serde's error type carries only text.
    refusal: RefCell<Option<Error>>,
    /// Names that objects of a [`Tree`] repeat with another value.
    repeats: RefCell<Vec<String>>,
}

/// Repeated names that are kept.
const MAX_REPEATS: usize = 16;

impl<'b> JsonReader<'b> {
    /// A reader that charges to `budget` for `what`.
    pub(crate) fn new(budget: &'b Budget, what: &'static str) -> Self {
        Self {
            budget,
            what,
            refusal: RefCell::new(None),
            repeats: RefCell::new(Vec::new()),
        }
    }

    /// Parses a text that is one value. `malformed` converts an error of the parser.
    pub(crate) fn parse<'t, S: DeserializeSeed<'t>>(
        &self,
        text: &'t str,
        seed: S,
        malformed: impl Fn(serde_json::Error) -> Error,
    ) -> Result<S::Value> {
        let parsed = self.parse_last(text, seed, &malformed)?;
        match self.repeats.borrow().first() {
            Some(name) => {
                let what = format!("{} has two values", quote(name));
                Err(malformed(serde_json::Error::custom(what)))
            }
            None => Ok(parsed),
        }
    }

    /// The names that a tree of [`parse_last`](Self::parse_last) repeats with another value, each behind the names of
    /// the objects around it: `quantization_config.bits`.
    pub(crate) fn repeats(self) -> Vec<String> {
        self.repeats.into_inner()
    }

    /// Like [`parse`](Self::parse), but the last of two equal names in an object counts.
    pub(crate) fn parse_last<'t, S: DeserializeSeed<'t>>(
        &self,
        text: &'t str,
        seed: S,
        malformed: impl FnOnce(serde_json::Error) -> Error,
    ) -> Result<S::Value> {
        // the decoded text of one string, whose buffer doubles and is used for the next, and a copy of it
        let escapes = if text.as_bytes().contains(&b'\\') {
            3 * longest_string(text) as u64
        } else {
            0
        };
        let _decoded = self.budget.temporary(escapes, self.what)?;
        let mut json = serde_json::Deserializer::from_str(text);
        let parsed = seed
            // text after the value is refused, which the seed alone would not notice
            .deserialize(&mut json)
            .and_then(|value| json.end().map(|()| value));
        // first: the parser's error only stands for it
        match self.refusal.take() {
            Some(refusal) => Err(refusal),
            None => parsed.map_err(malformed),
        }
    }

    /// Passes an error of this crate through the parser, which ends with it.
    #[inline]
    pub(crate) fn checked<T, E: serde::de::Error>(&self, made: Result<T>) -> Result<T, E> {
        made.map_err(|error| {
            // serde's error would lose its kind, such as a limit
            self.refusal.replace(Some(error));
            E::custom("refused")
        })
    }

    #[inline]
    fn memory<E: serde::de::Error>(&self, bytes: u64) -> Result<(), E> {
        self.checked(self.budget.memory(bytes, self.what))
    }

    /// Keeps a name that an object repeats.
    fn repeated<E: serde::de::Error>(&self, name: &str) -> Result<(), E> {
        let mut repeats = self.repeats.borrow_mut();
        if repeats.len() < MAX_REPEATS {
            self.memory(text_cost(name.len()))?;
            repeats.push(name.to_owned());
        }
        Ok(())
    }

    /// Puts the name of an object in front of those that repeat inside of it: all from `inner` on.
    fn within<E: serde::de::Error>(&self, name: &str, inner: usize) -> Result<(), E> {
        for repeat in &mut self.repeats.borrow_mut()[inner..] {
            let longer = [name, ".", repeat].concat();
            self.memory(text_cost(longer.len()))?;
            *repeat = longer;
        }
        Ok(())
    }

    #[inline]
    fn push<T, E: serde::de::Error>(&self, list: &mut Vec<T>, item: T) -> Result<(), E> {
        self.checked(self.budget.push(list, item, self.what))
    }
}

/// The bytes of the longest string in a text, as far as it is JSON.
fn longest_string(text: &str) -> usize {
    let mut longest = 0;
    let mut bytes = text.bytes();
    while bytes.any(|byte| byte == b'"') {
        let mut len = 0;
        while let Some(byte) = bytes.next().filter(|byte| *byte != b'"') {
            len += 1;
            if byte == b'\\' {
                len += usize::from(bytes.next().is_some());
            }
        }
        longest = longest.max(len);
    }
    longest
}

/// A string, borrowed from the text where it has no escapes.
pub(crate) struct Text<'a>(pub(crate) Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    #[inline]
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

/// Reads an object of strings, in file order. A repeated name is an error.
pub(crate) struct Pairs<'r, 'b>(pub(crate) &'r JsonReader<'b>);

/// Names and values of an object of strings.
pub(crate) type StringPairs = Vec<(Box<str>, Box<str>)>;

impl<'de> DeserializeSeed<'de> for Pairs<'_, '_> {
    type Value = StringPairs;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<StringPairs, D::Error> {
        d.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Pairs<'_, '_> {
    type Value = StringPairs;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<StringPairs, A::Error> {
        let Self(reader) = self;
        let mut pairs: StringPairs = Vec::new();
        while let Some((Text(key), Text(value))) = map.next_entry()? {
            reader.memory(text_cost(key.len()) + text_cost(value.len()))?;
            reader.push(&mut pairs, (key.into(), value.into()))?;
        }
        let names = reader
            .budget
            .temporary((pairs.len() * size_of::<&str>()) as u64, reader.what);
        let _names = reader.checked(names)?;
        if let Some(twice) = repeated(pairs.iter().map(|(key, _)| &**key)) {
            return Err(A::Error::custom(format!(
                "the name {} occurs twice",
                quote(twice)
            )));
        }
        Ok(pairs)
    }
}

/// Reads any value.
#[derive(Clone, Copy)]
pub(crate) struct Tree<'r, 'b>(pub(crate) &'r JsonReader<'b>);

/// Memory of one entry of an object: an `IndexMap` of `serde_json` keeps entries and a table of their positions, which
/// both grow to twice what they hold.
const ENTRY: u64 = 3 * size_of::<(usize, String, Value)>() as u64;

/// Memory of an object with one entry, beyond [`ENTRY`].
const OBJECT: u64 = 256;

impl<'de> DeserializeSeed<'de> for Tree<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Value, D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tree<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, b: bool) -> Result<Value, E> {
        Ok(Value::Bool(b))
    }

    fn visit_i64<E>(self, n: i64) -> Result<Value, E> {
        Ok(n.into())
    }

    fn visit_u64<E>(self, n: u64) -> Result<Value, E> {
        Ok(n.into())
    }

    fn visit_f64<E>(self, n: f64) -> Result<Value, E> {
        Ok(n.into())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Value, E> {
        self.0.memory(text_cost(text.len()))?;
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            self.0.push(&mut list, item)?;
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(Text(key)) = entries.next_key()? {
            let row = if map.is_empty() {
                OBJECT + ENTRY
            } else {
                ENTRY
            };
            self.0.memory(row + text_cost(key.len()))?;
            let inner = self.0.repeats.borrow().len();
            let value = entries.next_value_seed(self)?;
            self.0.within(&key, inner)?;
            match map.entry(key.into_owned()) {
                Entry::Vacant(free) => {
                    free.insert(value);
                }
                Entry::Occupied(mut earlier) => {
                    if *earlier.get() != value {
                        self.0.repeated(earlier.key())?;
                    }
                    earlier.insert(value);
                }
            }
        }
        Ok(Value::Object(map))
    }
}

/// The compact text of a value, charged as it is written.
pub(crate) fn compact(value: &Value, budget: &Budget, what: &'static str) -> Result<String> {
    struct Charged<'b> {
        text: Vec<u8>,
        budget: &'b Budget,
        what: &'static str,
        refusal: Option<Error>,
    }
    impl std::io::Write for Charged<'_> {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            if let Err(error) = self.budget.reserve(&mut self.text, bytes.len(), self.what) {
                // `io::Error` carries no error of this crate, so it is kept here; the kind is not shown
                self.refusal = Some(error);
                return Err(std::io::ErrorKind::OutOfMemory.into());
            }
            self.text.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut out = Charged {
        text: Vec::new(),
        budget,
        what,
        refusal: None,
    };
    let written = serde_json::to_writer(&mut out, value);
    match (out.refusal, written) {
        (Some(refusal), _) => Err(refusal),
        (None, Ok(())) => Ok(String::from_utf8(out.text).expect("JSON is UTF-8")),
        (None, Err(error)) => Err(Error::malformed(error.to_string())),
    }
}
