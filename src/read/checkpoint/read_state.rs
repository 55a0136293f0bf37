//! Whether a file is the one whose header was read: edits change headers where they are.
//!
//! An edit and its readers have what a sequence lock has. The edit's journal is there from before the first byte changes until
//! after the last one has, and the file's time of change is another one after each edit (`engine/sink/files/in_place`). A
//! reader notices the time before it reads, and looks for a journal and at the time when it has read: what it has is of one
//! moment, or it begins again.

#[cfg(unix)]
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anamnesis_os::directory_lock::is_locked;
use anamnesis_os::files::directory_of;

use super::Checkpoint;
use super::edit_journal::{JOURNAL, UNFINISHED_EDIT, is_about, journal_of};
use super::replaced::FileNumber;
#[cfg(unix)]
use super::replaced::number_of_fd;
use crate::base::error::{Error, ErrorKind, Remedy, Result};
use crate::read::source::Source;

/// A file of the local file system before its header was read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadState(Option<FileNumber>);

/// The state of a file by the journals of edits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EditState {
    /// No edit.
    None,
    /// A process edits it.
    UnderWay,
    /// A process that edited it was killed.
    Left,
}

impl ReadState {
    /// Notices the state of a file. Others than regular ones have none.
    pub(super) fn of(source: &dyn Source) -> Self {
        #[cfg(unix)]
        return Self(source.as_fd().and_then(|fd| number_of_fd(fd.as_fd())));
        #[cfg(not(unix))]
        {
            let _ = source;
            Self(None)
        }
    }

    /// Whether it is the state of a regular file.
    pub(super) fn is_known(self) -> bool {
        self.0.is_some()
    }

    pub(super) fn number(self) -> Option<FileNumber> {
        self.0
    }

    /// Whether the file has changed since.
    pub(super) fn has_changed(self, source: &dyn Source) -> bool {
        self.0.is_some() && Self::of(source).0 != self.0
    }

    /// Fails if the file at `path`, below `directory`, is another one by now or has changed.
    pub(super) fn check_named(self, path: &Path) -> Result<()> {
        let named = std::fs::metadata(path).ok();
        let named = named.as_ref().and_then(super::replaced::number_of);
        match self.0 {
            Some(number) if named != Some(number) => Err(changed().in_file(path)),
            _ => Ok(()),
        }
    }
}

/// The state of a file by the journals beside it and in the directory that it was found in.
pub(super) fn edit_state(directory: Option<&Path>, file: &Path) -> EditState {
    let own = directory_of(file);
    let of_directory = directory.filter(|directory| *directory != own);
    let shared = [Some(own), of_directory].into_iter().flatten();
    let shared = shared.map(|directory| directory.join(JOURNAL));
    let mut state = EditState::None;
    for journal in shared.chain(journal_of(file)) {
        let Some(found) = JournalNumber::of(&journal) else {
            continue;
        };
        if !is_about(&journal, file) {
            continue;
        }
        // an edit that has ended since has removed its journal before it released the lock
        let is_left = !is_locked(directory_of(&journal))
            && JournalNumber::of(&journal).is_some_and(|again| again == found);
        if !is_left {
            return EditState::UnderWay;
        }
        state = EditState::Left;
    }
    state
}

/// A journal, as far as it differs from one that has its name later.
#[derive(PartialEq)]
struct JournalNumber(PathBuf, u64, Option<SystemTime>);

impl JournalNumber {
    fn of(journal: &Path) -> Option<Self> {
        let meta = journal.symlink_metadata().ok()?;
        Some(Self(journal.to_owned(), meta.len(), meta.modified().ok()))
    }
}

/// The error of a reader that has to begin again.
pub(super) fn changed() -> Error {
    let what = "the header of this file was changed while it was read";
    Error::new(ErrorKind::Replaced(what.to_owned()))
}

/// The error of a file that an edit has left half changed.
pub(super) fn left() -> Error {
    Error::malformed(UNFINISHED_EDIT).with_remedy(Remedy::RecoverEdit)
}

impl Checkpoint {
    /// Fails if files of it were edited or replaced while others were opened.
    pub(super) fn check_files(&self) -> Result<()> {
        // the state of one file was looked at when its header was read
        if self.states.len() < 2 {
            return Ok(());
        }
        let mut files = self.catalog.files.iter().zip(&self.states);
        files.try_for_each(|(file, state)| match &file.path {
            Some(path) => state.check_named(path),
            None => Ok(()),
        })
    }

    /// Fails if the header of a file was edited since it was opened: for what is read of headers later.
    pub(crate) fn check_header(&self, file: u32) -> Result<()> {
        let row = file as usize;
        let (Some(state), Some(source)) = (self.states.get(row), self.sources.get(row)) else {
            return Ok(());
        };
        let path = self
            .catalog
            .files
            .get(row)
            .and_then(|file| file.path.as_deref());
        let is_edited = path.is_some_and(|path| {
            state.0.is_some() && edit_state(self.path(), path) == EditState::UnderWay
        });
        match is_edited || state.has_changed(&**source) {
            true => Err(self.place(changed(), file)),
            false => Ok(()),
        }
    }
}
