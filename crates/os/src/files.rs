//! Files that a program is led to, not ones that its caller chose: opened without waiting; and files under construction,
//! which are locked while their process lives, so that files of dead processes can be found.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// The absolute path without links, of which the last components may not exist yet. A `..` behind a component that does not
/// exist removes it, as if it were a directory.
pub fn resolved(path: &Path) -> PathBuf {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for above in whole.ancestors() {
        if let (Ok(mut real), Ok(missing)) = (above.canonicalize(), whole.strip_prefix(above)) {
            for component in missing.components() {
                match component {
                    Component::ParentDir => drop(real.pop()),
                    name => real.push(name),
                }
            }
            let is_parent = |component| component == Component::ParentDir;
            if missing.components().any(is_parent) {
                // `..` may have led to a link; no `..` is left, so that this is done once
                return resolved(&real);
            }
            return real;
        }
    }
    whole
}

/// The directory that contains a path: `.` for a bare name, whose parent is an empty path, which system calls refuse.
///
/// ```
/// use std::path::Path;
/// use anamnesis_os::files::directory_of;
///
/// assert_eq!(directory_of(Path::new("models/a.gguf")), Path::new("models"));
/// assert_eq!(directory_of(Path::new("a.gguf")), Path::new("."));
/// ```
pub fn directory_of(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// Opens a file for reading. A FIFO is opened without waiting for a writer, and a terminal does not become the controlling
/// terminal of the process. The caller checks what was opened (`File::metadata`) before it reads.
///
/// # Errors
///
/// The errors of `open`.
pub fn open_without_waiting(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        use std::os::unix::fs::OpenOptionsExt;
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        options.custom_flags(flags.bits().cast_signed());
    }
    while_leased(|| options.open(path))
}

/// Repeats an open for as long as the file is leased: a program that edits it has asked for a moment without readers. An open
/// that waits for no writer of a pipe does not wait for the end of a lease either.
pub(crate) fn while_leased<T>(mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    // the kernel ends a lease after `/proc/sys/fs/lease-break-time`, 45 s; an edit needs milliseconds
    for _ in 0..5_000 {
        match open() {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            opened => return opened,
        }
    }
    open()
}

/// Checks that files may be created in a directory, without creating one: by its permissions, its flags and the flags of
/// its file system. Where that cannot be found out, it passes.
///
/// # Errors
///
/// The errors of `access`, such as [`io::ErrorKind::PermissionDenied`] and [`io::ErrorKind::ReadOnlyFilesystem`].
pub fn check_creatable(directory: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        use rustix::fs::{Access, AtFlags, CWD};
        use rustix::io::Errno;
        let needed = Access::WRITE_OK | Access::EXEC_OK;
        match rustix::fs::accessat(CWD, directory, needed, AtFlags::EACCESS) {
            // kernels and sandboxes that do not know the call
            Err(Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP) => Ok(()),
            checked => Ok(checked?),
        }
    }
    #[cfg(not(unix))]
    {
        let _ = directory;
        Ok(())
    }
}

/// Opens a regular file for reading, as [`open_without_waiting`] does.
///
/// # Errors
///
/// The errors of `open`; [`io::ErrorKind::InvalidInput`] for anything but a regular file, or a link to one.
pub fn open_regular(path: &Path) -> io::Result<(File, fs::Metadata)> {
    let file = open_without_waiting(path)?;
    let metadata = file.metadata()?;
    match metadata.is_file() {
        true => Ok((file, metadata)),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        )),
    }
}

/// Creates a file under construction, locked while it is open. `None` if another process locked or removed it between the
/// two calls, because it took it for one of a dead process: the caller tries another name.
///
/// # Errors
///
/// The errors of `open`; [`io::ErrorKind::AlreadyExists`] if something has the name.
pub fn create_locked(path: &Path) -> io::Result<Option<File>> {
    // `create_new` neither follows a link nor opens a file that another process has placed under this name
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).open(path)?;
    Ok((lock(&file) && !is_removed(&file)?).then_some(file))
}

/// Locks a file while it is open; false if another process holds the lock. A lock ends with its process, is visible
/// in other process namespaces and, unlike a process id, is never another process's.
///
/// True on a file system without locks: no file of a dead process is found there, and none is removed.
pub fn lock(file: &File) -> bool {
    // on Windows a lock would keep readers from a file that has its name already
    cfg!(windows) || !matches!(file.try_lock(), Err(fs::TryLockError::WouldBlock))
}

/// Locks a regular file that exists, while it is open. `None` if another process holds the lock, or has removed the file
/// meanwhile.
///
/// # Errors
///
/// The errors of `open`; a link is refused, and so is anything but a regular file.
pub fn lock_existing(path: &Path) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    // a lock over NFS needs a file that is open for writing
    options.read(true).write(true);
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        use std::os::unix::fs::OpenOptionsExt;
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        options.custom_flags(flags.bits().cast_signed());
    }
    let file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    if file.try_lock().is_err() {
        return Ok(None);
    }
    if is_removed(&file)? {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(Some(file))
}

#[cfg(unix)]
pub(crate) fn is_removed(file: &File) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    Ok(file.metadata()?.nlink() == 0)
}

#[cfg(not(unix))]
pub(crate) fn is_removed(_: &File) -> io::Result<bool> {
    Ok(false)
}

/// Whether a file under construction belongs to a process that has ended. Anything but a regular file does not.
pub fn is_abandoned(path: &Path) -> bool {
    cfg!(unix) && matches!(lock_existing(path), Ok(Some(_)))
}

/// Whether a process has locked a file, such as one under construction. False for anything but a regular file.
pub fn is_locked(path: &Path) -> bool {
    cfg!(unix) && has_lock(path) == Some(true)
}

/// How long a process may take to lock a file that it has created, generously: two system calls.
const CREATION: Duration = Duration::from_millis(20);

/// Whether a file is there that no process has locked, and that is not one that was created this moment. A file that has been
/// renamed since its name was listed is not there.
///
/// `has_waited` is of one listing: the first unlocked file costs a pause, behind which all of its names are old.
pub fn is_left_unlocked(path: &Path, has_waited: &mut bool) -> bool {
    let is_unlocked = || has_lock(path) == Some(false);
    if is_unlocked() && !*has_waited {
        std::thread::sleep(CREATION);
        *has_waited = true;
    }
    is_unlocked()
}

/// Whether a regular file is locked by another process; none if it is not there, or is none.
fn has_lock(path: &Path) -> Option<bool> {
    let (file, _) = open_regular(path).ok()?;
    let locked = file.try_lock_shared();
    Some(matches!(locked, Err(fs::TryLockError::WouldBlock)))
}

/// The device and the number of a file, through links; none where the path leads nowhere.
#[cfg(unix)]
fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).ok()
}

/// Windows has no numbers: the path without links.
#[cfg(not(unix))]
fn identity(path: &Path) -> Option<PathBuf> {
    fs::canonicalize(path).ok()
}

/// Whether two paths lead to one file, by device and number: through links and hard links. False where one of them leads
/// nowhere. Windows has no numbers: the paths without links are compared.
pub fn is_same(a: &Path, b: &Path) -> bool {
    identity(a).is_some_and(|found| identity(b) == Some(found))
}

/// Whether a path lies within a directory, or is that directory: by device and number of each directory above it, through
/// links and through mounts of one directory at several places. The last components of the path may not exist yet.
pub fn is_within(path: &Path, directory: &Path) -> bool {
    let path = resolved(path);
    let directory = resolved(directory);
    let number = identity(&directory);
    let is_it = |above: &Path| number.is_some() && identity(above) == number;
    path.starts_with(&directory) || path.ancestors().any(is_it)
}

/// How much a file permits, for comparison with others: the rights of all users count most, then the group's, then its
/// owner's.
pub fn permitted(file: &fs::Metadata) -> u32 {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let mode = file.mode();
        (mode & 0o007) << 6 | (mode & 0o070) | (mode & 0o700) >> 6
    }
    #[cfg(not(unix))]
    u32::from(!file.permissions().readonly())
}

/// A file directly in a directory that is one of these, by device and number: through links and hard links. `None` where
/// there is none, or the directory cannot be listed. Without numbers (Windows), paths without links are compared.
pub fn same_in<'a>(directory: &Path, files: impl Iterator<Item = &'a Path>) -> Option<PathBuf> {
    // a set: both may be thousands of shards
    let known: std::collections::HashSet<_> = files.filter_map(identity).collect();
    let mut entries = fs::read_dir(directory).ok()?.flatten();
    let found = entries.find(|entry| identity(&entry.path()).is_some_and(|it| known.contains(&it)));
    found.map(|entry| entry.path())
}

/// Whether a file, or link, may be neither replaced nor removed, by root neither: it is immutable, or may only be appended to
/// (`chattr +i`, `+a`). False where this is not known.
pub fn is_protected(path: &Path) -> bool {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags};
        let stat = rustix::fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty());
        let protected = StatxAttributes::IMMUTABLE | StatxAttributes::APPEND;
        stat.is_ok_and(|stat| stat.stx_attributes.intersects(protected))
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = path;
        false
    }
}

/// Gives a file that is about to replace another one the permissions of that, and its owner where the process may.
///
/// # Errors
///
/// The errors of `fchmod`.
pub fn carry_permissions(from: &fs::Metadata, to: &File) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
        let own = to.metadata()?;
        let (mut mode, owner) = (from.mode() & 0o7777, (from.uid(), from.gid()));
        if (own.uid(), own.gid()) != owner && fchown(to, Some(owner.0), Some(owner.1)).is_err() {
            // a file of another owner must not run as that one
            mode &= 0o777;
        }
        // file systems without permissions refuse to set any
        match own.mode() & 0o7777 == mode {
            true => Ok(()),
            false => to.set_permissions(fs::Permissions::from_mode(mode)),
        }
    }
    #[cfg(not(unix))]
    {
        let _ = (from, to);
        Ok(())
    }
}

/// Renames a file, unless something has the new name.
///
/// # Errors
///
/// The errors of `rename`; [`io::ErrorKind::AlreadyExists`] if something has the name.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::CWD;
        crate::renames::rename_new((CWD, from.as_os_str()), (CWD, to.as_os_str()))
    }
    #[cfg(not(target_os = "linux"))]
    // a link fails if the name exists, which a rename does not
    match fs::hard_link(from, to) {
        Ok(()) => fs::remove_file(from),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(e),
        // without hard links, this check and the rename below race with other writers
        Err(_) if fs::symlink_metadata(to).is_ok() => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => fs::rename(from, to),
    }
}

/// Returns when the names in a directory outlive a loss of power.
///
/// # Errors
///
/// The errors of `open` and `fsync`, except where the file system cannot sync a directory, or a directory that may be
/// written may not be read: its names are then as durable as that system makes them.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
        match File::open(path).and_then(|directory| directory.sync_all()) {
            Err(e) if matches!(e.kind(), InvalidInput | PermissionDenied | Unsupported) => Ok(()),
            done => done,
        }
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        Ok(())
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn make_fifo(path: &Path) {
        let made = std::process::Command::new("mkfifo").arg(path).status();
        assert!(made.unwrap().success());
    }

    #[test]
    fn a_fifo_is_opened_without_a_writer() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fifo");
        make_fifo(&path);
        let opened = open_without_waiting(&path).unwrap();
        assert!(!opened.metadata().unwrap().is_file());
        assert!(!is_abandoned(&path));
    }

    #[test]
    fn a_file_is_abandoned_when_it_is_closed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("part");
        let file = create_locked(&path).unwrap().unwrap();
        assert!(!is_abandoned(&path));
        let again = create_locked(&path).map(drop);
        assert_eq!(
            again.unwrap_err().kind(),
            io::ErrorKind::AlreadyExists,
            "an existing file"
        );
        drop(file);
        assert!(is_abandoned(&path));
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(!is_abandoned(&link), "a link may lead anywhere");
        assert!(!is_abandoned(directory.path()));
    }

    #[test]
    fn links_are_resolved_also_before_missing_components() {
        let directory = tempfile::tempdir().unwrap();
        let real = directory.path().canonicalize().unwrap();
        fs::create_dir(real.join("a")).unwrap();
        std::os::unix::fs::symlink(real.join("a"), real.join("link")).unwrap();
        for (path, expected) in [
            ("link", "a"),
            ("link/x/y", "a/x/y"),
            ("x/../link/y", "a/y"),
            ("x/../a", "a"),
            ("link/../a/x/../y", "a/y"),
        ] {
            assert_eq!(resolved(&real.join(path)), real.join(expected), "{path}");
        }
    }

    #[test]
    fn a_new_name_replaces_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("a"), "a").unwrap();
        fs::write(path("b"), "b").unwrap();
        let taken = rename_new(&path("a"), &path("b")).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(path("b")).unwrap(), b"b");
        rename_new(&path("a"), &path("c")).unwrap();
        assert_eq!(fs::read(path("c")).unwrap(), b"a");
        assert!(!path("a").exists());
        sync_directory(directory.path()).unwrap();
        assert!(sync_directory(&path("none")).is_err());
    }
}
