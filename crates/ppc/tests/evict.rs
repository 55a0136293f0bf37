//! The evictor, on files of a real disk.

mod disk;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use anamnesis_ppc::cache::{Evicted, Evictor, FileResidency, MappingProcesses};
use anamnesis_ppc::{Namespace, RangeList};
use disk::{MIB, all, cached, disk, io, populated, wait_until, write};

/// Reads a range in order, so that the kernel makes large folios.
fn read(path: &Path, start: u64, len: u64) {
    let (file, mut buffer) = (File::open(path).unwrap(), vec![0; 1 << 20]);
    let mut at = start;
    while at < start + len {
        let step = usize::try_from((start + len - at).min(MIB)).unwrap();
        file.read_exact_at(&mut buffer[..step], at).unwrap();
        at += step as u64;
    }
}

fn evictor(namespace: &Arc<Namespace>) -> Evictor {
    Evictor::new(namespace).mapping_processes(MappingProcesses::None)
}

#[test]
fn large_folios_are_evicted() {
    let Some((dir, namespace)) = disk("evict", &[128]) else {
        return;
    };
    let path = dir.path().join("0");
    let nothing = Evicted {
        requested: 128 * MIB,
        ..Evicted::default()
    };
    // repeated, because the kernel may reclaim pages before the eviction
    wait_until("all of the file is evicted", || {
        read(&path, 0, 128 * MIB);
        let evicted = evictor(&namespace).evict(&all(&namespace, "0"));
        assert_eq!(cached(&path, 0, 128 * MIB), 0);
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
    assert_eq!(evictor(&namespace).evict(&all(&namespace, "0")), nothing);
}

#[test]
fn small_ranges_evict_everything_behind_and_nothing_ahead() {
    let Some((dir, namespace)) = disk("steps", &[128]) else {
        return;
    };
    let path = dir.path().join("0");
    read(&path, 0, 128 * MIB);
    // the steps divide folios, and end at no page boundary
    let mut evictor = evictor(&namespace);
    let (begin, step) = (8 * MIB, MIB - 12_345);
    let page = rustix::param::page_size() as u64;
    // a folio that the kernel reclaimed leaves one shadow entry, which is dropped whole if a range begins or ends in
    // it
    let shadow = |at| {
        if populated(&path, at - page, 2 * page) > cached(&path, at - page, 2 * page) {
            2 * MIB
        } else {
            0
        }
    };
    let (mut at, mut gone, mut lost) = (begin, 0, shadow(begin));
    while at < 64 * MIB {
        let ahead = (at + step).next_multiple_of(page);
        lost += shadow(ahead);
        gone += evictor.evict(&vec![io("0", at, step)].into()).freed;
        at += step;
        assert!(
            populated(&path, ahead, 128 * MIB - ahead) + lost >= 128 * MIB - ahead,
            "after {at}"
        );
        // remaining pages share a folio with bytes ahead, or with bytes that were never requested
        let behind = (at - begin).saturating_sub(4 * MIB);
        if behind > 0 {
            assert_eq!(cached(&path, begin + 2 * MIB, behind), 0, "before {at}");
        }
    }
    // nothing before the first range is evicted
    assert!(populated(&path, 0, begin) + lost >= begin);
    assert!(
        gone <= at - begin && cached(&path, 0, 128 * MIB) <= 128 * MIB - (at - begin) + 4 * MIB
    );
    // requested at once, the rest is evicted too
    let rest = evictor.evict(&vec![io("0", 0, 100 * MIB), io("0", 100 * MIB, u64::MAX)].into());
    assert_eq!((rest.requested, rest.remaining), (128 * MIB, 0));
    assert_eq!(cached(&path, 0, 128 * MIB), 0);
}

#[test]
fn dirty_pages_are_kept() {
    let Some((dir, namespace)) = disk("dirty", &[32]) else {
        return;
    };
    let path = dir.path().join("0");
    read(&path, 0, 32 * MIB);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[7; 5000], 11 * MIB + 3).unwrap();
    let before = FileResidency::of(&file, 0, 32 * MIB).unwrap();
    if before.dirty == 0 {
        return eprintln!("SKIPPED: dirty: the kernel has written the page already");
    }
    let evicted = evictor(&namespace).evict(&all(&namespace, "0"));
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
        evictor(&namespace).evict(&all(&namespace, "0")).remaining,
        0
    );
}

#[test]
fn replaced_and_unlisted_files_are_skipped() {
    let Some((dir, namespace)) = disk("others", &[4, 4, 4]) else {
        return;
    };
    for name in ["0", "1", "2"] {
        read(&dir.path().join(name), 0, 4 * MIB);
    }
    // one file is replaced by another, and one path does not exist
    write(&dir.path().join("new"), 4);
    fs::rename(dir.path().join("new"), dir.path().join("0")).unwrap();
    let whole = |name| io(name, 0, 4 * MIB);
    let ranges: RangeList = vec![
        whole("0"),
        whole("../escape"),
        whole("1"),
        whole("0"),
        io("1", u64::MAX, 5),
    ]
    .into();
    wait_until("the valid range is evicted", || {
        read(&dir.path().join("1"), 0, 4 * MIB);
        let evicted = evictor(&namespace).evict(&ranges);
        assert_eq!(evicted.stale, 2, "{evicted:?}");
        evicted.freed == 4 * MIB
    });
    assert!(populated(&dir.path().join("0"), 0, 4 * MIB) > 0);
    assert_eq!(cached(&dir.path().join("1"), 0, 4 * MIB), 0);
    assert_eq!(populated(&dir.path().join("2"), 0, 4 * MIB), 4 * MIB);
}
