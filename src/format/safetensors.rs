//! safetensors
use super::{Format, Head};
use crate::catalog::Catalog;
use crate::error::Result;
use crate::source::cursor::Cursor;
/// safetensors
pub static FORMAT: Format = Format { name: "safetensors", extensions: &["safetensors"], probe, read };
fn probe(_: &Head<'_>) -> bool {
    false
}
fn read(_: &mut Cursor<'_>, _: Head<'_>) -> Result<Catalog> {
    Ok(Catalog::new("safetensors"))
}
