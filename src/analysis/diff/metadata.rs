//! The differences between the metadata of two checkpoints. Arrays that are left in the files are compared there.

use std::collections::{HashMap, HashSet};

use crate::base::error::{Error, Result};
use crate::base::limits::{Budget, text_cost};
use crate::read::catalog::{StoredArray, Value};
use crate::read::checkpoint::Checkpoint;
use crate::read::format::gguf;
use crate::read::source::cursor::Cursor;

use super::bytes::ranges_equal;
use super::differences::MetadataDifferences;

const WHAT: &str = "the comparison of metadata";

/// The differences between the metadata of `a` and `b`, by key. A key that occurs twice has its last value.
pub(super) fn differences(
    a: &Checkpoint,
    b: &Checkpoint,
    budget: &Budget,
) -> Result<MetadataDifferences> {
    const ROW: u64 = 3 * size_of::<(&str, &Value)>() as u64;
    let (old, new) = (a.catalog().metadata(), b.catalog().metadata());
    let rows = (old.len() + new.len()) as u64;
    let _rows = budget.temporary(2 * ROW * rows, WHAT)?;
    // maps: a file may have millions of keys
    let in_a: HashMap<&str, &Value> = old.iter().collect();
    let in_b: HashMap<&str, &Value> = new.iter().collect();
    let mut found = MetadataDifferences::default();
    let mut seen = HashSet::new();
    for (key, _) in old.iter().filter(|(key, _)| seen.insert(*key)) {
        let value = in_a[key];
        match in_b.get(key) {
            None => {
                budget.text(key.len(), WHAT)?;
                budget.push(&mut found.removed, key.to_owned(), WHAT)?;
            }
            Some(other) if is_same(a, value, b, other, 0, budget)? => {}
            Some(other) => {
                let memory = value.memory() + other.memory();
                budget.memory(256 + text_cost(key.len()) + 4 * memory, WHAT)?;
                let pair = [value, *other]
                    .map(|value| serde_json::to_value(value).unwrap_or(serde_json::Value::Null));
                found.changed.insert(key.to_owned(), pair.to_vec().into());
            }
        }
    }
    seen.clear();
    for (key, _) in new.iter().filter(|(key, _)| seen.insert(*key)) {
        if !in_a.contains_key(key) {
            budget.text(key.len(), WHAT)?;
            budget.push(&mut found.added, key.to_owned(), WHAT)?;
        }
    }
    Ok(found)
}

fn is_same(
    a: &Checkpoint,
    old: &Value,
    b: &Checkpoint,
    new: &Value,
    depth: u64,
    budget: &Budget,
) -> Result<bool> {
    budget.depth(depth, WHAT)?;
    Ok(match (old, new) {
        // NaN equals NaN, as in tensors
        (Value::F32(x), Value::F32(y)) => x == y || x.is_nan() && y.is_nan(),
        (Value::F64(x), Value::F64(y)) => x == y || x.is_nan() && y.is_nan(),
        // writers choose either type for small numbers
        (Value::U64(x), Value::I64(y)) | (Value::I64(y), Value::U64(x)) => {
            i128::from(*x) == i128::from(*y)
        }
        (Value::List(x), Value::List(y)) => {
            if x.len() != y.len() {
                return Ok(false);
            }
            for (x, y) in x.iter().zip(y) {
                if !is_same(a, x, b, y, depth + 1, budget)? {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Array(x), Value::Array(y)) => arrays_equal(a, x, b, y)?,
        (x, y) => x == y,
    })
}

fn arrays_equal(a: &Checkpoint, x: &StoredArray, b: &Checkpoint, y: &StoredArray) -> Result<bool> {
    if (x.item, x.len) != (y.item, y.len) {
        return Ok(false);
    }
    // values are compared, which a big-endian copy has in other bytes
    if x.endian != y.endian {
        let read = |checkpoint: &Checkpoint, array: &StoredArray| {
            let (file, budget) = (array.bytes.file, checkpoint.budget());
            let mut cursor = Cursor::new(checkpoint.source(file), &budget);
            let list = gguf::read_array(&mut cursor, array);
            checkpoint.check_header(file)?;
            list.map_err(|e| checkpoint.place(e, file))
        };
        return Ok(read(a, x)? == read(b, y)?);
    }
    let place = |checkpoint: &Checkpoint, file: u32, e: std::io::Error| {
        checkpoint.place(Error::from(e), file)
    };
    if x.bytes.len != y.bytes.len {
        return Ok(false);
    }
    ranges_equal(
        (a.source(x.bytes.file), x.bytes.start),
        (b.source(y.bytes.file), y.bytes.start),
        x.bytes.len,
    )
    .map_err(|(in_b, e)| match in_b {
        false => place(a, x.bytes.file, e),
        true => place(b, y.bytes.file, e),
    })
}
