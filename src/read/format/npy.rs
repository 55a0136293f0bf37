//! NPY, numpy's file format for one array.
//!
//! Specification: numpy's NEP 1 and `numpy/lib/_format_impl.py`; versions 1.0, 2.0 and 3.0.
//!
//! | bytes | content |
//! |---|---|
//! | 6 | `\x93NUMPY` |
//! | 2 | major and minor version |
//! | 2 or 4 | length of the header text, little endian (`u16` in 1.0, `u32` in 2.0 and 3.0) |
//! | length | a Python dict literal: `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }` |
//! | … | the elements |
//!
//! The literal is parsed, never evaluated. Object arrays are refused, because their data is a pickle. Bytes after the elements are ignored, as numpy ignores them.

mod descr;
mod header;
mod header_error;
mod literal;
mod typestr;

use super::{Format, Head};
use crate::base::error::Result;
use crate::base::limits::{Budget, TemporaryCharge};
use crate::read::catalog::metadata::Value;
use crate::read::catalog::{ByteRange, Catalog, Encoding};
use crate::read::source::cursor::Cursor;

pub(super) use header::{MAGIC, PRELUDE, Prelude};
pub(super) use header_error::HeaderError;
pub(super) use literal::Literal;

/// NPY: one array, without a name.
pub static FORMAT: Format = Format {
    name: "npy",
    extensions: &["npy"],
    probe,
    read,
};

/// The warning for arrays of dtype `f1`, once per file.
pub(super) const FLOAT8_GUESSED: &str = "the dtype 'f1', which numpy cannot read, is read as float8_e5m2: \
    ml_dtypes writes that dtype so, and no other";

/// Header texts longer than this, in bytes, are charged as memory. Ordinary headers have 118 bytes.
const CHARGED_FROM: usize = 4 << 10;

/// Bytes of a header that cost no step, and bytes per step of the others.
const FREE: usize = 128;
const BYTES_PER_STEP: usize = 2;

/// Memory per byte of a header while it is parsed: `[0],` is a list of one in a list, 192 bytes while both grow, and the
/// text is decoded first.
const PARSED: u64 = 56;

/// Charges a header text of this length. Returns the charge for the memory of parsing it.
///
/// Headers of an archive may be deflated a thousand times, so each also costs steps and, if it is long, memory that is not
/// released.
pub(super) fn charge_header<'b>(len: usize, budget: &'b Budget) -> Result<TemporaryCharge<'b>> {
    const WHAT: &str = "an NPY header";
    budget.steps((len.saturating_sub(FREE) / BYTES_PER_STEP) as u64, WHAT)?;
    if len <= CHARGED_FROM {
        return Ok(budget.nothing());
    }
    budget.memory(len as u64, WHAT)?;
    budget.temporary(PARSED * len as u64, WHAT)
}

/// The bytes of an item of this descriptor, and the number of its units of byte swapping, which is what reading it costs.
pub(super) fn item(descr: &Literal) -> Result<(u64, u64), HeaderError> {
    let item = descr::item(descr, 0)?.encoding;
    let units = match &item {
        Encoding::Opaque(opaque) => opaque.units.len() as u64,
        _ => 1,
    };
    Ok((item.unit().1, units))
}

fn probe(head: &Head<'_>) -> bool {
    head.bytes.starts_with(MAGIC)
}

fn read(cursor: &mut Cursor<'_>, _: Head<'_>) -> Result<Catalog> {
    let start = cursor.pos();
    // a file can be shorter than the prelude of version 2; `Prelude::read` reports where it ends
    let at_hand = usize::try_from(cursor.remaining())
        .unwrap_or(PRELUDE)
        .min(PRELUDE);
    let first = cursor.take(at_hand, "an NPY header")?;
    let prelude = Prelude::read(first).map_err(|error| error.error(start, None))?;
    // version 1 has a shorter length field, so that the text begins two bytes before the end of the prelude
    let parsing = charge_header(prelude.text_len, cursor.budget())?;
    cursor.seek(start.saturating_add(prelude.text_at as u64));
    let text = cursor.take_long(prelude.text_len as u64, "an NPY header")?;
    let array = prelude
        .array(text)
        .map_err(|error| error.error(start, None))?;
    drop(parsing);
    // the length of a stream is unknown until its end; `format::read_file` compares it then
    if cursor.len().is_some() && array.nbytes > cursor.remaining() {
        return Err(cursor.malformed(format!(
            "the array needs {} bytes, but {} follow its header: the file is cut off",
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
    if array.is_guessed_float8() {
        catalog.warnings.push(FLOAT8_GUESSED.into());
    }
    let bytes = ByteRange::new(cursor.pos(), array.nbytes);
    let budget = cursor.budget();
    budget.push(
        &mut catalog.tensors,
        array.tensor("", bytes),
        "the list of tensors",
    )?;
    Ok(catalog)
}
