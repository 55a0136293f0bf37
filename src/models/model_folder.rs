//! The small files beside the weights of a Hugging Face checkpoint.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json};

use crate::base::error::{Error, Result};
use crate::base::limits::Budget;
use crate::models::config::document;
use crate::read::checkpoint::Checkpoint;
use crate::read::source::file_system::NamedPath;

/// The directory with the weights and the configuration of a model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModelFolder<'c> {
    checkpoint: &'c Checkpoint,
    path: &'c Path,
    /// Everything that is read stays charged here.
    pub(crate) budget: &'c Budget,
}

impl<'c> ModelFolder<'c> {
    /// The folder of a checkpoint that has a path.
    pub(crate) fn of(checkpoint: &'c Checkpoint, budget: &'c Budget) -> Option<Self> {
        let path = checkpoint.files().folder_of(checkpoint.path()?);
        Some(Self {
            checkpoint,
            path,
            budget,
        })
    }

    /// Its path.
    pub(crate) fn path(&self) -> &'c Path {
        self.path
    }

    /// A folder without weights, beside a checkpoint that has some.
    #[cfg(test)]
    pub(crate) fn without_weights(
        checkpoint: &'c Checkpoint,
        path: &'c Path,
        budget: &'c Budget,
    ) -> Self {
        Self {
            checkpoint,
            path,
            budget,
        }
    }

    /// Its name.
    pub(crate) fn name(&self) -> Option<String> {
        let named = |path: &Path| Some(path.file_name()?.to_string_lossy().into_owned());
        let whole = || match self.checkpoint.files().is_local() {
            // `.`, `..` and the empty path have none
            true => std::path::absolute(self.path).ok()?.canonicalize().ok(),
            false => None,
        };
        named(self.path).or_else(|| named(&whole()?))
    }

    /// The bytes of a file; `None` if there is no such file.
    ///
    /// # Errors
    /// A file that cannot be read or is larger than the budget.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let (files, at) = (self.checkpoint.files(), self.at(name));
        let read = files.read_whole(NamedPath::below(self.path, &at), self.budget, name);
        match read {
            Ok((bytes, _charge)) => {
                self.budget.text(bytes.len(), name)?;
                Ok(Some(bytes))
            }
            Err(e) if document::is_absent(files, &at, &e) => Ok(None),
            Err(e) => Err(document::unreadable(files, &at, e)),
        }
    }

    /// The text of a file; `None` if there is no such file.
    ///
    /// # Errors
    /// The errors of [`read`](Self::read); a file that is not UTF-8.
    pub(crate) fn text(&self, name: &str) -> Result<Option<String>> {
        let Some(bytes) = self.read(name)? else {
            return Ok(None);
        };
        let text = String::from_utf8(bytes);
        let text =
            text.map_err(|_| Error::malformed("the file is not UTF-8").in_file(&self.at(name)));
        text.map(Some)
    }

    /// The text of a file with one character at the end of each line, as Python reads texts; `None` if there is no such file.
    ///
    /// # Errors
    /// The errors of [`text`](Self::text).
    pub(crate) fn lines(&self, name: &str) -> Result<Option<String>> {
        let text = self.text(name)?;
        Ok(text.map(|text| match text.contains('\r') {
            // no longer than the text, which is released
            true => text.replace("\r\n", "\n").replace('\r', "\n"),
            false => text,
        }))
    }

    /// The object of a JSON file; `None` if there is no such file.
    ///
    /// # Errors
    /// The errors of [`read`](Self::read); a file that is no JSON object.
    pub(crate) fn json(&self, name: &str) -> Result<Option<Map<String, Json>>> {
        let Some(bytes) = self.read(name)? else {
            return Ok(None);
        };
        let parsed = document::parse(&bytes, self.budget);
        parsed.map_err(|e| e.in_file(&self.at(name))).map(Some)
    }

    /// Whether there is such a file, as far as this is known without opening it.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.checkpoint.files().is_file(&self.at(name))
    }

    /// The names of the files in a folder inside of it that end so, sorted; none if there is no such folder.
    ///
    /// # Errors
    /// A folder that cannot be listed, or whose list is larger than the budget.
    pub(crate) fn names_in(&self, folder: &str, end: &str) -> Result<Vec<String>> {
        let (files, at) = (self.checkpoint.files(), self.at(folder));
        let mut names = Vec::new();
        if !files.is_directory(&at) {
            return Ok(names);
        }
        files.check_directory(self.path, &at)?;
        let wanted = |name: &OsStr| name.to_str().is_some_and(|name| name.ends_with(end));
        files.list(&at, &wanted, &mut |name| {
            let name = name.to_string_lossy().into_owned();
            self.budget.text(name.len(), folder)?;
            self.budget.push(&mut names, name, folder)
        })?;
        names.sort_unstable();
        Ok(names)
    }

    /// The path of a file, for errors.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}
