//! The state that a loss of power, or the end of the process, leaves of a run: every prefix of the sink's file operations is
//! replayed under the rules of a file system that may drop whatever was not synced (`power_loss/replay.rs`).

mod changed_companions;
mod copies;
mod edits;
mod failed_operations;
mod other_processes;
mod recording;
mod replay;
mod schedules;
mod turns;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::operations::FileOperations;
use super::{SafetensorsSink, Sharding};
use crate::base::error::{ErrorKind, Result};
use crate::base::kernel::Dtype;
use crate::engine::companions::{CompanionFile, Companions};
use crate::engine::sink::Sink;
use crate::plan::TensorSpec;
use crate::read::catalog::Shape;
use crate::read::checkpoint::Checkpoint;
use recording::{Operation, RecordingFiles};
use replay::{Entry, Tree, states};

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const CONFIG: &str = "out/config.json";

/// A directory that is removed when it is dropped.
#[derive(Debug)]
struct TestDirectory(PathBuf);

impl TestDirectory {
    fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("anamnesis-power-loss-{}-{number}", std::process::id());
        // thousands of runs wait for the device otherwise, and the loss of power is played on what they recorded
        let memory = PathBuf::from("/dev/shm").join(&name);
        let path = match fs::create_dir(&memory) {
            Ok(()) => memory,
            Err(_) => {
                let path = std::env::temp_dir().join(name);
                fs::create_dir(&path).unwrap();
                path
            }
        };
        Self(path)
    }

    fn tree(&self) -> Tree {
        let (mut tree, mut open) = (Tree::new(), vec![self.0.clone()]);
        while let Some(directory) = open.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                let relative = path.strip_prefix(&self.0).unwrap().to_owned();
                if path.is_dir() {
                    tree.insert(relative, Entry::Directory);
                    open.push(path);
                } else {
                    tree.insert(relative, Entry::File(fs::read(path).unwrap()));
                }
            }
        }
        tree
    }

    fn write(&self, tree: &Tree) {
        // a directory sorts before what it contains
        for (path, entry) in tree {
            let path = self.0.join(path);
            match entry {
                Entry::Directory => fs::create_dir(path).unwrap(),
                Entry::File(bytes) => fs::write(path, bytes).unwrap(),
            }
        }
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        // a failed removal must not hide why a test fails
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The files that a run writes, and their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// One file, named by the caller.
    File,
    /// `model.safetensors` in a directory.
    OnlyFile,
    /// Shards and an index.
    Shards,
}

impl Form {
    fn sharding(self) -> Sharding {
        match self {
            Self::File => Sharding::SingleFile,
            // more than the three tensors take, so that they share a file; below, as much as one takes
            Self::OnlyFile => Sharding::Shards(1 << 20),
            Self::Shards => Sharding::Shards(4),
        }
    }

    /// The names of the files, of which shards begin with `model-`.
    fn is_complete(self, names: &[String]) -> bool {
        match self {
            Self::File => names == ["out"],
            Self::OnlyFile => names == ["out", "out/model.safetensors"],
            Self::Shards => {
                names.len() == 5
                    && names[0] == "out"
                    && names[1..4].iter().all(|n| n.starts_with("out/model-"))
                    && names[4] == format!("out/{INDEX}")
            }
        }
    }
}

/// Writes three tensors of 4 bytes with this value to `out`, and companion files.
fn write(
    root: &Path,
    form: Form,
    value: u8,
    overwrite: bool,
    system: Arc<dyn FileOperations>,
    companions: Vec<CompanionFile>,
) -> Result<()> {
    let mut sink = SafetensorsSink::new(root.join("out"), form.sharding())
        .overwrite(overwrite)
        .companions(Companions {
            files: companions,
            ..Companions::default()
        });
    sink.system = system;
    let spec = |name: &str| TensorSpec::new(name, Shape::from_slice(&[4]), Dtype::U8);
    sink.begin(&["a", "b", "c"].map(spec))?;
    // in two writes, so that a run can also end within a tensor
    for output in 0..3 {
        sink.put(output, 0, &[value; 2])?;
        sink.put(output, 2, &[value; 2])?;
    }
    sink.end()
}

/// The value of the checkpoint at this path; `None` where none can be opened, or its tensors differ.
fn value_at(path: &Path) -> Option<u8> {
    let checkpoint = Checkpoint::open(path).ok()?;
    let mut values = BTreeSet::new();
    for name in ["a", "b", "c"] {
        values.extend(checkpoint.tensor(name)?.bytes().ok()?.iter().copied());
    }
    // one value in all: a reader that finds tensors of two runs finds neither checkpoint
    values.pop_first().filter(|_| values.is_empty())
}

/// The values that readers find at `out`: this library, which prefers an index, and transformers, which prefers the single
/// file and does not read shards without an index.
fn found_values(root: &Path) -> [Option<u8>; 2] {
    let out = root.join("out");
    let mut candidates = [out.join(SINGLE), out.join(INDEX), out.clone()].into_iter();
    let found = candidates
        .find(|path| path.is_file())
        .and_then(|path| value_at(&path));
    [value_at(&out), found]
}

const OLD: u8 = 1;
const NEW: u8 = 2;

/// Recorded operations over an old checkpoint.
struct RecordedRun {
    root: TestDirectory,
    old: Tree,
    operations: Vec<Operation>,
}

/// Records a run over an old checkpoint. `companions` returns the companion files for a value of the tensors.
fn record(
    old: Option<Form>,
    new: Form,
    unnamed: bool,
    companions: impl Fn(u8) -> Vec<CompanionFile>,
) -> RecordedRun {
    let root = TestDirectory::new();
    let system = || Arc::new(RecordingFiles::new(unnamed));
    if let Some(old) = old {
        write(&root.0, old, OLD, false, system(), companions(OLD)).unwrap();
    }
    let (tree, system, overwrite) = (root.tree(), system(), old.is_some());
    write(
        &root.0,
        new,
        NEW,
        overwrite,
        system.clone(),
        companions(NEW),
    )
    .unwrap();
    RecordedRun {
        root,
        old: tree,
        operations: system.operations(),
    }
}

impl RecordedRun {
    /// The first state in which a reader finds neither checkpoint, or after the run not the new one.
    fn violation(&self, operations: &[Operation]) -> Option<String> {
        let old = (!self.old.is_empty()).then_some(OLD);
        self.state_not(operations, 0, |value, _, is_end| {
            value == Some(NEW) || value == old && !is_end
        })
    }

    /// The first state, after at least `first` operations, of which `is_right` returns false. Its arguments: the value of the
    /// tensors and the text of `config.json` that a reader finds, and whether the run has ended.
    fn state_not(
        &self,
        operations: &[Operation],
        first: usize,
        is_right: impl Fn(Option<u8>, Option<&[u8]>, bool) -> bool,
    ) -> Option<String> {
        let mut checked = BTreeSet::new();
        for count in first..=operations.len() {
            let is_end = count == operations.len();
            for mut tree in states(&self.old, &operations[..count], &self.root.0) {
                tree.retain(|path, _| path.starts_with("out"));
                // the first of the states that differ only in the files under construction is opened
                let mut visible = tree.clone();
                visible.retain(|path, _| !path.iter().any(is_hidden));
                if !checked.insert((is_end, visible)) {
                    continue;
                }
                let directory = TestDirectory::new();
                directory.write(&tree);
                let config = fs::read(directory.0.join(CONFIG)).ok();
                for value in found_values(&directory.0) {
                    if !is_right(value, config.as_deref(), is_end) {
                        let names: Vec<_> = tree.keys().collect();
                        return Some(format!(
                            "{value:?} and {config:?} after {count} operations in {names:?}: {:?}",
                            &operations[..count]
                        ));
                    }
                }
            }
        }
        None
    }

    /// The operations without some of them.
    fn without(&self, mut is_dropped: impl FnMut(&Operation) -> bool) -> Vec<Operation> {
        let kept = self.operations.iter().filter(|o| !is_dropped(o));
        kept.cloned().collect()
    }

    /// The states after each prefix of the operations.
    fn states_left(&self) -> BTreeSet<Tree> {
        let counts = 0..=self.operations.len();
        let states = counts.flat_map(|n| states(&self.old, &self.operations[..n], &self.root.0));
        states.collect()
    }
}

fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

fn no_companions(_: u8) -> Vec<CompanionFile> {
    Vec::new()
}

const RUNS: [(Option<Form>, Form); 8] = [
    (None, Form::File),
    (None, Form::OnlyFile),
    (None, Form::Shards),
    (Some(Form::File), Form::File),
    (Some(Form::OnlyFile), Form::OnlyFile),
    (Some(Form::OnlyFile), Form::Shards),
    (Some(Form::Shards), Form::OnlyFile),
    (Some(Form::Shards), Form::Shards),
];

#[test]
fn a_loss_of_power_leaves_the_old_checkpoint_or_the_new_one() {
    for unnamed in [true, false] {
        for (old, new) in RUNS {
            let run = record(old, new, unnamed, no_companions);
            let violation = run.violation(&run.operations);
            assert_eq!(violation, None, "{old:?} to {new:?}, unnamed: {unnamed}");
        }
    }
}

/// The replay finds the faults that each step of the protocol prevents.
#[test]
fn each_sync_is_needed() {
    for (old, new) in RUNS {
        let run = record(old, new, true, no_companions);
        let files = run.without(|o| matches!(o, Operation::Sync(_)));
        let directories = run.without(|o| matches!(o, Operation::SyncDirectory(_)));
        for (what, operations) in [("files", files), ("directories", directories)] {
            let violation = run.violation(&operations);
            assert!(violation.is_some(), "{old:?} to {new:?}: {what}");
        }
    }
}

/// Runs over what is left, and checks that nothing else is left then.
fn run_over(tree: &Tree, new: Form, overwrite: bool, companions: Vec<CompanionFile>) {
    let directory = TestDirectory::new();
    directory.write(tree);
    let before = found_values(&directory.0);
    let context = format!("to {new:?}, {overwrite}: {:?}", tree.keys());
    let number_of_companions = companions.len();
    let system = Arc::new(RecordingFiles::new(true));
    // neither the old value nor the new one
    match write(&directory.0, new, 3, overwrite, system, companions) {
        Ok(()) => {
            assert_eq!(found_values(&directory.0), [Some(3); 2], "{context}");
            let names = directory.tree().into_keys();
            let names: Vec<String> = names.map(|name| name.display().to_string()).collect();
            let tensors: Vec<String> = names.iter().filter(|n| *n != CONFIG).cloned().collect();
            assert!(new.is_complete(&tensors), "{context}: {names:?}");
            assert_eq!(names.len() - tensors.len(), number_of_companions);
        }
        // existing files are kept, and a name that lost its bytes is not this library's to remove
        Err(error) => {
            let exists = matches!(
                error.kind(),
                ErrorKind::Io(e) if e.kind() == io::ErrorKind::AlreadyExists
            );
            assert!(!overwrite && exists, "{context}: {error}");
            assert_eq!(found_values(&directory.0), before, "{context}");
        }
    }
}

#[test]
fn the_next_run_removes_what_an_earlier_one_left() {
    for unnamed in [true, false] {
        for (old, new) in RUNS {
            for tree in &record(old, new, unnamed, no_companions).states_left() {
                for overwrite in [true, false] {
                    run_over(tree, new, overwrite, Vec::new());
                }
            }
        }
    }
}
