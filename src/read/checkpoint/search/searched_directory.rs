//! A directory that is searched: its names, and the models among them as they are opened.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits::{Budget, text_cost};
use crate::base::template::weight_ending;
use crate::read::checkpoint::OpenOptions;
use crate::read::checkpoint::directory::choose;
use crate::read::checkpoint::edit_journal::{INTERRUPTED, JOURNAL};
use crate::read::checkpoint::replaced;
use crate::read::source::files::Files;
use crate::read::source::ollama::{BLOBS, MANIFESTS, blob_of};

use super::SearchItem;
use super::found::{FilesOfModel, FoundEvidence, FoundModel};
use super::names::SearchedNames;

const WHAT: &str = "the names of a directory";

/// The beginning of the names of files under construction.
const OWN: &str = ".anamnesis-";

/// A directory and the names in it.
pub(super) struct SearchedDirectory {
    pub(super) path: Arc<Path>,
    pub(super) root: Arc<Path>,
    /// The path by which its only model is shown: the repository of a snapshot.
    pub(super) shown: Option<Arc<Path>>,
    pub(super) names: SearchedNames,
    pub(super) files: Files,
    /// Whether a run was replacing a checkpoint in it when it was listed: files of an old one may be among the names.
    pub(super) is_written: bool,
    /// Whether one model was found in it.
    pub(super) has_one: bool,
    /// The files in directories below it that its indexes name.
    pub(super) below: BTreeSet<PathBuf>,
    /// Why its models may be half changed. Found out once: a directory may have a million models.
    pub(super) interrupted: OnceCell<Option<&'static str>>,
}

/// A model among the names in a directory.
pub(super) struct DirectoryModel {
    /// The position of the name by which it is shown and sorted.
    pub(super) name: u32,
    /// Whether it is shown by its directory.
    pub(super) is_directory: bool,
    evidence: FoundEvidence,
    /// `None` for the file of that name.
    // boxed: a directory may have a million files, of which nearly all are models of one file
    content: Option<Box<FilesOfModel>>,
}

impl DirectoryModel {
    pub(super) fn file(name: u32, evidence: FoundEvidence) -> Self {
        Self {
            name,
            is_directory: false,
            evidence,
            content: None,
        }
    }

    /// The model of a directory, which is shown by it.
    pub(super) fn of_directory(name: u32, content: FilesOfModel) -> Self {
        Self {
            is_directory: true,
            ..Self::of(name, content)
        }
    }

    pub(super) fn of(name: u32, content: FilesOfModel) -> Self {
        Self {
            content: Some(Box::new(content)),
            ..Self::file(name, FoundEvidence::Name)
        }
    }
}

impl SearchedDirectory {
    /// The path of a name.
    pub(super) fn entry(&self, name: u32) -> PathBuf {
        self.path.join(&self.names.all[name as usize])
    }

    /// The text of a name.
    pub(super) fn text(&self, name: u32) -> Cow<'_, str> {
        self.names.all[name as usize].to_string_lossy()
    }

    /// Whether it is a store of Ollama's, whose manifests name blobs.
    pub(super) fn is_ollama_store(&self) -> bool {
        self.files.is_local() && self.names.has_folder(MANIFESTS) && self.names.has_folder(BLOBS)
    }

    /// A model as it is opened.
    pub(super) fn found(&self, model: DirectoryModel) -> FoundModel {
        let path = match (&self.shown, model.is_directory) {
            (Some(shown), true) => shown.to_path_buf(),
            (None, true) => self.path.to_path_buf(),
            (_, false) => self.entry(model.name),
        };
        let content = match model.content {
            Some(content) => *content,
            None => FilesOfModel::Path(self.entry(model.name)),
        };
        FoundModel {
            path,
            content,
            interrupted: self.interrupted(),
            is_only: self.has_one,
            evidence: model.evidence,
            root: Arc::clone(&self.root),
            files: self.files.clone(),
        }
    }

    /// Why the models of the directory may be half changed, if its names say so.
    fn interrupted(&self) -> Option<&'static str> {
        *self.interrupted.get_or_init(|| self.find_interrupted())
    }

    fn find_interrupted(&self) -> Option<&'static str> {
        let all = &self.names.all;
        // hidden names and the journal begin so, and names are sorted
        let first = all.partition_point(|name| name.as_encoded_bytes() < OWN.as_bytes());
        let own = all[first..].iter().map(|name| name.to_string_lossy());
        own.take_while(|name| name.starts_with(OWN))
            .find_map(|name| match &*name {
                JOURNAL => Some(INTERRUPTED),
                name => replaced::left(&self.files, &self.path, name),
            })
    }

    /// The directory as a model that cannot be opened.
    pub(super) fn fault(&self, error: Error) -> FoundModel {
        let path = self.shown.as_ref().unwrap_or(&self.path);
        FoundModel::faulty(path.to_path_buf(), Arc::clone(&self.root), error)
    }

    /// The manifests of a store and the folders of them.
    pub(super) fn manifests(&self) -> Vec<SearchItem> {
        let names = &self.names;
        let mut items: Vec<(u32, SearchItem)> = Vec::new();
        for &file in &names.files {
            let manifest = self.entry(file);
            let content = match blob_of(&manifest) {
                Ok(Some(blob)) => FilesOfModel::Path(blob),
                Ok(None) => continue,
                Err(error) => match error.kind() {
                    // another kind than a model
                    ErrorKind::UnknownFormat { .. } => continue,
                    _ => FilesOfModel::Fault(error),
                },
            };
            if !self.text(file).starts_with('.') {
                items.push((file, SearchItem::Model(DirectoryModel::of(file, content))));
            }
        }
        let folders = names.folders.iter();
        let folders = folders.filter(|&&folder| !self.text(folder).starts_with('.'));
        items.extend(folders.map(|&folder| (folder, SearchItem::Manifests(folder))));
        items.sort_by_key(|(name, _)| *name);
        items.into_iter().map(|(_, item)| item).collect()
    }

    /// The model that opening the directory chooses.
    ///
    /// # Errors
    /// The directory is no checkpoint, or holds several.
    pub(super) fn chosen(&self, options: &OpenOptions, budget: &Budget) -> Result<DirectoryModel> {
        let mut texts = Vec::new();
        for &file in self.names.files.iter().chain(&self.names.special) {
            let text = self.text(file).into_owned();
            budget.memory(text_cost(text.len()), WHAT)?;
            budget.push(&mut texts, text, WHAT)?;
        }
        texts.sort();
        let (mut paths, _) = choose(&self.files, &self.path, &texts, options, budget)?;
        let content = match paths.len() {
            1 => FilesOfModel::Path(paths.remove(0)),
            _ => FilesOfModel::Together(paths),
        };
        Ok(DirectoryModel::of_directory(0, content))
    }

    pub(super) fn has(&self, name: &str) -> bool {
        let names = &self.names.all;
        names
            .binary_search_by(|known| known.as_os_str().cmp(name.as_ref()))
            .is_ok()
    }

    /// Whether a model has the files that opening the directory chooses, in a format that configurations describe.
    pub(super) fn is_same(&self, model: &DirectoryModel, chosen: &DirectoryModel) -> bool {
        let is_described = !matches!(
            weight_ending(&self.text(model.name)),
            Some("gguf" | "npz" | "npy")
        );
        is_described && self.has_same_files(model, chosen)
    }

    /// Whether a model has the files that opening the directory chooses.
    pub(super) fn has_same_files(&self, model: &DirectoryModel, chosen: &DirectoryModel) -> bool {
        let chosen = chosen.content.as_ref();
        let first = chosen.and_then(|content| content.paths().first());
        first.is_some_and(|first| match &model.content {
            None => self.entry(model.name) == *first,
            Some(content) => content.paths().contains(first),
        })
    }
}
