//! The fanotify sources: notification of opens, and permission events of reads.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::Duration;

use anamnesis_ppc::source::FanotifySource;
use anamnesis_ppc::{EventKind, EventSource, Namespace, Result};

use super::check_contract;
use super::child_process::{self, ChildTask, WATCHING, run_child};
use super::events::{collect_events, covered_bytes, traceable_dir};
use crate::support::files::{MIB, inode, wait_until, write_uncached};

/// Creates a source. Prints a message and returns `None` where fanotify is not available.
fn fanotify_source(
    dir: &Path,
    create: fn(&Namespace) -> Result<FanotifySource>,
) -> Option<FanotifySource> {
    create(&Namespace::scan(dir).unwrap())
        .map_err(|error| eprintln!("SKIPPED: {error}"))
        .ok()
}

#[test]
fn opens_and_reads_are_reported_with_their_process() {
    let Some(dir) = traceable_dir() else { return };
    let path = dir.path().join("model");
    write_uncached(&path, MIB);
    if let Some(mut opens) = fanotify_source(dir.path(), FanotifySource::opens) {
        check_contract(&mut opens, inode(&path), || {
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
    if let Some(mut reads) = fanotify_source(dir.path(), FanotifySource::reads) {
        check_contract(&mut reads, inode(&path), || {
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
fn killing_the_receiver_of_permission_events_releases_waiting_readers() {
    let Some(dir) = traceable_dir() else { return };
    let path = dir.path().join("model");
    write_uncached(&path, MIB);
    if fanotify_source(dir.path(), FanotifySource::reads).is_none() {
        return;
    }
    let mut receiver = child_process::command(ChildTask::ReceiveFanotify, &path, 0, 0)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(receiver.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with(WATCHING)));
    // the receiver permits the reads
    run_child(ChildTask::Read(4096), &path, 0, MIB);
    let pid = rustix::process::Pid::from_child(&receiver);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let mut reader = child_process::command(ChildTask::Read(4096), &path, 0, MIB)
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert!(
        reader.try_wait().unwrap().is_none(),
        "the reader does not wait for the stopped receiver"
    );
    receiver.kill().unwrap();
    receiver.wait().unwrap();
    wait_until("the reader is released", || {
        reader.try_wait().unwrap().is_some()
    });
    assert!(reader.wait().unwrap().success());
}
