//! Deadlines of a policy count its own time: one that waits or is not run is not late, and one that computes without end is.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anamnesis_ppc::{
    EventKind, FileAccess, Interests, Namespace, Policy, PolicyContext, PolicyLimits, PolicyOutput,
    PrefetchRequest, Supervisor,
};

use crate::support::files::{HANG_TIMEOUT, file_range, prefetch_request};

/// A policy whose prefetch is a function of the test.
struct PrefetchPolicy<F>(F);

impl<F: FnMut() + Send> Policy for PrefetchPolicy<F> {
    fn interests(&self) -> Interests {
        Interests {
            prefetch: true,
            ..Interests::default()
        }
    }
    fn prefetch(&mut self, _: &FileAccess) -> Option<PrefetchRequest> {
        (self.0)();
        Some(prefetch_request(0, vec![file_range("a", 0, 1)]))
    }
}

/// Calls a policy once, with a deadline of 20 ms, and returns its output.
fn output_of(stall: Duration, prefetch: impl FnMut() + Send + 'static) -> PolicyOutput {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a"), [0; 100]).unwrap();
    let limits = PolicyLimits {
        call: Duration::from_millis(20),
        init: HANG_TIMEOUT,
        stall,
        ..PolicyLimits::default()
    };
    let context = PolicyContext {
        namespace: Arc::new(Namespace::scan(dir.path()).unwrap()),
        config: String::new(),
        memory: 0,
    };
    let (sender, outputs): (_, Receiver<PolicyOutput>) = channel();
    let policy = Box::new(PrefetchPolicy(prefetch));
    let send = move |output| drop(sender.send(output));
    let supervisor = Supervisor::spawn(policy, context, limits, send).unwrap();
    supervisor.queue_prefetch(FileAccess {
        kind: EventKind::Miss,
        path: Path::new("a").into(),
        start: 0,
        len: 1,
        pid: 1,
        tid: 1,
        time: 0,
    });
    outputs.recv_timeout(HANG_TIMEOUT).unwrap()
}

fn has_processor_times() -> bool {
    let has = Path::new("/proc/self/schedstat").exists();
    if !has {
        eprintln!("SKIPPED: the kernel does not tell the processor time of threads");
    }
    has
}

#[test]
fn a_policy_that_waits_is_not_late() {
    if !has_processor_times() {
        return;
    }
    // longer than its deadline, and than the time for a panic after it
    let waits = || std::thread::sleep(Duration::from_millis(1500));
    let output = output_of(HANG_TIMEOUT, waits);
    assert!(matches!(output, PolicyOutput::Prefetch(_)), "{output:?}");
}

#[test]
fn a_policy_that_computes_without_end_is_late() {
    if !has_processor_times() {
        return;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let output = output_of(HANG_TIMEOUT, move || {
        while !stopped.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    });
    stop.store(true, Ordering::Relaxed);
    let PolicyOutput::Failed(error) = output else {
        panic!("{output:?}")
    };
    let expected = "prefetch did not return within 20ms of processor time";
    assert!(error.to_string().contains(expected), "{error}");
}

/// Uses the processor when it is dropped, as the printing of a backtrace does.
struct SlowDrop;

impl Drop for SlowDrop {
    fn drop(&mut self) {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(200) {
            std::hint::spin_loop();
        }
    }
}

#[test]
fn a_panic_that_takes_longer_than_the_deadline_is_reported_as_a_panic() {
    let output = output_of(Duration::ZERO, || {
        let _slow = SlowDrop;
        panic!("broken");
    });
    let PolicyOutput::Failed(error) = output else {
        panic!("{output:?}")
    };
    assert!(
        error.to_string().contains("prefetch panicked: broken"),
        "{error}"
    );
}
