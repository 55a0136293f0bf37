//! The pages that a FUSE file system keeps of its files in the page cache.
//!
//! Whenever a file is opened, the kernel discards all cached pages of it, unless the server of the file system replies with
//! `FOPEN_KEEP_CACHE`. Pages that were read ahead of a program are then discarded when that program opens the file, and a
//! prefetching thread that opens a file discards what the kernel has read ahead for its readers, also where they have mapped
//! it: both read these bytes again. With `FOPEN_DIRECT_IO` no page is cached at all. Servers decide this for each file, mostly
//! by an option of the mount (`kernel_cache`), and nothing reports it, so it is tried.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{Advice, StatFs, fadvise, fstatfs, statfs};

use super::FileResidency;
use crate::error::Result;
use crate::{FileEntry, Namespace};

const FUSE_SUPER_MAGIC: i64 = 0x6573_5546;

/// The pages of a file that the page cache keeps for the next program that opens it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageRetention {
    /// Pages stay until the kernel reclaims them.
    Kept,
    /// All pages are discarded when the file is opened.
    DiscardedAtOpen,
    /// No page is cached.
    NotCached,
}

impl PageRetention {
    /// The reason why a file system keeps no pages, for a message; `None` if it keeps them.
    pub fn reason(self) -> Option<&'static str> {
        match self {
            Self::Kept => None,
            Self::DiscardedAtOpen => Some("discards cached pages whenever a file is opened"),
            Self::NotCached => Some("caches no pages"),
        }
    }
}

/// The retention of files on each device of a namespace that `is_wanted`, by the number of the device.
///
/// The smallest file of each device that is not empty is tried, by reading a page of it and opening it again. File systems
/// other than FUSE keep pages, and so do files that cannot be tried.
///
/// ```
/// use anamnesis_ppc::{Namespace, cache::{PageRetention, page_retention}};
///
/// # let dir = tempfile::tempdir()?;
/// # std::fs::write(dir.path().join("model.safetensors"), [0; 10_000])?;
/// let namespace = Namespace::scan(dir.path())?;
/// let found = page_retention(&namespace, |_| true);
/// assert_eq!(found[&namespace.entries()[0].inode.dev], PageRetention::Kept);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub fn page_retention(
    namespace: &Namespace,
    is_wanted: impl Fn(u64) -> bool,
) -> BTreeMap<u64, PageRetention> {
    let mut smallest = BTreeMap::<u64, &FileEntry>::new();
    for entry in namespace.entries().iter().filter(|entry| entry.len > 0) {
        let found = smallest.entry(entry.inode.dev).or_insert(entry);
        if entry.len < found.len {
            *found = entry;
        }
    }
    let wanted = smallest
        .into_iter()
        .filter(|(device, _)| is_wanted(*device));
    wanted
        .map(|(device, entry)| {
            let retention = try_file(namespace, entry).unwrap_or(PageRetention::Kept);
            (device, retention)
        })
        .collect()
}

/// Whether a file is on a FUSE file system, found without opening it.
pub(crate) fn is_fuse(path: &Path) -> bool {
    statfs(path).is_ok_and(|found| is_fuse_type(&found))
}

fn is_fuse_type(found: &StatFs) -> bool {
    #[allow(clippy::useless_conversion)] // `f_type` has 32 bits on some architectures
    let file_system = i64::from(found.f_type);
    file_system == FUSE_SUPER_MAGIC
}

fn try_file(namespace: &Namespace, entry: &FileEntry) -> Result<PageRetention> {
    let file = namespace.open(entry)?;
    if !is_fuse_type(&fstatfs(&file)?) {
        return Ok(PageRetention::Kept);
    }
    let len = entry.len.min(rustix::param::page_size() as u64);
    let cached = |file: &File| FileResidency::of(file, 0, len).map(|found| found.cached);
    let before = cached(&file)?;
    // one page is read, not what the kernel would read ahead
    let _ = fadvise(&file, 0, None, Advice::Random);
    let read = file.read_at(&mut [0], 0)?;
    if read > 0 && cached(&file)? == 0 {
        return Ok(PageRetention::NotCached);
    }
    let reopened = namespace.open(entry)?;
    let is_kept = cached(&reopened)? > 0;
    if before == 0 {
        // like `read_uncached`: the first miss of a service is not hidden from policies
        let _ = fadvise(
            &reopened,
            0,
            std::num::NonZeroU64::new(len),
            Advice::DontNeed,
        );
    }
    Ok(if is_kept {
        PageRetention::Kept
    } else {
        PageRetention::DiscardedAtOpen
    })
}
