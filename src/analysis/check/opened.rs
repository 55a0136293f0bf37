//! Opening all models that a path has: the checkpoint of a file or a directory and, of a directory, every other model in it.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits::{Budget, Limits};
use crate::read::checkpoint::{
    Checkpoint, DirectoryListing, NOT_UTF8, OpenFault, OpenFaultKind, OpenOptions, Survey,
    incomplete_sets, is_model_file, is_training_state,
};
use crate::read::source::files::Files;

const WHAT: &str = "the checkpoints of the directory";

/// Why a file that a finding is about was not looked at.
pub(super) const UNREADABLE: &str = "cannot be read";
/// Why an index was not looked at that is left of files which were not downloaded.
const ABSENT: &str = "an index of files that are not there";

/// The models that could be opened, and the faults of the others.
#[derive(Default)]
pub(super) struct OpenedModels {
    /// Independent of each other.
    pub(super) checkpoints: Vec<Checkpoint>,
    pub(super) faults: Vec<OpenFault>,
    /// Why a model was not opened, or not all of it.
    pub(super) failures: Vec<Error>,
    /// The directory after it was opened, if it is one that can be listed.
    listing: Option<DirectoryListing>,
    /// Names in the directory that opening has dealt with.
    seen: BTreeSet<String>,
    /// Files that are there and were not read.
    unreadable: BTreeSet<PathBuf>,
    /// Their names.
    unreadable_names: BTreeSet<OsString>,
    /// Names of indexes whose files are all missing.
    absent: Vec<String>,
}

/// The place of what is opened.
struct OpeningPlace<'p> {
    files: &'p Files,
    directory: &'p Path,
    options: &'p OpenOptions,
    /// All checkpoints are open at the same time, and share one limit: charged as each is opened, so that a directory of
    /// many models ends there and not when all of them are in memory.
    shared: &'p Budget,
}

impl OpenedModels {
    /// Opens a path as far as it can be opened.
    ///
    /// # Errors
    /// Cancellation; a limit; a path that is not there; a server that fails.
    pub(super) fn open(path: &Path, files: &Files, options: &OpenOptions) -> Result<Self> {
        let mut opened = Self::default();
        let place = OpeningPlace {
            files,
            directory: path,
            options,
            shared: &Budget::new(options.limits_of()),
        };
        opened.add(&place, path, options, true)?;
        if files.is_directory(path) {
            opened.add_others(&place)?;
        }
        opened.find_unreadable();
        Ok(opened)
    }

    /// Opens the models that the first one is not. Each round is an opening of the directory as if what was dealt with were
    /// not in it, so that shards, splits and indexes are found as they are in a directory of their own.
    fn add_others(&mut self, place: &OpeningPlace<'_>) -> Result<()> {
        let budget = Budget::new(place.options.limits_of());
        let listing = match DirectoryListing::of(place.files, place.directory, &budget) {
            // opening has said so
            Err(error) if matches!(error.kind(), ErrorKind::Io(_)) => return Ok(()),
            listing => listing?,
        };
        let opened = self.add_listed(place, listing.files());
        let opened = opened.and_then(|()| self.add_incomplete(listing.files(), &budget));
        // no directory opens them, and nothing was read of them
        for name in listing.odd_models() {
            let error = Error::unsupported(NOT_UTF8);
            self.failures
                .push(error.in_file(&place.directory.join(name)));
        }
        self.listing = Some(listing);
        opened
    }

    /// The sets that lack files and are opened file by file: each file is whole, and the model is not.
    fn add_incomplete(&mut self, names: &[String], budget: &Budget) -> Result<()> {
        let models = names.iter().filter(|name| is_model_file(name));
        for error in incomplete_sets(models.map(String::as_str), budget)? {
            self.faults.push(OpenFault {
                kind: OpenFaultKind::MissingFile,
                file: None,
                tensor: None,
                error,
            });
        }
        Ok(())
    }

    fn add_listed(&mut self, place: &OpeningPlace<'_>, names: &[String]) -> Result<()> {
        let is_left =
            |opened: &Self, name: &&String| is_model_file(name) && !opened.seen.contains(*name);
        loop {
            self.note_seen(place.directory);
            let left: Vec<&String> = names.iter().filter(|name| is_left(self, name)).collect();
            if left.is_empty() {
                return Ok(());
            }
            let state = names.iter().filter(|name| is_training_state(name));
            let passed: BTreeSet<String> = self.seen.iter().chain(state).cloned().collect();
            let options = place.options.passing_over(Arc::new(passed));
            let mut round = Self::default();
            round.add(place, place.directory, &options, false)?;
            round.note_seen(place.directory);
            if left.iter().any(|name| round.seen.contains(*name)) {
                self.append(round);
                continue;
            }
            // no rule says what they are together: what was said about the directory as a whole is in the list already
            for name in left {
                let options = place.options.clone().found_in(place.directory);
                self.add(place, &place.directory.join(name), &options, false)?;
                self.seen.insert(name.clone());
            }
        }
    }

    fn append(&mut self, mut round: Self) {
        self.checkpoints.append(&mut round.checkpoints);
        self.faults.append(&mut round.faults);
        self.failures.append(&mut round.failures);
        self.absent.append(&mut round.absent);
        self.seen.append(&mut round.seen);
    }

    fn add(
        &mut self,
        place: &OpeningPlace<'_>,
        path: &Path,
        options: &OpenOptions,
        is_first: bool,
    ) -> Result<()> {
        let Survey {
            checkpoint,
            mut faults,
        } = options.survey(path);
        // the faults are of two moments, and the caller begins again
        if let Some(at) = faults.iter().position(|fault| fault.error.is_replaced()) {
            return Err(faults.swap_remove(at).error);
        }
        let several: Vec<PathBuf> = faults
            .iter()
            .filter_map(OpenFault::one_of_several)
            .collect();
        match checkpoint {
            Ok(checkpoint) => self.keep(place, checkpoint)?,
            Err(error) => match error.kind() {
                ErrorKind::RefusedGlobal { .. } => {
                    // the tensors around a refused global are still checked
                    if let Some(checkpoint) = around_globals(path, options) {
                        self.keep(place, checkpoint)?;
                    }
                    self.failures.push(error);
                }
                // not statements about the model: a report with them would pass for a judgement
                ErrorKind::Cancelled
                | ErrorKind::Limit { .. }
                | ErrorKind::InvalidArgument(_)
                | ErrorKind::Replaced(_) => return Err(error),
                // a server that fails says nothing about the file
                ErrorKind::Io(_) if !place.files.is_local() => return Err(error),
                // a path that is not there is the caller's mistake; a link in a directory that leads nowhere is a finding
                ErrorKind::Io(_)
                    if !place.files.exists(path)
                        && (path == place.directory || !path.is_symlink()) =>
                {
                    return Err(error);
                }
                // the error was that the directory has several checkpoints: each is checked by itself
                _ if !several.is_empty() => {}
                // an index that came along with a download of other files is no broken model
                ErrorKind::MissingPart(_) if !is_first && is_index_alone(&faults) => {
                    let selected = faults.iter().find(|fault| fault.is_selected());
                    let name = selected.and_then(|fault| fault.file.as_deref()?.file_name());
                    let name = name.map(|name| name.to_string_lossy().into_owned());
                    self.absent.extend(name);
                    faults.retain(OpenFault::is_selected);
                }
                // said once, about the first model: no rule says what the rest of the directory is
                ErrorKind::UnknownFormat { .. } | ErrorKind::Unsupported(_)
                    if !is_first && error.path() == Some(place.directory) => {}
                // the first of the files of which none could be read is in the list of faults already
                _ if is_listed(&faults, &error) => {}
                _ => self.failures.push(error),
            },
        }
        self.faults.extend(faults);
        // the directory names them, not the caller: regular files only, whose links lead where its own may
        let found = place.options.clone().found_in(place.directory);
        several
            .iter()
            .try_for_each(|path| match place.options.of_set(path) {
                Some(of_set) if !options.is_of_set() => {
                    self.add(place, place.directory, &of_set, false)
                }
                _ => self.add(place, path, &found, false),
            })
    }

    fn keep(&mut self, place: &OpeningPlace<'_>, checkpoint: Checkpoint) -> Result<()> {
        place.shared.keep_too(checkpoint.kept(), WHAT)?;
        self.checkpoints.push(checkpoint);
        Ok(())
    }

    /// Notes the names in the directory that were opened, selected or found faulty.
    fn note_seen(&mut self, directory: &Path) {
        let opened = self.checkpoints.iter().flat_map(|c| c.catalog().files());
        let opened = opened.filter_map(|file| file.path.as_deref());
        let faulty = self.faults.iter().filter_map(|fault| fault.file.as_deref());
        let failed = self.failures.iter().filter_map(Error::path);
        let paths = opened.chain(faulty).chain(failed);
        let names: Vec<String> = paths
            .filter(|path| path.parent() == Some(directory))
            .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
            .collect();
        self.seen.extend(names);
    }

    fn find_unreadable(&mut self) {
        let faulty = self
            .faults
            .iter()
            .filter(|fault| fault.is_unreadable_file());
        let faulty = faulty.filter_map(|fault| fault.file.clone());
        let is_refusal = |error: &&Error| matches!(error.kind(), ErrorKind::RefusedGlobal { .. });
        // the pickle of a file with a refused global was read
        let failed = self.failures.iter().filter(|error| !is_refusal(error));
        let failed = failed.filter_map(|error| error.path().map(Path::to_owned));
        let unreadable: BTreeSet<PathBuf> = faulty.chain(failed).collect();
        let names = unreadable.iter().filter_map(|path| path.file_name());
        self.unreadable_names = names.map(OsStr::to_owned).collect();
        self.unreadable = unreadable;
    }

    /// Whether a file was there and could not be opened, or nothing was.
    pub(super) fn has_unreadable(&self) -> bool {
        let is_refusal = |error: &Error| matches!(error.kind(), ErrorKind::RefusedGlobal { .. });
        self.failures.iter().any(|error| !is_refusal(error))
            || self.faults.iter().any(OpenFault::is_unreadable_file)
    }

    /// The directory that was opened, as it was then; `None` of a file, or where it cannot be listed.
    pub(super) fn listing(&self) -> Option<&DirectoryListing> {
        self.listing.as_ref()
    }

    /// The files that are there and could not be read.
    pub(super) fn unreadable(&self) -> &BTreeSet<PathBuf> {
        &self.unreadable
    }

    /// Whether a file of the directory was read, by its name.
    pub(super) fn has_read(&self, name: &str) -> bool {
        self.seen.contains(name) && self.why_unread(name).is_none()
    }

    /// Why a file of the directory was not read, as far as opening knows.
    pub(super) fn why_unread(&self, name: &str) -> Option<&'static str> {
        if self.unreadable_names.contains(OsStr::new(name)) {
            return Some(UNREADABLE);
        }
        self.absent
            .iter()
            .any(|absent| absent == name)
            .then_some(ABSENT)
    }

    /// One budget for all checkpoints, which are open at the same time.
    pub(super) fn budget(&self, limits: Limits) -> Result<Budget> {
        let [first, others @ ..] = &self.checkpoints[..] else {
            // nothing could be opened, so that only the faults are reported
            return Ok(Budget::new(limits));
        };
        let budget = first.budget();
        for other in others {
            budget.keep_too(other.kept(), WHAT)?;
        }
        let listing = self.listing.as_ref().map_or(0, DirectoryListing::memory);
        budget.memory(listing, "the directory")?;
        Ok(budget)
    }
}

/// Whether an error is the one of an unreadable file among the faults.
fn is_listed(faults: &[OpenFault], error: &Error) -> bool {
    let mut unreadable = faults.iter().filter(|fault| fault.is_unreadable_file());
    unreadable.any(|fault| error.path().is_some() && fault.file.as_deref() == error.path())
}

/// Whether an index was selected, and none of its files is there.
fn is_index_alone(faults: &[OpenFault]) -> bool {
    let mut others = faults.iter().filter(|fault| !fault.is_selected());
    let selected = faults.iter().filter(|fault| fault.is_selected()).count();
    selected == 1 && others.all(|fault| fault.kind == OpenFaultKind::MissingFile)
}

/// The tensors around a refused global, which can be read; nothing is called.
pub(super) fn around_globals(path: &Path, options: &OpenOptions) -> Option<Checkpoint> {
    options.clone().opaque(true).open(path).ok()
}
