//! Metadata values. Scalars and texts are read; of an array, the first elements are read and the rest is skipped, to be
//! read on demand: the tokenizer of a model is 150 000 strings that a listing does not need.

use super::array_item;
use crate::base::error::{Error, Result};
use crate::base::kernel::Dtype;
use crate::base::limits::text_cost;
use crate::read::catalog::metadata::{Item, StoredArray, Value};
use crate::read::catalog::{ByteRange, Endian};
use crate::read::source::cursor::Cursor;

/// Largest depth of nested arrays, whatever the limits are: values are dropped and printed by recursion.
const NEST_MAX: u64 = 256;

/// Number of strings from which an array is taken for a vocabulary, which most of the header follows.
const VOCABULARY: u64 = 4096;
/// Bytes of the header per entry of a vocabulary: its text, and the types, scores and merges behind it. Tokenizers of
/// SentencePiece have 23, tokenizers of byte pair encoding with merges 50.
const VOCABULARY_ENTRY: u64 = 40;

pub(super) fn u64(cursor: &mut Cursor<'_>, endian: Endian, what: &str) -> Result<u64> {
    let bytes = cursor.array(what)?;
    Ok(if endian == Endian::Big {
        u64::from_be_bytes(bytes)
    } else {
        u64::from_le_bytes(bytes)
    })
}

pub(super) fn u32(cursor: &mut Cursor<'_>, endian: Endian, what: &str) -> Result<u32> {
    let bytes = cursor.array(what)?;
    Ok(if endian == Endian::Big {
        u32::from_be_bytes(bytes)
    } else {
        u32::from_le_bytes(bytes)
    })
}

fn unknown(kind: u32) -> Error {
    Error::malformed(format!("unknown value type {kind}; types 0 to 12 exist"))
}

/// Reads a value of this type. An array is described by its byte range and its first elements.
pub(super) fn value(cursor: &mut Cursor<'_>, kind: u32, endian: Endian) -> Result<Value> {
    match array_item(kind).ok_or_else(|| unknown(kind))? {
        Item::Plain(dtype) => plain(cursor, dtype, endian),
        Item::Text => text(cursor, endian),
        Item::Array => {
            let (item, len) = array_head(cursor, endian)?;
            // the array's elements end where skipping them ends, which gives the range for reading them later
            let start = cursor.pos();
            if item == Item::Text && len >= VOCABULARY {
                let nbytes = len.saturating_mul(VOCABULARY_ENTRY);
                let range = (start, nbytes.min(cursor.remaining()));
                cursor.source().scattered(&mut std::iter::once(range));
            }
            let first = elements(cursor, item, len, endian, StoredArray::FIRST, 1)?;
            let bytes = ByteRange::new(start, cursor.pos() - start);
            Ok(Value::Array(StoredArray {
                item,
                len,
                bytes,
                endian,
                first,
            }))
        }
    }
}

/// Reads all elements of an array that was described by [`value`].
pub(crate) fn read(cursor: &mut Cursor<'_>, array: &StoredArray) -> Result<Value> {
    cursor.seek(array.bytes.start);
    elements(cursor, array.item, array.len, array.endian, u64::MAX, 1).map(Value::List)
}

/// Reads the first `most` elements of an array, at each depth, and skips the rest.
fn elements(
    cursor: &mut Cursor<'_>,
    item: Item,
    len: u64,
    endian: Endian,
    most: u64,
    depth: u64,
) -> Result<Box<[Value]>> {
    // before the elements: values are dropped by recursion, so the depth is limited even with `Limits::none`
    check_nesting(cursor, depth)?;
    let shown = len.min(most);
    let mut list = Vec::new();
    let budget = cursor.budget();
    for _ in 0..shown {
        let element = match item {
            Item::Plain(dtype) => plain(cursor, dtype, endian)?,
            Item::Text => text(cursor, endian)?,
            Item::Array => {
                let (item, len) = array_head(cursor, endian)?;
                Value::List(elements(cursor, item, len, endian, most, depth + 1)?)
            }
        };
        budget.push(&mut list, element, "a metadata array")?;
    }
    // skipped, not read: where the length of an item is fixed, skipping an array moves the position only
    skip_array(cursor, item, len - shown, endian, depth)?;
    Ok(list.into())
}

fn check_nesting(cursor: &Cursor<'_>, depth: u64) -> Result<()> {
    cursor.budget().depth(depth, "a nested array")?;
    if depth > NEST_MAX {
        return Err(
            Error::unsupported(format!("arrays nested deeper than {NEST_MAX}")).at(cursor.pos()),
        );
    }
    Ok(())
}

fn plain(cursor: &mut Cursor<'_>, dtype: Dtype, endian: Endian) -> Result<Value> {
    let width = usize::try_from(dtype.bits() / 8).expect("at most 8");
    let mut bytes = [0; 8];
    bytes[..width].copy_from_slice(cursor.take(width, "a value")?);
    if endian == Endian::Big {
        bytes[..width].reverse();
    }
    let unsigned = u64::from_le_bytes(bytes);
    // shifting the sign bit to the top and back extends it
    let signed = (unsigned << (64 - dtype.bits())).cast_signed() >> (64 - dtype.bits());
    Ok(match dtype {
        // one byte; the specification allows 0 and 1 only, and llama.cpp reads others as true as well
        Dtype::BOOL => Value::Bool(unsigned != 0),
        Dtype::F32 => Value::F32(f32::from_le_bytes(*bytes.first_chunk().expect("8 bytes"))),
        Dtype::F64 => Value::F64(f64::from_le_bytes(bytes)),
        Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64 => Value::I64(signed),
        _ => Value::U64(unsigned),
    })
}

/// Reads a text. Invalid UTF-8, which some tokenizers contain, is replaced, because texts are only displayed.
fn text(cursor: &mut Cursor<'_>, endian: Endian) -> Result<Value> {
    const WHAT: &str = "a metadata string";
    let len = u64(cursor, endian, "a string's length")?;
    let budget = cursor.budget();
    let bytes = cursor.take_long(len, "a string")?;
    if let Ok(text) = std::str::from_utf8(bytes) {
        budget.text(text.len(), WHAT)?;
        return Ok(Value::text(text));
    }
    // a replaced byte becomes three, in a text that doubles as it grows
    budget.memory(6 * text_cost(bytes.len()), WHAT)?;
    Ok(Value::text(String::from_utf8_lossy(bytes)))
}

fn array_head(cursor: &mut Cursor<'_>, endian: Endian) -> Result<(Item, u64)> {
    let at = cursor.pos();
    let kind = u32(cursor, endian, "an array's type")?;
    let len = u64(cursor, endian, "an array's length")?;
    Ok((array_item(kind).ok_or_else(|| unknown(kind).at(at))?, len))
}

/// Skips the elements of an array at this depth. Nested arrays are counted on an explicit stack instead of by recursion,
/// because the file controls their depth.
fn skip_array(
    cursor: &mut Cursor<'_>,
    item: Item,
    len: u64,
    endian: Endian,
    depth: u64,
) -> Result<()> {
    let mut open: Vec<u64> = Vec::new();
    let mut next = Some((item, len));
    loop {
        match next.take() {
            Some((Item::Plain(dtype), len)) => {
                let nbytes = dtype.nbytes(len).unwrap_or(u64::MAX);
                cursor.skip(nbytes, "an array")?;
            }
            Some((Item::Text, len)) => skip_strings(cursor, len, endian)?,
            Some((Item::Array, len)) => {
                // the shortest array has 12 bytes: a type and a length
                if len > cursor.remaining() / 12 {
                    return Err(cursor.truncated(len.saturating_mul(12), "an array of arrays"));
                }
                open.push(len);
                check_nesting(cursor, depth + open.len() as u64)?;
            }
            None => {}
        }
        while open.last() == Some(&0) {
            open.pop();
        }
        let Some(left) = open.last_mut() else {
            return Ok(());
        };
        *left -= 1;
        next = Some(array_head(cursor, endian)?);
    }
}

/// Skips `left` strings, each a length and that many bytes. Opening a file with a large tokenizer spends most of its time
/// here, so the loop walks over the bytes that one `peek` returns instead of calling the cursor per string.
fn skip_strings(cursor: &mut Cursor<'_>, mut left: u64, endian: Endian) -> Result<()> {
    // each string has at least its length of 8 bytes, which bounds the loop by the size of the file
    if left > cursor.remaining() / 8 {
        return Err(cursor.truncated(left.saturating_mul(8), "an array of strings"));
    }
    let big = endian == Endian::Big;
    while left > 0 {
        let at_hand = cursor.peek(8, "a string's length")?;
        let mut rest = at_hand;
        while left > 0
            && let Some((len, behind)) = rest.split_first_chunk::<8>()
        {
            let len = if big {
                u64::from_be_bytes(*len)
            } else {
                u64::from_le_bytes(*len)
            };
            let Some(next) = usize::try_from(len).ok().and_then(|len| behind.get(len..)) else {
                break;
            };
            rest = next;
            left -= 1;
        }
        // one call per window and not per string, because the cursor checks position, window and budget on each
        let passed = at_hand.len() - rest.len();
        if passed > 0 {
            cursor.skip(passed as u64, "strings")?;
        } else {
            // the string is longer than the bytes that `peek` returned
            let len = u64(cursor, endian, "a string's length")?;
            cursor.skip(len, "a string")?;
            left -= 1;
        }
    }
    Ok(())
}
