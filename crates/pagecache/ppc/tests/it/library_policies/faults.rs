//! Policies in C that crash, hang or return invalid lists are deregistered with a reason, without effect on others.

use std::path::Path;
use std::time::{Duration, Instant};

use anamnesis_ppc::PolicyLimits;

use super::registered_policy::{LEN_OF_A, PolicyDirectory, RegisteredPolicy, miss, triples};
use crate::support::files::HANG_TIMEOUT;

/// The source of a policy with this body of `ppc_prefetch`. The policy writes its process id to the file that its
/// configuration names.
pub(crate) fn source_with(body: &str) -> String {
    format!(
        "{}\nstruct prefetch_ios *fault(struct miss_io *mio)\n{{\n{body}\n}}\n",
        include_str!("faulty_policy.c")
    )
}

/// Registers another policy, which must not be affected.
pub(crate) fn register_unaffected_policy(directory: &PolicyDirectory) -> Option<RegisteredPolicy> {
    let path = directory.compile(
        "sequential",
        include_str!("../../../examples/policies/sequential.c"),
    )?;
    Some(directory.register(&path, "").unwrap())
}

pub(crate) fn expect_unaffected(unaffected: &RegisteredPolicy) {
    assert_eq!(
        triples(&unaffected.prefetch(miss("a", 0)).ranges),
        [("a".into(), 4096, LEN_OF_A - 4096)]
    );
}

pub(crate) fn is_alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// The process id that a policy writes to this file.
pub(crate) fn wait_for_pid(pid_file: &Path) -> u32 {
    let deadline = Instant::now() + HANG_TIMEOUT;
    loop {
        if let Some(pid) = std::fs::read_to_string(pid_file)
            .ok()
            .and_then(|text| text.trim().parse().ok())
        {
            return pid;
        }
        assert!(
            Instant::now() < deadline,
            "no process wrote {}",
            pid_file.display()
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Each case is a name, the body of `ppc_prefetch`, and a part of the expected reason. Registers the policy, calls it once,
/// and checks that it is deregistered for that reason.
fn expect_failures(directory: &PolicyDirectory, cases: &[(&str, &str, &str)]) {
    let Some(unaffected) = register_unaffected_policy(directory) else {
        return;
    };
    for &(name, body, expected) in cases {
        eprintln!("{name}");
        let path = directory.compile(name, &source_with(body)).unwrap();
        let pid_file = directory.output_dir.path().join(format!("{name}.pid"));
        let policy = directory
            .register(&path, pid_file.to_str().unwrap())
            .unwrap();
        policy.supervisor.queue_prefetch(miss("a", 0));
        let reason = policy.next_failure();
        assert!(reason.contains(expected), "{name}: {reason}");
        assert_eq!(
            policy.supervisor.shut_down().unwrap_err().to_string(),
            reason
        );
        assert!(
            !is_alive(wait_for_pid(&pid_file)),
            "{name}: its process still runs"
        );
        expect_unaffected(&unaffected);
    }
}

#[test]
fn a_crash_deregisters_the_policy_with_its_exit_status_or_signal() {
    let directory = PolicyDirectory::new();
    expect_failures(
        &directory,
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
                "divides_by_zero",
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
                "overflows_its_stack",
                "return recurse(mio, 1);",
                "prefetch: its process ended (signal: ",
            ),
            (
                "allocates_without_end",
                "for (;;) memset(malloc(1 << 20), 1, 1 << 20);",
                "signal: 11 (SIGSEGV)",
            ),
            (
                "maps_without_end",
                "for (;;) { void *m = mmap(0, 1 << 24, 3, 34, -1, 0); if (m == MAP_FAILED) abort(); }",
                "SIGABRT",
            ),
            (
                "kills_itself",
                "kill(getpid(), SIGKILL);",
                "signal: 9 (SIGKILL)",
            ),
            (
                "closes_all_descriptors",
                "for (int fd = 0; fd < 64; fd++) close(fd); return 0;",
                "prefetch: its process ",
            ),
            (
                "exits_all_threads",
                "exit_all_threads();",
                "prefetch: its process ended (exit status: 9)",
            ),
        ],
    );
}

#[test]
fn an_invalid_pointer_or_count_deregisters_the_policy() {
    let directory = PolicyDirectory::new();
    expect_failures(
        &directory,
        &[
            (
                "invalid_list",
                "return (void *)0x1234;",
                "signal: 11 (SIGSEGV)",
            ),
            (
                "invalid_entries",
                "return list_of((void *)0x1234, 1);",
                "signal: 11 (SIGSEGV)",
            ),
            (
                "invalid_path",
                "return one_range((char *)0x1234, 0, 1);",
                "signal: 11 (SIGSEGV)",
            ),
            (
                "null_entries",
                "return list_of(0, 3);",
                "a list of 3 entries with ios = NULL",
            ),
            (
                "null_path",
                "return one_range(0, 0, 1);",
                "entry 0: the path is NULL",
            ),
            (
                "path_without_end",
                "return one_range(memset(malloc(9000), 'a', 9000), 0, 1);",
                "the path has more than 4095 bytes",
            ),
            (
                "too_many_entries",
                "return list_of((void *)16, 1ull << 60);",
                "a list of 1152921504606846976 entries, allowed are 262144",
            ),
            (
                "first_past_the_end",
                "list.first = 2; return one_range(\"a\", 0, 1);",
                "a list of 1 entries with first = 2",
            ),
        ],
    );
}

#[test]
fn an_invalid_range_deregisters_the_policy() {
    let directory = PolicyDirectory::new();
    expect_failures(
        &directory,
        &[
            (
                "ends_past_the_end",
                "return one_range(\"a\", 0, 2 << 20);",
                "2097152 bytes from 0, and the file ends at 1048676",
            ),
            (
                "begins_past_the_end",
                "return one_range(\"a\", 1 << 30, 1);",
                "begins at 1073741824",
            ),
            (
                "overflows",
                "return one_range(\"a\", 8, UINT64_MAX);",
                "the file ends at 1048676",
            ),
            (
                "empty_range",
                "return one_range(\"a\", 8, 0);",
                "the range at 8 is empty",
            ),
            (
                "unknown_file",
                "return one_range(\"nothing\", 0, 1);",
                "\"nothing\": no file of the namespace has this name",
            ),
            (
                "parent_directory",
                "return one_range(\"../a\", 0, 1);",
                "no file of the namespace",
            ),
            (
                "path_with_parent_directory",
                "return one_range(\"sub/../a\", 0, 1);",
                "no file of the namespace",
            ),
            (
                "absolute_path",
                "return one_range(\"/etc/passwd\", 0, 1);",
                "no file of the namespace",
            ),
            (
                "directory",
                "return one_range(\"sub\", 0, 1);",
                "no file of the namespace",
            ),
            (
                "empty_path",
                "return one_range(\"\", 0, 1);",
                "no file of the namespace",
            ),
            (
                "accelerator_without_flag",
                "entry.xpu = 3; return one_range(\"a\", 0, 1);",
                "names accelerator 3 without PPC_IO_XPU",
            ),
            (
                "calls_fail",
                "context->fail(\"no more\"); return 0;",
                "prefetch: no more",
            ),
            (
                "malformed_message",
                "send_malformed(); return 0;",
                "sent a malformed message",
            ),
        ],
    );
}

#[test]
fn an_exceeded_deadline_deregisters_the_policy() {
    let mut directory = PolicyDirectory::new();
    let Some(unaffected) = register_unaffected_policy(&directory) else {
        return;
    };
    directory.limits = PolicyLimits {
        call: Duration::from_millis(300),
        stall: Duration::ZERO,
        ..directory.limits
    };
    let bodies = [
        "for (;;) pause();",
        "for (;;);",
        "signal(SIGTERM, SIG_IGN); for (;;) puts(\"output without end\");",
    ];
    for (index, body) in bodies.into_iter().enumerate() {
        let path = directory
            .compile(&format!("hangs{index}"), &source_with(body))
            .unwrap();
        let pid_file = directory
            .output_dir
            .path()
            .join(format!("hangs{index}.pid"));
        let policy = directory
            .register(&path, pid_file.to_str().unwrap())
            .unwrap();
        let started = Instant::now();
        policy.supervisor.queue_prefetch(miss("a", 0));
        policy.supervisor.queue_prefetch(miss("a", 1 << 19));
        let reason = policy.next_failure();
        assert!(
            reason.contains("prefetch did not return within 300ms"),
            "{reason}"
        );
        assert!(
            started.elapsed() < HANG_TIMEOUT / 2,
            "{:?}",
            started.elapsed()
        );
        drop(policy);
        assert!(!is_alive(wait_for_pid(&pid_file)));
        expect_unaffected(&unaffected);
    }
    // the deadlines of ppc_init and ppc_exit
    directory.limits = PolicyLimits {
        init: Duration::from_millis(500),
        exit: Duration::from_millis(300),
        ..directory.limits
    };
    let hanging = "#include \"ppc.h\"\nint i(void *p) { for (;;); }\nconst struct ppc_operation o = { WHICH = i };\n\
                 struct ppc_operation *register_policy() { return (void *)&o; }";
    let path = directory
        .compile("hangs_in_init", &hanging.replace("WHICH", ".ppc_init"))
        .unwrap();
    let error = directory.register(&path, "").err().unwrap().to_string();
    assert!(
        error.contains("init did not return within 500ms"),
        "{error}"
    );
    let path = directory
        .compile("hangs_in_exit", &hanging.replace("WHICH", ".ppc_exit"))
        .unwrap();
    directory.limits.init = HANG_TIMEOUT;
    let policy = directory.register(&path, "").unwrap();
    let error = policy.supervisor.shut_down().unwrap_err().to_string();
    assert!(
        error.contains("exit did not return within 300ms"),
        "{error}"
    );
    expect_unaffected(&unaffected);
}

#[test]
fn a_cyclic_chain_of_lists_deregisters_the_policy() {
    let directory = PolicyDirectory::new();
    let source = "#include \"ppc.h\"\nstatic struct prefetch_ios cycle = { .next = &cycle };\n\
                  static struct prefetch_ios *s(void) { return &cycle; }\n\
                  static const struct ppc_operation o = { .ppc_start = s };\n\
                  struct ppc_operation *register_policy() { return (void *)&o; }";
    let Some(path) = directory.compile("cycle", source) else {
        return;
    };
    let policy = directory.register(&path, "").unwrap();
    policy.supervisor.queue_start();
    let reason = policy.next_failure();
    assert!(reason.contains("more than 1024 lists"), "{reason}");
}

#[test]
fn null_is_no_output_and_an_empty_list_is_one() {
    let directory = PolicyDirectory::new();
    let body = "return mio->offset == 0 ? 0 : list_of(0, 0);";
    let Some(path) = directory.compile("null_or_empty", &source_with(body)) else {
        return;
    };
    let policy = directory.register(&path, "").unwrap();
    policy.supervisor.queue_prefetch(miss("a", 0));
    assert!(policy.prefetch(miss("a", 1 << 19)).ranges.is_empty());
    policy.supervisor.shut_down().unwrap();
    assert!(
        policy.outputs.try_recv().is_err(),
        "NULL keeps the previous list"
    );
}
