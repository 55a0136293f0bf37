//! Files on a real disk, and processes that read them.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anamnesis_ppc::source::Fanotify;
use anamnesis_ppc::{Event, EventSource, Inode, Namespace};
use rustix::fs::{Advice, fadvise};

pub(crate) const MIB: u64 = 1 << 20;
/// Longer than anything takes, also on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A directory on a disk with a page cache.
pub(crate) fn dir() -> Option<tempfile::TempDir> {
    const TMPFS: i64 = 0x0102_1994;
    const OVERLAY: i64 = 0x794c_7630;
    const BTRFS: i64 = 0x9123_683e;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let kind = rustix::fs::statfs(dir.path()).unwrap().f_type;
    let unfit = [TMPFS, OVERLAY, BTRFS].contains(&kind);
    if unfit {
        eprintln!(
            "SKIPPED: {} is on no file system whose misses are told by its device",
            dir.path().display()
        );
    }
    (!unfit).then_some(dir)
}

/// Writes a file and lets go of its pages.
pub(crate) fn cold(path: &Path, len: u64) {
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
    chill(path);
}

/// Lets go of a file's pages.
pub(crate) fn chill(path: &Path) {
    fadvise(File::open(path).unwrap(), 0, None, Advice::DontNeed).unwrap();
}

pub(crate) fn inode(path: &Path) -> Inode {
    Inode::of(&rustix::fs::stat(path).unwrap())
}

pub(crate) fn namespace(dir: &Path) -> Namespace {
    Namespace::scan(dir).unwrap()
}

/// What a process does with a file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Do {
    /// Positioned reads of this many bytes.
    Read(u64),
    /// A byte of every page through a map.
    Map,
    /// … whose pages are asked for in no order.
    MapRandom,
    /// … and in order.
    MapSequential,
    /// Hears of the reads of others.
    Listen,
}

/// What [`Do::Listen`] says when it does.
pub(crate) const LISTENS: &str = "listens";

const TASK: &str = "ANAMNESIS_TEST_TASK";

/// Lets another process do it, to bytes `start..end`; its id.
pub(crate) fn other(task: Do, path: &Path, start: u64, end: u64) -> u32 {
    let mut child = command(task, path, start, end).spawn().unwrap();
    let pid = child.id();
    assert!(child.wait().unwrap().success());
    pid
}

/// The process that does it.
pub(crate) fn command(task: Do, path: &Path, start: u64, end: u64) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "task", "--nocapture", "--test-threads=1"])
        .stdout(std::process::Stdio::null());
    let (name, size) = match task {
        Do::Read(size) => ("read", size),
        Do::Map => ("map", 0),
        Do::MapRandom => ("random", 0),
        Do::MapSequential => ("sequential", 0),
        Do::Listen => ("listen", 0),
    };
    command.env(
        TASK,
        format!("{name} {size} {start} {end} {}", path.display()),
    );
    command
}

/// What the other process does; a test of its own so that this program is the other process.
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
    let mut source = Fanotify::reads(&namespace(path.parent().unwrap())).unwrap();
    source.watch(&[inode(path)]).unwrap();
    println!("{LISTENS}");
    let mut events = Vec::new();
    while source.wait(LONG, &mut events).unwrap() {
        events.clear();
    }
}

/// Everything that is told until nothing is for 300 ms.
pub(crate) fn told(source: &mut dyn EventSource) -> Vec<Event> {
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

/// Whether nothing is told of what is in memory; it is done again where the kernel took some of it back meanwhile.
pub(crate) fn quiet(source: &mut dyn EventSource, mut make: impl FnMut()) -> bool {
    (0..20).any(|_| {
        make();
        told(source).is_empty()
    })
}

/// How many bytes of `start..end` the events name.
pub(crate) fn covered(events: &[Event], start: u64, end: u64) -> u64 {
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
