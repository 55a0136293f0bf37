//! Files outside of a directory that links in it lead to, as the snapshots of a model hub's cache consist of.
//!
//! A link is followed to a regular file only, and only if it was made by root, by the user of this process, or by the
//! owner of that file (the rule that web servers call `SymLinksIfOwnerMatch`). A process with more rights than the owner of
//! the directory therefore opens no file of another user because of a link in it. Directories outside are not followed.

use std::fs::File;
use std::path::{Path, PathBuf};

use anamnesis_os::links::may_name;
use rustix::fd::AsFd;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, openat, openat2};
use rustix::io::Errno;

use super::READ;
use crate::event::Inode;

/// A file outside of the directory.
pub(super) struct OutsideFile {
    /// Opened by `O_PATH`: it names the file without opening it.
    pub(super) file: File,
    pub(super) stat: Stat,
    /// Where it is, without links.
    pub(super) path: PathBuf,
}

/// Resolves the link `name` in a directory to a file outside of it.
///
/// # Errors
///
/// `EACCES` if its owner may not name that file; `EINVAL` if it is no link to a regular file; the errors of opening it.
pub(super) fn resolve(directory: impl AsFd, name: &Path) -> Result<OutsideFile, Errno> {
    let link = openat(
        &directory,
        name,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let link = rustix::fs::fstat(&link)?;
    if FileType::from_raw_mode(link.st_mode) != FileType::Symlink {
        return Err(Errno::INVAL);
    }
    let found = resolve_named(directory, name)?;
    let own = rustix::process::geteuid().as_raw();
    if may_name(link.st_uid, found.stat.st_uid, own) {
        Ok(found)
    } else {
        Err(Errno::ACCESS)
    }
}

/// Resolves a path that the caller named itself, wherever its links lead.
///
/// # Errors
///
/// `EINVAL` if it leads to no regular file; the errors of opening it.
pub(super) fn resolve_named(directory: impl AsFd, path: &Path) -> Result<OutsideFile, Errno> {
    // without `NO_MAGICLINKS`, links of `/proc` would lead to what another process has open
    let file = openat2(
        &directory,
        path,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::NO_MAGICLINKS,
    )?;
    let stat = rustix::fs::fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    let path = std::fs::read_link(descriptor_path(&file)).map_err(|_| Errno::NOENT)?;
    Ok(OutsideFile {
        file: file.into(),
        stat,
        path,
    })
}

/// Opens for reading what was resolved before, if it is still this inode. The descriptor is opened and not the name,
/// which may lead to a device by now.
pub(super) fn open(resolved: &OutsideFile, inode: Inode) -> Result<Option<File>, Errno> {
    if Inode::of(&resolved.stat) != inode {
        return Ok(None);
    }
    let path = descriptor_path(&resolved.file);
    let opened = rustix::fs::open(path, READ | OFlags::CLOEXEC, Mode::empty())?;
    Ok(Some(opened.into()))
}

fn descriptor_path(file: impl AsFd) -> PathBuf {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()).into()
}
