//! The evictor, on files of a real disk.

mod disk;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use anamnesis_ppc::cache::{Evicted, Evictor, Mappers, Residency};
use anamnesis_ppc::{Ios, Namespace};
use disk::{MIB, all, brought, cached, disk, io, until, write};

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
    Evictor::new(namespace).mappers(Mappers::None)
}

#[test]
fn large_folios_go() {
    let Some((dir, namespace)) = disk("evict", &[128]) else {
        return;
    };
    let path = dir.path().join("0");
    let nothing = Evicted {
        asked: 128 * MIB,
        ..Evicted::default()
    };
    // once more where the kernel took some back before
    until("all of it goes", || {
        read(&path, 0, 128 * MIB);
        let evicted = evictor(&namespace).evict(&all(&namespace, "0"));
        assert_eq!(cached(&path, 0, 128 * MIB), 0);
        assert_eq!(Evicted { gone: 0, ..evicted }, nothing);
        evicted.gone == 128 * MIB
    });
    // there is nothing more to do
    assert_eq!(evictor(&namespace).evict(&all(&namespace, "0")), nothing);
}

#[test]
fn small_steps_take_everything_and_nothing_ahead() {
    let Some((dir, namespace)) = disk("steps", &[128]) else {
        return;
    };
    let path = dir.path().join("0");
    read(&path, 0, 128 * MIB);
    // where folios are split by steps of a MiB and less, and at no page's end
    let mut evictor = evictor(&namespace);
    let (begin, step) = (8 * MIB, MIB - 12_345);
    let page = rustix::param::page_size() as u64;
    // a folio that the kernel has taken back leaves one trace, which goes whole where a range begins or ends in it
    let trace = |at| {
        if brought(&path, at - page, 2 * page) > cached(&path, at - page, 2 * page) {
            2 * MIB
        } else {
            0
        }
    };
    let (mut at, mut gone, mut lost) = (begin, 0, trace(begin));
    while at < 64 * MIB {
        let ahead = (at + step).next_multiple_of(page);
        lost += trace(ahead);
        gone += evictor.evict(&vec![io("0", at, step)].into()).gone;
        at += step;
        assert!(
            brought(&path, ahead, 128 * MIB - ahead) + lost >= 128 * MIB - ahead,
            "after {at}"
        );
        // what is left shares a folio with what is ahead, or with what was never asked for
        let behind = (at - begin).saturating_sub(4 * MIB);
        if behind > 0 {
            assert_eq!(cached(&path, begin + 2 * MIB, behind), 0, "before {at}");
        }
    }
    // nor what lies before the first
    assert!(brought(&path, 0, begin) + lost >= begin);
    assert!(
        gone <= at - begin && cached(&path, 0, 128 * MIB) <= 128 * MIB - (at - begin) + 4 * MIB
    );
    // all at once, the rest goes too
    let rest = evictor.evict(&vec![io("0", 0, 100 * MIB), io("0", 100 * MIB, u64::MAX)].into());
    assert_eq!((rest.asked, rest.left), (128 * MIB, 0));
    assert_eq!(cached(&path, 0, 128 * MIB), 0);
}

#[test]
fn what_is_dirty_stays() {
    let Some((dir, namespace)) = disk("dirty", &[32]) else {
        return;
    };
    let path = dir.path().join("0");
    read(&path, 0, 32 * MIB);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[7; 5000], 11 * MIB + 3).unwrap();
    let before = Residency::of(&file, 0, 32 * MIB).unwrap();
    if before.dirty == 0 {
        return eprintln!("SKIPPED: dirty: it is on the device already");
    }
    let evicted = evictor(&namespace).evict(&all(&namespace, "0"));
    let after = Residency::of(&file, 0, 32 * MIB).unwrap();
    // nobody began to write it
    assert_eq!((after.dirty, after.writeback), (before.dirty, 0));
    assert!(
        evicted.dirty == before.dirty && evicted.left >= evicted.dirty,
        "{evicted:?}"
    );
    assert!(
        evicted.gone >= before.cached - 2 * MIB - before.dirty,
        "{before:?} {evicted:?}"
    );
    let mut bytes = [0; 5000];
    File::open(&path)
        .unwrap()
        .read_exact_at(&mut bytes, 11 * MIB + 3)
        .unwrap();
    assert_eq!(bytes, [7; 5000]);
    // once it is written, it goes
    file.sync_all().unwrap();
    assert_eq!(evictor(&namespace).evict(&all(&namespace, "0")).left, 0);
}

#[test]
fn other_files_are_left_alone() {
    let Some((dir, namespace)) = disk("others", &[4, 4, 4]) else {
        return;
    };
    for name in ["0", "1", "2"] {
        read(&dir.path().join(name), 0, 4 * MIB);
    }
    // another file in its place, and none
    write(&dir.path().join("new"), 4);
    fs::rename(dir.path().join("new"), dir.path().join("0")).unwrap();
    let whole = |name| io(name, 0, 4 * MIB);
    let ios: Ios = vec![
        whole("0"),
        whole("../escape"),
        whole("1"),
        whole("0"),
        io("1", u64::MAX, 5),
    ]
    .into();
    until("all that is meant goes", || {
        read(&dir.path().join("1"), 0, 4 * MIB);
        let evicted = evictor(&namespace).evict(&ios);
        assert_eq!(evicted.stale, 2, "{evicted:?}");
        evicted.gone == 4 * MIB
    });
    assert!(brought(&dir.path().join("0"), 0, 4 * MIB) > 0);
    assert_eq!(cached(&dir.path().join("1"), 0, 4 * MIB), 0);
    assert_eq!(brought(&dir.path().join("2"), 0, 4 * MIB), 4 * MIB);
}
