//! A file of a model: its path below the model's root, and what identifies its content.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::UNIX_EPOCH;

use anamnesis_os::files::open_regular;

use crate::content_key::ContentKey;
use crate::error::{Error, Result, quote};

/// Longest path in bytes: `PATH_MAX` of Linux.
const PATH_MAX: usize = 4096;

/// One file of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Path relative to the model's root, components separated by `/`.
    pub path: Box<str>,
    /// Its length in bytes.
    pub nbytes: u64,
    /// Modification time in nanoseconds since 1970. A hint only: copies of a model have other
    /// times.
    pub mtime: Option<i64>,
    /// A hash of its first bytes, if they were read.
    pub key: Option<ContentKey>,
}

impl File {
    /// Creates a file that is known by path and length only.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if the path is absolute, empty, longer than 4096
    /// bytes, leaves the root (`..`), or has a component or character that not every system allows
    /// (empty, `.`, NUL, `\`, a drive).
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

    /// Reads the length, the modification time and the content key (of the first 64 KiB) of
    /// `root/path`, which must be a regular file.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new), and [`Io`](crate::ErrorKind::Io).
    pub fn probe(root: &Path, path: &str) -> Result<Self> {
        check_path(path)?;
        let absolute = root.join(path);
        let probe = || -> std::io::Result<_> {
            let (opened, metadata) = open_regular(&absolute)?;
            let mut head = Vec::new();
            opened.take(ContentKey::HEAD).read_to_end(&mut head)?;
            Ok((metadata, head))
        };
        let (metadata, head) = probe().map_err(|e| Error::from(e).in_file(&absolute))?;
        Self::of(path, &metadata, &head)
    }

    /// Creates a file from its metadata and its first [`ContentKey::HEAD`] bytes.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new).
    pub fn of(path: impl Into<Box<str>>, metadata: &fs::Metadata, head: &[u8]) -> Result<Self> {
        let mtime =
            metadata
                .modified()
                .ok()
                .and_then(|time| match time.duration_since(UNIX_EPOCH) {
                    Ok(after) => i64::try_from(after.as_nanos()).ok(),
                    // before 1970
                    Err(before) => i64::try_from(before.duration().as_nanos()).ok().map(|n| -n),
                });
        Ok(Self {
            mtime,
            key: Some(ContentKey::of(head)),
            ..Self::new(path, metadata.len())?
        })
    }

    /// Whether both describe the same file: equal path, length and, where both have one, key. Times
    /// are not compared.
    pub fn same(&self, other: &Self) -> bool {
        let keys = match (self.key, other.key) {
            // a template of a file that was not read has no key, and describes it as well as it can
            (Some(a), Some(b)) => a == b,
            _ => true,
        };
        self.path == other.path && self.nbytes == other.nbytes && keys
    }
}

/// Checks that `root.join(path)` is below `root` on every operating system.
pub(crate) fn check_path(path: &str) -> Result<()> {
    let refuse = |rule: &str| Err(Error::invalid(format!("path {}: {rule}", quote(path))));
    if path.is_empty() {
        return refuse("must not be empty");
    }
    // before any other check, since messages quote the path
    if path.len() > PATH_MAX {
        return refuse("must not be longer than 4096 bytes");
    }
    // `C:` is a drive to Windows, and a template may be read there
    if path.starts_with('/') || path.as_bytes().get(1) == Some(&b':') {
        return refuse("must be relative to the model's root");
    }
    if path.contains(['\0', '\\']) {
        return refuse("must not contain NUL or a backslash");
    }
    if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return refuse("must not have a component that is empty, `.` or `..`");
    }
    Ok(())
}
