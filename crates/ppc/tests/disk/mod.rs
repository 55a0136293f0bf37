#![allow(dead_code)] // each test binary takes what it needs

//! Files on a real disk, out of the page cache.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anamnesis_ppc::cache::{Counted, Residency};
use anamnesis_ppc::{Io, Ios, Namespace, Prefetch};
use rustix::fs::{Advice, fadvise};

pub(crate) const MIB: u64 = 1 << 20;
/// Longer than anything takes, also on a busy machine with a slow disk.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Waits until it holds, however long the machine takes for that.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < LONG, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A directory on a disk, with files of these sizes in MiB by the names `0`, `1`, …; `None`, aloud, where there is no
/// disk or the kernel does not count.
pub(crate) fn disk(test: &str, sizes: &[u64]) -> Option<(tempfile::TempDir, Arc<Namespace>)> {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let kind = rustix::fs::statfs(dir.path()).unwrap().f_type;
    // tmpfs, ramfs, overlayfs, 9p: what they hold cannot be dropped, or is not theirs
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
        drop_all(&file);
        let residency = Residency::of(&file, 0, entry.len).unwrap();
        if residency.counted != Counted::Cachestat {
            eprintln!("SKIPPED: {test}: needs cachestat (Linux 6.5)");
            return None;
        }
        if residency.cached > 0 {
            eprintln!("SKIPPED: {test}: the file system keeps what it is asked to drop");
            return None;
        }
    }
    Some((dir, namespace))
}

/// A file of random-looking MiB, on the device.
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

/// Drops a clean file from the page cache.
pub(crate) fn drop_all(file: impl AsFd) {
    fadvise(file, 0, None, Advice::DontNeed).unwrap();
}

/// Bytes of a file in the page cache.
pub(crate) fn cached(path: &Path, start: u64, len: u64) -> u64 {
    Residency::of(File::open(path).unwrap(), start, len)
        .unwrap()
        .cached
}

/// Bytes of a file that were brought into the page cache: those that are there, and those that the kernel has taken back
/// since. A machine that looks for idle memory (DAMON) does that at any time; only what is dropped by advice leaves no trace.
pub(crate) fn brought(path: &Path, start: u64, len: u64) -> u64 {
    let residency = Residency::of(File::open(path).unwrap(), start, len).unwrap();
    residency.cached + residency.evicted
}

/// Whether all of these bytes were brought.
pub(crate) fn is_here(path: &Path, start: u64, len: u64) -> bool {
    brought(path, start, len) >= len
}

/// Twice the read-ahead of the device with this directory, which is what may be read beyond a range.
pub(crate) fn slack(dir: &Path) -> u64 {
    let dev = fs::metadata(dir)
        .map(|meta| std::os::unix::fs::MetadataExt::dev(&meta))
        .unwrap();
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let path = PathBuf::from(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"));
    let kib: u64 = fs::read_to_string(path).unwrap().trim().parse().unwrap();
    2 * kib * 1024
}

pub(crate) fn io(path: &str, start: u64, len: u64) -> Io {
    Io {
        path: Path::new(path).into(),
        start,
        len,
        device: None,
    }
}

pub(crate) fn list(lane: u32, ios: Vec<Io>) -> Prefetch {
    Prefetch {
        ios: ios.into(),
        lane,
    }
}

/// All of a file.
pub(crate) fn all(namespace: &Namespace, path: &str) -> Ios {
    vec![io(path, 0, namespace.get(Path::new(path)).unwrap().len)].into()
}
