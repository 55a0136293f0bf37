//! Files that are known to hold the same bytes without reading them: one file by two paths.
//!
//! The names of blobs in caches of the hub are digests that a download should have, and not those that its bytes have: two
//! blobs of one name are read.

use crate::read::checkpoint::Checkpoint;
use crate::read::source::Source;

/// The identity of a file, as far as it is known without reading it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FileIdentity {
    /// Device and inode.
    inode: Option<(u64, u64)>,
}

impl FileIdentity {
    /// Whether both are the same file.
    fn is_same(&self, other: &Self) -> bool {
        // two unknowns are equal as values, and not as files
        self.inode.is_some() && self.inode == other.inode
    }
}

/// The identities of a checkpoint's files, by their numbers.
pub(super) fn of(checkpoint: &Checkpoint) -> Vec<FileIdentity> {
    let sources = checkpoint.sources().iter();
    sources
        .map(|source| FileIdentity {
            inode: inode(&**source),
        })
        .collect()
}

/// Whether file `a` of one side is file `b` of the other.
pub(super) fn is_same_file(a: &[FileIdentity], b: &[FileIdentity], files: (u32, u32)) -> bool {
    let (a, b) = (a.get(files.0 as usize), b.get(files.1 as usize));
    a.zip(b).is_some_and(|(a, b)| a.is_same(b))
}

#[cfg(unix)]
fn inode(source: &dyn Source) -> Option<(u64, u64)> {
    let stat = rustix::fs::fstat(source.as_fd()?).ok()?;
    // the types of these fields differ between systems
    #[allow(clippy::unnecessary_cast, clippy::cast_sign_loss)]
    Some((stat.st_dev as u64, stat.st_ino as u64))
}

#[cfg(not(unix))]
fn inode(_: &dyn Source) -> Option<(u64, u64)> {
    None
}
