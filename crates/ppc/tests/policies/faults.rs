//! Policies that crash, hang or return invalid lists are deregistered; other policies are not affected.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::stage::{Actor, LEN, LONG, Stage, miss, plain};
use anamnesis_ppc::PolicyLimits;

/// A policy with this body of `ppc_prefetch`. It writes its process id to the file that its configuration names.
pub(crate) fn source(body: &str) -> String {
    format!(
        "{}\nstruct prefetch_ios *fault(struct miss_io *mio)\n{{\n{body}\n}}\n",
        include_str!("fault.c")
    )
}

/// Another registered policy, which must not be affected.
pub(crate) fn bystander(stage: &Stage) -> Option<Actor> {
    let path = stage.compile(
        "sequential",
        include_str!("../../examples/policies/sequential.c"),
    )?;
    Some(stage.register(&path, "").unwrap())
}

pub(crate) fn expect_unaffected(other: &Actor) {
    assert_eq!(
        plain(&other.prefetch(miss("a", 0)).ranges),
        [("a".into(), 4096, LEN - 4096)]
    );
}

pub(crate) fn is_alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

pub(crate) fn pid_in(file: &Path) -> u32 {
    let until = Instant::now() + LONG;
    loop {
        if let Some(pid) = std::fs::read_to_string(file)
            .ok()
            .and_then(|text| text.trim().parse().ok())
        {
            return pid;
        }
        assert!(
            Instant::now() < until,
            "no process wrote {}",
            file.display()
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Registers each policy, calls it once, and expects that it is deregistered for the given reason.
fn expect_failures(stage: &Stage, cases: &[(&str, &str, &str)]) {
    let Some(other) = bystander(stage) else {
        return;
    };
    for &(name, body, why) in cases {
        eprintln!("{name}");
        let path = stage.compile(name, &source(body)).unwrap();
        let file = stage.out.path().join(format!("{name}.pid"));
        let actor = stage.register(&path, file.to_str().unwrap()).unwrap();
        actor.supervisor.queue_prefetch(miss("a", 0));
        let reason = actor.failure();
        assert!(reason.contains(why), "{name}: {reason}");
        assert_eq!(
            actor.supervisor.shut_down().unwrap_err().to_string(),
            reason
        );
        assert!(!is_alive(pid_in(&file)), "{name}: its process still runs");
        expect_unaffected(&other);
    }
}

#[test]
fn crashes_are_reported() {
    let stage = Stage::new();
    expect_failures(
        &stage,
        &[
            (
                "aborts",
                "abort();",
                "prefetch: its process ended (signal: 6 (SIGABRT)",
            ),
            (
                "segfaults",
                "return *(void *volatile *)16;",
                "signal: 11 (SIGSEGV)",
            ),
            (
                "divides",
                "volatile int zero = 0; return (void *)(long)(mio->size / zero);",
                "signal: 8 (SIGFPE)",
            ),
            (
                "exits",
                "exit(0);",
                "prefetch: its process ended (exit status: 0)",
            ),
            ("exits_at_once", "_exit(3);", "exit status: 3"),
            (
                "recurses",
                "return recurse(mio, 1);",
                "prefetch: its process ended (signal: ",
            ),
            (
                "allocates",
                "for (;;) memset(malloc(1 << 20), 1, 1 << 20);",
                "signal: 11 (SIGSEGV)",
            ),
            (
                "maps",
                "for (;;) { void *m = mmap(0, 1 << 24, 3, 34, -1, 0); if (m == MAP_FAILED) abort(); }",
                "SIGABRT",
            ),
            ("raises", "kill(getpid(), SIGKILL);", "signal: 9 (SIGKILL)"),
            (
                "closes",
                "for (int fd = 0; fd < 64; fd++) close(fd); return 0;",
                "prefetch: its process ",
            ),
            (
                "throws",
                "exit_group_of_threads();",
                "prefetch: its process ended (exit status: 9)",
            ),
        ],
    );
}

#[test]
fn invalid_pointers_are_reported() {
    let stage = Stage::new();
    expect_failures(
        &stage,
        &[
            (
                "wild_list",
                "return (void *)0x1234;",
                "signal: 11 (SIGSEGV)",
            ),
            (
                "wild_entries",
                "return list((void *)0x1234, 1);",
                "signal: 11 (SIGSEGV)",
            ),
            (
                "wild_path",
                "return io((char *)0x1234, 0, 1);",
                "signal: 11 (SIGSEGV)",
            ),
            (
                "null_entries",
                "return list(0, 3);",
                "a list of 3 entries with ios = NULL",
            ),
            (
                "null_path",
                "return io(0, 0, 1);",
                "entry 0: the path is NULL",
            ),
            (
                "endless_path",
                "return io(memset(malloc(9000), 'a', 9000), 0, 1);",
                "the path has more than 4095 bytes",
            ),
            (
                "many",
                "return list((void *)16, 1ull << 60);",
                "a list of 1152921504606846976 entries, allowed are 262144",
            ),
            (
                "past",
                "ios.first = 2; return io(\"a\", 0, 1);",
                "a list of 1 entries with first = 2",
            ),
        ],
    );
}

#[test]
fn invalid_lists_are_reported() {
    let stage = Stage::new();
    expect_failures(
        &stage,
        &[
            (
                "past_the_end",
                "return io(\"a\", 0, 2 << 20);",
                "2097152 bytes from 0, and the file ends at 1048676",
            ),
            (
                "begins_past",
                "return io(\"a\", 1 << 30, 1);",
                "begins at 1073741824",
            ),
            (
                "overflows",
                "return io(\"a\", 8, UINT64_MAX);",
                "the file ends at 1048676",
            ),
            (
                "no_bytes",
                "return io(\"a\", 8, 0);",
                "the range at 8 is empty",
            ),
            (
                "unknown",
                "return io(\"nothing\", 0, 1);",
                "\"nothing\": no file of the namespace has this name",
            ),
            (
                "outside",
                "return io(\"../a\", 0, 1);",
                "no file of the namespace",
            ),
            (
                "around",
                "return io(\"sub/../a\", 0, 1);",
                "no file of the namespace",
            ),
            (
                "absolute",
                "return io(\"/etc/passwd\", 0, 1);",
                "no file of the namespace",
            ),
            (
                "directory",
                "return io(\"sub\", 0, 1);",
                "no file of the namespace",
            ),
            (
                "unnamed",
                "return io(\"\", 0, 1);",
                "no file of the namespace",
            ),
            (
                "halfway",
                "one.xpu = 3; return io(\"a\", 0, 1);",
                "names accelerator 3 without PPC_IO_XPU",
            ),
            (
                "gives_up",
                "context->fail(\"no more\"); return 0;",
                "prefetch: no more",
            ),
            (
                "malformed",
                "send_malformed(); return 0;",
                "sent a malformed message",
            ),
        ],
    );
}

#[test]
fn exceeded_deadlines_are_reported() {
    let mut stage = Stage::new();
    let Some(other) = bystander(&stage) else {
        return;
    };
    stage.limits = PolicyLimits {
        call: Duration::from_millis(300),
        ..stage.limits
    };
    let bodies = [
        "for (;;) pause();",
        "for (;;);",
        "signal(SIGTERM, SIG_IGN); for (;;) puts(\"again and again\");",
    ];
    for (index, body) in bodies.into_iter().enumerate() {
        let path = stage
            .compile(&format!("late{index}"), &source(body))
            .unwrap();
        let file = stage.out.path().join(format!("late{index}.pid"));
        let actor = stage.register(&path, file.to_str().unwrap()).unwrap();
        let began = Instant::now();
        actor.supervisor.queue_prefetch(miss("a", 0));
        actor.supervisor.queue_prefetch(miss("a", 1 << 19));
        let reason = actor.failure();
        assert!(
            reason.contains("prefetch did not return within 300ms"),
            "{reason}"
        );
        assert!(began.elapsed() < LONG / 2, "{:?}", began.elapsed());
        drop(actor);
        assert!(!is_alive(pid_in(&file)));
        expect_unaffected(&other);
    }
    // deadlines of init and exit
    stage.limits = PolicyLimits {
        init: Duration::from_millis(500),
        exit: Duration::from_millis(300),
        ..stage.limits
    };
    let stuck = "#include \"ppc.h\"\nint i(void *p) { for (;;); }\nconst struct ppc_operation o = { WHICH = i };\n\
                 struct ppc_operation *register_policy() { return (void *)&o; }";
    let path = stage
        .compile("stuck_init", &stuck.replace("WHICH", ".ppc_init"))
        .unwrap();
    let error = stage.register(&path, "").err().unwrap().to_string();
    assert!(
        error.contains("init did not return within 500ms"),
        "{error}"
    );
    let path = stage
        .compile("stuck_exit", &stuck.replace("WHICH", ".ppc_exit"))
        .unwrap();
    stage.limits.init = LONG;
    let actor = stage.register(&path, "").unwrap();
    let error = actor.supervisor.shut_down().unwrap_err().to_string();
    assert!(
        error.contains("exit did not return within 300ms"),
        "{error}"
    );
    expect_unaffected(&other);
}

#[test]
fn an_endless_chain_of_lists_is_refused() {
    let stage = Stage::new();
    let source = "#include \"ppc.h\"\nstatic struct prefetch_ios ring = { .next = &ring };\n\
                  static struct prefetch_ios *s(void) { return &ring; }\n\
                  static const struct ppc_operation o = { .ppc_start = s };\n\
                  struct ppc_operation *register_policy() { return (void *)&o; }";
    let Some(path) = stage.compile("ring", source) else {
        return;
    };
    let actor = stage.register(&path, "").unwrap();
    actor.supervisor.queue_start();
    let reason = actor.failure();
    assert!(reason.contains("more than 1024 lists"), "{reason}");
}

#[test]
fn null_keeps_the_list_and_an_empty_list_replaces_it() {
    let stage = Stage::new();
    let body = "return mio->offset == 0 ? 0 : list(0, 0);";
    let Some(path) = stage.compile("nothing", &source(body)) else {
        return;
    };
    let actor = stage.register(&path, "").unwrap();
    actor.supervisor.queue_prefetch(miss("a", 0));
    assert!(actor.prefetch(miss("a", 1 << 19)).ranges.is_empty());
    actor.supervisor.shut_down().unwrap();
    assert!(
        actor.answers.try_recv().is_err(),
        "NULL keeps the previous list"
    );
}
