//! The checkpoints below a directory that holds several of them: a walk without recursion, which opens none of them.
//!
//! `grouping` says which names of one directory are one model, `place` where names come from (a local directory, or the
//! list of a bucket), `found` how a found model is opened.

mod directory_items;
mod found;
mod grouping;
mod listed_files;
mod names;
mod place;
mod searched_directory;

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anamnesis_os::directory_lock::is_locked;
use anamnesis_os::files::directory_of;
use anamnesis_os::hub_cache::is_repository;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits::{Budget, Limits, text_cost};
use crate::base::template::weight_ending;
use crate::read::source::files::Files;
use crate::read::source::ollama;
use crate::read::source::regular::check_directory;
use crate::read::source::snapshot::snapshot_of;

use super::beside_runs::Attempts;
use super::replaced::{is_changing, is_for_want_of_a_file};
use super::{OpenOptions, read_beside_runs};

use found::FilesOfModel;
pub(crate) use found::FoundModel;
use names::SearchedNames;
use place::NAMES_MEMORY;
pub(crate) use place::SearchPlace;
use searched_directory::{DirectoryModel, SearchedDirectory};

/// The deepest directory that is searched.
const MAX_DEPTH: usize = 64;
/// Endings of files with tensors that are no checkpoint each where a directory holds several: parts and arrays.
const PARTS: [&str; 3] = ["distcp", "npz", "npy"];

/// The paths below a directory that [`Checkpoint::open`](crate::Checkpoint::open) opens as one checkpoint each, in the order of
/// their names. Opens none of them.
///
/// A directory with one checkpoint is itself the result. A repository in the hub's cache gives its chosen snapshot. A
/// directory with several gives each file, each split once, and of a set that lacks files the first missing one, whose opening
/// fails, and is searched further, as one without tensor files is. Hidden
/// directories and links to directories are not searched.
///
/// # Errors
/// A directory cannot be read, or more names than [`Limits::memory`] allows.
pub fn checkpoints_below(directory: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
    let (budget, mut found) = (Budget::new(Limits::default()), Vec::new());
    let options = OpenOptions::default();
    let place = SearchPlace::local(directory.as_ref());
    let search = ModelSearch::begin(place, &options, SearchScope::OnePerDirectory)?;
    for model in search {
        let model = model?;
        // the opening of a faulty one reports the fault, but for the directory itself
        if let FilesOfModel::Fault(error) = &model.content
            && *model.path == *directory.as_ref()
        {
            return Err(error.duplicate());
        }
        if !model.may_be_model() {
            continue;
        }
        let paths = match model.path.is_dir() {
            true => vec![model.path.clone()],
            false => model.opened_paths(),
        };
        for path in paths {
            let ending = path.file_name().and_then(|name| name.to_str());
            let ending = ending.and_then(weight_ending);
            if !path.is_dir() && ending.is_some_and(|ending| PARTS.contains(&ending)) {
                continue;
            }
            const WHAT: &str = "the list of checkpoints";
            budget.memory(text_cost(path.as_os_str().len()), WHAT)?;
            budget.push(&mut found, path, WHAT)?;
        }
    }
    Ok(found)
}

/// Which models a search finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SearchScope {
    /// All models; in a repository of the hub's cache, the ones in its chosen snapshot.
    All,
    /// All models; in a repository of the hub's cache, the ones in all snapshots.
    AllSnapshots,
    /// A directory that opens as one checkpoint is that one, and is not searched further.
    OnePerDirectory,
}

/// A walk over the models at or below a directory, in the order of their paths.
pub(crate) struct ModelSearch {
    place: SearchPlace,
    options: OpenOptions,
    scope: SearchScope,
    /// The directories on the way to the position of the walk.
    frames: Vec<SearchFrame>,
}

/// A directory whose entries are not all visited.
struct SearchFrame {
    directory: SearchedDirectory,
    items: std::vec::IntoIter<SearchItem>,
}

/// An entry of a directory, by the positions of names.
enum SearchItem {
    Model(DirectoryModel),
    Folder(u32),
    /// A folder that is searched as the manifests of an Ollama store.
    Manifests(u32),
    /// A fault of the directory itself.
    Fault(Error),
}

impl ModelSearch {
    /// A walk that begins at a directory.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub(crate) fn begin(
        place: SearchPlace,
        options: &OpenOptions,
        scope: SearchScope,
    ) -> Result<Self> {
        let mut search = Self {
            place,
            options: options.clone(),
            scope,
            frames: Vec::new(),
        };
        let root = search.place.root().to_owned();
        let is_manifests = search.place.is_local() && ollama::is_of_manifests(&root);
        search.enter(root, is_manifests)?;
        Ok(search)
    }

    /// Whether the place is on this machine.
    pub(crate) fn is_local(&self) -> bool {
        self.place.is_local()
    }

    /// Whether everything was visited.
    pub(crate) fn is_finished(&self) -> bool {
        self.frames.is_empty()
    }

    /// Lists a directory, whose entries are visited next.
    fn enter(&mut self, path: PathBuf, is_manifests: bool) -> Result<()> {
        if self.frames.len() > MAX_DEPTH {
            return Err(Error::unsupported(format!(
                "the directory is more than {MAX_DEPTH} directories below the one that is searched, and was not looked at"
            ))
            .in_file(&path));
        }
        if self.place.is_local() && is_repository(&path) {
            let budget = Budget::new(Limits {
                memory: NAMES_MEMORY,
                ..Limits::default()
            });
            return self.enter_repository(path, &budget);
        }
        self.push_listed(path, is_manifests)
    }

    /// Visits the entries of a directory next. `shown`: the path by which the one model of the directory is shown.
    fn push(
        &mut self,
        path: PathBuf,
        shown: Option<PathBuf>,
        names: SearchedNames,
        is_manifests: bool,
        budget: &Budget,
    ) -> Result<()> {
        let frame = self.frame(path, shown, names, is_manifests, budget)?;
        self.frames.push(frame);
        Ok(())
    }

    /// Visits the entries of a directory next, which no other one is shown for.
    fn push_listed(&mut self, path: PathBuf, is_manifests: bool) -> Result<()> {
        let frame = self.listed(&path, is_manifests)?;
        self.frames.push(frame);
        Ok(())
    }

    /// Lists a directory. Files of an old checkpoint may be among its names if a run was replacing it meanwhile.
    fn listed(&self, path: &Path, is_manifests: bool) -> Result<SearchFrame> {
        let is_local = self.place.is_local();
        let was_written = is_local && is_locked(path);
        let (names, budget) = self.list(path)?;
        let is_written = was_written || (is_local && is_locked(path));
        let mut frame = self.frame(path.to_owned(), None, names, is_manifests, &budget)?;
        frame.directory.is_written = is_written;
        Ok(frame)
    }

    fn frame(
        &self,
        path: PathBuf,
        shown: Option<PathBuf>,
        names: SearchedNames,
        is_manifests: bool,
        budget: &Budget,
    ) -> Result<SearchFrame> {
        let files = self.place.files_of(&path, &names);
        let mut directory = SearchedDirectory {
            path: path.into(),
            root: self.place.root_arc(),
            shown: shown.map(Into::into),
            names,
            files,
            is_written: false,
            has_one: false,
            below: BTreeSet::new(),
            interrupted: OnceCell::new(),
        };
        let items = if is_manifests {
            directory.manifests()
        } else if self.scope == SearchScope::OnePerDirectory || directory.shown.is_some() {
            self.one_of(&mut directory, budget)?
        } else {
            self.all_of(&mut directory, budget)
        };
        let models = items
            .iter()
            .filter(|item| matches!(item, SearchItem::Model(_)));
        directory.has_one = models.count() == 1;
        Ok(SearchFrame {
            directory,
            items: items.into_iter(),
        })
    }

    /// A model as it is found again while another process replaces the checkpoint of its directory (`is_written`): one that lacks
    /// files, or files that are no part of the checkpoint. The files of an old one are removed one by one. `None` if it has gone.
    fn settled(&self, mut found: FoundModel, mut is_written: bool) -> Option<FoundModel> {
        let mut attempts = Attempts::begin();
        while self.place.is_local()
            && (is_written || matches!(found.content, FilesOfModel::Fault(_)))
        {
            let is_directory = found.path.is_dir();
            let directory = match is_directory {
                true => &*found.path,
                false => directory_of(&found.path),
            };
            let may_go = match &found.content {
                FilesOfModel::Fault(error) => {
                    is_for_want_of_a_file(error, directory) && is_changing(directory)
                }
                _ => !is_directory,
            };
            if !may_go || is_repository(directory) || !attempts.again() {
                break;
            }
            let SearchFrame { directory, items } = self.listed(directory, false).ok()?;
            is_written = directory.is_written;
            let mut models = items.filter_map(|item| match item {
                SearchItem::Model(model) => Some(directory.found(model)),
                SearchItem::Fault(error) => Some(directory.fault(error)),
                SearchItem::Folder(_) | SearchItem::Manifests(_) => None,
            });
            found = models.find(|model| model.path == found.path)?;
        }
        Some(found)
    }

    /// The names in a directory, and the budget that they are charged on.
    fn list(&self, path: &Path) -> Result<(SearchedNames, Budget)> {
        let list = || {
            let budget = Budget::new(Limits {
                memory: NAMES_MEMORY,
                ..Limits::default()
            });
            Ok((self.place.names(path, &budget)?, budget))
        };
        match self.place.is_local() {
            // a configuration that a run hides for a moment would be missing, and the directory no model's
            true => read_beside_runs(&Files::default(), path, list),
            false => list(),
        }
    }

    /// Finds the snapshots of a repository in the hub's cache.
    fn enter_repository(&mut self, path: PathBuf, budget: &Budget) -> Result<()> {
        let names = self.place.names(&path, budget)?;
        if !names.has_folder("snapshots") {
            // a download that was not begun; or a directory that is called like a repository
            let is_cache = names.has_folder("blobs") || names.has_folder("refs");
            let names = if is_cache {
                SearchedNames::default()
            } else {
                names
            };
            return self.push(path, None, names, false, budget);
        }
        if self.scope == SearchScope::AllSnapshots {
            let snapshots = path.join("snapshots");
            let mut names = self.place.names(&snapshots, budget)?;
            for linked in std::mem::take(&mut names.linked) {
                check_directory(&path, &snapshots.join(&names.all[linked as usize]))?;
                names.folders.push(linked);
            }
            names.folders.sort_unstable();
            return self.push(snapshots, None, names, false, budget);
        }
        let snapshot = snapshot_of(&path)?.ok_or_else(|| {
            Error::unsupported("the hub's cache holds no snapshot of this repository")
                .in_file(&path)
        })?;
        let names = self.place.names(&snapshot, budget)?;
        let shown = (self.scope == SearchScope::All).then_some(path);
        self.push(snapshot, shown, names, false, budget)
    }
}

impl Iterator for ModelSearch {
    type Item = Result<FoundModel>;

    fn next(&mut self) -> Option<Result<FoundModel>> {
        loop {
            if let Err(cancelled) = self.options.check_cancelled() {
                self.frames.clear();
                return Some(Err(cancelled));
            }
            let frame = self.frames.last_mut()?;
            let Some(item) = frame.items.next() else {
                self.frames.pop();
                continue;
            };
            let is_written = frame.directory.is_written;
            let found = match item {
                SearchItem::Model(model) => Ok(frame.directory.found(model)),
                SearchItem::Fault(error) => Ok(frame.directory.fault(error)),
                SearchItem::Folder(folder) => Err((folder, false)),
                SearchItem::Manifests(folder) => Err((folder, true)),
            };
            let (folder, is_manifests) = match found {
                Ok(found) => match self.settled(found, is_written) {
                    Some(found) => return Some(Ok(found)),
                    None => continue,
                },
                Err(folder) => folder,
            };
            let frame = self.frames.last_mut()?;
            let path = frame.directory.entry(folder);
            let root = Arc::clone(&frame.directory.root);
            if let Err(error) = self.enter(path.clone(), is_manifests) {
                if let ErrorKind::Cancelled = error.kind() {
                    return Some(Err(error));
                }
                // the others are searched all the same
                return Some(Ok(FoundModel::faulty(path, root, error)));
            }
        }
    }
}
