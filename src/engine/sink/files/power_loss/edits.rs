//! Edits of files where they are: every prefix of the recorded operations, with every part of a write that may be left of it, and
//! every end of the process. Every state is the one before the edit or the one after it, or becomes one of them by the
//! journal.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::recording::RecordingFiles;
use super::replay::{Entry, Tree, states};
use super::{TestDirectory, is_hidden};
use crate::base::error::{Remedy, Result};
use crate::base::limits::{Budget, Limits};
use crate::base::progress::RunControl;
use crate::engine::sink::files::in_place::{
    EditOptions, EditPlace, EditWay, EditedFile, FileChange, NewHeader,
};
use crate::engine::sink::files::operations::FileOperations;
use crate::read::checkpoint::Checkpoint;

/// Bytes of the tensor of each file: more than one block of a file system.
const DATA: usize = 6000;

/// A header with a note, and spaces.
struct TestHeader(String);

impl TestHeader {
    fn new(note: &str) -> Self {
        Self(format!(
            r#"{{"__metadata__":{{"note":"{note}"}},"w":{{"dtype":"U8","shape":[{DATA}],"data_offsets":[0,{DATA}]}}}}"#
        ))
    }
}

impl NewHeader for TestHeader {
    fn least(&self) -> u64 {
        8 + self.0.len() as u64
    }

    fn of_length(&self, nbytes: u64) -> Option<Vec<u8>> {
        let len = usize::try_from(nbytes).ok()?.checked_sub(8)?;
        let spaces = len.checked_sub(self.0.len())?;
        let text = format!("{}{}", self.0, " ".repeat(spaces));
        Some([&(len as u64).to_le_bytes()[..], text.as_bytes()].concat())
    }

    fn alignment(&self) -> u64 {
        8
    }
}

/// A file with a note, and this much room.
fn file(note: &str, room: u64) -> Vec<u8> {
    let header = TestHeader::new(note);
    let mut bytes = header.of_length(header.least() + room).unwrap();
    bytes.extend((0..DATA).map(|n| u8::try_from(n % 251).unwrap()));
    bytes
}

/// The files of an edit: names, and the room of each.
struct EditCase {
    name: &'static str,
    files: &'static [(&'static str, u64)],
    /// A file that is replaced whole.
    index: bool,
    copy: bool,
    /// The way of each file.
    ways: &'static [EditWay],
}

const LONG: usize = 1500;

static CASES: &[EditCase] = &[
    EditCase {
        name: "room",
        files: &[("a.safetensors", 4000)],
        index: false,
        copy: false,
        ways: &[EditWay::Room],
    },
    EditCase {
        name: "insert",
        files: &[("a.safetensors", 8)],
        index: false,
        copy: false,
        ways: &[EditWay::Insert],
    },
    EditCase {
        name: "copy",
        files: &[("a.safetensors", 8)],
        index: false,
        copy: true,
        ways: &[EditWay::Copy],
    },
    EditCase {
        name: "directory",
        files: &[
            ("a.safetensors", 4000),
            ("b.safetensors", 8),
            ("c.safetensors", 8),
        ],
        index: true,
        copy: false,
        ways: &[
            EditWay::Room,
            EditWay::Insert,
            EditWay::Insert,
            EditWay::Copy,
        ],
    },
    EditCase {
        name: "copied directory",
        files: &[("a.safetensors", 4000), ("b.safetensors", 8)],
        index: true,
        copy: true,
        ways: &[EditWay::Copy, EditWay::Copy, EditWay::Copy],
    },
];

impl EditCase {
    fn write_old(&self, root: &Path) {
        for (name, room) in self.files {
            std::fs::write(root.join(name), file("old", *room)).unwrap();
        }
        if self.index {
            std::fs::write(root.join("index.json"), "old").unwrap();
        }
    }

    fn edit(&self, root: &Path, system: Arc<dyn FileOperations>) -> Result<Vec<EditedFile>> {
        let control = RunControl::default();
        let place = EditPlace::lock_with(system, root, &control)?;
        let budget = Budget::new(Limits::default());
        place.settle(None, &budget)?;
        let note = "new ".repeat(LONG / 4);
        let mut changes = Vec::new();
        for (name, _) in self.files {
            let target = place.open(&root.join(name), self.copy)?;
            let front = usize::try_from(target.len()).unwrap() - DATA;
            let mut old = vec![0; front];
            target.read(0, &mut old)?;
            changes.push(FileChange::Header {
                target,
                old,
                new: Box::new(TestHeader::new(&note)),
                format: "safetensors",
            });
        }
        if self.index {
            changes.push(FileChange::Whole {
                target: place.open(&root.join("index.json"), self.copy)?,
                bytes: b"new, and longer".to_vec(),
            });
        }
        let options = EditOptions {
            copy: self.copy,
            compact: false,
            insert_from: 1,
        };
        place.commit(changes, options, &control)
    }

    /// The note of each file, and the beginning of the index; `None` for a file that cannot be opened, or whose tensor differs.
    fn found(&self, root: &Path) -> BTreeMap<PathBuf, Option<bool>> {
        let mut found = BTreeMap::new();
        for (name, _) in self.files {
            let path = root.join(name);
            let is_new = Checkpoint::open(&path).ok().and_then(|checkpoint| {
                let bytes = checkpoint.tensor("w")?.bytes().ok()?.to_vec();
                let expected = file("", 0);
                (bytes[..] == expected[expected.len() - DATA..])
                    .then(|| checkpoint.catalog().metadata().text("note") != Some("old"))
            });
            found.insert(path, is_new);
        }
        if self.index {
            let path = root.join("index.json");
            let is_new = std::fs::read_to_string(&path).ok();
            found.insert(path, is_new.map(|text| text.starts_with("new")));
        }
        found
    }

    /// Whether all files are as before (`false`) or as after; `None` for a mixture.
    fn outcome(&self, root: &Path) -> Option<bool> {
        let found = self.found(root);
        let mut values = found.values();
        let first = (*values.next().unwrap())?;
        values.all(|value| *value == Some(first)).then_some(first)
    }
}

/// The recorded operations of an edit, and the files before it; none where the file system cannot do it so.
fn recorded(case: &EditCase) -> Option<(TestDirectory, Tree, Vec<super::recording::Operation>)> {
    let root = TestDirectory::new();
    case.write_old(&root.0);
    let old = root.tree();
    let system = Arc::new(RecordingFiles::new(true));
    let files = case.edit(&root.0, system.clone()).unwrap();
    let ways: Vec<EditWay> = files.iter().map(|file| file.way).collect();
    if ways != case.ways {
        eprintln!("SKIPPED: {}: the file system edits by {ways:?}", case.name);
        return None;
    }
    assert_eq!(case.outcome(&root.0), Some(true));
    assert!(root.tree().keys().all(|path| !path.iter().any(is_hidden)));
    Some((root, old, system.operations()))
}

fn settle(root: &Path, system: Arc<dyn FileOperations>) -> Result<()> {
    let place = EditPlace::lock_with(system, root, &RunControl::default())?;
    place
        .settle(None, &Budget::new(Limits::default()))
        .map(drop)
}

/// Checks that the files are of one state, or become so when they are recovered, also if that is interrupted.
fn check_left(case: &EditCase, tree: &Tree, context: &str) {
    let directory = TestDirectory::new();
    directory.write(tree);
    let root = &directory.0;
    let has_journal = tree
        .keys()
        .any(|path| path.to_string_lossy().ends_with(".anamnesis-edit"));
    let before = case.outcome(root);
    assert!(
        before.is_some() || has_journal,
        "{context}: {:?}",
        case.found(root)
    );
    // a file that cannot be opened says what to do
    for (name, _) in case.files {
        if let Err(error) = Checkpoint::open(root.join(name)) {
            assert_eq!(
                error.remedy(),
                Some(Remedy::RecoverEdit),
                "{context}: {error}"
            );
        }
    }
    if before.is_none() {
        for calls in 0..4 {
            let system = RecordingFiles::new(true);
            system.end_after(calls);
            // ends in the middle, or completes
            let _ = settle(root, Arc::new(system));
        }
    }
    settle(root, Arc::new(RecordingFiles::new(true))).unwrap_or_else(|e| panic!("{context}: {e}"));
    let after = case.outcome(root);
    assert!(after.is_some(), "{context}: {:?}", case.found(root));
    assert!(before.is_none() || before == after, "{context}");
    // nothing keeps the next edit from its work, which leaves nothing
    case.edit(root, Arc::new(RecordingFiles::new(true)))
        .unwrap_or_else(|e| panic!("{context}: {e}"));
    assert_eq!(case.outcome(root), Some(true), "{context}");
    let left: Vec<_> = directory.tree().into_keys().collect();
    assert!(
        !left.iter().any(|path| path.iter().any(is_hidden)),
        "{context}: {left:?}"
    );
}

#[test]
fn a_loss_of_power_leaves_an_edit_that_can_be_completed() {
    for case in CASES {
        let Some((root, old, operations)) = recorded(case) else {
            continue;
        };
        let mut checked = std::collections::BTreeSet::new();
        for count in 0..=operations.len() {
            for tree in states(&old, &operations[..count], &root.0) {
                if checked.insert(tree.clone()) {
                    let context = format!("{} after {count} of {}", case.name, operations.len());
                    check_left(case, &tree, &context);
                }
            }
        }
        assert!(checked.len() > 2, "{}: {} states", case.name, checked.len());
        println!("{}: {} states", case.name, checked.len());
    }
}

#[test]
fn an_edit_that_is_killed_at_any_call_can_be_completed() {
    for case in CASES {
        let Some((_, old, operations)) = recorded(case) else {
            continue;
        };
        for calls in 0..operations.len() + 4 {
            let root = TestDirectory::new();
            root.write(&old);
            let system = RecordingFiles::new(true);
            system.end_after(calls);
            let _ = case.edit(&root.0, Arc::new(system));
            let tree = root.tree();
            check_left(case, &tree, &format!("{} killed at {calls}", case.name));
            // the files that it was to rename are removed by hand
            let is_part = |path: &Path| path.extension().is_some_and(|ending| ending == "part");
            let mut rest = tree;
            rest.retain(|path, _| !is_part(path));
            let context = format!("{} killed at {calls}, without its parts", case.name);
            check_left(case, &rest, &context);
        }
    }
}

/// Without the journal, or without a sync in front of what it promises, the replay finds files that nothing completes.
#[test]
fn the_journal_and_each_sync_are_needed() {
    use super::recording::Operation;
    for case in CASES {
        let Some((root, old, operations)) = recorded(case) else {
            continue;
        };
        if case.ways == [EditWay::Copy] {
            continue;
        }
        let is_lost = |operations: &[Operation]| {
            (0..=operations.len()).any(|count| {
                states(&old, &operations[..count], &root.0)
                    .iter()
                    .any(|tree| {
                        let directory = TestDirectory::new();
                        directory.write(tree);
                        let _ = settle(&directory.0, Arc::new(RecordingFiles::new(true)));
                        case.outcome(&directory.0).is_none()
                    })
            })
        };
        assert!(!is_lost(&operations), "{}", case.name);
        let without: Vec<Operation> = operations
            .iter()
            .filter(|operation| !matches!(operation, Operation::Sync(_)))
            .cloned()
            .collect();
        assert!(is_lost(&without), "{}: without syncs", case.name);
    }
}

/// An error at any call leaves the files as before, or says that they are to be recovered.
#[test]
fn a_failed_edit_changes_nothing_or_says_how_it_is_completed() {
    for case in CASES {
        let Some((_, old, operations)) = recorded(case) else {
            continue;
        };
        for calls in 0..operations.len() {
            let root = TestDirectory::new();
            root.write(&old);
            let system = Arc::new(RecordingFiles::new(true));
            system.fail_after(calls, rustix::io::Errno::NOSPC);
            let done = case.edit(&root.0, system.clone());
            let context = format!("{} failed at {calls}: {:?}", case.name, case.found(&root.0));
            match done {
                Ok(_) => assert_eq!(case.outcome(&root.0), Some(true), "{context}"),
                Err(error) if error.remedy() == Some(Remedy::RecoverEdit) => {
                    settle(&root.0, Arc::new(RecordingFiles::new(true))).unwrap();
                    assert!(case.outcome(&root.0).is_some(), "{context}: {error}");
                }
                // an error behind the rename of the only file is about its durability
                Err(error) if case.ways == [EditWay::Copy] => {
                    assert!(case.outcome(&root.0).is_some(), "{context}: {error}");
                }
                Err(error) => {
                    let left = root.tree();
                    let names = |tree: &Tree| -> Vec<PathBuf> { tree.keys().cloned().collect() };
                    let is_same = |path: &PathBuf| matches!((&left[path], &old[path]), (Entry::File(a), Entry::File(b)) if a == b);
                    assert!(old.keys().all(is_same), "{context}: {error}");
                    assert_eq!(names(&left), names(&old), "{context}: {error}");
                }
            }
        }
    }
}
