//! Host processes: their restrictions and their end.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::faults::{bystander, expect_unaffected, is_alive, pid_in, source};
use crate::stage::{LONG, Stage, miss};
use anamnesis_ppc::host::{HostCommand, LibraryPolicy};
use anamnesis_ppc::{PolicyContext, PolicyOutput, Supervisor};

/// A policy whose `ppc_prefetch` never returns, and the file with the id of its process.
fn sleeper(stage: &Stage) -> Option<(PathBuf, PathBuf)> {
    let path = stage.compile("sleeper", &source("for (;;) pause();"))?;
    Some((path, stage.out.path().join("sleeper.pid")))
}

#[test]
fn a_host_killed_in_a_call_is_reported() {
    let stage = Stage::new();
    let Some(other) = bystander(&stage) else {
        return;
    };
    let (path, file) = sleeper(&stage).unwrap();
    let actor = stage.register(&path, file.to_str().unwrap()).unwrap();
    actor.supervisor.queue_prefetch(miss("a", 0));
    let host = rustix::process::Pid::from_raw(i32::try_from(pid_in(&file)).unwrap()).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    rustix::process::kill_process(host, rustix::process::Signal::KILL).unwrap();
    let reason = actor.failure();
    assert!(
        reason.contains("SIGKILL") || reason.contains("closed the connection"),
        "{reason}"
    );
    drop(actor);
    assert!(!is_alive(pid_in(&file)));
    expect_unaffected(&other);
}

#[test]
fn a_host_ends_with_its_registration() {
    let stage = Stage::new();
    let Some(path) = stage.compile("good", &source("return io(\"a\", 0, 1);")) else {
        return;
    };
    let file = stage.out.path().join("good.pid");
    let actor = stage.register(&path, file.to_str().unwrap()).unwrap();
    let host = pid_in(&file);
    assert!(is_alive(host));
    assert_eq!(actor.prefetch(miss("a", 0)).ranges.len(), 1);
    drop(actor);
    assert!(!is_alive(host), "the host still runs or is a zombie");
}

#[test]
fn a_host_ends_with_the_daemon() {
    const ROLE: &str = "ANAMNESIS_PPC_TEST_DAEMON";
    if let Some(dir) = std::env::var_os(ROLE) {
        // the daemon process: waits for a policy that never returns, until it is killed
        let stage = Stage::new();
        let (path, _) = sleeper(&stage).unwrap();
        let actor = stage
            .register(&path, Path::new(&dir).join("pid").to_str().unwrap())
            .unwrap();
        actor.supervisor.queue_prefetch(miss("a", 0));
        std::thread::sleep(LONG);
        panic!("the daemon was not killed");
    }
    let stage = Stage::new();
    if stage.compile("probe", "int x;").is_none() {
        return;
    }
    let mut daemon = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::a_host_ends_with_the_daemon"])
        .env(ROLE, stage.out.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let host = pid_in(&stage.out.path().join("pid"));
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    let until = Instant::now() + LONG;
    // a zombie counts as ended, because its new parent may reap it late
    let runs = || {
        std::fs::read_to_string(format!("/proc/{host}/stat"))
            .is_ok_and(|stat| !stat.contains(") Z "))
    };
    while runs() {
        assert!(Instant::now() < until, "process {host} still runs");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_host_inherits_no_descriptors() {
    let stage = Stage::new();
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
        return io("a", 0, 1);
    "#;
    let Some(path) = stage.compile("descriptors", &source(body)) else {
        return;
    };
    let inherited = std::fs::File::open("/proc/self/status").unwrap();
    rustix::io::fcntl_setfd(&inherited, rustix::io::FdFlags::empty()).unwrap(); // inherited by every child
    let actor = stage.register(&path, "").unwrap();
    actor.supervisor.queue_prefetch(miss("a", 0));
    match actor.next() {
        PolicyOutput::Prefetch(prefetch) => assert_eq!(prefetch.ranges.len(), 1),
        other => panic!("{other:?}"),
    }
}

#[test]
fn invalid_host_commands_are_reported() {
    let mut stage = Stage::new();
    let Some(other) = bystander(&stage) else {
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
    for (script, why) in cases {
        // a short deadline only for the case that exceeds it, because the machine may be busy
        stage.limits.init = if why.contains("within") {
            Duration::from_millis(300)
        } else {
            LONG
        };
        let command = HostCommand::new("/bin/sh").arg("-c").arg(script);
        let library = LibraryPolicy::new(command, "policy.so", stage.limits);
        let context = PolicyContext {
            namespace: stage.namespace(),
            config: String::new(),
            memory: 1,
        };
        let error = Supervisor::spawn(Box::new(library), context, stage.limits, |_| ())
            .unwrap_err()
            .to_string();
        assert!(error.contains(why), "{script}: {error}");
    }
    let library = LibraryPolicy::new(HostCommand::new("/nowhere/host"), "policy.so", stage.limits);
    let context = PolicyContext {
        namespace: stage.namespace(),
        config: String::new(),
        memory: 1,
    };
    let error = Supervisor::spawn(Box::new(library), context, stage.limits, |_| ())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("the host process /nowhere/host cannot be started"),
        "{error}"
    );
    expect_unaffected(&other);
}

#[test]
fn a_host_without_a_daemon_exits_with_an_error() {
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
    let stage = Stage::new();
    let body = r#"
        pthread_t thread;
        int made = fork();
        if (made == 0)
            _exit(0);
        if (made != -1 || errno != EPERM || vfork() != -1 || system("true") == 0)
            context->fail("a process was created");
        if (pthread_create(&thread, 0, (void *(*)(void *))getpid, 0) || pthread_join(thread, 0))
            context->fail("no thread could be created");
        return io("a", 0, 1);
    "#;
    let Some(path) = stage.compile("parent", &source(body)) else {
        return;
    };
    let actor = stage.register(&path, "").unwrap();
    assert_eq!(actor.prefetch(miss("a", 0)).ranges.len(), 1);
}
