//! Files that are created and removed below a registered directory while a runtime runs.

mod disk;

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
use disk::wait_until;

/// The calls that a [`RecordingPolicy`] received.
#[derive(Debug, Default)]
struct RecordedCalls {
    inits: u32,
    files: Vec<Vec<String>>,
    misses: Vec<String>,
    exits: u32,
}

/// Records its calls. Receives misses once there is a file `new/model`, and answers them with the first file that the
/// directory had, which may have been removed.
struct RecordingPolicy {
    calls: Arc<Mutex<RecordedCalls>>,
    wants: Interests,
    first: Option<FileRange>,
}

impl RecordingPolicy {
    fn new() -> (Box<Self>, Arc<Mutex<RecordedCalls>>) {
        let calls = Arc::<Mutex<RecordedCalls>>::default();
        (
            Box::new(Self {
                calls: Arc::clone(&calls),
                wants: Interests::default(),
                first: None,
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
        self.wants
    }

    fn init(&mut self, context: &PolicyContext) -> Result<(), String> {
        self.calls.lock().unwrap().inits += 1;
        self.first = context.namespace.entries().first().map(|entry| FileRange {
            path: entry.path.clone(),
            start: 0,
            len: entry.len,
            device: None,
        });
        self.files_changed(context)
    }

    fn files_changed(&mut self, context: &PolicyContext) -> Result<(), String> {
        if context.namespace.get(Path::new("bad")).is_some() {
            return Err("a bad file".into());
        }
        self.wants.prefetch = context.namespace.get(Path::new("new/model")).is_some();
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
        self.first.clone().map(|io| PrefetchRequest {
            ranges: vec![io].into(),
            queue: 0,
        })
    }

    fn exit(&mut self) {
        self.calls.lock().unwrap().exits += 1;
    }
}

fn inode(path: &Path) -> Inode {
    Inode::of(&rustix::fs::stat(path).unwrap())
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
fn new_files_belong_to_the_policy_of_their_directory() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("old"), vec![0; 8192]).unwrap();
    let old = inode(&at("old"));
    let runtime = Runtime::new(RuntimeOptions::default()).unwrap();
    let (policy, calls) = RecordingPolicy::new();
    runtime
        .register(dir.path(), "recording", policy, "")
        .unwrap();
    let (source, handle) = FakeSource::new().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            runtime
                .run(Box::new(source), &AtomicBool::new(false))
                .unwrap()
        });
        wait_until("the file is watched", || handle.watched() == [old]);
        handle.push(&[miss(old, 0)]); // the policy is not interested in misses yet

        // as a download does: under another name first, in a new directory
        fs::create_dir(at("new")).unwrap();
        let mut part = File::create(at("new/model.part")).unwrap();
        std::io::Write::write_all(&mut part, &[1; 8192]).unwrap();
        drop(part);
        fs::rename(at("new/model.part"), at("new/model")).unwrap();
        let model = inode(&at("new/model"));
        wait_until("the new file is watched", || {
            handle.watched().contains(&model)
        });
        handle.push(&[miss(model, 0), miss(old, 4096)]);
        wait_until("misses are delivered", || {
            calls.lock().unwrap().misses == ["new/model", "old"]
        });

        fs::remove_file(at("old")).unwrap();
        wait_until("the removed file is not watched", || {
            handle.watched() == [model]
        });
        // the policy returns a range of the removed file, which is no error
        handle.push(&[miss(model, 4096)]);
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
        handle.end();
    });
    let calls = calls.lock().unwrap();
    assert_eq!((calls.inits, calls.exits), (1, 1), "the policy was kept");
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
fn a_rescan_keeps_the_registration() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("old"), [0; 10]).unwrap();
    let policies = PolicyRegistry::new(1 << 30, PolicyLimits::default(), |_, _| ());
    let (policy, calls) = RecordingPolicy::new();
    let number = policies
        .register(dir.path(), policy, "")
        .unwrap()
        .origin()
        .number;
    let changes = policies.generation();
    assert!(!policies.rescan(dir.path()).unwrap());
    assert_eq!(
        (policies.generation(), calls.lock().unwrap().files.len()),
        (changes, 1),
        "no changes"
    );
    let write = |name: &str| {
        let file = File::create(dir.path().join(name)).unwrap();
        file.set_modified(std::time::SystemTime::now() - Duration::from_secs(2))
            .unwrap();
    };
    write("other");
    assert!(!policies.rescan(dir.path()).unwrap());
    assert_eq!(policies.generation(), changes + 1);
    assert_eq!(
        calls.lock().unwrap().files.last().unwrap(),
        &["old", "other"]
    );
    let now = Arc::clone(&policies.registrations()[0]);
    assert_eq!(
        (now.origin().number, names(&now.origin().namespace)),
        (number, vec!["old".into(), "other".into()])
    );
    // a policy may reject the new state
    write("bad");
    policies.rescan(dir.path()).unwrap();
    assert!(
        now.supervisor()
            .failure()
            .unwrap()
            .to_string()
            .contains("a bad file")
    );
    assert!(policies.rescan(Path::new("/proc")).is_err());
}

#[test]
fn misses_of_new_files_are_reported() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let cold = |name: &str| {
        let path = dir.path().join(name);
        fs::write(&path, vec![7; 8 << 20]).unwrap();
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        path
    };
    let populated = |path: &Path| disk::populated(path, 0, 8 << 20);
    if populated(&cold("first")) > 0 {
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
    // repeated until the miss is reported: it is not known when a new file is watched
    let read = |path: &Path| {
        let before = runtime.status().events.misses;
        wait_until("a miss is reported", || {
            rustix::fs::fadvise(
                File::open(path).unwrap(),
                0,
                None,
                rustix::fs::Advice::DontNeed,
            )
            .unwrap();
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
        let second = cold("second");
        wait_until("the new file is found", || {
            runtime.status().policies[0].files == 2
        });
        read(&second);
        wait_until("both files are prefetched", || {
            populated(&second) == 8 << 20 && populated(&dir.path().join("first")) == 8 << 20
        });
        let third = cold("third");
        wait_until("the new file is found", || {
            runtime.status().policies[0].files == 3
        });
        read(&third);
        wait_until("the file is prefetched", || populated(&third) == 8 << 20);
        drop(stop_guard);
    });
}

/// Stops a runtime when it is dropped, also by a failed assertion.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
