//! Runs whose companion files change with the tensors, and of which one file operation fails.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;

use super::changed_companions::{config, exchanges};
use super::recording::RecordingFiles;
use super::{CONFIG, Form, NEW, OLD, TestDirectory, found_values, is_hidden, write};
use crate::base::error::ErrorKind;

/// The value of the checkpoint that is found, with its own configuration.
fn value_of(root: &Path, what: &str) -> u8 {
    let values = found_values(root);
    assert_eq!(values[0], values[1], "{what}");
    let value = values[0].unwrap_or_else(|| panic!("{what}: no checkpoint"));
    assert_eq!(fs::read(root.join(CONFIG)).unwrap(), [value], "{what}");
    value
}

fn hidden_names(directory: &TestDirectory) -> usize {
    let tree = directory.tree();
    tree.keys()
        .filter(|path| path.iter().any(is_hidden))
        .count()
}

/// How many runs ended in an error before the commit, in one after it, and without an error, with and without an exchange.
#[derive(Debug, Default)]
struct Endings {
    old: usize,
    new: usize,
    exchanged: usize,
    renamed: usize,
}

/// Lets each operation of an overwrite fail with this error.
fn fail_each(old: Form, new: Form, unnamed: bool, error: Errno, has_directory: bool) -> Endings {
    let mut endings = Endings::default();
    for calls in 0.. {
        let what = format!("{old:?} to {new:?}, {error} after {calls} calls");
        let root = TestDirectory::new();
        let system = || Arc::new(RecordingFiles::new(unnamed));
        write(&root.0, old, OLD, false, system(), config([OLD])).unwrap();
        // a file that is not the sink's, which an exchange must keep
        let readme = root.0.join("out/README.md");
        fs::write(&readme, "kept").unwrap();
        if has_directory {
            fs::create_dir(root.0.join("out/directory")).unwrap();
        }
        // the inode too, since a copy would have the same bytes
        let (before, inode) = (root.tree(), fs::metadata(&readme).unwrap().ino());
        let failing = system();
        failing.fail_after(calls, error);
        let result = write(&root.0, new, NEW, true, failing.clone(), config([NEW]));
        if !failing.has_failed() {
            assert!(result.is_ok(), "{what}");
            // an overwrite makes more calls than this: the loop did not end before its time
            assert!(calls > 30, "{what}");
            break;
        }
        let value = value_of(&root.0, &what);
        match &result {
            Ok(()) => {
                assert_eq!(value, NEW, "{what}");
                // a directory that has not been exchanged, and cannot be removed, is left to the next run
                let left = if has_directory { 2 } else { 0 };
                assert!(
                    hidden_names(&root) <= left,
                    "{what}: {:?}",
                    root.tree().keys()
                );
                if exchanges(&failing.operations()) == 0 {
                    endings.renamed += 1;
                } else {
                    endings.exchanged += 1;
                }
            }
            Err(e) => {
                let ErrorKind::Io(io) = e.kind() else {
                    panic!("{what}: {e}")
                };
                assert_eq!(io.raw_os_error(), Some(error.raw_os_error()), "{what}: {e}");
                assert!(e.path().is_some(), "{what}: {e}");
                if value == OLD {
                    endings.old += 1;
                    assert!(root.tree() == before, "{what}: {:?}", root.tree().keys());
                } else {
                    endings.new += 1;
                }
            }
        }
        // a run after the failed one succeeds, and removes what that left
        write(&root.0, new, NEW, true, system(), config([NEW])).unwrap();
        assert_eq!(value_of(&root.0, &what), NEW);
        assert_eq!(hidden_names(&root), 0, "{what}: {:?}", root.tree().keys());
        let found = fs::metadata(&readme).unwrap();
        assert_eq!(found.ino(), inode, "{what}");
    }
    endings
}

#[test]
fn a_failing_device_leaves_the_old_checkpoint_or_the_new_one() {
    for (old, new, unnamed, error) in [
        (Form::OnlyFile, Form::Shards, true, Errno::IO),
        (Form::Shards, Form::OnlyFile, true, Errno::NOSPC),
        (Form::Shards, Form::Shards, false, Errno::IO),
    ] {
        let endings = fail_each(old, new, unnamed, error, false);
        // nothing is removed first because a device fails
        assert_eq!(endings.renamed, 0, "{endings:?}");
        // the failures were on both sides of the commit
        assert!(endings.old > 15 && endings.new > 5, "{endings:?}");
    }
}

/// Errors of a system that lacks something: the run goes on without an exchange.
#[test]
fn an_exchange_that_is_refused_is_undone() {
    for (old, new, unnamed, error) in [
        (Form::OnlyFile, Form::Shards, true, Errno::INVAL),
        (Form::Shards, Form::OnlyFile, true, Errno::PERM),
        (Form::Shards, Form::Shards, false, Errno::XDEV),
    ] {
        let endings = fail_each(old, new, unnamed, error, false);
        assert!(endings.renamed > 5, "{endings:?}");
    }
}

/// A directory in the directory, which cannot have a second name: no exchange is possible.
#[test]
fn without_an_exchange_a_failing_device_leaves_the_old_checkpoint_or_the_new_one() {
    for (old, new, unnamed, error) in [
        (Form::OnlyFile, Form::Shards, true, Errno::IO),
        (Form::Shards, Form::OnlyFile, true, Errno::NOSPC),
        (Form::Shards, Form::Shards, false, Errno::IO),
    ] {
        let endings = fail_each(old, new, unnamed, error, true);
        assert_eq!(endings.exchanged, 0, "{endings:?}");
        assert!(endings.old > 15 && endings.new > 3, "{endings:?}");
    }
}
