//! Event sources, with real files, real processes and the kernel's own events.

#[path = "sources/disk.rs"]
mod disk;
#[path = "sources/touch.rs"]
mod touch;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::{Duration, Instant};

use anamnesis_ppc::source::perf::Options;
use anamnesis_ppc::source::{self, Fake, Fanotify, Perf, Want};
use anamnesis_ppc::{Event, EventSource, Inode, Kind, Namespace, Result};
use disk::{Do, MIB, chill, cold, covered, dir, inode, other, told};

/// The part that [`disk::other`] runs.
#[test]
fn task() {
    disk::task();
}

fn perf(want: Want, change: impl FnOnce(&mut Options)) -> Option<Perf> {
    let mut options = Options::of(want);
    change(&mut options);
    Perf::new(want, options).map_err(|error| eprintln!("SKIPPED: {error}")).ok()
}

#[test]
fn cold_reads_are_misses_and_warm_reads_are_none() {
    let (Some(dir), Some(mut source)) = (dir(), perf(Want::Misses, |_| {})) else { return };
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
    assert_eq!(covered(&events, 0, MIB), MIB, "before what was read: {events:?}");
    other(Do::Read(MIB), &path, 0, 16 * MIB);
    assert_eq!(told(&mut source), [], "all of it is in memory");
    assert_eq!(source.lost(), 0);
}

#[test]
fn cold_touches_of_a_map_are_misses_and_warm_touches_are_none() {
    let (Some(dir), Some(mut source)) = (dir(), perf(Want::Misses, |_| {})) else { return };
    let path = dir.path().join("model");
    cold(&path, 4 * MIB);
    source.watch(&[inode(&path)]).unwrap();
    for task in [Do::Map, Do::MapSequential, Do::MapRandom] {
        chill(&path);
        let pid = other(task, &path, MIB, 2 * MIB);
        let events = told(&mut source);
        let first = events.first().unwrap_or_else(|| panic!("{task:?}: a cold touch misses"));
        assert_eq!(
            (first.kind, first.start, first.len, first.pid),
            (Kind::Miss, MIB, 4096, pid),
            "{task:?}: {events:?}"
        );
        if let Do::MapRandom = task {
            assert_eq!(covered(&events, MIB, 2 * MIB), MIB, "nothing is read ahead: {}", events.len());
        } else {
            assert!(events.len() < 10, "{task:?}: {events:?}");
        }
        other(Do::Read(MIB), &path, 0, 4 * MIB); // what is missing yet
        told(&mut source);
        other(task, &path, 0, 4 * MIB);
        assert_eq!(told(&mut source), [], "{task:?}, warm");
    }
}

#[test]
fn a_miss_is_told_while_its_reader_waits() {
    let (Some(dir), Some(mut source)) = (dir(), perf(Want::Misses, |_| {})) else { return };
    let path = dir.path().join("model");
    cold(&path, MIB);
    source.watch(&[inode(&path)]).unwrap();
    for task in [Do::Read(4096), Do::Map] {
        chill(&path);
        let mut child = disk::command(task, &path, 0, 4096).spawn().unwrap();
        let mut events = Vec::new();
        let end = Instant::now() + Duration::from_secs(10);
        while events.is_empty() && Instant::now() < end {
            source.wait(Duration::from_secs(10), &mut events).unwrap();
        }
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let now = u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).unwrap();
        let lag = Duration::from_nanos(now - events.first().expect("a miss").time);
        eprintln!("{task:?}: told {lag:?} after it happened");
        assert!(lag < Duration::from_millis(200), "woken at once, not by the time that is over: {lag:?}");
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn accesses_cover_what_is_read_warm_or_cold() {
    let (Some(dir), Some(mut source)) = (dir(), perf(Want::Accesses, |_| {})) else { return };
    let path = dir.path().join("model");
    cold(&path, 16 * MIB);
    source.watch(&[inode(&path)]).unwrap();
    for temperature in ["cold", "warm"] {
        other(Do::Read(MIB), &path, 2 * MIB, 14 * MIB);
        let events = told(&mut source);
        assert!(events.iter().all(|event| event.kind == Kind::Touch));
        let share = covered(&events, 2 * MIB, 14 * MIB) * 100 / (12 * MIB);
        assert!(share >= 97, "{temperature}: {share} %");
        assert_eq!(covered(&events, 0, 2 * MIB), 0, "{temperature}: not what was read ahead");
    }
    other(Do::Map, &path, 0, 16 * MIB);
    let share = covered(&told(&mut source), 0, 16 * MIB) * 100 / (16 * MIB);
    eprintln!("mapped: {share} %");
    assert!(share >= 60, "mapped: {share} %");
    assert_eq!(source.lost(), 0);
}

#[test]
fn other_files_are_not_told_and_watching_anew_loses_nothing() {
    let (Some(dir), Some(mut source)) = (dir(), perf(Want::Accesses, |_| {})) else { return };
    let paths: Vec<_> = (0..300).map(|n| dir.path().join(format!("{n}"))).collect();
    paths.iter().for_each(|path| cold(path, 4096));
    let inodes: Vec<_> = paths.iter().map(|path| inode(path)).collect();
    other(Do::Read(4096), &paths[7], 0, 4096);
    assert_eq!(told(&mut source), [], "nothing is watched");
    // every second file: more than the kernel's filter can name
    let every: Vec<_> = inodes.iter().copied().step_by(2).collect();
    source.watch(&every).unwrap();
    paths.iter().for_each(|path| disk::read(path, 4096, 0, 4096));
    assert_eq!(told(&mut source), [], "our own process");
    other(Do::Read(4096), &paths[7], 0, 4096);
    assert_eq!(told(&mut source), [], "another file");
    other(Do::Read(4096), &paths[8], 0, 4096);
    assert_eq!(told(&mut source).first().map(|event| event.inode), Some(inodes[8]));

    // a process reads all the time, and the file is watched again and again
    let big = dir.path().join("big");
    let (len, block) = (64 * MIB, 16 << 10);
    cold(&big, len);
    source.watch(&[inode(&big)]).unwrap();
    let mut child = disk::command(Do::Read(block), &big, 0, len).spawn().unwrap();
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
    assert!(events.len() < reads + reads / 4, "{} events of {reads} reads", events.len());
    assert_eq!(source.lost(), 0);
}

#[test]
fn our_own_reads_are_told_when_that_is_asked_for() {
    let (Some(dir), Some(mut source)) = (dir(), perf(Want::Misses, |options| options.own = true)) else { return };
    let path = dir.path().join("model");
    cold(&path, MIB);
    source.watch(&[inode(&path)]).unwrap();
    disk::read(&path, 4096, 0, 4096);
    assert_eq!(told(&mut source).first().map(|event| event.pid), Some(std::process::id()));
}

#[test]
fn a_full_ring_loses_events_and_counts_them() {
    let (Some(dir), Some(mut source)) = (dir(), perf(Want::Accesses, |options| options.pages = 1)) else { return };
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
    assert!(source.lost() > 500, "{} told, {} lost", events.len(), source.lost());
    assert!(events.len() as u64 + source.lost() >= 1024, "{} told, {} lost", events.len(), source.lost());
}

#[test]
fn older_kernels_tell_what_becomes_resident() {
    let old = |options: &mut Options| {
        options.without =
            ["readahead/page_cache_sync_ra", "filemap/mm_filemap_get_pages"].map(String::from).into_iter().collect();
    };
    for want in [Want::Misses, Want::Accesses] {
        let (Some(dir), Some(mut source)) = (dir(), perf(want, old)) else { return };
        assert!(source.sight().blind.contains("read ahead"));
        let path = dir.path().join("model");
        cold(&path, 2 * MIB);
        source.watch(&[inode(&path)]).unwrap();
        other(Do::Read(MIB), &path, 0, 2 * MIB);
        assert_eq!(covered(&told(&mut source), 0, 2 * MIB), 2 * MIB);
        other(Do::Read(MIB), &path, 0, 2 * MIB);
        assert_eq!(told(&mut source), []);
    }
}

/// What every source keeps. `make` lets another process ask for bytes of the file.
fn suite(source: &mut dyn EventSource, file: Inode, mut make: impl FnMut()) {
    let name = source.name();
    assert!(!name.is_empty() && !source.sight().blind.is_empty());
    make();
    assert_eq!(told(source), [], "{name}: nothing is watched");
    source.watch(&[file]).unwrap();

    let started = Instant::now();
    let mut events = Vec::new();
    assert!(source.wait(Duration::from_millis(20), &mut events).unwrap());
    assert!(events.is_empty() && started.elapsed() >= Duration::from_millis(15), "{name}: {:?}", started.elapsed());

    make();
    let events = told(source);
    assert!(!events.is_empty(), "{name}");
    assert!(events.iter().all(|event| event.inode == file && event.time > 0 && event.pid > 0), "{name}: {events:?}");
    assert!(events.is_sorted_by_key(|event| event.time), "{name}: {events:?}");

    // before it waits, and while
    let waker = source.waker();
    waker.wake();
    let started = Instant::now();
    source.wait(Duration::from_secs(20), &mut Vec::new()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            waker.wake();
        });
        source.wait(Duration::from_secs(20), &mut Vec::new()).unwrap();
    });
    assert!(started.elapsed() < Duration::from_secs(10), "{name}: the waker does not end the wait");

    source.watch(&[Inode { dev: file.dev, ino: file.ino ^ 1 << 40 }]).unwrap();
    make();
    assert_eq!(told(source), [], "{name}: another file is watched");
    source.watch(&[]).unwrap();
    make();
    assert_eq!(told(source), [], "{name}: nothing is watched any more");
    assert_eq!(source.lost(), 0, "{name}");
}

#[test]
fn every_source_passes_the_same_suite() {
    let (mut fake, hand) = Fake::new().unwrap();
    let file = Inode { dev: 1, ino: 2 };
    let mut time = 0;
    suite(&mut fake, file, || {
        time += 1;
        hand.push(&[Event { kind: Kind::Miss, inode: file, start: 0, len: 4096, pid: 1, tid: 1, time }]);
    });

    let Some(dir) = dir() else { return };
    let path = dir.path().join("model");
    cold(&path, MIB);
    for want in [Want::Misses, Want::Accesses] {
        let Some(mut source) = perf(want, |_| {}) else { continue };
        suite(&mut source, inode(&path), || {
            chill(&path);
            other(Do::Read(4096), &path, 0, MIB);
        });
    }
}

/// What opens and reads are told with, or why they cannot be.
fn fanotify(dir: &Path, make: fn(&Namespace) -> Result<Fanotify>) -> Option<Fanotify> {
    make(&disk::namespace(dir)).map_err(|error| eprintln!("SKIPPED: {error}")).ok()
}

#[test]
fn opens_and_reads_are_heard_by_fanotify() {
    let Some(dir) = dir() else { return };
    let path = dir.path().join("model");
    cold(&path, MIB);
    if let Some(mut opens) = fanotify(dir.path(), Fanotify::opens) {
        suite(&mut opens, inode(&path), || _ = other(Do::Read(4096), &path, 0, 4096));
        opens.watch(&[inode(&path)]).unwrap();
        let pid = other(Do::Map, &path, 0, 4096);
        let events = told(&mut opens);
        assert_eq!(events.first().map(|event| (event.kind, event.pid)), Some((Kind::Open, pid)));
    }
    if let Some(mut reads) = fanotify(dir.path(), Fanotify::reads) {
        suite(&mut reads, inode(&path), || _ = other(Do::Read(65536), &path, 0, MIB));
        reads.watch(&[inode(&path)]).unwrap();
        let pid = other(Do::Read(65536), &path, 65536, MIB);
        let events = told(&mut reads);
        assert!(events.iter().all(|event| event.kind == Kind::Touch && event.pid == pid), "{events:?}");
        assert_eq!(covered(&events, 65536, MIB), MIB - 65536, "{events:?}");
        // nobody takes the events, and nobody waits for that
        other(Do::Read(512), &path, 0, MIB);
        assert_eq!(told(&mut reads).len(), 2048);
    }
}

#[test]
fn a_listener_that_dies_leaves_nobody_waiting() {
    let Some(dir) = dir() else { return };
    let path = dir.path().join("model");
    cold(&path, MIB);
    if fanotify(dir.path(), Fanotify::reads).is_none() {
        return;
    }
    let mut listener = disk::command(Do::Listen, &path, 0, 0).stdout(std::process::Stdio::piped()).spawn().unwrap();
    // it says that it listens
    let mut lines = BufReader::new(listener.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with(disk::LISTENS)));
    other(Do::Read(4096), &path, 0, MIB); // answered
    let pid = rustix::process::Pid::from_child(&listener);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let mut reader = disk::command(Do::Read(4096), &path, 0, MIB).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert!(reader.try_wait().unwrap().is_none(), "the listener is stopped, and its reader waits");
    listener.kill().unwrap();
    listener.wait().unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while reader.try_wait().unwrap().is_none() {
        assert!(Instant::now() < end, "its reader waits for ever");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(reader.wait().unwrap().success());
}

#[test]
fn the_best_source_says_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = disk::namespace(dir.path());
    for want in [Want::Misses, Want::Accesses] {
        match source::best(want, &namespace) {
            Ok(choice) => {
                let text = choice.to_string();
                assert!(text.contains(choice.source.name()) && text.contains("does not see"), "{text}");
                assert!(choice.better.iter().all(|(name, _)| text.contains(name)), "{text}");
            }
            Err(error) => {
                assert!(error.to_string().contains("misses") || error.to_string().contains("accesses"), "{error}")
            }
        }
    }
    let error = source::by_name("tea leaves", &namespace).unwrap_err().to_string();
    assert!(source::names().all(|(name, _)| error.contains(name)), "{error}");
}
