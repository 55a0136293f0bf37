//! The files of a checkpoint whose headers are edited.

use crate::base::error::{Error, Result};
use crate::base::limits::Budget;
use crate::engine::sink::in_place::EditPlace;
use crate::read::checkpoint::Checkpoint;

use super::header::EditedHeader;

/// Opens all files of tensors, and reads their headers.
pub(super) fn open(
    place: &EditPlace,
    checkpoint: &Checkpoint,
    copy: bool,
    budget: &Budget,
) -> Result<Vec<EditedHeader>> {
    let catalog = checkpoint.catalog();
    let mut headers = Vec::new();
    for file in catalog.files() {
        let path = file.path.as_ref();
        let path = path.ok_or_else(|| Error::unsupported("a file without a path is not edited"))?;
        let target = place.open(path, copy)?;
        headers.push(EditedHeader::read(target, catalog.format(), budget)?);
    }
    Ok(headers)
}
