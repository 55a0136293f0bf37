//! A model whose files are stated, and the place of the statement.

use std::sync::{Arc, Mutex};

use reqwest::header::HeaderMap;

use crate::error::{Error, ErrorKind, Result};
use crate::modelscope::ModelScopePath;
use crate::registry::{RegistryLogin, RegistryPath};
use crate::stated::StatedFiles;

/// A model whose files are stated, with them once they are known.
pub(super) struct StatedModel {
    pub(super) source: ModelSource,
    pub(super) login: Arc<RegistryLogin>,
    pub(super) files: Mutex<Option<Arc<StatedFiles>>>,
}

/// The place whose statement of its files is read.
pub(super) enum ModelSource {
    /// A manifest.
    Registry(RegistryPath),
    /// A list.
    ModelScope(ModelScopePath),
}

impl StatedModel {
    /// A model, with the headers that its server is given.
    pub(super) fn new(source: ModelSource, given: HeaderMap) -> Self {
        let login = match &source {
            ModelSource::Registry(path) => {
                RegistryLogin::new(path.origin.clone(), path.repository.clone(), given)
            }
            ModelSource::ModelScope(path) => RegistryLogin::fixed(path.endpoint.clone(), given),
        };
        Self {
            source,
            login: Arc::new(login),
            files: Mutex::default(),
        }
    }

    /// The URL of the model, to which names of files are appended, and the path below it that was opened.
    fn place(&self) -> (&str, &str) {
        match &self.source {
            ModelSource::Registry(path) => (&path.model, &path.file),
            ModelSource::ModelScope(path) => (&path.model, path.file()),
        }
    }

    /// The part of a path that is below the model, without a slash at its end.
    pub(super) fn file_of<'p>(&self, path: &'p str) -> Result<&'p str> {
        let rest = path.strip_prefix(self.place().0);
        let file = rest.filter(|rest| rest.is_empty() || rest.starts_with('/'));
        let file = file.map(|file| file.trim_matches('/'));
        file.ok_or_else(|| {
            let what = "the path is not in the model that was opened";
            Error::new(ErrorKind::Invalid, what)
        })
    }

    /// The path below the model that was opened.
    pub(super) fn opened(&self) -> &str {
        self.place().1
    }
}
