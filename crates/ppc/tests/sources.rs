//! Event sources, with real files, real processes and the kernel's own events.

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

use anamnesis_ppc::source::{self, Fake, Want};
use anamnesis_ppc::{Event, EventSource, Inode, Kind};
use disk::{Do, LONG, MIB, chill, cold, dir, inode, other, told};

/// The part that [`disk::other`] runs.
#[test]
fn task() {
    disk::task();
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
    assert!(
        events.is_empty() && started.elapsed() >= Duration::from_millis(15),
        "{name}: {:?}",
        started.elapsed()
    );

    make();
    let events = told(source);
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

    // before it waits, and while
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
        hand.push(&[Event {
            kind: Kind::Miss,
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
    cold(&path, MIB);
    for want in [Want::Misses, Want::Accesses] {
        let Some(mut source) = perf::perf(want, |_| {}) else {
            continue;
        };
        suite(&mut source, inode(&path), || {
            chill(&path);
            other(Do::Read(4096), &path, 0, MIB);
        });
    }
}

#[test]
fn the_best_source_says_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = disk::namespace(dir.path());
    for want in [Want::Misses, Want::Accesses] {
        match source::best(want, &namespace) {
            Ok(choice) => {
                let text = choice.to_string();
                assert!(
                    text.contains(choice.source.name()) && text.contains("does not see"),
                    "{text}"
                );
                assert!(
                    choice.better.iter().all(|(name, _)| text.contains(name)),
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
