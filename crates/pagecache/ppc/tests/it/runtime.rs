//! The runtime delivers events to policies, and prefetches and evicts what they return.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anamnesis_ppc::cache::read_uncached;
use anamnesis_ppc::runtime::{RuntimeOptions, query_all, query_status};
use anamnesis_ppc::source::{self, CaptureMode, FakeSource, FakeSourceHandle};
use anamnesis_ppc::{
    EagerPolicy, Event, EventKind, FileAccess, Inode, Interests, Namespace, NoopPolicy, Policy,
    PolicyContext, PrefetchRequest, RangeList, Runtime,
};

use crate::support::files::{
    HANG_TIMEOUT, MIB, file_range, inode, populated_bytes, prefetch_request, write_uncached,
};

const MODEL: &str = "model.safetensors";
const MODEL_LEN: u64 = 8 * MIB;

/// A directory with a [`MODEL`] that is not in the page cache. Prints a message and returns `None` where the file system
/// does not drop cached pages.
fn uncached_model() -> Option<tempfile::TempDir> {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join(MODEL);
    write_uncached(&path, MODEL_LEN);
    if populated_bytes(&path, 0, MODEL_LEN) == 0 {
        return Some(dir);
    }
    eprintln!(
        "SKIPPED: the file system of {} does not drop cached pages",
        dir.path().display()
    );
    None
}

/// Number of bytes of the [`MODEL`] of this directory that were read into the page cache.
fn populated(dir: &Path) -> u64 {
    populated_bytes(&dir.join(MODEL), 0, MODEL_LEN)
}

fn model_inode(dir: &Path) -> Inode {
    inode(&dir.join(MODEL))
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

/// A runtime whose event loop runs on another thread, with a source of events that the test sends.
struct RunningRuntime {
    runtime: Arc<Runtime>,
    events: FakeSourceHandle,
    event_loop: Option<std::thread::JoinHandle<()>>,
}

impl RunningRuntime {
    fn new(options: RuntimeOptions, register: impl FnOnce(&Runtime)) -> Self {
        let runtime = Arc::new(Runtime::new(options).unwrap());
        register(&runtime);
        let (source, events) = FakeSource::new().unwrap();
        let in_loop = Arc::clone(&runtime);
        let event_loop = std::thread::spawn(move || {
            in_loop
                .run(Box::new(source), &AtomicBool::new(false))
                .unwrap()
        });
        Self {
            runtime,
            events,
            event_loop: Some(event_loop),
        }
    }

    /// Waits until `condition` holds. Panics with `description` and the status after [`HANG_TIMEOUT`].
    fn wait_until(&self, description: &str, condition: impl Fn(&Runtime) -> bool) {
        let started = Instant::now();
        while !condition(&self.runtime) {
            assert!(
                started.elapsed() < HANG_TIMEOUT,
                "timeout: {description}: {:?}",
                self.runtime.status()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for RunningRuntime {
    fn drop(&mut self) {
        self.events.end();
        self.event_loop.take().unwrap().join().unwrap();
    }
}

#[test]
fn the_eager_policy_prefetches_all_files_at_the_first_miss() {
    let Some(dir) = uncached_model() else { return };
    let running = RunningRuntime::new(RuntimeOptions::default(), |runtime| {
        runtime
            .register(dir.path(), "eager", Box::new(EagerPolicy::default()), "")
            .unwrap();
    });
    let inode = model_inode(dir.path());
    running
        .events
        .push(&[event(EventKind::Miss, inode, 0, 4096)]);
    running.wait_until("the whole file is prefetched", |_| {
        populated(dir.path()) == MODEL_LEN
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
        MODEL_LEN,
        "{status:?}"
    );
    assert_eq!(status.policies[0].name, "eager");
}

#[test]
fn files_of_an_unregistered_policy_are_not_watched_until_the_next_registration() {
    let Some(dir) = uncached_model() else { return };
    let running = RunningRuntime::new(RuntimeOptions::default(), |runtime| {
        runtime
            .register(dir.path(), "none", Box::new(NoopPolicy), "")
            .unwrap();
    });
    let inode = model_inode(dir.path());
    running
        .events
        .push(&[event(EventKind::Miss, inode, 0, 4096)]);
    running.wait_until("`init` and `prefetch` are called", |runtime| {
        runtime.status().policies[0].calls >= 2
    });
    running.runtime.unregister(dir.path()).unwrap();
    assert!(running.runtime.unregister(dir.path()).is_err());
    running.wait_until("no file is watched", |_| {
        running.events.watched().is_empty()
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
            .events
            .push(&[event(EventKind::Miss, inode, 4096, 4096)]);
        populated(dir.path()) == MODEL_LEN
    });
}

/// The arguments of each call of `evict`.
type EvictCalls = Arc<Mutex<Vec<Option<FileAccess>>>>;

/// Prefetches the whole file at an access, evicts its first half under memory pressure, and records the calls of `evict`.
#[derive(Default)]
struct EvictingPolicy(EvictCalls);

impl Policy for EvictingPolicy {
    fn interests(&self) -> Interests {
        Interests {
            prefetch: true,
            evict: true,
            touch: true,
            ..Interests::default()
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
        let path = access.path.to_str().unwrap();
        Some(prefetch_request(3, vec![file_range(path, 0, MODEL_LEN)]))
    }

    fn evict(&mut self, miss: Option<&FileAccess>) -> Option<RangeList> {
        self.0.lock().unwrap().push(miss.cloned());
        Some(vec![file_range(MODEL, 0, MODEL_LEN / 2)].into())
    }
}

#[test]
fn ranges_returned_by_touch_are_prefetched() {
    let Some(dir) = uncached_model() else { return };
    let running = RunningRuntime::new(
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
        .events
        .push(&[event(EventKind::Touch, model_inode(dir.path()), 0, 4096)]);
    running.wait_until("the file is prefetched", |_| {
        populated(dir.path()) == MODEL_LEN
    });
    let status = running.runtime.status();
    assert_eq!((status.events.touches, status.events.misses), (1, 0));
    assert_eq!(status.hit_rate(), Some(1.0));
}

#[test]
fn memory_pressure_evicts_and_stops_prefetching() {
    let Some(dir) = uncached_model() else { return };
    fs::read(dir.path().join(MODEL)).unwrap();
    let evict_calls = EvictCalls::default();
    let poll_interval = Duration::from_millis(10);
    // a threshold of no memory at all is always exceeded
    let options = RuntimeOptions {
        threshold: Some(0.0),
        poll_interval,
        ..RuntimeOptions::default()
    };
    let running = RunningRuntime::new(options, |runtime| {
        runtime
            .register(
                dir.path(),
                "evicting",
                Box::new(EvictingPolicy(evict_calls.clone())),
                "",
            )
            .unwrap();
    });
    running.wait_until("the first half is evicted", |_| {
        populated(dir.path()) == MODEL_LEN / 2
    });
    running.wait_until("an eviction is requested at a miss", |_| {
        // repeated, because a periodic request may replace the one of the miss in the queue
        running
            .events
            .push(&[event(EventKind::Miss, model_inode(dir.path()), 0, 4096)]);
        evict_calls.lock().unwrap().iter().any(Option::is_some)
    });
    running
        .events
        .push(&[event(EventKind::Touch, model_inode(dir.path()), 0, 4096)]);
    running.wait_until("the prefetch waits for memory", |runtime| {
        runtime.status().prefetch.memory_waits > 0
    });
    assert_eq!(running.runtime.status().prefetch.bytes_read, 0);
    assert!(evict_calls.lock().unwrap().iter().any(Option::is_none));
}

#[test]
fn misses_of_another_process_are_delivered() {
    let Some(dir) = uncached_model() else { return };
    let path = dir.path().join(MODEL);
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
    let (in_loop, stopped) = (Arc::clone(&runtime), Arc::clone(&stop));
    let event_loop = std::thread::spawn(move || in_loop.run(source, &stopped).unwrap());
    let status_socket = runtime.serve_status().unwrap();
    // reads of this process are not delivered
    let mut page = [0; 4096];
    File::open(&path)
        .unwrap()
        .read_exact_at(&mut page, 0)
        .unwrap();
    let mut reader = Command::new("dd");
    reader
        .args([
            "bs=4k",
            "count=1",
            "skip=1500",
            "status=none",
            "of=/dev/null",
        ])
        .arg(format!("if={}", path.display()));
    assert!(reader.status().unwrap().success());
    let started = Instant::now();
    while populated(dir.path()) < MODEL_LEN {
        assert!(started.elapsed() < HANG_TIMEOUT, "{:?}", runtime.status());
        std::thread::sleep(Duration::from_millis(2));
    }
    let status: serde_json::Value =
        serde_json::from_str(&query_status(std::process::id()).unwrap()).unwrap();
    assert_eq!(status["source"], "misses");
    assert_eq!(status["policies"][0]["failure"], serde_json::Value::Null);
    let metrics = query_all().unwrap().prometheus();
    let misses = format!(
        "anamnesis_ppc_misses_total{{pid=\"{}\"}} 1\n",
        std::process::id()
    );
    assert!(metrics.contains(&misses), "{metrics}");
    stop.store(true, Ordering::Relaxed);
    event_loop.join().unwrap();
    drop(status_socket);
}

#[test]
fn read_uncached_neither_fills_nor_drops_the_page_cache() {
    let Some(dir) = uncached_model() else { return };
    let path = dir.path().join(MODEL);
    let read = |len| read_uncached(File::open(&path).unwrap(), len).unwrap();
    let first_bytes = read(64 << 10);
    assert_eq!((first_bytes.len(), populated(dir.path())), (64 << 10, 0));
    let all_bytes = fs::read(&path).unwrap();
    assert!(first_bytes == all_bytes[..64 << 10]);
    assert!(read(64 << 10) == first_bytes);
    assert_eq!(populated(dir.path()), MODEL_LEN);
    // a length beyond the end of the file
    assert!(read(1 << 30) == all_bytes);
}
