//! Host processes: what they are not given, and that none is left behind.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::faults::{alive, bystander, goes_on, pid_in, source};
use crate::stage::{SOON, Stage, miss};
use anamnesis_ppc::host::{HostCommand, Library};
use anamnesis_ppc::{Answer, Context, Guarded};

/// A policy whose `ppc_prefetch` never returns, and the file with its process's number.
fn sleeper(stage: &Stage) -> Option<(PathBuf, PathBuf)> {
    let path = stage.compile("sleeper", &source("for (;;) pause();"))?;
    Some((path, stage.out.path().join("sleeper.pid")))
}

#[test]
fn a_host_that_is_killed_in_a_call() {
    let stage = Stage::new();
    let Some(other) = bystander(&stage) else {
        return;
    };
    let (path, file) = sleeper(&stage).unwrap();
    let actor = stage.register(&path, file.to_str().unwrap()).unwrap();
    actor.guarded.prefetch(miss("a", 0));
    let host = rustix::process::Pid::from_raw(i32::try_from(pid_in(&file)).unwrap()).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    rustix::process::kill_process(host, rustix::process::Signal::KILL).unwrap();
    let said = actor.lost();
    assert!(
        said.contains("SIGKILL") || said.contains("closed the connection"),
        "{said}"
    );
    drop(actor);
    assert!(!alive(pid_in(&file)));
    goes_on(&other);
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
    assert!(alive(host));
    assert_eq!(actor.prefetch(miss("a", 0)).ios.len(), 1);
    drop(actor);
    assert!(!alive(host), "neither alive nor a zombie");
}

#[test]
fn a_host_ends_with_the_daemon() {
    const ROLE: &str = "ANAMNESIS_PPC_TEST_DAEMON";
    if let Some(dir) = std::env::var_os(ROLE) {
        // the daemon: waits for a policy that never answers, until it is killed
        let stage = Stage::new();
        let (path, _) = sleeper(&stage).unwrap();
        let actor = stage
            .register(&path, Path::new(&dir).join("pid").to_str().unwrap())
            .unwrap();
        actor.guarded.prefetch(miss("a", 0));
        std::thread::sleep(SOON);
        panic!("nobody killed it");
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
    let until = Instant::now() + SOON;
    // whoever inherits it may be slow to wait for it
    let runs = || {
        std::fs::read_to_string(format!("/proc/{host}/stat"))
            .is_ok_and(|stat| !stat.contains(") Z "))
    };
    while runs() {
        assert!(Instant::now() < until, "process {host} is left");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_host_has_nothing_of_the_daemon() {
    let stage = Stage::new();
    // standard streams, the connection, and the directory that is being read
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
    let Some(path) = stage.compile("nosy", &source(body)) else {
        return;
    };
    let inherited = std::fs::File::open("/proc/self/status").unwrap();
    rustix::io::fcntl_setfd(&inherited, rustix::io::FdFlags::empty()).unwrap(); // goes to every child
    let actor = stage.register(&path, "").unwrap();
    actor.guarded.prefetch(miss("a", 0));
    match actor.next() {
        Answer::Prefetch(prefetch) => assert_eq!(prefetch.ios.len(), 1),
        other => panic!("{other:?}"),
    }
}

#[test]
fn hosts_that_are_no_hosts() {
    let mut stage = Stage::new();
    let Some(other) = bystander(&stage) else {
        return;
    };
    let cases = [
        ("true", "its process ended (exit status: 0)"),
        ("exit 7", "its process ended (exit status: 7)"),
        ("cat <&0 >&0", "answered what is no message"),
        ("yes <&0 >&0", "answered what is no message"),
        ("cat /dev/zero >&0", "answered what is no message"),
        ("exec <&-; sleep 100", "its process closed the connection"),
        ("exec sleep 1000", "init did not answer within 300ms"),
    ];
    for (script, why) in cases {
        // no deadline but for the one that is to meet it: the machine may be busy
        stage.limits.begin = if why.contains("within") {
            Duration::from_millis(300)
        } else {
            SOON
        };
        let command = HostCommand::new("/bin/sh").arg("-c").arg(script);
        let library = Library::new(command, "policy.so", stage.limits);
        let context = Context {
            namespace: stage.namespace(),
            config: String::new(),
            memory: 1,
        };
        let error = Guarded::register(Box::new(library), context, stage.limits, |_| ())
            .unwrap_err()
            .to_string();
        assert!(error.contains(why), "{script}: {error}");
    }
    let library = Library::new(HostCommand::new("/nowhere/host"), "policy.so", stage.limits);
    let context = Context {
        namespace: stage.namespace(),
        config: String::new(),
        memory: 1,
    };
    let error = Guarded::register(Box::new(library), context, stage.limits, |_| ())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("the host process /nowhere/host cannot be started"),
        "{error}"
    );
    goes_on(&other);
}

#[test]
fn a_host_is_not_for_people() {
    let host = std::process::Command::new(env!("CARGO_BIN_EXE_ppc-host"))
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    assert!(!host.status.success());
    let said = String::from_utf8_lossy(&host.stderr);
    assert!(
        said.contains("started by the daemon, not by people"),
        "{said}"
    );
}

#[test]
fn a_policy_has_threads_but_no_processes() {
    let stage = Stage::new();
    let body = r#"
        pthread_t thread;
        int made = fork();
        if (made == 0)
            _exit(0);
        if (made != -1 || errno != EPERM || vfork() != -1 || system("true") == 0)
            context->fail("a process was made");
        if (pthread_create(&thread, 0, (void *(*)(void *))getpid, 0) || pthread_join(thread, 0))
            context->fail("no thread could be made");
        return io("a", 0, 1);
    "#;
    let Some(path) = stage.compile("parent", &source(body)) else {
        return;
    };
    let actor = stage.register(&path, "").unwrap();
    assert_eq!(actor.prefetch(miss("a", 0)).ios.len(), 1);
}
