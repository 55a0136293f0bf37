//! The values of a GGUF's keys as they are stored, for a copy that keeps their types.

use super::{HeaderReader, PADDING, array, array_item};
use crate::base::error::{Error, Result};
use crate::base::limits::Budget;
use crate::read::catalog::metadata::{Item, Value};
use crate::read::catalog::{Endian, quote};
use crate::read::source::cursor::Cursor;
use crate::read::source::{MemorySource, Source};

const WHAT: &str = "the metadata";

/// The number of the type of an array.
const ARRAY: u32 = 9;

/// A key and its value: the number of its type, and its bytes, little endian.
pub(crate) struct StoredValue {
    pub(crate) key: Box<str>,
    pub(crate) kind: u32,
    /// The number of the type of the elements of an array.
    pub(crate) element: Option<u32>,
    pub(crate) bytes: Vec<u8>,
}

/// The keys of a file in order, without the one that only fills the header.
pub(crate) fn stored_values(source: &dyn Source, budget: &Budget) -> Result<Vec<StoredValue>> {
    let mut cursor = Cursor::new(source, budget);
    let mut file = HeaderReader::open(&mut cursor)?;
    let _tensors = file.count("tensors", 24)?;
    let count = file.count("keys", 13)?;
    let mut found = Vec::new();
    for _ in 0..count {
        let key = file.name("a key")?;
        let kind = file.u32("a value's type")?;
        let (start, endian) = (file.cursor.pos(), file.endian);
        let read = || {
            // finds the end, and refuses what opening the file has refused
            array::value(file.cursor, kind, endian)?;
            let len = file.cursor.pos() - start;
            budget.memory(len, WHAT)?;
            file.cursor.seek(start);
            let mut bytes = file.cursor.take_long(len, "a value")?.to_vec();
            if endian == Endian::Big {
                swap_value(&mut bytes, kind, Endian::Big)?;
            }
            Ok(bytes)
        };
        let bytes = { read }();
        let bytes = bytes.map_err(|e: Error| e.context(&format!("key {}", quote(&key))))?;
        let first = bytes.first_chunk().copied().map(u32::from_le_bytes);
        let element = first.filter(|_| kind == ARRAY);
        if &*key == PADDING {
            continue;
        }
        let value = StoredValue {
            key,
            kind,
            element,
            bytes,
        };
        budget.push(&mut found, value, WHAT)?;
    }
    Ok(found)
}

/// The value of these bytes, little endian, of the type of this number.
pub(crate) fn value_of(kind: u32, bytes: &[u8], budget: &Budget) -> Result<Value> {
    budget.memory(bytes.len() as u64, WHAT)?;
    let source = MemorySource::new(bytes.to_vec());
    array::value(&mut Cursor::new(&source, budget), kind, Endian::Little)
}

/// Changes the byte order of a value, which is `from`. Its form was checked by reading or making it.
pub(super) fn swap_value(bytes: &mut [u8], kind: u32, from: Endian) -> Result<()> {
    let mut rest = bytes;
    // a number in front of what it counts is read as little endian, before it is swapped or after
    let swap_count = |bytes: &mut [u8]| -> u64 {
        let mut count = [0; 8];
        let read = |bytes: &[u8], count: &mut [u8; 8]| count[..bytes.len()].copy_from_slice(bytes);
        if from == Endian::Little {
            read(bytes, &mut count);
        }
        bytes.reverse();
        if from == Endian::Big {
            read(bytes, &mut count);
        }
        u64::from_le_bytes(count)
    };
    // runs of items of one type that are left to swap
    let mut open = vec![(kind, 1_u64)];
    let short = || Error::malformed("the value is shorter than its type");
    while let Some((kind, left)) = open.pop() {
        if left == 0 {
            continue;
        }
        let item = array_item(kind).ok_or_else(short)?;
        match item {
            Item::Plain(dtype) => {
                let width = dtype.width();
                let all = usize::try_from(left)
                    .ok()
                    .and_then(|n| n.checked_mul(width));
                let all = all.ok_or_else(short)?;
                let (numbers, behind) = rest.split_at_mut_checked(all).ok_or_else(short)?;
                numbers.chunks_exact_mut(width).for_each(<[u8]>::reverse);
                rest = behind;
            }
            Item::Text => {
                let (len, behind) = rest.split_at_mut_checked(8).ok_or_else(short)?;
                let len = usize::try_from(swap_count(len)).map_err(|_| short())?;
                rest = behind.get_mut(len..).ok_or_else(short)?;
                open.push((kind, left - 1));
            }
            Item::Array => {
                let (head, behind) = rest.split_at_mut_checked(12).ok_or_else(short)?;
                let (item, len) = head.split_at_mut(4);
                let item = u32::try_from(swap_count(item)).map_err(|_| short())?;
                let len = swap_count(len);
                rest = behind;
                open.push((kind, left - 1));
                open.push((item, len));
            }
        }
    }
    Ok(())
}
