//! The directory whose files are changed, under its lock.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anamnesis_os::directory_lock::DirectoryLock;

use crate::base::error::{Error, Result};
use crate::base::limits::Budget;
use crate::base::progress::RunControl;
use crate::engine::sink::files::directory_of;
use crate::engine::sink::files::names::PartNames;
use crate::engine::sink::files::operations::{FileOperations, SystemFiles};
use crate::read::checkpoint::edit_journal::{JOURNAL, journal_of};
use crate::read::checkpoint::is_part_name;

use super::recovery::{RecoveredEdit, settle};
use super::{EditOptions, EditTarget, EditedFile, FileChange, apply};

/// The longest wait for another run in the same directory. An edit takes milliseconds, and a directory may have many files to edit.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// The time between two attempts.
const BETWEEN: Duration = Duration::from_millis(10);

/// A directory that this run alone changes.
pub(crate) struct EditPlace {
    system: Arc<dyn FileOperations>,
    directory: PathBuf,
    _lock: DirectoryLock,
}

impl EditPlace {
    /// Locks a directory, and waits for another run in it.
    pub(crate) fn lock(directory: &Path, control: &RunControl<'_>) -> Result<Self> {
        Self::lock_with(Arc::new(SystemFiles { unnamed: true }), directory, control)
    }

    pub(in crate::engine::sink::files) fn lock_with(
        system: Arc<dyn FileOperations>,
        directory: &Path,
        control: &RunControl<'_>,
    ) -> Result<Self> {
        let start = Instant::now();
        loop {
            control.check()?;
            let locked = system.lock_directory(directory);
            if let Some(lock) = locked.map_err(|e| Error::from(e).in_file(directory))? {
                return Ok(Self {
                    system,
                    directory: directory.to_owned(),
                    _lock: lock,
                });
            }
            if start.elapsed() > LONGEST_WAIT {
                let what = "another run is writing to this directory";
                let busy = std::io::Error::new(std::io::ErrorKind::ResourceBusy, what);
                return Err(Error::from(busy).in_file(directory));
            }
            std::thread::sleep(BETWEEN);
        }
    }

    /// Completes interrupted edits of one file, or of all files in the directory, and removes what they left.
    pub(crate) fn settle(
        &self,
        file: Option<&Path>,
        budget: &Budget,
    ) -> Result<Vec<(PathBuf, RecoveredEdit)>> {
        let mut journals = vec![self.directory.join(JOURNAL)];
        match file {
            Some(file) => journals.extend(journal_of(file)),
            None => journals.extend(self.journals()?),
        }
        let mut settled = Vec::new();
        for journal in journals {
            let _scope = budget.scope();
            if let Some(outcome) = settle(&self.system, &journal, budget)? {
                settled.push((journal.clone(), outcome));
            }
            self.remove_parts(&journal);
        }
        Ok(settled)
    }

    /// Removes what killed runs left of files that were to take the place of others: of one file, or of all files in the directory.
    /// Returns what was removed.
    pub(crate) fn remove_abandoned(&self, file: Option<&Path>) -> Vec<PathBuf> {
        if let Some(file) = file {
            return self.remove_parts(file);
        }
        let entries = std::fs::read_dir(&self.directory);
        let names = entries.into_iter().flatten().flatten();
        let mut names: Vec<OsString> = names.map(|entry| entry.file_name()).collect();
        names.sort_unstable();
        let parts = names.iter().filter_map(|name| name.to_str());
        let parts: Vec<String> = parts
            .filter(|name| is_part_name(name))
            .map(str::to_owned)
            .collect();
        // a directory of thousands of files is not listed for each of them
        let has_part = |name: &&OsString| PartNames::new(&self.directory, name).is_any_part(&parts);
        let files = names.iter().filter(has_part);
        let removed = files.flat_map(|name| self.remove_parts(&self.directory.join(name)));
        removed.collect()
    }

    /// The journals of single files in the directory.
    fn journals(&self) -> Result<Vec<PathBuf>> {
        let list = || -> std::io::Result<Vec<PathBuf>> {
            let mut found = Vec::new();
            for entry in std::fs::read_dir(&self.directory)? {
                let path = entry?.path();
                let name = path.file_name().unwrap_or_default().as_encoded_bytes();
                if name.starts_with(b".")
                    && name.ends_with(JOURNAL.as_bytes())
                    && name != JOURNAL.as_bytes()
                {
                    found.push(path);
                }
            }
            found.sort();
            Ok(found)
        };
        list().map_err(|e| Error::from(e).in_file(&self.directory))
    }

    /// Removes what killed runs left of files that were to take the place of this one, and returns it.
    fn remove_parts(&self, path: &Path) -> Vec<PathBuf> {
        let Some(name) = path.file_name() else {
            return Vec::new();
        };
        let parts = PartNames::new(directory_of(path), name);
        // the record of shards is of a run that replaces a checkpoint, which the next such run reads
        let abandoned = parts.abandoned().into_iter().flatten();
        let abandoned = abandoned.filter(|part| part.shards.is_none());
        // one that stays is in no reader's way
        let removed = abandoned.filter(|part| self.system.remove(&part.path).is_ok());
        removed.map(|part| part.path).collect()
    }

    /// Opens a file that is to be changed.
    pub(crate) fn open(&self, path: &Path, copy: bool) -> Result<EditTarget> {
        self.remove_parts(path);
        EditTarget::open(&*self.system, path, copy)
    }

    /// Changes files, all or none.
    pub(crate) fn commit(
        &self,
        changes: Vec<FileChange>,
        options: EditOptions,
        control: &RunControl<'_>,
    ) -> Result<Vec<EditedFile>> {
        apply::commit(&self.system, &self.directory, changes, options, control)
    }
}
