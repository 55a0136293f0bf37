//! Reading the head of a file without leaving it in the page cache.

use std::fs::File;
use std::io::{self, Read};

use rustix::fs::{Advice, fadvise};

use super::FileResidency;

/// Reads the first `len` bytes of a newly opened file, or all of a shorter file, and restores the page cache
/// afterwards.
///
/// A policy that inspects its model before the service starts would otherwise prevent the service's first miss, on
/// which prefetching begins. The bytes are evicted only if none of them were cached before.
///
/// # Errors
///
/// The system's, of reading.
pub fn read_uncached(mut file: File, len: u64) -> io::Result<Vec<u8>> {
    let before = FileResidency::of(&file, 0, len).map_or(len, |found| found.cached);
    // turns read-ahead off; a file system may ignore the advice and read more
    let _ = fadvise(&file, 0, None, Advice::Random);
    let mut bytes = Vec::new();
    file.by_ref().take(len).read_to_end(&mut bytes)?;
    if before == 0 {
        let _ = fadvise(&file, 0, std::num::NonZeroU64::new(len), Advice::DontNeed);
    }
    Ok(bytes)
}
