//! PyTorch files: zip archives (1.6 and later), TorchScript archives, and the older stream format.
//!
//! Specification: `torch/serialization.py` and `torch/_utils.py` of PyTorch.
//!
//! | container | content | read by |
//! |---|---|---|
//! | zip | `<root>/data.pkl`, `<root>/data/<key>` per storage, `byteorder`; TorchScript adds `code/` | `zip.rs` |
//! | stream | five pickles (magic number, protocol, system, object, storage keys), then the storages | `legacy.rs` |
//!
//! The pickle describes the tensors by calls such as `_rebuild_tensor_v2(storage, offset, size, stride, …)`. The
//! interpreter of `pickle.rs` records these calls without making them; `rebuild.rs` reads them as descriptions, and
//! `flatten.rs` gives the tensors dotted names. Refused: globals that are not plain data, by name; the tar format from
//! before PyTorch 0.1.10.

mod attributes;
mod flatten;
pub(super) mod geometry;
mod legacy;
mod not_shown;
mod objects;
mod open_container;
mod plain_values;
mod rebuild;
mod storage;
#[cfg(test)]
mod tests;
mod view_flags;
mod zip;

use super::{Format, Head, pickle};
use crate::base::error::{Error, ErrorKind, Result};
use crate::read::catalog::metadata::Value;
use crate::read::catalog::{Catalog, Endian};
use crate::read::objects::ObjectTree;
use crate::read::source::cursor::Cursor;

/// PyTorch checkpoints and TorchScript archives.
pub static FORMAT: Format = Format {
    name: "pth",
    extensions: &["pth", "pt", "bin", "ckpt", "jit", "ptl", "th"],
    probe,
    read,
};

fn probe(head: &Head<'_>) -> bool {
    match &head.archive {
        Some(archive) => archive
            .entries
            .iter()
            .any(|entry| zip::root_of(&entry.name).is_some()),
        // the length of a safetensors header may begin like a pickle (`80 02`), but is followed by zeros, and 0 is not
        // an opcode
        None => legacy::begins(head.bytes) && head.bytes.get(2) != Some(&0),
    }
}

fn read(cursor: &mut Cursor<'_>, head: Head<'_>) -> Result<Catalog> {
    // the first bytes decide, not the extension: `.bin` and `.pt` name both containers
    if let Some(archive) = &head.archive {
        return zip::read(cursor, archive, &head);
    }
    if legacy::begins(head.bytes) {
        return legacy::read(cursor, head.opaque);
    }
    if legacy::is_tar(head.bytes) {
        return Err(Error::unsupported(
            "the tar format of PyTorch before 0.1.10 cannot be read; load and save the file with a newer PyTorch",
        ));
    }
    Err(Error::malformed(
        "the file begins neither like a zip archive nor like a pickle, which PyTorch files do",
    )
    .at(0))
}

/// The object of the file, and a catalog of its storages: each is a tensor whose name is its number.
pub(crate) fn objects(
    cursor: &mut Cursor<'_>,
    head: &Head<'_>,
    named: bool,
) -> Result<(ObjectTree, Catalog)> {
    match &head.archive {
        Some(archive) => zip::objects(cursor, archive, head.opaque, named),
        None => legacy::objects(cursor, head.opaque, named),
    }
}

/// Adds the details that both containers have.
fn details(
    catalog: &mut Catalog,
    container: &'static str,
    endian: Endian,
    pickle: &pickle::Pickle<'_>,
) {
    let byteorder = match endian {
        Endian::Little => "little",
        Endian::Big => "big",
    };
    catalog.detail("container", Value::text(container));
    catalog.detail("byteorder", Value::text(byteorder));
    catalog.detail("protocol", Value::U64(u64::from(pickle.protocol)));
    catalog.detail("storages", Value::U64(catalog.members.len() as u64));
}

/// Adds the place to an error about a pickle: the offset in the file if the pickle is stored uncompressed at `base`, else
/// the name of its member, because an offset in inflated bytes is not an offset in the file.
fn in_pickle(error: Error, name: &str, base: Option<u64>) -> Error {
    let placed = match error.kind() {
        // the error is made anew, because `at` keeps the innermost offset, which counts from the beginning of the
        // pickle
        ErrorKind::Malformed(what) if base.is_some() => Error::malformed(what),
        ErrorKind::Malformed(what) => Error::malformed(format!("in {name}: {what}")),
        ErrorKind::RefusedGlobal { module, name } => Error::new(ErrorKind::RefusedGlobal {
            module: module.clone(),
            name: name.clone(),
        }),
        _ => return error,
    };
    match error.offset() {
        Some(offset) => placed.at(base.unwrap_or(0).saturating_add(offset)),
        None => placed,
    }
}
