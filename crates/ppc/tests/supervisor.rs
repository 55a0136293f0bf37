//! Policies in Rust that violate their limits are deregistered; others are not affected.

use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use anamnesis_ppc::{
    EventKind, FileAccess, FileRange, Interests, Namespace, Policy, PolicyContext, PolicyLimits,
    PolicyOutput, PrefetchRequest, RangeList, Result, Supervisor,
};

/// A timeout that is only reached if something hangs, even on a busy machine.
const LONG: Duration = Duration::from_secs(60);

type PrefetchFn = Box<dyn FnMut(&FileAccess) -> Option<PrefetchRequest> + Send>;

/// A policy whose functions are closures of the test.
struct TestPolicy {
    prefetch: PrefetchFn,
    init: Box<dyn FnMut() -> Result<(), String> + Send>,
    exit: Box<dyn FnMut() + Send>,
}

impl TestPolicy {
    fn new(prefetch: impl FnMut(&FileAccess) -> Option<PrefetchRequest> + Send + 'static) -> Self {
        Self {
            prefetch: Box::new(prefetch),
            init: Box::new(|| Ok(())),
            exit: Box::new(|| ()),
        }
    }
}

impl Policy for TestPolicy {
    fn interests(&self) -> Interests {
        Interests {
            prefetch: true,
            evict: true,
            ..Interests::default()
        }
    }
    fn init(&mut self, _: &PolicyContext) -> Result<(), String> {
        (self.init)()
    }
    fn exit(&mut self) {
        (self.exit)();
    }
    fn start(&mut self) -> Vec<PrefetchRequest> {
        vec![all("a", 0, 1), all("a", 1, 1)]
    }
    fn prefetch(&mut self, miss: &FileAccess) -> Option<PrefetchRequest> {
        (self.prefetch)(miss)
    }
    fn evict(&mut self, miss: Option<&FileAccess>) -> Option<RangeList> {
        miss.map(|miss| all("a", miss.start, 1).ranges)
    }
}

fn all(path: &str, start: u64, len: u64) -> PrefetchRequest {
    PrefetchRequest {
        ranges: vec![FileRange {
            path: Path::new(path).into(),
            start,
            len,
            device: None,
        }]
        .into(),
        queue: 0,
    }
}

fn miss(start: u64) -> FileAccess {
    FileAccess {
        kind: EventKind::Miss,
        path: Path::new("a").into(),
        start,
        len: 1,
        pid: 1,
        tid: 1,
        time: 0,
    }
}

/// Deadlines that no call exceeds, even on a busy machine.
fn generous() -> PolicyLimits {
    PolicyLimits {
        call: LONG,
        init: LONG,
        ..PolicyLimits::default()
    }
}

/// Deadlines for a policy that never returns.
fn tight() -> PolicyLimits {
    PolicyLimits {
        call: Duration::from_millis(200),
        init: Duration::from_millis(200),
        ..PolicyLimits::default()
    }
}

struct TestDir(tempfile::TempDir);

impl TestDir {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), vec![0; 1 << 20]).unwrap();
        Self(dir)
    }
    fn register(&self, policy: TestPolicy) -> (Result<Supervisor>, Receiver<PolicyOutput>) {
        self.register_with(policy, generous())
    }
    fn register_with(
        &self,
        policy: TestPolicy,
        limits: PolicyLimits,
    ) -> (Result<Supervisor>, Receiver<PolicyOutput>) {
        let namespace = Arc::new(Namespace::scan(self.0.path()).unwrap());
        let (sender, receiver) = channel();
        let context = PolicyContext {
            namespace,
            config: String::new(),
            memory: 1 << 30,
        };
        (
            Supervisor::spawn(Box::new(policy), context, limits, move |output| {
                drop(sender.send(output))
            }),
            receiver,
        )
    }
}

fn failure(outputs: &Receiver<PolicyOutput>) -> String {
    match outputs.recv_timeout(LONG).unwrap() {
        PolicyOutput::Failed(error) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn output_is_in_the_order_of_the_calls() {
    let (supervisor, outputs) =
        TestDir::new().register(TestPolicy::new(|miss| Some(all("a", miss.start + 1, 4096))));
    let supervisor = supervisor.unwrap();
    supervisor.queue_start();
    supervisor.queue_evict(Some(miss(77)));
    supervisor.queue_evict(None);
    supervisor.queue_prefetch(miss(4095));
    let starts: Vec<u64> = (0..3)
        .map(|_| match outputs.recv_timeout(LONG).unwrap() {
            PolicyOutput::Prefetch(prefetch) => prefetch.ranges[0].start,
            PolicyOutput::Evict(ranges) => ranges[0].start + (1 << 40),
            PolicyOutput::Failed(error) => panic!("{error}"),
        })
        .filter(|&start| start != 77 + (1 << 40)) // the newer eviction may replace this one in the queue
        .collect();
    assert_eq!(starts[..2], [0, 1]);
    supervisor.shut_down().unwrap();
    assert!(supervisor.failure().is_none());
}

#[test]
fn only_the_policy_that_violates_a_limit_is_deregistered() {
    let dir = TestDir::new();
    let (other, other_outputs) =
        dir.register(TestPolicy::new(|miss| Some(all("a", miss.start, 1))));
    let other = other.unwrap();
    let cases: [(PolicyLimits, PrefetchFn, &str); 5] = [
        (
            generous(),
            Box::new(|_| panic!("broken")),
            "prefetch panicked: broken",
        ),
        (
            generous(),
            Box::new(|_| Some(all("../a", 0, 1))),
            "the namespace has no file",
        ),
        (
            generous(),
            Box::new(|_| Some(all("a", 1 << 20, 1))),
            "begins at 1048576",
        ),
        (
            generous(),
            Box::new(|_| Some(all("a", 7, u64::MAX))),
            "and the file ends at 1048576",
        ),
        (
            PolicyLimits {
                init: LONG,
                ..tight()
            },
            Box::new(|_| {
                std::thread::sleep(Duration::from_secs(3600));
                None
            }),
            "prefetch did not return within 200ms",
        ),
    ];
    for (limits, body, why) in cases {
        let (supervisor, outputs) = dir.register_with(TestPolicy::new(body), limits);
        let supervisor = supervisor.unwrap();
        supervisor.queue_prefetch(miss(0));
        let error = failure(&outputs);
        assert!(error.contains(why), "{error}");
        supervisor.queue_prefetch(miss(0));
        assert!(
            supervisor
                .shut_down()
                .unwrap_err()
                .to_string()
                .contains(why)
        );
        assert!(
            outputs.recv_timeout(Duration::from_millis(10)).is_err(),
            "the failure is the last output"
        );
        other.queue_prefetch(miss(5));
        assert!(matches!(
            other_outputs.recv_timeout(LONG).unwrap(),
            PolicyOutput::Prefetch(_)
        ));
    }
}

#[test]
fn a_failed_initialisation_is_no_registration() {
    let dir = TestDir::new();
    type Init = fn() -> Result<(), String>;
    let cases: [(PolicyLimits, Init, &str); 3] = [
        (generous(), || Err("no template".into()), "no template"),
        (generous(), || panic!("broken"), "init panicked: broken"),
        (
            tight(),
            || {
                std::thread::sleep(Duration::from_secs(3600));
                Ok(())
            },
            "init did not return within 200ms",
        ),
    ];
    for (limits, init, why) in cases {
        let policy = TestPolicy {
            init: Box::new(init),
            ..TestPolicy::new(|_| None)
        };
        let (supervisor, outputs) = dir.register_with(policy, limits);
        let error = supervisor.unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert!(outputs.recv_timeout(Duration::from_millis(10)).is_err());
    }
}

#[test]
fn shutdown_does_not_wait_for_an_exit_that_hangs() {
    let mut policy = TestPolicy::new(|_| None);
    policy.exit = Box::new(|| std::thread::sleep(Duration::from_secs(3600)));
    let (supervisor, _outputs) = TestDir::new().register(policy);
    let began = Instant::now();
    let error = supervisor.unwrap().shut_down().unwrap_err();
    assert!(
        error.to_string().contains("exit did not return within 1s"),
        "{error}"
    );
    assert!(began.elapsed() < LONG);
}

#[test]
fn calls_to_a_slow_policy_do_not_block() {
    let barrier = Arc::new(Barrier::new(2));
    let in_policy = Arc::clone(&barrier);
    let mut first = true;
    let slow = TestPolicy::new(move |miss| {
        if std::mem::take(&mut first) {
            in_policy.wait();
            in_policy.wait();
        }
        Some(all("a", miss.start, miss.len))
    });
    let (supervisor, outputs) = TestDir::new().register(slow);
    let supervisor = supervisor.unwrap();
    supervisor.queue_prefetch(miss(0));
    barrier.wait(); // the policy is in its first call now
    for at in 1..=1000 {
        supervisor.queue_prefetch(miss(at));
    }
    for at in 0..2000 {
        supervisor.queue_prefetch(miss(10_000 + at * 2)); // not adjacent
    }
    let status = supervisor.status();
    assert_eq!((status.queued, status.merged), (1024, 999));
    assert_eq!(status.dropped, 2001 - 1024);
    barrier.wait();
    drop(outputs.recv_timeout(LONG).unwrap());
    match outputs.recv_timeout(LONG).unwrap() {
        PolicyOutput::Prefetch(prefetch) => {
            assert_eq!(prefetch.ranges[0].start, 10_000 + 2 * (2000 - 1024))
        }
        other => panic!("{other:?}"),
    }
}
