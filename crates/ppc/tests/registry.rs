//! One policy per directory, also while registrations are replaced under load.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anamnesis_ppc::{
    Event, EventKind, FileAccess, FileEntry, FileRange, Interests, Namespace, Policy,
    PolicyContext, PolicyLimits, PolicyOutput, PolicyRegistry, PrefetchRequest,
};

/// Answers each miss with its own range, and counts the misses. Misses of process 666 are answered with an invalid range.
struct EchoPolicy {
    seen: Arc<AtomicU64>,
    log: Arc<Mutex<Vec<String>>>,
    name: &'static str,
}

impl Policy for EchoPolicy {
    fn interests(&self) -> Interests {
        Interests {
            prefetch: true,
            ..Interests::default()
        }
    }
    fn init(&mut self, context: &PolicyContext) -> Result<(), String> {
        self.log.lock().unwrap().push(format!("{} init", self.name));
        if context.config == "fail" {
            Err("rejected by its configuration".into())
        } else {
            Ok(())
        }
    }
    fn exit(&mut self) {
        self.log.lock().unwrap().push(format!("{} exit", self.name));
    }
    fn prefetch(&mut self, miss: &FileAccess) -> Option<PrefetchRequest> {
        self.seen.fetch_add(1, SeqCst);
        let FileAccess { start, len, .. } = *miss;
        let path = if miss.pid == 666 {
            Path::new("..").into()
        } else {
            Arc::clone(&miss.path)
        };
        Some(PrefetchRequest {
            ranges: vec![FileRange {
                path,
                start,
                len,
                device: None,
            }]
            .into(),
            queue: 0,
        })
    }
}

#[derive(Default)]
struct EchoLog {
    log: Arc<Mutex<Vec<String>>>,
}

impl EchoLog {
    fn echo(&self, name: &'static str) -> (Box<dyn Policy>, Arc<AtomicU64>) {
        let seen = Arc::new(AtomicU64::new(0));
        (
            Box::new(EchoPolicy {
                seen: Arc::clone(&seen),
                log: Arc::clone(&self.log),
                name,
            }),
            seen,
        )
    }
}

fn tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("one/deep")).unwrap();
    std::fs::create_dir_all(dir.path().join("two")).unwrap();
    for file in ["top", "one/a", "one/deep/b", "two/c"] {
        std::fs::write(dir.path().join(file), vec![0; 1 << 16]).unwrap();
    }
    dir
}

fn event(entry: &FileEntry, start: u64) -> Event {
    // each with another thread id, or adjacent misses would be merged
    let tid = u32::try_from(start).unwrap();
    Event {
        kind: EventKind::Miss,
        inode: entry.inode,
        start,
        len: 1,
        pid: 1,
        tid,
        time: 0,
    }
}

fn limits() -> PolicyLimits {
    PolicyLimits {
        call: Duration::from_secs(30),
        init: Duration::from_secs(30),
        queued_calls: 1 << 20,
        ..PolicyLimits::default()
    }
}

#[test]
fn files_belong_to_the_deepest_registered_directory() {
    let (echo_log, dir) = (EchoLog::default(), tree());
    let root = dir.path().canonicalize().unwrap();
    let whole = Namespace::scan(&root).unwrap();
    let policies = PolicyRegistry::new(1 << 30, limits(), |_, _| ());
    policies
        .register(&root, echo_log.echo("root").0, "")
        .unwrap();
    policies
        .register(&root.join("one/deep"), echo_log.echo("deep").0, "")
        .unwrap();
    policies
        .register(&root.join("two"), echo_log.echo("two").0, "")
        .unwrap();
    let owner = |name: &str| {
        let inode = whole.get(Path::new(name)).unwrap().inode;
        let found = policies.with_owner(inode, |registration, entry| {
            (
                registration.origin().namespace.root().to_owned(),
                entry.path.clone(),
            )
        });
        let (path, entry) = found.unwrap();
        assert_eq!(
            policies
                .lookup(&root.join(name))
                .unwrap()
                .origin()
                .namespace
                .root(),
            path
        );
        assert_eq!(path.join(entry), root.join(name));
        path
    };
    assert_eq!(owner("top"), root);
    assert_eq!(owner("one/a"), root);
    assert_eq!(owner("one/deep/b"), root.join("one/deep"));
    assert_eq!(owner("two/c"), root.join("two"));
    policies.unregister(&root.join("one/deep")).unwrap();
    assert_eq!(owner("one/deep/b"), root);
    policies.unregister(&root).unwrap();
    assert!(policies.lookup(&root.join("top")).is_none());
    assert!(
        policies
            .with_owner(whole.get(Path::new("top")).unwrap().inode, |_, _| ())
            .is_none()
    );
    assert_eq!(owner("two/c"), root.join("two"));
    let error = policies.unregister(&root).unwrap_err().to_string();
    assert!(
        error.contains("no policy is registered for this directory"),
        "{error}"
    );
}

#[test]
fn a_failed_initialisation_replaces_no_policy() {
    let (echo_log, dir) = (EchoLog::default(), tree());
    let policies = PolicyRegistry::new(1 << 30, limits(), |_, _| ());
    policies
        .register(dir.path(), echo_log.echo("old").0, "")
        .unwrap();
    let error = policies
        .register(dir.path(), echo_log.echo("new").0, "fail")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("rejected by its configuration")
            && error.contains(dir.path().to_str().unwrap()),
        "{error}"
    );
    assert_eq!(policies.registrations().len(), 1);
    assert_eq!(policies.registrations()[0].origin().number, 1);
    assert_eq!(*echo_log.log.lock().unwrap(), ["old init", "new init"]);
    assert!(
        policies
            .register(Path::new("/nowhere"), echo_log.echo("none").0, "")
            .is_err()
    );
}

#[test]
fn a_failed_policy_receives_no_misses_and_others_do() {
    let (echo_log, dir) = (EchoLog::default(), tree());
    let (sender, outputs) = std::sync::mpsc::channel();
    let sender = Mutex::new(sender);
    let policies = PolicyRegistry::new(1 << 30, limits(), move |origin, output| {
        sender
            .lock()
            .unwrap()
            .send((origin.number, output))
            .unwrap();
    });
    let one = policies
        .register(&dir.path().join("one"), echo_log.echo("one").0, "")
        .unwrap();
    let two = policies
        .register(&dir.path().join("two"), echo_log.echo("two").0, "")
        .unwrap();
    let (a, c) = (
        &one.origin().namespace.entries()[0],
        &two.origin().namespace.entries()[0],
    );
    let deliver = |entry: &FileEntry, event: Event| {
        policies
            .with_owner(entry.inode, |registration, entry| {
                registration
                    .supervisor()
                    .queue_prefetch(FileAccess::new(&event, entry))
            })
            .is_some()
    };
    assert!(deliver(
        a,
        Event {
            pid: 666,
            ..event(a, 0)
        }
    ));
    let (number, output) = outputs.recv_timeout(Duration::from_secs(30)).unwrap();
    assert!(
        matches!(output, PolicyOutput::Failed(_)) && number == one.origin().number,
        "{output:?}"
    );
    assert!(!deliver(a, event(a, 0)));
    assert!(deliver(c, event(c, 4096)));
    let (number, output) = outputs.recv_timeout(Duration::from_secs(30)).unwrap();
    assert!(
        matches!(output, PolicyOutput::Prefetch(_)) && number == two.origin().number,
        "{output:?}"
    );
    assert!(
        policies.registrations()[0]
            .supervisor()
            .failure()
            .unwrap()
            .to_string()
            .contains("the namespace has no file")
    );
    assert!(
        policies
            .unregister(&dir.path().join("one"))
            .unwrap_err()
            .to_string()
            .contains("no file")
    );
}

#[test]
fn each_miss_is_delivered_once_while_policies_are_replaced() {
    let (echo_log, dir) = (EchoLog::default(), tree());
    let outputs = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&outputs);
    let policies = PolicyRegistry::new(1 << 30, limits(), move |_, output| {
        assert!(!matches!(output, PolicyOutput::Failed(_)));
        count.fetch_add(1, SeqCst);
    });
    let (first, seen) = echo_log.echo("first");
    let mut seen = vec![seen];
    let registered = policies.register(dir.path(), first, "").unwrap();
    let entry = registered
        .origin()
        .namespace
        .get(Path::new("top"))
        .unwrap()
        .clone();
    drop(registered);
    let stop = AtomicBool::new(false);
    let mut delivered = 0;
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut delivered = 0;
            while !stop.load(SeqCst) {
                let event = event(&entry, delivered % 60_000);
                let found = policies.with_owner(entry.inode, |registration, entry| {
                    registration
                        .supervisor()
                        .queue_prefetch(FileAccess::new(&event, entry))
                });
                assert!(found.is_some(), "a policy is registered at all times");
                delivered += 1;
                std::thread::sleep(Duration::from_micros(20));
            }
            delivered
        });
        for _ in 0..30 {
            let (next, seen_by_next) = echo_log.echo("next");
            policies.register(dir.path(), next, "").unwrap();
            let until = std::time::Instant::now() + Duration::from_secs(30);
            while seen_by_next.load(SeqCst) == 0 {
                assert!(
                    std::time::Instant::now() < until && !load.is_finished(),
                    "the new policy receives no miss"
                );
                std::thread::sleep(Duration::from_micros(100));
            }
            seen.push(seen_by_next);
        }
        stop.store(true, SeqCst);
        delivered = load.join().unwrap();
    });
    policies.unregister(dir.path()).unwrap();
    // misses in the queue of a replaced policy are dropped
    let seen: u64 = seen.iter().map(|seen| seen.load(SeqCst)).sum();
    assert!(
        seen <= delivered && outputs.load(SeqCst) == seen,
        "{seen} of {delivered}, {} outputs",
        outputs.load(SeqCst)
    );
    let log = echo_log.log.lock().unwrap();
    let (inits, exits) = (
        log.iter().filter(|line| line.ends_with("init")),
        log.iter().filter(|l| l.ends_with("exit")),
    );
    assert_eq!((inits.count(), exits.count()), (31, 31));
    // the old policy exits only after the new one is initialised
    assert_eq!(log[..3], ["first init", "next init", "first exit"]);
}
