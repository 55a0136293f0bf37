//! Opening a checkpoint: a file, a directory, an index, a split GGUF, a directory of torch.distributed.checkpoint, a reader
//! or bytes.

mod beside_runs;
mod directory;
mod distributed;
pub(crate) mod edit_journal;
mod faults;
mod files;
mod handle;
mod index;
mod merge;
mod model_names;
mod named_files;
mod objects;
mod open;
mod options;
mod other_files;
mod pieces;
mod ranks;
mod read_state;
mod replaced;
mod search;
mod set_key;
mod shards;
mod union;

use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::error::{Error, Remedy, Result};
use crate::base::limits::{Budget, KeptMemory, Limits, Usage};
use crate::base::note::Note;
use crate::read::catalog::{Catalog, Value};
use crate::read::format;
use crate::read::source::cursor::Cursor;
use crate::read::source::files::Files;
use crate::read::source::{Source, UnmappedSource};

pub use beside_runs::again_if_replaced;
pub(crate) use beside_runs::{read_beside_runs, read_of_checkpoint};
pub(crate) use faults::{OpenFault, OpenFaultKind, Survey};
pub(crate) use files::TemplateFiles;
pub use handle::CheckpointHandle;
pub(crate) use handle::Ownership;
pub(crate) use model_names::incomplete_sets;
pub(crate) use named_files::is_index;
pub use objects::Objects;
pub use options::OpenOptions;
pub use other_files::UnreadFile;
pub(crate) use other_files::{
    DirectoryListing, LEFT_EDIT, LEFT_HIDDEN, LEFT_PART, NOT_UTF8, UNFINISHED, is_model_file,
    is_training_state,
};
pub(crate) use pieces::PLACES as PIECE_PLACES;
use read_state::ReadState;
pub(crate) use replaced::{NameWatch, NamedFiles, is_part_name};
pub use search::checkpoints_below;
pub(crate) use search::{FoundModel, ModelSearch, SearchPlace, SearchScope};

/// A checkpoint: the catalog of its tensors, and the files to read them from.
///
/// ```
/// use anamnesis::Checkpoint;
///
/// let checkpoint = Checkpoint::open("fixtures/safetensors/sharded")?;
/// for tensor in checkpoint.catalog().tensors() {
///     println!("{:40} {:6} {:?}", tensor.name, tensor.encoding, tensor.shape);
/// }
/// let bytes = checkpoint.tensor("lm_head.weight").expect("the tensor exists").bytes()?;
/// assert_eq!(bytes.len(), 1024);
/// # Ok::<(), anamnesis::Error>(())
/// ```
pub struct Checkpoint {
    sources: Vec<Arc<dyn Source>>,
    /// The files before their headers were read, in the order of the sources.
    states: Vec<ReadState>,
    catalog: Catalog,
    limits: Limits,
    usage: Option<Usage>,
    /// Memory that opening has charged and that this value keeps.
    kept: KeptMemory,
    /// See [`OpenOptions::private`].
    private: bool,
    /// See [`OpenOptions::opaque`].
    opaque: bool,
    /// See [`OpenOptions::assume_plain`].
    assume_plain: bool,
    path: Option<PathBuf>,
    /// Where the path is.
    files: Files,
    /// See [`Self::other_models`].
    other_models: Option<Note>,
    /// The index or the `.metadata` that a directory was opened by.
    described_by: Option<PathBuf>,
    /// See [`Self::joined`].
    joined: Vec<union::JoinedSource>,
    /// Whether files of its directory have the names that a run gives them while it replaces a checkpoint.
    is_half_replaced: bool,
    /// The index that it was opened by, if that is a local file.
    index: Option<replaced::NamedFile>,
}

impl Checkpoint {
    /// Opens a file, a directory (also of torch.distributed.checkpoint), an index (`….index.json`), or any file of a split
    /// GGUF, with the default [`OpenOptions`]. Reads headers only. With the feature `remote`, the path may be a URL:
    /// `https://host/file`, `s3://bucket/prefix`, `hf://owner/name`, `hf://owner/name@revision/file`, `ms://owner/name`, `oci://registry/repository:tag`,
    /// `ollama://model:tag`. Its query is not part of [`path`](Self::path). A directory `models--owner--name` of the hub's cache is opened as its snapshot
    /// ([`source::local_path`](crate::source::local_path)), and a manifest of an Ollama store as the blob of its model.
    ///
    /// Files are memory-mapped by default. **If another process truncates a mapped file, reading the
    /// bytes behind the new end raises `SIGBUS` and ends the process; if it overwrites the file, the
    /// bytes change while they are borrowed.** Neither can be prevented from here. For files that other
    /// programs may change, and on network file systems, use [`OpenOptions::mmap`]`(false)`, which reads
    /// with positioned reads and reports a shorter file as an error.
    ///
    /// # Errors
    /// I/O, unknown format, malformed (with the offset), unsupported, over a limit, a refused global
    /// of a pickle, or a missing part. See [`ErrorKind`](crate::ErrorKind).
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        OpenOptions::new().open(path)
    }

    /// Opens a [`Source`] as one file, with the default [`OpenOptions`].
    ///
    /// # Errors
    /// The errors of [`open`](Self::open), except missing parts.
    pub fn from_source(source: impl Source + 'static) -> Result<Self> {
        OpenOptions::new().from_source(source)
    }

    /// Opens bytes in memory as one file, with the default [`OpenOptions`].
    ///
    /// # Errors
    /// The errors of [`from_source`](Self::from_source).
    pub fn from_bytes(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Result<Self> {
        OpenOptions::new().from_bytes(bytes)
    }

    /// Opens any `Read + Seek` as one file, with the default [`OpenOptions`].
    ///
    /// # Errors
    /// The errors of [`from_source`](Self::from_source).
    pub fn from_reader(reader: impl Read + Seek + Send + 'static) -> Result<Self> {
        OpenOptions::new().from_reader(reader)
    }

    /// Lists a forward-only reader, such as standard input: safetensors, GGUF, NPY and legacy PyTorch.
    ///
    /// Reads to the end of the stream, to check that the file is complete. Tensor bytes cannot be read
    /// afterwards.
    ///
    /// # Errors
    /// The errors of [`from_source`](Self::from_source); zip archives are unsupported.
    pub fn from_stream(reader: impl Read + Send + 'static) -> Result<Self> {
        OpenOptions::new().from_stream(reader)
    }

    /// The path that was opened: a file, a directory or an index; `None` for a reader or bytes.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// A note that names the files of other models in the directory that was opened, such as the same weights in another
    /// format; `None` if there are none. Opening reads one model of a directory, and these were not read.
    ///
    /// ```
    /// let dir = std::env::temp_dir().join(format!("other-models-{}", std::process::id()));
    /// std::fs::create_dir_all(&dir)?;
    /// std::fs::copy("fixtures/model/scribe.safetensors", dir.join("model.safetensors"))?;
    /// std::fs::copy("fixtures/model/scribe-Q8_0.gguf", dir.join("model.gguf"))?;
    /// let checkpoint = anamnesis::Checkpoint::open(&dir)?;
    /// assert_eq!(checkpoint.catalog().format(), "safetensors");
    /// assert!(checkpoint.other_models().unwrap().contains("not read: model.gguf"));
    /// # std::fs::remove_dir_all(dir)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn other_models(&self) -> Option<&Note> {
        self.other_models.as_ref()
    }

    /// The warning that other users can change the hub's cache that this was read from
    /// ([`source::cache_warning`](crate::source::cache_warning)); `None` if there is none.
    pub fn cache_warning(&self) -> Option<&Note> {
        let mut warnings = self.catalog.warnings.iter();
        warnings.find(|note| note.remedy() == Some(Remedy::OwnCache))
    }

    /// The index, or the `.metadata` of torch.distributed.checkpoint, by which a directory was opened.
    pub(crate) fn described_by(&self) -> Option<&Path> {
        self.described_by.as_deref()
    }

    /// See [`OpenOptions::assume_plain`].
    pub(crate) fn assumes_plain(&self) -> bool {
        self.assume_plain
    }

    /// Where the path and the other files next to it are.
    pub(crate) fn files(&self) -> &Files {
        &self.files
    }

    /// The description of the checkpoint: tensors, metadata, files.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The value of a metadata key. An array that was left in the file is read completely.
    ///
    /// # Errors
    /// I/O, or an array over [`Limits::memory`].
    pub fn metadata(&self, key: &str) -> Result<Option<Value>> {
        let Some(value) = self.catalog.metadata.get(key) else {
            return Ok(None);
        };
        // only GGUF leaves arrays in the file
        let Value::Array(array) = value else {
            return Ok(Some(value.clone()));
        };
        let budget = self.budget();
        let mut cursor = Cursor::new(self.source(array.bytes.file), &budget);
        let list = format::gguf::read_array(&mut cursor, array);
        // an edit may have moved the array meanwhile
        self.check_header(array.bytes.file)?;
        list.map(Some)
            .map_err(|e| self.place(e.in_format(self.catalog.format), array.bytes.file))
    }

    /// The sources of the checkpoint's files, indexed by [`ByteRange::file`](crate::ByteRange::file).
    pub fn sources(&self) -> &[Arc<dyn Source>] {
        &self.sources
    }

    pub(crate) fn source(&self, file: u32) -> &dyn Source {
        &*self.sources[file as usize]
    }

    /// The same checkpoint, whose files are read and not mapped from now on: for files that their writers change where they are, so
    /// that a map of them may end the process. Nothing is borrowed from them.
    ///
    /// ```
    /// use anamnesis::{Checkpoint, load};
    ///
    /// let checkpoint = Checkpoint::open("fixtures/safetensors/sharded")?.unmapped();
    /// assert!(checkpoint.sources().iter().all(|source| source.mapped().is_none() || source.in_memory().is_some()));
    /// assert_eq!(load(&checkpoint).run()?.tensors().len(), checkpoint.catalog().tensors().len());
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    #[must_use]
    pub fn unmapped(mut self) -> Self {
        for source in &mut self.sources {
            *source = Arc::new(UnmappedSource(Arc::clone(source)));
        }
        self
    }

    /// Whether loads borrow from private maps.
    pub(crate) fn is_private(&self) -> bool {
        self.private
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// A budget for what is made from this checkpoint, of which the checkpoint's own memory is spent.
    pub(crate) fn budget(&self) -> Budget {
        Budget::resume(self.limits, self.kept, self.usage.clone())
    }

    /// Memory that this value keeps.
    pub(crate) fn kept(&self) -> KeptMemory {
        self.kept
    }

    /// Adds the path of the file to an error of reading it.
    pub(crate) fn place(&self, error: Error, file: u32) -> Error {
        match &self.catalog.files[file as usize].path {
            Some(path) => error.in_file(path),
            None => error,
        }
    }
}

impl std::fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Checkpoint")
            .field("catalog", &self.catalog)
            .finish_non_exhaustive()
    }
}
