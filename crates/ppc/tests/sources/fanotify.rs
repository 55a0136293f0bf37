//! fanotify.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::{Duration, Instant};

use anamnesis_ppc::source::Fanotify;
use anamnesis_ppc::{EventSource, Kind, Namespace, Result};

use crate::disk::{self, Do, LONG, MIB, cold, covered, dir, inode, other, told};
use crate::suite;

/// What opens and reads are told with, or why they cannot be.
fn fanotify(dir: &Path, make: fn(&Namespace) -> Result<Fanotify>) -> Option<Fanotify> {
    make(&disk::namespace(dir))
        .map_err(|error| eprintln!("SKIPPED: {error}"))
        .ok()
}

#[test]
fn opens_and_reads_are_heard_by_fanotify() {
    let Some(dir) = dir() else { return };
    let path = dir.path().join("model");
    cold(&path, MIB);
    if let Some(mut opens) = fanotify(dir.path(), Fanotify::opens) {
        suite(&mut opens, inode(&path), || {
            _ = other(Do::Read(4096), &path, 0, 4096)
        });
        opens.watch(&[inode(&path)]).unwrap();
        let pid = other(Do::Map, &path, 0, 4096);
        let events = told(&mut opens);
        assert_eq!(
            events.first().map(|event| (event.kind, event.pid)),
            Some((Kind::Open, pid))
        );
    }
    if let Some(mut reads) = fanotify(dir.path(), Fanotify::reads) {
        suite(&mut reads, inode(&path), || {
            _ = other(Do::Read(65536), &path, 0, MIB)
        });
        reads.watch(&[inode(&path)]).unwrap();
        let pid = other(Do::Read(65536), &path, 65536, MIB);
        let events = told(&mut reads);
        assert!(
            events
                .iter()
                .all(|event| event.kind == Kind::Touch && event.pid == pid),
            "{events:?}"
        );
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
    let mut listener = disk::command(Do::Listen, &path, 0, 0)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // it says that it listens
    let mut lines = BufReader::new(listener.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with(disk::LISTENS)));
    other(Do::Read(4096), &path, 0, MIB); // answered
    let pid = rustix::process::Pid::from_child(&listener);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let mut reader = disk::command(Do::Read(4096), &path, 0, MIB)
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert!(
        reader.try_wait().unwrap().is_none(),
        "the listener is stopped, and its reader waits"
    );
    listener.kill().unwrap();
    listener.wait().unwrap();
    let end = Instant::now() + LONG;
    while reader.try_wait().unwrap().is_none() {
        assert!(Instant::now() < end, "its reader waits for ever");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(reader.wait().unwrap().success());
}
