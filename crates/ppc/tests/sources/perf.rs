//! Trace points.

use std::path::Path;
use std::time::Duration;

use anamnesis_ppc::source::perf::Options;
use anamnesis_ppc::source::{Perf, Want};
use anamnesis_ppc::{EventSource, Kind};

use crate::disk::{self, Do, LONG, MIB, chill, cold, covered, dir, inode, other, quiet, told};

pub(crate) fn perf(want: Want, change: impl FnOnce(&mut Options)) -> Option<Perf> {
    let mut options = Options::of(want);
    change(&mut options);
    Perf::new(want, options)
        .map_err(|error| eprintln!("SKIPPED: {error}"))
        .ok()
}

#[test]
fn cold_reads_are_misses_and_warm_reads_are_none() {
    let (Some(dir), Some(mut source)) = (dir(), perf(Want::Misses, |_| {})) else {
        return;
    };
    let path = dir.path().join("model");
    cold(&path, 16 * MIB);
    source.watch(&[inode(&path)]).unwrap();
    let pid = other(Do::Read(MIB), &path, 3 * MIB, 16 * MIB);
    let events = told(&mut source);
    let first = events.first().expect("a cold read misses");
    assert_eq!(
        (first.kind, first.inode, first.start, first.len),
        (Kind::Miss, inode(&path), 3 * MIB, MIB),
        "{events:?}"
    );
    assert_eq!(first.pid, pid);
    assert!(events.is_sorted_by_key(|event| event.time));
    other(Do::Read(MIB), &path, 0, 3 * MIB);
    let events = told(&mut source);
    assert_eq!(
        covered(&events, 0, MIB),
        MIB,
        "before what was read: {events:?}"
    );
    assert!(
        quiet(&mut source, || _ = other(Do::Read(MIB), &path, 0, 16 * MIB)),
        "all of it is in memory"
    );
    assert_eq!(source.lost(), 0);
}

#[test]
fn cold_touches_of_a_map_are_misses_and_warm_touches_are_none() {
    let (Some(dir), Some(mut source)) = (dir(), perf(Want::Misses, |_| {})) else {
        return;
    };
    let path = dir.path().join("model");
    cold(&path, 4 * MIB);
    source.watch(&[inode(&path)]).unwrap();
    for task in [Do::Map, Do::MapSequential, Do::MapRandom] {
        chill(&path);
        let pid = other(task, &path, MIB, 2 * MIB);
        let events = told(&mut source);
        let first = events
            .first()
            .unwrap_or_else(|| panic!("{task:?}: a cold touch misses"));
        assert_eq!(
            (first.kind, first.start, first.len, first.pid),
            (Kind::Miss, MIB, 4096, pid),
            "{task:?}: {events:?}"
        );
        if let Do::MapRandom = task {
            assert_eq!(
                covered(&events, MIB, 2 * MIB),
                MIB,
                "nothing is read ahead: {}",
                events.len()
            );
        } else {
            assert!(events.len() < 10, "{task:?}: {events:?}");
        }
        other(Do::Read(MIB), &path, 0, 4 * MIB); // what is missing yet
        told(&mut source);
        assert!(
            quiet(&mut source, || _ = other(task, &path, 0, 4 * MIB)),
            "{task:?}, warm"
        );
    }
}

#[test]
fn a_miss_is_told_while_its_reader_waits() {
    let (Some(dir), Some(mut source)) = (dir(), perf(Want::Misses, |_| {})) else {
        return;
    };
    let path = dir.path().join("model");
    cold(&path, MIB);
    source.watch(&[inode(&path)]).unwrap();
    for task in [Do::Read(4096), Do::Map] {
        let mut lags: Vec<_> = (0..5).map(|_| lag(&mut source, task, &path)).collect();
        eprintln!("{task:?}: told {lags:?} after it happened");
        // a source that is not woken looks once in a second. How soon this thread runs again is the machine's affair, so
        // one of the five may be late
        lags.sort_unstable();
        assert!(
            lags[2] < Duration::from_millis(500),
            "woken at once, not by the time that is over: {lags:?}"
        );
    }
}

/// How long after a miss it is told.
fn lag(source: &mut Perf, task: Do, path: &Path) -> Duration {
    chill(path);
    let mut child = disk::command(task, path, 0, 4096).spawn().unwrap();
    let mut events = Vec::new();
    source.wait(LONG, &mut events).unwrap();
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let now = u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).unwrap();
    assert!(child.wait().unwrap().success());
    let first = events.first().expect("a miss").time;
    told(source); // what else there is of it
    Duration::from_nanos(now - first)
}

#[test]
fn accesses_cover_what_is_read_warm_or_cold() {
    let (Some(dir), Some(mut source)) = (dir(), perf(Want::Accesses, |_| {})) else {
        return;
    };
    let path = dir.path().join("model");
    cold(&path, 16 * MIB);
    source.watch(&[inode(&path)]).unwrap();
    for temperature in ["cold", "warm"] {
        other(Do::Read(MIB), &path, 2 * MIB, 14 * MIB);
        let events = told(&mut source);
        assert!(events.iter().all(|event| event.kind == Kind::Touch));
        let share = covered(&events, 2 * MIB, 14 * MIB) * 100 / (12 * MIB);
        assert!(share >= 97, "{temperature}: {share} %");
        assert_eq!(
            covered(&events, 0, 2 * MIB),
            0,
            "{temperature}: not what was read ahead"
        );
    }
    other(Do::Map, &path, 0, 16 * MIB);
    let share = covered(&told(&mut source), 0, 16 * MIB) * 100 / (16 * MIB);
    eprintln!("mapped: {share} %");
    assert!(share >= 60, "mapped: {share} %");
    assert_eq!(source.lost(), 0);
}

#[test]
fn a_recording_has_all_that_is_read_of_cold_files() {
    let (Some(dir), Some(mut source)) = (dir(), perf(Want::Recording, |_| {})) else {
        return;
    };
    let path = dir.path().join("model");
    for task in [Do::Read(16 * MIB), Do::Map] {
        cold(&path, 96 * MIB);
        source.watch(&[inode(&path)]).unwrap();
        other(task, &path, 0, 96 * MIB);
        let events = told(&mut source);
        assert_eq!(covered(&events, 0, 96 * MIB), 96 * MIB, "{task:?}");
        assert!(events.len() < 20_000, "{task:?}: {} events", events.len());
    }
    assert_eq!(source.lost(), 0);
}

#[test]
fn other_files_are_not_told_and_watching_anew_loses_nothing() {
    let (Some(dir), Some(mut source)) = (dir(), perf(Want::Accesses, |_| {})) else {
        return;
    };
    let paths: Vec<_> = (0..300).map(|n| dir.path().join(format!("{n}"))).collect();
    paths.iter().for_each(|path| cold(path, 4096));
    let inodes: Vec<_> = paths.iter().map(|path| inode(path)).collect();
    other(Do::Read(4096), &paths[7], 0, 4096);
    assert_eq!(told(&mut source), [], "nothing is watched");
    // every second file: more than the kernel's filter can name
    let every: Vec<_> = inodes.iter().copied().step_by(2).collect();
    source.watch(&every).unwrap();
    paths
        .iter()
        .for_each(|path| disk::read(path, 4096, 0, 4096));
    assert_eq!(told(&mut source), [], "our own process");
    other(Do::Read(4096), &paths[7], 0, 4096);
    assert_eq!(told(&mut source), [], "another file");
    other(Do::Read(4096), &paths[8], 0, 4096);
    assert_eq!(
        told(&mut source).first().map(|event| event.inode),
        Some(inodes[8])
    );

    // a process reads all the time, and the file is watched again and again
    let big = dir.path().join("big");
    let (len, block) = (64 * MIB, 16 << 10);
    cold(&big, len);
    source.watch(&[inode(&big)]).unwrap();
    let mut child = disk::command(Do::Read(block), &big, 0, len)
        .spawn()
        .unwrap();
    let (mut events, mut rounds) = (Vec::new(), 0);
    while child.try_wait().unwrap().is_none() {
        let more = [&[inode(&big)], &inodes[..rounds % 5]].concat();
        source.watch(&more).unwrap();
        source.wait(Duration::from_millis(1), &mut events).unwrap();
        rounds += 1;
    }
    events.extend(told(&mut source));
    assert!(rounds > 1, "{rounds}");
    assert_eq!(covered(&events, 0, len), len, "after {rounds} rounds");
    let reads = usize::try_from(len / block).unwrap();
    assert!(
        events.len() < reads + reads / 4,
        "{} events of {reads} reads",
        events.len()
    );
    assert_eq!(source.lost(), 0);
}

#[test]
fn our_own_reads_are_told_when_that_is_asked_for() {
    let (Some(dir), Some(mut source)) = (dir(), perf(Want::Misses, |options| options.own = true))
    else {
        return;
    };
    let path = dir.path().join("model");
    cold(&path, MIB);
    source.watch(&[inode(&path)]).unwrap();
    disk::read(&path, 4096, 0, 4096);
    assert_eq!(
        told(&mut source).first().map(|event| event.pid),
        Some(std::process::id())
    );
}

#[test]
fn a_full_ring_loses_events_and_counts_them() {
    let (Some(dir), Some(mut source)) = (dir(), perf(Want::Accesses, |options| options.pages = 1))
    else {
        return;
    };
    let path = dir.path().join("model");
    cold(&path, 4 * MIB);
    source.watch(&[inode(&path)]).unwrap();
    other(Do::Read(4096), &path, 0, 4 * MIB); // 1024 samples of about 80 bytes into two rings of 4096
    let events = told(&mut source);
    // the kernel says what it lost with the next sample that it can write, on the same processor
    for _ in 0..20 {
        other(Do::Read(4096), &path, 0, 4096);
        told(&mut source);
    }
    assert!(
        source.lost() > 500,
        "{} told, {} lost",
        events.len(),
        source.lost()
    );
    assert!(
        events.len() as u64 + source.lost() >= 1024,
        "{} told, {} lost",
        events.len(),
        source.lost()
    );
}

#[test]
fn older_kernels_tell_what_becomes_resident() {
    let old = |options: &mut Options| {
        options.without = [
            "readahead/page_cache_sync_ra",
            "filemap/mm_filemap_get_pages",
        ]
        .map(String::from)
        .into_iter()
        .collect();
    };
    for want in [Want::Misses, Want::Accesses] {
        let (Some(dir), Some(mut source)) = (dir(), perf(want, old)) else {
            return;
        };
        assert!(source.sight().blind.contains("read ahead"));
        let path = dir.path().join("model");
        cold(&path, 2 * MIB);
        source.watch(&[inode(&path)]).unwrap();
        other(Do::Read(MIB), &path, 0, 2 * MIB);
        assert_eq!(covered(&told(&mut source), 0, 2 * MIB), 2 * MIB);
        assert!(
            quiet(&mut source, || _ = other(Do::Read(MIB), &path, 0, 2 * MIB)),
            "warm"
        );
    }
}
