//! PyTorch files: the zip archives of 1.6 and later, TorchScript archives, and the streams before.
//!
//! A PyTorch file is a pickle and the storages it refers to. The pickle is read as data by a machine
//! that cannot call anything; what it would have called describes the tensors.

mod flatten;
mod geometry;
mod lazy;
mod leaf;
mod legacy;
mod numpy;
mod quantized;
mod rebuild;
mod sparse;
mod storage;
mod subclass;
#[cfg(test)]
mod tests;
mod zip;

use super::{Format, Head, pickle};
use crate::catalog::{Catalog, Endian};
use crate::error::{Error, ErrorKind, Result};
use crate::metadata::Value;
use crate::source::cursor::Cursor;

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
        // a safetensors header may have a length that begins like a pickle; 0 is no opcode
        None => legacy::begins(head.bytes) && head.bytes.get(2) != Some(&0),
    }
}

fn read(cursor: &mut Cursor<'_>, head: Head<'_>) -> Result<Catalog> {
    if let Some(archive) = &head.archive {
        return zip::read(cursor, archive);
    }
    if legacy::begins(head.bytes) {
        return legacy::read(cursor);
    }
    if legacy::is_tar(head.bytes) {
        return Err(Error::unsupported(
            "PyTorch's tar format, from before 0.1.10: save the file anew",
        ));
    }
    Err(Error::malformed("neither a zip archive nor a pickle, as PyTorch files are").at(0))
}

/// Facts that both containers have.
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

/// Places an error about a pickle: in the file, where the pickle lies there from `base` on as it is;
/// else by name.
fn in_pickle(error: Error, name: &str, base: Option<u64>) -> Error {
    let placed = match error.kind() {
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
