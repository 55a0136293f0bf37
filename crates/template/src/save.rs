//! Templates in files.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Error, Result};
use crate::{Limits, Template};

impl Template {
    /// Writes the binary form to `path`, or the JSON form if it ends in `.json`. It is written beside and renamed:
    /// whoever reads `path` sees the old template or the new one. With `sync`, also after a loss of power.
    ///
    /// # Errors
    /// [`Io`](crate::ErrorKind::Io); nothing is left behind then.
    pub fn save(&self, path: &Path, sync: bool) -> Result<()> {
        self.put(path, sync, |beside| fs::rename(beside, path))
    }

    /// As [`save`](Self::save), under a name that nothing has yet.
    ///
    /// # Errors
    /// As [`save`](Self::save), and if there is something under this name, which is kept.
    pub fn save_new(&self, path: &Path, sync: bool) -> Result<()> {
        let taken = || std::io::Error::from(std::io::ErrorKind::AlreadyExists);
        self.put(path, sync, |beside| match fs::hard_link(beside, path) {
            Ok(()) => fs::remove_file(beside),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Err(e),
            // a file system without second names
            Err(_) if fs::symlink_metadata(path).is_ok() => Err(taken()),
            Err(_) => fs::rename(beside, path),
        })
    }

    fn put(
        &self,
        path: &Path,
        sync: bool,
        keep: impl FnOnce(&Path) -> std::io::Result<()>,
    ) -> Result<()> {
        let bytes = if is_json(path) {
            self.to_json().into_bytes()
        } else {
            self.to_bytes()
        };
        put(path, &bytes, sync, keep).map_err(|e| Error::from(e).in_file(path))
    }

    /// Reads a template from a file: the binary form, or JSON, as its first byte says.
    ///
    /// # Errors
    /// As [`from_bytes`](Self::from_bytes), and [`Io`](crate::ErrorKind::Io). The file is named.
    pub fn load(path: &Path, limits: &Limits) -> Result<Self> {
        let read = || -> std::io::Result<Vec<u8>> {
            let mut bytes = Vec::new();
            // one byte more than allowed, so that what is longer is refused
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
    keep: impl FnOnce(&Path) -> std::io::Result<()>,
) -> std::io::Result<()> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let name = path
        .file_name()
        .ok_or_else(|| std::io::Error::from(std::io::ErrorKind::InvalidFilename))?;
    let mut beside = std::ffi::OsString::from(".");
    beside.push(name);
    beside.push(format!(
        ".{}.{}",
        std::process::id(),
        NUMBER.fetch_add(1, Ordering::Relaxed)
    ));
    let beside = path.with_file_name(beside);
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&beside)?;
    let written = file
        .write_all(bytes)
        .and_then(|()| if sync { file.sync_all() } else { Ok(()) });
    drop(file);
    let kept = written.and_then(|()| keep(&beside));
    if kept.is_err() {
        let _ = fs::remove_file(&beside); // the first error is the one to tell
    } else if sync {
        sync_directory(path)?;
    }
    kept
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
