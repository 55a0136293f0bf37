//! Where the entries of a header are, for a change of some that keeps the bytes of the others.

use std::ops::Range;

use super::{ALIGNMENT, ALIGNMENT_DEFAULT, HeaderReader, array, stored_values};
use crate::base::error::{Error, Result};
use crate::base::limits::{Budget, text_cost};
use crate::read::catalog::metadata::Value;
use crate::read::catalog::{Endian, quote};
use crate::read::source::Source;
use crate::read::source::cursor::Cursor;

const WHAT: &str = "the header";

/// The entries of a header, as ranges of the file.
pub(crate) struct HeaderLayout {
    pub(crate) endian: Endian,
    pub(crate) keys: Vec<KeyPlace>,
    pub(crate) tensors: Vec<TensorPlace>,
    /// Where the descriptions of the tensors end.
    pub(crate) end: u64,
    pub(crate) alignment: u64,
}

/// A key with its value.
pub(crate) struct KeyPlace {
    pub(crate) key: Box<str>,
    pub(crate) kind: u32,
    /// The number of the type of the elements of an array.
    pub(crate) element: Option<u32>,
    /// From the type of the value to its end.
    pub(crate) typed: Range<u64>,
}

/// The description of a tensor.
pub(crate) struct TensorPlace {
    pub(crate) name: Box<str>,
    /// From the rank to the end.
    pub(crate) rest: Range<u64>,
}

/// The number of the type of an array.
const ARRAY: u32 = 9;

/// Finds the entries of a header, also the key that only fills it.
pub(crate) fn header_layout(source: &dyn Source, budget: &Budget) -> Result<HeaderLayout> {
    let mut cursor = Cursor::new(source, budget);
    let mut file = HeaderReader::open(&mut cursor)?;
    let endian = file.endian;
    let tensor_count = file.count("tensors", 24)?;
    let key_count = file.count("keys", 13)?;
    let (mut keys, mut tensors) = (Vec::new(), Vec::new());
    let mut alignment = u64::from(ALIGNMENT_DEFAULT);
    for _ in 0..key_count {
        let key = file.name("a key")?;
        let start = file.cursor.pos();
        let kind = file.u32("a value's type")?;
        let first = file.cursor.pos();
        let element = match kind {
            ARRAY => {
                let element = file.u32("an array's type")?;
                file.cursor.seek(first);
                Some(element)
            }
            _ => None,
        };
        let _value = budget.scope();
        let value = array::value(file.cursor, kind, endian)
            .map_err(|e| e.context(&format!("key {}", quote(&key))))?;
        if &*key == ALIGNMENT
            && let Value::U64(n) = value
        {
            alignment = n;
        }
        drop(_value);
        let typed = start..file.cursor.pos();
        budget.memory(text_cost(key.len()), WHAT)?;
        let place = KeyPlace {
            key,
            kind,
            element,
            typed,
        };
        budget.push(&mut keys, place, WHAT)?;
    }
    for _ in 0..tensor_count {
        let start = file.cursor.pos();
        let name = file.tensor()?.name;
        // a length in front of the name
        let rest = start + 8 + name.len() as u64..file.cursor.pos();
        budget.push(&mut tensors, TensorPlace { name, rest }, WHAT)?;
    }
    if !alignment.is_power_of_two() {
        return Err(Error::malformed(format!(
            "{ALIGNMENT} is {alignment}, which is no power of two"
        )));
    }
    Ok(HeaderLayout {
        endian,
        keys,
        tensors,
        end: file.cursor.pos(),
        alignment,
    })
}

/// A little-endian value in the byte order of a file.
pub(crate) fn in_order_of(endian: Endian, kind: u32, bytes: &[u8]) -> Result<Vec<u8>> {
    let mut bytes = bytes.to_vec();
    if endian == Endian::Big {
        stored_values::swap_value(&mut bytes, kind, Endian::Little)?;
    }
    Ok(bytes)
}
