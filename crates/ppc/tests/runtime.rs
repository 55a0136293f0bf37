//! The runtime: events to policies, and what they recommend to the page cache.

mod disk;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anamnesis_ppc::runtime::{Options, ask};
use anamnesis_ppc::source::{self, Fake, Hand, Want};
use anamnesis_ppc::{
    Access, Context, Eager, Event, Inode, Io, Ios, Kind, Namespace, Nothing, Policy, Prefetch,
    Runtime, Wants,
};
use disk::LONG;

/// A directory of one file of 8 MiB that is on the device and not in memory; `None`, aloud, where that cannot be.
fn cold() -> Option<tempfile::TempDir> {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("model.safetensors");
    fs::write(&path, vec![7; 8 << 20]).unwrap();
    let file = File::open(&path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    if brought(&path) == 0 {
        return Some(dir);
    }
    eprintln!(
        "SKIPPED: the file system of {} keeps its files in memory",
        dir.path().display()
    );
    None
}

/// Of the file of [`cold`].
fn brought(path: &Path) -> u64 {
    disk::brought(path, 0, 8 << 20)
}

fn inode(dir: &Path) -> Inode {
    Namespace::scan(dir).unwrap().entries()[0].inode
}

fn event(kind: Kind, inode: Inode, start: u64, len: u64) -> Event {
    Event {
        kind,
        inode,
        start,
        len,
        pid: 1,
        tid: 1,
        time: 0,
    }
}

/// A runtime on a thread of its own, told by hand.
struct Running {
    runtime: Arc<Runtime>,
    hand: Hand,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    fn new(options: Options, register: impl FnOnce(&Runtime)) -> Self {
        let runtime = Arc::new(Runtime::new(options).unwrap());
        register(&runtime);
        let (source, hand) = Fake::new().unwrap();
        let of = Arc::clone(&runtime);
        let thread =
            std::thread::spawn(move || of.run(Box::new(source), &AtomicBool::new(false)).unwrap());
        Self {
            runtime,
            hand,
            thread: Some(thread),
        }
    }

    fn until(&self, what: &str, holds: impl Fn(&Runtime) -> bool) {
        let begun = Instant::now();
        while !holds(&self.runtime) {
            assert!(
                begun.elapsed() < LONG,
                "{what}: {:?}",
                self.runtime.status()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.hand.end();
        self.thread.take().unwrap().join().unwrap();
    }
}

#[test]
fn the_first_miss_brings_everything() {
    let Some(dir) = cold() else { return };
    let path = dir.path().join("model.safetensors");
    let running = Running::new(Options::default(), |runtime| {
        runtime
            .reg_policy(dir.path(), "eager", Box::new(Eager::default()), "")
            .unwrap();
    });
    let inode = inode(dir.path());
    running.hand.push(&[event(Kind::Miss, inode, 0, 4096)]);
    running.until("all in memory", |_| brought(&path) == 8 << 20);
    running.until("counted", |runtime| {
        runtime.status().prefetch.lanes.is_empty()
    });
    let status = running.runtime.status();
    assert_eq!(
        (
            status.events.misses,
            status.events.missed_bytes,
            status.events.outside
        ),
        (1, 4096, 0)
    );
    // what read-ahead brings counts as having been there
    assert_eq!(
        status.prefetch.bytes_read + status.prefetch.bytes_skipped,
        8 << 20,
        "{status:?}"
    );
    assert_eq!(status.policies[0].name, "eager");
}

#[test]
fn a_policy_that_was_removed_hears_nothing() {
    let Some(dir) = cold() else { return };
    let running = Running::new(Options::default(), |runtime| {
        runtime
            .reg_policy(dir.path(), "none", Box::new(Nothing), "")
            .unwrap();
    });
    let inode = inode(dir.path());
    running.hand.push(&[event(Kind::Miss, inode, 0, 4096)]);
    running.until("answered", |runtime| {
        runtime.status().policies[0].calls >= 2
    }); // `init`, and the miss
    running.runtime.rm_policy(dir.path()).unwrap();
    assert!(running.runtime.rm_policy(dir.path()).is_err());
    running.until("listened to no more", |_| running.hand.watched().is_empty());
    assert!(running.runtime.status().policies.is_empty());
    // and another can take its place
    running
        .runtime
        .reg_policy(dir.path(), "eager", Box::new(Eager::default()), "")
        .unwrap();
    running.until("in memory", |_| {
        // its files are listened to in a moment
        running.hand.push(&[event(Kind::Miss, inode, 4096, 4096)]);
        brought(&dir.path().join("model.safetensors")) == 8 << 20
    });
}

/// Lets go of the first half when it is asked, and keeps what it heard.
#[derive(Default)]
struct Burns(Arc<Mutex<Vec<Option<Access>>>>);

impl Policy for Burns {
    fn wants(&self) -> Wants {
        Wants {
            prefetch: true,
            evict: true,
            touch: true,
            recording: false,
        }
    }

    fn init(&mut self, context: &Context) -> Result<(), String> {
        if context.memory > 0 {
            Ok(())
        } else {
            Err("no memory".into())
        }
    }

    fn touch(&mut self, access: &Access) -> Option<Prefetch> {
        let ios = vec![Io {
            path: access.path.clone(),
            start: 0,
            len: 8 << 20,
            device: None,
        }]
        .into();
        Some(Prefetch { ios, lane: 3 })
    }

    fn evict(&mut self, miss: Option<&Access>) -> Option<Ios> {
        self.0.lock().unwrap().push(miss.cloned());
        let path: Arc<Path> = Path::new("model.safetensors").into();
        Some(
            vec![Io {
                path,
                start: 0,
                len: 4 << 20,
                device: None,
            }]
            .into(),
        )
    }
}

#[test]
fn what_a_touch_answers_is_brought() {
    let Some(dir) = cold() else { return };
    let running = Running::new(
        Options {
            threshold: None,
            ..Options::default()
        },
        |runtime| {
            runtime
                .reg_policy(dir.path(), "burns", Box::new(Burns::default()), "")
                .unwrap();
            assert_eq!(runtime.wanted(), Want::Accesses);
        },
    );
    running
        .hand
        .push(&[event(Kind::Touch, inode(dir.path()), 0, 4096)]);
    running.until("in memory", |_| {
        brought(&dir.path().join("model.safetensors")) == 8 << 20
    });
    let status = running.runtime.status();
    assert_eq!((status.events.touches, status.events.misses), (1, 0));
    assert_eq!(status.hit_rate(), Some(1.0));
}

#[test]
fn short_memory_is_made_room_in_and_nothing_is_brought() {
    let Some(dir) = cold() else { return };
    let path = dir.path().join("model.safetensors");
    fs::read(&path).unwrap();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let every = Duration::from_millis(10);
    // always over: nothing may be used
    let options = Options {
        threshold: Some(0.0),
        every,
        ..Options::default()
    };
    let running = Running::new(options, |runtime| {
        runtime
            .reg_policy(dir.path(), "burns", Box::new(Burns(heard.clone())), "")
            .unwrap();
    });
    running.until("let go", |_| brought(&path) == 4 << 20);
    running.until("asked at a miss", |_| {
        // a question that waits gives way to the next of those that come all the time
        running
            .hand
            .push(&[event(Kind::Miss, inode(dir.path()), 0, 4096)]);
        heard.lock().unwrap().iter().any(Option::is_some)
    });
    running
        .hand
        .push(&[event(Kind::Touch, inode(dir.path()), 0, 4096)]);
    running.until("no room", |runtime| runtime.status().prefetch.no_room > 0);
    assert_eq!(running.runtime.status().prefetch.bytes_read, 0);
    assert!(heard.lock().unwrap().iter().any(Option::is_none));
}

#[test]
fn what_really_happens_is_told() {
    let Some(dir) = cold() else { return };
    let path = dir.path().join("model.safetensors");
    let runtime = Arc::new(Runtime::new(Options::default()).unwrap());
    runtime
        .reg_policy(dir.path(), "eager", Box::new(Eager::default()), "")
        .unwrap();
    let namespace = Namespace::scan(dir.path()).unwrap();
    let mut source = match source::by_name("misses", &namespace) {
        Ok(source) => source,
        Err(error) => return eprintln!("SKIPPED: {error}"),
    };
    // what happens from now on is told
    runtime.watch(&mut *source).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (of, stopped) = (Arc::clone(&runtime), Arc::clone(&stop));
    let thread = std::thread::spawn(move || of.run(source, &stopped).unwrap());
    let door = runtime.open_door().unwrap();
    // what this process reads is not told to policies
    let mut page = [0; 4096];
    File::open(&path)
        .unwrap()
        .read_exact_at(&mut page, 0)
        .unwrap();
    let mut read = Command::new("dd");
    read.args([
        "bs=4k",
        "count=1",
        "skip=1500",
        "status=none",
        "of=/dev/null",
    ])
    .arg(format!("if={}", path.display()));
    assert!(read.status().unwrap().success());
    let begun = Instant::now();
    while brought(&path) < 8 << 20 {
        assert!(begun.elapsed() < LONG, "{:?}", runtime.status());
        std::thread::sleep(Duration::from_millis(2));
    }
    let answer: serde_json::Value =
        serde_json::from_str(&ask(std::process::id()).unwrap()).unwrap();
    assert_eq!(answer["source"], "misses");
    assert_eq!(answer["policies"][0]["lost"], serde_json::Value::Null);
    assert!(
        answer["prometheus"]
            .as_str()
            .unwrap()
            .contains("anamnesis_ppc_misses_total 1\n"),
        "{answer}"
    );
    stop.store(true, Ordering::Relaxed);
    thread.join().unwrap();
    drop(door);
}

#[test]
fn a_look_leaves_the_page_cache_as_it_was() {
    let Some(dir) = cold() else { return };
    let path = dir.path().join("model.safetensors");
    let head = || anamnesis_ppc::cache::peek(File::open(&path).unwrap(), 64 << 10).unwrap();
    assert_eq!((head().len(), brought(&path)), (64 << 10, 0));
    fs::read(&path).unwrap();
    assert_eq!((head()[0], brought(&path)), (7, 8 << 20));
    assert_eq!(
        anamnesis_ppc::cache::peek(File::open(&path).unwrap(), 1 << 30)
            .unwrap()
            .len(),
        8 << 20
    );
}
