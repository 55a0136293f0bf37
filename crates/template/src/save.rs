//! Saving templates to files and loading them.

use std::io::Read;
use std::path::Path;

use anamnesis_os::files::open_regular;
use anamnesis_os::whole_file::{self, WriteOptions};

use crate::error::{Error, Result};
use crate::{Template, TemplateLimits};

impl Template {
    /// Saves the binary form to `path`, or the JSON form if the path ends in `.json`. The template
    /// is written to a temporary file in the same directory and renamed, so that readers of `path`
    /// see the old or the new template, never a part. With `sync`, this also holds after a loss of
    /// power. Returns the length of the file, in bytes.
    ///
    /// # Errors
    /// [`Io`](crate::ErrorKind::Io); no file is left behind.
    pub fn save(&self, path: &Path, sync: bool) -> Result<u64> {
        self.put(path, sync, true)
    }

    /// Like [`save`](Self::save), but refuses to replace an existing file.
    ///
    /// # Errors
    /// The errors of [`save`](Self::save), and one if `path` exists; it is left unchanged.
    pub fn save_new(&self, path: &Path, sync: bool) -> Result<u64> {
        self.put(path, sync, false)
    }

    fn put(&self, path: &Path, sync: bool, overwrite: bool) -> Result<u64> {
        let bytes = if is_json(path) {
            self.to_json().into_bytes()
        } else {
            self.to_bytes()
        };
        let options = WriteOptions { overwrite, sync };
        let written = whole_file::write(path, &bytes, "iot", options);
        written.map_err(|e| Error::from(e).in_file(path))?;
        Ok(bytes.len() as u64)
    }

    /// Loads a template from a regular file, or a link to one. Its first byte tells the binary form
    /// from JSON.
    ///
    /// # Errors
    /// The errors of [`from_bytes`](Self::from_bytes), and [`Io`](crate::ErrorKind::Io), also for a named pipe, a socket or
    /// a device. The error contains the path.
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
