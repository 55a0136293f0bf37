//! Policies in Rust, as shared libraries.

use std::path::{Path, PathBuf};

use crate::stage::{Actor, Stage, miss, plain};
use anamnesis_ppc::{Answer, Kind, Wants};

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
fn the_example_in_rust_does_what_it_says() {
    let Some(path) = example("ahead") else { return };
    let stage = Stage::new();
    let actor = stage.register(&path, "1").unwrap();
    assert_eq!(
        actor.guarded.wants(),
        Wants {
            prefetch: true,
            evict: true,
            ..Wants::default()
        }
    );
    let row = [
        ("a".to_owned(), 0, 1 << 20),
        ("a".into(), 1 << 20, 100),
        ("sub/b".into(), 0, 5000),
    ];
    actor.guarded.start();
    let Answer::Prefetch(all) = actor.next() else {
        panic!("no list")
    };
    assert_eq!(plain(&all.ios), row);
    let tail = actor.prefetch(miss("a", 1 << 20));
    assert_eq!(plain(&tail.ios), row[1..]);
    assert!(
        std::sync::Arc::ptr_eq(tail.ios.all(), all.ios.all()),
        "a tail is not sent again"
    );
    assert_eq!(plain(&actor.prefetch(miss("a", 0)).ios), row);
    assert_eq!(plain(&actor.evict(Some(miss("sub/b", 0)))), row[..1]);
    assert!(actor.evict(Some(miss("a", 0))).is_empty());
    actor.guarded.remove().unwrap();
    let error = stage.register(&path, "many").err().unwrap().to_string();
    assert!(error.contains("\"many\" is no number of pieces"), "{error}");
}

#[test]
fn what_goes_wrong_in_rust_ends_the_registration() {
    let Some(path) = example("odd_policy") else {
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
    let lost = |actor: &Actor, why: &str| {
        let said = actor.lost();
        assert!(said.contains(why), "{said}");
    };
    for (config, why) in [
        ("panic", "panicked: at 4096"),
        ("fail", "the template is another model's"),
    ] {
        let actor = stage.register(&path, config).unwrap();
        actor.guarded.prefetch(miss("a", 4096));
        lost(&actor, why);
    }
    let actor = stage.register(&path, "touch").unwrap();
    actor.guarded.touch(anamnesis_ppc::Access {
        kind: Kind::Touch,
        ..miss("sub/b", 0)
    });
    lost(&actor, "touched sub/b");
}

#[test]
fn a_start_has_one_list_for_each_lane() {
    let Some(path) = example("odd_policy") else {
        return;
    };
    let stage = Stage::new();
    let actor = stage.register(&path, "").unwrap();
    actor.guarded.start();
    for (lane, start) in [(2, 20), (1, 30), (70, 40)] {
        let Answer::Prefetch(prefetch) = actor.next() else {
            panic!("no list")
        };
        assert_eq!(
            (prefetch.lane, prefetch.ios[0].start, prefetch.ios[0].device),
            (lane, start, Some(7))
        );
    }
    actor.guarded.prefetch(miss("a", 0));
    actor.guarded.remove().unwrap();
}
