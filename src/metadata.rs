//! Keys and values that a file carries beside its tensors.

use crate::Dtype;
use crate::catalog::{ByteRange, Endian};

/// Keys and values in file order. Keys are unique, except in formats that allow otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata(Vec<(Box<str>, Value)>);

impl Metadata {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.iter().find(|(k, _)| &**k == key).map(|(_, v)| v)
    }

    /// The text of a key, if it is text.
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Value::Text(s) => Some(s),
            _ => None,
        }
    }

    /// The number of a key, if it is a whole number that fits.
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

    /// Keys and values in file order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.0.iter().map(|(k, v)| (&**k, v))
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Value> {
        self.0.iter_mut().map(|(_, v)| v)
    }
}

/// A metadata value. Long arrays stay in the file: [`Checkpoint::metadata`](crate::Checkpoint::metadata) reads them.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// Python's `None`, JSON's `null`.
    Null,
    /// A truth value.
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
}

/// An array of metadata that was skipped over: where it lies and what it holds.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredArray {
    /// What the elements are.
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
    /// How many elements are read at open, to be shown.
    pub const FIRST: u64 = 16;
}

/// Element type of a [`StoredArray`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Item {
    /// Numbers and truth values.
    Plain(Dtype),
    /// Strings, each behind its length.
    Text,
    /// Arrays, each behind its type and length.
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
