//! The answers of `cachestat(2)` and `mincore(2)` agree, and memory is resident once it is touched.

use std::fs::{File, Permissions};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, PermissionsExt};

use super::linux::{WINDOW, by_mincore, is_mincore_truthful};
use super::*;

fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

#[test]
fn cachestat_and_mincore_agree_on_a_sparse_file() {
    // a memfd, because the kernel does not evict its pages
    let memfd = rustix::fs::memfd_create("sparse", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let file = File::from(memfd);
    // a hole longer than one window, then data that does not end at a page boundary
    let (hole, len) = (WINDOW + (8 << 20), WINDOW + (16 << 20) + 77);
    file.write_all_at(&vec![1; usize::try_from(len - hole).unwrap()], hole)
        .unwrap();
    for len in [
        1,
        hole,
        hole + 4096,
        hole + 4097,
        len,
        len + (1 << 20),
        u64::MAX,
    ] {
        let by_mincore = by_mincore(file.as_fd(), 0, len).expect("the test owns the file");
        if let Ok(stat) = cachestat(file.as_fd(), 0, len) {
            assert_eq!(by_mincore.cached, stat.cache * page_size(), "{len} bytes");
        }
    }
    let cached =
        |start, len| by_mincore(file.as_fd(), start, len).map(|residency| residency.cached);
    let pages = (len - hole).div_ceil(page_size());
    assert_eq!(cached(0, hole).unwrap(), 0);
    assert_eq!(cached(0, len).unwrap(), pages * page_size());
    assert_eq!(cached(hole + page_size() + 1, 1).unwrap(), page_size());
    assert_eq!(
        resident_bytes(&file, 0, len).unwrap(),
        (pages * page_size()).min(len)
    );
    assert_eq!(resident_bytes(&file, 0, 0), Some(0));
    assert_eq!(FileResidency::of(&file, hole, 0).unwrap().cached, 0);
    assert!(!is_probably_resident(&file, 0, len), "the hole");
    if cachestat(file.as_fd(), 0, 1).is_ok() {
        assert!(is_probably_resident(&file, hole, len - hole));
        assert!(is_probably_resident(&file, len - 1, 1));
        assert!(!is_probably_resident(&file, hole - 1, 1));
    }
}

#[test]
fn cachestat_and_mincore_agree_on_an_evicted_range() {
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(&vec![1; 8 << 20], 0).unwrap();
    file.sync_all().unwrap();
    // a file system in memory ignores the advice
    rustix::fs::fadvise(
        &file,
        0,
        std::num::NonZeroU64::new(4 << 20),
        rustix::fs::Advice::DontNeed,
    )
    .unwrap();
    // the kernel may evict pages between the two calls: repeat
    let counts_agree = || {
        let left = by_mincore(file.as_fd(), 0, 8 << 20).unwrap().cached;
        let counted = FileResidency::of(&file, 0, 8 << 20).unwrap().cached;
        left > 0 && counted == left
    };
    assert!((0..5).any(|_| counts_agree()));
}

#[test]
fn mincore_of_files_of_other_users_is_refused() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&[1; 10_000]).unwrap();
    file.set_permissions(Permissions::from_mode(0o644)).unwrap();
    assert!(is_mincore_truthful(file.as_fd()).unwrap());
    let refused = |file: &File| {
        let error = by_mincore(file.as_fd(), 0, 10_000).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    };
    if !rustix::process::geteuid().is_root() {
        return refused(&File::open("/etc/passwd").unwrap());
    }
    // changes the user id of this thread only
    let file = std::thread::spawn(move || {
        let unprivileged = rustix::process::Uid::from_raw(65_534);
        rustix::thread::set_thread_res_uid(unprivileged, unprivileged, unprivileged).unwrap();
        refused(&file);
        file
    })
    .join()
    .unwrap();
    by_mincore(file.as_fd(), 0, 10_000).unwrap();
}

#[test]
fn memory_is_resident_once_touched() {
    let mut memory = vec![0u8; 64 << 20];
    assert!(!is_memory_resident(&memory));
    let middle = memory.len() / 2;
    memory[middle] = 1;
    assert!(is_memory_resident(&memory));
    let last_quarter = &memory[memory.len() / 4 * 3..];
    assert!(
        !is_memory_resident(last_quarter),
        "even a huge page ends before"
    );
    assert!(!is_memory_resident(&[]));
}
