//! Files that are known to hold the same bytes without reading them: one file by two paths, or two copies of one blob.

use std::path::Path;

use crate::read::checkpoint::Checkpoint;
use crate::read::source::Source;

/// The identity of a file, as far as it is known without reading it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FileIdentity {
    /// Device and inode.
    inode: Option<(u64, u64)>,
    /// The SHA-256 of its content, by the name that a cache of the hub gave it.
    digest: Option<[u8; 64]>,
}

impl FileIdentity {
    /// Whether both are the same file, or of one content.
    fn is_same(&self, other: &Self) -> bool {
        // two unknowns are equal as values, and not as files
        let same = |known: bool, equal: bool| known && equal;
        same(self.inode.is_some(), self.inode == other.inode)
            || same(self.digest.is_some(), self.digest == other.digest)
    }
}

/// The identities of a checkpoint's files, by their numbers.
pub(super) fn of(checkpoint: &Checkpoint) -> Vec<FileIdentity> {
    let files = checkpoint.catalog().files.iter();
    let local = checkpoint.files().is_local();
    files
        .zip(checkpoint.sources())
        .map(|(file, source)| FileIdentity {
            inode: inode(&**source),
            // a remote path says nothing about files here
            digest: file.path.as_deref().filter(|_| local).and_then(digest),
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

/// The digest of a file in a cache of the hub: there, files are links to `blobs/SHA-256`, with 64 hexadecimal digits. Other
/// blobs are named by git's SHA-1.
fn digest(path: &Path) -> Option<[u8; 64]> {
    let blob = std::fs::canonicalize(path).ok()?;
    if blob.parent()?.file_name()? != "blobs" {
        return None;
    }
    let name: [u8; 64] = blob.file_name()?.as_encoded_bytes().try_into().ok()?;
    name.iter().all(u8::is_ascii_hexdigit).then_some(name)
}
