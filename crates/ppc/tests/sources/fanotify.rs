//! The sources of fanotify.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::{Duration, Instant};

use anamnesis_ppc::source::FanotifySource;
use anamnesis_ppc::{EventKind, EventSource, Namespace, Result};

use crate::disk::{
    self, ChildTask, LONG, MIB, collect_events, covered_bytes, dir, inode, run_child,
    write_uncached,
};
use crate::suite;

/// A source of fanotify; prints a message and returns `None` where it is not available.
fn fanotify(dir: &Path, make: fn(&Namespace) -> Result<FanotifySource>) -> Option<FanotifySource> {
    make(&disk::namespace(dir))
        .map_err(|error| eprintln!("SKIPPED: {error}"))
        .ok()
}

#[test]
fn fanotify_reports_opens_and_reads() {
    let Some(dir) = dir() else { return };
    let path = dir.path().join("model");
    write_uncached(&path, MIB);
    if let Some(mut opens) = fanotify(dir.path(), FanotifySource::opens) {
        suite(&mut opens, inode(&path), || {
            _ = run_child(ChildTask::Read(4096), &path, 0, 4096)
        });
        opens.watch(&[inode(&path)]).unwrap();
        let pid = run_child(ChildTask::Map, &path, 0, 4096);
        let events = collect_events(&mut opens);
        assert_eq!(
            events.first().map(|event| (event.kind, event.pid)),
            Some((EventKind::Open, pid))
        );
    }
    if let Some(mut reads) = fanotify(dir.path(), FanotifySource::reads) {
        suite(&mut reads, inode(&path), || {
            _ = run_child(ChildTask::Read(65536), &path, 0, MIB)
        });
        reads.watch(&[inode(&path)]).unwrap();
        let pid = run_child(ChildTask::Read(65536), &path, 65536, MIB);
        let events = collect_events(&mut reads);
        assert!(
            events
                .iter()
                .all(|event| event.kind == EventKind::Touch && event.pid == pid),
            "{events:?}"
        );
        assert_eq!(
            covered_bytes(&events, 65536, MIB),
            MIB - 65536,
            "{events:?}"
        );
        // readers do not wait until the events are consumed
        run_child(ChildTask::Read(512), &path, 0, MIB);
        assert_eq!(collect_events(&mut reads).len(), 2048);
    }
}

#[test]
fn killing_the_listener_releases_waiting_readers() {
    let Some(dir) = dir() else { return };
    let path = dir.path().join("model");
    write_uncached(&path, MIB);
    if fanotify(dir.path(), FanotifySource::reads).is_none() {
        return;
    }
    let mut listener = disk::command(ChildTask::Listen, &path, 0, 0)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // wait until it listens
    let mut lines = BufReader::new(listener.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with(disk::LISTENING)));
    run_child(ChildTask::Read(4096), &path, 0, MIB); // is answered
    let pid = rustix::process::Pid::from_child(&listener);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let mut reader = disk::command(ChildTask::Read(4096), &path, 0, MIB)
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert!(
        reader.try_wait().unwrap().is_none(),
        "the reader must wait for the stopped listener"
    );
    listener.kill().unwrap();
    listener.wait().unwrap();
    let end = Instant::now() + LONG;
    while reader.try_wait().unwrap().is_none() {
        assert!(Instant::now() < end, "the reader is not released");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(reader.wait().unwrap().success());
}
