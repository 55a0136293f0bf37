//! The supervisor of a policy: it queues calls, validates what the policy returns, and deregisters a policy that fails,
//! panics or exceeds a deadline, without effect on others.

use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use anamnesis_ppc::{
    EventKind, FileAccess, Interests, Namespace, Policy, PolicyContext, PolicyLimits, PolicyOutput,
    PrefetchRequest, RangeList, Result, ServiceReport, Supervisor,
};

use crate::support::files::{HANG_TIMEOUT, file_range, prefetch_request};

type PrefetchCallback = Box<dyn FnMut(&FileAccess) -> Option<PrefetchRequest> + Send>;

/// A policy whose functions are closures of the test.
struct ClosurePolicy {
    prefetch: PrefetchCallback,
    init: Box<dyn FnMut() -> Result<(), String> + Send>,
    exit: Box<dyn FnMut() + Send>,
}

impl ClosurePolicy {
    fn new(prefetch: impl FnMut(&FileAccess) -> Option<PrefetchRequest> + Send + 'static) -> Self {
        Self {
            prefetch: Box::new(prefetch),
            init: Box::new(|| Ok(())),
            exit: Box::new(|| ()),
        }
    }
}

impl Policy for ClosurePolicy {
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
        vec![request("a", 0, 1), request("a", 1, 1)]
    }
    fn prefetch(&mut self, miss: &FileAccess) -> Option<PrefetchRequest> {
        (self.prefetch)(miss)
    }
    fn evict(&mut self, miss: Option<&FileAccess>) -> Option<RangeList> {
        miss.map(|miss| request("a", miss.start, 1).ranges)
    }
}

fn request(path: &str, start: u64, len: u64) -> PrefetchRequest {
    prefetch_request(0, vec![file_range(path, start, len)])
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

/// Deadlines that only a call that hangs exceeds, even on a busy machine.
fn long_deadlines() -> PolicyLimits {
    PolicyLimits {
        call: HANG_TIMEOUT,
        init: HANG_TIMEOUT,
        stall: Duration::ZERO,
        ..PolicyLimits::default()
    }
}

/// Deadlines for a policy that never returns.
fn short_deadlines() -> PolicyLimits {
    PolicyLimits {
        call: Duration::from_millis(200),
        init: Duration::from_millis(200),
        stall: Duration::ZERO,
        ..PolicyLimits::default()
    }
}

/// A directory with a file `a` of 1 MiB.
struct Directory(tempfile::TempDir);

impl Directory {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), vec![0; 1 << 20]).unwrap();
        Self(dir)
    }
    fn register(&self, policy: ClosurePolicy) -> (Result<Supervisor>, Receiver<PolicyOutput>) {
        self.register_with(policy, long_deadlines())
    }
    fn register_with(
        &self,
        policy: impl Policy + 'static,
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

/// The next output, which must be a failure of the policy.
fn next_failure(outputs: &Receiver<PolicyOutput>) -> String {
    match outputs.recv_timeout(HANG_TIMEOUT).unwrap() {
        PolicyOutput::Failed(error) => error.to_string(),
        output => panic!("{output:?}"),
    }
}

#[test]
fn outputs_have_the_order_of_the_calls() {
    let (supervisor, outputs) = Directory::new().register(ClosurePolicy::new(|miss| {
        Some(request("a", miss.start + 1, 4096))
    }));
    let supervisor = supervisor.unwrap();
    supervisor.queue_start();
    supervisor.queue_evict(Some(miss(77)));
    supervisor.queue_evict(None);
    supervisor.queue_prefetch(miss(4095));
    let starts: Vec<u64> = (0..3)
        .map(|_| match outputs.recv_timeout(HANG_TIMEOUT).unwrap() {
            PolicyOutput::Prefetch(prefetch) => prefetch.ranges[0].start,
            PolicyOutput::Evict(ranges) => ranges[0].start + (1 << 40),
            PolicyOutput::Failed(error) => panic!("{error}"),
        })
        .filter(|&start| start != 77 + (1 << 40)) // the newer eviction may have replaced this one in the queue
        .collect();
    assert_eq!(starts[..2], [0, 1]);
    supervisor.shut_down().unwrap();
    assert!(supervisor.failure().is_none());
}

#[test]
fn only_a_policy_that_violates_a_limit_is_deregistered() {
    let dir = Directory::new();
    let (unaffected, unaffected_outputs) =
        dir.register(ClosurePolicy::new(|miss| Some(request("a", miss.start, 1))));
    let unaffected = unaffected.unwrap();
    let cases: [(PolicyLimits, PrefetchCallback, &str); 5] = [
        (
            long_deadlines(),
            Box::new(|_| panic!("broken")),
            "prefetch panicked: broken",
        ),
        (
            long_deadlines(),
            Box::new(|_| Some(request("../a", 0, 1))),
            "the namespace has no file",
        ),
        (
            long_deadlines(),
            Box::new(|_| Some(request("a", 1 << 20, 1))),
            "begins at 1048576",
        ),
        (
            long_deadlines(),
            Box::new(|_| Some(request("a", 7, u64::MAX))),
            "and the file ends at 1048576",
        ),
        (
            PolicyLimits {
                init: HANG_TIMEOUT,
                ..short_deadlines()
            },
            Box::new(|_| {
                std::thread::sleep(Duration::from_secs(3600));
                None
            }),
            "prefetch did not return within 200ms",
        ),
    ];
    for (limits, prefetch, reason) in cases {
        let (supervisor, outputs) = dir.register_with(ClosurePolicy::new(prefetch), limits);
        let supervisor = supervisor.unwrap();
        supervisor.queue_prefetch(miss(0));
        let error = next_failure(&outputs);
        assert!(error.contains(reason), "{error}");
        supervisor.queue_prefetch(miss(0));
        assert!(
            supervisor
                .shut_down()
                .unwrap_err()
                .to_string()
                .contains(reason)
        );
        assert!(
            outputs.recv_timeout(Duration::from_millis(10)).is_err(),
            "the failure is the last output"
        );
        unaffected.queue_prefetch(miss(5));
        assert!(matches!(
            unaffected_outputs.recv_timeout(HANG_TIMEOUT).unwrap(),
            PolicyOutput::Prefetch(_)
        ));
    }
}

#[test]
fn a_policy_that_fails_in_init_is_not_registered() {
    let dir = Directory::new();
    type Init = fn() -> Result<(), String>;
    let cases: [(PolicyLimits, Init, &str); 3] = [
        (
            long_deadlines(),
            || Err("no template".into()),
            "no template",
        ),
        (
            long_deadlines(),
            || panic!("broken"),
            "init panicked: broken",
        ),
        (
            short_deadlines(),
            || {
                std::thread::sleep(Duration::from_secs(3600));
                Ok(())
            },
            "init did not return within 200ms",
        ),
    ];
    for (limits, init, reason) in cases {
        let policy = ClosurePolicy {
            init: Box::new(init),
            ..ClosurePolicy::new(|_| None)
        };
        let (supervisor, outputs) = dir.register_with(policy, limits);
        let error = supervisor.unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
        assert!(outputs.recv_timeout(Duration::from_millis(10)).is_err());
    }
}

#[test]
fn shut_down_does_not_wait_for_an_exit_that_hangs() {
    let mut policy = ClosurePolicy::new(|_| None);
    policy.exit = Box::new(|| std::thread::sleep(Duration::from_secs(3600)));
    let (supervisor, _outputs) = Directory::new().register(policy);
    let started = Instant::now();
    let error = supervisor.unwrap().shut_down().unwrap_err();
    assert!(
        error.to_string().contains("exit did not return within 1s"),
        "{error}"
    );
    assert!(started.elapsed() < HANG_TIMEOUT);
}

#[test]
fn calls_are_queued_without_waiting_for_a_slow_policy() {
    let barrier = Arc::new(Barrier::new(2));
    let policy_barrier = Arc::clone(&barrier);
    let mut first = true;
    let slow = ClosurePolicy::new(move |miss| {
        if std::mem::take(&mut first) {
            policy_barrier.wait();
            policy_barrier.wait();
        }
        Some(request("a", miss.start, miss.len))
    });
    let (supervisor, outputs) = Directory::new().register(slow);
    let supervisor = supervisor.unwrap();
    supervisor.queue_prefetch(miss(0));
    barrier.wait(); // now the policy is in its first call
    for at in 1..=1000 {
        supervisor.queue_prefetch(miss(at));
    }
    for at in 0..2000 {
        supervisor.queue_prefetch(miss(10_000 + at * 2)); // not adjacent, so not merged
    }
    let status = supervisor.status();
    assert_eq!((status.queued, status.merged), (1024, 999));
    assert_eq!(status.dropped, 2001 - 1024);
    barrier.wait();
    drop(outputs.recv_timeout(HANG_TIMEOUT).unwrap());
    match outputs.recv_timeout(HANG_TIMEOUT).unwrap() {
        PolicyOutput::Prefetch(prefetch) => {
            assert_eq!(prefetch.ranges[0].start, 10_000 + 2 * (2000 - 1024))
        }
        output => panic!("{output:?}"),
    }
}

/// Requests a byte when it is idle, three times. From then on it needs misses instead.
struct IdlePolicy {
    calls: u64,
}

impl Policy for IdlePolicy {
    fn interests(&self) -> Interests {
        Interests {
            idle: self.calls < 3,
            prefetch: self.calls == 3,
            ..Interests::default()
        }
    }
    fn idle(&mut self, now: u64) -> Vec<PrefetchRequest> {
        assert!(now > 0);
        self.calls += 1;
        vec![request("a", self.calls, 1)]
    }
    fn prefetch(&mut self, miss: &FileAccess) -> Option<PrefetchRequest> {
        Some(request("a", miss.start, 1))
    }
}

#[test]
fn an_idle_policy_is_called_each_second_and_its_interests_change_with_a_call() {
    let directory = Directory::new();
    let policy = IdlePolicy { calls: 0 };
    let (supervisor, outputs) = directory.register_with(policy, long_deadlines());
    let supervisor = supervisor.unwrap();
    let begun = Instant::now();
    supervisor.queue_prefetch(miss(100)); // not needed yet
    let next_start = || match outputs.recv_timeout(HANG_TIMEOUT).unwrap() {
        PolicyOutput::Prefetch(request) => request.ranges[0].start,
        output => panic!("{output:?}"),
    };
    assert_eq!([(); 3].map(|()| next_start()), [1, 2, 3]);
    assert!(begun.elapsed() >= Duration::from_millis(1900));
    supervisor.queue_prefetch(miss(7));
    assert_eq!(next_start(), 7);
    assert_eq!(
        supervisor.status().calls,
        5,
        "init, three of idle, one miss"
    );
}

/// A policy that reports how often it was called, and hangs in its second call.
#[derive(Default)]
struct ReportingPolicy(u64);

impl Policy for ReportingPolicy {
    fn interests(&self) -> Interests {
        Interests {
            prefetch: true,
            ..Interests::default()
        }
    }
    fn prefetch(&mut self, _: &FileAccess) -> Option<PrefetchRequest> {
        self.0 += 1;
        if self.0 > 1 {
            std::thread::sleep(Duration::from_secs(3600));
        }
        Some(request("a", 0, 1))
    }
    fn report(&self) -> Vec<ServiceReport> {
        let wanted = self.0;
        vec![ServiceReport {
            wanted,
            ..ServiceReport::default()
        }]
    }
}

#[test]
fn a_report_is_current_or_the_last_one_of_a_busy_policy() {
    let (supervisor, outputs) =
        Directory::new().register_with(ReportingPolicy::default(), long_deadlines());
    let supervisor = supervisor.unwrap();
    let report = |timeout| {
        supervisor.request_report();
        let reports = supervisor.report(timeout).into_iter();
        reports.map(|report| report.wanted).collect::<Vec<_>>()
    };
    assert_eq!(report(HANG_TIMEOUT), [0]);
    supervisor.queue_prefetch(miss(0));
    outputs.recv_timeout(HANG_TIMEOUT).unwrap();
    assert_eq!(report(HANG_TIMEOUT), [1]);
    // a report is no call of the policy
    assert_eq!(supervisor.status().calls, 2);
    supervisor.queue_prefetch(miss(4096));
    while supervisor.status().queued > 0 {
        std::thread::yield_now();
    }
    assert_eq!(report(Duration::from_millis(10)), [1]);
    // its thread ends with the process
    std::mem::forget(supervisor);
}
