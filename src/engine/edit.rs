//! `edit`: other metadata and other names of tensors in files that exist, without writing the tensors where that is possible.
//!
//! A header is taken apart, changed, and parsed again before it is written: it must describe the tensors that the file has. How it
//! gets into the file is a matter of the sink (`sink/files/in_place.rs`).

mod companion_files;
mod gguf_header;
mod header;
mod metadata_edits;
mod opened_files;
mod safetensors_header;

use std::path::{Path, PathBuf};

use anamnesis_os::files::directory_of;

use crate::base::error::{Error, Remedy, Result};
use crate::base::limits::{Budget, Limits};
use crate::base::note::Note;
use crate::base::quote::quote;
use crate::engine::convert::{convert, without_architecture};
use crate::engine::sink::container::HeaderValue;
use crate::engine::sink::in_place::{
    EditOptions, EditPlace, INSERT_FROM, check_local, check_named,
};
use crate::models::config::keys;
use crate::read::checkpoint::{Checkpoint, OpenOptions, PIECE_PLACES};
use crate::read::rename::{Rename, RenamedTensors, Renames};
use crate::read::run_options::{RunOptions, run_options};

pub use crate::engine::sink::in_place::{EditWay, EditedFile, RecoveredEdit};
use metadata_edits::MetadataEdits;

/// Copies of a header that an edit has at a time.
const COPIES: u64 = 8;

/// Changes the metadata, and the names of tensors, of files where they are. Made by [`edit`].
#[derive(Clone)]
pub struct Edit<'c> {
    path: PathBuf,
    metadata: MetadataEdits,
    renames: Vec<Rename>,
    files: EditOptions,
    limits: Limits,
    options: RunOptions<'c>,
}

/// The files of an edit.
#[derive(Clone, Debug, Default)]
pub struct EditReport {
    /// Files of tensors, the index and configurations that the edit is about, in order.
    pub files: Vec<EditedFile>,
    /// Earlier edits that had been interrupted, by the paths of their journals.
    pub recovered: Vec<(PathBuf, RecoveredEdit)>,
    /// Files without a use that killed edits had left, and that were removed.
    pub removed: Vec<PathBuf>,
    /// Statements for the user of the files.
    pub notes: Vec<Note>,
}

/// Changes the metadata, and the names of tensors, of a safetensors or GGUF file, of a split GGUF, or of a directory of safetensors with its
/// index and configuration. The tensors are not read, and are written only where no other way is possible: see
/// [`EditWay`].
///
/// ```
/// use anamnesis::{Checkpoint, edit};
///
/// # let path = std::env::temp_dir().join(format!("anamnesis-edit-{}.safetensors", std::process::id()));
/// std::fs::copy("fixtures/safetensors/sharded/model-00001-of-00002.safetensors", &path)?;
/// edit(&path).set("license", "mit").rename("model", "net.model").commit()?;
/// let edited = Checkpoint::open(&path)?;
/// assert_eq!(edited.catalog().metadata().text("license"), Some("mit"));
/// assert!(edited.tensor("net.model.embed_tokens.weight").is_some());
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), anamnesis::Error>(())
/// ```
///
/// Keys lose their names first, then [`unset`](Edit::unset) ones are removed, and then keys are [`set`](Edit::set). An edit changes all of its files or none,
/// also if the process is killed or the power fails: an interrupted one is completed by the next edit, or by [`recover`](Edit::recover).
pub fn edit<'c>(path: impl AsRef<Path>) -> Edit<'c> {
    Edit {
        path: path.as_ref().to_owned(),
        metadata: MetadataEdits::default(),
        renames: Vec::new(),
        files: EditOptions {
            copy: false,
            compact: false,
            insert_from: INSERT_FROM,
        },
        limits: Limits::default(),
        options: RunOptions::default(),
    }
}

run_options!(Edit {
    /// In bytes that are copied, where files are copied.
    progress,
    /// An edit ends with it before a file is changed, and not after.
    cancel,
});

impl Edit<'_> {
    /// Sets a key. A text that is set for a key of a GGUF is read as a value of the type that the key has, and is a text for a new key.
    /// In a directory every safetensors file has it; in a split GGUF the first file, and each that has the key.
    #[must_use]
    pub fn set(mut self, key: &str, value: impl Into<HeaderValue>) -> Self {
        self.metadata.set.push((key.to_owned(), value.into()));
        self
    }

    /// Removes a key, which must be there.
    #[must_use]
    pub fn unset(mut self, key: &str) -> Self {
        self.metadata.unset.push(key.to_owned());
        self
    }

    /// Gives a key, which must be there, another name, which must be free.
    #[must_use]
    pub fn rename_key(mut self, from: &str, to: &str) -> Self {
        let pair = (from.to_owned(), to.to_owned());
        self.metadata.rename_key.push(pair);
        self
    }

    /// Renames tensors: see [`Rename`]. Renames are applied in the order in which they are set. One that is for no tensor is an
    /// error, and so is a name that two tensors would have. The index, and lists of names in configurations, follow.
    #[must_use]
    pub fn rename(mut self, from: &str, to: &str) -> Self {
        self.renames.push(Rename::new(from, to));
        self
    }

    /// Whether files are copied, also where they could be changed in place. Default off. Another name of a file (hard link) keeps the old
    /// one.
    #[must_use]
    pub fn copy(mut self, copy: bool) -> Self {
        self.files.copy = copy;
        self
    }

    /// Whether headers lose the room for later edits; the files are copied. Default off.
    #[must_use]
    pub fn compact(mut self, compact: bool) -> Self {
        self.files.compact = compact;
        self
    }

    /// Bounds on what the headers, and the lists that are made of them, may take.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Whether nothing would be changed.
    fn is_empty(&self) -> bool {
        self.metadata.is_empty() && self.renames.is_empty() && !self.files.compact
    }

    /// Changes the files. An edit that was interrupted before is completed first.
    ///
    /// # Errors
    /// The errors of [`Checkpoint::open`]; a file that is not changed where it is (a URL, a link, a file of the hub's cache, of several names,
    /// without write permission, locked by another process, of a format without metadata); a key or a name that is not
    /// there, or is there already; a value that its type does not have; names after which the parts of a weight are no
    /// weight; I/O. After an error no file is changed, unless its [remedy](Error::remedy) is to recover the edit.
    pub fn commit(&self) -> Result<EditReport> {
        let committed = self.commit_all();
        committed.map_err(|e| e.in_file(&self.path))
    }

    fn commit_all(&self) -> Result<EditReport> {
        check_local(&self.path)?;
        let found = check_named(&self.path)?;
        if self.is_empty() {
            return Err(Error::invalid_argument("the edit changes nothing"));
        }
        self.metadata.check()?;
        // a header that opens at the limits is in memory several times: as bytes, as entries, as the new ones, and parsed
        let budget = Budget::new(Limits {
            memory: self.limits.memory.saturating_mul(COPIES),
            ..self.limits
        });
        let control = &self.options.control;
        let (directory, file) = self.directory(found.is_dir());
        let place = EditPlace::lock(directory, control)?;
        let recovered = place.settle(file, &budget)?;
        let removed = place.remove_abandoned(file);
        let mut options = OpenOptions::new().mmap(false).limits(self.limits);
        if let Some(token) = control.token() {
            options = options.cancel(token);
        }
        let checkpoint = options.open(&self.path)?;
        check_format(&checkpoint)?;
        self.check_pieces(&checkpoint)?;
        let mut notes: Vec<Note> = checkpoint.other_models().cloned().into_iter().collect();
        if let (Some(file), false) = (file, self.renames.is_empty()) {
            notes.extend(companion_files::left_beside(file)?);
        }
        let (renames, about_names) = self.checked(&checkpoint)?;
        notes.extend(about_names);
        let tensors = checkpoint.catalog().tensors().iter();
        let tensors = tensors.map(|info| &*info.name);
        let names = (!renames.is_empty()).then(|| RenamedTensors::new(tensors, &renames));
        // in files of their own both could have it
        if let Some(name) = names.as_ref().and_then(RenamedTensors::twice) {
            let what = format!("two tensors would be called {}", quote(name));
            let remedy = match renames.swap() {
                true => Remedy::RenameApart,
                false => Remedy::CheckName,
            };
            return Err(Error::invalid_argument(what).with_remedy(remedy));
        }
        let mut headers = opened_files::open(&place, &checkpoint, self.files.copy, &budget)?;
        self.metadata.apply(&mut headers)?;
        if let Some(names) = &names {
            for header in &mut headers {
                header.rename_tensors(names, &budget)?;
            }
        }
        let architecture = keys::MODEL_TYPE.key(true);
        let is_changed = self.metadata.keys().any(|key| key == architecture);
        if is_changed && checkpoint.catalog().format() == "gguf" {
            let has_key = headers.iter().any(|header| header.has_key(architecture));
            notes.extend((!has_key).then(|| without_architecture("the file")));
        }
        let mut changes = Vec::new();
        for header in headers {
            control.check()?;
            changes.push(header.into_change(names.as_ref(), &budget)?);
        }
        if let Some(names) = &names {
            let copy = self.files.copy;
            let others = companion_files::changes(&place, &checkpoint, names, copy, &budget)?;
            changes.extend(others);
        }
        drop(names);
        // its files are open, which keeps this process from a lease
        drop(checkpoint);
        let files = place.commit(changes, self.files, control)?;
        Ok(EditReport {
            files,
            recovered,
            removed,
            notes,
        })
    }

    /// Completes edits of the file, or of files in the directory, that were interrupted, and changes nothing else.
    ///
    /// ```
    /// # let path = std::env::temp_dir().join(format!("anamnesis-recover-{}.gguf", std::process::id()));
    /// std::fs::copy("fixtures/gguf/plain_v3.gguf", &path)?;
    /// // no edit was interrupted
    /// assert!(anamnesis::edit(&path).recover()?.recovered.is_empty());
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    ///
    /// # Errors
    /// A journal that is not this user's, or is damaged; a file in a state that no edit leaves; I/O.
    pub fn recover(&self) -> Result<EditReport> {
        let recover = || {
            check_local(&self.path)?;
            let found = check_named(&self.path)?;
            let (directory, file) = self.directory(found.is_dir());
            let place = EditPlace::lock(directory, &self.options.control)?;
            let recovered = place.settle(file, &Budget::new(self.limits))?;
            let removed = place.remove_abandoned(file);
            Ok(EditReport {
                recovered,
                removed,
                ..EditReport::default()
            })
        };
        recover().map_err(|e: Error| e.in_file(&self.path))
    }

    /// The directory of the files, and the file if one is named.
    fn directory(&self, is_directory: bool) -> (&Path, Option<&Path>) {
        if is_directory {
            return (&self.path, None);
        }
        (directory_of(&self.path), Some(&self.path))
    }

    /// Refuses edits after which the pieces of tensors in several files would no longer fit together.
    fn check_pieces(&self, checkpoint: &Checkpoint) -> Result<()> {
        let catalog = checkpoint.catalog();
        if catalog.format() != "safetensors" || catalog.metadata().get(PIECE_PLACES).is_none() {
            return Ok(());
        }
        if self.metadata.keys().any(|key| key == PIECE_PLACES) {
            let what = format!(
                "the key {PIECE_PLACES} says which pieces of the tensors the file has: it stays"
            );
            return Err(Error::invalid_argument(what).with_remedy(Remedy::ConvertInstead));
        }
        if !self.renames.is_empty() && catalog.files().len() == 1 {
            let what = "the file has pieces of tensors that other files have too, so that they are renamed in the directory as a whole";
            return Err(Error::unsupported(what).with_remedy(Remedy::OpenWhole));
        }
        Ok(())
    }

    /// The renames, and notes about them. With them, and with the new metadata, the checkpoint has the same weights.
    fn checked(&self, checkpoint: &Checkpoint) -> Result<(Renames, Vec<Note>)> {
        let renames = Renames::new(&self.renames);
        if self.renames.is_empty() && self.metadata.is_empty() {
            return Ok((renames, Vec::new()));
        }
        // a conversion has the same rules, and plans the output before it writes it
        let mut copy = convert(checkpoint);
        if let Some(token) = self.options.control.token() {
            copy = copy.cancel(token);
        }
        let mut changed = copy.clone();
        for rename in &self.renames {
            changed = changed.rename_by(rename.clone());
        }
        for (from, to) in &self.metadata.rename_key {
            changed = changed.rename_metadata(from, to);
        }
        for key in &self.metadata.unset {
            changed = changed.drop_metadata(key);
        }
        for (key, value) in &self.metadata.set {
            changed = changed.metadata(key, value.clone());
        }
        let notes = match changed.plan() {
            Ok(plan) => plan.output_notes,
            // the metadata of files that cannot be planned are edited too
            Err(_) if self.renames.is_empty() && copy.plan().is_err() => Vec::new(),
            Err(error) => return Err(error),
        };
        Ok((renames, notes))
    }
}

/// Refuses formats whose files have no metadata of this kind.
fn check_format(checkpoint: &Checkpoint) -> Result<()> {
    match checkpoint.catalog().format() {
        "safetensors" | "gguf" => Ok(()),
        format => {
            let what = format!("a file of the format {format} has no metadata that can be edited");
            Err(Error::unsupported(what).with_remedy(Remedy::ConvertInstead))
        }
    }
}

impl std::fmt::Debug for Edit<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Edit")
            .field("path", &self.path)
            .field("metadata", &self.metadata)
            .field("renames", &self.renames)
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}
