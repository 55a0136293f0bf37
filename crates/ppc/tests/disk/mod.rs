#![allow(dead_code)] // each test binary uses a part of it

//! Test files on a real disk, and their state in the page cache.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anamnesis_ppc::cache::{FileResidency, ResidencyMethod};
use anamnesis_ppc::{FileRange, Namespace, PrefetchRequest, RangeList};
use rustix::fs::{Advice, fadvise};

pub(crate) const MIB: u64 = 1 << 20;
/// A timeout that is only reached if something hangs, even on a busy machine with a slow disk.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Waits until `condition` holds. Panics with `what` after [`LONG`].
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < LONG, "timeout: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A directory on a disk with files called `0`, `1`, … of these sizes in MiB, none of which is cached. Prints a message and
/// returns `None` where there is no suitable file system or no `cachestat`.
pub(crate) fn disk(test: &str, sizes: &[u64]) -> Option<(tempfile::TempDir, Arc<Namespace>)> {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let kind = rustix::fs::statfs(dir.path()).unwrap().f_type;
    // tmpfs, ramfs, overlayfs, 9p: their page cache cannot be dropped, or belongs to another file system
    if [0x0102_1994, 0x8584_58f6, 0x794c_7630, 0x0102_1997].contains(&kind) {
        eprintln!("SKIPPED: {test}: the target directory is on no disk (file system {kind:#x})");
        return None;
    }
    for (number, &size) in sizes.iter().enumerate() {
        write(&dir.path().join(number.to_string()), size);
    }
    let namespace = Arc::new(Namespace::scan(dir.path()).unwrap());
    for entry in namespace.entries() {
        let file = namespace.open(entry).unwrap();
        drop_cache(&file);
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

/// Writes a file of pseudo-random bytes, `mib` MiB long, and syncs it to the device.
pub(crate) fn write(path: &Path, mib: u64) {
    let mut file = File::create(path).unwrap();
    let mut word = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..mib {
        let mut block = Vec::with_capacity(1 << 20);
        while block.len() < 1 << 20 {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            block.extend_from_slice(&word.to_ne_bytes());
        }
        file.write_all(&block).unwrap();
    }
    file.sync_all().unwrap();
}

/// Drops the clean pages of a file from the page cache.
pub(crate) fn drop_cache(file: impl AsFd) {
    fadvise(file, 0, None, Advice::DontNeed).unwrap();
}

/// How many bytes of the range are in the page cache.
pub(crate) fn cached(path: &Path, start: u64, len: u64) -> u64 {
    FileResidency::of(File::open(path).unwrap(), start, len)
        .unwrap()
        .cached
}

/// How many bytes of the range were read into the page cache since they were last dropped by advice: those that are
/// cached, and those that the kernel reclaimed since. The kernel may reclaim at any time (DAMON), and leaves a shadow entry
/// that `cachestat` counts.
pub(crate) fn populated(path: &Path, start: u64, len: u64) -> u64 {
    let residency = FileResidency::of(File::open(path).unwrap(), start, len).unwrap();
    residency.cached + residency.evicted
}

/// Whether the whole range was read into the page cache.
pub(crate) fn is_populated(path: &Path, start: u64, len: u64) -> bool {
    populated(path, start, len) >= len
}

/// How many bytes beyond a range may be read: twice the read-ahead of the directory's device.
pub(crate) fn slack(dir: &Path) -> u64 {
    let dev = fs::metadata(dir)
        .map(|meta| std::os::unix::fs::MetadataExt::dev(&meta))
        .unwrap();
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let path = PathBuf::from(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"));
    let kib: u64 = fs::read_to_string(path).unwrap().trim().parse().unwrap();
    2 * kib * 1024
}

pub(crate) fn io(path: &str, start: u64, len: u64) -> FileRange {
    FileRange {
        path: Path::new(path).into(),
        start,
        len,
        device: None,
    }
}

pub(crate) fn list(queue: u32, ranges: Vec<FileRange>) -> PrefetchRequest {
    PrefetchRequest {
        ranges: ranges.into(),
        queue,
    }
}

/// The range that covers the file called `path`.
pub(crate) fn all(namespace: &Namespace, path: &str) -> RangeList {
    vec![io(path, 0, namespace.get(Path::new(path)).unwrap().len)].into()
}
