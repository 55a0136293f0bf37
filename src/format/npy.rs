//! npy
use super::{Format, Head};
use crate::catalog::Catalog;
use crate::error::Result;
use crate::source::cursor::Cursor;
/// npy
pub static FORMAT: Format = Format { name: "npy", extensions: &["npy"], probe, read };
fn probe(_: &Head<'_>) -> bool {
    false
}
fn read(_: &mut Cursor<'_>, _: Head<'_>) -> Result<Catalog> {
    Ok(Catalog::new("npy"))
}
