//! Event sources report accesses of child processes to files, as the kernel or a preloaded library observes them.

mod child_process;
mod events;
mod fanotify;
mod mapped_reads;
mod other_inode_numbers;
mod perf;
mod replay;
mod shim;

use std::time::{Duration, Instant};

use anamnesis_ppc::source::{self, CaptureMode, FakeSource};
use anamnesis_ppc::{Event, EventKind, EventSource, Inode, Namespace};

use crate::support::files::{HANG_TIMEOUT, MIB, drop_all_cached_pages, inode, write_uncached};
use child_process::{ChildTask, run_child};
use events::{collect_events, traceable_dir};

/// Checks what the trait `EventSource` requires of every source. `access` makes another process access the file.
fn check_contract(source: &mut dyn EventSource, file: Inode, mut access: impl FnMut()) {
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

    // a waker ends the next wait, and one that has started
    let waker = source.waker();
    waker.wake();
    let started = Instant::now();
    source.wait(HANG_TIMEOUT, &mut Vec::new()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            waker.wake();
        });
        source.wait(HANG_TIMEOUT, &mut Vec::new()).unwrap();
    });
    assert!(
        started.elapsed() < HANG_TIMEOUT / 2,
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
    assert_eq!(collect_events(source), [], "{name}: watching has ended");
    assert_eq!(source.lost(), 0, "{name}");
}

#[test]
fn the_fake_and_the_perf_source_fulfil_the_contract() {
    let (mut fake, handle) = FakeSource::new().unwrap();
    let file = Inode { dev: 1, ino: 2 };
    let mut time = 0;
    check_contract(&mut fake, file, || {
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

    let Some(dir) = traceable_dir() else { return };
    let path = dir.path().join("model");
    write_uncached(&path, MIB);
    for mode in [CaptureMode::Misses, CaptureMode::Accesses] {
        let Some(mut source) = perf::perf_source(mode, |_| {}) else {
            continue;
        };
        check_contract(&mut source, inode(&path), || {
            drop_all_cached_pages(&path);
            run_child(ChildTask::Read(4096), &path, 0, MIB);
        });
    }
}

#[test]
fn the_best_source_is_described_with_the_rejected_ones() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = Namespace::scan(dir.path()).unwrap();
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
    let error = source::by_name("unknown", &namespace)
        .unwrap_err()
        .to_string();
    assert!(
        source::names().all(|(name, _)| error.contains(name)),
        "{error}"
    );
}
