//! The events of a source: collected until none arrive, and the bytes that they cover.

use std::time::Duration;

use anamnesis_ppc::{Event, EventSource};

/// A directory on a file system for which trace points and `stat` report the same inodes. Prints a message and returns
/// `None` if the target directory is on another one.
pub(crate) fn traceable_dir() -> Option<tempfile::TempDir> {
    const TMPFS: i64 = 0x0102_1994;
    const OVERLAYFS: i64 = 0x794c_7630;
    const BTRFS: i64 = 0x9123_683e;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file_system = rustix::fs::statfs(dir.path()).unwrap().f_type;
    let unsuitable = [TMPFS, OVERLAYFS, BTRFS].contains(&file_system);
    if unsuitable {
        eprintln!(
            "SKIPPED: {} is on tmpfs, overlayfs or btrfs, whose files trace points identify differently",
            dir.path().display()
        );
    }
    (!unsuitable).then_some(dir)
}

/// Collects events until there are none for 300 ms.
pub(crate) fn collect_events(source: &mut dyn EventSource) -> Vec<Event> {
    let mut events = Vec::new();
    loop {
        let before = events.len();
        assert!(
            source
                .wait(Duration::from_millis(300), &mut events)
                .unwrap()
        );
        if events.len() == before {
            return events;
        }
    }
}

/// Whether `access` to cached bytes causes no events. It is repeated, because the kernel may reclaim pages meanwhile.
pub(crate) fn causes_no_events(source: &mut dyn EventSource, mut access: impl FnMut()) -> bool {
    (0..20).any(|_| {
        access();
        collect_events(source).is_empty()
    })
}

/// Number of bytes of `start..end` that the events cover.
pub(crate) fn covered_bytes(events: &[Event], start: u64, end: u64) -> u64 {
    let mut ranges: Vec<_> = events
        .iter()
        .map(|event| (event.start.max(start), (event.start + event.len).min(end)))
        .collect();
    ranges.sort_unstable();
    let (mut covered_until, mut sum) = (start, 0);
    for (first, last) in ranges {
        let first = first.max(covered_until);
        if last > first {
            sum += last - first;
            covered_until = last;
        }
    }
    sum
}

/// Held by tests that must not trace at the same time: while another perf source replaces its events, faults of a mapping
/// with `MADV_RANDOM` have gone missing from a source that counts each of them (Linux 6.18, two cores).
pub(crate) fn lock_tracing() -> std::sync::MutexGuard<'static, ()> {
    static TRACING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    TRACING
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
