//! Opening a checkpoint while another process replaces it.
//!
//! A writer gives a new checkpoint its names before it removes the old files, so that at any time a complete one is there.
//! A reader, however, lists a directory, reads an index and opens the files that it names, one after the other: between two
//! of these steps the checkpoint that it began with may have gone. It then begins again; so does one that collects the faults
//! of a checkpoint, if it finds some.

use std::ffi::OsStr;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anamnesis_os::directory_lock::is_locked;
use anamnesis_os::files::directory_of;

use super::{Checkpoint, OpenOptions};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits::{Budget, text_cost};
use crate::read::catalog::quote;
use crate::read::source::files::Files;

/// How often a checkpoint is opened at most. A writer changes a directory once per checkpoint, so that a reader which fails
/// this often beside changes is beside something else.
const ATTEMPTS: usize = 32;

/// Calls `open` again if it fails for want of a file, or collects faults, for as long as the names in the directory change.
pub(super) fn open_stable(
    path: &Path,
    options: &OpenOptions,
    open: impl Fn() -> Result<Checkpoint>,
) -> Result<Checkpoint> {
    let mut watch: Option<NameWatch> = None;
    for _ in 1..ATTEMPTS {
        let opened = open();
        let is_whole = match &opened {
            Err(error) => !is_for_want_of_a_file(error, path),
            Ok(checkpoint) => !options.has_faults() && !checkpoint.is_half_replaced,
        };
        if is_whole {
            return opened;
        }
        options.check_cancelled()?;
        // after the failure: what is opened otherwise costs no listing
        let has_changed = match &mut watch {
            Some(watch) => watch.has_changed(),
            None => {
                watch = NameWatch::begin(path, |_| true);
                watch.is_some()
            }
        };
        if !has_changed {
            return opened;
        }
    }
    open()
}

/// Whether a run keeps a file of the old or the new checkpoint under this name until it has replaced the whole, where no
/// directory can be exchanged for another one (`engine::sink`).
pub(super) fn is_hidden_name(name: &str) -> bool {
    let ends = [".old", ".new-index", ".new-single"];
    name.starts_with(".anamnesis-") && ends.iter().any(|end| name.ends_with(end))
}

/// Whether this is the name of a file under construction: of a run that writes, or of one that was killed.
pub(crate) fn is_part_name(name: &str) -> bool {
    name.starts_with(".anamnesis-") && name.ends_with(".part")
}

/// Whether the run that hid a file was interrupted: it locks the directory for as long as it has hidden names. False also
/// where the file has gone since its name was listed.
pub(super) fn is_left(files: &Files, directory: &Path, hidden: &str) -> bool {
    // in this order: a hidden file that is there after the lock was free is of a run that has ended
    !(files.is_local() && is_locked(directory)) && files.exists(&directory.join(hidden))
}

/// The meaning of a name in a directory: that a run was interrupted, if it is a hidden name that one has left.
pub(super) fn left(files: &Files, directory: &Path, name: &str) -> Option<&'static str> {
    (is_hidden_name(name) && is_left(files, directory, name)).then_some(INTERRUPTED)
}

/// The meaning of hidden names in a directory.
const INTERRUPTED: &str =
    "a run that was replacing this checkpoint was interrupted, or is under way";

/// The warning about a checkpoint that a run was replacing when it was interrupted.
pub(super) fn interrupted(hidden: &str) -> String {
    format!(
        "{INTERRUPTED}: files of it have hidden names, such as {}; the next run into the directory finishes it",
        quote(hidden)
    )
}

/// The names in the directory of a path that are watched, and the files behind them.
pub(crate) struct NameWatch {
    path: PathBuf,
    wanted: fn(&OsStr) -> bool,
    hasher: RandomState,
    last: u64,
}

impl NameWatch {
    /// Notices the names that are there and `wanted`; `None` if the directory cannot be listed.
    pub(crate) fn begin(path: &Path, wanted: fn(&OsStr) -> bool) -> Option<Self> {
        let mut watch = Self {
            path: path.to_owned(),
            wanted,
            hasher: RandomState::new(),
            last: 0,
        };
        watch.last = watch.sum()?;
        Some(watch)
    }

    /// Whether the names are others than when this was last called.
    pub(crate) fn has_changed(&mut self) -> bool {
        // a directory that cannot be listed any more says nothing
        let Some(sum) = self.sum() else {
            return false;
        };
        std::mem::replace(&mut self.last, sum) != sum
    }

    /// Whether a name has changed in the last quarter of a second. A writer that removes the files of the old checkpoint one by one may have been
    /// interrupted between two of them.
    pub(crate) fn has_just_changed(&self) -> bool {
        let meta = self.directory().and_then(|path| path.metadata().ok());
        let changed = meta.and_then(|meta| meta.modified().ok());
        let ago = changed.and_then(|changed| changed.elapsed().ok());
        ago.is_some_and(|ago| ago < Duration::from_millis(250))
    }

    /// The path itself, or the directory of a file.
    fn directory(&self) -> Option<&Path> {
        let meta = std::fs::metadata(&self.path).ok()?;
        Some(match meta.is_dir() {
            true => &self.path,
            false => directory_of(&self.path),
        })
    }

    /// A sum over the names and the files behind them, which needs no memory whatever the directory's size.
    fn sum(&self) -> Option<u64> {
        let mut sum = 0u64;
        for entry in std::fs::read_dir(self.directory()?).ok()? {
            let entry = entry.ok()?;
            let name = entry.file_name();
            if !(self.wanted)(&name) {
                continue;
            }
            // another file of the same name is a change too, also one with the number of a file that was removed
            let Ok(meta) = entry.metadata() else {
                sum = sum.wrapping_add(1);
                continue;
            };
            #[cfg(unix)]
            let number = {
                use std::os::unix::fs::MetadataExt;
                (meta.ino(), meta.ctime(), meta.ctime_nsec())
            };
            #[cfg(not(unix))]
            let number = meta.modified().ok();
            sum = sum.wrapping_add(self.hasher.hash_one((name, number)));
        }
        Some(sum)
    }
}

/// Whether another process is changing the models of a local directory, or has just done so.
pub(super) fn is_changing(directory: &Path) -> bool {
    let watch = || NameWatch::begin(directory, |_| true);
    is_locked(directory) || watch().is_some_and(|watch| watch.has_just_changed())
}

pub(super) fn is_for_want_of_a_file(error: &Error, path: &Path) -> bool {
    match error.kind() {
        ErrorKind::MissingPart(_) | ErrorKind::Replaced(_) => true,
        // a directory that was exchanged for another one while it was listed is empty; and on Btrfs a listing has neither the old
        // nor the new file of a name that is given to another one meanwhile, so that shards lack their index
        ErrorKind::UnknownFormat { .. } | ErrorKind::Unsupported(_) => {
            error.path().unwrap_or(path).is_dir()
        }
        ErrorKind::Io(e) => e.kind() == std::io::ErrorKind::NotFound,
        _ => false,
    }
}

/// An index that is held open while the files that it names are opened, so that no other file gets its number.
///
/// The names of shards that were removed are given to other shards by a later writer. A reader that has the index of the
/// first checkpoint, and opens files of the last, would find tensors of both.
pub(super) struct HeldIndex(Option<File>);

impl HeldIndex {
    /// An index that was read, and is open if it is of the local file system.
    pub(super) fn new(file: Option<File>) -> Self {
        Self(file)
    }

    /// The index as the first file of a checkpoint, whose files have all been opened. Fails, for [`open_stable`] to try again, if
    /// another file has its name by now.
    pub(super) fn named(&self, path: &Path) -> Result<Option<NamedFile>> {
        let Some(named) = self.0.as_ref().and_then(|open| NamedFile::of(open, path)) else {
            return Ok(None);
        };
        if !named.is_same() {
            let what = "the files of an index that was replaced while they were opened";
            return Err(Error::new(ErrorKind::Replaced(what.to_owned())));
        }
        Ok(Some(named))
    }
}

/// The files of an open checkpoint (its index, and those with tensors), and the names that they were opened by.
///
/// Files that are read later (configurations, tokenizers) are of the checkpoint that is open as long as the names lead to the
/// same files, unchanged: a run that replaces a checkpoint gives its first name to another file, or to none, before it names new
/// companions; and an edit changes the files with tensors, any of them, before it does a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NamedFiles(Vec<NamedFile>);

impl NamedFiles {
    /// Empty for a checkpoint without a file of the local file system, and on Windows.
    pub(crate) fn of(checkpoint: &Checkpoint, budget: &Budget) -> Result<Self> {
        const WHAT: &str = "the files of the checkpoint";
        let mut found = Self::default();
        if !checkpoint.files().is_local() {
            return Ok(found);
        }
        let files = checkpoint.catalog().files().iter();
        let files = files.zip(&checkpoint.states).filter_map(|(file, state)| {
            let path = file.path.clone()?;
            let number = state.number()?;
            Some(NamedFile { path, number })
        });
        for file in checkpoint.index.clone().into_iter().chain(files) {
            budget.memory(text_cost(file.path.as_os_str().len()), WHAT)?;
            budget.push(&mut found.0, file, WHAT)?;
        }
        Ok(found)
    }

    /// Fails if another file has one of the names by now, or none, or if one has changed.
    pub(crate) fn check(&self) -> Result<()> {
        self.0.iter().try_for_each(NamedFile::check)
    }

    /// Fails if another file has one of the names by now: the files are open, so that no other has the number of one. An edit of a
    /// header is no other file. That a file without any beside it is removed changes nothing for its reader.
    pub(super) fn check_alone(&self) -> Result<()> {
        self.0.iter().try_for_each(NamedFile::check_alone)
    }
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NamedFile {
    path: PathBuf,
    /// Its device, its number and the time of its last change, as the number of a file that is gone is given to another.
    number: FileNumber,
}

#[cfg(unix)]
pub(super) type FileNumber = (u64, u64, i64, i64);
/// No program replaces a file that is open.
#[cfg(not(unix))]
pub(super) type FileNumber = ();

impl NamedFile {
    fn of(open: &File, path: &Path) -> Option<Self> {
        let number = number_of(&open.metadata().ok()?)?;
        let path = path.to_owned();
        Some(Self { path, number })
    }

    fn is_same(&self) -> bool {
        let meta = std::fs::metadata(&self.path);
        meta.is_ok_and(|meta| number_of(&meta) == Some(self.number))
    }

    fn check(&self) -> Result<()> {
        match self.is_same() {
            true => Ok(()),
            false => Err(self.replaced()),
        }
    }

    fn check_alone(&self) -> Result<()> {
        match std::fs::metadata(&self.path) {
            Ok(meta) if !is_same_file(&meta, self.number) => Err(self.replaced()),
            _ => Ok(()),
        }
    }

    fn replaced(&self) -> Error {
        let what = "this file was changed, replaced or removed after it was opened, and the files beside it may be of another \
                    model by now";
        Error::new(ErrorKind::Replaced(what.to_owned())).in_file(&self.path)
    }
}

#[cfg(unix)]
pub(super) fn number_of(meta: &std::fs::Metadata) -> Option<FileNumber> {
    use std::os::unix::fs::MetadataExt;
    Some((meta.dev(), meta.ino(), meta.mtime(), meta.mtime_nsec()))
}

/// Whether a file has this number, whenever it was changed.
#[cfg(unix)]
fn is_same_file(meta: &std::fs::Metadata, (device, file, ..): FileNumber) -> bool {
    number_of(meta).is_some_and(|number| (number.0, number.1) == (device, file))
}

#[cfg(not(unix))]
fn is_same_file(_: &std::fs::Metadata, (): FileNumber) -> bool {
    true
}

/// The same of an open file; `None` of others than regular ones.
#[cfg(unix)]
pub(super) fn number_of_fd(fd: std::os::fd::BorrowedFd<'_>) -> Option<FileNumber> {
    let open = File::from(fd.try_clone_to_owned().ok()?);
    let meta = open.metadata().ok()?;
    meta.is_file().then(|| number_of(&meta))?
}

#[cfg(not(unix))]
pub(super) fn number_of(_: &std::fs::Metadata) -> Option<FileNumber> {
    None
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn missing() -> Error {
        Error::new(ErrorKind::MissingPart("a shard".to_owned()))
    }

    #[test]
    fn a_failure_beside_a_change_is_tried_again_and_any_other_once() {
        let directory = std::env::temp_dir().join(format!("replaced-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let options = OpenOptions::new();
        let calls = Cell::new(0);
        let changed = open_stable(&directory, &options, || {
            calls.set(calls.get() + 1);
            std::fs::write(directory.join(format!("{}", calls.get())), "").unwrap();
            match calls.get() {
                5 => options.open("fixtures/gguf/plain_v3.gguf"),
                // shards whose index was not listed
                2 | 4 => Err(Error::unsupported("12 checkpoints").in_file(&directory)),
                _ => Err(missing()),
            }
        });
        assert_eq!((changed.is_ok(), calls.get()), (true, 5));
        calls.set(0);
        let endless = open_stable(&directory, &options, || {
            calls.set(calls.get() + 1);
            std::fs::write(directory.join(format!("e{}", calls.get())), "").unwrap();
            Err(missing())
        });
        assert_eq!((endless.is_ok(), calls.get()), (false, ATTEMPTS));
        // without a change: once more, as the names are first listed after a failure
        calls.set(0);
        let refused = open_stable(&directory, &options, || {
            calls.set(calls.get() + 1);
            Err(missing())
        });
        assert_eq!((refused.is_ok(), calls.get()), (false, 2));
        calls.set(0);
        let damaged = open_stable(&directory, &options, || {
            calls.set(calls.get() + 1);
            Err(Error::malformed("the header"))
        });
        assert_eq!((damaged.is_ok(), calls.get()), (false, 1));
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
