//! Event logs, and their replay for the same or other files at several speeds.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anamnesis_ppc::source::{self, EventLog, FakeSource, LoggedSource, ReplaySource, ReplaySpeed};
use anamnesis_ppc::{Event, EventKind, EventSource, Inode, Namespace};

use crate::support::files::inode;

/// Longer than the time between two events, so that a wait ends with an event.
const WAIT: Duration = Duration::from_secs(9);

/// A directory with the empty files `a` and `b`.
struct TwoFiles {
    dir: tempfile::TempDir,
    namespace: Namespace,
    a: Inode,
    b: Inode,
}

impl TwoFiles {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let create = |name| {
            let path = dir.path().join(name);
            std::fs::write(&path, b"").unwrap();
            inode(&path)
        };
        let (a, b) = (create("a"), create("b"));
        Self {
            namespace: Namespace::scan(dir.path()).unwrap(),
            dir,
            a,
            b,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// 5000 misses, one every 50 ms, of which every tenth is in `b`: more than one wait returns.
    fn events(&self) -> Vec<Event> {
        (0..5000)
            .map(|n| Event {
                kind: EventKind::Miss,
                inode: if n % 10 == 9 { self.b } else { self.a },
                start: n * 4096,
                len: 4096,
                pid: 1,
                tid: 2,
                time: 1_000_000_000 + n * 50_000_000,
            })
            .collect()
    }

    /// Logs the [`events`](Self::events) of a source, and that it lost seven others.
    fn write_log(&self) -> PathBuf {
        let path = self.path("log");
        let (fake, handle) = FakeSource::new().unwrap();
        let mut log = EventLog::create(&path).unwrap();
        log.files(&self.namespace).unwrap();
        let mut logged = LoggedSource::new(Box::new(fake), log);
        logged.watch(&[self.a, self.b]).unwrap();
        handle.push(&self.events());
        let mut passed_on = Vec::new();
        logged.wait(Duration::ZERO, &mut passed_on).unwrap();
        assert_eq!(passed_on, self.events());
        handle.lose(7);
        logged.wait(Duration::ZERO, &mut passed_on).unwrap();
        path
    }

    fn replay(&self, log: &Path, speed: ReplaySpeed) -> ReplaySource {
        ReplaySource::open(log, &self.namespace, speed).unwrap()
    }
}

fn replay_to_the_end(replay: &mut ReplaySource) -> Vec<Event> {
    let mut events = Vec::new();
    while replay.wait(WAIT, &mut events).unwrap() {}
    events
}

#[test]
fn a_log_is_replayed_with_its_losses() {
    let files = TwoFiles::new();
    let log = files.write_log();
    assert!(EventLog::create(&log).is_err(), "a log is not overwritten");
    let mut replay = files.replay(&log, ReplaySpeed::AtOnce);
    let mut events = Vec::new();
    assert!(
        replay.wait(Duration::ZERO, &mut events).unwrap() && events.is_empty(),
        "nothing is watched"
    );
    replay.watch(&[files.a, files.b]).unwrap();
    assert!(replay_to_the_end(&mut replay) == files.events());
    assert_eq!(replay.lost(), 7);
}

#[test]
fn files_of_a_log_are_found_by_path_in_another_directory() {
    let (files, others) = (TwoFiles::new(), TwoFiles::new());
    let log = files.write_log();
    let mut replay = others.replay(&log, ReplaySpeed::AtOnce);
    replay.watch(&[others.b]).unwrap();
    let of_b = files
        .events()
        .into_iter()
        .filter(|event| event.inode == files.b);
    let expected: Vec<_> = of_b
        .map(|event| Event {
            inode: others.b,
            ..event
        })
        .collect();
    assert!(replay_to_the_end(&mut replay) == expected);
}

#[test]
fn a_replay_has_the_speed_of_its_option() {
    let files = TwoFiles::new();
    let log = files.write_log();
    // ten times as fast: an event every 5 ms
    let mut replay = files.replay(&log, ReplaySpeed::Times(10.0));
    replay.watch(&[files.a]).unwrap();
    let (started, mut events) = (Instant::now(), Vec::new());
    while events.len() < 9 {
        assert!(replay.wait(WAIT, &mut events).unwrap());
    }
    assert!(
        started.elapsed() >= Duration::from_millis(39),
        "{:?}",
        started.elapsed()
    );
    assert!(
        events
            .windows(2)
            .all(|pair| pair[1].time - pair[0].time == 5_000_000),
        "{events:?}"
    );
    for invalid in [0.0, f64::NAN] {
        let replay = ReplaySource::open(&log, &files.namespace, ReplaySpeed::Times(invalid));
        assert!(replay.is_err(), "{invalid}");
    }
}

#[test]
fn a_waker_ends_the_wait_of_a_slow_replay() {
    let files = TwoFiles::new();
    let mut replay = files.replay(&files.write_log(), ReplaySpeed::Times(1e-6));
    replay.watch(&[files.a]).unwrap();
    let (started, mut events) = (Instant::now(), Vec::new());
    // the first event is due at once, the second after hours
    replay.wait(Duration::ZERO, &mut events).unwrap();
    replay.waker().wake();
    replay.wait(Duration::from_secs(100), &mut events).unwrap();
    assert!(replay.wait(Duration::from_millis(1), &mut events).unwrap());
    assert!(events.len() == 1 && started.elapsed() < Duration::from_secs(50));
}

#[test]
fn a_malformed_log_is_an_error() {
    let files = TwoFiles::new();
    std::fs::write(files.path("truncated"), "anamnesis-events 1\nmiss 1 2\n").unwrap();
    let by_name = |name: &str| {
        let source = format!("replay:{}", files.path(name).display());
        source::by_name(&source, &files.namespace)
    };
    let mut truncated = by_name("truncated").unwrap();
    truncated.watch(&[files.a]).unwrap();
    let mut events = Vec::new();
    let error = truncated
        .wait(Duration::ZERO, &mut events)
        .unwrap_err()
        .to_string();
    assert!(error.contains("truncated:2: "), "{error}");
    assert!(!truncated.wait(Duration::ZERO, &mut events).unwrap());
    assert!(by_name("a").is_err(), "an empty file is no log");
}

/// A device that takes nothing: the lines are lost when the log's buffer is written, at the latest at the end.
#[test]
fn a_log_that_cannot_be_written_says_so() {
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let log = EventLog::new(std::io::BufWriter::new(full)).unwrap();
    let (fake, _handle) = FakeSource::new().unwrap();
    let logged = LoggedSource::new(Box::new(fake), log);
    let failure = logged.failure();
    assert!(failure.error().is_none());
    drop(logged);
    let error = failure.error().expect("the log is not whole");
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
}
