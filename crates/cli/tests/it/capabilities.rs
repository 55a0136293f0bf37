//! Which capabilities each source of events needs, by trying all combinations of some as a user other than root. Needs root, and is
//! skipped with a message elsewhere.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::process::path_str;

/// The capabilities that are combined, by the names of `setpriv`.
const CAPABILITIES: [&str; 5] = [
    "perfmon",
    "dac_read_search",
    "sys_admin",
    "bpf",
    "sys_ptrace",
];

/// Whether a set has the capability of this name.
type HasCapability<'a> = &'a dyn Fn(&str) -> bool;

/// A try in a mount namespace: how tracefs is mounted there, the source, and whether it is permitted with a set of
/// capabilities.
struct SourceCase {
    tracefs: &'static str,
    source: &'static str,
    is_permitted: fn(HasCapability<'_>) -> bool,
}

const CASES: [SourceCase; 5] = [
    SourceCase {
        tracefs: "mount -t tracefs none /sys/kernel/tracing",
        source: "misses",
        is_permitted: |has| has("dac_read_search") && (has("perfmon") || has("sys_admin")),
    },
    SourceCase {
        tracefs: "mount -t tracefs none /sys/kernel/tracing",
        source: "recording",
        is_permitted: |has| has("dac_read_search") && (has("perfmon") || has("sys_admin")),
    },
    SourceCase {
        // an empty directory in its place: the command mounts a tracefs of its own
        tracefs: "mount -t tmpfs none /sys/kernel",
        source: "misses",
        is_permitted: |has| has("dac_read_search") && has("sys_admin"),
    },
    SourceCase {
        tracefs: "true",
        source: "opens",
        is_permitted: |has| has("sys_admin"),
    },
    SourceCase {
        tracefs: "true",
        source: "reads",
        is_permitted: |has| has("sys_admin"),
    },
];

/// The options of `setpriv` for user 1000 with these capabilities and no others.
fn user_with(capabilities: &[&str]) -> String {
    let added: String = capabilities
        .iter()
        .map(|name| format!(",+{name}"))
        .collect();
    let sets =
        ["inh-caps", "ambient-caps", "bounding-set"].map(|set| format!("--{set}=-all{added}"));
    format!(
        "--reuid 1000 --regid 1000 --clear-groups --no-new-privs {}",
        sets.join(" ")
    )
}

#[test]
fn each_source_needs_the_documented_capabilities_and_no_others() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: capabilities can be chosen by root only");
    }
    let dir = tempfile::Builder::new()
        .prefix("anamnesis-capabilities-")
        .tempdir_in("/var/tmp")
        .unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (program, models) = (dir.path().join("anamnesis"), dir.path().join("models"));
    // the build directory may be closed to other users
    fs::copy(env!("CARGO_BIN_EXE_anamnesis"), &program).unwrap();
    fs::create_dir(&models).unwrap();
    fs::write(models.join("model.gguf"), [0; 5000]).unwrap();
    let subsets = 0..1usize << CAPABILITIES.len();
    let subset = |bits: usize| -> Vec<&str> {
        let all = CAPABILITIES.iter().enumerate();
        all.filter(|(bit, _)| bits >> bit & 1 != 0)
            .map(|(_, name)| *name)
            .collect()
    };
    for case in &CASES {
        let tries: String = subsets
            .clone()
            .map(|bits| {
                format!(
                    "setpriv {} '{}' ppc run --quiet --require --source {} --dir '{}' -- true 2>/dev/null && echo {bits}\n",
                    user_with(&subset(bits)),
                    path_str(&program),
                    case.source,
                    path_str(&models),
                )
            })
            .collect();
        let script = format!("set -e; {}; set +e\n{tries}true", case.tracefs);
        let done = Command::new("unshare")
            .args(["--mount", "sh", "-c", &script])
            .output();
        let done = match done {
            Ok(done) if done.status.success() => done,
            other => return eprintln!("SKIPPED: a mount namespace with tracefs: {other:?}"),
        };
        let printed = String::from_utf8(done.stdout).unwrap();
        let permitted: Vec<usize> = printed.lines().map(|bits| bits.parse().unwrap()).collect();
        // with all of them: a kernel without the trace points, or without fanotify's pre-access events
        let all = subsets.end - 1;
        if !permitted.contains(&all) {
            eprintln!("SKIPPED: {} with all capabilities", case.source);
            continue;
        }
        for bits in subsets.clone() {
            let names = subset(bits);
            let expected = (case.is_permitted)(&|name| names.contains(&name));
            let what = (case.tracefs, case.source, names);
            assert_eq!(permitted.contains(&bits), expected, "{what:?}");
        }
    }
}
