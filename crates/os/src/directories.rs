//! Directories that are replaced as a whole: their exchange, and what a new directory must have in common with the old one.
//!
//! Entries are listed and removed through an open directory, so that a link which gets the directory's name meanwhile leads
//! to nothing.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

/// A name in a directory, and what it is the name of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedInode {
    /// The name.
    pub name: OsString,
    /// The number of the file or directory behind it, unique in the file system.
    pub inode: u64,
    /// Whether it is a regular file or a symbolic link.
    pub is_file_or_link: bool,
}

/// Opens a directory. A link to one is refused.
///
/// # Errors
///
/// The errors of `open`.
pub fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
    options
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
}

/// Creates a directory that other users cannot open.
///
/// # Errors
///
/// The errors of `mkdir`; [`io::ErrorKind::AlreadyExists`] if something has the name.
pub fn create_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// The entries of an open directory, without `.` and `..`.
///
/// # Errors
///
/// The errors of `getdents` and `fstatat`.
pub fn entries(directory: &File) -> io::Result<Vec<NamedInode>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let kind = match entry.file_type() {
            // a file system that does not store the kind in the entry
            FileType::Unknown => {
                let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
                FileType::from_raw_mode(stat.st_mode)
            }
            kind => kind,
        };
        found.push(NamedInode {
            name: OsStr::from_bytes(name.to_bytes()).to_owned(),
            inode: entry.ino(),
            is_file_or_link: matches!(kind, FileType::RegularFile | FileType::Symlink),
        });
    }
    Ok(found)
}

/// Removes a file or link from an open directory.
///
/// # Errors
///
/// The errors of `unlinkat`.
pub fn remove_file(directory: &File, name: &OsStr) -> io::Result<()> {
    Ok(rustix::fs::unlinkat(directory, name, AtFlags::empty())?)
}

/// Locks a file under construction in an open directory, if its process has ended
/// ([`is_abandoned`](crate::files::is_abandoned)). The lock lasts until the file is closed.
pub fn lock_abandoned(directory: &File, name: &OsStr) -> Option<File> {
    let flags =
        OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(directory, name, flags, Mode::empty()).ok()?);
    let is_abandoned = file.metadata().ok()?.is_file() && file.try_lock().is_ok();
    is_abandoned.then_some(file)
}

/// Exchanges the names of two files or directories in one step.
///
/// # Errors
///
/// The errors of `renameat2`; `EINVAL` on a file system that cannot exchange names.
pub fn exchange(a: &Path, b: &Path) -> io::Result<()> {
    let exchanged = rustix::fs::renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE);
    Ok(exchanged?)
}

/// Gives a directory the group and the mode of another one. False if they differ afterwards in owner, group, mode,
/// extended attributes (access control lists, labels) or flags: the one must then not take the other's place.
///
/// # Errors
///
/// The errors of `fchown`, of `fchmod` and of reading the attributes.
pub fn carry_attributes(from: &File, to: &File) -> io::Result<bool> {
    let (old, new) = (from.metadata()?, to.metadata()?);
    if old.gid() != new.gid() {
        fchown(to, None, Some(old.gid()))?;
    }
    // after the change of the group, which clears bits of the mode
    to.set_permissions(Permissions::from_mode(old.mode() & 0o7777))?;
    let new = to.metadata()?;
    // the system clears the set-group-id bit for a group that the process is not in
    let same_owner = (old.uid(), old.gid(), old.mode()) == (new.uid(), new.gid(), new.mode());
    Ok(same_owner
        && inode_flags(from)? == inode_flags(to)?
        && extended_attributes(from)? == extended_attributes(to)?)
}

/// The flags that `lsattr` shows, without flags for how the file system stores the entries: `EXT4_INDEX_FL`,
/// `EXT4_HUGE_FILE_FL`, `EXT4_EXTENTS_FL` and `EXT4_INLINE_DATA_FL`.
fn inode_flags(directory: &File) -> io::Result<u32> {
    const LAYOUT: u32 = 0x1000 | 0x4_0000 | 0x8_0000 | 0x1000_0000;
    match rustix::fs::ioctl_getflags(directory) {
        Ok(flags) => Ok(flags.bits() & !LAYOUT),
        // a file system without flags
        Err(Errno::NOTTY | Errno::NOTSUP | Errno::NOSYS | Errno::INVAL) => Ok(0),
        Err(e) => Err(e.into()),
    }
}

fn extended_attributes(directory: &File) -> io::Result<BTreeMap<CString, Vec<u8>>> {
    // the kernel's limit of a list, and of a value
    let (mut names, mut value) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    let len = match rustix::fs::flistxattr(directory, &mut names[..]) {
        Ok(len) => len,
        Err(Errno::NOTSUP | Errno::NOSYS) => 0,
        Err(e) => return Err(e.into()),
    };
    let mut found = BTreeMap::new();
    for name in names[..len].split_inclusive(|byte| *byte == 0) {
        let name = CString::from_vec_with_nul(name.to_vec()).map_err(io::Error::other)?;
        let len = rustix::fs::fgetxattr(directory, &*name, &mut value[..])?;
        found.insert(name, value[..len].to_vec());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::files::create_locked;

    #[test]
    fn directories_are_exchanged() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        create_private(&path("a")).unwrap();
        fs::create_dir(path("b")).unwrap();
        fs::write(path("a/file"), "a").unwrap();
        assert!(exchange(&path("a"), &path("none")).is_err());
        exchange(&path("a"), &path("b")).unwrap();
        assert_eq!(fs::read(path("b/file")).unwrap(), b"a");
        assert_eq!(fs::read_dir(path("a")).unwrap().count(), 0);
        assert_eq!(fs::metadata(path("b")).unwrap().mode() & 0o777, 0o700);
        assert!(create_private(&path("a")).is_err());
    }

    #[test]
    fn entries_are_those_of_the_open_directory() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        fs::create_dir_all(path("a/directory")).unwrap();
        fs::write(path("a/file"), "").unwrap();
        symlink("nothing", path("a/link")).unwrap();
        let directory = open(&path("a")).unwrap();
        fs::rename(path("a"), path("b")).unwrap();
        symlink("/", path("a")).unwrap();
        assert!(open(&path("a")).is_err(), "a link");
        let mut found = entries(&directory).unwrap();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        let inode = |name: &str| fs::symlink_metadata(path("b").join(name)).unwrap().ino();
        let expected = [("directory", false), ("file", true), ("link", true)];
        assert_eq!(
            found,
            expected.map(|(name, is_file_or_link)| NamedInode {
                name: name.into(),
                inode: inode(name),
                is_file_or_link,
            })
        );
        remove_file(&directory, "link".as_ref()).unwrap();
        assert!(remove_file(&directory, "directory".as_ref()).is_err());
        assert_eq!(entries(&directory).unwrap().len(), 2);
    }

    #[test]
    fn one_process_locks_an_abandoned_file() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = open(scratch.path()).unwrap();
        let lock = || lock_abandoned(&directory, "file".as_ref());
        assert!(lock().is_none(), "no file");
        let file = create_locked(&scratch.path().join("file")).unwrap();
        assert!(lock().is_none(), "its process lives");
        drop(file);
        let locked = lock();
        assert!(locked.is_some());
        assert!(lock().is_none(), "another one has it");
        symlink("file", scratch.path().join("link")).unwrap();
        drop(locked);
        assert!(lock_abandoned(&directory, "link".as_ref()).is_none());
    }

    #[test]
    fn mode_and_group_are_carried_over_and_other_attributes_compared() {
        let scratch = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let path = scratch.path().join(name);
            create_private(&path).unwrap();
            open(&path).unwrap()
        };
        let (old, new) = (make("old"), make("new"));
        old.set_permissions(Permissions::from_mode(0o2751)).unwrap();
        // another group needs a privilege
        let _ = fchown(&old, None, Some(54_321));
        old.set_permissions(Permissions::from_mode(0o2751)).unwrap();
        assert!(carry_attributes(&old, &new).unwrap());
        let (meta, expected) = (new.metadata().unwrap(), old.metadata().unwrap());
        assert_eq!(meta.mode() & 0o7777, 0o2751);
        assert_eq!(meta.gid(), expected.gid());
        let set = |value: &[u8]| {
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::fsetxattr(&old, "user.origin", value, flags)
        };
        match set(b"a") {
            Ok(()) => assert!(!carry_attributes(&old, &new).unwrap()),
            Err(error) => println!("SKIPPED: no extended attributes: {error}"),
        }
    }
}
