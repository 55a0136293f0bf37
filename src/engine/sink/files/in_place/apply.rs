//! An edit of files that are decided: the journal, the changes, and the end of the journal.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::base::error::{Error, Remedy, Result};
use crate::base::progress::{RunControl, RunProgress};
use crate::engine::sink::files::file::{Shard, check_space};
use crate::engine::sink::files::names::PartNames;
use crate::engine::sink::files::operations::FileOperations;
use crate::engine::sink::files::{directory_of, file_name};
use crate::read::checkpoint::edit_journal::{JOURNAL, journal_of};

use super::decide::{Decided, decide, write_copy};
use super::journal::{
    DataMarks, EditJournal, FileMark, JournalEntry, JournaledChange, MARKED, sha256,
};
use super::{EditOptions, EditTarget, EditWay, EditedFile, FileChange};

/// Changes files, all or none.
pub(super) fn commit(
    system: &Arc<dyn FileOperations>,
    directory: &Path,
    changes: Vec<FileChange>,
    options: EditOptions,
    control: &RunControl<'_>,
) -> Result<Vec<EditedFile>> {
    let mut files = Vec::new();
    for change in changes {
        control.check()?;
        files.push(decide(system, change, options)?);
    }
    let total = files
        .iter()
        .map(Decided::copied)
        .fold(0, u64::saturating_add);
    check_space(directory, total, directory)?;
    let progress = RunProgress::new(total, control);
    for file in files.iter_mut().filter(|file| file.way == EditWay::Copy) {
        write_copy(system, file, &progress)?;
    }
    control.check()?;
    if total > 0 {
        progress.finish();
    }
    let changed: Vec<usize> = (0..files.len())
        .filter(|&file| files[file].way != EditWay::Unchanged)
        .collect();
    let run = EditRun { system, directory };
    match changed[..] {
        [] => {}
        [one] if files[one].shard.is_some() => {
            run.rename(&mut files[one])?;
            run.sync_directory(directory_of(&files[one].target.path))?;
        }
        _ => run.journaled(&mut files, &changed)?,
    }
    Ok(files.iter().map(edited).collect())
}

fn edited(file: &Decided) -> EditedFile {
    let header = file.new.len() as u64;
    EditedFile {
        path: file.target.path.clone(),
        way: file.way,
        bytes_written: match file.way {
            EditWay::Unchanged => 0,
            EditWay::Room | EditWay::Insert | EditWay::Clone => header,
            EditWay::Copy => file.new_len(),
        },
    }
}

struct EditRun<'r> {
    system: &'r Arc<dyn FileOperations>,
    directory: &'r Path,
}

impl EditRun<'_> {
    fn sync_directory(&self, directory: &Path) -> Result<()> {
        let synced = self.system.sync_directory(directory);
        synced.map_err(|e| Error::from(e).in_file(directory))
    }

    /// Lets the new file have the name of the old one.
    fn rename(&self, file: &mut Decided) -> Result<()> {
        let shard = file.shard.as_mut().expect("a new file was written");
        shard.publish_over()
    }

    fn journaled(&self, files: &mut [Decided], changed: &[usize]) -> Result<()> {
        for &file in changed {
            if let Some(shard) = &mut files[file].shard {
                shard.name_temporarily(None)?;
            }
        }
        for directory in directories(files, changed) {
            self.sync_directory(&directory)?;
        }
        let journal = self.journal(files, changed)?;
        let path = match changed {
            [one] => journal_of(&files[*one].target.path),
            _ => None,
        };
        let path = path.unwrap_or_else(|| self.directory.join(JOURNAL));
        let mut applied = false;
        let done = self
            .write_journal(&path, &journal.to_bytes())
            .and_then(|()| self.apply(files, changed, &mut applied));
        let error = match done {
            Ok(()) => {
                // the files are changed, and the journal says so
                let removed = self.remove_journal(&path);
                return removed.map_err(|e| e.with_remedy(Remedy::RecoverEdit));
            }
            Err(error) => error,
        };
        // nothing has changed: nothing is to be completed, if there is no journal
        let is_undone = !applied && (self.remove_journal(&path).is_ok() || is_missing(&path));
        if !is_undone {
            return Err(error.with_remedy(Remedy::RecoverEdit));
        }
        let shards = files.iter_mut().filter_map(|file| file.shard.as_mut());
        shards.for_each(Shard::discard_name);
        Err(error)
    }

    fn journal(&self, files: &mut [Decided], changed: &[usize]) -> Result<EditJournal> {
        let mut journal = EditJournal::default();
        for &file in changed {
            let file = &mut files[file];
            let (old_len, new_len) = (file.target.len, file.new_len());
            let old = match file.format {
                Some(_) => FileMark::of(old_len, &file.old),
                None => FileMark::of(old_len, &whole(&file.target)?),
            };
            let (at, nbytes) = (journal.headers.len() as u64, file.new.len() as u64);
            journal.headers.extend(&file.new);
            let change = match &mut file.shard {
                Some(shard) => JournaledChange::Replace {
                    part: shard
                        .keep_name()
                        .map(|path| file_name(&path))
                        .expect("it was named above"),
                    format: file.format.map(str::to_owned),
                    at,
                    nbytes,
                },
                None => JournaledChange::Header {
                    format: file.format.unwrap_or_default().to_owned(),
                    at,
                    nbytes,
                    inserted: file.inserted,
                    data: data_marks(&file.target, file.old.len() as u64)?,
                },
            };
            let path = &file.target.path;
            let relative = path.strip_prefix(self.directory).unwrap_or(path);
            let name = relative.to_str().ok_or_else(|| {
                Error::unsupported("the name of the file is not UTF-8").in_file(path)
            })?;
            journal.files.push(JournalEntry {
                file: name.to_owned(),
                old,
                new: FileMark::of(new_len, &file.new),
                change,
            });
        }
        Ok(journal)
    }

    /// Writes the journal: when this returns, the edit is completed by any later run.
    fn write_journal(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let parts = PartNames::new(directory_of(path), path.file_name().unwrap_or_default());
        let mut file = Shard::create(self.system, &parts, path, bytes, bytes.len() as u64)?;
        file.make_private()?;
        file.sync()?;
        file.publish_new()?;
        self.sync_directory(directory_of(path))
    }

    fn remove_journal(&self, path: &Path) -> Result<()> {
        let removed = self.system.remove(path);
        removed.map_err(|e| Error::from(e).in_file(path))?;
        self.sync_directory(directory_of(path))
    }

    /// Steps 3 to 5. `applied` becomes true with the first change.
    fn apply(&self, files: &mut [Decided], changed: &[usize], applied: &mut bool) -> Result<()> {
        for &file in changed {
            if files[file].way == EditWay::Insert {
                self.insert(&mut files[file], applied)?;
            }
        }
        for &file in changed {
            let file = &mut files[file];
            *applied = true;
            match file.shard.is_some() {
                true => self.rename(file)?,
                false => write_header(&**self.system, &file.target, &file.new)?,
            }
            #[cfg(target_os = "linux")]
            {
                // programs that wait to open the file go on
                file.lease = None;
            }
        }
        for directory in directories(files, changed) {
            self.sync_directory(&directory)?;
        }
        Ok(())
    }

    /// Inserts room, or makes a copy where that fails: the journal has promised this header and this length.
    fn insert(&self, file: &mut Decided, applied: &mut bool) -> Result<()> {
        let inserted = self.system.insert(&file.target.file, file.inserted);
        if inserted.is_ok() {
            *applied = true;
            let synced = self.system.sync(&file.target.file);
            return synced.map_err(|e| Error::from(e).in_file(&file.target.path));
        }
        file.way = EditWay::Copy;
        check_space(
            directory_of(&file.target.path),
            file.new_len(),
            &file.target.path,
        )?;
        let control = RunControl::default();
        write_copy(self.system, file, &RunProgress::new(0, &control))
    }
}

/// Writes a header over the one that is there, or over the room that was inserted for it.
pub(super) fn write_header(
    system: &dyn FileOperations,
    target: &EditTarget,
    header: &[u8],
) -> Result<()> {
    let write = || {
        let before = target.file.metadata()?.modified()?;
        system.write(&target.file, 0, header)?;
        if !give_new_time(&target.file, before)? {
            // the system's clock goes on meanwhile, and the first byte is what it is
            std::thread::sleep(CLOCK_TICK);
            system.write(&target.file, 0, &header[..1])?;
        }
        system.sync(&target.file)
    };
    let written: std::io::Result<()> = write();
    written.map_err(|e| Error::from(e).in_file(&target.path))
}

/// The longest time in which two writes of a file get the same time of change, generously.
const CLOCK_TICK: Duration = Duration::from_millis(30);

/// Gives a file that was changed a time of change that it had neither `before` nor while it was written, by which readers know that
/// their header is of an earlier moment: the system's own clock may stand still between two edits. False if this user may
/// not.
fn give_new_time(file: &File, before: SystemTime) -> std::io::Result<bool> {
    let written = file.metadata()?.modified()?;
    // times of some file systems are whole seconds
    for step in [1, 1_000, 1_000_000, 1_000_000_000, 2_000_000_000] {
        let new = written.max(before) + Duration::from_nanos(step);
        if file.set_modified(new).is_err() {
            return Ok(false);
        }
        let has = file.metadata()?.modified()?;
        if has != written && has != before {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_missing(path: &Path) -> bool {
    let found = path.symlink_metadata();
    found.is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound)
}

/// The directories of files that change.
fn directories(files: &[Decided], changed: &[usize]) -> BTreeSet<PathBuf> {
    let paths = changed.iter().map(|&file| &files[file].target.path);
    paths.map(|path| directory_of(path).to_owned()).collect()
}

/// All bytes of a configuration.
fn whole(target: &EditTarget) -> Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(target.len).expect("it was read before")];
    target.read(0, &mut bytes)?;
    Ok(bytes)
}

/// The digests of both ends of the data that begin at `start`.
pub(super) fn data_marks(target: &EditTarget, start: u64) -> Result<DataMarks> {
    let marked = MARKED.min(target.len.saturating_sub(start));
    let mut bytes = vec![0; usize::try_from(marked).expect("a page")];
    target.read(start, &mut bytes)?;
    let first = sha256(&bytes);
    target.read(target.len - marked, &mut bytes)?;
    let last = sha256(&bytes);
    Ok(DataMarks { first, last })
}
