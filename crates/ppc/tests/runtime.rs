//! The runtime: delivery of events to policies, and execution of their output.

mod disk;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anamnesis_ppc::runtime::{RuntimeOptions, query_status};
use anamnesis_ppc::source::{self, CaptureMode, FakeSource, FakeSourceHandle};
use anamnesis_ppc::{
    EagerPolicy, Event, EventKind, FileAccess, FileRange, Inode, Interests, Namespace, NoopPolicy,
    Policy, PolicyContext, PrefetchRequest, RangeList, Runtime,
};
use disk::LONG;

/// A directory with a file of 8 MiB that is on the device and not cached. Prints a message and returns `None` where the
/// file system does not drop cached pages.
fn cold() -> Option<tempfile::TempDir> {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("model.safetensors");
    fs::write(&path, vec![7; 8 << 20]).unwrap();
    let file = File::open(&path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    if populated(&path) == 0 {
        return Some(dir);
    }
    eprintln!(
        "SKIPPED: the file system of {} does not drop cached pages",
        dir.path().display()
    );
    None
}

/// [`disk::populated`] for the file of [`cold`].
fn populated(path: &Path) -> u64 {
    disk::populated(path, 0, 8 << 20)
}

fn inode(dir: &Path) -> Inode {
    Namespace::scan(dir).unwrap().entries()[0].inode
}

fn event(kind: EventKind, inode: Inode, start: u64, len: u64) -> Event {
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

/// A runtime on a thread of its own, with a fake event source.
struct Running {
    runtime: Arc<Runtime>,
    handle: FakeSourceHandle,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    fn new(options: RuntimeOptions, register: impl FnOnce(&Runtime)) -> Self {
        let runtime = Arc::new(Runtime::new(options).unwrap());
        register(&runtime);
        let (source, handle) = FakeSource::new().unwrap();
        let shared = Arc::clone(&runtime);
        let thread = std::thread::spawn(move || {
            shared
                .run(Box::new(source), &AtomicBool::new(false))
                .unwrap()
        });
        Self {
            runtime,
            handle,
            thread: Some(thread),
        }
    }

    fn wait_until(&self, what: &str, condition: impl Fn(&Runtime) -> bool) {
        let begun = Instant::now();
        while !condition(&self.runtime) {
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
        self.handle.end();
        self.thread.take().unwrap().join().unwrap();
    }
}

#[test]
fn the_eager_policy_prefetches_everything_at_the_first_miss() {
    let Some(dir) = cold() else { return };
    let path = dir.path().join("model.safetensors");
    let running = Running::new(RuntimeOptions::default(), |runtime| {
        runtime
            .register(dir.path(), "eager", Box::new(EagerPolicy::default()), "")
            .unwrap();
    });
    let inode = inode(dir.path());
    running
        .handle
        .push(&[event(EventKind::Miss, inode, 0, 4096)]);
    running.wait_until("the whole file is prefetched", |_| {
        populated(&path) == 8 << 20
    });
    running.wait_until("the prefetch is complete", |runtime| {
        runtime.status().prefetch.queues.is_empty()
    });
    let status = running.runtime.status();
    assert_eq!(
        (
            status.events.misses,
            status.events.missed_bytes,
            status.events.unmatched
        ),
        (1, 4096, 0)
    );
    // pages that the kernel read ahead count as skipped
    assert_eq!(
        status.prefetch.bytes_read + status.prefetch.bytes_skipped,
        8 << 20,
        "{status:?}"
    );
    assert_eq!(status.policies[0].name, "eager");
}

#[test]
fn an_unregistered_policy_receives_nothing() {
    let Some(dir) = cold() else { return };
    let running = Running::new(RuntimeOptions::default(), |runtime| {
        runtime
            .register(dir.path(), "none", Box::new(NoopPolicy), "")
            .unwrap();
    });
    let inode = inode(dir.path());
    running
        .handle
        .push(&[event(EventKind::Miss, inode, 0, 4096)]);
    running.wait_until("the miss is answered", |runtime| {
        runtime.status().policies[0].calls >= 2
    }); // `init` and `prefetch`
    running.runtime.unregister(dir.path()).unwrap();
    assert!(running.runtime.unregister(dir.path()).is_err());
    running.wait_until("its files are not watched", |_| {
        running.handle.watched().is_empty()
    });
    assert!(running.runtime.status().policies.is_empty());
    // another policy can be registered for the directory
    running
        .runtime
        .register(dir.path(), "eager", Box::new(EagerPolicy::default()), "")
        .unwrap();
    running.wait_until("the file is prefetched", |_| {
        // repeated, because it takes a moment until the files are watched again
        running
            .handle
            .push(&[event(EventKind::Miss, inode, 4096, 4096)]);
        populated(&dir.path().join("model.safetensors")) == 8 << 20
    });
}

/// Prefetches the whole file at an access, evicts its first half under memory pressure, and records the calls of `evict`.
#[derive(Default)]
struct EvictingPolicy(Arc<Mutex<Vec<Option<FileAccess>>>>);

impl Policy for EvictingPolicy {
    fn interests(&self) -> Interests {
        Interests {
            prefetch: true,
            evict: true,
            touch: true,
            recording: false,
        }
    }

    fn init(&mut self, context: &PolicyContext) -> Result<(), String> {
        if context.memory > 0 {
            Ok(())
        } else {
            Err("the memory limit is 0".into())
        }
    }

    fn touch(&mut self, access: &FileAccess) -> Option<PrefetchRequest> {
        let ranges = vec![FileRange {
            path: access.path.clone(),
            start: 0,
            len: 8 << 20,
            device: None,
        }]
        .into();
        Some(PrefetchRequest { ranges, queue: 3 })
    }

    fn evict(&mut self, miss: Option<&FileAccess>) -> Option<RangeList> {
        self.0.lock().unwrap().push(miss.cloned());
        let path: Arc<Path> = Path::new("model.safetensors").into();
        Some(
            vec![FileRange {
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
fn ranges_returned_by_touch_are_prefetched() {
    let Some(dir) = cold() else { return };
    let running = Running::new(
        RuntimeOptions {
            threshold: None,
            ..RuntimeOptions::default()
        },
        |runtime| {
            runtime
                .register(
                    dir.path(),
                    "evicting",
                    Box::new(EvictingPolicy::default()),
                    "",
                )
                .unwrap();
            assert_eq!(runtime.capture_mode(), CaptureMode::Accesses);
        },
    );
    running
        .handle
        .push(&[event(EventKind::Touch, inode(dir.path()), 0, 4096)]);
    running.wait_until("the file is prefetched", |_| {
        populated(&dir.path().join("model.safetensors")) == 8 << 20
    });
    let status = running.runtime.status();
    assert_eq!((status.events.touches, status.events.misses), (1, 0));
    assert_eq!(status.hit_rate(), Some(1.0));
}

#[test]
fn memory_pressure_evicts_and_stops_prefetching() {
    let Some(dir) = cold() else { return };
    let path = dir.path().join("model.safetensors");
    fs::read(&path).unwrap();
    let evict_calls = Arc::new(Mutex::new(Vec::new()));
    let poll_interval = Duration::from_millis(10);
    // no memory may be used: the threshold is always exceeded
    let options = RuntimeOptions {
        threshold: Some(0.0),
        poll_interval,
        ..RuntimeOptions::default()
    };
    let running = Running::new(options, |runtime| {
        runtime
            .register(
                dir.path(),
                "evicting",
                Box::new(EvictingPolicy(evict_calls.clone())),
                "",
            )
            .unwrap();
    });
    running.wait_until("the first half is evicted", |_| populated(&path) == 4 << 20);
    running.wait_until("an eviction is requested at a miss", |_| {
        // repeated, because a periodic request may replace the one of the miss in the queue
        running
            .handle
            .push(&[event(EventKind::Miss, inode(dir.path()), 0, 4096)]);
        evict_calls.lock().unwrap().iter().any(Option::is_some)
    });
    running
        .handle
        .push(&[event(EventKind::Touch, inode(dir.path()), 0, 4096)]);
    running.wait_until("the prefetch finds no room", |runtime| {
        runtime.status().prefetch.memory_waits > 0
    });
    assert_eq!(running.runtime.status().prefetch.bytes_read, 0);
    assert!(evict_calls.lock().unwrap().iter().any(Option::is_none));
}

#[test]
fn misses_of_another_process_are_delivered() {
    let Some(dir) = cold() else { return };
    let path = dir.path().join("model.safetensors");
    let runtime = Arc::new(Runtime::new(RuntimeOptions::default()).unwrap());
    runtime
        .register(dir.path(), "eager", Box::new(EagerPolicy::default()), "")
        .unwrap();
    let namespace = Namespace::scan(dir.path()).unwrap();
    let mut source = match source::by_name("misses", &namespace) {
        Ok(source) => source,
        Err(error) => return eprintln!("SKIPPED: {error}"),
    };
    // accesses from here on are reported, although the event loop starts later
    runtime.watch(&mut *source).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (shared, stopped) = (Arc::clone(&runtime), Arc::clone(&stop));
    let thread = std::thread::spawn(move || shared.run(source, &stopped).unwrap());
    let status_socket = runtime.serve_status().unwrap();
    // reads of this process are not delivered
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
    while populated(&path) < 8 << 20 {
        assert!(begun.elapsed() < LONG, "{:?}", runtime.status());
        std::thread::sleep(Duration::from_millis(2));
    }
    let status: serde_json::Value =
        serde_json::from_str(&query_status(std::process::id()).unwrap()).unwrap();
    assert_eq!(status["source"], "misses");
    assert_eq!(status["policies"][0]["failure"], serde_json::Value::Null);
    assert!(
        status["prometheus"]
            .as_str()
            .unwrap()
            .contains("anamnesis_ppc_misses_total 1\n"),
        "{status}"
    );
    stop.store(true, Ordering::Relaxed);
    thread.join().unwrap();
    drop(status_socket);
}

#[test]
fn peek_leaves_the_page_cache_unchanged() {
    let Some(dir) = cold() else { return };
    let path = dir.path().join("model.safetensors");
    let head =
        || anamnesis_ppc::cache::read_uncached(File::open(&path).unwrap(), 64 << 10).unwrap();
    assert_eq!((head().len(), populated(&path)), (64 << 10, 0));
    fs::read(&path).unwrap();
    assert_eq!((head()[0], populated(&path)), (7, 8 << 20));
    assert_eq!(
        anamnesis_ppc::cache::read_uncached(File::open(&path).unwrap(), 1 << 30)
            .unwrap()
            .len(),
        8 << 20
    );
}
