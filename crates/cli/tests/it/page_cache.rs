//! The pages of a file that the page cache has.

use std::fs::File;
use std::path::Path;

use anamnesis_os::residency::resident_bytes;

/// The bytes of a file that are in the page cache.
pub(crate) fn resident(path: &Path) -> u64 {
    let file = File::open(path).unwrap();
    resident_bytes(&file, 0, file.metadata().unwrap().len()).unwrap()
}

/// Whether a file is in the page cache, but for a few pages: the system may reclaim some at any time, and with DAMON does so
/// without a need.
pub(crate) fn is_resident(path: &Path) -> bool {
    let len = std::fs::metadata(path).unwrap().len();
    resident(path) >= len - len / 10
}

/// Evicts a file from the page cache, as far as no process holds its pages.
pub(crate) fn evict_file(path: &Path) {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}
