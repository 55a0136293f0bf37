//! The files of a directory at a URL whose names are known: nothing is requested to find out what is not there, and
//! configurations are requested once for all models of the directory.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use crate::base::error::Result;
use crate::base::limits::{Budget, Limits, TemporaryCharge};
use crate::base::sync::PoisonMutex;
use crate::read::source::Source;
use crate::read::source::file_system::{FileSystem, MapMode, NamedPath};
use crate::read::source::files::Files;

use super::names::SearchedNames;

/// Texts that are kept, in bytes: several models of a directory have one configuration.
const KEPT: usize = 4 << 20;
/// Files that are requested ahead for one model.
const AHEAD: usize = 16;

/// A directory and the names in it.
pub(super) struct ListedFiles {
    inner: Files,
    directory: PathBuf,
    /// Sorted.
    names: Vec<OsString>,
    texts: PoisonMutex<HashMap<PathBuf, Arc<Vec<u8>>>>,
    begun: PoisonMutex<HashMap<PathBuf, Arc<dyn Source>>>,
}

impl ListedFiles {
    pub(super) fn new(inner: &Files, directory: &Path, names: &SearchedNames) -> Self {
        let files = names.files.iter();
        let files = files.map(|&file| names.all[file as usize].clone());
        Self {
            inner: inner.clone(),
            directory: directory.to_owned(),
            names: files.collect(),
            texts: PoisonMutex::default(),
            begun: PoisonMutex::default(),
        }
    }

    /// Whether the list says that nothing has this path.
    fn is_absent(&self, path: &Path) -> bool {
        let name = path
            .file_name()
            .filter(|_| path.parent() == Some(&self.directory));
        name.is_some_and(|name| {
            self.names
                .binary_search_by(|known| known.as_os_str().cmp(name))
                .is_err()
        })
    }

    fn require(&self, path: &Path) -> Result<()> {
        match self.is_absent(path) {
            true => Err(io::Error::from(io::ErrorKind::NotFound).into()),
            false => Ok(()),
        }
    }

    fn kept(&self, path: &Path) -> Option<Arc<Vec<u8>>> {
        let texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        texts.get(path).cloned()
    }

    fn keep(&self, path: &Path, text: &[u8]) {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        let held: usize = texts.values().map(|text| text.len()).sum();
        if held + text.len() <= KEPT {
            texts.insert(path.to_owned(), Arc::new(text.to_vec()));
        }
    }
}

impl FileSystem for ListedFiles {
    fn is_directory(&self, path: &Path) -> bool {
        path == self.directory || (self.inner.is_directory(path) && self.is_absent(path))
    }

    fn is_file(&self, path: &Path) -> bool {
        !self.is_directory(path) && !self.is_absent(path)
    }

    fn exists(&self, path: &Path) -> bool {
        !self.is_absent(path)
    }

    fn list(
        &self,
        directory: &Path,
        wanted: &dyn Fn(&OsStr) -> bool,
        each: &mut dyn FnMut(OsString) -> Result<()>,
    ) -> Result<()> {
        if directory != self.directory {
            return self.inner.list(directory, wanted, each);
        }
        let names = self.names.iter().filter(|name| wanted(name));
        names.cloned().try_for_each(each)
    }

    fn open_named(
        &self,
        path: NamedPath<'_>,
        mapping: MapMode,
        budget: &Budget,
    ) -> Result<Arc<dyn Source>> {
        self.require(path.path())?;
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(source) = begun.remove(path.path()) {
            return Ok(source);
        }
        drop(begun);
        self.inner.open_named(path, mapping, budget)
    }

    fn read_whole<'b>(
        &self,
        path: NamedPath<'_>,
        budget: &'b Budget,
        what: &str,
    ) -> Result<(Vec<u8>, TemporaryCharge<'b>)> {
        let at = path.path();
        self.require(at)?;
        if let Some(kept) = self.kept(at) {
            let charge = budget.temporary(kept.len() as u64, what)?;
            return Ok((kept.to_vec(), charge));
        }
        let (text, charge) = self.inner.read_whole(path, budget, what)?;
        self.keep(at, &text);
        Ok((text, charge))
    }

    /// Requests the shards of one model. Requests for other models go on: several threads open models of this directory.
    fn begin(&self, paths: &mut dyn Iterator<Item = PathBuf>) {
        let budget = Budget::new(Limits::default());
        let mode = MapMode {
            mmap: false,
            private: false,
        };
        for path in paths.take(AHEAD) {
            // configurations are read whole, and kept
            let is_text = path.extension().is_some_and(|ending| ending == "json");
            if is_text || self.is_absent(&path) {
                continue;
            }
            let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
            if begun.len() < AHEAD * AHEAD && !begun.contains_key(&path)
                // an error is reported when the file is opened, if it is
                && let Ok(source) = self.inner.open_named(NamedPath::Given(&path), mode, &budget)
            {
                begun.insert(path, source);
            }
        }
    }
}
