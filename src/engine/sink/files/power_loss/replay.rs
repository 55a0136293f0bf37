//! A file system that may lose whatever was not synced: the states in which it may be after recorded operations.
//!
//! Bytes of a file survive once the file was synced. A write to a file that is changed where it is may
//! survive in part before the file is synced: the sectors from its beginning or to its end, up to any of them. A change of a directory (a link, rename, exchange or removal) survives
//! once the directory was synced; of those that were not, any subset survives. A rename between two directories is a
//! change of each. Directories are inodes too: what was changed in one stays in it when it gets another name, or when
//! its name is lost.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::recording::Operation;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Entry {
    Directory,
    File(Vec<u8>),
}

pub(super) type Tree = BTreeMap<PathBuf, Entry>;

/// The root has number 0.
type DirectoryNumber = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Inode {
    Directory(DirectoryNumber),
    /// Index of its bytes.
    File(usize),
}

/// The inode that each name in each directory leads to.
type Names = BTreeMap<(DirectoryNumber, OsString), Inode>;

/// A change of one directory, of which all or nothing survives.
#[derive(Debug)]
struct DirectoryChange {
    directory: DirectoryNumber,
    names: Vec<(OsString, Option<Inode>)>,
    is_synced: bool,
}

impl DirectoryChange {
    fn apply(&self, names: &mut Names) {
        for (name, inode) in &self.names {
            let name = (self.directory, name.clone());
            match inode {
                Some(inode) => drop(names.insert(name, *inode)),
                None => drop(names.remove(&name)),
            }
        }
    }
}

#[derive(Clone, Debug, Default)]
struct FileBytes {
    written: Vec<u8>,
    durable: Vec<u8>,
    /// Whether it is changed where it is.
    is_in_place: bool,
    /// The bytes that parts of writes leave, before these are synced.
    torn: Vec<Vec<u8>>,
}

/// Bytes that a device writes in one piece.
const SECTOR: usize = 512;

impl FileBytes {
    fn write(&mut self, start: usize, bytes: &[u8]) {
        let before = self.written.clone();
        let content = &mut self.written;
        content.resize(content.len().max(start + bytes.len()), 0);
        content[start..start + bytes.len()].copy_from_slice(bytes);
        if !self.is_in_place {
            return;
        }
        for cut in (0..bytes.len()).step_by(SECTOR).skip(1) {
            let mut mixed = |old: &[u8], new: &[u8], at: usize| {
                let mut torn = new[..at].to_vec();
                // a file that has become longer is so
                torn.extend(&old[at.min(old.len())..]);
                torn.resize(new.len(), 0);
                self.torn.push(torn);
            };
            mixed(&before, &self.written, start + cut);
            mixed(
                &self.written,
                &before_as_long(&before, &self.written),
                start + cut,
            );
        }
    }

    fn insert(&mut self, len: usize) {
        let mut content = vec![0; len];
        content.extend(&self.written);
        self.written = content;
    }
}

fn before_as_long(before: &[u8], written: &[u8]) -> Vec<u8> {
    let mut before = before.to_vec();
    before.resize(written.len(), 0);
    before
}

struct Replay<'r> {
    root: &'r Path,
    /// If nothing is lost.
    names: Names,
    files: Vec<FileBytes>,
    directories: usize,
    changes: Vec<DirectoryChange>,
}

impl Replay<'_> {
    fn directory(&self, path: &Path) -> DirectoryNumber {
        let relative = path.strip_prefix(self.root).unwrap_or(path);
        relative.iter().fold(0, |directory, name| {
            match self.names[&(directory, name.to_owned())] {
                Inode::Directory(number) => number,
                Inode::File(_) => panic!("{} is a file", path.display()),
            }
        })
    }

    fn at(&self, path: &Path) -> (DirectoryNumber, OsString) {
        let directory = self.directory(path.parent().unwrap());
        (directory, path.file_name().unwrap().to_owned())
    }

    fn new_file(&mut self, bytes: FileBytes) -> Inode {
        self.files.push(bytes);
        Inode::File(self.files.len() - 1)
    }

    fn new_directory(&mut self) -> Inode {
        self.directories += 1;
        Inode::Directory(self.directories)
    }

    fn change(&mut self, directory: DirectoryNumber, names: Vec<(OsString, Option<Inode>)>) {
        let change = DirectoryChange {
            directory,
            names,
            is_synced: false,
        };
        change.apply(&mut self.names);
        self.changes.push(change);
    }

    fn name(&mut self, path: &Path, inode: Option<Inode>) {
        let (directory, name) = self.at(path);
        self.change(directory, vec![(name, inode)]);
    }

    fn operation(&mut self, operation: &Operation, numbers: &mut HashMap<usize, usize>) {
        match operation {
            Operation::Create(file) => {
                // without a name, as `O_TMPFILE` makes it: a name is a link, which may be lost alone
                self.new_file(FileBytes::default());
                numbers.insert(*file, self.files.len() - 1);
            }
            Operation::Write(file, start, bytes) => {
                self.files[numbers[file]].write(usize::try_from(*start).unwrap(), bytes);
            }
            Operation::Open(file, path) => {
                let Inode::File(index) = self.names[&self.at(path)] else {
                    panic!("{} is a directory", path.display());
                };
                self.files[index].is_in_place = true;
                numbers.insert(*file, index);
            }
            Operation::Insert(file, len) => {
                self.files[numbers[file]].insert(usize::try_from(*len).unwrap());
            }
            Operation::Sync(file) => {
                let file = &mut self.files[numbers[file]];
                file.torn.clear();
                file.durable.clone_from(&file.written);
            }
            Operation::Link(file, path) => self.name(path, Some(Inode::File(numbers[file]))),
            Operation::LinkExisting(from, to) => {
                let inode = self.names[&self.at(from)];
                self.name(to, Some(inode));
            }
            Operation::Rename(from, to) => {
                let ((from_directory, from), (to_directory, to)) = (self.at(from), self.at(to));
                let inode = Some(self.names[&(from_directory, from.clone())]);
                if from_directory == to_directory {
                    self.change(to_directory, vec![(from, None), (to, inode)]);
                } else {
                    self.change(to_directory, vec![(to, inode)]);
                    self.change(from_directory, vec![(from, None)]);
                }
            }
            Operation::Exchange(a, b) => {
                let (a, b) = (self.at(a), self.at(b));
                assert_eq!(a.0, b.0, "an exchange within a directory");
                let (of_a, of_b) = (self.names[&a], self.names[&b]);
                self.change(a.0, vec![(a.1, Some(of_b)), (b.1, Some(of_a))]);
            }
            Operation::Remove(path) => {
                assert!(self.names.contains_key(&self.at(path)), "{path:?}");
                self.name(path, None);
            }
            Operation::CreateDirectory(path) => {
                let directory = self.new_directory();
                self.name(path, Some(directory));
            }
            Operation::RemoveDirectory(path) => {
                let directory = self.directory(path);
                assert!(!self.names.keys().any(|name| name.0 == directory));
                self.name(path, None);
            }
            Operation::SyncDirectory(path) => {
                let directory = self.directory(path);
                let changes = self.changes.iter_mut();
                changes
                    .filter(|change| change.directory == directory)
                    .for_each(|change| change.is_synced = true);
            }
        }
    }

    /// The names that may survive.
    fn surviving_names(&self, before: Names) -> BTreeSet<Names> {
        let mut states = BTreeSet::from([before]);
        for change in &self.changes {
            let changed = states.iter().cloned().map(|mut names| {
                change.apply(&mut names);
                names
            });
            let changed: BTreeSet<Names> = changed.collect();
            if change.is_synced {
                states = changed;
            } else {
                states.extend(changed);
            }
            // each change that is not synced doubles the states
            assert!(states.len() <= 1 << 13, "{:?}", self.changes);
        }
        states
    }

    /// The files, of which one may have other bytes.
    fn tree(&self, names: &Names, is_written: bool, torn: Option<(usize, &[u8])>) -> Tree {
        let (mut tree, mut open) = (Tree::new(), vec![(0, PathBuf::new())]);
        while let Some((directory, path)) = open.pop() {
            // the empty name sorts before all others
            let from = (directory, OsString::new());
            let in_it = names
                .range(from..)
                .take_while(|((at, _), _)| *at == directory);
            for ((_, name), inode) in in_it {
                let path = path.join(name);
                let entry = match inode {
                    Inode::Directory(number) => {
                        open.push((*number, path.clone()));
                        Entry::Directory
                    }
                    Inode::File(number) if torn.is_some_and(|(file, _)| file == *number) => {
                        Entry::File(torn.expect("there is one").1.to_vec())
                    }
                    Inode::File(number) if is_written => {
                        Entry::File(self.files[*number].written.clone())
                    }
                    Inode::File(number) => Entry::File(self.files[*number].durable.clone()),
                };
                tree.insert(path, entry);
            }
        }
        tree
    }
}

/// The states that may be left after operations on a directory, which contained `old`.
pub(super) fn states(old: &Tree, operations: &[Operation], root: &Path) -> BTreeSet<Tree> {
    let mut replay = Replay {
        root,
        names: Names::new(),
        files: Vec::new(),
        directories: 0,
        changes: Vec::new(),
    };
    // a directory sorts before what it contains
    for (path, entry) in old {
        let inode = match entry {
            Entry::Directory => replay.new_directory(),
            Entry::File(bytes) => replay.new_file(FileBytes {
                written: bytes.clone(),
                durable: bytes.clone(),
                ..FileBytes::default()
            }),
        };
        replay.name(path, Some(inode));
    }
    // the old checkpoint is durable: its run has ended
    replay.changes.clear();
    let before = replay.names.clone();
    let mut numbers = HashMap::new();
    for operation in operations {
        replay.operation(operation, &mut numbers);
    }
    let names = replay.surviving_names(before);
    let states = names
        .iter()
        // the written bytes of all files survive, or only the synced ones of all
        .flat_map(|names| [true, false].map(|is_written| replay.tree(names, is_written, None)));
    let mut states: BTreeSet<Tree> = states.collect();
    for (number, file) in replay.files.iter().enumerate() {
        for torn in &file.torn {
            let torn = |names| replay.tree(names, true, Some((number, torn)));
            states.extend(names.iter().map(torn));
        }
    }
    states
}
