//! Policies in C that misbehave alongside a load: its bytes and its status are right, the reason is printed, and no process is
//! left. The tests of `crates/pagecache/ppc/tests/it/library_policies` have more ways, without a load.

use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use super::model::{MARK, RandomModel, has_socket, marked, wait_until};
use crate::policy_library::compile;
use crate::process::{command, path_str};

/// An act of a policy, and a part of the text that is printed, or of two texts where it depends on the speed of the machine.
const WAYS: [(&str, &str); 20] = [
    ("null", "its process ended (signal: 11 (SIGSEGV)"),
    ("pointer", "its process ended (signal: 11 (SIGSEGV)"),
    ("kill", "its process ended (signal: 9 (SIGKILL)"),
    ("exit", "its process ended (exit status: 0)"),
    ("spin", "prefetch did not return within 100ms"),
    ("sleep", "prefetch did not return within"),
    ("allocate", "prefetch did not return within 100ms"),
    (
        "many",
        "allowed are 262144|prefetch did not return within 100ms",
    ),
    (
        "2^60",
        "a list of 1152921504606846976 entries, allowed are 262144",
    ),
    ("end", "and the file ends at"),
    ("passwd", "\"../../etc/passwd\": no file of the namespace"),
    (
        "missing",
        "\"missing.safetensors\": no file of the namespace",
    ),
    ("accelerator", "names accelerator 3 without PPC_IO_XPU"),
    ("init-7", "ppc_init returned 7"),
    ("init-never", "init did not return within"),
    ("exit-42", "ppc_exit returned 42"),
    ("fail", "prefetch: gives up"),
    ("fork", "prefetch: no process was created"),
    ("cycle", "more than 1024 lists"),
    ("thread", ""),
];

#[test]
fn a_policy_that_misbehaves_changes_no_byte_and_leaves_no_process() {
    let scratch = tempfile::tempdir().unwrap();
    let library = scratch.path().join("libmisbehaves.so");
    if compile(include_str!("policies.c"), &library).is_none() {
        return;
    }
    // several at a time, as some wait for seconds
    std::thread::scope(|scope| {
        for ways in WAYS.chunks(WAYS.len().div_ceil(4)) {
            let library = &library;
            scope.spawn(move || {
                let Some(model) = RandomModel::new(1) else {
                    return;
                };
                for (way, reasons) in ways {
                    load_with(&model, library, way, reasons);
                }
            });
        }
    });
}

/// Loads a model alongside a policy that does this.
fn load_with(model: &RandomModel, library: &Path, way: &str, reasons: &str) {
    model.evict();
    let mark = format!("{}-{way}", std::process::id());
    let policy = format!("{}:{way}", library.display());
    let load = RandomModel::script(&model.root).replace("exec ", "");
    // the command goes on for longer than the policy may
    let rest = if way == "sleep" { "7" } else { "0.3" };
    let script = format!("{load}; sleep {rest}");
    let mut run = command(&["ppc", "run", "--quiet", "--dir", path_str(&model.root)]);
    run.args(["--policy", &policy, "--", "sh", "-c", &script]);
    run.env(MARK, &mark);
    run.stdout(Stdio::piped()).stderr(Stdio::piped());
    let begun = Instant::now();
    let runtime = run.spawn().unwrap();
    let pid = runtime.id();
    let output = runtime.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    eprintln!("{way}, {:?}: {}", begun.elapsed(), printed.trim());
    assert_eq!(output.status.code(), Some(0), "{way}: {printed}");
    let loaded = String::from_utf8_lossy(&output.stdout);
    assert_eq!(loaded, model.expected, "{way}");
    let is_reason = |reason: &str| printed.contains(reason);
    assert!(reasons.split('|').any(is_reason), "{way}: {printed}");
    assert!(!printed.contains("panicked"), "{way}: {printed}");
    wait_until("process is left", || marked(&mark).is_empty());
    assert!(!has_socket(pid), "{way}");
}
