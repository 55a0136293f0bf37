//! Files of the local file system: written without names, and named when all of them are complete (`publish.rs`).

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anamnesis_os::directory_lock::DirectoryLock;

use crate::base::error::{Error, ErrorKind, Result};
use crate::engine::companions::CompanionFile;

use super::companion_files::{self, Companion};
use super::file::{self, Shard};
use super::names::{PartNames, ShardNames, Stem};
use super::operations::FileOperations;
use super::output::{NewFiles, OutputPlace, OutputTarget};
use super::{Sharding, check_replaceable, directory_of, file_name};

/// The files of one run, or of one directory, in the local file system. When it is dropped before they are named, it removes its
/// temporary files and the directories that it has created.
#[derive(Debug)]
pub(super) struct LocalOutput {
    pub(super) system: Arc<dyn FileOperations>,
    pub(super) target: PathBuf,
    pub(super) sharding: Sharding,
    pub(super) overwrite: bool,
    stem: String,
    extension: &'static str,
    /// Companion files that have been written.
    pub(super) companions: Vec<Companion>,
    /// The files that the index in the directory names.
    pub(super) old_files: BTreeSet<PathBuf>,
    pub(super) shards: Vec<Shard>,
    /// The file of several that readers open first, and the names of the shards. It is renamed last, so that a reader which finds
    /// it finds its shards: the index, or the first shard of a container without one, which then is not among `shards`.
    pub(super) index: Option<(Shard, ShardNames)>,
    opens_with_shard: bool,
    /// Directories that were created for the files, outermost first.
    pub(super) created_directories: Vec<PathBuf>,
    /// From before the directory is looked at until the old files are removed. Two runs that each remove what they found
    /// would otherwise remove each other's checkpoint, and leave none. Dropped last.
    pub(super) lock: Option<DirectoryLock>,
}

/// How long a process waits for the directory's lock, and how often it tries.
const LOCK_WAIT: Duration = Duration::from_secs(10);
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Locks a directory by this function, and waits for processes that make parts of the same output: each has the lock for a
/// moment. A run that writes all of the output has it until it ends, which is an error then.
pub(super) fn lock_when_free<T>(mut lock: impl FnMut() -> Result<T>) -> Result<T> {
    let end = Instant::now() + LOCK_WAIT;
    loop {
        match lock() {
            Err(error) if is_busy(&error) && Instant::now() < end => thread::sleep(LOCK_PAUSE),
            locked => return locked,
        }
    }
}

fn is_busy(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Io(e) if e.kind() == io::ErrorKind::ResourceBusy)
}

impl LocalOutput {
    pub(super) fn new(system: &Arc<dyn FileOperations>, target: OutputTarget) -> Self {
        Self {
            system: Arc::clone(system),
            target: target.path,
            sharding: target.sharding,
            overwrite: target.overwrite,
            stem: target.stem,
            extension: target.extension,
            companions: Vec::new(),
            old_files: BTreeSet::new(),
            shards: Vec::new(),
            index: None,
            opens_with_shard: false,
            created_directories: Vec::new(),
            lock: None,
        }
    }

    /// The file of this number, which was created.
    fn shard(&self, file: usize) -> &Shard {
        match (&self.index, self.opens_with_shard) {
            (Some((first, _)), true) if file == 0 => first,
            (_, opens_with_shard) => &self.shards[file - usize::from(opens_with_shard)],
        }
    }

    /// Locks the target directory, which exists.
    pub(super) fn lock_directory(&self) -> Result<DirectoryLock> {
        let locked = self.system.lock_directory(&self.target);
        let locked = locked.map_err(|e| Error::from(e).in_file(&self.target))?;
        locked.ok_or_else(|| {
            let what = "another run is writing to this directory";
            let busy = io::Error::new(io::ErrorKind::ResourceBusy, what);
            Error::from(busy).in_file(&self.target)
        })
    }

    /// Creates the target directory where it does not exist, and locks it.
    pub(super) fn create_and_lock_directory(&mut self) -> Result<DirectoryLock> {
        self.create_directory()?;
        let lock = self.lock_directory();
        if lock.is_err() {
            // another run fills it, also if this one has created it
            self.created_directories.clear();
        }
        lock
    }

    /// Refuses a path that exists and must not be replaced.
    pub(super) fn check_free(&self, path: &Path) -> Result<()> {
        check_replaceable(path, self.overwrite)
    }

    /// Writes companion files, without their names.
    pub(super) fn create_companions(
        &self,
        parts: &PartNames,
        files: &[CompanionFile],
    ) -> Result<Vec<Companion>> {
        let create =
            |file| Companion::create(&self.system, parts, file, |path| self.check_free(path));
        files.iter().map(create).collect()
    }

    /// Creates the target directory, and records the directories that did not exist.
    pub(super) fn create_directory(&mut self) -> Result<()> {
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

    pub(super) fn stem(&self) -> Result<Stem> {
        let what = "the stem of the files is not part of a file name";
        Stem::new(&self.stem, self.extension).ok_or_else(|| Error::invalid_argument(what))
    }

    /// The names of files under construction, in the directory of the files.
    pub(super) fn parts(&self) -> Result<PartNames> {
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
            self.lock = Some(self.create_and_lock_directory()?);
            self.settle_set_aside(parts, &stem)?;
            // readers prefer either the index or the single file: only one of them may remain
            self.check_free(&self.target.join(stem.index()))?;
            self.check_free(&self.target.join(stem.single()))?;
        } else {
            self.check_free(&self.target)?;
        }
        self.remove_abandoned(parts, &stem);
        if let Sharding::Shards(_) = self.sharding {
            let directory = parts.directory();
            self.old_files = companion_files::files_of_index(directory, &stem);
            // readers that open every `model*.safetensors` (mlx-lm) would find both sets
            let others = stem.shards(directory, |_| !self.overwrite);
            let others = others.map_err(|e| Error::from(e).in_file(directory))?;
            let removed = self.old_files.iter().filter(|_| self.overwrite);
            others
                .iter()
                .chain(removed)
                .try_for_each(|path| self.check_free(path))?;
        }
        let (paths, names) = self.names(count, parts, &stem)?;
        paths.iter().try_for_each(|path| self.check_free(path))?;
        Ok((paths, names))
    }
}

impl OutputPlace for LocalOutput {
    fn create(&mut self, new: &NewFiles<'_>) -> Result<Vec<PathBuf>> {
        let cut = new.cut;
        let parts = self.parts()?;
        // all targets are checked before the first file is created, so that a refused run changes nothing
        let (names, shard_names) = self.prepare(cut.count(), &parts)?;
        // checked for all shards at once: each alone could still be allocated on a disk that cannot hold the last
        let total = (0..cut.count())
            .map(|file| cut.file_bytes(file))
            .fold(0, u64::saturating_add);
        file::check_space(parts.directory(), total, &self.target)?;
        self.companions = self.create_companions(&parts, new.companions)?;
        for (number, name) in names.iter().enumerate() {
            let (head, nbytes) = (&cut.files[number].head, cut.file_bytes(number));
            self.shards
                .push(Shard::create(&self.system, &parts, name, head, nbytes)?);
        }
        if cut.has_index() {
            let file_names: Vec<String> = names.iter().map(|path| file_name(path)).collect();
            let text = cut.index(new.outputs, &file_names);
            let path = parts.directory().join(self.stem()?.index());
            let nbytes = text.len() as u64;
            let index = Shard::create(&self.system, &parts, &path, text.as_bytes(), nbytes)?;
            self.index = Some((index, shard_names));
        } else if cut.count() > 1 {
            // readers open the first file and find the others by their names
            self.index = Some((self.shards.remove(0), shard_names));
            self.opens_with_shard = true;
        }
        Ok(names)
    }

    fn write(
        &self,
        file: usize,
        start: u64,
        bytes: &[u8],
        _wait: &mut dyn FnMut(bool) -> bool,
    ) -> Result<()> {
        self.shard(file).write(start, bytes)
    }

    fn file(&self, file: usize) -> Option<&Shard> {
        Some(self.shard(file))
    }

    fn publish(&mut self, _wait: &mut dyn FnMut(bool) -> bool) -> Result<()> {
        let parts = self.parts()?;
        // before any name: no name leads to bytes that a loss of power takes
        let index = self.index.iter().map(|(index, _)| index);
        self.shards.iter().chain(index).try_for_each(Shard::sync)?;
        self.companions.iter().try_for_each(Companion::sync)?;
        self.name_all(&parts)?;
        // published: they are no longer removed when the sink is dropped
        self.created_directories.clear();
        if self.overwrite && matches!(self.sharding, Sharding::Shards(_)) {
            self.remove_old(&parts)?;
        }
        // the sink may live on, and the next run to this directory need not wait for it
        self.lock = None;
        Ok(())
    }

    fn write_companions(&mut self, files: &[CompanionFile]) -> Result<()> {
        let _lock = self.create_and_lock_directory()?;
        let parts = self.parts()?;
        self.settle_set_aside(&parts, &self.stem()?)?;
        self.remove_abandoned(&parts, &self.stem()?);
        self.companions = self.create_companions(&parts, files)?;
        self.companions.iter().try_for_each(Companion::sync)?;
        let created = std::mem::take(&mut self.created_directories);
        for directory in &created {
            self.sync_directory(directory_of(directory))?;
        }
        for companion in &mut self.companions {
            companion.publish()?;
        }
        self.sync_directory(parts.directory())
    }
}

impl Drop for LocalOutput {
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
