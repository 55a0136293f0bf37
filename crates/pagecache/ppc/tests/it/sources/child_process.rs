//! Child processes that access files, because sources do not report accesses of their own process.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anamnesis_ppc::source::FanotifySource;
use anamnesis_ppc::{EventSource, Namespace};

use super::mapped_reads::read_mapped;
use crate::support::files::{HANG_TIMEOUT, inode};

/// The reads of a child process.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ChildTask {
    /// Positioned reads of this many bytes each.
    Read(u64),
    /// Reads of one byte of every page through a mapping.
    Map,
    /// Reads through a mapping with `MADV_RANDOM`.
    MapRandom,
    /// Reads through a mapping with `MADV_SEQUENTIAL`.
    MapSequential,
    /// Receives fanotify permission events of the file until it is killed.
    ReceiveFanotify,
}

/// Printed by [`ChildTask::ReceiveFanotify`] when the file is watched.
pub(crate) const WATCHING: &str = "watching";

/// The environment variable that describes the task.
const TASK_VARIABLE: &str = "ANAMNESIS_TEST_TASK";

/// The entry point of child processes; does nothing if it is run as a test.
#[test]
fn child_process_that_runs_a_task() {
    let Ok(task) = std::env::var(TASK_VARIABLE) else {
        return;
    };
    let mut words = task.splitn(5, ' ');
    let name = words.next().unwrap();
    let mut number = || words.next().unwrap().parse::<u64>().unwrap();
    let (read_size, start, end) = (number(), number(), number());
    let path = PathBuf::from(words.next().unwrap());
    match name {
        "read" => read(&path, read_size, start, end),
        "map" => read_mapped(&path, start, end, None),
        "map-random" => read_mapped(&path, start, end, Some(memmap2::Advice::Random)),
        "map-sequential" => read_mapped(&path, start, end, Some(memmap2::Advice::Sequential)),
        "receive-fanotify" => receive_fanotify(&path),
        _ => panic!("{name}"),
    }
}

/// The command of a child process that runs a task on bytes `start..end`: this test binary, with only the test that is
/// the entry point.
pub(crate) fn command(task: ChildTask, path: &Path, start: u64, end: u64) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "sources::child_process::child_process_that_runs_a_task",
            "--nocapture",
            "--test-threads=1",
        ])
        .stdout(std::process::Stdio::null());
    let (name, read_size) = match task {
        ChildTask::Read(read_size) => ("read", read_size),
        ChildTask::Map => ("map", 0),
        ChildTask::MapRandom => ("map-random", 0),
        ChildTask::MapSequential => ("map-sequential", 0),
        ChildTask::ReceiveFanotify => ("receive-fanotify", 0),
    };
    let task = format!("{name} {read_size} {start} {end} {}", path.display());
    command.env(TASK_VARIABLE, task);
    command
}

/// Runs a task on bytes `start..end` in a child process and waits for its end. Returns its process id.
pub(crate) fn run_child(task: ChildTask, path: &Path, start: u64, end: u64) -> u32 {
    let mut child = command(task, path, start, end).spawn().unwrap();
    let pid = child.id();
    assert!(child.wait().unwrap().success());
    pid
}

/// Reads bytes `start..end` in this process, `read_size` bytes at a time.
pub(crate) fn read(path: &Path, read_size: u64, start: u64, end: u64) {
    let file = File::open(path).unwrap();
    let mut buffer = vec![0; usize::try_from(read_size).unwrap()];
    let mut offset = start;
    while offset < end {
        let count = usize::try_from(read_size.min(end - offset)).unwrap();
        file.read_exact_at(&mut buffer[..count], offset).unwrap();
        offset += count as u64;
    }
}

fn receive_fanotify(path: &Path) {
    let namespace = Namespace::scan(path.parent().unwrap()).unwrap();
    let mut source = FanotifySource::reads(&namespace).unwrap();
    source.watch(&[inode(path)]).unwrap();
    println!("{WATCHING}");
    let mut events = Vec::new();
    while source.wait(HANG_TIMEOUT, &mut events).unwrap() {
        events.clear();
    }
}
