//! `list`: the models of a directory tree, a cache or a bucket, each described by its headers.
//!
//! A walk finds models by names (`read/checkpoint/search`). They are opened in groups, by several threads, and released before the
//! next group: memory does not grow with the number of models, and the first ones are known while the walk goes on.

mod entry;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use crate::base::error::{Error, Result};
use crate::base::progress::RunProgress;
use crate::base::sync::PoisonMutex;
use crate::base::threads::{for_each_of, thread_count};
use crate::read::checkpoint::{FoundModel, ModelSearch, OpenOptions, SearchPlace, SearchScope};
use crate::read::run_options::{RunOptions, run_options};

pub use entry::ModelEntry;

/// Models of a group for each thread: enough that threads seldom wait for the last one.
const GROUP: usize = 16;
/// Threads where opening waits for a server.
const REMOTE_THREADS: usize = 32;

/// A function that accepts names.
type NameTest<'c> = Arc<dyn Fn(&str) -> bool + Send + Sync + 'c>;

/// Lists the models at or below a path. Made by [`list`].
#[derive(Clone)]
pub struct List<'c> {
    root: PathBuf,
    open: OpenOptions,
    all_snapshots: bool,
    has: Vec<NameTest<'c>>,
    options: RunOptions<'c>,
}

/// Lists the models at or below a path, in the order of their paths: a directory tree, a cache of the Hugging Face hub, a store of
/// Ollama's, a bucket or a prefix of one (feature `remote`), or one model. Reads headers and configurations only.
///
/// A file that looks like a model and cannot be opened is an entry with its [error](ModelEntry::error). Links to directories and
/// hidden directories are not followed. A repository of the hub's cache is one entry, of the revision in `refs/main`, unless it
/// holds several models.
///
/// ```
/// for model in anamnesis::list("fixtures/model").run()? {
///     let model = model?;
///     match &model.error {
///         None => println!("{}: {:?}, {:?} bytes", model.path.display(), model.architecture, model.nbytes),
///         Some(error) => println!("{}: {error}", model.path.display()),
///     }
/// }
/// # Ok::<(), anamnesis::Error>(())
/// ```
pub fn list<'c>(root: impl AsRef<Path>) -> List<'c> {
    List {
        root: root.as_ref().to_owned(),
        open: OpenOptions::new(),
        all_snapshots: false,
        has: Vec::new(),
        options: RunOptions::default(),
    }
}

run_options!(List {
    /// One per core for a tree, and more where each file is a request.
    threads,
    cancel,
});

impl<'c> List<'c> {
    /// How models are opened: limits, options of URLs. They are never mapped, as a tree may be another user's, who can shorten a
    /// file meanwhile.
    #[must_use]
    pub fn open_options(mut self, options: OpenOptions) -> Self {
        self.open = options;
        self
    }

    /// Whether every snapshot of a repository in the hub's cache is listed, and not the one of `refs/main` alone. Default off.
    #[must_use]
    pub fn all_snapshots(mut self, all: bool) -> Self {
        self.all_snapshots = all;
        self
    }

    /// Lists only models that have a stored tensor or a weight whose name this accepts. May be called several times: each has to
    /// accept a name. Models that cannot be opened are listed all the same.
    #[must_use]
    pub fn has(mut self, accepts: impl Fn(&str) -> bool + Send + Sync + 'c) -> Self {
        self.has.push(Arc::new(accepts));
        self
    }

    /// Begins the walk. Entries are made while they are taken.
    ///
    /// # Errors
    /// Nothing is at the path, or it cannot be read.
    pub fn run(&self) -> Result<ListedModels<'c>> {
        let models = ListedModels {
            open: self.open(),
            scope: self.scope(),
            has: self.has.clone(),
            options: self.options.clone(),
            search: None,
            ready: VecDeque::new(),
            alone: None,
        };
        let begun = models.begin(&self.root);
        // a cancelled wait for a list looks like a failure of the server
        begun.map_err(|error| self.options.control.check().err().unwrap_or(error))
    }

    /// The paths of the models, without opening any: in the order of [`run`](Self::run), each as it is opened as a whole.
    ///
    /// ```
    /// let paths: Vec<_> = anamnesis::list("fixtures/model").paths()?.collect::<Result<_, _>>()?;
    /// assert!(paths.contains(&"fixtures/model/scribe.safetensors".into()));
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`run`](Self::run); one for each directory that cannot be read.
    pub fn paths(&self) -> Result<impl Iterator<Item = Result<PathBuf>> + use<'c>> {
        let mut models = self.run()?;
        Ok(std::iter::from_fn(move || models.next_path()))
    }

    fn open(&self) -> OpenOptions {
        let open = self.open.clone().mmap(false);
        match self.options.control.token() {
            Some(token) => open.cancel(token),
            None => open,
        }
    }

    fn scope(&self) -> SearchScope {
        match self.all_snapshots {
            true => SearchScope::AllSnapshots,
            false => SearchScope::All,
        }
    }
}

/// The models of a walk, described as they are taken. Made by [`List::run`].
///
/// Each is an entry; an error ends the walk: it was cancelled.
pub struct ListedModels<'c> {
    open: OpenOptions,
    scope: SearchScope,
    has: Vec<NameTest<'c>>,
    options: RunOptions<'c>,
    search: Option<ModelSearch>,
    ready: VecDeque<ModelEntry>,
    /// A path that is one model, which the caller has named.
    alone: Option<PathBuf>,
}

impl ListedModels<'_> {
    /// Finds out whether the root is a directory or a model.
    fn begin(mut self, root: &Path) -> Result<Self> {
        let (files, shown) = self.open.files(root)?;
        // one that is not there is an error of the call, and no entry
        if files.is_local() {
            std::fs::metadata(&*shown).map_err(|e| Error::from(e).in_file(&shown))?;
        }
        if files.is_directory(&shown) {
            let place = SearchPlace::of(files, &shown)?;
            self.search = Some(ModelSearch::begin(place, &self.open, self.scope)?);
        } else {
            self.alone = Some(root.to_owned());
        }
        Ok(self)
    }

    /// The next model that the walk finds.
    fn found(&mut self) -> Option<Result<FoundModel>> {
        self.search.as_mut()?.next()
    }

    fn next_path(&mut self) -> Option<Result<PathBuf>> {
        if let Some(alone) = self.alone.take() {
            return Some(Ok(alone));
        }
        loop {
            match self.found()? {
                Err(error) => return Some(Err(error)),
                // one that another process has removed since its directory was listed
                Ok(model) if model.is_gone() => {}
                Ok(model) if model.may_be_model() => return Some(model.whole_path()),
                Ok(_) => {}
            }
        }
    }

    /// Opens the next models, several at once.
    fn fill(&mut self) -> Result<()> {
        let is_local = self.search.as_ref().is_some_and(ModelSearch::is_local);
        let threads = match (self.options.threads, is_local) {
            (0, false) => REMOTE_THREADS,
            (threads, _) => thread_count(threads),
        };
        let mut found = Vec::new();
        while found.len() < threads * GROUP {
            match self.found() {
                None => break,
                Some(model) => found.push(model?),
            }
        }
        let entries: Vec<_> = found.iter().map(|_| PoisonMutex::new(None)).collect();
        let progress = RunProgress::new(0, &self.options.control);
        let open = |row: usize, model: &FoundModel, (): &mut ()| {
            // the others of the group are not opened
            self.options.control.check()?;
            let entry = ModelEntry::of(model, &self.open, &self.has);
            *entries[row].lock().unwrap_or_else(PoisonError::into_inner) = entry;
            Ok(())
        };
        for_each_of("list", &found, threads, &progress, || (), open)?;
        // a wait that is cancelled looks like a broken file
        self.options.control.check()?;
        let entries = entries.into_iter();
        let entries =
            entries.filter_map(|entry| entry.into_inner().unwrap_or_else(PoisonError::into_inner));
        self.ready.extend(entries);
        Ok(())
    }
}

impl Iterator for ListedModels<'_> {
    type Item = Result<ModelEntry>;

    fn next(&mut self) -> Option<Result<ModelEntry>> {
        if let Err(cancelled) = self.options.control.check() {
            (self.search, self.alone) = (None, None);
            return Some(Err(cancelled));
        }
        if let Some(path) = self.alone.take() {
            let entry = ModelEntry::of_path(&path, &self.open, &self.has);
            // a cancelled wait looks like a broken file
            return match self.options.control.check() {
                Ok(()) => entry.map(Ok),
                Err(cancelled) => Some(Err(cancelled)),
            };
        }
        while self.ready.is_empty() {
            self.search
                .as_ref()
                .filter(|search| !search.is_finished())?;
            if let Err(error) = self.fill() {
                self.search = None;
                return Some(Err(error));
            }
        }
        self.ready.pop_front().map(Ok)
    }
}

impl std::fmt::Debug for ListedModels<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ListedModels").finish_non_exhaustive()
    }
}
