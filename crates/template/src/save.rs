//! Saving templates to files and loading them.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anamnesis_os::files;

use crate::error::{Error, Result};
use crate::file::open_regular;
use crate::{Template, TemplateLimits};

impl Template {
    /// Saves the binary form to `path`, or the JSON form if the path ends in `.json`. The template
    /// is written to a temporary file in the same directory and renamed, so that readers of `path`
    /// see the old or the new template, never a part. With `sync`, this also holds after a loss of
    /// power.
    ///
    /// # Errors
    /// [`Io`](crate::ErrorKind::Io); no file is left behind.
    pub fn save(&self, path: &Path, sync: bool) -> Result<()> {
        self.put(path, sync, |temporary| fs::rename(temporary, path))
    }

    /// As [`save`](Self::save), but refuses to replace an existing file.
    ///
    /// # Errors
    /// As [`save`](Self::save), and if `path` exists; it is left unchanged.
    pub fn save_new(&self, path: &Path, sync: bool) -> Result<()> {
        self.put(path, sync, |temporary| files::rename_new(temporary, path))
    }

    fn put(
        &self,
        path: &Path,
        sync: bool,
        rename: impl FnOnce(&Path) -> std::io::Result<()>,
    ) -> Result<()> {
        let bytes = if is_json(path) {
            self.to_json().into_bytes()
        } else {
            self.to_bytes()
        };
        put(path, &bytes, sync, rename).map_err(|e| Error::from(e).in_file(path))
    }

    /// Loads a template from a regular file, or a link to one. Its first byte tells the binary form
    /// from JSON.
    ///
    /// # Errors
    /// As [`from_bytes`](Self::from_bytes), and [`Io`](crate::ErrorKind::Io), also for a named pipe,
    /// a socket or a device. The error contains the path.
    pub fn load(path: &Path, limits: &TemplateLimits) -> Result<Self> {
        let read = || -> std::io::Result<Vec<u8>> {
            let (file, metadata) = open_regular(path)?;
            let mut bytes = Vec::new();
            // One byte more than the limit, so that a longer file exceeds it. No more than the length that the file had
            // when it was opened: files of /proc have none, and others grow.
            file.take(metadata.len().min(limits.bytes.saturating_add(1)))
                .read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let bytes = read().map_err(|e| Error::from(e).in_file(path))?;
        let json = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
        let read = if json {
            Self::from_json(&bytes, limits)
        } else {
            Self::from_bytes(&bytes, limits)
        };
        read.map_err(|e| e.in_file(path))
    }
}

fn is_json(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("json"))
}

fn put(
    path: &Path,
    bytes: &[u8],
    sync: bool,
    rename: impl FnOnce(&Path) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let name = path
        .file_name()
        .ok_or_else(|| std::io::Error::from(std::io::ErrorKind::InvalidFilename))?;
    // before the temporary file is written: its name is short, so that it would not fail
    if let Err(e) = fs::symlink_metadata(path)
        && e.kind() == std::io::ErrorKind::InvalidFilename
    {
        return Err(e);
    }
    let prefix = part_prefix(name);
    remove_abandoned(path, &prefix);
    let (file, temporary) = create_part(path, &prefix)?;
    // before the rename: otherwise the new name may outlive a loss of power without its bytes
    let written = (&file)
        .write_all(bytes)
        .and_then(|()| if sync { file.sync_all() } else { Ok(()) });
    // the lock is kept until the file has its name
    let renamed = written.and_then(|()| rename(&temporary));
    drop(file);
    if renamed.is_err() {
        let _ = fs::remove_file(&temporary); // the first error is the one to report
    } else if sync {
        files::sync_directory(directory_of(path))?;
    }
    renamed
}

/// Of the temporary names for a target: a hash, so that they are short whatever the target's length.
fn part_prefix(name: &OsStr) -> String {
    // FNV-1a: the same in every version of this library
    let hash = name
        .as_encoded_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
    format!(".iot-{hash:016x}-")
}

/// Creates a temporary file, locked while it is open.
fn create_part(path: &Path, prefix: &str) -> std::io::Result<(fs::File, PathBuf)> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let mut last = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
    for _ in 0..100 {
        // process and number make the name unique among writers of the same path; `create_new` refuses a file that is
        // there nevertheless
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let part = format!("{prefix}{}-{number}.part", std::process::id());
        let part = path.with_file_name(part);
        match files::create_locked(&part) {
            Ok(Some(file)) => return Ok((file, part)),
            Ok(None) => {}
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => last = e,
            Err(e) => return Err(e),
        }
    }
    Err(last)
}

/// Removes the temporary files that processes left when they were killed. A failure does not keep the template from being
/// saved.
fn remove_abandoned(path: &Path, prefix: &str) {
    for entry in fs::read_dir(directory_of(path))
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = entry.file_name();
        let is_part = name
            .to_str()
            .is_some_and(|name| name.starts_with(prefix) && name.ends_with(".part"));
        if is_part && files::is_abandoned(&entry.path()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn directory_of(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}
