//! The files of an old checkpoint under hidden names, until the new one is in place.
//!
//! Where a directory cannot be exchanged for a new one (`exchange.rs`), the old files leave their names before the new ones get
//! theirs. They are not removed then: a run that fails gives them their names back, and after a killed one the next run to the
//! directory does. The file that readers open first leaves its name before all others and gets it back after them, so that a
//! directory with one holds its whole checkpoint.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::error::{Error, Result};

use super::companion_files::remove_if_there;
use super::names::PartNames;
use super::operations::FileOperations;

/// Files that have hidden names: those names and their own, in the order in which they left them.
#[derive(Debug)]
pub(super) struct SetAside {
    system: Arc<dyn FileOperations>,
    files: Vec<(PathBuf, PathBuf)>,
}

impl SetAside {
    pub(super) fn new(system: &Arc<dyn FileOperations>) -> Self {
        Self {
            system: Arc::clone(system),
            files: Vec::new(),
        }
    }

    /// Gives a file a hidden name; nothing where it does not exist.
    pub(super) fn take(&mut self, parts: &PartNames, path: &Path) -> Result<()> {
        let hidden = parts.set_aside(path.file_name().unwrap_or_default());
        match self.system.rename(path, &hidden) {
            Ok(()) => self.files.push((hidden, path.to_owned())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(Error::from(e).in_file(path)),
        }
        Ok(())
    }

    /// Gives the files their names back. One that cannot get its name keeps the hidden one, for the next run.
    pub(super) fn restore(self, directory: &Path) {
        // the error that ended the run is already being returned
        let _ = give_back(&*self.system, directory, self.files.into_iter().rev());
    }

    /// Removes the files.
    pub(super) fn remove(self) -> Result<()> {
        for (hidden, _) in self.files {
            remove_if_there(&*self.system, &hidden)?;
        }
        Ok(())
    }
}

/// Settles the files that a killed run has set aside: without a checkpoint in the directory they are its checkpoint and get
/// their names back, also from companion files of the killed run. `first` are the names that readers open first. Called under
/// the directory's lock.
pub(super) fn settle(
    system: &dyn FileOperations,
    parts: &PartNames,
    first: &[String],
) -> io::Result<()> {
    let directory = parts.directory();
    let mut files = parts.all_set_aside()?;
    if files.is_empty() {
        return Ok(());
    }
    let is_first = |path: &Path| first.iter().any(|name| path == directory.join(name));
    let is_there = |name: &String| directory.join(name).symlink_metadata().is_ok();
    if first.iter().any(is_there) {
        // the names of the new files outlive a loss of power before the old files go
        system.sync_directory(directory)?;
        return files
            .iter()
            .try_for_each(|(hidden, _)| system.remove(hidden));
    }
    files.sort_by_key(|(_, path)| is_first(path));
    give_back(system, directory, files.into_iter())
}

/// Renames hidden files to their own names, the last of them after the others outlive a loss of power.
fn give_back(
    system: &dyn FileOperations,
    directory: &Path,
    files: impl ExactSizeIterator<Item = (PathBuf, PathBuf)>,
) -> io::Result<()> {
    let count = files.len();
    for (number, (hidden, path)) in files.enumerate() {
        if number + 1 == count {
            system.sync_directory(directory)?;
        }
        system.rename(&hidden, &path)?;
    }
    system.sync_directory(directory)
}
