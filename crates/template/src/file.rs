//! A file of a model: where it lies below the model's root, and how it is known again.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::UNIX_EPOCH;

use crate::error::{Error, Result, quote};
use crate::hash::ContentKey;

/// The longest path in bytes.
const PATH_MAX: usize = 4096;

/// One file that a template speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Path relative to the model's root, components separated by `/`.
    pub path: Box<str>,
    /// Its length in bytes.
    pub nbytes: u64,
    /// Time of its last modification, in nanoseconds since 1970. A hint: a copy of a model has another.
    pub mtime: Option<i64>,
    /// A hash of its first bytes, where they were read.
    pub key: Option<ContentKey>,
}

impl File {
    /// A file known by path and length only.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if the path is absolute, empty, longer than 4096 bytes, leaves the
    /// root (`..`), or has a component or character that not every system allows (empty, `.`, NUL, `\`, a drive).
    pub fn new(path: impl Into<Box<str>>, nbytes: u64) -> Result<Self> {
        let path = path.into();
        check_path(&path)?;
        Ok(Self {
            path,
            nbytes,
            mtime: None,
            key: None,
        })
    }

    /// What `root/path` is now: length, time, and the key of its first 64 KiB, which are read.
    ///
    /// # Errors
    /// As [`new`](Self::new), and [`Io`](crate::ErrorKind::Io).
    pub fn probe(root: &Path, path: &str) -> Result<Self> {
        check_path(path)?;
        let place = root.join(path);
        let probe = || -> std::io::Result<_> {
            let opened = fs::File::open(&place)?;
            let about = opened.metadata()?;
            let mut head = Vec::new();
            opened.take(ContentKey::HEAD).read_to_end(&mut head)?;
            Ok((about, head))
        };
        let (about, head) = probe().map_err(|e| Error::from(e).in_file(&place))?;
        Self::of(path, &about, &head)
    }

    /// A file of which these are known: what the system says of it, and its first [`ContentKey::HEAD`] bytes.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of(path: impl Into<Box<str>>, about: &fs::Metadata, head: &[u8]) -> Result<Self> {
        let mtime = about
            .modified()
            .ok()
            .and_then(|time| match time.duration_since(UNIX_EPOCH) {
                Ok(after) => i64::try_from(after.as_nanos()).ok(),
                Err(before) => i64::try_from(before.duration().as_nanos()).ok().map(|n| -n),
            });
        Ok(Self {
            mtime,
            key: Some(ContentKey::of(head)),
            ..Self::new(path, about.len())?
        })
    }

    /// Whether the other is the same file as far as both know: path, length and key. Times are not compared.
    pub fn same(&self, other: &Self) -> bool {
        let keys = match (self.key, other.key) {
            (Some(a), Some(b)) => a == b,
            _ => true,
        };
        self.path == other.path && self.nbytes == other.nbytes && keys
    }
}

/// Whether `root.join(path)` is below `root` on every system.
pub(crate) fn check_path(path: &str) -> Result<()> {
    let refuse = |why: &str| Err(Error::invalid(format!("path {}: {why}", quote(path))));
    if path.is_empty() {
        return refuse("empty");
    }
    if path.len() > PATH_MAX {
        return refuse("longer than 4096 bytes");
    }
    if path.starts_with('/') || path.as_bytes().get(1) == Some(&b':') {
        return refuse("absolute; it must be relative to the model's root");
    }
    if path.contains(['\0', '\\']) {
        return refuse("NUL or backslash");
    }
    if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return refuse("a component that is empty, `.` or `..`");
    }
    Ok(())
}
