//! The policy registry: one policy per directory, lookups by file, and replacement while misses are delivered.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anamnesis_ppc::{
    Event, EventKind, FileAccess, FileEntry, FileRange, Interests, Namespace, Policy,
    PolicyContext, PolicyLimits, PolicyOutput, PolicyRegistry, PrefetchRequest,
};

use crate::support::files::{HANG_TIMEOUT, prefetch_request, wait_until};

/// The process whose misses an [`EchoPolicy`] answers with an invalid range.
const INVALID_PID: u32 = 666;

/// Returns for each miss its own range, counts the misses, and logs calls of `init` and `exit`.
struct EchoPolicy {
    misses: Arc<AtomicU64>,
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
        self.misses.fetch_add(1, SeqCst);
        let FileAccess { start, len, .. } = *miss;
        let path = if miss.pid == INVALID_PID {
            Path::new("..").into()
        } else {
            Arc::clone(&miss.path)
        };
        let range = FileRange {
            path,
            start,
            len,
            device: None,
        };
        Some(prefetch_request(0, vec![range]))
    }
}

/// The common log of several [`EchoPolicy`]s.
#[derive(Default)]
struct EchoPolicies {
    log: Arc<Mutex<Vec<String>>>,
}

impl EchoPolicies {
    /// A policy, and its number of misses.
    fn create(&self, name: &'static str) -> (Box<dyn Policy>, Arc<AtomicU64>) {
        let misses = Arc::new(AtomicU64::new(0));
        (
            Box::new(EchoPolicy {
                misses: Arc::clone(&misses),
                log: Arc::clone(&self.log),
                name,
            }),
            misses,
        )
    }
}

fn directory_tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("first/deep")).unwrap();
    std::fs::create_dir_all(dir.path().join("second")).unwrap();
    for file in ["top", "first/a", "first/deep/b", "second/c"] {
        std::fs::write(dir.path().join(file), vec![0; 1 << 16]).unwrap();
    }
    dir
}

fn event(entry: &FileEntry, start: u64) -> Event {
    // each with another thread id, because adjacent misses of one thread are merged
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

/// Deadlines that only a call that hangs exceeds, and a queue that drops no call.
fn long_deadlines() -> PolicyLimits {
    PolicyLimits {
        call: HANG_TIMEOUT,
        init: HANG_TIMEOUT,
        queued_calls: 1 << 20,
        ..PolicyLimits::default()
    }
}

#[test]
fn a_file_belongs_to_the_policy_of_its_deepest_registered_directory() {
    let (echo_policies, dir) = (EchoPolicies::default(), directory_tree());
    let root = dir.path().canonicalize().unwrap();
    let whole = Namespace::scan(&root).unwrap();
    let policies = PolicyRegistry::new(1 << 30, long_deadlines(), |_, _| ());
    policies
        .register(&root, echo_policies.create("root").0, "")
        .unwrap();
    policies
        .register(&root.join("first/deep"), echo_policies.create("deep").0, "")
        .unwrap();
    policies
        .register(&root.join("second"), echo_policies.create("second").0, "")
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
    assert_eq!(owner("first/a"), root);
    assert_eq!(owner("first/deep/b"), root.join("first/deep"));
    assert_eq!(owner("second/c"), root.join("second"));
    policies.unregister(&root.join("first/deep")).unwrap();
    assert_eq!(owner("first/deep/b"), root);
    policies.unregister(&root).unwrap();
    assert!(policies.lookup(&root.join("top")).is_none());
    assert!(
        policies
            .with_owner(whole.get(Path::new("top")).unwrap().inode, |_, _| ())
            .is_none()
    );
    assert_eq!(owner("second/c"), root.join("second"));
    let error = policies.unregister(&root).unwrap_err().to_string();
    assert!(
        error.contains("no policy is registered for this directory"),
        "{error}"
    );
}

#[test]
fn a_policy_that_fails_in_init_does_not_replace_the_registered_one() {
    let (echo_policies, dir) = (EchoPolicies::default(), directory_tree());
    let policies = PolicyRegistry::new(1 << 30, long_deadlines(), |_, _| ());
    policies
        .register(dir.path(), echo_policies.create("old").0, "")
        .unwrap();
    let error = policies
        .register(dir.path(), echo_policies.create("new").0, "fail")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("rejected by its configuration")
            && error.contains(dir.path().to_str().unwrap()),
        "{error}"
    );
    assert_eq!(policies.registrations().len(), 1);
    assert_eq!(policies.registrations()[0].origin().number, 1);
    assert_eq!(*echo_policies.log.lock().unwrap(), ["old init", "new init"]);
    assert!(
        policies
            .register(Path::new("/nowhere"), echo_policies.create("none").0, "")
            .is_err()
    );
}

#[test]
fn misses_are_delivered_only_to_policies_that_have_not_failed() {
    let (echo_policies, dir) = (EchoPolicies::default(), directory_tree());
    let (sender, outputs) = std::sync::mpsc::channel();
    let sender = Mutex::new(sender);
    let policies = PolicyRegistry::new(1 << 30, long_deadlines(), move |origin, output| {
        sender
            .lock()
            .unwrap()
            .send((origin.number, output))
            .unwrap();
    });
    let first = policies
        .register(
            &dir.path().join("first"),
            echo_policies.create("first").0,
            "",
        )
        .unwrap();
    let second = policies
        .register(
            &dir.path().join("second"),
            echo_policies.create("second").0,
            "",
        )
        .unwrap();
    let (a, c) = (
        &first.origin().namespace.entries()[0],
        &second.origin().namespace.entries()[0],
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
            pid: INVALID_PID,
            ..event(a, 0)
        }
    ));
    let (number, output) = outputs.recv_timeout(HANG_TIMEOUT).unwrap();
    assert!(
        matches!(output, PolicyOutput::Failed(_)) && number == first.origin().number,
        "{output:?}"
    );
    assert!(!deliver(a, event(a, 0)));
    assert!(deliver(c, event(c, 4096)));
    let (number, output) = outputs.recv_timeout(HANG_TIMEOUT).unwrap();
    assert!(
        matches!(output, PolicyOutput::Prefetch(_)) && number == second.origin().number,
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
            .unregister(&dir.path().join("first"))
            .unwrap_err()
            .to_string()
            .contains("no file")
    );
}

#[test]
fn no_miss_is_delivered_twice_while_policies_are_replaced() {
    let (echo_policies, dir) = (EchoPolicies::default(), directory_tree());
    let outputs = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&outputs);
    let policies = PolicyRegistry::new(1 << 30, long_deadlines(), move |_, output| {
        assert!(!matches!(output, PolicyOutput::Failed(_)));
        count.fetch_add(1, SeqCst);
    });
    let (first, misses) = echo_policies.create("first");
    let mut misses = vec![misses];
    let registration = policies.register(dir.path(), first, "").unwrap();
    let entry = registration
        .origin()
        .namespace
        .get(Path::new("top"))
        .unwrap()
        .clone();
    drop(registration);
    let stop = AtomicBool::new(false);
    let mut delivered = 0;
    std::thread::scope(|scope| {
        let sender_thread = scope.spawn(|| {
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
            let (next, misses_of_next) = echo_policies.create("next");
            policies.register(dir.path(), next, "").unwrap();
            wait_until("the new policy receives a miss", || {
                assert!(!sender_thread.is_finished());
                misses_of_next.load(SeqCst) > 0
            });
            misses.push(misses_of_next);
        }
        stop.store(true, SeqCst);
        delivered = sender_thread.join().unwrap();
    });
    policies.unregister(dir.path()).unwrap();
    // misses in the queue of a replaced policy are dropped
    let misses: u64 = misses.iter().map(|misses| misses.load(SeqCst)).sum();
    assert!(
        misses <= delivered && outputs.load(SeqCst) == misses,
        "{misses} of {delivered}, {} outputs",
        outputs.load(SeqCst)
    );
    let log = echo_policies.log.lock().unwrap();
    let (inits, exits) = (
        log.iter().filter(|line| line.ends_with("init")),
        log.iter().filter(|l| l.ends_with("exit")),
    );
    assert_eq!((inits.count(), exits.count()), (31, 31));
    // the old policy exits only after the new one is initialised
    assert_eq!(log[..3], ["first init", "next init", "first exit"]);
}
