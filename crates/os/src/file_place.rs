//! The directory of a file that is being written, held while its path may get another one: a run that replaces a model exchanges
//! the directory.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::Path;
#[cfg(not(target_os = "linux"))]
use std::path::PathBuf;

use crate::files;
#[cfg(target_os = "linux")]
use crate::renames;

/// A directory, whatever has its path by now.
#[derive(Debug)]
pub(crate) struct FilePlace {
    #[cfg(target_os = "linux")]
    open: fs::File,
    #[cfg(not(target_os = "linux"))]
    path: PathBuf,
}

#[cfg(target_os = "linux")]
impl FilePlace {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        use rustix::fs::{Mode, OFlags, open};
        // without permission to list it, too
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = open(path, flags, Mode::empty())?.into();
        Ok(Self { open })
    }

    pub(crate) fn create(&self, name: &OsStr) -> io::Result<Option<fs::File>> {
        create_locked(&self.open, name)
    }

    pub(crate) fn rename(
        &self,
        from: &OsStr,
        to: &Self,
        name: &OsStr,
        overwrite: bool,
    ) -> io::Result<()> {
        if overwrite {
            return Ok(rustix::fs::renameat(&self.open, from, &to.open, name)?);
        }
        renames::rename_new((&self.open, from), (&to.open, name))
    }

    pub(crate) fn remove(&self, name: &OsStr) -> io::Result<()> {
        crate::directories::remove_file(&self.open, name)
    }

    /// Whether this file has a name in it.
    pub(crate) fn has(&self, name: &OsStr, file: &fs::File) -> bool {
        use std::os::unix::fs::MetadataExt;
        let found = rustix::fs::statat(&self.open, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
        let own = file.metadata();
        found.is_ok_and(|found| {
            own.is_ok_and(|own| (found.st_dev, found.st_ino) == (own.dev(), own.ino()))
        })
    }

    /// Whether it has this path.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        use std::os::unix::fs::MetadataExt;
        let number = |meta: fs::Metadata| (meta.dev(), meta.ino());
        let own = self.open.metadata().map(number).ok();
        own.is_some() && fs::metadata(path).map(number).ok() == own
    }
}

/// Other systems exchange no directories.
#[cfg(not(target_os = "linux"))]
impl FilePlace {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
        })
    }

    pub(crate) fn create(&self, name: &OsStr) -> io::Result<Option<fs::File>> {
        files::create_locked(&self.path.join(name))
    }

    pub(crate) fn rename(
        &self,
        from: &OsStr,
        to: &Self,
        name: &OsStr,
        overwrite: bool,
    ) -> io::Result<()> {
        let (from, to) = (self.path.join(from), to.path.join(name));
        match overwrite {
            true => fs::rename(from, to),
            false => files::rename_new(&from, &to),
        }
    }

    pub(crate) fn remove(&self, name: &OsStr) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    pub(crate) fn has(&self, _: &OsStr, _: &fs::File) -> bool {
        false
    }

    pub(crate) fn is_at(&self, _: &Path) -> bool {
        true
    }
}

/// Like [`files::create_locked`], in an open directory, whatever has its path by now.
///
/// # Errors
///
/// The errors of [`files::create_locked`].
#[cfg(target_os = "linux")]
fn create_locked(directory: &fs::File, name: &OsStr) -> io::Result<Option<fs::File>> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    // as other files are created: the process's mask decides
    let mode = Mode::from_raw_mode(0o666);
    let file = fs::File::from(rustix::fs::openat(directory, name, flags, mode)?);
    Ok((files::lock(&file) && !files::is_removed(&file)?).then_some(file))
}
