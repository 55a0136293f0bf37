//! Outputs that are copied from another file within the system, or through memory: a loss of power leaves what it leaves of writes, and
//! adjacent outputs are one operation.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;

use super::recording::{Operation, RecordingFiles};
use super::{Form, NEW, OLD, RecordedRun, TestDirectory, found_values, no_companions, write};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::kernel::Dtype;
use crate::engine::sink::files::operations::FileOperations;
use crate::engine::sink::files::{SafetensorsSink, Sharding};
use crate::engine::sink::{Sink, StoredOutput};
use crate::plan::TensorSpec;
use crate::read::catalog::Shape;
use crate::read::source::FileSource;

/// Bytes of each output, as many as each tensor of `write` has.
const LEN: u64 = 4;

/// A file whose bytes are all this value.
fn source(root: &Path, value: u8) -> FileSource {
    let path = root.join("source");
    std::fs::write(&path, vec![value; 3 * 4096]).unwrap();
    FileSource::new(File::open(path).unwrap()).unwrap()
}

/// Writes what `write` writes, by copies from a source: from offsets of the same place in a page, or not.
fn copy(
    root: &Path,
    form: Form,
    value: u8,
    is_congruent: bool,
    system: Arc<dyn FileOperations>,
) -> Result<()> {
    let source = source(root, value);
    let mut sink = SafetensorsSink::new(root.join("out"), form.sharding()).overwrite(true);
    sink.system = system;
    let spec = |name: &str| TensorSpec::new(name, Shape::from_slice(&[LEN]), Dtype::U8);
    sink.begin(&["a", "b", "c"].map(spec))?;
    let places = sink.written.as_ref().expect("begun").places();
    let stored = |output: usize| StoredOutput {
        output,
        source: &source,
        path: None,
        start: 4096 + places[output].1 + u64::from(!is_congruent),
        len: LEN,
    };
    let stored = [2, 0, 1].map(stored);
    let copies = sink.copies().expect("a local file");
    copies.copy(&stored, 2, &|_| Ok(()))?;
    sink.end()
}

/// Records copies over an old checkpoint.
fn record_copies(old: Option<Form>, new: Form, is_congruent: bool) -> RecordedRun {
    let root = TestDirectory::new();
    let system = || Arc::new(RecordingFiles::new(true));
    if let Some(old) = old {
        write(&root.0, old, OLD, false, system(), no_companions(OLD)).unwrap();
    }
    let (tree, system) = (root.tree(), system());
    copy(&root.0, new, NEW, is_congruent, system.clone()).unwrap();
    RecordedRun {
        root,
        old: tree,
        operations: system.operations(),
    }
}

const RUNS: [(Option<Form>, Form); 4] = [
    (None, Form::File),
    (Some(Form::File), Form::File),
    (Some(Form::OnlyFile), Form::Shards),
    (Some(Form::Shards), Form::OnlyFile),
];

#[test]
fn a_loss_of_power_during_copies_leaves_the_old_checkpoint_or_the_new_one() {
    for (old, new) in RUNS {
        for is_congruent in [true, false] {
            let run = record_copies(old, new, is_congruent);
            let violation = run.violation(&run.operations);
            assert_eq!(violation, None, "{old:?} to {new:?}, {is_congruent}");
            // the recorder has seen the copies: without the syncs, their bytes are lost
            let unsynced = run.without(|o| matches!(o, Operation::Sync(_)));
            assert!(run.violation(&unsynced).is_some(), "{old:?} to {new:?}");
        }
    }
}

#[test]
fn adjacent_outputs_are_copied_together() {
    for (form, expected) in [(Form::File, vec![12]), (Form::Shards, vec![4; 3])] {
        for is_congruent in [true, false] {
            let run = record_copies(None, form, is_congruent);
            let writes = run
                .operations
                .iter()
                .filter_map(|operation| match operation {
                    Operation::Write(_, _, bytes) if bytes.iter().all(|byte| *byte == NEW) => {
                        Some(bytes.len())
                    }
                    _ => None,
                });
            assert_eq!(writes.collect::<Vec<_>>(), expected, "{form:?}");
        }
    }
}

/// A copy that the system does not make goes through memory; one that it cannot make ends the run.
#[test]
fn a_copy_that_fails_is_made_through_memory_unless_there_is_no_space() {
    for error in [
        Errno::XDEV,
        Errno::INVAL,
        Errno::IO,
        Errno::PERM,
        Errno::NOSPC,
        Errno::DQUOT,
    ] {
        let mut failed_copies = 0;
        for calls in 0..12 {
            let root = TestDirectory::new();
            let system = Arc::new(RecordingFiles::new(true));
            system.fail_after(calls, error);
            let outcome = copy(&root.0, Form::File, NEW, true, system.clone());
            let is_space = matches!(error, Errno::NOSPC | Errno::DQUOT);
            match outcome {
                Ok(()) => {
                    assert_eq!(found_values(&root.0)[0], Some(NEW), "{error} after {calls}");
                    failed_copies += usize::from(system.has_failed());
                }
                Err(e) => assert!(e.path().is_some(), "{e}"),
            }
            assert!(!is_space || failed_copies == 0, "{error} after {calls}");
        }
        let is_space = matches!(error, Errno::NOSPC | Errno::DQUOT);
        assert_eq!(failed_copies > 0, !is_space, "{error}");
    }
}

#[test]
fn an_error_of_the_progress_ends_a_copy() {
    let root = TestDirectory::new();
    let source = source(&root.0, NEW);
    let mut sink = SafetensorsSink::new(root.0.join("out"), Sharding::SingleFile);
    sink.begin(&[TensorSpec::new("a", Shape::from_slice(&[LEN]), Dtype::U8)])
        .unwrap();
    let stored = StoredOutput {
        output: 0,
        source: &source,
        path: None,
        start: 0,
        len: LEN,
    };
    let cancelled = |_| Err(Error::new(ErrorKind::Cancelled));
    let copies = sink.copies().expect("a local file");
    let error = copies.copy(&[stored], 1, &cancelled).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Cancelled));
    drop(sink);
    assert!(!root.0.join("out").exists());
}
