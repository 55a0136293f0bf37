//! Headers on disk: what opening a file at a URL has read, so that opening it again needs no more than the server's word that the
//! file is the same one.
//!
//! One file per URL, written under another name and renamed. Its content is not trusted: its checksum is verified, every length
//! is bounded, and whatever is wrong with it, the file is as good as absent. A failure to write is none of opening.

mod directory;
mod entry;
mod key;

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use sha2::{Digest as _, Sha256};

use crate::error::{Error, ErrorKind, Result};
use directory::CacheDirectory;

pub(crate) use entry::{CacheEntry, CachedFile, decode, encode, sealed};
pub(crate) use key::key_of;

/// The longest entry: the headers of the largest files, and indexes of a few hundred thousand tensors.
const LONGEST: u64 = 64 << 20;

/// A directory of headers.
pub(crate) struct HeaderCache {
    directory: CacheDirectory,
    /// See [`RemoteOptions::header_cache_size`](crate::RemoteOptions::header_cache_size).
    most: u64,
    /// Bytes of all entries, once they were counted. Bytes that other processes have written since are in the next count.
    total: Mutex<Option<u64>>,
}

impl HeaderCache {
    /// The cache in a directory, which is made if it does not exist.
    pub(crate) fn open(path: &Path, most: u64) -> Result<Self> {
        let directory = CacheDirectory::open(path).map_err(|e| {
            let what = format!("the cache of headers, {}: {e}", path.display());
            Error::new(ErrorKind::Invalid, what)
        })?;
        Ok(Self {
            directory,
            most,
            total: Mutex::default(),
        })
    }

    /// The entry under a key, if it and its file fit into `room` bytes of memory.
    pub(crate) fn load(&self, key: &str, room: u64) -> Option<CacheEntry> {
        // its ranges are copied out of the file's bytes, so that both are in memory at once
        let bytes = self.directory.read(&name_of(key), LONGEST.min(room / 2))?;
        entry::decode(key, &bytes)
    }

    /// Keeps an entry under a key. Evicts the entries that were used longest ago if there is no room for it.
    pub(crate) fn store(&self, key: &str, entry: &CacheEntry) {
        let bytes = entry::encode(key, entry);
        let len = bytes.len() as u64;
        // it would evict everything else and still not be read again
        if len > LONGEST.min(self.most) {
            return;
        }
        let mut total = self.total.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match *total {
            Some(before) if before.saturating_add(len) <= self.most => before,
            // not counted yet, or too much: others may have removed something
            _ => self.directory.evict(self.most - len),
        };
        let is_written = self.directory.write(&name_of(key), &bytes).is_ok();
        // the replaced entry is counted twice until the next count
        *total = Some(before.saturating_add(if is_written { len } else { 0 }));
    }

    /// Notes that an entry was used.
    pub(crate) fn touch(&self, key: &str) {
        self.directory.touch(&name_of(key));
    }
}

/// The name of an entry. It shows nothing of the key, which may have a secret.
pub(crate) fn name_of(key: &str) -> String {
    let digest = Sha256::digest(key);
    let digits = digest.iter().map(|byte| format!("{byte:02x}"));
    digits.collect::<String>() + directory::ENDING
}

#[cfg(test)]
mod tests;
