//! Logs of events.

use std::time::{Duration, Instant};

use anamnesis_ppc::source::{self, Fake, Log, Replay, Speed, Tee};
use anamnesis_ppc::{Event, EventSource, Kind};

use crate::disk::{self, inode};

#[test]
fn a_log_is_told_again() {
    let dir = tempfile::tempdir().unwrap();
    ["a", "b"]
        .iter()
        .for_each(|name| std::fs::write(dir.path().join(name), b"").unwrap());
    let namespace = disk::namespace(dir.path());
    let [a, b] = ["a", "b"].map(|name| inode(&dir.path().join(name)));
    let event = |inode, n: u64| Event {
        kind: Kind::Miss,
        inode,
        start: n * 4096,
        len: 4096,
        pid: 1,
        tid: 2,
        time: 1_000_000_000 + n * 50_000_000,
    };
    // more than one wait tells
    let events: Vec<_> = (0..5000)
        .map(|n| event(if n % 10 == 9 { b } else { a }, n))
        .collect();
    let path = dir.path().join("log");
    let (fake, hand) = Fake::new().unwrap();
    let mut log = Log::create(&path).unwrap();
    log.files(&namespace).unwrap();
    assert!(Log::create(&path).is_err(), "a log is not written over");
    let mut tee = Tee::new(Box::new(fake), log);
    tee.watch(&[a, b]).unwrap();
    hand.push(&events);
    let mut passed = Vec::new();
    tee.wait(Duration::ZERO, &mut passed).unwrap();
    assert_eq!(passed, events);
    hand.lose(7);
    tee.wait(Duration::ZERO, &mut passed).unwrap();
    drop(tee);

    let mut all = Vec::new();
    let mut replay = Replay::open(&path, &namespace, Speed::AtOnce).unwrap();
    assert!(
        replay.wait(Duration::ZERO, &mut all).unwrap() && all.is_empty(),
        "nothing is watched"
    );
    replay.watch(&[a, b]).unwrap();
    while replay.wait(Duration::from_secs(9), &mut all).unwrap() {}
    assert_eq!((all == events, replay.lost()), (true, 7));

    // the same files elsewhere have other numbers
    let there = tempfile::tempdir().unwrap();
    ["a", "b"]
        .iter()
        .for_each(|name| std::fs::write(there.path().join(name), b"").unwrap());
    let c = inode(&there.path().join("b"));
    let mut replay = Replay::open(&path, &disk::namespace(there.path()), Speed::AtOnce).unwrap();
    replay.watch(&[c]).unwrap();
    let mut some = Vec::new();
    while replay.wait(Duration::from_secs(9), &mut some).unwrap() {}
    let expected: Vec<_> = events
        .iter()
        .filter(|e| e.inode == b)
        .map(|&e| Event { inode: c, ..e })
        .collect();
    assert!(some == expected);

    // ten times as fast: one every 5 ms
    let mut replay = Replay::open(&path, &namespace, Speed::Times(10.0)).unwrap();
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
    let mut gentle = Replay::open(&path, &namespace, Speed::Times(1e-6)).unwrap();
    gentle.watch(&[a]).unwrap();
    gentle.wait(Duration::ZERO, &mut none).unwrap(); // the first, at once
    gentle.waker().wake();
    gentle.wait(Duration::from_secs(100), &mut none).unwrap();
    assert!(gentle.wait(Duration::from_millis(1), &mut none).unwrap());
    assert!(none.len() == 1 && started.elapsed() < Duration::from_secs(50));

    assert!(Replay::open(&path, &namespace, Speed::Times(0.0)).is_err());
    assert!(Replay::open(&path, &namespace, Speed::Times(f64::NAN)).is_err());
    std::fs::write(dir.path().join("cut"), "anamnesis-events 1\nmiss 1 2\n").unwrap();
    let mut cut = source::by_name(
        &format!("replay:{}", dir.path().join("cut").display()),
        &namespace,
    )
    .unwrap();
    cut.watch(&[a]).unwrap();
    let error = cut.wait(Duration::ZERO, &mut none).unwrap_err().to_string();
    assert!(error.contains("cut:2: "), "{error}");
    assert!(!cut.wait(Duration::ZERO, &mut none).unwrap());
    assert!(
        source::by_name(
            &format!("replay:{}", dir.path().join("a").display()),
            &namespace
        )
        .is_err()
    );
}
