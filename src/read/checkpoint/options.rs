//! Options of opening, and what is opened with them: paths, sources, bytes, readers.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::{Read, Seek};
use std::path::Path;
use std::sync::Arc;

use super::faults::FaultList;
use super::set_key::SetKey;
use super::{Checkpoint, edit_journal, merge, open, replaced, shards};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::kernel::Dtype;
use crate::base::limits::{Budget, KeptMemory, Limits, Usage};
use crate::base::progress::CancelToken;
use crate::read::format::Format;
use crate::read::source::file_system::{MapMode, NamedPath};
use crate::read::source::files::{Files, UrlOptions};
use crate::read::source::ollama::blob_of;
use crate::read::source::snapshot::{cache_warning, snapshot_of};
use crate::read::source::{CheckedSource, MemorySource, ReaderSource, Source, StreamSource};

/// Options of opening: limits, mapping, and what the file does not state itself.
///
/// ```
/// use anamnesis::{Dtype, OpenOptions};
///
/// // numpy does not store that an ml_dtypes array is BF16: it writes raw 2-byte items
/// let checkpoint = OpenOptions::new().void_as(Dtype::BF16).open("fixtures/npy/bf16.npy")?;
/// assert_eq!(checkpoint.catalog().tensors()[0].encoding.name(), "BF16");
/// # Ok::<(), anamnesis::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions {
    pub(super) limits: Limits,
    pub(super) mmap: bool,
    pub(super) private: bool,
    pub(super) single: bool,
    pub(super) format: Option<&'static Format>,
    pub(super) void_as: Vec<Dtype>,
    pub(super) opaque: bool,
    pub(super) assume_plain: bool,
    pub(super) usage: Option<Usage>,
    pub(super) cancel: Option<CancelToken>,
    pub(super) urls: UrlOptions,
    /// See [`Self::survey`].
    pub(super) faults: Option<FaultList>,
    /// See [`Self::found_in`].
    pub(super) found_in: Option<Arc<Path>>,
    /// See [`Self::passing_over`].
    pub(super) passed_over: Option<Arc<BTreeSet<String>>>,
    /// See [`Self::of_set`].
    pub(super) only_set: Option<Arc<SetKey>>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            // the default: borrowing the tensors of a warm file needs no copy; `Checkpoint::open` documents the
            // danger of SIGBUS
            mmap: true,
            private: false,
            single: false,
            format: None,
            void_as: Vec::new(),
            opaque: false,
            assume_plain: false,
            usage: None,
            cancel: None,
            urls: UrlOptions::default(),
            faults: None,
            found_in: None,
            passed_over: None,
            only_set: None,
        }
    }
}

impl OpenOptions {
    /// The defaults: limits for untrusted files, paths mapped, all files of a split opened.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bounds on the resources that the files may consume.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Reports what opening, and later planning and listing, charge to the limits.
    #[must_use]
    pub fn usage(mut self, usage: &Usage) -> Self {
        self.usage = Some(usage.clone());
        self
    }

    /// Whether paths are memory-mapped (the default) or read with positioned reads.
    ///
    /// Use `false` for files that other programs may truncate, and on network file systems: see
    /// [`Checkpoint::open`]. Without the feature `mmap`, paths are never mapped.
    #[must_use]
    pub fn mmap(mut self, mmap: bool) -> Self {
        self.mmap = mmap;
        self
    }

    /// Whether bytes that [`Load::borrow_mapped`](crate::Load::borrow_mapped) borrows are writable (copy on write). Default off.
    ///
    /// Each load maps the files for itself: what is written is seen through its own tensors alone, and never by the file, by other
    /// loads and by other processes. Only pages that are written to take memory. Tensors that cannot be mapped so, or that have
    /// bytes in common with another one, are copied into the pool.
    ///
    /// ```
    /// use anamnesis::{OpenOptions, load};
    ///
    /// let path = "fixtures/safetensors/sharded/model-00001-of-00002.safetensors";
    /// let checkpoint = OpenOptions::new().private(true).open(path)?;
    /// let before = std::fs::read(path)?;
    /// for tensor in load(&checkpoint).borrow_mapped().run()? {
    ///     let mut bytes = tensor.into_part().expect("no tensor of this file is tied");
    ///     bytes.fill(0);
    /// }
    /// assert_eq!(std::fs::read(path)?, before);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn private(mut self, private: bool) -> Self {
        self.private = private;
        self
    }

    /// Whether to open the named file alone, even if it is one of the files of a split GGUF.
    #[must_use]
    pub fn single(mut self, single: bool) -> Self {
        self.single = single;
        self
    }

    /// Reads the file as this format, without detecting the format from its first bytes.
    #[must_use]
    pub fn format(mut self, format: &'static Format) -> Self {
        self.format = Some(format);
        self
    }

    /// Reads raw void items of the width of `dtype` as `dtype` (numpy's `V2` as `BF16`, `V1` as an FP8).
    /// May be called once per width; the last call for a width counts.
    #[must_use]
    pub fn void_as(mut self, dtype: Dtype) -> Self {
        // a list and not a map by width: an option may be given before another one of the same width replaces it
        self.void_as.push(dtype);
        self
    }

    /// Whether objects of unknown classes in a pickle are kept as a class name and plain state, instead of refusing the
    /// file. Nothing is called or imported. The tensors around and inside of such objects are read; a tensor that is made
    /// by an unknown function or class is refused. Files and entries that were set aside are in a
    /// [warning](crate::Catalog::warnings).
    ///
    /// ```
    /// use anamnesis::{ErrorKind, OpenOptions};
    ///
    /// let path = "fixtures/pth/values/opaque.pth";
    /// let refused = OpenOptions::new().open(path).unwrap_err();
    /// assert!(matches!(refused.kind(), ErrorKind::RefusedGlobal { .. }));
    /// let checkpoint = OpenOptions::new().opaque(true).open(path)?;
    /// assert!(checkpoint.catalog().get("weight").is_some());
    /// assert_eq!(checkpoint.catalog().metadata().text("args"), Some("argparse.Namespace"));
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    #[must_use]
    pub fn opaque(mut self, opaque: bool) -> Self {
        self.opaque = opaque;
        self
    }

    /// Whether what is not known about stored weights is ignored. Default off: a weight with a tensor, a setting or a marker
    /// beside it that no scheme explains is refused ([`ErrorKind::Unexplained`](crate::ErrorKind::Unexplained)), because it
    /// could be decoded to other values than those that were meant.
    ///
    /// With it, such weights are decoded by their names, dtypes and shapes alone, integers that may be packed codes are copied
    /// as they are, and the plan notes what was ignored.
    ///
    /// ```
    /// use anamnesis::{Checkpoint, ErrorKind, OpenOptions, remember};
    ///
    /// let path = "fixtures/unexplained/v-offset/model.safetensors";
    /// let error = remember(&Checkpoint::open(path)?).all().unwrap_err();
    /// assert!(matches!(error.kind(), ErrorKind::Unexplained(_)));
    /// let ignoring = OpenOptions::new().assume_plain(true).open(path)?;
    /// assert!(remember(&ignoring).plan()?.refused.is_empty());
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    #[must_use]
    pub fn assume_plain(mut self, plain: bool) -> Self {
        self.assume_plain = plain;
        self
    }

    /// A token that cancels opening, which then returns [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled). It is checked
    /// before each file, of which a checkpoint on a network file system may have hundreds, and while an answer about a URL is waited for.
    /// It has no effect on loads.
    ///
    /// ```
    /// use anamnesis::{CancelToken, ErrorKind, OpenOptions};
    ///
    /// let token = CancelToken::new();
    /// token.cancel(); // in an interactive program: by another thread
    /// let options = OpenOptions::new().cancel(&token);
    /// let error = options.open("fixtures/safetensors/sharded").unwrap_err();
    /// assert!(matches!(error.kind(), ErrorKind::Cancelled));
    /// ```
    #[must_use]
    pub fn cancel(mut self, token: &CancelToken) -> Self {
        self.cancel = Some(token.clone());
        self
    }

    /// Bounds on time and requests for URLs, and counters of them. They hold for loads as well.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use anamnesis::OpenOptions;
    /// use anamnesis::remote::{RemoteOptions, RequestCounters};
    ///
    /// let counters = RequestCounters::default();
    /// let mut options = RemoteOptions::default();
    /// options.first_byte = Duration::from_secs(5);
    /// options.counters = Some(counters.clone());
    /// let checkpoint = OpenOptions::new().remote(options).open("https://example.org/model.safetensors")?;
    /// println!("{} tensors by {} requests", checkpoint.catalog().tensors().len(), counters.stats().requests);
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    #[cfg(feature = "remote")]
    #[must_use]
    pub fn remote(mut self, options: crate::base::remote::RemoteOptions) -> Self {
        self.urls.remote = options;
        self
    }

    /// The path that is opened was found in this directory, by listing it or because a file in it names the path, and was
    /// not named by the caller. A link then leads within the directory, in a snapshot of the hub's cache to the blobs of its
    /// repository, and elsewhere if root, this user or the owner of the target made it; another one is an error. Default
    /// none: the path is the caller's, and followed.
    ///
    /// ```
    /// use std::path::Path;
    /// use anamnesis::OpenOptions;
    ///
    /// let directory = Path::new("fixtures/model");
    /// let options = OpenOptions::new().found_in(directory);
    /// assert!(options.open(directory.join("scribe.safetensors")).is_ok());
    /// ```
    #[must_use]
    pub fn found_in(mut self, directory: impl AsRef<Path>) -> Self {
        self.found_in = Some(directory.as_ref().into());
        self
    }

    /// The path of a call, and who named it.
    pub(crate) fn named<'p>(&'p self, path: &'p Path) -> NamedPath<'p> {
        match self.found_in.as_deref() {
            Some(directory) if directory != path => NamedPath::below(directory, path),
            _ => NamedPath::Given(path),
        }
    }

    /// The error of a cancelled call.
    pub(super) fn check_cancelled(&self) -> Result<()> {
        let cancelled = self.cancel.as_ref().is_some_and(CancelToken::is_cancelled);
        if cancelled {
            return Err(Error::new(ErrorKind::Cancelled));
        }
        Ok(())
    }

    /// Opens a path with these options. See [`Checkpoint::open`].
    ///
    /// # Errors
    /// The errors of [`Checkpoint::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Checkpoint> {
        let given = path.as_ref();
        let (files, mut path) = self.files(given)?;
        if files.is_local()
            && let Some(snapshot) = snapshot_of(&path)?
        {
            path = snapshot.into();
        } else if files.is_local()
            && let Some(blob) = blob_of(&path)?
        {
            path = blob.into();
        }
        let warning = match files.is_local() {
            true => cache_warning(given, &path),
            false => None,
        };
        let mut checkpoint = self.open_in(files, path)?;
        checkpoint.catalog.warnings.extend(warning);
        Ok(checkpoint)
    }

    /// Opens a path of a place.
    pub(crate) fn open_in(&self, files: Files, path: Cow<'_, Path>) -> Result<Checkpoint> {
        let open = || {
            self.forget_faults();
            shards::open(&files, &path, self)
        };
        let opened = match files.is_local() {
            true => replaced::open_stable(&path, self, open),
            false => open(),
        };
        // a cancelled wait, for a server's answer or for the writer of a pipe, looks like a failure of the other side
        let opened = opened.map_err(|e| self.check_cancelled().err().unwrap_or(e));
        // an error names the innermost file; this path is added to errors without one
        let mut checkpoint = opened.map_err(|e| match files.is_local() {
            true => edit_journal::with_hint(e.in_file(&path), &path),
            false => e.in_file(&path),
        })?;
        files.opened();
        checkpoint.path = Some(path.into_owned());
        checkpoint.files = files;
        Ok(checkpoint)
    }

    /// The place of a path, and the path as it is shown, with these options for URLs.
    pub(crate) fn files<'p>(&self, path: &'p Path) -> Result<(Files, Cow<'p, Path>)> {
        let urls = self.urls.cancelled_by(self.cancel.as_ref());
        Files::with(path, &urls, self.limits.memory_without_tensors())
    }

    /// Opens a [`Source`] as one file.
    ///
    /// # Errors
    /// The errors of [`Checkpoint::open`], except missing parts.
    pub fn from_source(&self, source: impl Source + 'static) -> Result<Checkpoint> {
        let budget = self.budget();
        // the caller's source may break the promises that readers rely on
        let source = Arc::new(CheckedSource::new(source));
        let file = open::parse_source(source, None, None, self, &budget)?;
        merge::merge(vec![file], self, &budget)
    }

    /// The limits that are set.
    pub(crate) fn limits_of(&self) -> Limits {
        self.limits
    }

    /// The settings of requests.
    #[cfg(feature = "remote")]
    pub(crate) fn remote_of(&self) -> crate::base::remote::RemoteOptions {
        let mut remote = self.urls.cancelled_by(self.cancel.as_ref()).remote;
        remote.memory = remote.memory.min(self.limits.memory);
        remote
    }

    pub(super) fn mapping(&self) -> MapMode {
        MapMode {
            mmap: self.mmap,
            private: self.private,
        }
    }

    /// A budget of these limits, of which nothing is spent.
    pub(super) fn budget(&self) -> Budget {
        Budget::resume(self.limits, KeptMemory::default(), self.usage.clone())
    }

    /// Opens bytes in memory as one file.
    ///
    /// # Errors
    /// The errors of [`from_source`](Self::from_source).
    pub fn from_bytes(
        &self,
        bytes: impl AsRef<[u8]> + Send + Sync + 'static,
    ) -> Result<Checkpoint> {
        self.from_source(MemorySource::new(bytes))
    }

    /// Opens any `Read + Seek` as one file.
    ///
    /// # Errors
    /// The errors of [`from_source`](Self::from_source).
    pub fn from_reader(&self, reader: impl Read + Seek + Send + 'static) -> Result<Checkpoint> {
        // without a `BufReader` in between: the cursor's window does the same, and a second buffer is a second copy
        // (experiment 30)
        self.from_source(ReaderSource::new(reader)?)
    }

    /// Lists a forward-only reader. See [`Checkpoint::from_stream`].
    ///
    /// # Errors
    /// The errors of [`Checkpoint::from_stream`].
    pub fn from_stream(&self, reader: impl Read + Send + 'static) -> Result<Checkpoint> {
        self.from_source(StreamSource::new(reader))
    }

    /// Like [`from_stream`](Self::from_stream), of an open pipe, terminal or socket: its reads end when the token of
    /// [`cancel`](Self::cancel) is cancelled, also where no writer sends anything.
    ///
    /// ```no_run
    /// use anamnesis::{CancelToken, OpenOptions};
    ///
    /// let token = CancelToken::new();
    /// let pipe = std::fs::File::open("/dev/stdin")?;
    /// let checkpoint = OpenOptions::new().cancel(&token).from_pipe(pipe)?;
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Checkpoint::from_stream`]; [`ErrorKind::Cancelled`].
    pub fn from_pipe(&self, file: std::fs::File) -> Result<Checkpoint> {
        let source = StreamSource::of_pipe(file, self.cancel.as_ref());
        let opened = self.from_source(source);
        opened.map_err(|e| self.check_cancelled().err().unwrap_or(e))
    }
}
