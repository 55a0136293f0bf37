//! A lock of a directory, which processes that change several of its files hold while they do.
//!
//! It is an advisory lock of the directory itself (`flock`), so that it leaves nothing behind: it ends with its process, also
//! with one that is killed. Where directories cannot be locked (NFS, Windows), it is the lock of a file in the directory,
//! which is removed when the lock is released.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::files;

/// Name of the file that is locked where a directory cannot be.
const FILE_NAME: &str = ".anamnesis.lock";

/// How long a writer waits for readers, which hold the lock for as long as two system calls take, and longer where programs wait
/// for a processor.
const PATIENCE_BESIDE_READERS: Duration = Duration::from_secs(5);

/// Attempts, a millisecond apart, before another writer is taken to hold the lock: one asks for it a moment in vain, too.
const ATTEMPTS_BESIDE_WRITERS: u32 = 10;

/// Attempts while the directory, or the file, is replaced by others between opening and locking it.
const ATTEMPTS: usize = 100;

/// A lock that is held until it is dropped.
#[derive(Debug)]
pub struct DirectoryLock {
    /// Closing it releases the lock.
    _open: File,
    /// Another directory that is to take the place of the locked one, and is locked as well.
    successor: Option<File>,
    /// The locked file, where it is not the directory itself.
    named: Option<PathBuf>,
}

impl DirectoryLock {
    /// Locks the directory at `path`, waiting for readers that ask for a moment ([`is_locked`]) and not for other locks.
    /// `None` if another process, or another lock of this one, holds it.
    ///
    /// ```
    /// use anamnesis_os::directory_lock::DirectoryLock;
    ///
    /// let directory = tempfile::tempdir()?;
    /// let lock = DirectoryLock::acquire(directory.path())?.expect("it is new");
    /// assert!(DirectoryLock::acquire(directory.path())?.is_none());
    /// drop(lock);
    /// assert!(DirectoryLock::acquire(directory.path())?.is_some());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of `open` and `flock`, except on file systems without such locks.
    pub fn acquire(path: &Path) -> io::Result<Option<Self>> {
        let began = Instant::now();
        let mut refused = 0;
        loop {
            let locked = Self::try_acquire(path)?;
            refused += u32::from(locked.is_none() && is_locked(path));
            if locked.is_some()
                || refused >= ATTEMPTS_BESIDE_WRITERS
                || began.elapsed() >= PATIENCE_BESIDE_READERS
            {
                return Ok(locked);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn try_acquire(path: &Path) -> io::Result<Option<Self>> {
        #[cfg(unix)]
        match lock_directory(path) {
            // file systems that lock no directories answer so: NFS needs a file that is open for writing
            Err(e) if is_unsupported(&e) => {}
            locked => return locked,
        }
        lock_file(path)
    }

    /// Locks a directory that is about to take the place of the locked one, so that no other process can lock it when it
    /// has. False if another process holds its lock.
    ///
    /// # Errors
    ///
    /// The errors of `flock`, except on file systems that lock no directories.
    pub fn extend_to(&mut self, successor: File) -> io::Result<bool> {
        // the locked file gets a second name in the successor, as all other files do
        if self.named.is_some() {
            return Ok(true);
        }
        match successor.try_lock() {
            Ok(()) => {
                self.successor = Some(successor);
                Ok(true)
            }
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(e)) => Err(e),
        }
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // while it is locked: who opens it before it is removed finds it without a name afterwards, and tries again
        if let Some(path) = &self.named {
            let _ = fs::remove_file(path);
        }
    }
}

/// Whether a process that changes several files of a directory is at work in it. False where this cannot be known: a
/// directory that cannot be opened, and Windows.
pub fn is_locked(directory: &Path) -> bool {
    let is_held = |file: io::Result<File>| {
        let locked = file.map(|file| file.try_lock_shared());
        matches!(locked, Ok(Err(TryLockError::WouldBlock)))
    };
    if cfg!(windows) {
        return false;
    }
    is_held(File::open(directory))
        || is_held(files::open_regular(&directory.join(FILE_NAME)).map(|(file, _)| file))
}

#[cfg(unix)]
fn is_unsupported(error: &io::Error) -> bool {
    use rustix::io::Errno;
    [
        Errno::BADF,
        Errno::INVAL,
        Errno::ISDIR,
        Errno::NOLCK,
        Errno::NOSYS,
        Errno::OPNOTSUPP,
        // a directory that may be written and not read cannot be opened
        Errno::ACCESS,
    ]
    .iter()
    .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

#[cfg(unix)]
fn lock_directory(path: &Path) -> io::Result<Option<DirectoryLock>> {
    use std::fs::OpenOptions;
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

    for _ in 0..ATTEMPTS {
        let mut options = OpenOptions::new();
        let flags = rustix::fs::OFlags::DIRECTORY;
        options.read(true).custom_flags(flags.bits().cast_signed());
        let open = options.open(path)?;
        match open.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(e)) => return Err(e),
        }
        // a process that held the lock may have put another directory in the place of this one
        let (locked, named) = (open.metadata()?, fs::metadata(path)?);
        if (locked.dev(), locked.ino()) == (named.dev(), named.ino()) {
            return Ok(Some(DirectoryLock {
                _open: open,
                successor: None,
                named: None,
            }));
        }
    }
    Ok(None)
}

fn lock_file(directory: &Path) -> io::Result<Option<DirectoryLock>> {
    let path = directory.join(FILE_NAME);
    for _ in 0..ATTEMPTS {
        let file = match files::create_locked(&path) {
            Ok(Some(file)) => file,
            // another process opened it, and locked it first
            Ok(None) => return Ok(None),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                match files::lock_existing(&path) {
                    Ok(Some(file)) => file,
                    Ok(None) => return Ok(None),
                    // released and removed meanwhile
                    Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                    Err(e) => return Err(e),
                }
            }
            Err(e) => return Err(e),
        };
        return Ok(Some(DirectoryLock {
            _open: file,
            successor: None,
            named: Some(path),
        }));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_held_once_and_leaves_nothing() {
        for lock in [DirectoryLock::acquire, lock_file] {
            let directory = tempfile::tempdir().unwrap();
            let held = lock(directory.path()).unwrap().unwrap();
            assert!(lock(directory.path()).unwrap().is_none());
            assert_eq!(is_locked(directory.path()), cfg!(unix));
            drop(held);
            assert!(!is_locked(directory.path()));
            assert!(lock(directory.path()).unwrap().is_some());
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        }
    }

    /// A process that has been killed leaves the file, and no lock.
    #[test]
    fn a_file_that_was_left_is_locked_again() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(FILE_NAME), "").unwrap();
        assert!(lock_file(directory.path()).unwrap().is_some());
    }

    #[test]
    #[cfg(unix)]
    fn a_link_in_place_of_the_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let victim = directory.path().join("victim");
        fs::write(&victim, "kept").unwrap();
        std::os::unix::fs::symlink(&victim, directory.path().join(FILE_NAME)).unwrap();
        assert!(lock_file(directory.path()).is_err());
        assert_eq!(fs::read(&victim).unwrap(), b"kept");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_lock_extends_to_the_directory_that_takes_the_place() {
        let root = tempfile::tempdir().unwrap();
        let (old, new) = (root.path().join("old"), root.path().join("new"));
        fs::create_dir(&old).unwrap();
        fs::create_dir(&new).unwrap();
        let mut held = DirectoryLock::acquire(&old).unwrap().unwrap();
        assert!(held.extend_to(File::open(&new).unwrap()).unwrap());
        crate::directories::exchange(&old, &new).unwrap();
        assert!(DirectoryLock::acquire(&old).unwrap().is_none());
        drop(held);
        assert!(DirectoryLock::acquire(&old).unwrap().is_some());
        // another process holds the lock of the successor
        let other = DirectoryLock::acquire(&new).unwrap().unwrap();
        let mut held = DirectoryLock::acquire(&old).unwrap().unwrap();
        assert!(!held.extend_to(File::open(&new).unwrap()).unwrap());
        drop(other);
    }
}
