//! Opening: a file, a directory, an index, the parts of a split, a reader, bytes.

mod alone;
mod merge;
mod shards;

use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};

use crate::Dtype;
use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::format::{self, Format};
use crate::inspect::Summary;
use crate::limits::{Budget, Limits};
use crate::metadata::Value;
use crate::source::cursor::Cursor;
use crate::source::{FileSource, Memory, SMALL, Seekable, Source, Stream};

/// How to open: limits, mapping, and what the caller knows better than the file.
///
/// ```
/// use anamnesis::{Dtype, OpenOptions};
///
/// // numpy forgets that ml_dtypes arrays are BF16: it writes raw 2-byte items
/// let checkpoint = OpenOptions::new().void_as(Dtype::BF16).open("fixtures/npy/bf16.npy")?;
/// assert_eq!(checkpoint.catalog().tensors()[0].encoding.name(), "BF16");
/// # Ok::<(), anamnesis::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions {
    limits: Limits,
    map: bool,
    single: bool,
    format: Option<&'static Format>,
    void_as: Vec<Dtype>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            map: true,
            single: false,
            format: None,
            void_as: Vec::new(),
        }
    }
}

impl OpenOptions {
    /// The defaults: safe limits, paths mapped, splits opened whole.
    pub fn new() -> Self {
        Self::default()
    }

    /// What the file may cost.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Whether paths are mapped (the default) or read with positioned reads. Do not map files that
    /// someone may truncate meanwhile, nor files on a network file system.
    #[must_use]
    pub fn map(mut self, map: bool) -> Self {
        self.map = map;
        self
    }

    /// Opens only the file that is named, even if it is one part of a split checkpoint.
    #[must_use]
    pub fn single(mut self, single: bool) -> Self {
        self.single = single;
        self
    }

    /// Reads the file as this format, whatever its first bytes look like.
    #[must_use]
    pub fn format(mut self, format: &'static Format) -> Self {
        self.format = Some(format);
        self
    }

    /// Reads raw void items of the width of `dtype` as `dtype` (numpy's `V2` as `BF16`, `V1` as an FP8).
    /// May be given once per width; the last one counts.
    #[must_use]
    pub fn void_as(mut self, dtype: Dtype) -> Self {
        self.void_as.push(dtype);
        self
    }

    /// Opens a path with these options. See [`Checkpoint::open`].
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Checkpoint> {
        Checkpoint::open_with(path, self)
    }
}

/// A checkpoint: the catalog of its tensors, and the files to read them from.
///
/// ```
/// use anamnesis::Checkpoint;
///
/// let checkpoint = Checkpoint::open("fixtures/safetensors/sharded")?;
/// for tensor in checkpoint.catalog().tensors() {
///     println!("{:40} {:6} {:?}", tensor.name, tensor.encoding, tensor.shape);
/// }
/// let bytes = checkpoint.tensor("lm_head.weight").expect("it is there").bytes()?;
/// assert_eq!(bytes.len(), 1024);
/// # Ok::<(), anamnesis::Error>(())
/// ```
pub struct Checkpoint {
    sources: Vec<Box<dyn Source>>,
    catalog: Catalog,
    limits: Limits,
    path: Option<PathBuf>,
}

/// One file and what is in it: what [`merge`](merge::merge) puts together.
struct Part {
    source: Box<dyn Source>,
    catalog: Catalog,
}

impl Checkpoint {
    /// Opens a file, a directory, an index (`….index.json`), or any part of a split GGUF.
    /// Reads headers only.
    ///
    /// # Errors
    /// I/O, unknown format, malformed (with the offset), unsupported, over a limit, a refused global
    /// of a pickle, or a missing part. See [`ErrorKind`](crate::ErrorKind).
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, &OpenOptions::default())
    }

    /// [`open`](Self::open) with options.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        let path = path.as_ref();
        let mut checkpoint = shards::open(path, options).map_err(|e| e.in_file(path))?;
        checkpoint.path = Some(path.to_owned());
        Ok(checkpoint)
    }

    /// Opens what a source holds as one file.
    ///
    /// # Errors
    /// As [`open`](Self::open), except missing parts.
    pub fn from_source(source: impl Source + 'static) -> Result<Self> {
        Self::from_source_with(source, &OpenOptions::default())
    }

    /// [`from_source`](Self::from_source) with options.
    ///
    /// # Errors
    /// As [`from_source`](Self::from_source).
    pub fn from_source_with(source: impl Source + 'static, options: &OpenOptions) -> Result<Self> {
        let budget = Budget::new(options.limits);
        let part = read_part(Box::new(source), None, options, &budget)?;
        merge::merge(vec![part], options)
    }

    /// Opens bytes in memory.
    ///
    /// # Errors
    /// As [`from_source`](Self::from_source).
    pub fn from_bytes(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Result<Self> {
        Self::from_source(Memory::new(bytes))
    }

    /// Opens any `Read + Seek`.
    ///
    /// # Errors
    /// As [`from_source`](Self::from_source).
    pub fn from_reader(reader: impl Read + Seek + Send + 'static) -> Result<Self> {
        Self::from_reader_with(reader, &OpenOptions::default())
    }

    /// [`from_reader`](Self::from_reader) with options.
    ///
    /// # Errors
    /// As [`from_source`](Self::from_source).
    pub fn from_reader_with(
        reader: impl Read + Seek + Send + 'static,
        options: &OpenOptions,
    ) -> Result<Self> {
        Self::from_source_with(Seekable::new(reader)?, options)
    }

    /// Lists a forward-only reader, such as standard input: safetensors, GGUF, NPY and legacy PyTorch.
    /// Reads it to its end, to see that it is whole; tensor bytes cannot be read afterwards.
    ///
    /// # Errors
    /// As [`from_source`](Self::from_source); zip archives are unsupported.
    pub fn from_stream(reader: impl Read + Send + 'static) -> Result<Self> {
        Self::from_source(Stream::new(reader))
    }

    /// The path that was opened (of a file, a directory, an index); `None` for a reader or bytes.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// What the checkpoint holds.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The value of a metadata key, with arrays that stayed in the file read whole.
    ///
    /// # Errors
    /// I/O, or an array over [`Limits::memory`].
    pub fn metadata(&self, key: &str) -> Result<Option<Value>> {
        let Some(value) = self.catalog.metadata.get(key) else {
            return Ok(None);
        };
        let Value::Array(array) = value else {
            return Ok(Some(value.clone()));
        };
        let budget = Budget::new(self.limits);
        let mut cursor = Cursor::new(self.source(array.bytes.file), &budget);
        let list = format::gguf::read_array(&mut cursor, array);
        list.map(Some)
            .map_err(|e| self.place(e.in_format(self.catalog.format), array.bytes.file))
    }

    /// Everything `anamnesis inspect` prints, as data. Reads nothing but the configuration beside the
    /// checkpoint, and descriptors of quantised weights.
    pub fn inspect(&self) -> Summary {
        let mut summary = Summary::new(self.path(), &self.catalog);
        match crate::remember(self).plan() {
            Ok(plan) => summary.add_weights(&plan, &self.catalog),
            Err(error) => summary
                .warnings
                .push(format!("quantised weights are not listed: {error}")),
        }
        summary
    }

    /// The files to read from, as [`ByteRange::file`](crate::ByteRange::file) numbers them.
    pub fn sources(&self) -> &[Box<dyn Source>] {
        &self.sources
    }

    pub(crate) fn source(&self, file: u32) -> &dyn Source {
        &*self.sources[file as usize]
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Names the file in an error that happened while reading from it.
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

/// What is behind a path.
enum Found {
    Directory,
    File(Box<dyn Source>),
}

/// Opens the file behind a path, if it is one: mapped, read, or streamed if it is a pipe. Asks the system once: of a small
/// file each question is a tenth of the time that opening takes.
fn find(path: &Path, options: &OpenOptions, budget: &Budget) -> Result<Found> {
    let file = match File::open(path) {
        // where directories cannot be opened
        Err(_) if path.is_dir() => return Ok(Found::Directory),
        file => file?,
    };
    let meta = file.metadata()?;
    if meta.is_dir() {
        return Ok(Found::Directory);
    }
    if !meta.is_file() {
        return Ok(Found::File(Box::new(Stream::new(file))));
    }
    let len = meta.len();
    let keep = len <= SMALL && budget.memory(len, "a small file").is_ok();
    #[cfg(feature = "mmap")]
    if options.map {
        return Ok(Found::File(Box::new(crate::source::Mapped::sized(
            file, len, keep,
        ))));
    }
    let _ = options;
    Ok(Found::File(Box::new(FileSource::sized(file, len, keep))))
}

/// Opens a file and reads its header.
fn read_path(path: &Path, options: &OpenOptions, budget: &Budget) -> Result<Part> {
    let read = || match find(path, options, budget)? {
        Found::Directory => Err(Error::from(std::io::Error::from(
            std::io::ErrorKind::IsADirectory,
        ))),
        Found::File(source) => read_part(source, Some(path), options, budget),
    };
    read().map_err(|e| e.in_file(path))
}

fn read_part(
    source: Box<dyn Source>,
    path: Option<&Path>,
    options: &OpenOptions,
    budget: &Budget,
) -> Result<Part> {
    let mut cursor = Cursor::new(&*source, budget);
    let catalog = format::read_file(&mut cursor, path, options.format)?;
    Ok(Part { source, catalog })
}
