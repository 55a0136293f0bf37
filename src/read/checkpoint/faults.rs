//! Faults of a checkpoint's files, as a list: opening that goes on after a fault, and reports all of them instead of the first.
//!
//! Opening is one code for both. Where it finds a fault it calls [`OpenOptions::fault`], which returns the fault's error, or
//! keeps the fault for the caller of [`OpenOptions::survey`].

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits::{Budget, text_cost};
use crate::base::sync::PoisonMutex;
use crate::read::source::files::Files;

use super::named_files::{file_name, require};
use super::other_files::is_model_file;
use super::set_key::SetKey;
use super::{Checkpoint, OpenOptions};

/// The fault of a file or an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum OpenFaultKind {
    /// A file that the index or the names of its siblings announce is not there.
    MissingFile,
    /// A file cannot be opened, or its header is malformed.
    UnreadableFile,
    /// The file that the index names for a tensor does not contain it.
    MissingTensor,
    /// A tensor is in another file than the index says.
    WrongShard,
    /// The index lacks a tensor of the files.
    UnlistedTensor,
    /// `total_size` of the index is not the sum of the tensors.
    TotalSize,
    /// Two files have a tensor of one name.
    DuplicateName,
    /// The metadata of the files of a split contradict each other.
    SplitMetadata,
    /// One of several checkpoints of a directory, each of which can be opened.
    OneOfSeveral,
    /// A file that was selected of a directory, which is no fault: a survey of the rest passes over it.
    Selected,
}

/// A fault, and the error of opening without a list of faults.
#[derive(Debug)]
pub(crate) struct OpenFault {
    pub(crate) kind: OpenFaultKind,
    /// The file: for a misplaced tensor the one that the index names.
    pub(crate) file: Option<PathBuf>,
    pub(crate) tensor: Option<Box<str>>,
    pub(crate) error: Error,
}

impl OpenFault {
    /// A file that is there, and cannot be read.
    pub(crate) fn unreadable(path: &Path, error: Error) -> Self {
        Self {
            kind: OpenFaultKind::UnreadableFile,
            file: Some(path.to_owned()),
            tensor: None,
            error,
        }
    }

    /// The path of one of several checkpoints.
    pub(crate) fn one_of_several(&self) -> Option<PathBuf> {
        let path = (self.kind == OpenFaultKind::OneOfSeveral).then_some(self.file.as_ref())?;
        path.cloned()
    }

    /// Whether this is no fault, but a file that was selected.
    pub(crate) fn is_selected(&self) -> bool {
        self.kind == OpenFaultKind::Selected
    }

    /// Whether a file that is there was not read.
    pub(crate) fn is_unreadable_file(&self) -> bool {
        self.kind == OpenFaultKind::UnreadableFile
    }
}

/// The list of faults that a survey collects.
pub(crate) type FaultList = Arc<PoisonMutex<Vec<OpenFault>>>;

/// The checkpoint as far as it could be opened, and the faults of the rest.
#[derive(Debug)]
pub(crate) struct Survey {
    /// The checkpoint of the files that could be read.
    pub(crate) checkpoint: Result<Checkpoint>,
    pub(crate) faults: Vec<OpenFault>,
}

impl OpenOptions {
    /// Like [`open`](Self::open), with all faults of the files and of their index. Files and tensors that have a fault are
    /// left out.
    pub(crate) fn survey(&self, path: &Path) -> Survey {
        let list = FaultList::default();
        let options = Self {
            faults: Some(Arc::clone(&list)),
            ..self.clone()
        };
        let checkpoint = options.open(path);
        let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
        Survey {
            checkpoint,
            faults: std::mem::take(&mut list),
        }
    }

    /// The same options, for a directory as if these names were not in it.
    pub(crate) fn passing_over(&self, names: Arc<BTreeSet<String>>) -> Self {
        Self {
            passed_over: Some(names),
            ..self.clone()
        }
    }

    /// The same options, for a directory as if the files of the set of this path were the only models in it; `None` for a
    /// path that opens all of its model.
    pub(crate) fn of_set(&self, path: &Path) -> Option<Self> {
        let key = SetKey::of(&file_name(path)).filter(SetKey::opens_by_directory)?;
        Some(Self {
            only_set: Some(Arc::new(key)),
            ..self.clone()
        })
    }

    /// Whether these are the options of one set.
    pub(crate) fn is_of_set(&self) -> bool {
        self.only_set.is_some()
    }

    pub(super) fn passes_over(&self, name: &str) -> bool {
        let names = self.passed_over.as_ref();
        let is_other =
            |key: &Arc<SetKey>| is_model_file(name) && SetKey::of(name).as_ref() != Some(key);
        names.is_some_and(|names| names.contains(name))
            || self.only_set.as_ref().is_some_and(is_other)
    }

    /// Forgets the faults of an attempt that is repeated, which would be in the list twice.
    pub(super) fn forget_faults(&self) {
        if let Some(list) = &self.faults {
            list.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }

    /// Notices the files that were selected of a directory, if faults are collected.
    pub(super) fn selected(&self, paths: &[PathBuf], budget: &Budget) -> Result<()> {
        for path in paths.iter().filter(|_| self.surveys()) {
            let fault = OpenFault {
                kind: OpenFaultKind::Selected,
                file: Some(path.clone()),
                tensor: None,
                error: Error::unsupported("a file that was selected"),
            };
            self.fault(fault, budget)?;
        }
        Ok(())
    }

    /// Whether a fault is in the list.
    pub(super) fn has_faults(&self) -> bool {
        let is_none = |fault: &OpenFault| {
            matches!(
                fault.kind,
                OpenFaultKind::Selected | OpenFaultKind::OneOfSeveral
            )
        };
        self.faults.as_ref().is_some_and(|list| {
            let list = list.lock().unwrap_or_else(PoisonError::into_inner);
            !list.iter().all(is_none)
        })
    }

    /// Whether faults are collected.
    pub(super) fn surveys(&self) -> bool {
        self.faults.is_some()
    }

    /// Reports a fault.
    ///
    /// # Errors
    /// The fault's own error, unless faults are collected; a list of faults over the limit on memory.
    pub(super) fn fault(&self, fault: OpenFault, budget: &Budget) -> Result<()> {
        let Some(list) = &self.faults else {
            return Err(fault.error);
        };
        // a caller that has cancelled, and a limit, end opening in any case
        if let ErrorKind::Cancelled | ErrorKind::Limit { .. } = fault.error.kind() {
            return Err(fault.error);
        }
        let texts = fault
            .tensor
            .as_ref()
            .map_or(0, |name| text_cost(name.len()))
            + fault
                .file
                .as_ref()
                .map_or(0, |path| text_cost(path.as_os_str().len()));
        // a file decides how many faults there are: an index may name a million missing shards
        budget.memory(texts + fault.error.memory(), WHAT)?;
        let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
        budget.push(&mut list, fault, WHAT)
    }

    /// The files among `paths` that exist; each of the others is a fault.
    ///
    /// # Errors
    /// Like [`require`], unless faults are collected.
    pub(super) fn present(
        &self,
        files: &Files,
        paths: Vec<PathBuf>,
        budget: &Budget,
    ) -> Result<Vec<PathBuf>> {
        if !self.surveys() {
            require(files, &paths)?;
            return Ok(paths);
        }
        let mut present = Vec::new();
        budget.reserve(&mut present, paths.len(), WHAT)?;
        for path in paths {
            if files.exists(&path) {
                present.push(path);
                continue;
            }
            let error = Error::new(ErrorKind::MissingPart(file_name(&path)));
            let fault = OpenFault {
                kind: OpenFaultKind::MissingFile,
                file: Some(path),
                tensor: None,
                error,
            };
            self.fault(fault, budget)?;
        }
        Ok(present)
    }
}

const WHAT: &str = "the list of faults";
