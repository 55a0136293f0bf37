//! A file that is written without a name, or under a temporary one, and named when it is complete.

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anamnesis_os::files::directory_of;
#[cfg(target_os = "linux")]
use anamnesis_os::range_copier::{CopiedRange, RangeCopier};

use crate::base::error::{Error, Result};
use crate::read::source::fill;
use crate::read::source::regular::open_regular;

use super::names::{PartNames, ShardNames};
use super::operations::FileOperations;

/// A file that is being written.
#[derive(Debug)]
pub(super) struct Shard {
    system: Arc<dyn FileOperations>,
    target: PathBuf,
    parts: PartNames,
    name: CurrentName,
    file: File,
    /// A file of the old checkpoint, whose permissions this one has where it replaces no file of its name.
    like: Option<Metadata>,
    /// Bytes written since write-back was last started.
    dirty: AtomicU64,
}

/// The name that a [`Shard`] has.
#[derive(Debug)]
enum CurrentName {
    Unnamed,
    /// A temporary name, removed when the shard is dropped.
    Temporary(PathBuf),
    /// A hidden name that runs understand (`set_aside.rs`), and that stays.
    Recorded(PathBuf),
    Target,
}

impl CurrentName {
    fn path(&self) -> Option<&Path> {
        match self {
            Self::Temporary(path) | Self::Recorded(path) => Some(path),
            Self::Unnamed | Self::Target => None,
        }
    }
}

/// Bytes after which write-back is started, so that the device writes while tiles are decoded and the final `fsync` has
/// little left to wait for (experiments 50 and 60). The count is approximate where several threads write: it decides when, not
/// whether, the bytes are written.
const WRITEBACK: u64 = 8 << 20;

/// Bytes of two files that are compared at a time.
const COMPARED: usize = 64 << 10;

/// Attempts to find a free temporary name.
const ATTEMPTS: usize = 100;

impl Shard {
    /// Creates a file of `nbytes` bytes that begins with `header`.
    pub(super) fn create(
        system: &Arc<dyn FileOperations>,
        parts: &PartNames,
        target: &Path,
        header: &[u8],
        nbytes: u64,
    ) -> Result<Self> {
        let (file, name) = create(&**system, parts).map_err(|e| Error::from(e).in_file(target))?;
        let shard = Self {
            system: Arc::clone(system),
            target: target.to_owned(),
            parts: parts.clone(),
            name,
            file,
            like: None,
            dirty: AtomicU64::new(0),
        };
        // allocating first takes the time of writing 1.75 GB with two threads from 1.3–1.4 times `dd`'s time to 1.0 times
        // (experiment 21)
        shard.reserve(nbytes)?;
        shard.write(0, header)?;
        Ok(shard)
    }

    /// Allocates the file: a full disk fails now, and out-of-order writes do not fragment it.
    fn reserve(&self, nbytes: u64) -> Result<()> {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        {
            use rustix::fs::{FallocateFlags, fallocate};
            use rustix::io::Errno;
            // other failures come from file systems without fallocate, which allocate while writing
            if let Err(e @ (Errno::NOSPC | Errno::FBIG | Errno::DQUOT)) =
                // a length of 0 is an error of `fallocate`
                fallocate(&self.file, FallocateFlags::empty(), 0, nbytes.max(1))
            {
                return Err(self.error(e.into()));
            }
        }
        let _ = nbytes;
        Ok(())
    }

    pub(super) fn target(&self) -> &Path {
        &self.target
    }

    pub(super) fn write(&self, start: u64, bytes: &[u8]) -> Result<()> {
        let written = self.system.write(&self.file, start, bytes);
        written.map_err(|e| self.error(e))?;
        self.has_written(bytes.len() as u64);
        Ok(())
    }

    /// Copies bytes of another file within the system: see [`FileOperations::copy`].
    #[cfg(target_os = "linux")]
    pub(super) fn copy(&self, copier: &mut RangeCopier, range: CopiedRange<'_>) -> io::Result<u64> {
        let copied = self.system.copy(copier, range, &self.file)?;
        self.has_written(copied);
        Ok(copied)
    }

    /// Starts write-back where enough bytes were written.
    fn has_written(&self, len: u64) {
        if self.dirty.fetch_add(len, Relaxed) + len >= WRITEBACK {
            self.start_writeback();
        }
    }

    /// Begins to write the file's bytes to its device.
    pub(super) fn start_writeback(&self) {
        self.dirty.store(0, Relaxed);
        self.system.start_writeback(&self.file);
    }

    /// Whether a regular file at `path` has the same bytes.
    pub(super) fn equals(&self, path: &Path) -> io::Result<bool> {
        let Ok((other, len)) = open_regular(path) else {
            return Ok(false);
        };
        if self.file.metadata()?.len() != len {
            return Ok(false);
        }
        let (mut ours, mut theirs) = (vec![0; COMPARED], vec![0; COMPARED]);
        let (mut own, mut other) = (&self.file, &other);
        own.seek(SeekFrom::Start(0))?;
        loop {
            let read = fill(&mut ours, |buf| own.read(buf))?;
            let same = fill(&mut theirs, |buf| other.read(buf))?;
            if ours[..read] != theirs[..same] {
                return Ok(false);
            }
            if read == 0 {
                return Ok(true);
            }
        }
    }

    pub(super) fn is_published(&self) -> bool {
        matches!(self.name, CurrentName::Target)
    }

    /// Returns when the bytes outlive a loss of power.
    pub(super) fn sync(&self) -> Result<()> {
        self.system.sync(&self.file).map_err(|e| self.error(e))
    }

    /// Lets the file share the bytes of another one that begin at `start`, from `at` on.
    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "the way is Linux's")
    )]
    pub(super) fn share(&self, from: &File, start: u64, at: u64) -> io::Result<()> {
        self.system.share(from, start, &self.file, at)
    }

    /// Gives the file the extended attributes and the time of access of the one that it is a copy of.
    pub(super) fn carry_attributes(&self, from: &File) -> Result<()> {
        let carried = anamnesis_os::attributes::carry(from, &self.file);
        carried.map_err(|e| self.error(e))
    }

    /// Lets no other user read or change the file.
    pub(super) fn make_private(&self) -> Result<()> {
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let private = std::fs::Permissions::from_mode(0o600);
            let made = self.file.set_permissions(private);
            made.map_err(|e| self.error(e))?;
        }
        Ok(())
    }

    /// Lets the temporary name stay when the shard is dropped, since a record names it; and returns it.
    pub(super) fn keep_name(&mut self) -> Option<PathBuf> {
        if let CurrentName::Temporary(path) = &self.name {
            self.name = CurrentName::Recorded(path.clone());
        }
        self.name.path().map(Path::to_owned)
    }

    /// Lets the shard remove its file when it is dropped: the record that named it is gone.
    pub(super) fn discard_name(&mut self) {
        if let CurrentName::Recorded(path) = &self.name {
            self.name = CurrentName::Temporary(path.clone());
        }
    }

    /// Lets the file have the permissions of this one, unless it replaces another.
    pub(super) fn set_like(&mut self, like: &Metadata) {
        self.like = Some(like.clone());
    }

    /// Gives the file its target's name, which must be free.
    pub(super) fn publish_new(&mut self) -> Result<()> {
        if self.like.is_some() {
            self.carry_permissions()?;
        }
        let named = match &self.name {
            CurrentName::Unnamed => self.system.link(&self.file, &self.target),
            CurrentName::Temporary(path) | CurrentName::Recorded(path) => {
                beside_exchanges(path, || self.system.rename_new(path, &self.target))
            }
            CurrentName::Target => Ok(()),
        };
        named.map_err(|e| self.error(e))?;
        self.name = CurrentName::Target;
        Ok(())
    }

    /// Gives the file its target's name, and replaces what has it.
    pub(super) fn publish_over(&mut self) -> Result<()> {
        self.carry_permissions()?;
        if matches!(self.name, CurrentName::Unnamed) {
            // `linkat` never replaces
            self.name_temporarily(None)?;
        }
        if let CurrentName::Temporary(path) | CurrentName::Recorded(path) = &self.name {
            let renamed = beside_exchanges(path, || self.system.rename(path, &self.target));
            renamed.map_err(|e| self.error(e))?;
            self.name = CurrentName::Target;
        }
        Ok(())
    }

    /// Gives the file the permissions, and where possible the owner, of the one that it is about to replace, by its name or as
    /// a part of the old checkpoint.
    pub(super) fn carry_permissions(&self) -> Result<()> {
        let replaced = std::fs::symlink_metadata(&self.target);
        let replaced = replaced.ok().filter(Metadata::is_file);
        let Some(like) = replaced.as_ref().or(self.like.as_ref()) else {
            return Ok(());
        };
        let carried = anamnesis_os::files::carry_permissions(like, &self.file);
        carried.map_err(|e| self.error(e))
    }

    /// Gives the file a temporary name that records which shards are about to be named.
    pub(super) fn name_temporarily(&mut self, shards: Option<ShardNames>) -> Result<()> {
        let parts = self.parts.clone();
        self.name_as(|| CurrentName::Temporary(parts.unused(shards)))
    }

    /// Gives the file a hidden name that stays. `name` makes one that is not in use by this process.
    pub(super) fn record_as(&mut self, name: impl Fn() -> PathBuf) -> Result<()> {
        self.name_as(|| CurrentName::Recorded(name()))
    }

    fn name_as(&mut self, name: impl Fn() -> CurrentName) -> Result<()> {
        let mut outcome = Ok(());
        for _ in 0..ATTEMPTS {
            let name = name();
            let Some(path) = name.path() else {
                return Ok(());
            };
            outcome = match &self.name {
                CurrentName::Unnamed => self.system.link(&self.file, path),
                CurrentName::Temporary(from) | CurrentName::Recorded(from) => {
                    self.system.rename_new(from, path)
                }
                CurrentName::Target => return Ok(()),
            };
            match &outcome {
                Ok(()) => {
                    self.name = name;
                    break;
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(_) => break,
            }
        }
        outcome.map_err(|e| self.error(e))
    }

    /// Gives the file its final name in another directory, which is about to be exchanged for its own.
    #[cfg(target_os = "linux")]
    pub(super) fn stage(&mut self, directory: &Path) -> Result<()> {
        self.carry_permissions()?;
        let staged = directory.join(self.target.file_name().unwrap_or_default());
        let named = match &self.name {
            CurrentName::Unnamed => self.system.link(&self.file, &staged),
            CurrentName::Temporary(path) => self.system.rename_new(path, &staged),
            // the steps without an exchange follow this one, and do not precede it
            CurrentName::Recorded(_) | CurrentName::Target => return Ok(()),
        };
        named.map_err(|e| self.error(e))?;
        self.name = CurrentName::Temporary(staged);
        Ok(())
    }

    /// Takes the file out of a directory in which it was [staged](Self::stage).
    #[cfg(target_os = "linux")]
    pub(super) fn unstage(&mut self, directory: &Path) -> Result<()> {
        match &self.name {
            CurrentName::Temporary(path) if path.starts_with(directory) => {
                self.name_temporarily(None)
            }
            _ => Ok(()),
        }
    }

    /// The exchange has given the file its target's name.
    #[cfg(target_os = "linux")]
    pub(super) fn set_published(&mut self) {
        self.name = CurrentName::Target;
    }

    /// The temporary name.
    #[cfg(target_os = "linux")]
    pub(super) fn temporary_name(&self) -> Option<&Path> {
        self.name.path()
    }

    /// Removes a published file, because a later one failed.
    pub(super) fn remove(&self) {
        if self.is_published() {
            // the error of the later file is already being returned
            let _ = self.system.remove(&self.target);
        }
    }

    pub(super) fn error(&self, error: io::Error) -> Error {
        Error::from(error).in_file(&self.target)
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        if let CurrentName::Temporary(path) = &self.name {
            // a destructor cannot report a failure
            let _ = self.system.remove(path);
        }
    }
}

/// Repeats a rename for as long as the file is in a directory that another run has exchanged for a new one. That run moves it.
fn beside_exchanges(from: &Path, rename: impl Fn() -> io::Result<()>) -> io::Result<()> {
    for _ in 0..ATTEMPTS {
        match rename() {
            Err(e) if e.kind() == io::ErrorKind::NotFound && directory_of(from).is_dir() => {
                std::thread::sleep(Duration::from_millis(2));
            }
            renamed => return renamed,
        }
    }
    rename()
}

/// Creates a file in the directory of the target, because a rename does not cross file systems.
fn create(system: &dyn FileOperations, parts: &PartNames) -> io::Result<(File, CurrentName)> {
    if let Some(file) = system.create_unnamed(parts.directory())? {
        return Ok((file, CurrentName::Unnamed));
    }
    let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
    for _ in 0..ATTEMPTS {
        let path = parts.unused(None);
        match system.create(&path) {
            Ok(Some(file)) => return Ok((file, CurrentName::Temporary(path))),
            // another process looks whether this one lives
            Ok(None) => drop(system.remove(&path)),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => last = e,
            Err(e) => return Err(e),
        }
    }
    Err(last)
}

/// Refuses a run for which the file system has too little space.
pub(super) fn check_space(folder: &Path, needed: u64, target: &Path) -> Result<()> {
    #[cfg(unix)]
    {
        // not every file system answers; writing then reports a full disk itself
        let Ok(stat) = rustix::fs::statvfs(folder) else {
            return Ok(());
        };
        // blocks for ordinary users: those that are reserved for root do not count
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        if free < needed {
            let what = format!("{needed} bytes are needed, and {free} are free");
            return Err(
                Error::from(io::Error::new(io::ErrorKind::StorageFull, what)).in_file(target),
            );
        }
    }
    let _ = (folder, needed, target);
    Ok(())
}
