//! Which pages the evictor drops: large folios, parts of folios, dirty pages, and files that were replaced.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use anamnesis_ppc::cache::{Evicted, Evictor, FileResidency, MappingProcesses};
use anamnesis_ppc::{Namespace, RangeList};

use crate::support::files::{
    MIB, cached_bytes, file_range, populated_bytes, uncached_files, wait_until, whole_file,
    write_file,
};

/// Reads a range in order, so that the kernel makes large folios.
fn read_in_order(path: &Path, start: u64, len: u64) {
    let (file, mut buffer) = (File::open(path).unwrap(), vec![0; 1 << 20]);
    let mut offset = start;
    while offset < start + len {
        let count = usize::try_from((start + len - offset).min(MIB)).unwrap();
        file.read_exact_at(&mut buffer[..count], offset).unwrap();
        offset += count as u64;
    }
}

/// An evictor that does not scan other processes for mappings.
fn evictor(namespace: &Arc<Namespace>) -> Evictor {
    Evictor::new(namespace).mapping_processes(MappingProcesses::None)
}

#[test]
fn large_folios_are_evicted() {
    let Some((dir, namespace)) = uncached_files("evictor", &[128]) else {
        return;
    };
    let path = dir.path().join("0");
    let nothing = Evicted {
        requested: 128 * MIB,
        ..Evicted::default()
    };
    // repeated, because the kernel may reclaim pages before the eviction
    wait_until("all of the file is evicted", || {
        read_in_order(&path, 0, 128 * MIB);
        let evicted = evictor(&namespace).evict(&whole_file(&namespace, "0"));
        assert_eq!(cached_bytes(&path, 0, 128 * MIB), 0);
        assert_eq!(
            Evicted {
                freed: 0,
                ..evicted
            },
            nothing
        );
        evicted.freed == 128 * MIB
    });
    // nothing is left to evict
    assert_eq!(
        evictor(&namespace).evict(&whole_file(&namespace, "0")),
        nothing
    );
}

#[test]
fn consecutive_small_ranges_are_evicted_whole_and_bytes_after_them_are_kept() {
    let Some((dir, namespace)) = uncached_files("small ranges", &[128]) else {
        return;
    };
    let path = dir.path().join("0");
    read_in_order(&path, 0, 128 * MIB);
    // the steps divide folios, and end at no page boundary
    let mut evictor = evictor(&namespace);
    let (first, step) = (8 * MIB, MIB - 12_345);
    let page = rustix::param::page_size() as u64;
    // a folio that the kernel reclaimed leaves one shadow entry, which is dropped whole if a range begins or ends in
    // it
    let dropped_shadow = |at| {
        if populated_bytes(&path, at - page, 2 * page) > cached_bytes(&path, at - page, 2 * page) {
            2 * MIB
        } else {
            0
        }
    };
    let (mut end, mut freed, mut dropped) = (first, 0, dropped_shadow(first));
    while end < 64 * MIB {
        let kept = (end + step).next_multiple_of(page);
        dropped += dropped_shadow(kept);
        freed += evictor
            .evict(&vec![file_range("0", end, step)].into())
            .freed;
        end += step;
        assert!(
            populated_bytes(&path, kept, 128 * MIB - kept) + dropped >= 128 * MIB - kept,
            "bytes after {end} were evicted"
        );
        // remaining pages share a folio with later bytes, or with bytes that were never requested
        let evicted = (end - first).saturating_sub(4 * MIB);
        if evicted > 0 {
            assert_eq!(
                cached_bytes(&path, first + 2 * MIB, evicted),
                0,
                "bytes before {end} were kept"
            );
        }
    }
    // nothing before the first range is evicted
    assert!(populated_bytes(&path, 0, first) + dropped >= first);
    assert!(
        freed <= end - first
            && cached_bytes(&path, 0, 128 * MIB) <= 128 * MIB - (end - first) + 4 * MIB
    );
    // requested together, all remaining pages are evicted
    let rest = vec![
        file_range("0", 0, 100 * MIB),
        file_range("0", 100 * MIB, u64::MAX),
    ];
    let evicted = evictor.evict(&rest.into());
    assert_eq!((evicted.requested, evicted.remaining), (128 * MIB, 0));
    assert_eq!(cached_bytes(&path, 0, 128 * MIB), 0);
}

#[test]
fn dirty_pages_are_kept_and_not_written_back() {
    let Some((dir, namespace)) = uncached_files("dirty pages", &[32]) else {
        return;
    };
    let path = dir.path().join("0");
    read_in_order(&path, 0, 32 * MIB);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[7; 5000], 11 * MIB + 3).unwrap();
    let before = FileResidency::of(&file, 0, 32 * MIB).unwrap();
    if before.dirty == 0 {
        return eprintln!("SKIPPED: dirty pages: the kernel has written the page already");
    }
    let evicted = evictor(&namespace).evict(&whole_file(&namespace, "0"));
    let after = FileResidency::of(&file, 0, 32 * MIB).unwrap();
    // the eviction did not start writeback
    assert_eq!((after.dirty, after.writeback), (before.dirty, 0));
    assert!(
        evicted.dirty == before.dirty && evicted.remaining >= evicted.dirty,
        "{evicted:?}"
    );
    assert!(
        evicted.freed >= before.cached - 2 * MIB - before.dirty,
        "{before:?} {evicted:?}"
    );
    let mut bytes = [0; 5000];
    File::open(&path)
        .unwrap()
        .read_exact_at(&mut bytes, 11 * MIB + 3)
        .unwrap();
    assert_eq!(bytes, [7; 5000]);
    // after writeback the page is evicted
    file.sync_all().unwrap();
    assert_eq!(
        evictor(&namespace)
            .evict(&whole_file(&namespace, "0"))
            .remaining,
        0
    );
}

#[test]
fn replaced_and_unlisted_files_are_skipped() {
    let Some((dir, namespace)) = uncached_files("replaced files", &[4, 4, 4]) else {
        return;
    };
    for name in ["0", "1", "2"] {
        read_in_order(&dir.path().join(name), 0, 4 * MIB);
    }
    // one file is replaced by another, and one path does not exist
    write_file(&dir.path().join("new"), 4 * MIB);
    fs::rename(dir.path().join("new"), dir.path().join("0")).unwrap();
    let whole = |name| file_range(name, 0, 4 * MIB);
    let ranges: RangeList = vec![
        whole("0"),
        whole("../escape"),
        whole("1"),
        whole("0"),
        file_range("1", u64::MAX, 5),
    ]
    .into();
    wait_until("the valid range is evicted", || {
        read_in_order(&dir.path().join("1"), 0, 4 * MIB);
        let evicted = evictor(&namespace).evict(&ranges);
        assert_eq!(evicted.stale, 2, "{evicted:?}");
        evicted.freed == 4 * MIB
    });
    assert!(populated_bytes(&dir.path().join("0"), 0, 4 * MIB) > 0);
    assert_eq!(cached_bytes(&dir.path().join("1"), 0, 4 * MIB), 0);
    assert_eq!(populated_bytes(&dir.path().join("2"), 0, 4 * MIB), 4 * MIB);
}
