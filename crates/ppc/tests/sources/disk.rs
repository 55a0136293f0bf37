//! Test files on a real disk, and child processes that read them.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anamnesis_ppc::cache::FileResidency;
use anamnesis_ppc::source::FanotifySource;
use anamnesis_ppc::{Event, EventSource, Inode, Namespace};
use rustix::fs::{Advice, fadvise};

pub(crate) const MIB: u64 = 1 << 20;
/// A timeout that is only reached if something hangs, even on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A directory on a file system for which trace points and `stat` name files alike. Prints a message and returns
/// `None` if there is none.
pub(crate) fn dir() -> Option<tempfile::TempDir> {
    const TMPFS: i64 = 0x0102_1994;
    const OVERLAY: i64 = 0x794c_7630;
    const BTRFS: i64 = 0x9123_683e;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let kind = rustix::fs::statfs(dir.path()).unwrap().f_type;
    let unsuitable = [TMPFS, OVERLAY, BTRFS].contains(&kind);
    if unsuitable {
        eprintln!(
            "SKIPPED: {} is on tmpfs, overlayfs or btrfs, whose files trace points identify differently",
            dir.path().display()
        );
    }
    (!unsuitable).then_some(dir)
}

/// Writes a file and drops its pages from the page cache.
pub(crate) fn write_uncached(path: &Path, len: u64) {
    let mut file = File::create(path).unwrap();
    let block: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
    let mut left = len;
    while left > 0 {
        let now = left.min(MIB);
        file.write_all(&block[..usize::try_from(now).unwrap()])
            .unwrap();
        left -= now;
    }
    file.sync_all().unwrap();
    drop_cache(path);
}

/// Drops the pages of a file from the page cache. The kernel keeps pages that are in use, and on a busy machine the
/// exit of a process that mapped the file may not be complete yet, so this is repeated until none is cached, for at
/// most a second.
pub(crate) fn drop_cache(path: &Path) {
    let file = File::open(path).unwrap();
    for _ in 0..100 {
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        let len = file.metadata().unwrap().len();
        if FileResidency::of(&file, 0, len).is_ok_and(|residency| residency.cached == 0) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn inode(path: &Path) -> Inode {
    Inode::of(&rustix::fs::stat(path).unwrap())
}

pub(crate) fn namespace(dir: &Path) -> Namespace {
    Namespace::scan(dir).unwrap()
}

/// What a child process does with a file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ChildTask {
    /// Positioned reads of this many bytes each.
    Read(u64),
    /// Reads a byte of every page through a map.
    Map,
    /// … with `MADV_RANDOM`.
    MapRandom,
    /// … with `MADV_SEQUENTIAL`.
    MapSequential,
    /// Receives fanotify events of the file.
    Listen,
}

/// Printed by [`ChildTask::Listen`] when it has begun.
pub(crate) const LISTENING: &str = "listening";

const TASK: &str = "ANAMNESIS_TEST_TASK";

/// Runs a task on bytes `start..end` in a child process and waits for its end. Returns its process id.
pub(crate) fn run_child(task: ChildTask, path: &Path, start: u64, end: u64) -> u32 {
    let mut child = command(task, path, start, end).spawn().unwrap();
    let pid = child.id();
    assert!(child.wait().unwrap().success());
    pid
}

/// The command of a child process that runs a task: this test binary, with only the test `task`.
pub(crate) fn command(task: ChildTask, path: &Path, start: u64, end: u64) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "task", "--nocapture", "--test-threads=1"])
        .stdout(std::process::Stdio::null());
    let (name, size) = match task {
        ChildTask::Read(size) => ("read", size),
        ChildTask::Map => ("map", 0),
        ChildTask::MapRandom => ("random", 0),
        ChildTask::MapSequential => ("sequential", 0),
        ChildTask::Listen => ("listen", 0),
    };
    command.env(
        TASK,
        format!("{name} {size} {start} {end} {}", path.display()),
    );
    command
}

/// Runs the task that the environment names, in the child process.
pub(crate) fn task() {
    let Ok(task) = std::env::var(TASK) else {
        return;
    };
    let mut words = task.splitn(5, ' ');
    let name = words.next().unwrap();
    let mut number = || words.next().unwrap().parse::<u64>().unwrap();
    let (size, start, end) = (number(), number(), number());
    let path = PathBuf::from(words.next().unwrap());
    match name {
        "read" => read(&path, size, start, end),
        "map" => super::touch::map(&path, start, end, None),
        "random" => super::touch::map(&path, start, end, Some(memmap2::Advice::Random)),
        "sequential" => super::touch::map(&path, start, end, Some(memmap2::Advice::Sequential)),
        "listen" => listen(&path),
        _ => panic!("{name}"),
    }
}

pub(crate) fn read(path: &Path, size: u64, start: u64, end: u64) {
    let file = File::open(path).unwrap();
    let mut buffer = vec![0; usize::try_from(size).unwrap()];
    let mut at = start;
    while at < end {
        let now = usize::try_from(size.min(end - at)).unwrap();
        file.read_exact_at(&mut buffer[..now], at).unwrap();
        at += now as u64;
    }
}

fn listen(path: &Path) {
    let mut source = FanotifySource::reads(&namespace(path.parent().unwrap())).unwrap();
    source.watch(&[inode(path)]).unwrap();
    println!("{LISTENING}");
    let mut events = Vec::new();
    while source.wait(LONG, &mut events).unwrap() {
        events.clear();
    }
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

/// How many bytes of `start..end` the events cover.
pub(crate) fn covered_bytes(events: &[Event], start: u64, end: u64) -> u64 {
    let mut ranges: Vec<_> = events
        .iter()
        .map(|e| (e.start.max(start), (e.start + e.len).min(end)))
        .collect();
    ranges.sort_unstable();
    let (mut at, mut sum) = (start, 0);
    for (first, last) in ranges {
        let first = first.max(at);
        if last > first {
            sum += last - first;
            at = last;
        }
    }
    sum
}

/// Held by tests that must not trace at the same time: while another perf source replaces its events, faults of a map
/// with `MADV_RANDOM` have gone missing from a source that counts each of them (Linux 6.18, two cores).
pub(crate) fn trace_exclusively() -> std::sync::MutexGuard<'static, ()> {
    static EXCLUSIVE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    EXCLUSIVE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
