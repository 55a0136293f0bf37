//! A model that a search has found, and how it is opened.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anamnesis_os::files::directory_of;

use crate::base::error::{Error, Result};
use crate::base::limits::Budget;
use crate::read::checkpoint::directory::select_files;
use crate::read::checkpoint::shards::open_together;
use crate::read::checkpoint::{Checkpoint, OpenOptions};
use crate::read::format;
use crate::read::source::file_system::{MapMode, NamedPath};
use crate::read::source::files::Files;

/// Why a file is thought to be a model before it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FoundEvidence {
    /// Its name: one that cannot be opened is a broken model.
    Name,
    /// An ending that other programs have too (`.bin`): one of no known format is no model.
    Ending,
    /// None: its first bytes decide.
    Content,
}

/// The files of a model.
#[derive(Debug)]
pub(crate) enum FilesOfModel {
    /// One path opens the whole: a file, an index, a file of a split.
    Path(PathBuf),
    /// Shards without an index, or pieces.
    Together(Vec<PathBuf>),
    /// Files of ranks, each of which holds a part of every tensor.
    Ranks(Vec<PathBuf>),
    /// A model that cannot be opened.
    Fault(Error),
}

impl FilesOfModel {
    /// The paths of the files; none of a fault.
    pub(super) fn paths(&self) -> &[PathBuf] {
        match self {
            Self::Path(path) => std::slice::from_ref(path),
            Self::Together(paths) | Self::Ranks(paths) => paths,
            Self::Fault(_) => &[],
        }
    }
}

/// A model that was found.
pub(crate) struct FoundModel {
    /// The path by which it is listed.
    pub(crate) path: PathBuf,
    pub(crate) content: FilesOfModel,
    /// Why some of its directory's files may be old ones and others new ones, if they may.
    pub(crate) interrupted: Option<&'static str>,
    /// Whether it was the only model in its directory.
    pub(super) is_only: bool,
    pub(super) evidence: FoundEvidence,
    pub(super) root: Arc<Path>,
    pub(super) files: Files,
}

impl FoundModel {
    pub(super) fn faulty(path: PathBuf, root: Arc<Path>, error: Error) -> Self {
        Self {
            path,
            content: FilesOfModel::Fault(error),
            interrupted: None,
            is_only: false,
            evidence: FoundEvidence::Name,
            root,
            files: Files::default(),
        }
    }

    /// The paths that open it, without those that are not there.
    pub(super) fn opened_paths(&self) -> Vec<PathBuf> {
        match &self.content {
            // the path of a missing file, so that its opening fails
            FilesOfModel::Fault(error) => vec![error.path().unwrap_or(&self.path).to_owned()],
            content => content.paths().to_vec(),
        }
    }

    /// The path that opens it as a whole.
    ///
    /// # Errors
    /// Its fault. Files that no single path opens together are opened by the first one.
    pub(crate) fn whole_path(self) -> Result<PathBuf> {
        match self.content {
            FilesOfModel::Fault(error) => Err(error.in_file(&self.path)),
            // shown by its directory, which opens them
            FilesOfModel::Together(paths) if !paths.contains(&self.path) => Ok(self.path),
            FilesOfModel::Together(paths) => {
                let directory = self.path.parent().unwrap_or(Path::new("")).to_owned();
                let options = OpenOptions::default();
                let chosen = select_files(&self.files, &directory, &options, &options.budget());
                // the directory opens them, if they are alone in it
                Ok(match chosen.is_ok_and(|chosen| chosen.files == paths) {
                    true => directory,
                    false => self.path,
                })
            }
            FilesOfModel::Path(_) | FilesOfModel::Ranks(_) => Ok(self.path),
        }
    }

    /// Whether its files belong to the operating system.
    pub(crate) fn is_local(&self) -> bool {
        self.files.is_local()
    }

    /// The path of its only file, as far as this is known without opening it.
    pub(crate) fn only_file(&self) -> Option<&Path> {
        match &self.content {
            FilesOfModel::Path(path) if self.files.is_local() => Some(path),
            _ => None,
        }
    }

    /// Whether the name by which it is listed has gone since.
    pub(crate) fn is_gone(&self) -> bool {
        self.files.is_local() && self.path.symlink_metadata().is_err()
    }

    /// Whether files of it have gone since it was found, as another process has replaced the checkpoint of its directory.
    pub(crate) fn has_gone_files(&self) -> bool {
        let is_gone = |path: &PathBuf| path.symlink_metadata().is_err();
        // a manifest names no file of its directory
        let is_named = self.path.is_dir() || self.content.paths().contains(&self.path);
        self.files.is_local() && is_named && self.content.paths().iter().any(is_gone)
    }

    /// The directory that opens what has taken the place of its model; `None` where others of the directory were found.
    pub(crate) fn directory_of_replaced(&self) -> Option<&Path> {
        match self.path.is_dir() {
            true => Some(&self.path),
            false => self.is_only.then(|| directory_of(&self.path)),
        }
    }

    /// Opens the directory that it was found in.
    ///
    /// # Errors
    /// The errors of [`Checkpoint::open`].
    pub(crate) fn open_directory(
        &self,
        directory: &Path,
        options: &OpenOptions,
    ) -> Result<Checkpoint> {
        let options = options.clone().found_in(&*self.root);
        options.open_in(self.files.clone(), Cow::Borrowed(directory))
    }

    /// Whether it is a model, as far as its name or its first bytes say.
    pub(crate) fn may_be_model(&self) -> bool {
        let FilesOfModel::Path(path) = &self.content else {
            return true;
        };
        match self.evidence {
            FoundEvidence::Name => true,
            FoundEvidence::Ending => self.looks_like_model(path, true),
            FoundEvidence::Content => self.looks_like_model(path, false),
        }
    }

    fn looks_like_model(&self, path: &Path, is_pickle_ending: bool) -> bool {
        let budget = Budget::new(OpenOptions::new().limits_of());
        let mode = MapMode {
            mmap: false,
            private: false,
        };
        let named = NamedPath::below(&self.root, path);
        let source = self.files.open_named(named, mode, &budget);
        source.is_ok_and(|source| format::looks_like_tensors(&*source, is_pickle_ending, &budget))
    }

    /// Opens it: one checkpoint, or one for each rank. `None` for a file that is no model.
    ///
    /// # Errors
    /// The errors of [`Checkpoint::open`].
    pub(crate) fn open(&self, options: &OpenOptions) -> Result<Option<Vec<Checkpoint>>> {
        let options = options.clone().found_in(&*self.root);
        let open = |path: &Path| options.open_in(self.files.clone(), Cow::Borrowed(path));
        match &self.content {
            FilesOfModel::Fault(error) => Err(error.duplicate()),
            FilesOfModel::Path(path) => {
                if !self.may_be_model() {
                    return Ok(None);
                }
                open(path).map(|checkpoint| Some(vec![checkpoint]))
            }
            FilesOfModel::Together(paths) => {
                let opened = open_together(&self.files, &self.root, paths, &options);
                opened.map(|checkpoint| Some(vec![checkpoint]))
            }
            FilesOfModel::Ranks(paths) => {
                let ranks = paths.iter().map(|path| open(path));
                ranks.collect::<Result<_>>().map(Some)
            }
        }
    }
}
