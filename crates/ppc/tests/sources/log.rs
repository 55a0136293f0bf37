//! Event logs and their replay.

use std::time::{Duration, Instant};

use anamnesis_ppc::source::{self, EventLog, FakeSource, LoggedSource, ReplaySource, ReplaySpeed};
use anamnesis_ppc::{Event, EventKind, EventSource};

use crate::disk::{self, inode};

#[test]
fn a_log_is_replayed() {
    let dir = tempfile::tempdir().unwrap();
    ["a", "b"]
        .iter()
        .for_each(|name| std::fs::write(dir.path().join(name), b"").unwrap());
    let namespace = disk::namespace(dir.path());
    let [a, b] = ["a", "b"].map(|name| inode(&dir.path().join(name)));
    let event = |inode, n: u64| Event {
        kind: EventKind::Miss,
        inode,
        start: n * 4096,
        len: 4096,
        pid: 1,
        tid: 2,
        time: 1_000_000_000 + n * 50_000_000,
    };
    // more than one wait returns
    let events: Vec<_> = (0..5000)
        .map(|n| event(if n % 10 == 9 { b } else { a }, n))
        .collect();
    let path = dir.path().join("log");
    let (fake, handle) = FakeSource::new().unwrap();
    let mut log = EventLog::create(&path).unwrap();
    log.files(&namespace).unwrap();
    assert!(EventLog::create(&path).is_err(), "a log is not overwritten");
    let mut logged = LoggedSource::new(Box::new(fake), log);
    logged.watch(&[a, b]).unwrap();
    handle.push(&events);
    let mut passed = Vec::new();
    logged.wait(Duration::ZERO, &mut passed).unwrap();
    assert_eq!(passed, events);
    handle.lose(7);
    logged.wait(Duration::ZERO, &mut passed).unwrap();
    drop(logged);

    let mut all = Vec::new();
    let mut replay = ReplaySource::open(&path, &namespace, ReplaySpeed::AtOnce).unwrap();
    assert!(
        replay.wait(Duration::ZERO, &mut all).unwrap() && all.is_empty(),
        "nothing is watched"
    );
    replay.watch(&[a, b]).unwrap();
    while replay.wait(Duration::from_secs(9), &mut all).unwrap() {}
    assert_eq!((all == events, replay.lost()), (true, 7));

    // the same files in another directory have other inodes
    let elsewhere = tempfile::tempdir().unwrap();
    ["a", "b"]
        .iter()
        .for_each(|name| std::fs::write(elsewhere.path().join(name), b"").unwrap());
    let c = inode(&elsewhere.path().join("b"));
    let mut replay = ReplaySource::open(
        &path,
        &disk::namespace(elsewhere.path()),
        ReplaySpeed::AtOnce,
    )
    .unwrap();
    replay.watch(&[c]).unwrap();
    let mut some = Vec::new();
    while replay.wait(Duration::from_secs(9), &mut some).unwrap() {}
    let expected: Vec<_> = events
        .iter()
        .filter(|e| e.inode == b)
        .map(|&e| Event { inode: c, ..e })
        .collect();
    assert!(some == expected);

    // ten times as fast: an event every 5 ms
    let mut replay = ReplaySource::open(&path, &namespace, ReplaySpeed::Times(10.0)).unwrap();
    replay.watch(&[a]).unwrap();
    let (started, mut slow) = (Instant::now(), Vec::new());
    while slow.len() < 9 {
        assert!(replay.wait(Duration::from_secs(9), &mut slow).unwrap());
    }
    assert!(
        started.elapsed() >= Duration::from_millis(39),
        "{:?}",
        started.elapsed()
    );
    assert!(
        slow.windows(2)
            .all(|two| two[1].time - two[0].time == 5_000_000),
        "{slow:?}"
    );
    let mut none = Vec::new();
    let mut very_slow = ReplaySource::open(&path, &namespace, ReplaySpeed::Times(1e-6)).unwrap();
    very_slow.watch(&[a]).unwrap();
    very_slow.wait(Duration::ZERO, &mut none).unwrap(); // the first event is due at once
    very_slow.waker().wake();
    very_slow.wait(Duration::from_secs(100), &mut none).unwrap();
    assert!(very_slow.wait(Duration::from_millis(1), &mut none).unwrap());
    assert!(none.len() == 1 && started.elapsed() < Duration::from_secs(50));

    assert!(ReplaySource::open(&path, &namespace, ReplaySpeed::Times(0.0)).is_err());
    assert!(ReplaySource::open(&path, &namespace, ReplaySpeed::Times(f64::NAN)).is_err());
    std::fs::write(
        dir.path().join("truncated"),
        "anamnesis-events 1\nmiss 1 2\n",
    )
    .unwrap();
    let mut truncated = source::by_name(
        &format!("replay:{}", dir.path().join("truncated").display()),
        &namespace,
    )
    .unwrap();
    truncated.watch(&[a]).unwrap();
    let error = truncated
        .wait(Duration::ZERO, &mut none)
        .unwrap_err()
        .to_string();
    assert!(error.contains("truncated:2: "), "{error}");
    assert!(!truncated.wait(Duration::ZERO, &mut none).unwrap());
    assert!(
        source::by_name(
            &format!("replay:{}", dir.path().join("a").display()),
            &namespace
        )
        .is_err()
    );
}
