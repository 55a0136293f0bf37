//! What a loss of power, or the end of the process, leaves of a run: every prefix of the sink's file operations is
//! replayed under the rules of a file system that may drop whatever was not synced.
//!
//! Bytes of a file survive once the file was synced. An entry of a directory (a link, rename or removal) survives once the
//! directory was synced; of those that were not, any subset survives. Entries survive only in a directory that does.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::operations::{FileOperations, SystemFiles};
use super::{SafetensorsSink, Sharding};
use crate::Dtype;
use crate::catalog::Shape;
use crate::checkpoint::Checkpoint;
use crate::companions::{CompanionContent, CompanionFile, Companions};
use crate::error::{ErrorKind, Result};
use crate::plan::TensorSpec;
use crate::sink::Sink;

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// Number of a file, in the order of creation.
type FileNumber = usize;

#[derive(Clone, Debug)]
enum Operation {
    Create(FileNumber),
    Write(FileNumber, u64, Vec<u8>),
    Sync(FileNumber),
    Link(FileNumber, PathBuf),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
    CreateDirectory(PathBuf),
    SyncDirectory(PathBuf),
}

/// Makes the calls, except those that sync, and records all of them.
#[derive(Debug)]
struct RecordingFiles {
    system: SystemFiles,
    operations: Mutex<Vec<Operation>>,
    numbers: Mutex<HashMap<RawFd, FileNumber>>,
}

impl RecordingFiles {
    fn new(unnamed: bool) -> Self {
        Self {
            system: SystemFiles { unnamed },
            operations: Mutex::default(),
            numbers: Mutex::default(),
        }
    }

    fn record(&self, operation: Operation) {
        self.operations.lock().unwrap().push(operation);
    }

    fn number(&self, file: &File) -> FileNumber {
        self.numbers.lock().unwrap()[&file.as_raw_fd()]
    }

    fn record_new(&self, file: &File) -> FileNumber {
        let mut operations = self.operations.lock().unwrap();
        let number = operations.len();
        operations.push(Operation::Create(number));
        // a descriptor is used again once its file is closed
        self.numbers
            .lock()
            .unwrap()
            .insert(file.as_raw_fd(), number);
        number
    }
}

impl FileOperations for RecordingFiles {
    fn create_unnamed(&self, directory: &Path) -> io::Result<Option<File>> {
        let file = self.system.create_unnamed(directory)?;
        if let Some(file) = &file {
            self.record_new(file);
        }
        Ok(file)
    }

    fn create(&self, path: &Path) -> io::Result<Option<File>> {
        let file = self.system.create(path)?;
        if let Some(file) = &file {
            let number = self.record_new(file);
            self.record(Operation::Link(number, path.to_owned()));
        }
        Ok(file)
    }

    fn write(&self, file: &File, start: u64, bytes: &[u8]) -> io::Result<()> {
        self.system.write(file, start, bytes)?;
        self.record(Operation::Write(self.number(file), start, bytes.to_vec()));
        Ok(())
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.record(Operation::Sync(self.number(file)));
        Ok(())
    }

    fn link(&self, file: &File, to: &Path) -> io::Result<()> {
        self.system.link(file, to)?;
        self.record(Operation::Link(self.number(file), to.to_owned()));
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.system.rename(from, to)?;
        self.record(Operation::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.system.rename_new(from, to)?;
        self.record(Operation::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.system.remove(path)?;
        self.record(Operation::Remove(path.to_owned()));
        Ok(())
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.system.create_directory(path)?;
        self.record(Operation::CreateDirectory(path.to_owned()));
        Ok(())
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.system.remove_directory(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.record(Operation::SyncDirectory(path.to_owned()));
        Ok(())
    }
}

/// A directory that is removed when it is dropped.
struct TestDirectory(PathBuf);

impl TestDirectory {
    fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("anamnesis-power-loss-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
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
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Entry {
    Directory,
    File(Vec<u8>),
}

type Tree = BTreeMap<PathBuf, Entry>;

/// A change of one directory. The file of a rename is the one that had the name when the call was made.
#[derive(Clone, Debug)]
enum EntryChange {
    Name(PathBuf, NamedFile),
    Move(PathBuf, PathBuf, NamedFile),
    Remove(PathBuf),
    Directory(PathBuf),
}

impl EntryChange {
    fn directory(&self) -> PathBuf {
        let (Self::Name(path, _)
        | Self::Move(path, ..)
        | Self::Remove(path)
        | Self::Directory(path)) = self;
        path.parent().unwrap().to_owned()
    }
}

#[derive(Clone, Debug)]
enum NamedFile {
    Old(Vec<u8>),
    New(FileNumber),
}

/// The states that may be left after the first `count` operations.
fn states(old: &Tree, operations: &[Operation], root: &Path) -> BTreeSet<Tree> {
    let relative = |path: &Path| path.strip_prefix(root).unwrap().to_owned();
    let (mut changes, mut synced) = (Vec::<EntryChange>::new(), BTreeSet::new());
    let mut named: BTreeMap<PathBuf, NamedFile> = BTreeMap::new();
    for (path, entry) in old {
        if let Entry::File(bytes) = entry {
            named.insert(path.clone(), NamedFile::Old(bytes.clone()));
        }
    }
    let (mut written, mut durable) = (HashMap::new(), HashMap::new());
    for operation in operations {
        match operation {
            Operation::Create(file) => {
                written.insert(*file, Vec::new());
                durable.insert(*file, Vec::new());
            }
            Operation::Write(file, start, bytes) => {
                let content = written.get_mut(file).unwrap();
                let start = usize::try_from(*start).unwrap();
                content.resize(content.len().max(start + bytes.len()), 0);
                content[start..start + bytes.len()].copy_from_slice(bytes);
            }
            Operation::Sync(file) => {
                durable.insert(*file, written[file].clone());
            }
            Operation::Link(file, path) => {
                let path = relative(path);
                named.insert(path.clone(), NamedFile::New(*file));
                changes.push(EntryChange::Name(path, NamedFile::New(*file)));
            }
            Operation::Rename(from, to) => {
                let (from, to) = (relative(from), relative(to));
                let file = named.remove(&from).unwrap();
                named.insert(to.clone(), file.clone());
                changes.push(EntryChange::Move(from, to, file));
            }
            Operation::Remove(path) => {
                named.remove(&relative(path)).unwrap();
                changes.push(EntryChange::Remove(relative(path)));
            }
            Operation::CreateDirectory(path) => {
                changes.push(EntryChange::Directory(relative(path)));
            }
            Operation::SyncDirectory(path) => {
                let directory = relative(path);
                let of_it = (0..changes.len()).filter(|n| changes[*n].directory() == directory);
                synced.extend(of_it);
            }
        }
    }
    let pending: Vec<usize> = (0..changes.len()).filter(|n| !synced.contains(n)).collect();
    assert!(pending.len() <= 12, "{pending:?}");
    let mut found = BTreeSet::new();
    for subset in 0u32..1 << pending.len() {
        for content in [&durable, &written] {
            let mut tree = old.clone();
            for (n, change) in changes.iter().enumerate() {
                let is_lost = pending
                    .iter()
                    .position(|p| *p == n)
                    .is_some_and(|bit| subset >> bit & 1 == 0);
                if is_lost {
                    continue;
                }
                let bytes = |file: &NamedFile| match file {
                    NamedFile::Old(bytes) => Entry::File(bytes.clone()),
                    NamedFile::New(number) => Entry::File(content[number].clone()),
                };
                match change {
                    EntryChange::Name(path, file) => drop(tree.insert(path.clone(), bytes(file))),
                    EntryChange::Move(from, to, file) => {
                        tree.remove(from);
                        tree.insert(to.clone(), bytes(file));
                    }
                    EntryChange::Remove(path) => drop(tree.remove(path)),
                    EntryChange::Directory(path) => {
                        tree.insert(path.clone(), Entry::Directory);
                    }
                }
            }
            let directories: BTreeSet<PathBuf> = tree
                .iter()
                .filter(|(_, entry)| **entry == Entry::Directory)
                .map(|(path, _)| path.clone())
                .collect();
            tree.retain(|path, _| {
                let mut above = path.ancestors().skip(1);
                above.all(|a| a.as_os_str().is_empty() || directories.contains(a))
            });
            found.insert(tree);
        }
    }
    found
}

/// What a run writes, and where.
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

/// Writes three tensors of 4 bytes with this value to `out`.
fn write(
    root: &Path,
    form: Form,
    value: u8,
    overwrite: bool,
    system: Arc<dyn FileOperations>,
) -> Result<()> {
    write_with(root, form, value, overwrite, system, &[])
}

/// As [`write`], with companion files.
fn write_with(
    root: &Path,
    form: Form,
    value: u8,
    overwrite: bool,
    system: Arc<dyn FileOperations>,
    companions: &[CompanionFile],
) -> Result<()> {
    let mut sink = SafetensorsSink::new(root.join("out"), form.sharding())
        .overwrite(overwrite)
        .companions(Companions {
            files: companions.to_vec(),
            ..Companions::default()
        });
    sink.system = system;
    let spec = |name: &str| TensorSpec {
        name: name.into(),
        shape: Shape::from_slice(&[4]),
        dtype: Dtype::U8,
    };
    sink.begin(&["a", "b", "c"].map(spec))?;
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
    values.pop_first().filter(|_| values.is_empty())
}

/// What readers find at `out`: this library, which prefers an index, and transformers, which prefers the single file and
/// does not read shards without an index.
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

/// A recorded run over an old checkpoint.
struct RecordedRun {
    root: TestDirectory,
    old: Tree,
    operations: Vec<Operation>,
}

fn record(old: Option<Form>, new: Form, unnamed: bool) -> RecordedRun {
    record_with(old, new, unnamed, |_| Vec::new())
}

/// As [`record`], with the companion files that `companions` returns for a value of the tensors.
fn record_with(
    old: Option<Form>,
    new: Form,
    unnamed: bool,
    companions: impl Fn(u8) -> Vec<CompanionFile>,
) -> RecordedRun {
    let root = TestDirectory::new();
    if let Some(old) = old {
        let system = Arc::new(RecordingFiles::new(unnamed));
        write_with(&root.0, old, OLD, false, system, &companions(OLD)).unwrap();
    }
    let tree = root.tree();
    let system = Arc::new(RecordingFiles::new(unnamed));
    let overwrite = old.is_some();
    write_with(
        &root.0,
        new,
        NEW,
        overwrite,
        system.clone(),
        &companions(NEW),
    )
    .unwrap();
    let operations = system.operations.lock().unwrap().clone();
    RecordedRun {
        root,
        old: tree,
        operations,
    }
}

impl RecordedRun {
    /// The first state in which a reader finds neither checkpoint, or after the run not the new one.
    fn violation(&self) -> Option<String> {
        let old = (!self.old.is_empty()).then_some(OLD);
        let mut checked = BTreeSet::new();
        for count in 0..=self.operations.len() {
            let is_end = count == self.operations.len();
            for tree in states(&self.old, &self.operations[..count], &self.root.0) {
                if !is_end && !checked.insert(tree.clone()) {
                    continue;
                }
                let directory = TestDirectory::new();
                directory.write(&tree);
                for value in found_values(&directory.0) {
                    if !(value == Some(NEW) || value == old && !is_end) {
                        let names: Vec<_> = tree.keys().collect();
                        return Some(format!(
                            "{value:?} after {count} operations in {names:?}: {:?}",
                            &self.operations[..count]
                        ));
                    }
                }
            }
        }
        None
    }
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
            let run = record(old, new, unnamed);
            let violation = run.violation();
            assert_eq!(violation, None, "{old:?} to {new:?}, unnamed: {unnamed}");
        }
    }
}

/// The replay finds the faults that each step of the protocol prevents.
#[test]
fn each_sync_is_needed() {
    for (old, new) in RUNS {
        let run = record(old, new, true);
        let without = |drops: &dyn Fn(&Operation) -> bool| RecordedRun {
            root: TestDirectory(run.root.0.clone()),
            old: run.old.clone(),
            operations: run
                .operations
                .iter()
                .filter(|o| !drops(o))
                .cloned()
                .collect(),
        };
        let files = without(&|o| matches!(o, Operation::Sync(_)));
        assert!(files.violation().is_some(), "{old:?} to {new:?}: files");
        std::mem::forget(files.root);
        let directories = without(&|o| matches!(o, Operation::SyncDirectory(_)));
        assert!(
            directories.violation().is_some(),
            "{old:?} to {new:?}: directories"
        );
        std::mem::forget(directories.root);
    }
}

#[test]
fn the_next_run_removes_what_an_earlier_one_left() {
    for unnamed in [true, false] {
        for (old, new) in RUNS {
            let run = record(old, new, unnamed);
            let mut states_left = BTreeSet::new();
            for count in 0..=run.operations.len() {
                states_left.extend(states(&run.old, &run.operations[..count], &run.root.0));
            }
            for tree in &states_left {
                for overwrite in [true, false] {
                    let directory = TestDirectory::new();
                    directory.write(tree);
                    let before = found_values(&directory.0);
                    let system = Arc::new(RecordingFiles::new(unnamed));
                    let context = format!("{old:?} to {new:?}, {overwrite}: {:?}", tree.keys());
                    match write(&directory.0, new, 3, overwrite, system) {
                        Ok(()) => {
                            assert_eq!(found_values(&directory.0), [Some(3); 2], "{context}");
                            let names = directory.tree().into_keys();
                            let names: Vec<String> =
                                names.map(|name| name.display().to_string()).collect();
                            assert!(new.is_complete(&names), "{context}: {names:?}");
                        }
                        // what is there already is kept, and a name that lost its bytes is not this library's to remove
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
            }
        }
    }
}

/// `config.json` with this text.
fn config(text: impl Into<Vec<u8>>) -> Vec<CompanionFile> {
    vec![CompanionFile {
        name: "config.json".to_owned(),
        content: CompanionContent::Bytes(text.into()),
    }]
}

#[test]
fn tensors_are_never_found_beside_the_configuration_of_others() {
    for (old, new) in RUNS.into_iter().filter(|(_, new)| *new != Form::File) {
        for unnamed in [true, false] {
            let run = record_with(old, new, unnamed, |value| config([value]));
            for count in 0..=run.operations.len() {
                for tree in states(&run.old, &run.operations[..count], &run.root.0) {
                    let directory = TestDirectory::new();
                    directory.write(&tree);
                    let config = fs::read(directory.0.join("out/config.json")).ok();
                    for value in found_values(&directory.0).into_iter().flatten() {
                        let context =
                            format!("{old:?} to {new:?} after {count}: {:?}", tree.keys());
                        let own = config.as_deref().is_none_or(|config| config == [value]);
                        assert!(own, "{config:?} and {value}: {context}");
                    }
                    if count == run.operations.len() {
                        assert_eq!(found_values(&directory.0), [Some(NEW); 2]);
                        assert_eq!(config.as_deref(), Some(&[NEW][..]));
                    }
                }
            }
        }
    }
}

/// A configuration that stays the same costs no moment without a checkpoint.
#[test]
fn an_equal_configuration_is_not_replaced() {
    for (old, new) in RUNS.into_iter().filter(|(_, new)| *new != Form::File) {
        let run = record_with(old, new, true, |_| config("{}"));
        assert_eq!(run.violation(), None, "{old:?} to {new:?}");
    }
}
