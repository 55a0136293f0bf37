//! A sink that writes one safetensors file, or several and their index.
//!
//! Source: the format description of the `safetensors` repository. Tensors are laid out widest elements
//! first, as that crate's writer does, so that each is aligned to its elements.

mod companion_files;
mod cut;
mod directory;
#[cfg(target_os = "linux")]
mod exchange;
mod file;
mod header;
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

use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::engine::companions::{CompanionFile, Companions};
use crate::plan::{PlanId, TensorSpec};
use crate::read::source::files::url;

use super::Sink;
use cut::FileCut;
use local::LocalOutput;
use operations::{FileOperations, SystemFiles};
use output::{NewFiles, OutputPlace, OutputTarget};

pub(crate) use cut::file_metadata;
pub(crate) use directory::{FileOrigin, file_form, found_file};
pub use directory::{OutputDirectory, OutputFile};

/// How outputs are distributed over files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sharding {
    /// The target is one file.
    SingleFile,
    /// The target is a directory: shards of at most this many bytes of tensors each (a larger tensor gets a shard of its
    /// own), and `model.safetensors.index.json`.
    Shards(u64),
}

/// Writes safetensors files. They appear under their names when all of them are complete; a sink that is dropped
/// before removes its temporary files. When the run has ended without an error, they outlive a loss of power; a run that is
/// killed leaves what was there before.
///
/// With the feature `remote`, the target may be the URL of a bucket (`s3://`, `gs://`, `az://`, `abfss://`). Files are
/// uploaded in parts, in bounded memory, and the outputs then have the order of [`order`](Sink::order).
#[derive(Debug)]
pub struct SafetensorsSink {
    system: Arc<dyn FileOperations>,
    target: OutputTarget,
    metadata: Vec<(String, String)>,
    /// The id of the plan that is executed, if the caller has named one.
    plan_id: Option<PlanId>,
    companion_files: Companions,
    /// The place of the files, once it is known what they are.
    output: Option<Box<dyn OutputPlace>>,
    files: Vec<PathBuf>,
    /// Each output's file, by index, and its offset in it.
    places: Vec<(usize, u64)>,
}

impl SafetensorsSink {
    /// A sink that writes to `target`.
    pub fn new(target: impl Into<PathBuf>, sharding: Sharding) -> Self {
        Self {
            system: Arc::new(SystemFiles { unnamed: true }),
            target: OutputTarget {
                path: target.into(),
                sharding,
                overwrite: false,
                stem: "model".to_owned(),
                #[cfg(feature = "remote")]
                urls: crate::read::source::files::UrlOptions::default(),
            },
            metadata: Vec::new(),
            plan_id: None,
            companion_files: Companions::default(),
            output: None,
            files: Vec::new(),
            places: Vec::new(),
        }
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

    /// The entries of the header's `__metadata__`, in this order. In a directory the first file has them; each file has
    /// `format`, and under [`PLAN_ID_KEY`](crate::plan::PLAN_ID_KEY) the id of the plan.
    #[must_use]
    pub fn metadata(mut self, metadata: Vec<(String, String)>) -> Self {
        self.metadata = metadata;
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

    /// The safetensors files that the sink writes. They exist after the run.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(PathBuf::as_path)
    }

    /// The place that the target names.
    fn place(&self) -> Result<Box<dyn OutputPlace>> {
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
        let (file, base) = self.places[output];
        let place = self.output.as_ref().expect("begun");
        place.write(file, base + start, bytes, wait)
    }

    fn publish(&mut self, wait: &mut dyn FnMut(bool) -> bool) -> Result<()> {
        let place = self.output.as_mut().expect("begun");
        place.publish(wait)
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
    } else {
        return Ok(());
    };
    Err(refused.in_file(path))
}

/// The directory that contains a path.
fn directory_of(path: &Path) -> &Path {
    // the parent of a bare name is an empty path, which system calls refuse
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
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

impl Sink for SafetensorsSink {
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
        let cut = FileCut::new(outputs, &self.target.sharding, &self.metadata, self.plan_id)?;
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
        self.files = place.create(&new)?;
        self.output = Some(place);
        self.places = cut.places(outputs.len());
        Ok(())
    }

    fn order(&self) -> Option<Vec<usize>> {
        let place = self.output.as_ref()?;
        place.is_ordered().then(|| {
            let mut order: Vec<usize> = (0..self.places.len()).collect();
            // parts are sent as they fill, so that outputs in this order need the least memory
            order.sort_by_key(|output| self.places[*output]);
            order
        })
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
