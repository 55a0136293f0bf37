//! The file operations of the sink.
//!
//! They are a trait so that a test can record them, and replay what a loss of power leaves of each prefix
//! (`power_loss.rs`).

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

/// Creates, writes, syncs and names files.
pub(super) trait FileOperations: fmt::Debug + Send + Sync {
    /// A file without a name in this directory; the kernel removes it when the process ends. `None` where the file system
    /// has none.
    fn create_unnamed(&self, directory: &Path) -> io::Result<Option<File>>;

    /// A file of this name, which must not exist, locked while it is open. `None` if another process locked or removed it
    /// meanwhile.
    fn create(&self, path: &Path) -> io::Result<Option<File>>;

    fn write(&self, file: &File, start: u64, bytes: &[u8]) -> io::Result<()>;

    /// Returns when the file's bytes outlive a loss of power.
    fn sync(&self, file: &File) -> io::Result<()>;

    /// Names a file of [`create_unnamed`](Self::create_unnamed). Fails if the name exists.
    fn link(&self, file: &File, to: &Path) -> io::Result<()>;

    /// Replaces what has the name `to`.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// As [`rename`](Self::rename), but fails if `to` exists.
    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()>;

    fn remove(&self, path: &Path) -> io::Result<()>;

    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;

    /// Returns when the names in the directory outlive a loss of power.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;
}

/// The system's files.
#[derive(Clone, Copy, Debug)]
pub(super) struct SystemFiles {
    /// Whether unnamed files are created where the file system has them.
    pub(super) unnamed: bool,
}

impl FileOperations for SystemFiles {
    fn create_unnamed(&self, directory: &Path) -> io::Result<Option<File>> {
        if !self.unnamed {
            return Ok(None);
        }
        #[cfg(any(target_os = "linux", target_os = "android"))]
        {
            use rustix::fs::OFlags;
            use rustix::io::Errno;
            use std::os::unix::fs::OpenOptionsExt;
            let mut options = OpenOptions::new();
            options.read(true).write(true);
            options.custom_flags(OFlags::TMPFILE.bits().cast_signed());
            match options.open(directory) {
                // `linkat` of a descriptor needs /proc, or a privilege
                Ok(file) if fs::symlink_metadata(descriptor_path(&file)).is_ok() => {
                    // by the time it has a name, other runs must see that its process lives
                    lock(&file)?;
                    Ok(Some(file))
                }
                Ok(_) => Ok(None),
                // what file systems without unnamed files return; a kernel without the flag opens the directory
                Err(e)
                    if [Errno::OPNOTSUPP, Errno::ISDIR, Errno::INVAL, Errno::NOSYS]
                        .iter()
                        .any(|errno| e.raw_os_error() == Some(errno.raw_os_error())) =>
                {
                    Ok(None)
                }
                Err(e) => Err(e),
            }
        }
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        {
            let _ = directory;
            Ok(None)
        }
    }

    fn create(&self, path: &Path) -> io::Result<Option<File>> {
        // `create_new` neither follows a link nor opens a file that another process has placed under this name
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).open(path)?;
        // between the two calls another run may have taken the file for one of a dead process, and removed it
        Ok((lock(&file)? && !is_removed(&file)?).then_some(file))
    }

    fn write(&self, file: &File, start: u64, bytes: &[u8]) -> io::Result<()> {
        write_all_at(file, start, bytes)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        // on macOS, `fsync` leaves the bytes in the device's cache; this call is `F_FULLFSYNC` there
        file.sync_all()
    }

    fn link(&self, file: &File, to: &Path) -> io::Result<()> {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        {
            use rustix::fs::{AtFlags, CWD, linkat};
            let from = descriptor_path(file);
            Ok(linkat(CWD, from, CWD, to, AtFlags::SYMLINK_FOLLOW)?)
        }
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        {
            let _ = (file, to);
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        {
            use rustix::fs::{CWD, RenameFlags, renameat_with};
            match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
                // a file system without this flag: checked below, with a race
                Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {}
                done => return done.map_err(io::Error::from),
            }
        }
        if fs::symlink_metadata(to).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        #[cfg(unix)]
        {
            use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
            // some file systems cannot sync a directory, and a directory that may be written may be unreadable: its
            // names are then as durable as that system makes them
            match File::open(path).and_then(|directory| directory.sync_all()) {
                Err(e) if matches!(e.kind(), InvalidInput | PermissionDenied | Unsupported) => {
                    Ok(())
                }
                done => done,
            }
        }
        #[cfg(not(unix))]
        {
            let _ = path;
            Ok(())
        }
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn descriptor_path(file: &File) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Locks a file while it is open; false if another process holds the lock. A lock ends with its process, is visible
/// in other process namespaces and, unlike a process id, is never another process's.
fn lock(file: &File) -> io::Result<bool> {
    // on Windows a lock would keep readers from a file that has its name already
    if cfg!(windows) {
        return Ok(true);
    }
    match file.try_lock() {
        // without locks no file of a dead process is found, and none is removed
        Ok(()) | Err(fs::TryLockError::Error(_)) => Ok(true),
        Err(fs::TryLockError::WouldBlock) => Ok(false),
    }
}

#[cfg(unix)]
fn is_removed(file: &File) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    Ok(file.metadata()?.nlink() == 0)
}

#[cfg(not(unix))]
fn is_removed(_: &File) -> io::Result<bool> {
    Ok(false)
}

/// Whether a file under construction belongs to a process that has ended. Anything but a regular file does not.
pub(super) fn is_abandoned(path: &Path) -> bool {
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        use std::os::unix::fs::OpenOptionsExt;
        let mut options = OpenOptions::new();
        // a lock over NFS needs a file that is open for writing
        options.read(true).write(true);
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        options.custom_flags(flags.bits().cast_signed());
        let Ok(file) = options.open(path) else {
            return false;
        };
        file.metadata().is_ok_and(|meta| meta.is_file()) && file.try_lock().is_ok()
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        false
    }
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
