//! A sink that writes one safetensors file, or several and their index.
//!
//! Source: the format description of the `safetensors` repository. Tensors are laid out widest elements
//! first, as that crate's writer does, so that each is aligned to its elements.

mod beside;
mod cut;
mod directory;
#[cfg(target_os = "linux")]
mod exchange;
mod file;
mod header;
mod names;
mod operations;
#[cfg(all(test, target_os = "linux"))]
mod power_loss;
mod publish;
#[cfg(target_os = "linux")]
mod staging;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::companions::{CompanionFile, Companions};
use crate::error::{Error, Result};
use crate::plan::{PlanId, TensorSpec};

use super::Sink;
use beside::Companion;
use cut::FileCut;
use file::Shard;
use names::{PartNames, ShardNames, Stem};
use operations::{FileOperations, SystemFiles};

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
#[derive(Debug)]
pub struct SafetensorsSink {
    system: Arc<dyn FileOperations>,
    target: PathBuf,
    sharding: Sharding,
    overwrite: bool,
    stem: String,
    metadata: Vec<(String, String)>,
    /// Of the plan that is executed, if the caller has named one.
    plan_id: Option<PlanId>,
    companion_files: Companions,
    /// Those of them that have been written.
    companions: Vec<Companion>,
    /// The files that the index in the directory names.
    old_files: BTreeSet<PathBuf>,
    shards: Vec<Shard>,
    /// Of each output: the index of its shard, and its offset in that file.
    places: Vec<(usize, u64)>,
    /// The index of several shards, and their names. It is renamed last, so that a reader which finds it finds its shards.
    index: Option<(Shard, ShardNames)>,
    /// Directories that were created for the files, outermost first.
    created_directories: Vec<PathBuf>,
}

impl SafetensorsSink {
    /// A sink that writes to `target`.
    pub fn new(target: impl Into<PathBuf>, sharding: Sharding) -> Self {
        Self {
            system: Arc::new(SystemFiles { unnamed: true }),
            target: target.into(),
            sharding,
            overwrite: false,
            stem: "model".to_owned(),
            metadata: Vec::new(),
            plan_id: None,
            companion_files: Companions::default(),
            companions: Vec::new(),
            old_files: BTreeSet::new(),
            shards: Vec::new(),
            places: Vec::new(),
            index: None,
            created_directories: Vec::new(),
        }
    }

    /// Whether existing files are replaced. Default off: they are refused, except companion files with the same bytes. Of a
    /// directory, the checkpoint is replaced: its `model.safetensors`, `model.safetensors.index.json`, the files that this
    /// index names, every shard with a name that this sink writes, and companion files of the same names. Where these have
    /// other bytes, the directory is exchanged for a new one that also has the other files, on Linux and unless more than
    /// files would change (`docs/untrusted.md`).
    #[must_use]
    pub fn overwrite(mut self, overwrite: bool) -> Self {
        self.overwrite = overwrite;
        self
    }

    /// The entries of the header's `__metadata__`, in this order. In a directory they are those of the first file; each file has
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
        self.stem = stem.into();
        self
    }

    /// Files that are written beside the tensors, in a directory.
    #[must_use]
    pub fn companions(mut self, files: Companions) -> Self {
        self.companion_files = files;
        self
    }

    /// The files of [`companions`](Self::companions), and what was left out of them.
    pub fn companion_files(&self) -> &Companions {
        &self.companion_files
    }

    /// The safetensors files that the sink writes. They exist after the run.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.shards.iter().map(Shard::target)
    }

    /// Refuses a path that exists and must not be replaced.
    fn check_free(&self, path: &Path) -> Result<()> {
        check_replaceable(path, self.overwrite)
    }

    /// Writes companion files, without their names.
    fn create_companions(
        &self,
        parts: &PartNames,
        files: &[CompanionFile],
    ) -> Result<Vec<Companion>> {
        let create =
            |file| Companion::create(&self.system, parts, file, |path| self.check_free(path));
        files.iter().map(create).collect()
    }

    /// Creates the target directory, and records the directories that did not exist.
    fn create_directory(&mut self) -> Result<()> {
        let missing = self
            .target
            .ancestors()
            .take_while(|a| !a.as_os_str().is_empty() && !a.exists());
        let mut missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
        missing.reverse();
        for directory in missing {
            match self.system.create_directory(&directory) {
                Ok(()) => self.created_directories.push(directory),
                // another process created it
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => {}
                Err(e) => return Err(Error::from(e).in_file(&directory)),
            }
        }
        if !self.target.is_dir() {
            let error = io::Error::from(io::ErrorKind::NotADirectory);
            return Err(Error::from(error).in_file(&self.target));
        }
        Ok(())
    }

    fn stem(&self) -> Result<Stem> {
        let what = "the stem of the files is not part of a file name";
        Stem::new(&self.stem).ok_or_else(|| Error::invalid_argument(what))
    }

    /// The names of files under construction, in the directory of the files.
    fn parts(&self) -> Result<PartNames> {
        if let Sharding::Shards(_) = self.sharding {
            // one name for all files: the number of shards changes between runs
            return Ok(PartNames::new(&self.target, self.stem()?.single().as_ref()));
        }
        let name = self
            .target
            .file_name()
            .ok_or_else(|| Error::invalid_argument("the target is not a file name"))?;
        Ok(PartNames::new(directory_of(&self.target), name))
    }

    /// The paths of `count` files, of which none must be replaced, except a single file.
    fn names(
        &self,
        count: usize,
        parts: &PartNames,
        stem: &Stem,
    ) -> Result<(Vec<PathBuf>, ShardNames)> {
        let names = ShardNames {
            generation: if self.overwrite && count > 1 {
                stem.free_generation(&self.target)
                    .map_err(|e| Error::from(e).in_file(&self.target))?
            } else {
                1
            },
            count: count as u64,
        };
        let paths = match (&self.sharding, count) {
            (Sharding::SingleFile, _) => vec![self.target.clone()],
            (Sharding::Shards(_), 1) => vec![self.target.join(stem.single())],
            (Sharding::Shards(_), _) => (1..=names.count)
                .map(|number| parts.directory().join(stem.shard(names, number)))
                .collect(),
        };
        Ok((paths, names))
    }

    /// Checks the target before anything is written, and returns the names of `count` files.
    fn prepare(&mut self, count: usize, parts: &PartNames) -> Result<(Vec<PathBuf>, ShardNames)> {
        let stem = self.stem()?;
        if let Sharding::Shards(_) = self.sharding {
            // readers prefer either the index or the single file: only one of them may remain
            self.check_free(&self.target.join(stem.index()))?;
            self.check_free(&self.target.join(stem.single()))?;
            self.create_directory()?;
        } else {
            self.check_free(&self.target)?;
        }
        self.remove_abandoned(parts, &stem);
        if let Sharding::Shards(_) = self.sharding {
            let directory = parts.directory();
            self.old_files = beside::files_of_index(directory, &stem);
            // readers that open every `model*.safetensors` (mlx-lm) would find both sets
            let others = stem.shards(directory, |_| !self.overwrite);
            let others = others.map_err(|e| Error::from(e).in_file(directory))?;
            others.iter().try_for_each(|path| self.check_free(path))?;
        }
        let (paths, names) = self.names(count, parts, &stem)?;
        paths.iter().try_for_each(|path| self.check_free(path))?;
        Ok((paths, names))
    }
}

/// Refuses a path that exists, unless it is that of a file and may be replaced.
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
        Error::invalid_argument(
            "the target is neither a file nor a link to one, and only those are replaced",
        )
    } else if !replace {
        Error::from(io::Error::from(io::ErrorKind::AlreadyExists))
    } else {
        return Ok(());
    };
    Err(refused.in_file(path))
}

/// The directory that contains a path.
fn directory_of(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// Writes companion files alone: the parts of a pipeline that hold no tensors.
///
/// # Errors
/// If a file cannot be written, or exists with other bytes and is not to be replaced.
pub fn write_companions(
    directory: impl AsRef<Path>,
    files: &[CompanionFile],
    overwrite: bool,
) -> Result<()> {
    let mut sink =
        SafetensorsSink::new(directory.as_ref(), Sharding::Shards(1)).overwrite(overwrite);
    sink.create_directory()?;
    let parts = sink.parts()?;
    sink.remove_abandoned(&parts, &sink.stem()?);
    sink.companions = sink.create_companions(&parts, files)?;
    sink.companions.iter().try_for_each(Companion::sync)?;
    let created = std::mem::take(&mut sink.created_directories);
    for directory in &created {
        sink.sync_directory(directory_of(directory))?;
    }
    for companion in &mut sink.companions {
        companion.publish()?;
    }
    sink.sync_directory(parts.directory())
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

impl Sink for SafetensorsSink {
    fn identify(&mut self, id: &dyn Fn() -> PlanId) {
        // one file is made by one run
        if let Sharding::Shards(_) = self.sharding {
            self.plan_id = Some(id());
        }
    }

    fn begin(&mut self, outputs: &[TensorSpec]) -> Result<()> {
        // temporary files of an earlier run that failed
        self.shards.clear();
        self.companions.clear();
        self.index = None;
        let cut = FileCut::new(outputs, &self.sharding, &self.metadata, self.plan_id)?;
        let parts = self.parts()?;
        // all targets are checked before the first file is created, so that a refused run changes nothing
        let (names, shard_names) = self.prepare(cut.count(), &parts)?;
        // checked for all shards at once: each alone could still be allocated on a disk that cannot hold the last
        let total = (0..cut.count())
            .map(|file| cut.file_bytes(file))
            .fold(0, u64::saturating_add);
        file::check_space(parts.directory(), total, &self.target)?;
        if let Sharding::Shards(_) = self.sharding {
            self.companions = self.create_companions(&parts, &self.companion_files.files)?;
        }
        self.places = vec![(0, 0); outputs.len()];
        for (number, name) in names.iter().enumerate() {
            let (header, nbytes) = (&cut.headers[number], cut.file_bytes(number));
            self.shards
                .push(Shard::create(&self.system, &parts, name, header, nbytes)?);
            for &(output, start) in &cut.layouts[number].outputs {
                self.places[output] = (number, header.len() as u64 + start);
            }
        }
        if cut.count() > 1 {
            let names: Vec<String> = names.iter().map(|path| file_name(path)).collect();
            let text = cut.index(outputs, &names);
            let path = parts.directory().join(self.stem()?.index());
            let nbytes = text.len() as u64;
            let index = Shard::create(&self.system, &parts, &path, text.as_bytes(), nbytes)?;
            self.index = Some((index, shard_names));
        }
        Ok(())
    }

    fn put(&self, output: usize, start: u64, bytes: &[u8]) -> Result<()> {
        let (shard, base) = self.places[output];
        self.shards[shard].write(base + start, bytes)
    }

    fn end(&mut self) -> Result<()> {
        let parts = self.parts()?;
        let index = self.index.iter().map(|(index, _)| index);
        self.shards.iter().chain(index).try_for_each(Shard::sync)?;
        self.companions.iter().try_for_each(Companion::sync)?;
        self.publish(&parts)?;
        // published: they are no longer removed when the sink is dropped
        self.created_directories.clear();
        if self.overwrite && matches!(self.sharding, Sharding::Shards(_)) {
            self.remove_old(&parts)?;
        }
        Ok(())
    }
}

impl Drop for SafetensorsSink {
    fn drop(&mut self) {
        // temporary files are removed first: a directory must be empty
        self.shards.clear();
        self.companions.clear();
        self.index = None;
        for directory in self.created_directories.iter().rev() {
            // fails for a directory that holds other files, which is left; a destructor cannot report it
            let _ = self.system.remove_directory(directory);
        }
    }
}
