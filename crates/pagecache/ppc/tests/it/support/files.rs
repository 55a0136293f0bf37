#![allow(dead_code)] // each of the two test binaries uses a part of it

//! Test files on a disk that are not in the page cache, requests for their bytes, and how many of them are resident.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anamnesis_ppc::cache::{FileResidency, ResidencyMethod};
use anamnesis_ppc::{FileRange, Inode, Namespace, PrefetchRequest, RangeList};
use rustix::fs::{Advice, fadvise};

pub(crate) const MIB: u64 = 1 << 20;
/// Only reached if something hangs, even on a busy machine with a slow disk.
pub(crate) const HANG_TIMEOUT: Duration = Duration::from_secs(60);

/// Waits until `condition` holds. Panics with `description` after [`HANG_TIMEOUT`].
pub(crate) fn wait_until(description: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < HANG_TIMEOUT, "timeout: {description}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A directory on a disk with files called `0`, `1`, … of these sizes in MiB, none of which is cached. Prints a message
/// and returns `None` if the file system is unsuitable or the kernel has no `cachestat`.
pub(crate) fn uncached_files(
    test: &str,
    sizes: &[u64],
) -> Option<(tempfile::TempDir, Arc<Namespace>)> {
    const TMPFS: i64 = 0x0102_1994;
    const RAMFS: i64 = 0x8584_58f6;
    const OVERLAYFS: i64 = 0x794c_7630;
    const V9FS: i64 = 0x0102_1997;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file_system = rustix::fs::statfs(dir.path()).unwrap().f_type;
    // their page cache cannot be dropped, or belongs to another file system
    if [TMPFS, RAMFS, OVERLAYFS, V9FS].contains(&file_system) {
        eprintln!(
            "SKIPPED: {test}: the target directory is not on a disk (file system {file_system:#x})"
        );
        return None;
    }
    for (number, &size) in sizes.iter().enumerate() {
        write_file(&dir.path().join(number.to_string()), size * MIB);
    }
    let namespace = Arc::new(Namespace::scan(dir.path()).unwrap());
    for entry in namespace.entries() {
        let file = namespace.open(entry).unwrap();
        drop_cached_pages(&file);
        let residency = FileResidency::of(&file, 0, entry.len).unwrap();
        if residency.method != ResidencyMethod::Cachestat {
            eprintln!("SKIPPED: {test}: needs cachestat (Linux 6.5)");
            return None;
        }
        if residency.cached > 0 {
            eprintln!("SKIPPED: {test}: the file system does not drop cached pages");
            return None;
        }
    }
    Some((dir, namespace))
}

/// Writes a file of `len` pseudo-random bytes and flushes it to the device.
pub(crate) fn write_file(path: &Path, len: u64) {
    let mut file = File::create(path).unwrap();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut remaining = len;
    while remaining > 0 {
        let count = usize::try_from(remaining.min(MIB)).unwrap();
        let mut bytes = Vec::with_capacity(1 << 20);
        while bytes.len() < count {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.extend_from_slice(&state.to_ne_bytes());
        }
        file.write_all(&bytes[..count]).unwrap();
        remaining -= count as u64;
    }
    file.sync_all().unwrap();
}

/// Writes a file of `len` bytes that is not in the page cache, unless the file system does not drop cached pages.
pub(crate) fn write_uncached(path: &Path, len: u64) {
    write_file(path, len);
    drop_all_cached_pages(path);
}

/// Drops the clean pages of a file from the page cache. Pages in use are kept.
pub(crate) fn drop_cached_pages(file: impl AsFd) {
    fadvise(file, 0, None, Advice::DontNeed).unwrap();
}

/// Drops the pages of a file from the page cache. The kernel keeps pages that are in use, and on a busy machine the
/// exit of a process that mapped the file may not be complete yet, so this is repeated until none is cached, for at
/// most a second.
pub(crate) fn drop_all_cached_pages(path: &Path) {
    let file = File::open(path).unwrap();
    let len = file.metadata().unwrap().len();
    for _ in 0..100 {
        drop_cached_pages(&file);
        if FileResidency::of(&file, 0, len).is_ok_and(|residency| residency.cached == 0) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Number of bytes of the range that are in the page cache.
pub(crate) fn cached_bytes(path: &Path, start: u64, len: u64) -> u64 {
    FileResidency::of(File::open(path).unwrap(), start, len)
        .unwrap()
        .cached
}

/// Number of bytes of the range that were read into the page cache since they were last dropped by advice: those that
/// are cached, and those that the kernel reclaimed since. The kernel may reclaim at any time (DAMON), and leaves a
/// shadow entry that `cachestat` counts.
pub(crate) fn populated_bytes(path: &Path, start: u64, len: u64) -> u64 {
    let residency = FileResidency::of(File::open(path).unwrap(), start, len).unwrap();
    residency.cached + residency.evicted
}

/// Whether the whole range was read into the page cache.
pub(crate) fn is_populated(path: &Path, start: u64, len: u64) -> bool {
    populated_bytes(path, start, len) >= len
}

/// Bound on the bytes that the kernel reads ahead of a range: twice the read-ahead of the directory's device.
pub(crate) fn read_ahead_bound(dir: &Path) -> u64 {
    let dev = fs::metadata(dir)
        .map(|meta| std::os::unix::fs::MetadataExt::dev(&meta))
        .unwrap();
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let path = PathBuf::from(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"));
    let kib: u64 = fs::read_to_string(path).unwrap().trim().parse().unwrap();
    2 * kib * 1024
}

pub(crate) fn inode(path: &Path) -> Inode {
    Inode::of(&rustix::fs::stat(path).unwrap())
}

pub(crate) fn file_range(path: &str, start: u64, len: u64) -> FileRange {
    FileRange {
        path: Path::new(path).into(),
        start,
        len,
        device: None,
    }
}

pub(crate) fn prefetch_request(queue: u32, ranges: Vec<FileRange>) -> PrefetchRequest {
    PrefetchRequest {
        ranges: ranges.into(),
        queue,
    }
}

/// The range that covers the file called `path`.
pub(crate) fn whole_file(namespace: &Namespace, path: &str) -> RangeList {
    let len = namespace.get(Path::new(path)).unwrap().len;
    vec![file_range(path, 0, len)].into()
}

/// A request to prefetch the file called `path`.
pub(crate) fn whole_file_request(namespace: &Namespace, queue: u32, path: &str) -> PrefetchRequest {
    PrefetchRequest {
        ranges: whole_file(namespace, path),
        queue,
    }
}
