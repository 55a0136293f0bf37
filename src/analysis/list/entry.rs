//! One model of a list.

use std::path::{Path, PathBuf};

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::analysis::inspect::ModelFacts;
use crate::base::error::{Error, Result};
use crate::base::quote::{path_text, quote, shown_path, shown_text};
use crate::read::catalog::Catalog;
use crate::read::checkpoint::edit_journal::with_hint;
use crate::read::checkpoint::{Checkpoint, FoundModel, OpenOptions, again_if_replaced};
use crate::read::format::{Format, dcp};

use super::NameTest;

/// A model: its path, and what its headers and its configuration say. Unknown fields are `None`.
///
/// Serialised, it is a line of `anamnesis ls --json`.
#[derive(Debug)]
#[non_exhaustive]
pub struct ModelEntry {
    /// Its path: a file, an index, or a directory that holds one model; of a set of files the first one; a manifest of Ollama's.
    pub path: PathBuf,
    /// `safetensors`, `gguf`, `npy`, `npz`, `pth` or `dcp`.
    pub format: Option<&'static str>,
    /// `model_type` of its `config.json`, or `general.architecture`.
    pub architecture: Option<String>,
    /// Elements of its weights: codes count as the weights that they stand for, and scales do not.
    pub parameters: Option<u64>,
    /// The stored dtype with the most bytes.
    pub dtype: Option<String>,
    /// The scheme of most of its quantised weights; of a GGUF the label of `general.file_type`, or the type of most blocks.
    pub quantisation: Option<String>,
    /// Bytes of its files.
    pub nbytes: Option<u64>,
    /// The longest context that it was made for, in tokens.
    pub context: Option<u64>,
    /// The number of its files.
    pub files: Option<u64>,
    /// Why it cannot be opened.
    pub error: Option<Error>,
    /// Why it may not be what it seems: it is half edited or half replaced, or its configuration cannot be read.
    pub note: Option<String>,
}

impl Serialize for ModelEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("ModelEntry", 11)?;
        fields.serialize_field("path", &self.path_text())?;
        fields.serialize_field("format", &self.format)?;
        fields.serialize_field("architecture", &self.architecture)?;
        fields.serialize_field("parameters", &self.parameters)?;
        fields.serialize_field("dtype", &self.dtype)?;
        fields.serialize_field("quantisation", &self.quantisation)?;
        fields.serialize_field("nbytes", &self.nbytes)?;
        fields.serialize_field("context", &self.context)?;
        fields.serialize_field("files", &self.files)?;
        fields.serialize_field("error", &self.error_text())?;
        fields.serialize_field("note", &self.note)?;
        fields.end()
    }
}

impl ModelEntry {
    /// Its path as text: a URL without its secrets, and escapes for what is not UTF-8.
    pub fn path_text(&self) -> String {
        path_text(&shown_path(&self.path))
    }

    /// Why it cannot be opened, in one line: the file, if that is another than the entry's path, the reason and the offset.
    ///
    /// ```
    /// let mut models = anamnesis::list("fixtures/ask/check/truncated.safetensors").run()?;
    /// let text = models.next().expect("the file")?.error_text().expect("it is damaged");
    /// assert!(text.contains("byte"), "{text}");
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    pub fn error_text(&self) -> Option<String> {
        let error = self.error.as_ref()?;
        let mut text = String::new();
        let file = error.path().filter(|path| *path != self.path);
        if let Some(name) = file.and_then(Path::file_name) {
            text.push_str(&format!("{}: ", path_text(name.as_ref())));
        }
        text.push_str(&error.kind().to_string());
        if let Some(offset) = error.offset() {
            text.push_str(&format!(" (at byte {offset})"));
        }
        Some(shown_text(&text).into_owned())
    }

    /// The entry of a model that a walk has found; `None` for a file that is no model, and one that `has` does not select.
    pub(super) fn of(
        found: &FoundModel,
        options: &OpenOptions,
        has: &[NameTest<'_>],
    ) -> Option<Self> {
        let open = || match found.open(options)? {
            Some(checkpoints) => Self::described(&found.path, &checkpoints, has),
            None => Ok(None),
        };
        let mut opened = again_if_replaced(Error::is_replaced, open);
        if opened.is_err() && found.has_gone_files() {
            let Some(directory) = found.directory_of_replaced() else {
                // it belonged to an old checkpoint, which was being removed when the directory was listed
                return None;
            };
            let open = || {
                let opened = found.open_directory(directory, options)?;
                Self::described(directory, &[opened], has)
            };
            opened = again_if_replaced(Error::is_replaced, open).or(opened);
        }
        // a fault of a set of files is found before one of them is opened
        let opened = opened.map_err(|error| match found.is_local() {
            true => with_hint(error, &found.path),
            false => error,
        });
        let entry = opened
            .unwrap_or_else(|error| Some(Self::broken(&found.path, error, found.only_file())));
        entry.map(|mut entry| {
            entry.note = found.interrupted.map(str::to_owned).or(entry.note);
            entry
        })
    }

    /// The entry of a path that the caller has named.
    pub(super) fn of_path(
        path: &Path,
        options: &OpenOptions,
        has: &[NameTest<'_>],
    ) -> Option<Self> {
        let shown = shown_path(path);
        let open = || Self::described(&shown, &[options.open(path)?], has);
        let opened = again_if_replaced(Error::is_replaced, open);
        opened.unwrap_or_else(|error| Some(Self::broken(&shown, error, Some(&shown))))
    }

    fn described(
        path: &Path,
        checkpoints: &[Checkpoint],
        has: &[NameTest<'_>],
    ) -> Result<Option<Self>> {
        let mut entry: Option<Self> = None;
        let mut missing: Vec<&NameTest<'_>> = has.iter().collect();
        for checkpoint in checkpoints {
            let budget = checkpoint.budget();
            let (facts, plan) = ModelFacts::planned(checkpoint, &budget)?;
            let catalog = checkpoint.catalog();
            missing.retain(|accepts| {
                let mut stored = catalog.tensors().iter().map(|tensor| &*tensor.name);
                let mut made = plan
                    .iter()
                    .flat_map(|plan| plan.jobs.iter().map(|job| &*job.output.name));
                !stored.any(|name| accepts(name)) && !made.any(|name| accepts(name))
            });
            let nbytes = catalog.files().iter().map(|file| file.nbytes);
            let nbytes = nbytes.fold(0, u64::saturating_add);
            let files = catalog.files().len() as u64;
            match &mut entry {
                None => {
                    entry = Some(Self {
                        path: path.to_owned(),
                        format: Some(catalog.format()),
                        architecture: facts.architecture,
                        parameters: facts.parameters,
                        dtype: facts.dtype,
                        quantisation: facts.quantisation,
                        nbytes: Some(nbytes),
                        context: facts.context,
                        files: Some(files),
                        error: None,
                        note: facts
                            .config_error
                            .map(|e| shown_text(&e).into_owned())
                            .or_else(|| refused(catalog)),
                    });
                }
                // ranks: each file has its share of the weights
                Some(entry) => {
                    let add = |own: Option<u64>, more: u64| own.map(|own| own.saturating_add(more));
                    entry.parameters = facts.parameters.and_then(|n| add(entry.parameters, n));
                    entry.nbytes = add(entry.nbytes, nbytes);
                    entry.files = add(entry.files, files);
                }
            }
        }
        Ok(entry.filter(|_| missing.is_empty()))
    }

    fn broken(path: &Path, error: Error, file: Option<&Path>) -> Self {
        // a link's own length says nothing, and the length of what it leads to may be another user's secret
        let meta = file.and_then(|file| std::fs::symlink_metadata(file).ok());
        // that it is empty is what the error says
        let meta = meta.filter(|meta| meta.is_file() && meta.len() > 0);
        Self {
            path: path.to_owned(),
            format: error.format().and_then(format_of),
            architecture: None,
            parameters: None,
            dtype: None,
            quantisation: None,
            nbytes: meta.as_ref().map(std::fs::Metadata::len),
            context: None,
            files: meta.map(|_| 1),
            note: error.note().map(|note| shown_text(note).into_owned()),
            error: Some(error),
        }
    }
}

/// The entries of a file that are no tensors that can be read, in words.
fn refused(catalog: &Catalog) -> Option<String> {
    let first = catalog.refused().first()?;
    let more = match catalog.refused().len() - 1 {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let name = quote(&first.name);
    Some(format!("not read: {name}{more} ({})", first.reason))
}

/// The format that an error names, which may also name an index or an archive.
fn format_of(name: &str) -> Option<&'static str> {
    match name {
        dcp::NAME => Some(dcp::NAME),
        name => Format::from_name(name).map(|format| format.name),
    }
}
