//! A supervised policy, its watchdog and the callers of its supervisor under hundreds of thread schedules, explored with
//! shuttle: calls are made in their order, a shutdown and an update of the files return, and one failure is reported.
//! `RUSTFLAGS="--cfg shuttle" cargo test -p anamnesis-ppc --lib models` (`.ci/prove`).
//!
//! Each model was seen to fail: without the notification of a queued call or of the end, with a failure that is looked for
//! outside of the lock, with a shutdown that does not wait for its report, and with new files that a call in progress discards.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use super::*;
use crate::EventKind;
use crate::sync::explore;

/// Not reached: the model checker has no clock.
const FOREVER: Duration = Duration::from_secs(3600);

const LIMITS: PolicyLimits = PolicyLimits {
    init: FOREVER,
    call: FOREVER,
    exit: FOREVER,
    stall: Duration::ZERO,
    list_entries: 10,
    queued_calls: 10,
    host_memory: 0,
};

/// The calls of a policy. Locks of the standard library, which order nothing in the model.
#[derive(Debug, Default)]
struct PolicyLog {
    misses: std::sync::Mutex<Vec<u64>>,
    files: std::sync::Mutex<Vec<usize>>,
    exits: AtomicUsize,
}

struct LoggingPolicy {
    log: Arc<PolicyLog>,
    /// Fails at this miss.
    failing: Option<u64>,
    failed: bool,
}

impl Policy for LoggingPolicy {
    fn interests(&self) -> Interests {
        Interests {
            prefetch: true,
            ..Interests::default()
        }
    }

    fn files_changed(&mut self, context: &PolicyContext) -> Result<(), String> {
        self.log
            .files
            .lock()
            .unwrap()
            .push(address(&context.namespace));
        shuttle::thread::yield_now();
        Ok(())
    }

    fn exit(&mut self) {
        self.log.exits.fetch_add(1, SeqCst);
    }

    fn prefetch(&mut self, miss: &FileAccess) -> Option<PrefetchRequest> {
        shuttle::thread::yield_now();
        self.log.misses.lock().unwrap().push(miss.start);
        self.failed = self.failing == Some(miss.start);
        let (ranges, queue) = (RangeList::from(Vec::new()), 0);
        Some(PrefetchRequest { ranges, queue })
    }

    fn failed(&mut self) -> Option<String> {
        self.failed.then(|| "as configured".to_owned())
    }
}

fn address(files: &Arc<Namespace>) -> usize {
    Arc::as_ptr(files).addr()
}

/// Not adjacent to another one, so that calls are not merged.
fn miss(number: u64) -> FileAccess {
    FileAccess {
        kind: EventKind::Miss,
        path: Path::new("a").into(),
        start: number << 20,
        len: 1,
        pid: 1,
        tid: 1,
        time: 0,
    }
}

/// Two states of an empty directory.
fn directory() -> (tempfile::TempDir, [Arc<Namespace>; 2]) {
    let dir = tempfile::tempdir().unwrap();
    let scan = || Arc::new(Namespace::scan(dir.path()).unwrap());
    let states = [scan(), scan()];
    (dir, states)
}

/// A policy, its log, and the outputs that were reported: `true` for a failure.
struct Supervised {
    supervisor: Arc<Supervisor>,
    log: Arc<PolicyLog>,
    outputs: Arc<std::sync::Mutex<Vec<bool>>>,
}

fn supervised(files: &Arc<Namespace>, limits: PolicyLimits, failing: Option<u64>) -> Supervised {
    let (log, outputs) = (Arc::new(PolicyLog::default()), Arc::default());
    let policy = Box::new(LoggingPolicy {
        log: Arc::clone(&log),
        failing: failing.map(|number| number << 20),
        failed: false,
    });
    let context = PolicyContext {
        namespace: Arc::clone(files),
        config: String::new(),
        memory: 0,
    };
    let reported: Arc<std::sync::Mutex<Vec<bool>>> = Arc::clone(&outputs);
    let on_output = move |output| {
        let is_failure = matches!(output, PolicyOutput::Failed(_));
        reported.lock().unwrap().push(is_failure);
    };
    let supervisor = Supervisor::spawn(policy, context, limits, on_output).unwrap();
    Supervised {
        supervisor: Arc::new(supervisor),
        log,
        outputs,
    }
}

#[test]
fn calls_are_made_in_their_order_and_a_shutdown_ends_the_threads() {
    let (_dir, [files, _]) = directory();
    explore(move || {
        let Supervised {
            supervisor,
            log,
            outputs,
        } = supervised(&files, LIMITS, None);
        let other = Arc::clone(&supervisor);
        let queues = thread::Builder::new().spawn(move || {
            (0..2).for_each(|number| other.queue_prefetch(miss(number)));
        });
        (10..12).for_each(|number| supervisor.queue_prefetch(miss(number)));
        queues.unwrap().join().unwrap();
        supervisor.shut_down().unwrap();
        assert_eq!(log.exits.load(SeqCst), 1);
        let misses = log.misses.lock().unwrap();
        for of in [0..10, 10..20] {
            let in_order = misses.iter().map(|start| start >> 20);
            let in_order: Vec<u64> = in_order.filter(|number| of.contains(number)).collect();
            assert!(in_order.is_sorted(), "{misses:?}");
        }
        assert_eq!(outputs.lock().unwrap().len(), misses.len());
    });
}

#[test]
fn every_queued_call_is_made() {
    let (_dir, [files, _]) = directory();
    explore(move || {
        let Supervised {
            supervisor, log, ..
        } = supervised(&files, LIMITS, None);
        supervisor.queue_prefetch(miss(0));
        supervisor.queue_prefetch(miss(1));
        // the notifications, not a deadline, make the policy's thread continue
        while log.misses.lock().unwrap().len() < 2 {
            shuttle::thread::yield_now();
        }
        supervisor.shut_down().unwrap();
    });
}

#[test]
fn updates_of_the_files_return_after_they_were_received() {
    let (_dir, [files, newer]) = directory();
    explore(move || {
        let Supervised {
            supervisor, log, ..
        } = supervised(&files, LIMITS, None);
        supervisor.queue_prefetch(miss(0));
        let (other, newest) = (Arc::clone(&supervisor), Arc::clone(&newer));
        let seen = Arc::clone(&log);
        let updates = thread::Builder::new().spawn(move || {
            // while the policy receives the state before, or later
            while seen.files.lock().unwrap().is_empty() {
                shuttle::thread::yield_now();
            }
            other.update_files(newest);
        });
        supervisor.update_files(Arc::clone(&files));
        updates.unwrap().join().unwrap();
        let received = log.files.lock().unwrap().clone();
        assert_eq!(received, [address(&files), address(&newer)]);
        supervisor.shut_down().unwrap();
    });
}

#[test]
fn a_failure_is_the_last_output_and_ends_every_wait() {
    let (_dir, [files, newer]) = directory();
    explore(move || {
        let Supervised {
            supervisor,
            outputs,
            log,
        } = supervised(&files, LIMITS, Some(1));
        let (other, newer) = (Arc::clone(&supervisor), Arc::clone(&newer));
        let updates = thread::Builder::new().spawn(move || other.update_files(newer));
        (0..3).for_each(|number| supervisor.queue_prefetch(miss(number)));
        // the policy's thread fails at the second call, unless the shutdown discards it
        let shut_down = supervisor.shut_down();
        updates.unwrap().join().unwrap();
        let outputs = outputs.lock().unwrap();
        let failures = outputs.iter().filter(|is_failure| **is_failure).count();
        assert_eq!(failures, usize::from(shut_down.is_err()), "{outputs:?}");
        assert!(
            failures == 0 || outputs.last() == Some(&true),
            "{outputs:?}"
        );
        assert_eq!(log.exits.load(SeqCst), 1 - failures);
    });
}

/// The watchdog notices a call whose deadline has passed, which fails by itself.
#[test]
fn a_late_call_is_one_failure() {
    let limits = PolicyLimits {
        call: Duration::ZERO,
        ..LIMITS
    };
    let (_dir, [files, _]) = directory();
    explore(move || {
        let Supervised {
            supervisor,
            outputs,
            ..
        } = supervised(&files, limits, Some(0));
        supervisor.queue_prefetch(miss(0));
        while supervisor.failure().is_none() {
            shuttle::thread::yield_now();
        }
        supervisor.shut_down().unwrap_err();
        assert_eq!(*outputs.lock().unwrap(), [true]);
    });
}
