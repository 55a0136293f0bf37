//! Files that are known to hold the same bytes without reading them: one file by two paths.
//!
//! The names of blobs in caches of the hub are digests that a download should have, and not those that its bytes have: two
//! blobs of one name are read.

use crate::read::checkpoint::Checkpoint;
use crate::read::source::Source;

/// The device and the inode of a file, where they are known without reading it.
pub(super) type FileIdentity = Option<(u64, u64)>;

/// The identities of a checkpoint's files, by their numbers.
pub(super) fn of(checkpoint: &Checkpoint) -> Vec<FileIdentity> {
    let sources = checkpoint.sources().iter();
    sources.map(|source| inode(&**source)).collect()
}

/// Whether file `a` of one side is file `b` of the other. Two unknowns are not the same.
pub(super) fn is_same_file(a: &[FileIdentity], b: &[FileIdentity], files: (u32, u32)) -> bool {
    let known = |all: &[FileIdentity], number: u32| all.get(number as usize).copied().flatten();
    known(a, files.0).is_some_and(|file| known(b, files.1) == Some(file))
}

#[cfg(unix)]
fn inode(source: &dyn Source) -> FileIdentity {
    let stat = rustix::fs::fstat(source.as_fd()?).ok()?;
    // the types of these fields differ between systems
    #[allow(clippy::unnecessary_cast, clippy::cast_sign_loss)]
    Some((stat.st_dev as u64, stat.st_ino as u64))
}

#[cfg(not(unix))]
fn inode(_: &dyn Source) -> FileIdentity {
    None
}
