//! Runs whose companion files change with the tensors: by an exchange of directories, or where none is possible.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::recording::{Operation, RecordingFiles};
use super::replay::{Tree, states};
use super::{
    CONFIG, Form, NEW, OLD, RUNS, RecordedRun, TestDirectory, found_values, is_hidden, record,
    run_over, write,
};
use crate::engine::companions::{CompanionContent, CompanionFile};

/// `config.json` with this text.
pub(super) fn config(text: impl Into<Vec<u8>>) -> Vec<CompanionFile> {
    vec![CompanionFile {
        name: "config.json".to_owned(),
        content: CompanionContent::Bytes(text.into()),
    }]
}

/// Runs into a directory.
fn directory_runs() -> impl Iterator<Item = (Option<Form>, Form)> {
    RUNS.into_iter().filter(|(_, new)| *new != Form::File)
}

pub(super) fn exchanges(operations: &[Operation]) -> usize {
    let is_exchange = |o: &&Operation| matches!(o, Operation::Exchange(..));
    operations.iter().filter(is_exchange).count()
}

#[test]
fn a_configuration_changes_in_the_same_moment_as_the_tensors() {
    for (old, new) in directory_runs() {
        for unnamed in [true, false] {
            let run = record(old, new, unnamed, |value| config([value]));
            // a first run has nothing to exchange with
            assert_eq!(exchanges(&run.operations), usize::from(old.is_some()));
            let violation =
                run.state_not(&run.operations, 0, |value, config, is_end| match value {
                    // no client opens tensors without their configuration
                    None => old.is_none() && !is_end,
                    Some(value) => {
                        // in a first run there is no other configuration to be found with the tensors
                        let own = config == Some(&[value]) || old.is_none() && config.is_none();
                        own && (value == NEW || value == OLD && !is_end)
                    }
                });
            assert_eq!(violation, None, "{old:?} to {new:?}, unnamed: {unnamed}");
        }
    }
}

/// An overwrite by exchange, of which the operations that `is_dropped` returns true for are lost.
fn violation_without(is_dropped: impl Fn(&RecordedRun, &Operation) -> bool) -> Option<String> {
    let run = record(Some(Form::OnlyFile), Form::Shards, true, |v| config([v]));
    let operations = run.without(|operation| is_dropped(&run, operation));
    assert!(operations.len() < run.operations.len());
    run.state_not(&operations, 0, |value, config, is_end| {
        let is_one = value == Some(NEW) || value == Some(OLD) && !is_end;
        is_one && config == value.as_ref().map(std::slice::from_ref)
    })
}

#[test]
fn each_sync_of_an_exchange_is_needed() {
    let new_files = violation_without(|_, o| matches!(o, Operation::Sync(_)));
    let staging = violation_without(
        |_, o| matches!(o, Operation::SyncDirectory(path) if path.file_name().is_some_and(is_hidden)),
    );
    let parent = violation_without(
        |run, o| matches!(o, Operation::SyncDirectory(path) if *path == run.root.0),
    );
    for (what, violation) in [
        ("the new files", new_files),
        ("the new directory", staging),
        ("the parent", parent),
    ] {
        assert!(violation.is_some(), "{what}");
    }
}

#[test]
fn the_next_run_removes_what_an_exchange_left() {
    for (old, new) in directory_runs().filter(|(old, _)| old.is_some()) {
        let run = record(old, new, true, |value| config([value]));
        let states = run.states_left();
        let hidden = states.iter().filter(|tree| {
            let is_hidden = |name: &str| name.starts_with('.');
            tree.keys().any(|path| path.to_str().is_some_and(is_hidden))
        });
        // enough states in which there is something to remove
        assert!(hidden.count() > 5, "{old:?} to {new:?}");
        for tree in &states {
            for overwrite in [true, false] {
                run_over(tree, new, overwrite, config([3]));
            }
        }
    }
}

/// The first run ends after each of its calls, and the second one begins over what it left.
#[test]
fn a_run_after_a_killed_one_leaves_one_of_their_checkpoints() {
    for (old, unnamed) in [(Form::Shards, true), (Form::OnlyFile, false)] {
        let mut ended_early = 0;
        for calls in 0.. {
            let root = TestDirectory::new();
            let system = Arc::new(RecordingFiles::new(unnamed));
            write(&root.0, old, OLD, false, system, config([OLD])).unwrap();
            let (tree, system) = (root.tree(), Arc::new(RecordingFiles::new(unnamed)));
            system.end_after(calls);
            let first = write(&root.0, old, 3, true, system.clone(), config([3]));
            if first.is_ok() {
                break;
            }
            ended_early += 1;
            // files that the second run finds may not be synced yet
            let begun = system.operations().len();
            system.end_after(usize::MAX);
            write(&root.0, old, NEW, true, system.clone(), config([NEW])).unwrap();
            let run = RecordedRun {
                operations: system.operations(),
                old: tree,
                root,
            };
            let violation = run.state_not(&run.operations, begun, |value, config, is_end| {
                let is_one = value == Some(NEW) || matches!(value, Some(OLD | 3)) && !is_end;
                is_one && config == value.as_ref().map(std::slice::from_ref)
            });
            assert_eq!(violation, None, "{calls} calls, then {begun} operations");
        }
        assert!(ended_early > 20, "{ended_early}");
    }
}

/// A run over an old checkpoint where no exchange is possible: there is a directory in the directory.
fn record_without_exchange(old: Form, new: Form, unnamed: bool) -> RecordedRun {
    let root = TestDirectory::new();
    let system = || Arc::new(RecordingFiles::new(unnamed));
    write(&root.0, old, OLD, false, system(), config([OLD])).unwrap();
    fs::create_dir(root.0.join("out/directory")).unwrap();
    let (tree, system) = (root.tree(), system());
    write(&root.0, new, NEW, true, system.clone(), config([NEW])).unwrap();
    let run = RecordedRun {
        operations: system.operations(),
        old: tree,
        root,
    };
    assert_eq!(exchanges(&run.operations), 0);
    assert!(run.root.0.join("out/directory").is_dir());
    run
}

/// A reader finds one of the checkpoints at any time; for a moment without its configuration, and never beside the
/// configuration of others.
#[test]
fn without_an_exchange_a_reader_finds_tensors_beside_their_own_configuration_or_none() {
    for (old, new) in directory_runs().filter(|(old, _)| old.is_some()) {
        for unnamed in [true, false] {
            let run = record_without_exchange(old.unwrap(), new, unnamed);
            let violation =
                run.state_not(&run.operations, 0, |value, config, is_end| match value {
                    None => false,
                    Some(value) => {
                        config.is_none_or(|config| config == [value])
                            && (!is_end || value == NEW && config.is_some())
                    }
                });
            assert_eq!(violation, None, "{old:?} to {new:?}, unnamed: {unnamed}");
        }
    }
}

/// The replay finds what each of the syncs of directories prevents.
#[test]
fn without_an_exchange_each_sync_is_needed() {
    let run = record_without_exchange(Form::OnlyFile, Form::Shards, true);
    let is_sync = |o: &Operation| matches!(o, Operation::SyncDirectory(_));
    let count = run.operations.iter().filter(|o| is_sync(o)).count();
    assert!(count > 4, "{count}");
    let mut needed = 0;
    for left_out in 0..count {
        let mut number = 0;
        let operations = run.without(|operation| {
            number += usize::from(is_sync(operation));
            is_sync(operation) && number == left_out + 1
        });
        let found = run.state_not(&operations, 0, |value, config, is_end| match value {
            None => false,
            Some(value) => {
                config.is_none_or(|config| config == [value]) && (!is_end || value == NEW)
            }
        });
        // or what the next run makes of it
        let settled = || {
            (0..=operations.len()).any(|n| {
                states(&run.old, &operations[..n], &run.root.0)
                    .iter()
                    .any(|tree| settled_value(tree).is_none())
            })
        };
        needed += usize::from(found.is_some() || settled());
    }
    println!("{needed} of {count} syncs are needed");
    assert!(needed > 3, "{needed} of {count}");
}

/// The value of the checkpoint that a run leaves which may replace nothing, if its configuration is its own.
fn settled_value(tree: &Tree) -> Option<u8> {
    let directory = TestDirectory::new();
    directory.write(tree);
    let system = Arc::new(RecordingFiles::new(true));
    let refused = write(&directory.0, Form::Shards, 3, false, system, config([3]));
    assert!(refused.is_err());
    let [value, other] = found_values(&directory.0);
    let config = fs::read(directory.0.join(CONFIG)).ok();
    let own = value.filter(|value| value == &other.unwrap_or(0));
    own.filter(|value| config == Some(vec![*value]))
}

/// Whatever a killed run leaves, the next one finds the old checkpoint or the new one, also if it may not replace it.
#[test]
fn without_an_exchange_a_killed_run_loses_no_checkpoint() {
    let (mut restored, mut completed) = (0, 0);
    for (old, new) in directory_runs().filter(|(old, _)| old.is_some()) {
        for unnamed in [true, false] {
            let run = record_without_exchange(old.unwrap(), new, unnamed);
            for tree in run.states_left() {
                let directory = TestDirectory::new();
                directory.write(&tree);
                let before = found_values(&directory.0);
                let system = Arc::new(RecordingFiles::new(true));
                let next = write(&directory.0, new, 3, false, system, config([3]));
                let what = || format!("{old:?} to {new:?}: {:?}", tree.keys());
                assert!(next.is_err(), "{}", what());
                let values = found_values(&directory.0);
                let value = values[0].unwrap_or_else(|| panic!("no checkpoint, {}", what()));
                assert_eq!(values[1], Some(value), "{}", what());
                let config = fs::read(directory.0.join(CONFIG)).unwrap();
                assert_eq!(config, [value], "{}", what());
                assert!(before[0].is_some() && before[1].is_some(), "{}", what());
                let had_none = !tree.contains_key(Path::new(CONFIG));
                restored += usize::from(had_none && value == OLD);
                completed += usize::from(had_none && value == NEW);
            }
        }
    }
    assert!(
        restored > 20 && completed > 20,
        "{restored} and {completed}"
    );
}

/// A configuration that stays the same needs no exchange.
#[test]
fn an_equal_configuration_is_not_replaced() {
    for (old, new) in directory_runs() {
        let run = record(old, new, true, |_| config("{}"));
        assert_eq!(exchanges(&run.operations), 0);
        let violation = run.violation(&run.operations);
        assert_eq!(violation, None, "{old:?} to {new:?}");
    }
}
