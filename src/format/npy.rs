//! NPY: one array of numpy.
//!
//! The header is a Python literal in text. Bytes behind the array are left alone, as
//! numpy leaves them.

mod descr;
mod fault;
mod header;
mod literal;
mod typestr;

use super::{Format, Head};
use crate::catalog::{ByteRange, Catalog};
use crate::error::Result;
use crate::metadata::Value;
use crate::source::cursor::Cursor;

pub(super) use fault::Fault;
pub(super) use header::{MAGIC, PRELUDE, Prelude};

/// NPY: one array, without a name.
pub static FORMAT: Format = Format {
    name: "npy",
    extensions: &["npy"],
    probe,
    read,
};

/// Said once per file that has an `f1` in it.
pub(super) const FLOAT8_GUESSED: &str = "the dtype 'f1', which numpy cannot read, is taken to be float8_e5m2: \
    ml_dtypes writes that so, and nothing else";

/// Header text that is worth counting against the limits.
pub(super) const LONG: usize = 4 << 10;

fn probe(head: &Head<'_>) -> bool {
    head.bytes.starts_with(MAGIC)
}

fn read(cursor: &mut Cursor<'_>, _: Head<'_>) -> Result<Catalog> {
    let start = cursor.pos();
    let at_hand = usize::try_from(cursor.remaining())
        .unwrap_or(PRELUDE)
        .min(PRELUDE);
    let first = cursor.take(at_hand, "an NPY header")?;
    let prelude = Prelude::read(first).map_err(|fault| fault.error(start, None))?;
    if prelude.text_len > LONG {
        cursor
            .budget()
            .memory(prelude.text_len as u64, "an NPY header")?;
    }
    cursor.seek(start.saturating_add(prelude.text_at as u64));
    let text = cursor.take_long(prelude.text_len as u64, "an NPY header")?;
    let array = prelude
        .array(text)
        .map_err(|fault| fault.error(start, None))?;
    // of a stream the length is found later, and compared then
    if cursor.len().is_some() && array.nbytes > cursor.remaining() {
        return Err(cursor.malformed(format!(
            "the array takes {} bytes, and {} follow its header: the file is cut off",
            array.nbytes,
            cursor.remaining()
        )));
    }
    cursor.budget().tensors(1)?;
    cursor
        .budget()
        .memory(array.memory(), "a structured dtype")?;

    let mut catalog = Catalog::new(FORMAT.name);
    catalog.detail(
        "version",
        Value::Text(format!("{}.0", prelude.major).into()),
    );
    catalog.detail(
        "order",
        Value::Text(if array.fortran { "fortran" } else { "c" }.into()),
    );
    if array.guessed() {
        catalog.warnings.push(FLOAT8_GUESSED.into());
    }
    let bytes = ByteRange::new(cursor.pos(), array.nbytes);
    catalog.tensors.push(array.tensor("", bytes));
    Ok(catalog)
}
