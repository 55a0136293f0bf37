//! The pass over whole files: their digests, several files side by side.

use std::path::PathBuf;
use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::base::progress::{RunControl, RunProgress};
use crate::base::sync::PoisonMutex;
use crate::base::threads::{for_each_of, thread_count_for};
use crate::read::digest::{FileDigests, FileHashes};
use crate::read::source::Source;

use super::file_digest::FileDigest;

/// A file to be read.
pub(super) struct FileToHash {
    pub(super) path: PathBuf,
    pub(super) source: Arc<dyn Source>,
    pub(super) nbytes: u64,
    /// Whether the id of its git object is computed too.
    pub(super) git: bool,
    /// Whether its SHA-512 is computed too.
    pub(super) sha512: bool,
}

/// The digest of a file of the kind that is expected.
pub(super) fn like(made: &FileDigests, expected: &FileDigest) -> FileDigest {
    match (expected, made.git, made.sha512) {
        (FileDigest::Git(_), Some(id), _) => FileDigest::Git(id),
        (FileDigest::Sha512(_), _, Some(digest)) => FileDigest::Sha512(digest),
        _ => FileDigest::Sha256(made.sha256),
    }
}

/// Reads all files from the first byte to the last, the largest first. A file that cannot be read has an error.
///
/// # Errors
/// Cancellation.
pub(super) fn hash_files(
    files: &[FileToHash],
    threads: usize,
    control: &RunControl<'_>,
) -> Result<Vec<Result<FileDigests>>> {
    let total = files
        .iter()
        .map(|file| file.nbytes)
        .fold(0, u64::saturating_add);
    let progress = RunProgress::new(total, control);
    let mut rows: Vec<usize> = (0..files.len()).collect();
    // a large file that is begun last would keep one thread busy while the others are done
    rows.sort_by_key(|row| std::cmp::Reverse(files[*row].nbytes));
    let none = || Err(Error::unsupported("the file was not read"));
    let hashed = PoisonMutex::new(files.iter().map(|_| none()).collect::<Vec<_>>());
    let threads = thread_count_for(threads, total);
    for_each_of(
        "check",
        &rows,
        threads,
        &progress,
        || (),
        |_, &row, ()| {
            let file = &files[row];
            let made = hash(file, &progress);
            // a cancelled read has failed too, and must not become a finding
            control.check()?;
            let mut hashed = hashed.lock().expect("no thread panics with the lock");
            hashed[row] = made.map_err(|e| e.in_file(&file.path));
            Ok(())
        },
    )?;
    progress.finish();
    Ok(hashed.into_inner().expect("no thread panicked"))
}

fn hash(file: &FileToHash, progress: &RunProgress<'_>) -> Result<FileDigests> {
    let mut state = FileHashes::new(file.git.then_some(file.nbytes), file.sha512);
    state.read(&*file.source, file.nbytes, &mut |n| progress.add(n as u64))?;
    Ok(state.finish())
}
