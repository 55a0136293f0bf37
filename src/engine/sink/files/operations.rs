//! The file operations of the sink.
//!
//! They are a trait so that tests can record them, replay what a loss of power leaves of each prefix, let each of them
//! fail, and interleave the operations of several runs (`power_loss.rs`).

use std::fmt;
use std::fs::{self, File};
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::AsFd;
use std::path::Path;

#[cfg(target_os = "linux")]
use anamnesis_os::directories;
use anamnesis_os::directory_lock::DirectoryLock;
use anamnesis_os::files;
#[cfg(target_os = "linux")]
use anamnesis_os::range_copier::{CopiedRange, RangeCopier};

/// Creates, writes, syncs and names files.
pub(super) trait FileOperations: fmt::Debug + Send + Sync {
    /// A file without a name in this directory; the kernel removes it when the process ends. `None` where the file system
    /// has none.
    fn create_unnamed(&self, directory: &Path) -> io::Result<Option<File>>;

    /// A file of this name, which must not exist, locked while it is open. `None` if another process locked or removed it
    /// meanwhile.
    fn create(&self, path: &Path) -> io::Result<Option<File>>;

    fn write(&self, file: &File, start: u64, bytes: &[u8]) -> io::Result<()>;

    /// Copies the first bytes of a range to `to` within the system ([`RangeCopier::copy`]). Returns how many; 0 and an error mean that this is not possible here, and that the bytes are to be read and
    /// [written](Self::write).
    #[cfg(target_os = "linux")]
    fn copy(&self, copier: &mut RangeCopier, range: CopiedRange<'_>, to: &File) -> io::Result<u64>;

    /// Begins to write the file's bytes to its device, so that [`sync`](Self::sync) has less to wait for.
    fn start_writeback(&self, _file: &File) {}

    /// Returns when the file's bytes outlive a loss of power.
    fn sync(&self, file: &File) -> io::Result<()>;

    /// Names a file of [`create_unnamed`](Self::create_unnamed). Fails if the name exists.
    fn link(&self, file: &File, to: &Path) -> io::Result<()>;

    /// Replaces what has the name `to`.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Like [`rename`](Self::rename), but fails if `to` exists.
    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()>;

    fn remove(&self, path: &Path) -> io::Result<()>;

    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;

    /// Locks a directory; `None` if another run holds its lock.
    fn lock_directory(&self, path: &Path) -> io::Result<Option<DirectoryLock>> {
        DirectoryLock::acquire(path)
    }

    /// Returns when the names in the directory outlive a loss of power.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;

    /// An existing regular file, to change it where it is: locked while it is open, and no link. `None` if another process has
    /// locked it.
    fn open_existing(&self, path: &Path) -> io::Result<Option<File>>;

    /// Inserts zeros in front of the bytes of a file, without moving these.
    fn insert(&self, file: &File, len: u64) -> io::Result<()>;

    /// Lets `to` share the bytes of `from` that begin at `start`, from `at` on.
    fn share(&self, from: &File, start: u64, to: &File, at: u64) -> io::Result<()>;

    /// A directory of this name, which must not exist, that other users cannot open.
    #[cfg(target_os = "linux")]
    fn create_private_directory(&self, path: &Path) -> io::Result<()>;

    /// Gives an existing file, or link, a second name. Fails if the name exists.
    #[cfg(target_os = "linux")]
    fn link_existing(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Exchanges two directories in one step.
    #[cfg(target_os = "linux")]
    fn exchange(&self, a: &Path, b: &Path) -> io::Result<()>;

    /// Removes the file at `path` from its directory, which is open: whatever has the directory's name by now.
    #[cfg(target_os = "linux")]
    fn remove_from(&self, directory: &File, path: &Path) -> io::Result<()>;
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
            let mut options = fs::OpenOptions::new();
            options.read(true).write(true);
            options.custom_flags(OFlags::TMPFILE.bits().cast_signed());
            match options.open(directory) {
                // `linkat` of a descriptor needs /proc, or a privilege
                Ok(file) if fs::symlink_metadata(descriptor_path(&file)).is_ok() => {
                    // by the time it has a name, other runs must see that its process lives
                    files::lock(&file);
                    Ok(Some(file))
                }
                Ok(_) => Ok(None),
                // errors of file systems without unnamed files; a kernel without the flag opens the directory
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
        files::create_locked(path)
    }

    fn write(&self, file: &File, start: u64, bytes: &[u8]) -> io::Result<()> {
        write_all_at(file, start, bytes)
    }

    #[cfg(target_os = "linux")]
    fn copy(&self, copier: &mut RangeCopier, range: CopiedRange<'_>, to: &File) -> io::Result<u64> {
        copier.copy(range, to.as_fd())
    }

    #[cfg(target_os = "linux")]
    fn start_writeback(&self, file: &File) {
        // `sync` fails with the same error, and reports it
        let _ = anamnesis_os::writeback::start(file);
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
        files::rename_new(from, to)
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
        files::sync_directory(path)
    }

    fn open_existing(&self, path: &Path) -> io::Result<Option<File>> {
        files::lock_existing(path)
    }

    fn insert(&self, file: &File, len: u64) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        {
            anamnesis_os::ranges::insert_front(file, len)
        }
        #[cfg(not(target_os = "linux"))]
        {
            let _ = (file, len);
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    fn share(&self, from: &File, start: u64, to: &File, at: u64) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        {
            anamnesis_os::ranges::share_to_end(from, start, to, at)
        }
        #[cfg(not(target_os = "linux"))]
        {
            let _ = (from, start, to, at);
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    #[cfg(target_os = "linux")]
    fn create_private_directory(&self, path: &Path) -> io::Result<()> {
        directories::create_private(path)
    }

    #[cfg(target_os = "linux")]
    fn link_existing(&self, from: &Path, to: &Path) -> io::Result<()> {
        // `linkat` without a flag: a link itself, not what it leads to
        fs::hard_link(from, to)
    }

    #[cfg(target_os = "linux")]
    fn exchange(&self, a: &Path, b: &Path) -> io::Result<()> {
        directories::exchange(a, b)
    }

    #[cfg(target_os = "linux")]
    fn remove_from(&self, directory: &File, path: &Path) -> io::Result<()> {
        directories::remove_file(directory, path.file_name().unwrap_or_default())
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn descriptor_path(file: &File) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", file.as_raw_fd())
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
