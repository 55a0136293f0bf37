//! The files of the cache: made for one user, replaced as a whole, and removed when there are too many.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use anamnesis_os::trust;

pub(super) const ENDING: &str = ".header";
/// The ending of a file that is being written.
const UNFINISHED: &str = ".part";
/// A file that was not finished in this time is one of a process that has ended.
const ABANDONED: Duration = Duration::from_secs(60 * 60);
/// Names of a directory that are looked at.
const NAMES: usize = 1 << 20;

/// A directory whose entries are files of one user.
pub(super) struct CacheDirectory {
    path: PathBuf,
}

impl CacheDirectory {
    /// A directory that only this user can write to; made if it does not exist.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let mut builder = DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(path)?;
        // the checksum detects damage and no forger: who can write here can give other bytes as a header
        if let Some(stranger) = trust::stranger(path)? {
            return Err(io::Error::other(format!(
                "{stranger}; use another directory, or change that (chmod go-w, chown)"
            )));
        }
        let path = path.to_owned();
        Ok(Self { path })
    }

    /// The content of a file of at most this many bytes.
    pub(super) fn read(&self, name: &str, most: u64) -> Option<Vec<u8>> {
        let path = self.path.join(name);
        // links are not followed, and pipes not waited for
        let metadata = fs::symlink_metadata(&path).ok()?;
        if !metadata.is_file() || metadata.len() > most {
            return None;
        }
        let len = usize::try_from(metadata.len()).ok()?;
        let mut bytes = Vec::with_capacity(len);
        let mut file = File::open(path).ok()?.take(metadata.len());
        file.read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Writes a file: under its name, it is the old one or the new one as a whole.
    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        static WRITTEN: AtomicU64 = AtomicU64::new(0);
        // relaxed: only the numbers differ
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let own = format!(".{}-{number}{UNFINISHED}", std::process::id());
        let unfinished = self.path.join(own);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&unfinished)?;
        // not synced: after a loss of power, the checksum refuses what is not whole
        let written = file.write_all(bytes);
        drop(file);
        let written = written.and_then(|()| fs::rename(&unfinished, self.path.join(name)));
        if written.is_err() {
            // that the first failure is none of opening holds for this one too
            let _ = fs::remove_file(&unfinished);
        }
        written
    }

    /// Makes a file the one that was used last.
    pub(super) fn touch(&self, name: &str) {
        let file = OpenOptions::new().append(true).open(self.path.join(name));
        if let Ok(file) = file {
            // without the permission, the time is the time of writing
            let _ = file.set_modified(SystemTime::now());
        }
    }

    /// Removes the files that were used longest ago until at most `most` bytes are left, and those that were never finished.
    /// Returns the bytes that are left.
    pub(super) fn evict(&self, most: u64) -> u64 {
        let mut found: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        for entry in entries.take(NAMES) {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let Ok(metadata) = fs::symlink_metadata(entry.path()) else {
                continue;
            };
            let Ok(time) = metadata.modified() else {
                continue;
            };
            let is_abandoned = || time.elapsed().is_ok_and(|age| age > ABANDONED);
            if is_entry(name) {
                found.push((time, metadata.len(), entry.path()));
            } else if name.starts_with('.') && name.ends_with(UNFINISHED) && is_abandoned() {
                let _ = fs::remove_file(entry.path()); // another process may have removed it
            }
        }
        found.sort_unstable();
        let mut total = found.iter().map(|(_, len, _)| len).sum::<u64>();
        for (_, len, path) in found {
            if total <= most {
                break;
            }
            if fs::remove_file(path).is_ok() {
                total -= len;
            }
        }
        total
    }
}

/// Whether a name is one of an entry: a digest and the ending. Other files in the directory are left alone.
fn is_entry(name: &str) -> bool {
    let digest = name.strip_suffix(ENDING).unwrap_or_default();
    digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit())
}
