//! Keys and values that a file holds in addition to its tensors.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Display;

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::limits::{Budget, text_cost};
use crate::read::catalog::{ByteRange, Endian};

/// Elements that the serialised form of a long array shows.
const ARRAY_ELEMENTS: usize = 8;

/// Keys of a GGUF in a safetensors header have this prefix, and JSON values.
pub(crate) const OF_GGUF: &str = "gguf.";
/// Keys of a safetensors header in a GGUF have this prefix.
pub(crate) const OF_SAFETENSORS: &str = "safetensors.";

/// Keys and values in file order. Keys are unique, except in formats that allow otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata(Vec<(Box<str>, Value)>);

impl Metadata {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        // a search: headers have tens of keys, and their order is kept for display
        self.0.iter().find(|(k, _)| &**k == key).map(|(_, v)| v)
    }

    /// The text of a key, if it is text.
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Value::Text(s) => Some(s),
            _ => None,
        }
    }

    /// The number of a key, if it is an integer that fits in 64 bits without a sign.
    pub fn integer(&self, key: &str) -> Option<u64> {
        match *self.get(key)? {
            Value::U64(n) => Some(n),
            Value::I64(n) => u64::try_from(n).ok(),
            _ => None,
        }
    }

    /// Adds a key at the end.
    pub fn push(&mut self, key: impl Into<Box<str>>, value: Value) {
        self.0.push((key.into(), value));
    }

    /// Sets the value of a key: replaces the first value that it has, or adds the key at the end.
    pub fn set(&mut self, key: &str, value: Value) {
        match self.0.iter_mut().find(|(k, _)| &**k == key) {
            Some((_, old)) => *old = value,
            None => self.push(key, value),
        }
    }

    /// A copy in which each key occurs once, with its last value: objects of JSON have no repeated keys.
    pub(crate) fn without_repeats(&self, budget: &Budget) -> Result<Self> {
        // a hash table has up to 16/7 slots per entry, and a byte of control for each
        const ROW: u64 = 3 * size_of::<(&str, usize)>() as u64;
        let _rows = budget.temporary(ROW * self.len() as u64, "the listing")?;
        let mut rows = HashMap::<&str, usize>::with_capacity(self.len());
        let mut unique = Self::default();
        unique.reserve(self.len(), budget)?;
        for (key, value) in self.iter() {
            budget.memory(text_cost(key.len()) + value.memory(), "the listing")?;
            match rows.entry(key) {
                // like a dict of Python: the place of the first occurrence, the value of the last
                Entry::Occupied(row) => unique.0[*row.get()].1 = value.clone(),
                Entry::Vacant(row) => {
                    row.insert(unique.len());
                    unique.push(key, value.clone());
                }
            }
        }
        Ok(unique)
    }

    /// Makes room for `n` keys, and charges it.
    pub(crate) fn reserve(&mut self, n: usize, budget: &Budget) -> Result<()> {
        budget.reserve(&mut self.0, n, "metadata")
    }

    /// Adds a key at the end, and charges it. The memory of the value is charged where it is read.
    #[inline]
    pub(crate) fn push_charged(&mut self, key: &str, value: Value, budget: &Budget) -> Result<()> {
        self.reserve(1, budget)?;
        budget.text(key.len(), "metadata")?;
        self.push(key, value);
        Ok(())
    }

    /// Keys and values in file order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.0.iter().map(|(k, v)| (&**k, v))
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Value> {
        self.0.iter_mut().map(|(_, v)| v)
    }
}

impl IntoIterator for Metadata {
    type Item = (Box<str>, Value);
    type IntoIter = std::vec::IntoIter<(Box<str>, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl Serialize for Metadata {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map(self.iter())
    }
}

/// A metadata value. Long arrays stay in the file: [`Checkpoint::metadata`](crate::Checkpoint::metadata) reads them.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// Python's `None`, JSON's `null`.
    Null,
    /// A boolean.
    Bool(bool),
    /// An unsigned number.
    U64(u64),
    /// A signed number.
    I64(i64),
    /// A single-precision number.
    F32(f32),
    /// A double-precision number.
    F64(f64),
    /// Text.
    Text(Box<str>),
    /// Values read into memory.
    List(Box<[Value]>),
    /// A GGUF array, still in the file.
    Array(StoredArray),
}

impl Value {
    /// Text of a static or owned string.
    pub fn text(s: impl Into<Box<str>>) -> Self {
        Self::Text(s.into())
    }

    /// Memory that the value refers to. Lists nest no deeper than formats allow.
    #[inline]
    pub(crate) fn memory(&self) -> u64 {
        let list = |items: &[Self]| {
            size_of_val(items) as u64 + items.iter().map(Self::memory).sum::<u64>()
        };
        match self {
            Self::Text(text) => text_cost(text.len()),
            Self::List(items) => list(items),
            Self::Array(array) => list(&array.first),
            _ => 0,
        }
    }
}

/// Numbers that JSON cannot hold (infinities, NaN) become text. An array with more than [`StoredArray::FIRST`] elements
/// becomes an object of its type, length and first elements.
impl Serialize for Value {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => s.serialize_unit(),
            Self::Bool(b) => s.serialize_bool(*b),
            Self::U64(n) => s.serialize_u64(*n),
            Self::I64(n) => s.serialize_i64(*n),
            // through decimal text: the shortest decimal that means this F32, not the 17 digits of its F64
            Self::F32(n) => number(s, n.to_string().parse().unwrap_or(f64::NAN), n),
            Self::F64(n) => number(s, *n, n),
            Self::Text(text) => s.serialize_str(text),
            Self::List(list) => s.collect_seq(list),
            Self::Array(array) if array.len <= StoredArray::FIRST => s.collect_seq(&array.first),
            Self::Array(array) => {
                let shown = array.first.len().min(ARRAY_ELEMENTS);
                let mut map = s.serialize_map(Some(3))?;
                map.serialize_entry("type", array.item.name())?;
                map.serialize_entry("len", &array.len)?;
                map.serialize_entry("first", &array.first[..shown])?;
                map.end()
            }
        }
    }
}

fn number<S: Serializer>(s: S, n: f64, text: &dyn Display) -> Result<S::Ok, S::Error> {
    if n.is_finite() {
        s.serialize_f64(n)
    } else {
        s.collect_str(text)
    }
}

/// A metadata array that was left in the file: its byte range and element type.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredArray {
    /// Type of the elements.
    pub item: Item,
    /// Number of elements.
    pub len: u64,
    /// Bytes of the elements in the file.
    pub bytes: ByteRange,
    /// Byte order of the elements.
    pub endian: Endian,
    /// The first elements, at most [`FIRST`](Self::FIRST).
    pub first: Box<[Value]>,
}

impl StoredArray {
    /// Number of elements that are read when the file is opened, for display.
    pub const FIRST: u64 = 16;
}

/// Element type of a [`StoredArray`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Item {
    /// Numbers and booleans.
    Plain(Dtype),
    /// Strings, each preceded by its length.
    Text,
    /// Arrays, each preceded by its element type and length.
    Array,
}

impl Item {
    /// The name: a dtype, `STRING` or `ARRAY`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain(dtype) => dtype.name(),
            Self::Text => "STRING",
            Self::Array => "ARRAY",
        }
    }
}
