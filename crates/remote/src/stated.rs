//! Files that are stated with lengths and digests: by the manifest of a registry, or by ModelScope's list.

use std::collections::HashSet;

use crate::error::{Error, Result, shown};
use crate::registry::{Blob, TarMember};

/// The files of a model.
pub(crate) struct StatedFiles {
    /// The digest of the manifest, or the revision.
    pub(crate) version: String,
    pub(crate) files: Vec<StatedFile>,
    /// Whether there are no other files.
    pub(crate) is_complete: bool,
}

/// A file of a model: a blob, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StatedFile {
    /// The path below the model.
    pub(crate) name: String,
    /// `None` where no digest is stated, as a list may leave it out.
    pub(crate) blob: Option<Blob>,
    /// The place in the blob, of a member of an archive.
    pub(crate) member: Option<TarMember>,
}

impl StatedFiles {
    /// The files, whose names differ.
    pub(crate) fn new(version: String, files: Vec<StatedFile>, is_complete: bool) -> Result<Self> {
        let mut names = HashSet::new();
        if let Some(twice) = files.iter().find(|file| !names.insert(&*file.name)) {
            return Err(Error::refused(format!(
                "the server states two files of the name {}",
                shown(&twice.name)
            )));
        }
        Ok(Self {
            version,
            files,
            is_complete,
        })
    }

    pub(crate) fn find(&self, name: &str) -> Option<&StatedFile> {
        self.files.iter().find(|file| file.name == name)
    }

    /// The files below a folder, by their paths below it.
    pub(crate) fn below(&self, folder: &str) -> impl Iterator<Item = (&str, &StatedFile)> {
        self.files.iter().filter_map(move |file| {
            let rest = file.name.strip_prefix(folder)?;
            let is_whole = folder.is_empty();
            let name = if is_whole {
                rest
            } else {
                rest.strip_prefix('/')?
            };
            Some((name, file))
        })
    }
}
