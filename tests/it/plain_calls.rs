//! Calls of the standard library that have a strict replacement, and the files that may make them.
//!
//! A write to a user's path goes through one writer, which never replaces what it reads and leaves nothing half-written. A read
//! of a whole file goes through one reader, which is bounded, charged, and opens neither pipes nor devices. A new verb that goes
//! around them fails here.

use crate::support::rust_code::crates;

struct Rule {
    calls: &'static [&'static str],
    instead: &'static str,
    /// Files, or folders, and why they may.
    allowed: &'static [(&'static str, &'static str)],
}

static RULES: &[Rule] = &[
    Rule {
        calls: &[
            "fs::write(",
            "fs::copy(",
            "File::create(",
            "File::create_new(",
            ".create(true)",
            ".create_new(true)",
            ".truncate(true)",
        ],
        instead: "`anamnesis_os::whole_file`, in the command `WrittenFile`, or a sink",
        allowed: &[
            ("crates/os/src/files.rs", "makes files under construction"),
            (
                "crates/remote/src/header_cache/directory.rs",
                "entries of the user's own cache, renamed when they are whole",
            ),
            (
                "crates/pagecache/ppc/src/source/log.rs",
                "a log grows while events arrive, under a new name",
            ),
            (
                "crates/pagecache/ppc/src/cache/cgroup_join.rs",
                "files of the kernel",
            ),
            (
                "crates/pagecache/ppc/src/host/confine.rs",
                "files of the kernel",
            ),
        ],
    },
    Rule {
        calls: &["fs::read(", "fs::read_to_string(", ".read_to_end("],
        instead: "`read_regular`, `Files::read_whole` or `anamnesis_os::whole_file::read`",
        allowed: &[
            ("crates/os/src/", "files of the kernel; `whole_file` itself"),
            ("crates/pagecache/ppc/src/", "files of the kernel"),
            (
                "crates/cli/src/record/process_tree.rs",
                "files of the kernel",
            ),
            ("crates/cli/src/resource_usage.rs", "files of the kernel"),
            ("crates/pagecache/maio/src/", "files of the kernel"),
            ("crates/zeropool/src/", "files of the kernel"),
            ("src/read/format/archive.rs", "a step of charged length"),
            ("crates/template/src/", "regular files, to their limit"),
            (
                "crates/remote/src/header_cache/directory.rs",
                "entries, whose links are not followed either",
            ),
        ],
    },
    Rule {
        calls: &["open_regular(", "open_without_waiting(", "read_regular("],
        instead: "`Files::open_named`, `Files::read_whole` or `links::open_below`, which say whose links are followed",
        allowed: &[
            ("crates/os/src/", "made there"),
            ("src/read/source/regular.rs", "paths of the caller's own"),
            (
                "src/read/source/local_files.rs",
                "paths of the caller's own",
            ),
            (
                "src/read/source/open_files/closable.rs",
                "the path that the system names for a file that was open, which must be that file",
            ),
            (
                "crates/template/src/",
                "templates, and the files of an open checkpoint",
            ),
            ("src/engine/sink/files/", "files under the names of outputs"),
            (
                "crates/cli/src/ls/parquet.rs",
                "four bytes of a file under the name of the output",
            ),
        ],
    },
];

#[test]
fn plain_calls_are_made_where_they_must_be() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut wrong, mut used) = (Vec::new(), std::collections::BTreeSet::new());
    for krate in crates() {
        for file in krate.files() {
            let path = file.path.strip_prefix(root).unwrap();
            let path = path.to_str().unwrap().replace('\\', "/");
            // programs of the workshop: no user runs them
            if path.starts_with("tests/") || path.contains("/guard/") {
                continue;
            }
            for rule in RULES {
                let calls = rule.calls.iter().filter(|call| file.code.contains(**call));
                for call in calls {
                    match rule
                        .allowed
                        .iter()
                        .find(|(allowed, _)| path.starts_with(allowed))
                    {
                        Some((allowed, _)) => drop(used.insert(*allowed)),
                        None => wrong.push(format!("{path}: {call}…) instead of {}", rule.instead)),
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // a row is removed with the last call
    for (allowed, _) in RULES.iter().flat_map(|rule| rule.allowed) {
        assert!(used.contains(allowed), "{allowed} makes no such call");
    }
}
