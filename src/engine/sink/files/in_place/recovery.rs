//! Completing an edit that was interrupted: from any state that a killed process or a loss of power leaves.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::base::error::{Error, Result};
use crate::base::limits::Budget;
use crate::base::progress::{RunControl, RunProgress};
use crate::base::quote::quote;
use crate::engine::sink::container::with_header;
use crate::engine::sink::files::directory_of;
use crate::engine::sink::files::operations::FileOperations;
use crate::read::format::{self, Format};
use crate::read::source::cursor::Cursor;
use crate::read::source::{FnSource, Source};

use super::apply::{data_marks, write_header};
use super::decide::{Decided, write_copy};
use super::journal::{EditJournal, FileMark, JournalEntry, JournaledChange, below, hex};
use super::{EditTarget, EditWay};

/// Bytes that are hashed at a time.
const PIECE: usize = 64 << 10;

/// How an interrupted edit ended.
///
/// ```
/// assert_eq!(anamnesis::RecoveredEdit::Completed.name(), "completed");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveredEdit {
    /// It had changed nothing, and will not.
    Undone,
    /// All of its files are changed.
    Completed,
    /// Its files were replaced since, by others that are whole.
    Forgotten,
}

impl RecoveredEdit {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Undone => "undone",
            Self::Completed => "completed",
            Self::Forgotten => "forgotten",
        }
    }
}

/// The state of a file of an edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryState {
    Old,
    New,
    /// The data are where the new header expects them, and the header is not whole.
    Torn,
    Neither,
}

/// A file of a journal that was read.
struct FoundEntry<'j> {
    entry: &'j JournalEntry,
    target: EditTarget,
    state: EntryState,
}

/// Completes or undoes the edit of a journal, and removes it. `None` if there is no journal.
pub(super) fn settle(
    system: &Arc<dyn FileOperations>,
    path: &Path,
    budget: &Budget,
) -> Result<Option<RecoveredEdit>> {
    let Some(journal) = EditJournal::read(&**system, path, budget)? else {
        return Ok(None);
    };
    let directory = directory_of(path);
    let (mut found, mut missing) = (Vec::new(), None);
    for entry in &journal.files {
        let file = entry.path(directory).ok_or_else(|| {
            let what = format!("it names {}, which is not below it", quote(&entry.file));
            Error::malformed(what).in_file(path)
        })?;
        if file
            .symlink_metadata()
            .is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound)
        {
            missing.get_or_insert(file);
            continue;
        }
        let target = EditTarget::open(&**system, &file, true)?;
        let state = state_of(entry, &target)?;
        found.push(FoundEntry {
            entry,
            target,
            state,
        });
    }
    let outcome = outcome(&found, missing, path)?;
    match outcome {
        RecoveredEdit::Completed => {
            let mut directories = BTreeSet::new();
            for file in found {
                directories.insert(directory_of(&file.target.path).to_owned());
                complete(system, &journal, file, budget)?;
            }
            for directory in directories {
                let synced = system.sync_directory(&directory);
                synced.map_err(|e| Error::from(e).in_file(&directory))?;
            }
        }
        RecoveredEdit::Undone | RecoveredEdit::Forgotten => {
            for file in &found {
                if let Some((part, _)) = part_of(file.entry, &file.target) {
                    // one that is not there needs no removal
                    let _ = system.remove(&part);
                }
            }
        }
    }
    let removed = system
        .remove(path)
        .and_then(|()| system.sync_directory(directory));
    removed.map_err(|e| Error::from(e).in_file(path))?;
    Ok(Some(outcome))
}

/// How an edit ends whose files are in these states, or are `missing`.
fn outcome(
    found: &[FoundEntry<'_>],
    missing: Option<PathBuf>,
    journal: &Path,
) -> Result<RecoveredEdit> {
    if missing.is_none() && found.iter().all(|file| file.state == EntryState::Old) {
        return Ok(RecoveredEdit::Undone);
    }
    let lost = found.iter().find(|file| file.state == EntryState::Neither);
    let Some(lost) = missing.or_else(|| lost.map(|file| file.target.path.clone())) else {
        return Ok(RecoveredEdit::Completed);
    };
    if found.iter().all(|file| is_whole(&file.target)) {
        return Ok(RecoveredEdit::Forgotten);
    }
    let what = format!(
        "it is neither as before the edit nor in a state that the edit leaves, so that the journal {} cannot complete it",
        quote(&journal.to_string_lossy())
    );
    Err(Error::malformed(what).in_file(&lost))
}

/// Whether a file of tensors can be opened; any other file can.
fn is_whole(target: &EditTarget) -> bool {
    let budget = Budget::new(crate::base::limits::Limits::default());
    let extension = target.path.extension().and_then(|e| e.to_str());
    let Some(format) = extension.and_then(Format::from_name) else {
        return true;
    };
    let source = FnSource::new(target.len, |at, buf: &mut [u8]| {
        let read = target.read(at, buf);
        read.map_err(|e| std::io::Error::other(e.to_string()))
    });
    parses(&source, format, &budget).is_ok()
}

fn parses(source: &dyn Source, format: &'static Format, budget: &Budget) -> Result<()> {
    let mut cursor = Cursor::new(source, budget);
    let options = format::ReadOptions {
        format: Some(format),
        ..format::ReadOptions::default()
    };
    format::read_file(&mut cursor, None, options).map(drop)
}

fn matches(mark: &FileMark, target: &EditTarget) -> Result<bool> {
    if mark.nbytes != target.len || mark.front > target.len {
        return Ok(false);
    }
    // in pieces: the journal says how many bytes
    let (mut digest, mut at) = (Sha256::new(), 0);
    let mut piece = vec![0; PIECE];
    while at < mark.front {
        let rest = mark.front - at;
        let len = usize::try_from(rest).map_or(PIECE, |rest| rest.min(PIECE));
        target.read(at, &mut piece[..len])?;
        digest.update(&piece[..len]);
        at += len as u64;
    }
    Ok(hex(&digest.finalize()) == mark.sha256)
}

fn state_of(entry: &JournalEntry, target: &EditTarget) -> Result<EntryState> {
    if matches(&entry.new, target)? {
        return Ok(EntryState::New);
    }
    if matches(&entry.old, target)? {
        return Ok(EntryState::Old);
    }
    if let JournaledChange::Header { nbytes, data, .. } = &entry.change
        && target.len == entry.new.nbytes
        && *nbytes <= target.len
        && data_marks(target, *nbytes)? == *data
    {
        return Ok(EntryState::Torn);
    }
    Ok(EntryState::Neither)
}

/// The file that is to take the place of another, and the bytes that tell it.
fn part_of<'j>(entry: &'j JournalEntry, target: &EditTarget) -> Option<(PathBuf, &'j FileMark)> {
    let JournaledChange::Replace { part, .. } = &entry.change else {
        return None;
    };
    // as the writer names files under construction
    let is_part = part.starts_with(".anamnesis-") && part.ends_with(".part") && !part.contains('/');
    let path = below(directory_of(&target.path), part).filter(|_| is_part)?;
    Some((path, &entry.new))
}

/// Completes the change of one file.
fn complete(
    system: &Arc<dyn FileOperations>,
    journal: &EditJournal,
    file: FoundEntry<'_>,
    budget: &Budget,
) -> Result<()> {
    let FoundEntry {
        entry,
        target,
        state,
    } = file;
    let path = target.path.clone();
    let complete = || {
        if state == EntryState::New {
            return Ok(());
        }
        match &entry.change {
            JournaledChange::Replace {
                format, at, nbytes, ..
            } => {
                let odd = || Error::malformed("the journal names no file that the edit wrote");
                let (part, mark) = part_of(entry, &target).ok_or_else(odd)?;
                let is_missing = part
                    .symlink_metadata()
                    .is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound);
                let is_written = !is_missing && {
                    let written = EditTarget::open(&**system, &part, false)?;
                    matches(mark, &written)?
                };
                if is_written {
                    return system.rename(&part, &target.path).map_err(Error::from);
                }
                // it was removed by hand: the file is as before, and the journal has what is new
                let new = journal.header(*at, *nbytes)?;
                match format {
                    Some(format) => {
                        check_header(new, format, entry.new.nbytes, budget)?;
                        copied(system, target, entry.old.front, new)
                    }
                    None => {
                        let whole = Decided::new(target, Vec::new(), new.to_vec(), EditWay::Copy);
                        replaced(system, whole)
                    }
                }
            }
            JournaledChange::Header {
                format,
                at,
                nbytes,
                inserted,
                ..
            } => {
                let header = journal.header(*at, *nbytes)?;
                check_header(header, format, entry.new.nbytes, budget)?;
                match (state, inserted) {
                    (EntryState::Old, 1..) => anew(system, target, entry, header, *inserted),
                    _ => write_header(&**system, &target, header),
                }
            }
        }
    };
    complete().map_err(|e: Error| e.in_file(&path))
}

/// Checks that a header describes a file of this length.
fn check_header(header: &[u8], format: &str, nbytes: u64, budget: &Budget) -> Result<()> {
    let format = Format::from_name(format)
        .ok_or_else(|| Error::malformed("the journal names no format that is edited"))?;
    let _scope = budget.scope();
    parses(&with_header(header, nbytes), format, budget)
}

/// Makes room again for a file whose turn had not come, or copies it.
fn anew(
    system: &Arc<dyn FileOperations>,
    target: EditTarget,
    entry: &JournalEntry,
    header: &[u8],
    inserted: u64,
) -> Result<()> {
    #[cfg(target_os = "linux")]
    {
        let lease = anamnesis_os::lease::WriteLease::take(&target.file);
        if lease.is_some() && system.insert(&target.file, inserted).is_ok() {
            system.sync(&target.file)?;
            return write_header(&**system, &target, header);
        }
    }
    let _ = inserted;
    copied(system, target, entry.old.front, header)
}

/// Replaces a file by one with another header in front of the same data, which are behind `front` bytes.
fn copied(
    system: &Arc<dyn FileOperations>,
    target: EditTarget,
    front: u64,
    header: &[u8],
) -> Result<()> {
    // its length alone is of interest: the pages are never touched
    let front = usize::try_from(front).ok();
    let old = front.and_then(crate::base::limits::zeroed);
    let old = old.ok_or_else(|| Error::unsupported("the header does not fit in memory"))?;
    let mut copy = Decided::new(target, old, header.to_vec(), EditWay::Copy);
    copy.format = Some("");
    replaced(system, copy)
}

fn replaced(system: &Arc<dyn FileOperations>, mut file: Decided) -> Result<()> {
    let control = RunControl::default();
    write_copy(system, &mut file, &RunProgress::new(0, &control))?;
    file.shard.as_mut().expect("written").publish_over()
}
