//! Journals of edits: their names, and the hint in the errors of files that an interrupted edit has left.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anamnesis_os::whole_file::read_start;

use crate::base::error::{Error, ErrorKind, Remedy};
use crate::base::note::Note;

/// The end of the name of a journal; the whole name of the journal of several files.
pub(crate) const JOURNAL: &str = ".anamnesis-edit";

/// The meaning of a journal beside a damaged file.
pub(crate) const INTERRUPTED: &str = "an edit of it was interrupted, or is under way";

/// The meaning of a journal without a process that edits.
pub(super) const UNFINISHED_EDIT: &str =
    "an edit of it was interrupted: this file, or others of its model, may be half changed";

/// The first bytes of a journal. The length of a JSON description follows, and the description, which names the files.
pub(crate) const MAGIC: &[u8] = b"anamnesis edit journal 1\n";

/// Whether this is a journal, and names the file. A file of its name that does not begin as one says nothing about others.
pub(super) fn is_about(journal: &Path, file: &Path) -> bool {
    /// The longest description that is looked at: of thousands of files.
    const LONGEST: u64 = 8 << 20;
    const FRONT: usize = MAGIC.len() + 8;
    if !journal.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
        return false;
    }
    let Ok(front) = read_start(journal, FRONT as u64) else {
        // another user's, whose edit cannot be known
        return true;
    };
    let Some((MAGIC, len)) = front.split_last_chunk::<8>() else {
        return false;
    };
    let len = u64::from_le_bytes(*len);
    let name = file.file_name().and_then(OsStr::to_str);
    let name = name.and_then(|name| serde_json::to_string(name).ok());
    let description = (len <= LONGEST).then(|| read_start(journal, FRONT as u64 + len));
    let (Some(Ok(description)), Some(name)) = (description, name) else {
        return true;
    };
    // the end of a path below the directory, with the quotation mark behind it
    let end = &name.as_bytes()[1..];
    let mut windows = description.windows(end.len());
    windows.any(|window| window == end)
}

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
    if matches!(error.kind(), ErrorKind::Cancelled | ErrorKind::Replaced(_))
        || error.remedy() == Some(Remedy::RecoverEdit)
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
