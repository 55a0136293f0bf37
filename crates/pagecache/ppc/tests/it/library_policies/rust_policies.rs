//! Policies in Rust that are built as shared libraries with `export_policy!`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anamnesis_ppc::{EventKind, FileAccess, Interests};

use super::registered_policy::{PolicyDirectory, RegisteredPolicy, miss, triples};

/// The library or program of an example of this crate. Prints a message and returns `None` if it is not built.
pub(crate) fn example(name: &str) -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_BIN_EXE_ppc-host")).parent().unwrap();
    let examples = target.join("examples");
    let path = [format!("lib{name}.so"), name.to_owned()]
        .map(|file| examples.join(file))
        .into_iter()
        .find(|path| path.exists());
    if path.is_none() {
        eprintln!(
            "SKIPPED: the example {name} is not built; `cargo test` without `--test` builds it"
        );
    }
    path
}

#[test]
fn the_example_prefetches_what_follows_a_miss_and_evicts_what_precedes_it() {
    let Some(path) = example("ahead") else { return };
    let directory = PolicyDirectory::new();
    let policy = directory.register(&path, "1").unwrap();
    assert_eq!(
        policy.supervisor.interests(),
        Interests {
            prefetch: true,
            evict: true,
            ..Interests::default()
        }
    );
    let entries = [
        ("a".to_owned(), 0, 1 << 20),
        ("a".into(), 1 << 20, 100),
        ("sub/b".into(), 0, 5000),
    ];
    policy.supervisor.queue_start();
    let all = policy.next_prefetch();
    assert_eq!(triples(&all.ranges), entries);
    let suffix = policy.prefetch(miss("a", 1 << 20));
    assert_eq!(triples(&suffix.ranges), entries[1..]);
    assert!(
        Arc::ptr_eq(suffix.ranges.backing(), all.ranges.backing()),
        "the entries of a suffix are not sent again"
    );
    assert_eq!(triples(&policy.prefetch(miss("a", 0)).ranges), entries);
    assert_eq!(triples(&policy.evict(Some(miss("sub/b", 0)))), entries[..1]);
    assert!(policy.evict(Some(miss("a", 0))).is_empty());
    policy.supervisor.shut_down().unwrap();
    let error = directory.register(&path, "many").err().unwrap().to_string();
    assert!(
        error.contains("the configuration \"many\" is not a number"),
        "{error}"
    );
}

#[test]
fn an_error_or_panic_deregisters_the_policy() {
    let Some(path) = example("faulty_policy") else {
        return;
    };
    let directory = PolicyDirectory::new();
    for (config, expected) in [
        ("fail in init", "rejected by the policy"),
        ("panic in init", "panicked: in init"),
    ] {
        let error = directory.register(&path, config).err().unwrap().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let expect_failure = |policy: &RegisteredPolicy, expected: &str| {
        let reason = policy.next_failure();
        assert!(reason.contains(expected), "{reason}");
    };
    for (config, expected) in [
        ("panic", "panicked: at 4096"),
        ("fail", "the template describes another model"),
    ] {
        let policy = directory.register(&path, config).unwrap();
        policy.supervisor.queue_prefetch(miss("a", 4096));
        expect_failure(&policy, expected);
    }
    let policy = directory.register(&path, "touch").unwrap();
    policy.supervisor.queue_touch(FileAccess {
        kind: EventKind::Touch,
        ..miss("sub/b", 0)
    });
    expect_failure(&policy, "touched sub/b");
}

#[test]
fn start_returns_the_last_list_of_each_queue() {
    let Some(path) = example("faulty_policy") else {
        return;
    };
    let directory = PolicyDirectory::new();
    let policy = directory.register(&path, "").unwrap();
    policy.supervisor.queue_start();
    for (queue, start) in [(2, 20), (1, 30), (70, 40)] {
        let prefetch = policy.next_prefetch();
        assert_eq!(
            (
                prefetch.queue,
                prefetch.ranges[0].start,
                prefetch.ranges[0].device
            ),
            (queue, start, Some(7))
        );
    }
    policy.supervisor.queue_prefetch(miss("a", 0));
    policy.supervisor.shut_down().unwrap();
}
