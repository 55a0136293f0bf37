//! Event sources with real files, real processes and the kernel's events.

#[path = "sources/disk.rs"]
mod disk;
#[path = "sources/fanotify.rs"]
mod fanotify;
#[path = "sources/log.rs"]
mod log;
#[path = "sources/mounted.rs"]
mod mounted;
#[path = "sources/perf.rs"]
mod perf;
#[path = "sources/shim.rs"]
mod shim;
#[path = "sources/touch.rs"]
mod touch;

use std::time::{Duration, Instant};

use anamnesis_ppc::source::{self, CaptureMode, FakeSource};
use anamnesis_ppc::{Event, EventKind, EventSource, Inode};
use disk::{
    ChildTask, LONG, MIB, collect_events, dir, drop_cache, inode, run_child, write_uncached,
};

/// The entry point of child processes; does nothing if it is run as a test.
#[test]
fn task() {
    disk::task();
}

/// The contract of all sources. `access` makes another process access the file.
fn suite(source: &mut dyn EventSource, file: Inode, mut access: impl FnMut()) {
    let name = source.name();
    assert!(!name.is_empty() && !source.capabilities().limitations.is_empty());
    access();
    assert_eq!(collect_events(source), [], "{name}: nothing is watched");
    source.watch(&[file]).unwrap();

    let started = Instant::now();
    let mut events = Vec::new();
    assert!(source.wait(Duration::from_millis(20), &mut events).unwrap());
    assert!(
        events.is_empty() && started.elapsed() >= Duration::from_millis(15),
        "{name}: {:?}",
        started.elapsed()
    );

    access();
    let events = collect_events(source);
    assert!(!events.is_empty(), "{name}");
    assert!(
        events
            .iter()
            .all(|event| event.inode == file && event.time > 0 && event.pid > 0),
        "{name}: {events:?}"
    );
    assert!(
        events.is_sorted_by_key(|event| event.time),
        "{name}: {events:?}"
    );

    // a waker ends a later wait and a current one
    let waker = source.waker();
    waker.wake();
    let started = Instant::now();
    source.wait(LONG, &mut Vec::new()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            waker.wake();
        });
        source.wait(LONG, &mut Vec::new()).unwrap();
    });
    assert!(
        started.elapsed() < LONG / 2,
        "{name}: the waker does not end the wait"
    );

    source
        .watch(&[Inode {
            dev: file.dev,
            ino: file.ino ^ 1 << 40,
        }])
        .unwrap();
    access();
    assert_eq!(
        collect_events(source),
        [],
        "{name}: another file is watched"
    );
    source.watch(&[]).unwrap();
    access();
    assert_eq!(
        collect_events(source),
        [],
        "{name}: nothing is watched again"
    );
    assert_eq!(source.lost(), 0, "{name}");
}

#[test]
fn the_fake_source_and_perf_fulfil_the_contract() {
    let (mut fake, handle) = FakeSource::new().unwrap();
    let file = Inode { dev: 1, ino: 2 };
    let mut time = 0;
    suite(&mut fake, file, || {
        time += 1;
        handle.push(&[Event {
            kind: EventKind::Miss,
            inode: file,
            start: 0,
            len: 4096,
            pid: 1,
            tid: 1,
            time,
        }]);
    });

    let Some(dir) = dir() else { return };
    let path = dir.path().join("model");
    write_uncached(&path, MIB);
    for mode in [CaptureMode::Misses, CaptureMode::Accesses] {
        let Some(mut source) = perf::perf(mode, |_| {}) else {
            continue;
        };
        suite(&mut source, inode(&path), || {
            drop_cache(&path);
            run_child(ChildTask::Read(4096), &path, 0, MIB);
        });
    }
}

#[test]
fn the_selected_source_and_rejected_ones_are_described() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = disk::namespace(dir.path());
    for mode in [CaptureMode::Misses, CaptureMode::Accesses] {
        match source::best(mode, &namespace) {
            Ok(selected) => {
                let text = selected.to_string();
                assert!(
                    text.contains(selected.source.name()) && text.contains("does not report"),
                    "{text}"
                );
                assert!(
                    selected
                        .rejected
                        .iter()
                        .all(|(name, _)| text.contains(name)),
                    "{text}"
                );
            }
            Err(error) => {
                assert!(
                    error.to_string().contains("misses") || error.to_string().contains("accesses"),
                    "{error}"
                )
            }
        }
    }
    let error = source::by_name("tea leaves", &namespace)
        .unwrap_err()
        .to_string();
    assert!(
        source::names().all(|(name, _)| error.contains(name)),
        "{error}"
    );
}
