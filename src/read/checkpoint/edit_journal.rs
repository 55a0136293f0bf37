//! Journals of edits: their names, and the hint in the errors of files that an interrupted edit has left.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::base::error::{Error, ErrorKind, Remedy};
use crate::base::note::Note;

/// The end of the name of a journal; the whole name of the journal of several files.
pub(crate) const JOURNAL: &str = ".anamnesis-edit";

/// The meaning of a journal beside a damaged file.
pub(crate) const INTERRUPTED: &str = "an edit of it was interrupted, or is under way";

/// The warning about a directory with a journal.
pub(super) fn interrupted() -> Note {
    Note::with_remedy(INTERRUPTED.to_owned(), Remedy::RecoverEdit)
}

/// The journal of an edit of one file: `.NAME.anamnesis-edit`. `None` for a path without a name, and for a name that is so long that
/// there is no such file.
pub(crate) fn journal_of(file: &Path) -> Option<PathBuf> {
    /// The longest name of a file.
    const LONGEST: usize = 255;
    let mut name = OsString::from(".");
    name.push(file.file_name()?);
    name.push(JOURNAL);
    (name.len() <= LONGEST).then(|| file.with_file_name(name))
}

/// Adds to the error of opening a local path that an edit was interrupted, if a journal says so.
pub(crate) fn with_hint(error: Error, path: &Path) -> Error {
    if matches!(error.kind(), ErrorKind::Cancelled)
        || !has_journal(error.path().unwrap_or(path), path)
    {
        return error;
    }
    error
        .with_note(INTERRUPTED.to_owned())
        .with_remedy(Remedy::RecoverEdit)
}

/// Whether there is a journal of an edit of the file, or of the directory or file that was opened.
pub(crate) fn has_journal(file: &Path, opened: &Path) -> bool {
    let mut journals = [file, opened].into_iter().flat_map(|path| {
        let parent = path.parent().unwrap_or(Path::new(""));
        [
            journal_of(path),
            Some(parent.join(JOURNAL)),
            Some(path.join(JOURNAL)),
        ]
    });
    journals.any(|path| path.is_some_and(|path| path.symlink_metadata().is_ok()))
}
