//! Saving templates to files and loading them.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Error, Result};
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
        let taken = || std::io::Error::from(std::io::ErrorKind::AlreadyExists);
        self.put(path, sync, |temporary| {
            // a link fails if the name exists, which a rename does not
            match fs::hard_link(temporary, path) {
                Ok(()) => fs::remove_file(temporary),
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Err(e),
                // Without hard links, this check and the rename below race with other writers.
                Err(_) if fs::symlink_metadata(path).is_ok() => Err(taken()),
                Err(_) => fs::rename(temporary, path),
            }
        })
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

    /// Loads a template from a file. Its first byte tells the binary form from JSON.
    ///
    /// # Errors
    /// As [`from_bytes`](Self::from_bytes), and [`Io`](crate::ErrorKind::Io). The error contains
    /// the path.
    pub fn load(path: &Path, limits: &TemplateLimits) -> Result<Self> {
        let read = || -> std::io::Result<Vec<u8>> {
            let mut bytes = Vec::new();
            // One byte more than the limit, so that a longer file exceeds it.
            fs::File::open(path)?
                .take(limits.bytes.saturating_add(1))
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
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let name = path
        .file_name()
        .ok_or_else(|| std::io::Error::from(std::io::ErrorKind::InvalidFilename))?;
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    // process and number make the name unique among writers of the same path; `create_new` below refuses a file that is
    // there nevertheless
    temporary.push(format!(
        ".{}.{}",
        std::process::id(),
        NUMBER.fetch_add(1, Ordering::Relaxed)
    ));
    let temporary = path.with_file_name(temporary);
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&temporary)?;
    // before the rename: otherwise the new name may outlive a loss of power without its bytes
    let written = file
        .write_all(bytes)
        .and_then(|()| if sync { file.sync_all() } else { Ok(()) });
    drop(file);
    let renamed = written.and_then(|()| rename(&temporary));
    if renamed.is_err() {
        let _ = fs::remove_file(&temporary); // the first error is the one to report
    } else if sync {
        sync_directory(path)?;
    }
    renamed
}

#[cfg(unix)]
fn sync_directory(path: &Path) -> std::io::Result<()> {
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    fs::File::open(directory)?.sync_all()
}

#[cfg(not(unix))]
fn sync_directory(_: &Path) -> std::io::Result<()> {
    Ok(())
}
