//! One file on its way: written under another name, then renamed.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// A file that is not under its name yet.
#[derive(Debug)]
pub(super) struct Shard {
    target: PathBuf,
    /// Where it is written; `None` once it has its name.
    beside: Option<PathBuf>,
    file: File,
}

impl Shard {
    /// Begins a file of so many bytes with these.
    pub(super) fn create(target: &Path, header: &[u8], nbytes: u64) -> Result<Self> {
        let name = target
            .file_name()
            .ok_or_else(|| Error::misuse("the target is not a file name"))?;
        let mut beside = None;
        let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
        for attempt in 0..100 {
            let part = format!(
                ".{}.{}-{attempt}.part",
                name.to_string_lossy(),
                std::process::id()
            );
            let path = target.with_file_name(part);
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => {
                    beside = Some((path, file));
                    break;
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => last = e,
                Err(e) => return Err(Error::from(e).in_file(target)),
            }
        }
        let Some((path, file)) = beside else {
            return Err(Error::from(last).in_file(target));
        };
        let shard = Self {
            target: target.to_owned(),
            beside: Some(path),
            file,
        };
        shard.reserve(nbytes)?;
        shard.write(0, header)?;
        Ok(shard)
    }

    /// Has the file system find room now: for all of it and in one place, whatever the order of the writes.
    fn reserve(&self, nbytes: u64) -> Result<()> {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        {
            use rustix::fs::{FallocateFlags, fallocate};
            use rustix::io::Errno;
            // any other failure: a file system that cannot, and finds room as it goes
            if let Err(e @ (Errno::NOSPC | Errno::FBIG | Errno::DQUOT)) =
                fallocate(&self.file, FallocateFlags::empty(), 0, nbytes.max(1))
            {
                return Err(Error::from(io::Error::from(e)).in_file(&self.target));
            }
        }
        let _ = nbytes;
        Ok(())
    }

    pub(super) fn target(&self) -> &Path {
        &self.target
    }

    pub(super) fn write(&self, start: u64, bytes: &[u8]) -> Result<()> {
        write_all_at(&self.file, start, bytes).map_err(|e| Error::from(e).in_file(&self.target))
    }

    /// Gives it its name.
    pub(super) fn keep(&mut self, overwrite: bool) -> Result<()> {
        let Some(beside) = self.beside.clone() else {
            return Ok(());
        };
        let kept = if overwrite {
            fs::rename(&beside, &self.target)
        } else {
            rename_new(&beside, &self.target)
        };
        kept.map_err(|e| Error::from(e).in_file(&self.target))?;
        self.beside = None;
        Ok(())
    }

    /// Takes it away again after it got its name.
    pub(super) fn remove(&self) {
        // another error is being told already
        let _ = fs::remove_file(&self.target);
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        if let Some(beside) = &self.beside {
            // nobody is left to hear of a failure
            let _ = fs::remove_file(beside);
        }
    }
}

/// Renames, unless someone made a file of that name meanwhile.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            // a file system that cannot promise it
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {}
            done => return done.map_err(io::Error::from),
        }
    }
    if fs::symlink_metadata(to).is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    fs::rename(from, to)
}

#[cfg(unix)]
fn write_all_at(file: &File, start: u64, bytes: &[u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, start)
}

#[cfg(windows)]
fn write_all_at(file: &File, mut start: u64, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let n = std::os::windows::fs::FileExt::seek_write(file, bytes, start)?;
        if n == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        (start, bytes) = (start + n as u64, &bytes[n..]);
    }
    Ok(())
}

/// Refuses to begin what cannot be ended.
pub(super) fn check_space(folder: &Path, needed: u64, target: &Path) -> Result<()> {
    #[cfg(unix)]
    {
        let folder = if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            folder
        };
        let Ok(stat) = rustix::fs::statvfs(folder) else {
            return Ok(());
        };
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        if free < needed {
            let what = format!("{needed} bytes are needed, and {free} are free");
            return Err(
                Error::from(io::Error::new(io::ErrorKind::StorageFull, what)).in_file(target),
            );
        }
    }
    let _ = (folder, needed, target);
    Ok(())
}
