//! A sink that writes one file of a container, or several that are one model.
//!
//! The container decides what is in a file (`container`); this is about files: how the outputs are cut into them, and how they
//! get their names, so that a reader finds a complete checkpoint or none.

mod companion_files;
mod copied;
mod cut;
mod directory;
#[cfg(target_os = "linux")]
mod exchange;
mod file;
pub(crate) mod in_place;
mod local;
mod names;
mod operations;
mod output;
#[cfg(all(test, target_os = "linux"))]
mod power_loss;
mod publish;
mod set_aside;
#[cfg(target_os = "linux")]
mod staging;
#[cfg(feature = "remote")]
mod uploaded;
mod written_bytes;

use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anamnesis_os::files::{directory_of, is_protected};

use crate::base::error::{Error, Result};
use crate::engine::companions::{CompanionFile, Companions};
use crate::plan::{PlanId, TensorSpec};
use crate::read::source::files::{check_no_url, url};

use super::container::{Container, ContainerForm, FormOptions, HeaderValue, HeaderValues};
use super::{Sink, StoredCopies};
use cut::FileCut;
use local::LocalOutput;
use operations::{FileOperations, SystemFiles};
use output::{NewFiles, OutputPlace, OutputTarget};
use written_bytes::WrittenFiles;

pub use cut::safetensors_header;
pub(crate) use cut::{file_form, file_metadata};
pub(crate) use directory::{FileOrigin, found_file};
pub use directory::{OutputDirectory, OutputFile};

/// How outputs are distributed over files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sharding {
    /// The target is one file.
    SingleFile,
    /// The target is a directory: shards of at most this many bytes of tensors each (a larger tensor gets a shard of its
    /// own), and `model.safetensors.index.json`; of GGUF a split.
    Shards(u64),
}

/// Writes the files of a container: safetensors, unless another one is [chosen](Self::container). They appear under their names when all of them are complete; a sink that is dropped
/// before removes its temporary files. When the run has ended without an error, they outlive a loss of power; a run that is
/// killed leaves what was there before.
///
/// With the feature `remote`, the target may be the URL of a bucket (`s3://`, `gs://`, `az://`, `abfss://`). Files are
/// uploaded in parts, in bounded memory, and the outputs then have the order of [`order`](Sink::order).
///
/// ```
/// use anamnesis::sink::{FileSink, GGUF, Sharding};
/// use anamnesis::{Checkpoint, Dtype, remember};
///
/// # let path = std::env::temp_dir().join(format!("anamnesis-sink-{}.gguf", std::process::id()));
/// let checkpoint = Checkpoint::open("fixtures/model/scribe-Q8_0.gguf")?;
/// let dequantised = remember(&checkpoint).dtype(Dtype::F16);
/// let mut sink = FileSink::new(&path, Sharding::SingleFile).container(&GGUF);
/// dequantised.run(&dequantised.plan()?, &mut sink)?;
/// let written = Checkpoint::open(&path)?;
/// assert_eq!(written.catalog().format(), "gguf");
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), anamnesis::Error>(())
/// ```
#[derive(Debug)]
pub struct FileSink {
    system: Arc<dyn FileOperations>,
    target: OutputTarget,
    form: ContainerForm,
    metadata: HeaderValues,
    /// The id of the plan that is executed, if the caller has named one.
    plan_id: Option<PlanId>,
    companion_files: Companions,
    /// The place of the files, once it is known what they are.
    output: Option<Box<dyn OutputPlace>>,
    files: Vec<PathBuf>,
    /// The bytes that are written to them, once the outputs are known.
    written: Option<WrittenFiles>,
    /// The number of outputs of each file, if it was chosen.
    counts: Option<Vec<usize>>,
}

/// The sink of safetensors files: a [`FileSink`] of which no other container was chosen.
pub type SafetensorsSink = FileSink;

impl FileSink {
    /// A sink that writes to `target`.
    pub fn new(target: impl Into<PathBuf>, sharding: Sharding) -> Self {
        Self {
            system: Arc::new(SystemFiles { unnamed: true }),
            target: OutputTarget {
                path: target.into(),
                sharding,
                overwrite: false,
                stem: "model".to_owned(),
                extension: ContainerForm::PLAIN.container.name,
                #[cfg(feature = "remote")]
                urls: crate::read::source::files::UrlOptions::default(),
            },
            form: ContainerForm::PLAIN,
            metadata: HeaderValues::new(),
            plan_id: None,
            companion_files: Companions::default(),
            output: None,
            files: Vec::new(),
            written: None,
            counts: None,
        }
    }

    /// The container of the files. Default safetensors.
    #[must_use]
    pub fn container(mut self, container: &'static Container) -> Self {
        self.form.container = container;
        self.target.extension = container.name;
        self
    }

    /// Whether floats that NumPy does not have (BF16, FP8) are written to NPY and NPZ, as items without a type of their width. Default
    /// off: they are refused.
    #[must_use]
    pub fn void(mut self, void: bool) -> Self {
        self.form.options.void = void;
        self
    }

    /// Choices about the form of the files.
    #[must_use]
    pub(crate) fn form_options(mut self, options: FormOptions) -> Self {
        self.form.options = options;
        self
    }

    /// The number of outputs of each file in a directory, in order.
    #[must_use]
    pub(crate) fn outputs_of_files(mut self, counts: Vec<usize>) -> Self {
        self.counts = Some(counts);
        self
    }

    /// The keys of the header and their values, of any kind that the container has.
    #[must_use]
    pub(crate) fn header_values(mut self, values: HeaderValues) -> Self {
        self.metadata = values;
        self
    }

    /// Whether existing files are replaced. Default off: they are refused, except companion files with the same bytes. The
    /// checkpoint in a directory is replaced: its `model.safetensors`, `model.safetensors.index.json`, the files that this
    /// index names, every shard with a name that this sink writes, and companion files of the same names. Where these have
    /// other bytes, the directory is exchanged for a new one that also has the other files, on Linux and unless more than
    /// files would change (`docs/untrusted.md`).
    #[must_use]
    pub fn overwrite(mut self, overwrite: bool) -> Self {
        self.target.overwrite = overwrite;
        self
    }

    /// The entries of the header's `__metadata__`, in this order, which are texts; of a GGUF, its keys. In a directory the first file
    /// has them; each safetensors file has `format`, and under [`PLAN_ID_KEY`](crate::plan::PLAN_ID_KEY) the id of the plan.
    #[must_use]
    pub fn metadata(mut self, metadata: Vec<(String, impl Into<HeaderValue>)>) -> Self {
        let values = metadata.into_iter();
        self.metadata = values.map(|(key, value)| (key, value.into())).collect();
        self
    }

    /// Whether a safetensors file, of several the first, has `__metadata__` without a key where [`metadata`](Self::metadata) has none.
    /// Default off. Other containers have no such place.
    #[must_use]
    pub fn empty_metadata(mut self, empty: bool) -> Self {
        self.form.options.empty_metadata = empty;
        self
    }

    /// The stem of the files in a directory. Default `model`; peft finds `adapter_model`, diffusers
    /// `diffusion_pytorch_model`.
    #[must_use]
    pub fn file_stem(mut self, stem: impl Into<String>) -> Self {
        self.target.stem = stem.into();
        self
    }

    /// Files that are written beside the tensors, in a directory.
    #[must_use]
    pub fn companions(mut self, files: Companions) -> Self {
        self.companion_files = files;
        self
    }

    /// How a target at a URL is accessed: times, repetitions, the length and the memory of parts, credentials.
    #[cfg(feature = "remote")]
    #[must_use]
    pub fn remote(mut self, options: crate::base::remote::RemoteOptions) -> Self {
        self.target.urls.remote = options;
        self
    }

    /// The files of [`companions`](Self::companions), and what was left out of them.
    pub fn companion_files(&self) -> &Companions {
        &self.companion_files
    }

    /// The files of tensors that the sink writes. They exist after the run.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(PathBuf::as_path)
    }

    /// The outputs in the order of their places in the files. The sink has begun.
    pub(super) fn file_order(&self) -> Vec<usize> {
        let places = self.written.as_ref().expect("begun").places();
        let mut order: Vec<usize> = (0..places.len()).collect();
        order.sort_by_key(|output| places[*output]);
        order
    }

    /// The place that the target names.
    fn place(&self) -> Result<Box<dyn OutputPlace>> {
        check_target(&self.target.path)?;
        match url(&self.target.path) {
            None => Ok(Box::new(LocalOutput::new(&self.system, self.target.clone()))),
            #[cfg(feature = "remote")]
            Some(url) => Ok(Box::new(uploaded::UploadedOutput::open(
                url,
                self.target.clone(),
            )?)),
            #[cfg(not(feature = "remote"))]
            Some(_) => Err(Error::unsupported(
                "this program was built without access to URLs: build it with the feature `remote`, or write to a local path",
            )
            .in_file(&self.target.path)),
        }
    }

    /// Like [`Sink::put`], with a callback for the time in which the sink waits.
    fn write(
        &self,
        output: usize,
        start: u64,
        bytes: &[u8],
        wait: &mut dyn FnMut(bool) -> bool,
    ) -> Result<()> {
        let place = self.output.as_ref().expect("begun");
        let written = self.written.as_ref().expect("begun");
        written.put(output, start, bytes, |file, at, bytes| {
            place.write(file, at, bytes, wait)
        })
    }

    fn publish(&mut self, wait: &mut dyn FnMut(bool) -> bool) -> Result<()> {
        let place = self.output.as_mut().expect("begun");
        let written = self.written.as_mut().expect("begun");
        written.finish(|file, at, bytes| place.write(file, at, bytes, wait))?;
        place.publish(wait)
    }
}

/// Refuses a path that was meant as a URL, and the URL of an output that has a query or a fragment: they would be a part of the objects' names, and a signature would be
/// one of everything that shows them.
///
/// ```
/// use anamnesis::sink::check_target;
///
/// assert!(check_target("s3://bucket/model/".as_ref()).is_ok());
/// assert!(check_target("s3://bucket/model/?X-Amz-Signature=secret".as_ref()).is_err());
/// ```
///
/// # Errors
/// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument).
pub fn check_target(target: &Path) -> Result<()> {
    match url(target) {
        Some(url) if url.contains(['?', '#']) => {
            let what = "an output has no query and no fragment: leave out what begins with `?` or `#`; credentials are in \
                        the environment";
            Err(Error::invalid_argument(what).in_file(target))
        }
        Some(_) => Ok(()),
        // a directory such as `s3:` would be made
        None => check_no_url(target),
    }
}

/// Refuses a path that exists, unless it leads to a file that may be replaced.
pub(crate) fn check_replaceable(path: &Path, replace: bool) -> Result<()> {
    let meta = match fs::symlink_metadata(path) {
        // a link to a file is replaced itself; a link to a device is refused as the device is
        Ok(meta) if meta.is_symlink() => fs::metadata(path).unwrap_or(meta),
        Ok(meta) => meta,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(Error::from(e).in_file(path)),
    };
    let refused = if meta.is_dir() {
        Error::from(io::Error::from(io::ErrorKind::IsADirectory))
    } else if !meta.is_file() && !meta.is_symlink() {
        // a link that is still one here leads nowhere, and may be replaced like a file
        Error::invalid_argument(
            "the target is neither a file nor a link to one, and only those are replaced",
        )
    } else if !replace {
        // after the kind of file: `overwrite` does not permit to replace a directory or a device
        Error::from(io::Error::from(io::ErrorKind::AlreadyExists))
    } else if is_protected(path) {
        // found out before the commit: a model that is half replaced is of no use
        let what = "the file is immutable, or may only be appended to (`lsattr` shows it)";
        Error::from(io::Error::new(io::ErrorKind::PermissionDenied, what))
    } else {
        return Ok(());
    };
    Err(refused.in_file(path))
}

/// Writes companion files alone: the parts of a pipeline that hold no tensors. The directory may be the URL of a bucket.
///
/// # Errors
/// If a file cannot be written, or exists with other bytes and is not to be replaced.
pub fn write_companions(
    directory: impl AsRef<Path>,
    files: &[CompanionFile],
    overwrite: bool,
) -> Result<()> {
    // no shard is written, so that their size has no meaning here
    let sink = SafetensorsSink::new(directory.as_ref(), Sharding::Shards(1)).overwrite(overwrite);
    let mut place = sink.place()?;
    let written = place.write_companions(files);
    written.map_err(|e| with_leftovers(e, &mut *place))
}

/// Removes what was written, and says in the error what could not be removed.
fn with_leftovers(error: Error, place: &mut dyn OutputPlace) -> Error {
    match place.discard() {
        Some(left) => error.with_note(left),
        None => error,
    }
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

impl Sink for FileSink {
    fn identify(&mut self, id: &dyn Fn() -> PlanId) {
        // one file is made by one run
        if let Sharding::Shards(_) = self.target.sharding {
            self.plan_id = Some(id());
        }
    }

    fn begin(&mut self, outputs: &[TensorSpec]) -> Result<()> {
        // temporary files of an earlier run that failed
        self.output = None;
        self.files.clear();
        let container = self.form.container;
        if container.complete.is_some() && url(&self.target.path).is_some() {
            let what = format!(
                "a file of the container {} has checksums in front of its tensors, and is written to a local path only",
                container.name
            );
            return Err(Error::unsupported(what).in_file(&self.target.path));
        }
        let distributed = match &self.counts {
            Some(counts) => cut::by_counts(outputs, counts),
            None => cut::by_bytes(outputs, &self.target.sharding),
        }?;
        let cut = FileCut::new(
            outputs,
            distributed,
            &self.form,
            &self.metadata,
            self.plan_id,
        )?;
        let companions = match self.target.sharding {
            Sharding::Shards(_) => &self.companion_files.files[..],
            Sharding::SingleFile => &[],
        };
        let new = NewFiles {
            cut: &cut,
            outputs,
            companions,
        };
        let mut place = self.place()?;
        let created = place.create(&new);
        // after companion files were copied, and before an error of one that is not there any more
        self.companion_files.check_source()?;
        self.files = created?;
        self.output = Some(place);
        self.written = Some(WrittenFiles::new(cut.files, outputs, container.complete));
        Ok(())
    }

    fn order(&self) -> Option<Vec<usize>> {
        let place = self.output.as_ref()?;
        // parts are sent as they fill, so that outputs in this order need the least memory
        place.is_ordered().then(|| self.file_order())
    }

    fn copies(&self) -> Option<&dyn StoredCopies> {
        self.output.as_ref()?.file(0)?;
        Some(self)
    }

    fn put(&self, output: usize, start: u64, bytes: &[u8]) -> Result<()> {
        let mut waited = false;
        // a transfer that is under way ends by itself; bytes that are still to be put might be due from this very
        // thread
        let written = self.write(output, start, bytes, &mut |is_under_way| {
            waited = !is_under_way;
            is_under_way
        });
        written.map_err(|e| match waited {
            false => e,
            true => Error::invalid_argument(
                "the bytes are far ahead of those that the sink waits for: make the outputs in the order that it states",
            )
            .in_file(&self.target.path),
        })
    }

    fn put_while(
        &self,
        output: usize,
        start: u64,
        bytes: &[u8],
        flow: &dyn Fn() -> ControlFlow<()>,
    ) -> Result<()> {
        self.write(output, start, bytes, &mut |_| flow().is_continue())
    }

    fn end(&mut self) -> Result<()> {
        // all bytes are put, so that only transfers are waited for
        self.publish(&mut |_| true)
    }

    fn end_while(&mut self, flow: &dyn Fn() -> ControlFlow<()>) -> Result<()> {
        self.publish(&mut |_| flow().is_continue())
    }

    fn fail(&mut self, error: Error) -> Error {
        match &mut self.output {
            Some(place) => with_leftovers(error, &mut **place),
            None => error,
        }
    }
}
