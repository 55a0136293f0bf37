//! Files that are created, replaced and removed below a registered directory are noticed while the runtime runs, and
//! belong to the directory's policy.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anamnesis_ppc::runtime::RuntimeOptions;
use anamnesis_ppc::source::{self, FakeSource};
use anamnesis_ppc::{
    EagerPolicy, Event, EventKind, FileAccess, FileRange, Inode, Interests, Namespace, Policy,
    PolicyContext, PolicyLimits, PolicyRegistry, PrefetchRequest, Runtime,
};

use crate::support::files::{
    MIB, drop_cached_pages, inode, populated_bytes, prefetch_request, wait_until, write_uncached,
};

/// The calls that a [`RecordingPolicy`] received.
#[derive(Debug, Default)]
struct RecordedCalls {
    inits: u32,
    files: Vec<Vec<String>>,
    misses: Vec<String>,
    exits: u32,
}

/// Records its calls. Receives misses once there is a file `new/model`, and answers each with the first file that the
/// directory had at registration, which may have been removed.
struct RecordingPolicy {
    calls: Arc<Mutex<RecordedCalls>>,
    interests: Interests,
    first_file: Option<FileRange>,
}

impl RecordingPolicy {
    fn new() -> (Box<Self>, Arc<Mutex<RecordedCalls>>) {
        let calls = Arc::<Mutex<RecordedCalls>>::default();
        (
            Box::new(Self {
                calls: Arc::clone(&calls),
                interests: Interests::default(),
                first_file: None,
            }),
            calls,
        )
    }
}

fn names(namespace: &Namespace) -> Vec<String> {
    namespace
        .entries()
        .iter()
        .map(|entry| entry.path.to_str().unwrap().to_owned())
        .collect()
}

impl Policy for RecordingPolicy {
    fn interests(&self) -> Interests {
        self.interests
    }

    fn init(&mut self, context: &PolicyContext) -> Result<(), String> {
        self.calls.lock().unwrap().inits += 1;
        self.first_file = context
            .namespace
            .entries()
            .first()
            .map(|entry| entry.whole());
        self.files_changed(context)
    }

    fn files_changed(&mut self, context: &PolicyContext) -> Result<(), String> {
        if context.namespace.get(Path::new("bad")).is_some() {
            return Err("rejects the file `bad`".into());
        }
        self.interests.prefetch = context.namespace.get(Path::new("new/model")).is_some();
        self.calls
            .lock()
            .unwrap()
            .files
            .push(names(&context.namespace));
        Ok(())
    }

    fn prefetch(&mut self, miss: &FileAccess) -> Option<PrefetchRequest> {
        self.calls
            .lock()
            .unwrap()
            .misses
            .push(miss.path.to_str().unwrap().into());
        self.first_file
            .clone()
            .map(|range| prefetch_request(0, vec![range]))
    }

    fn exit(&mut self) {
        self.calls.lock().unwrap().exits += 1;
    }
}

fn miss(inode: Inode, start: u64) -> Event {
    Event {
        kind: EventKind::Miss,
        inode,
        start,
        len: 4096,
        pid: 1,
        tid: 1,
        time: 0,
    }
}

#[test]
fn a_registered_policy_is_kept_while_files_are_added_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("old"), vec![0; 8192]).unwrap();
    let old = inode(&path("old"));
    let runtime = Runtime::new(RuntimeOptions::default()).unwrap();
    let (policy, calls) = RecordingPolicy::new();
    runtime
        .register(dir.path(), "recording", policy, "")
        .unwrap();
    let (source, events) = FakeSource::new().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            runtime
                .run(Box::new(source), &AtomicBool::new(false))
                .unwrap()
        });
        wait_until("the file is watched", || events.watched() == [old]);
        events.push(&[miss(old, 0)]); // not delivered: the policy is not interested in misses yet

        // as a download does: in a new directory, under another name first
        fs::create_dir(path("new")).unwrap();
        let mut part = File::create(path("new/model.part")).unwrap();
        std::io::Write::write_all(&mut part, &[1; 8192]).unwrap();
        drop(part);
        fs::rename(path("new/model.part"), path("new/model")).unwrap();
        let model = inode(&path("new/model"));
        wait_until("the new file is watched", || {
            events.watched().contains(&model)
        });
        events.push(&[miss(model, 0), miss(old, 4096)]);
        wait_until("misses are delivered", || {
            calls.lock().unwrap().misses == ["new/model", "old"]
        });

        fs::remove_file(path("old")).unwrap();
        wait_until("the removed file is not watched", || {
            events.watched() == [model]
        });
        // the policy returns a range of the removed file, which does not deregister it
        events.push(&[miss(model, 4096)]);
        wait_until("the next miss is delivered", || {
            calls.lock().unwrap().misses.len() == 3
        });
        assert!(
            runtime.policies().registrations()[0]
                .supervisor()
                .failure()
                .is_none()
        );
        assert_eq!(runtime.status().policies[0].files, 1);
        runtime.unregister(dir.path()).unwrap();
        events.end();
    });
    let calls = calls.lock().unwrap();
    assert_eq!((calls.inits, calls.exits), (1, 1), "one registration");
    assert_eq!(calls.files.first().unwrap(), &["old"]);
    assert!(
        calls
            .files
            .contains(&vec!["old".to_owned(), "new/model".to_owned()]),
        "{calls:?}"
    );
    assert_eq!(calls.files.last().unwrap(), &["new/model"]);
}

#[test]
fn a_rescan_reports_changed_files_to_the_registered_policy() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("old"), [0; 10]).unwrap();
    let policies = PolicyRegistry::new(1 << 30, PolicyLimits::default(), |_, _| ());
    let (policy, calls) = RecordingPolicy::new();
    let number = policies
        .register(dir.path(), policy, "")
        .unwrap()
        .origin()
        .number;
    let generation = policies.generation();
    assert!(!policies.rescan(dir.path()).unwrap());
    assert_eq!(
        (policies.generation(), calls.lock().unwrap().files.len()),
        (generation, 1),
        "no file changed"
    );
    // files that were modified within the last second are not added yet
    let create = |name: &str| {
        let file = File::create(dir.path().join(name)).unwrap();
        file.set_modified(std::time::SystemTime::now() - Duration::from_secs(2))
            .unwrap();
    };
    create("other");
    assert!(!policies.rescan(dir.path()).unwrap());
    assert_eq!(policies.generation(), generation + 1);
    assert_eq!(
        calls.lock().unwrap().files.last().unwrap(),
        &["old", "other"]
    );
    let registration = Arc::clone(&policies.registrations()[0]);
    assert_eq!(
        (
            registration.origin().number,
            names(&registration.origin().namespace)
        ),
        (number, vec!["old".into(), "other".into()])
    );
    // a policy may reject the new files
    create("bad");
    policies.rescan(dir.path()).unwrap();
    assert!(
        registration
            .supervisor()
            .failure()
            .unwrap()
            .to_string()
            .contains("rejects the file `bad`")
    );
    assert!(policies.rescan(Path::new("/proc")).is_err());
}

#[test]
fn misses_of_new_files_are_delivered() {
    const LEN: u64 = 8 * MIB;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let create_uncached = |name: &str| {
        let path = dir.path().join(name);
        write_uncached(&path, LEN);
        path
    };
    let is_prefetched = |path: &Path| populated_bytes(path, 0, LEN) == LEN;
    let first = create_uncached("first");
    if populated_bytes(&first, 0, LEN) > 0 {
        return eprintln!(
            "SKIPPED: the file system of {} does not drop cached pages",
            dir.path().display()
        );
    }
    let runtime = Runtime::new(RuntimeOptions::default()).unwrap();
    runtime
        .register(dir.path(), "eager", Box::new(EagerPolicy::default()), "")
        .unwrap();
    let source = match source::by_name("misses", &Namespace::scan(dir.path()).unwrap()) {
        Ok(source) => source,
        Err(error) => return eprintln!("SKIPPED: {error}"),
    };
    let stop = AtomicBool::new(false);
    // repeated, because nothing shows when the source watches a new file
    let read_until_missed = |path: &Path| {
        let before = runtime.status().events.misses;
        wait_until("a miss is reported", || {
            drop_cached_pages(File::open(path).unwrap());
            let mut dd = Command::new("dd");
            dd.args([
                "bs=4k",
                "count=1",
                "skip=1500",
                "status=none",
                "of=/dev/null",
            ]);
            assert!(
                dd.arg(format!("if={}", path.display()))
                    .status()
                    .unwrap()
                    .success()
            );
            let read_at = Instant::now();
            while runtime.status().events.misses == before
                && read_at.elapsed() < Duration::from_secs(2)
            {
                std::thread::sleep(Duration::from_millis(10));
            }
            runtime.status().events.misses > before
        });
    };
    std::thread::scope(|scope| {
        scope.spawn(|| runtime.run(source, &stop).unwrap());
        let stop_guard = StopOnDrop(&stop);
        wait_until("the event loop runs", || {
            !runtime.status().source.is_empty()
        });
        let second = create_uncached("second");
        wait_until("the new file is found", || {
            runtime.status().policies[0].files == 2
        });
        read_until_missed(&second);
        wait_until("both files are prefetched", || {
            is_prefetched(&first) && is_prefetched(&second)
        });
        let third = create_uncached("third");
        wait_until("the new file is found", || {
            runtime.status().policies[0].files == 3
        });
        read_until_missed(&third);
        wait_until("the file is prefetched", || is_prefetched(&third));
        drop(stop_guard);
    });
}

/// Stops a runtime when it is dropped, also by a failed assertion, because the scope waits for the event loop.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
