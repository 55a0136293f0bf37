//! Other processes that work in the same directories while one is exchanged: they lose nothing.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anamnesis_os::files::{create_locked, resolved};

use super::changed_companions::{config, exchanges};
use super::recording::RecordingFiles;
use super::{CONFIG, Form, NEW, OLD, TestDirectory, found_values, write};
use crate::base::error::{ErrorKind, Result};
use crate::engine::companions::{CompanionContent, CompanionFile};
use crate::engine::sink::files::names::PartNames;

/// A directory that contains an old checkpoint.
fn with_checkpoint() -> TestDirectory {
    let root = TestDirectory::new();
    let system = Arc::new(RecordingFiles::new(true));
    write(&root.0, Form::Shards, OLD, false, system, config([OLD])).unwrap();
    root
}

fn overwrite(
    root: &TestDirectory,
    companions: Vec<CompanionFile>,
    before_exchange: fn(&Path),
) -> (Result<()>, usize) {
    let system = Arc::new(RecordingFiles::new(true));
    system.before_exchange(before_exchange);
    let result = write(&root.0, Form::Shards, NEW, true, system.clone(), companions);
    (result, exchanges(&system.operations()))
}

/// The paths in the directory, of which hidden ones are in other places.
fn paths(root: &TestDirectory) -> Vec<String> {
    let paths = root.tree().into_keys();
    paths.map(|path| path.display().to_string()).collect()
}

#[test]
fn what_is_written_before_the_exchange_is_in_the_new_directory() {
    let root = with_checkpoint();
    let path = |name: &str| root.0.join("out").join(name);
    fs::write(path("README.md"), "first").unwrap();
    fs::write(path("removed"), "").unwrap();
    let (written, exchanges) = overwrite(&root, config([NEW]), |out| {
        fs::write(out.join("notes.new"), "second").unwrap();
        fs::rename(out.join("notes.new"), out.join("README.md")).unwrap();
        fs::write(out.join("log"), "a line").unwrap();
        fs::create_dir(out.join("directory")).unwrap();
        fs::write(out.join("directory/file"), "").unwrap();
    });
    written.unwrap();
    assert_eq!(exchanges, 1);
    assert_eq!(found_values(&root.0), [Some(NEW); 2]);
    assert_eq!(fs::read(path("README.md")).unwrap(), b"second");
    assert_eq!(fs::read(path("log")).unwrap(), b"a line");
    assert!(path("directory/file").is_file());
    let hidden = paths(&root).into_iter().find(|path| path.contains("/."));
    assert_eq!(hidden, None);
}

/// A file that another process gives the name of a new one is in neither's way, and is not removed.
#[test]
fn a_file_that_has_the_name_of_a_new_one_is_left_where_the_error_says() {
    let root = with_checkpoint();
    let mut companions = config([NEW]);
    companions.push(CompanionFile {
        name: "tokenizer.json".to_owned(),
        content: CompanionContent::Bytes(b"{}".to_vec()),
    });
    let (written, _) = overwrite(&root, companions.clone(), |out| {
        fs::write(out.join("tokenizer.json"), "another").unwrap();
    });
    let error = written.unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Io(e) if e.kind() == std::io::ErrorKind::AlreadyExists),
        "{error}"
    );
    let left = error.path().unwrap().to_owned();
    assert_eq!(fs::read(&left).unwrap(), b"another");
    assert_eq!(found_values(&root.0), [Some(NEW); 2]);
    // the next run leaves it too
    let (written, _) = overwrite(&root, config([3]), |_| {});
    written.unwrap();
    assert_eq!(fs::read(&left).unwrap(), b"another");
}

#[test]
fn a_directory_that_is_renamed_before_the_exchange_is_left() {
    let root = with_checkpoint();
    fs::write(root.0.join("out/README.md"), "mine").unwrap();
    let before = root.tree();
    let (written, _) = overwrite(&root, config([NEW]), |out| {
        fs::rename(out, out.with_file_name("moved")).unwrap();
        fs::create_dir(out).unwrap();
        fs::write(out.join("file"), "another").unwrap();
    });
    assert!(written.is_err());
    assert_eq!(fs::read(root.0.join("out/file")).unwrap(), b"another");
    fs::remove_dir_all(root.0.join("out")).unwrap();
    fs::rename(root.0.join("moved"), root.0.join("out")).unwrap();
    assert!(root.tree() == before, "{:?}", paths(&root));
}

#[test]
fn a_file_that_another_run_is_writing_stays_in_its_directory() {
    for name in ["model.safetensors", "out"] {
        let root = with_checkpoint();
        let out = root.0.join("out");
        let part = PartNames::new(&out, name.as_ref()).unused(None);
        let lock = create_locked(&part).unwrap().unwrap();
        let inode = fs::metadata(&out).unwrap().ino();
        let (written, exchanges) = overwrite(&root, config([NEW]), |_| {});
        written.unwrap();
        assert_eq!(exchanges, 0);
        assert_eq!(fs::metadata(&out).unwrap().ino(), inode);
        assert_eq!(found_values(&root.0), [Some(NEW); 2]);
        assert!(part.is_file());
        // an abandoned one is removed
        drop(lock);
        let (written, exchanges) = overwrite(&root, config([3]), |_| {});
        written.unwrap();
        assert_eq!(exchanges, 1);
        assert!(!part.exists());
    }
}

/// The name of a directory that takes the place of `out`.
fn staging_path(root: &TestDirectory) -> PathBuf {
    PartNames::new(&resolved(&root.0), "out".as_ref()).unused(None)
}

/// Marks a directory as a dead process's.
fn mark(directory: &Path) {
    fs::write(directory.join(directory.file_name().unwrap()), "").unwrap();
}

#[test]
fn directories_that_no_dead_run_has_left_are_not_removed() {
    let root = with_checkpoint();
    // a run that lives
    let live = staging_path(&root);
    fs::create_dir(&live).unwrap();
    let _lock = create_locked(&live.join(live.file_name().unwrap())).unwrap();
    fs::write(live.join("file"), "").unwrap();
    // without a marker, with another's, and with a directory in it
    let (unmarked, other, nested) = (
        staging_path(&root),
        staging_path(&root),
        staging_path(&root),
    );
    for directory in [&unmarked, &other, &nested] {
        fs::create_dir(directory).unwrap();
        fs::write(directory.join("file"), "").unwrap();
    }
    fs::write(other.join(nested.file_name().unwrap()), "").unwrap();
    fs::create_dir(nested.join("directory")).unwrap();
    mark(&nested);
    // links to a directory, and of a marker
    let (victim, link, linked) = (
        root.0.join("victim"),
        staging_path(&root),
        staging_path(&root),
    );
    fs::create_dir(&victim).unwrap();
    fs::write(victim.join("file"), "").unwrap();
    fs::write(victim.join(link.file_name().unwrap()), "").unwrap();
    symlink(&victim, &link).unwrap();
    fs::create_dir(&linked).unwrap();
    fs::write(linked.join("file"), "").unwrap();
    symlink(
        victim.join("file"),
        linked.join(linked.file_name().unwrap()),
    )
    .unwrap();
    // a directory of another owner, where this process may create one
    let foreign = staging_path(&root);
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("file"), "").unwrap();
    mark(&foreign);
    let is_foreign = std::os::unix::fs::chown(&foreign, Some(54_321), None).is_ok();
    // those that a dead run has left: marked, and not marked yet
    let (dead, empty) = (staging_path(&root), staging_path(&root));
    fs::create_dir(&dead).unwrap();
    fs::write(dead.join("file"), "").unwrap();
    symlink(&victim, dead.join("link")).unwrap();
    mark(&dead);
    fs::create_dir(&empty).unwrap();

    let kept: Vec<String> = {
        let is_left = |path: &String| {
            let path = root.0.join(path);
            !path.starts_with(&dead)
                && path != empty
                && !path.starts_with(root.0.join("out"))
                && (is_foreign || !path.starts_with(&foreign))
        };
        paths(&root).into_iter().filter(is_left).collect()
    };
    assert!(kept.len() > 12, "{kept:?}");
    let (written, exchanges) = overwrite(&root, config([NEW]), |_| {});
    written.unwrap();
    assert_eq!(exchanges, 1);
    assert_eq!(fs::read(root.0.join(CONFIG)).unwrap(), [NEW]);
    let left = paths(&root).into_iter();
    let left: Vec<String> = left.filter(|path| !path.starts_with("out")).collect();
    assert_eq!(left, kept);
}
