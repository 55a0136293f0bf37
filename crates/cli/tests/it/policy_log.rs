//! The output of a policy in a shared library is shown as `--log` says. Needs a C compiler and CAP_PERFMON, and is skipped
//! with a message elsewhere.

use crate::policy_library::compile;
use crate::process::{path_str, run};
use crate::runtime_process::uncached_model;

/// Prints in each way that there is, when it is initialised.
const CHATTY: &str = r#"
#include <stdio.h>
#include <unistd.h>
#include "ppc.h"
static int init(void *context) {
    struct ppc_context *ppc = context;
    puts("on standard output");
    fflush(stdout);
    fputs("on standard error\n", stderr);
    fputs("<4>a warning\n", stderr);
    ppc->log(3, "an error");
    ppc->log(7, "for debugging \033[2J");
    return 0;
}
static const struct ppc_operation operation = { .ppc_init = init };
struct ppc_operation *register_policy() { return (void *)&operation; }
"#;

#[test]
fn the_output_of_a_policy_is_shown_from_a_level_on() {
    let Some(dir) = uncached_model() else { return };
    let scratch = tempfile::tempdir().unwrap();
    let library = scratch.path().join("libchatty.so");
    let Some(()) = compile(CHATTY, &library) else {
        return;
    };
    let lines = [
        (1, "an error"),
        (2, "a warning"),
        (3, "on standard output"),
        (3, "on standard error"),
        (4, "for debugging \u{fffd}[2J"),
    ];
    for (level, name) in [(1, "error"), (2, "warn"), (3, "info"), (4, "debug")] {
        let done = run(&[
            "ppc",
            "run",
            "--quiet",
            "--log",
            name,
            "--policy",
            path_str(&library),
            "--dir",
            path_str(dir.path()),
            "--",
            "true",
        ]);
        assert_eq!(done.code, 0, "{}", done.stderr);
        for (of, line) in lines {
            let expected = format!("anamnesis: {line} policy=\"libchatty.so\"\n");
            let is_shown = done.stderr.contains(&expected);
            assert_eq!(is_shown, of <= level, "{name}: {line}: {}", done.stderr);
        }
    }
    let unknown = run(&["ppc", "run", "--log", "loud", "--dir", path_str(dir.path())]);
    assert_eq!(unknown.code, 2);
}
