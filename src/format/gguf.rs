//! gguf
use super::{Format, Head};
use crate::catalog::Catalog;
use crate::error::Result;
use crate::source::cursor::Cursor;
/// gguf
pub static FORMAT: Format = Format { name: "gguf", extensions: &["gguf"], probe, read };
fn probe(_: &Head<'_>) -> bool {
    false
}
fn read(_: &mut Cursor<'_>, _: Head<'_>) -> Result<Catalog> {
    Ok(Catalog::new("gguf"))
}
pub(crate) fn read_array(
    _: &mut Cursor<'_>,
    _: &crate::metadata::StoredArray,
    _: u64,
) -> Result<crate::metadata::Value> {
    Ok(crate::metadata::Value::Null)
}
