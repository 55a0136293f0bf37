//! Policies in Rust that are built as shared libraries.

use std::path::{Path, PathBuf};

use crate::stage::{Actor, Stage, miss, plain};
use anamnesis_ppc::{EventKind, Interests, PolicyOutput};

/// An example of this crate, built with the tests.
fn example(name: &str) -> Option<PathBuf> {
    let programs = Path::new(env!("CARGO_BIN_EXE_ppc-host")).parent().unwrap();
    let path = programs.join("examples").join(format!("lib{name}.so"));
    if !path.exists() {
        eprintln!("SKIPPED: {name} is not built; a test run of the whole crate builds it");
        return None;
    }
    Some(path)
}

#[test]
fn the_example_in_rust_prefetches_ahead_and_evicts_behind() {
    let Some(path) = example("ahead") else { return };
    let stage = Stage::new();
    let actor = stage.register(&path, "1").unwrap();
    assert_eq!(
        actor.supervisor.interests(),
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
    actor.supervisor.queue_start();
    let PolicyOutput::Prefetch(all) = actor.next() else {
        panic!("no list")
    };
    assert_eq!(plain(&all.ranges), entries);
    let tail = actor.prefetch(miss("a", 1 << 20));
    assert_eq!(plain(&tail.ranges), entries[1..]);
    assert!(
        std::sync::Arc::ptr_eq(tail.ranges.backing(), all.ranges.backing()),
        "a tail is not sent again"
    );
    assert_eq!(plain(&actor.prefetch(miss("a", 0)).ranges), entries);
    assert_eq!(plain(&actor.evict(Some(miss("sub/b", 0)))), entries[..1]);
    assert!(actor.evict(Some(miss("a", 0))).is_empty());
    actor.supervisor.shut_down().unwrap();
    let error = stage.register(&path, "many").err().unwrap().to_string();
    assert!(
        error.contains("the configuration \"many\" is not a number"),
        "{error}"
    );
}

#[test]
fn errors_and_panics_end_the_registration() {
    let Some(path) = example("faulty_policy") else {
        return;
    };
    let stage = Stage::new();
    for (config, why) in [
        ("refuse", "not today"),
        ("panic in init", "panicked: at the beginning"),
    ] {
        let error = stage.register(&path, config).err().unwrap().to_string();
        assert!(error.contains(why), "{error}");
    }
    let expect_failure = |actor: &Actor, why: &str| {
        let reason = actor.failure();
        assert!(reason.contains(why), "{reason}");
    };
    for (config, why) in [
        ("panic", "panicked: at 4096"),
        ("fail", "the template is another model's"),
    ] {
        let actor = stage.register(&path, config).unwrap();
        actor.supervisor.queue_prefetch(miss("a", 4096));
        expect_failure(&actor, why);
    }
    let actor = stage.register(&path, "touch").unwrap();
    actor.supervisor.queue_touch(anamnesis_ppc::FileAccess {
        kind: EventKind::Touch,
        ..miss("sub/b", 0)
    });
    expect_failure(&actor, "touched sub/b");
}

#[test]
fn start_returns_one_list_per_queue() {
    let Some(path) = example("faulty_policy") else {
        return;
    };
    let stage = Stage::new();
    let actor = stage.register(&path, "").unwrap();
    actor.supervisor.queue_start();
    for (queue, start) in [(2, 20), (1, 30), (70, 40)] {
        let PolicyOutput::Prefetch(prefetch) = actor.next() else {
            panic!("no list")
        };
        assert_eq!(
            (
                prefetch.queue,
                prefetch.ranges[0].start,
                prefetch.ranges[0].device
            ),
            (queue, start, Some(7))
        );
    }
    actor.supervisor.queue_prefetch(miss("a", 0));
    actor.supervisor.shut_down().unwrap();
}
