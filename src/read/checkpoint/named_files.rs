//! The names of a checkpoint's files: those that an index, a directory or `.metadata` names are plain names next to it, all of
//! them present.

use std::borrow::Cow;
use std::path::{Component, Path, PathBuf};

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits::{Budget, text_cost};
use crate::read::catalog::quote;
use crate::read::source::files::Files;

/// The end of the name of an index.
pub(super) const INDEX: &str = ".index.json";

/// Memory of one file of a checkpoint, beyond its path: its source, the catalog of its header, its descriptor.
const FILE: u64 = 4 << 10;

/// Charges `n` files with names of at most this length, whose paths are made, checked and kept.
pub(super) fn charge_files(
    budget: &Budget,
    n: u64,
    directory: &Path,
    name_len: usize,
) -> Result<()> {
    let path = text_cost(directory.as_os_str().len() + 1 + name_len);
    budget.memory(
        n.saturating_mul(FILE + 4 * path),
        "the files of the checkpoint",
    )
}

/// The name of a file of an index, without `.` as a component. Clients write names in folders below the index; a name that
/// leaves its directory is refused.
pub(super) fn name_below(name: &str) -> Result<Cow<'_, str>> {
    // an index has a name per tensor, and nearly all are of this kind: no sign that a path can have a meaning in
    let is_sign = |byte: u8| matches!(byte, b'/' | b'\\' | b':' | 0);
    if !matches!(name, "" | "." | "..") && !name.bytes().any(is_sign) {
        return Ok(Cow::Borrowed(name));
    }
    if !name.contains('/') {
        return plain_name(name).map(Cow::Borrowed);
    }
    let mut below = String::with_capacity(name.len());
    for part in name.split('/').filter(|part| *part != ".") {
        if matches!(part, "" | "..") {
            return Err(Error::malformed(format!(
                "the index names {}, which is not a plain file name, nor the name of a file below its directory",
                quote(name)
            )));
        }
        if !below.is_empty() {
            below.push('/');
        }
        below.push_str(plain_name(part)?);
    }
    Ok(Cow::Owned(below))
}

/// Refuses a file name that is more than one path component: it would refer to a file outside of the directory.
pub(super) fn plain_name(name: &str) -> Result<&str> {
    let mut parts = Path::new(name).components();
    match (parts.next(), parts.next()) {
        // one rule for all systems: a backslash separates directories on Windows
        (Some(Component::Normal(_)), None) if !name.contains(['/', '\\', '\0']) => Ok(name),
        _ => Err(Error::malformed(format!(
            "the index names {}, which is not a plain file name",
            quote(name)
        ))),
    }
}

pub(super) fn require(files: &Files, paths: &[PathBuf]) -> Result<()> {
    let missing: Vec<String> = paths
        .iter()
        .filter(|f| !files.exists(f))
        .map(|f| file_name(f))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    const SHOWN: usize = 3;
    let more = if missing.len() > SHOWN {
        format!(" and {} more", missing.len() - SHOWN)
    } else {
        String::new()
    };
    let shown = missing[..missing.len().min(SHOWN)].join(", ");
    Err(Error::new(ErrorKind::MissingPart(format!(
        "{shown}{more} ({} of {} files)",
        missing.len(),
        paths.len()
    ))))
}

pub(super) fn file_name(path: &Path) -> String {
    path.file_name()
        .map(|n| n.to_string_lossy().into_owned())
        .unwrap_or_default()
}

pub(crate) fn is_index(path: &Path) -> bool {
    path.as_os_str()
        .as_encoded_bytes()
        .ends_with(INDEX.as_bytes())
}

/// Splits `prefix-00002-of-00003.ext` into `(prefix, 2, 3)`.
pub(super) fn split_name(name: &str) -> Option<(&str, u64, u64)> {
    let stem = name.rsplit_once('.')?.0;
    let (rest, of) = stem.rsplit_once("-of-")?;
    let (prefix, n) = rest.rsplit_once('-')?;
    let number = |s: &str| {
        // five digits are what most writers use; some have one number wider than the other
        (!s.is_empty() && s.bytes().all(|b| b.is_ascii_digit()))
            .then(|| s.parse().ok())
            .flatten()
    };
    Some((prefix, number(n)?, number(of)?))
}

/// The number in the name of a file of pieces, `shard-00001-model-….safetensors`.
pub(super) fn piece_number(name: &str) -> Option<u64> {
    let (number, _) = name.strip_prefix("shard-")?.split_once("-model")?;
    number.parse().ok()
}
