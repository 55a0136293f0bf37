//! Deadlines of policies in shared libraries count the time of their processes.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anamnesis_ppc::PolicyLimits;

use super::faults::{source_with, wait_for_pid};
use super::registered_policy::{PolicyDirectory, miss};
use super::rust_policies::example;
use crate::support::files::HANG_TIMEOUT;

/// A directory in which policies have a deadline of 50 ms, and may wait for much longer.
fn directory() -> PolicyDirectory {
    let mut directory = PolicyDirectory::new();
    directory.limits = PolicyLimits {
        call: Duration::from_millis(50),
        stall: HANG_TIMEOUT,
        ..directory.limits
    };
    directory
}

#[test]
fn a_host_process_that_is_not_run_is_not_late() {
    let directory = directory();
    if !Path::new("/proc/self/schedstat").exists() {
        return eprintln!("SKIPPED: the kernel does not tell the processor time of processes");
    }
    let body = "raise(SIGSTOP); return one_range(\"a\", 0, 1);";
    let Some(path) = directory.compile("stops", &source_with(body)) else {
        return;
    };
    let pid_file = directory.output_dir.path().join("stops.pid");
    let policy = directory
        .register(&path, pid_file.to_str().unwrap())
        .unwrap();
    policy.supervisor.queue_prefetch(miss("a", 0));
    let pid = i32::try_from(wait_for_pid(&pid_file)).unwrap();
    // many times its deadline
    std::thread::sleep(Duration::from_millis(500));
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    assert_eq!(policy.next_prefetch().ranges.len(), 1);
    policy.supervisor.shut_down().unwrap();

    let body = "for (;;);";
    let path = directory.compile("spins", &source_with(body)).unwrap();
    let pid_file = directory.output_dir.path().join("spins.pid");
    let policy = directory
        .register(&path, pid_file.to_str().unwrap())
        .unwrap();
    policy.supervisor.queue_prefetch(miss("a", 0));
    let reason = policy.next_failure();
    assert!(
        reason.contains("prefetch did not return within 50ms of processor time"),
        "{reason}"
    );
}

/// The environment of this process cannot be changed while other tests run: the test runs itself in a process that has it.
#[test]
fn a_panic_is_reported_with_any_backtrace() {
    let Some(path) = example("faulty_policy") else {
        return;
    };
    if std::env::var("RUST_BACKTRACE").as_deref() != Ok("full") {
        let own = std::env::current_exe().unwrap();
        let name = "library_policies::deadlines::a_panic_is_reported_with_any_backtrace";
        let again = Command::new(own)
            .args([name, "--exact"])
            .env("RUST_BACKTRACE", "full")
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&again.stdout);
        assert!(
            again.status.success() && printed.contains("1 passed"),
            "{printed}"
        );
        return;
    }
    let mut directory = PolicyDirectory::new();
    directory.limits.call = PolicyLimits::default().call;
    let policy = directory.register(&path, "panic").unwrap();
    policy.supervisor.queue_prefetch(miss("a", 4096));
    let reason = policy.next_failure();
    assert!(reason.contains("panicked: at 4096"), "{reason}");
}
