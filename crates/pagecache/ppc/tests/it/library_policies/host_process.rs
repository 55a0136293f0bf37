//! The host process of a policy: its restrictions, and its end with the policy, the daemon or a crash.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::faults::{
    expect_unaffected, is_alive, register_unaffected_policy, source_with, wait_for_pid,
};
use super::registered_policy::{PolicyDirectory, miss};
use crate::support::files::{HANG_TIMEOUT, wait_until};
use anamnesis_ppc::Supervisor;
use anamnesis_ppc::host::{HostCommand, LibraryPolicy};

/// A policy whose `ppc_prefetch` never returns, and the file with the id of its process.
fn policy_that_hangs(directory: &PolicyDirectory) -> Option<(PathBuf, PathBuf)> {
    let path = directory.compile("policy_that_hangs", &source_with("for (;;) pause();"))?;
    Some((
        path,
        directory.output_dir.path().join("policy_that_hangs.pid"),
    ))
}

#[test]
fn killing_the_host_in_a_call_deregisters_the_policy() {
    let directory = PolicyDirectory::new();
    let Some(unaffected) = register_unaffected_policy(&directory) else {
        return;
    };
    let (path, pid_file) = policy_that_hangs(&directory).unwrap();
    let policy = directory
        .register(&path, pid_file.to_str().unwrap())
        .unwrap();
    policy.supervisor.queue_prefetch(miss("a", 0));
    let host_pid = i32::try_from(wait_for_pid(&pid_file)).unwrap();
    let host_pid = rustix::process::Pid::from_raw(host_pid).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    rustix::process::kill_process(host_pid, rustix::process::Signal::KILL).unwrap();
    let reason = policy.next_failure();
    assert!(
        reason.contains("SIGKILL") || reason.contains("closed the connection"),
        "{reason}"
    );
    drop(policy);
    assert!(!is_alive(wait_for_pid(&pid_file)));
    expect_unaffected(&unaffected);
}

#[test]
fn the_host_ends_with_its_registration() {
    let directory = PolicyDirectory::new();
    let Some(path) = directory.compile("one_range", &source_with("return one_range(\"a\", 0, 1);"))
    else {
        return;
    };
    let pid_file = directory.output_dir.path().join("one_range.pid");
    let policy = directory
        .register(&path, pid_file.to_str().unwrap())
        .unwrap();
    let host_pid = wait_for_pid(&pid_file);
    assert!(is_alive(host_pid));
    assert_eq!(policy.prefetch(miss("a", 0)).ranges.len(), 1);
    drop(policy);
    assert!(
        !is_alive(host_pid),
        "the host process still runs or is a zombie"
    );
}

#[test]
fn the_host_ends_with_the_daemon() {
    const DAEMON_VARIABLE: &str = "ANAMNESIS_PPC_TEST_DAEMON";
    if let Some(dir) = std::env::var_os(DAEMON_VARIABLE) {
        // the daemon process: waits for a policy that never returns, until it is killed
        let directory = PolicyDirectory::new();
        let (path, _) = policy_that_hangs(&directory).unwrap();
        let policy = directory
            .register(&path, Path::new(&dir).join("pid").to_str().unwrap())
            .unwrap();
        policy.supervisor.queue_prefetch(miss("a", 0));
        std::thread::sleep(HANG_TIMEOUT);
        panic!("the daemon was not killed");
    }
    let directory = PolicyDirectory::new();
    // the daemon process compiles the policy
    if directory.compile("needs_gcc", "int x;").is_none() {
        return;
    }
    let mut daemon = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "library_policies::host_process::the_host_ends_with_the_daemon",
        ])
        .env(DAEMON_VARIABLE, directory.output_dir.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let host_pid = wait_for_pid(&directory.output_dir.path().join("pid"));
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    // a zombie counts as ended, because its new parent may reap it late
    let runs = || {
        std::fs::read_to_string(format!("/proc/{host_pid}/stat"))
            .is_ok_and(|stat| !stat.contains(") Z "))
    };
    wait_until("the host process ends", || !runs());
}

#[test]
fn the_host_inherits_no_descriptors_and_gains_no_privileges() {
    let directory = PolicyDirectory::new();
    // four descriptors are open: the standard streams and the connection
    let body = r#"
        int open = 0;
        for (int fd = 0; fd < 1024; fd++)
            open += fcntl(fd, F_GETFD) >= 0;
        char c;
        struct rlimit core;
        getrlimit(RLIMIT_CORE, &core);
        if (open != 4 || read(0, &c, 1) != 0 || core.rlim_max != 0 || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
            abort();
        return one_range("a", 0, 1);
    "#;
    let Some(path) = directory.compile("descriptors", &source_with(body)) else {
        return;
    };
    // without close-on-exec, every child process inherits this descriptor
    let inheritable = std::fs::File::open("/proc/self/status").unwrap();
    rustix::io::fcntl_setfd(&inheritable, rustix::io::FdFlags::empty()).unwrap();
    let policy = directory.register(&path, "").unwrap();
    assert_eq!(policy.prefetch(miss("a", 0)).ranges.len(), 1);
}

/// The error of registering a policy with this host command.
fn registration_error(directory: &PolicyDirectory, command: HostCommand) -> String {
    let policy = LibraryPolicy::new(command, "policy.so", directory.limits);
    let context = directory.context("");
    Supervisor::spawn(Box::new(policy), context, directory.limits, |_| ())
        .unwrap_err()
        .to_string()
}

#[test]
fn a_command_that_is_no_host_fails_the_registration() {
    let mut directory = PolicyDirectory::new();
    let Some(unaffected) = register_unaffected_policy(&directory) else {
        return;
    };
    let cases = [
        ("true", "its process ended (exit status: 0)"),
        ("exit 7", "its process ended (exit status: 7)"),
        ("cat <&0 >&0", "sent a malformed message"),
        ("yes <&0 >&0", "sent a malformed message"),
        ("cat /dev/zero >&0", "sent a malformed message"),
        ("exec <&-; sleep 100", "its process closed the connection"),
        ("exec sleep 1000", "init did not return within 300ms"),
    ];
    for (script, expected) in cases {
        directory.limits.stall = Duration::ZERO;
        // a short deadline only for the case that exceeds it, because the machine may be busy
        directory.limits.init = if expected.contains("within") {
            Duration::from_millis(300)
        } else {
            HANG_TIMEOUT
        };
        let command = HostCommand::new("/bin/sh").arg("-c").arg(script);
        let error = registration_error(&directory, command);
        assert!(error.contains(expected), "{script}: {error}");
    }
    let error = registration_error(&directory, HostCommand::new("/nowhere/host"));
    assert!(
        error.contains("the host process /nowhere/host cannot be started"),
        "{error}"
    );
    expect_unaffected(&unaffected);
}

#[test]
fn a_host_that_no_daemon_started_exits_with_an_error() {
    let host = std::process::Command::new(env!("CARGO_BIN_EXE_ppc-host"))
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    assert!(!host.status.success());
    let message = String::from_utf8_lossy(&host.stderr);
    assert!(
        message.contains("this command is started by the daemon"),
        "{message}"
    );
}

#[test]
fn a_policy_can_create_threads_but_no_processes() {
    let directory = PolicyDirectory::new();
    let body = r#"
        pthread_t thread;
        int pid = fork();
        if (pid == 0)
            _exit(0);
        if (pid != -1 || errno != EPERM || vfork() != -1 || system("true") == 0)
            context->fail("a process was created");
        if (pthread_create(&thread, 0, (void *(*)(void *))getpid, 0) || pthread_join(thread, 0))
            context->fail("no thread could be created");
        return one_range("a", 0, 1);
    "#;
    let Some(path) = directory.compile("creates_processes", &source_with(body)) else {
        return;
    };
    let policy = directory.register(&path, "").unwrap();
    assert_eq!(policy.prefetch(miss("a", 0)).ranges.len(), 1);
}
