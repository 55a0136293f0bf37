//! pth
use super::{Format, Head};
use crate::catalog::Catalog;
use crate::error::Result;
use crate::source::cursor::Cursor;
/// pth
pub static FORMAT: Format = Format { name: "pth", extensions: &["pth"], probe, read };
fn probe(_: &Head<'_>) -> bool {
    false
}
fn read(_: &mut Cursor<'_>, _: Head<'_>) -> Result<Catalog> {
    Ok(Catalog::new("pth"))
}
