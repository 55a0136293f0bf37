//! Renames that replace nothing, of names in open directories.

use std::ffi::OsStr;
use std::io;

/// Renames a file, unless something has the new name.
pub(crate) fn rename_new<A: std::os::fd::AsFd, B: std::os::fd::AsFd>(
    (from, old): (A, &OsStr),
    (to, new): (B, &OsStr),
) -> io::Result<()> {
    use rustix::fs::{AtFlags, RenameFlags, linkat, renameat, renameat_with, statat, unlinkat};
    use rustix::io::Errno;
    match renameat_with(&from, old, &to, new, RenameFlags::NOREPLACE) {
        // a file system without this flag
        Err(Errno::INVAL | Errno::NOSYS) => {}
        done => return done.map_err(io::Error::from),
    }
    // a link fails if the name exists, which a rename does not
    match linkat(&from, old, &to, new, AtFlags::empty()) {
        Ok(()) => Ok(unlinkat(&from, old, AtFlags::empty())?),
        Err(Errno::EXIST) => Err(Errno::EXIST.into()),
        // without hard links, this check and the rename below race with other writers
        Err(_) if statat(&to, new, AtFlags::SYMLINK_NOFOLLOW).is_ok() => Err(Errno::EXIST.into()),
        Err(_) => Ok(renameat(&from, old, &to, new)?),
    }
}
