//! A directory that is filled to take the place of another one by an exchange: how it is found, marked and removed.
//!
//! It is called as files under construction are (`.anamnesis-….part`), and is in the parent of the directory that it
//! replaces. Each of the two contains a marker: one empty file of the same name, locked while the process lives. The exchange
//! may have happened or not: what has the hidden name and an unlocked marker is of no use, and the next run removes it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anamnesis_os::directories::{self, NamedInode};
use anamnesis_os::files;

use crate::base::error::{Error, Result};

use super::companion_files::remove_if_there;
use super::directory_of;
use super::file::Shard;
use super::names::PartNames;
use super::operations::FileOperations;

/// Attempts to find a free name, and to remove a directory in which others give files names.
const ATTEMPTS: usize = 100;

/// A directory that another one can take the place of.
#[derive(Debug)]
pub(super) struct ReplacedDirectory {
    /// Without links.
    path: PathBuf,
    /// It stays open, and is found under its new name after the exchange.
    open: File,
    names: PartNames,
}

impl ReplacedDirectory {
    /// `None` where no other directory can take its place.
    pub(super) fn find(target: &Path) -> Option<Self> {
        let path = target.canonicalize().ok()?;
        let names = staging_names(&path)?;
        let open = directories::open(&path).ok()?;
        let (own, parent) = (open.metadata().ok()?, fs::metadata(path.parent()?).ok()?);
        let same_file_system = own.dev() == parent.dev();
        // the shell that started the process has the same one, and would stay in the directory that is removed
        let is_current = std::env::current_dir().is_ok_and(|current| current.starts_with(&path));
        // others could put a link where the new directory is
        let is_open_to_all = parent.mode() & 0o1002 == 0o0002;
        (same_file_system && !is_current && !is_open_to_all).then_some(Self { path, open, names })
    }

    pub(super) fn entries(&self) -> Result<Vec<NamedInode>> {
        let entries = directories::entries(&self.open);
        entries.map_err(|e| Error::from(e).in_file(&self.path))
    }

    /// Whether this is a file under construction, with whatever target, whose process lives.
    pub(super) fn is_being_written(&self, name: &OsStr) -> bool {
        is_part_of_any(name) && files::is_locked(&self.path.join(name))
    }

    /// Whether this is the name of a marker in the directory.
    pub(super) fn is_marker(&self, name: &OsStr) -> bool {
        self.names.is_part(name)
    }
}

/// Whether this is the name of a file under construction, of whatever program.
pub(super) fn is_part_of_any(name: &OsStr) -> bool {
    let is_part = |name: &str| name.starts_with('.') && name.ends_with(".part");
    name.to_str().is_some_and(is_part)
}

/// The names of directories that take the place of the one at `path`, which contains no links; `None` for the root.
fn staging_names(path: &Path) -> Option<PartNames> {
    Some(PartNames::new(path.parent()?, path.file_name()?))
}

/// A directory that is about to take the place of another one. It is removed when it is dropped before.
#[derive(Debug)]
pub(super) struct Staging {
    system: Arc<dyn FileOperations>,
    target: ReplacedDirectory,
    path: PathBuf,
    is_created: bool,
    /// The marker, which is locked while it is open.
    marker: Option<File>,
    /// Its content besides the marker.
    names: Vec<OsString>,
    exchanged: bool,
}

impl Staging {
    /// Creates a directory that contains the marker only.
    pub(super) fn create(
        system: &Arc<dyn FileOperations>,
        target: ReplacedDirectory,
    ) -> Result<Self> {
        let mut staging = Self {
            system: Arc::clone(system),
            target,
            path: PathBuf::new(),
            is_created: false,
            marker: None,
            names: Vec::new(),
            exchanged: false,
        };
        let mut last = io::Error::from(ErrorKind::AlreadyExists);
        for _ in 0..ATTEMPTS {
            staging.path = staging.target.names.unused(None);
            match staging.create_and_mark() {
                Ok(true) => return Ok(staging),
                // another run took the directory, or the marker, for one of a dead process
                Ok(false) => staging.discard(),
                Err(e) if matches!(e.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound) => {
                    staging.discard();
                    last = e;
                }
                Err(e) => return Err(staging.error(e)),
            }
        }
        Err(staging.error(last))
    }

    fn create_and_mark(&mut self) -> io::Result<bool> {
        self.system.create_private_directory(&self.path)?;
        self.is_created = true;
        let (marker, linked) = (self.target.path.join(self.name()), self.marker_path());
        self.marker = self.system.create(&marker)?;
        if self.marker.is_none() {
            return Ok(false);
        }
        self.system.link_existing(&marker, &linked)?;
        // a loss of power leaves neither directory under the hidden name without a marker: not the new one, which has no
        // other names yet, nor the old one
        self.system.sync_directory(&self.path)?;
        self.system.sync_directory(&self.target.path)?;
        // another run may have exchanged it before it contained the marker
        self.target.open = directories::open(&self.target.path)?;
        Ok(true)
    }

    /// The name of the directory, and of the marker in it.
    fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }

    fn marker_path(&self) -> PathBuf {
        self.path.join(self.name())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn target(&self) -> &ReplacedDirectory {
        &self.target
    }

    fn error(&self, error: io::Error) -> Error {
        Error::from(error).in_file(&self.path)
    }

    /// Gives a new file its final name in the directory.
    pub(super) fn add_new(&mut self, file: &mut Shard) -> Result<()> {
        self.names
            .extend(file.target().file_name().map(OsStr::to_owned));
        file.stage(&self.path)
    }

    /// Adds an entry of the old directory, the same file under a second name.
    pub(super) fn add_kept(&mut self, name: &OsStr) -> Result<()> {
        let (from, to) = (self.target.path.join(name), self.path.join(name));
        match self.system.link_existing(&from, &to) {
            Ok(()) => self.names.push(name.to_owned()),
            // removed meanwhile
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(Error::from(e).in_file(&from)),
        }
        Ok(())
    }

    /// Exchanges the directories, when the new one outlives a loss of power. False where the new one cannot have the
    /// attributes of the old one; nothing has been exchanged then, as after an error.
    pub(super) fn exchange(&mut self) -> Result<bool> {
        let carried = directories::open(&self.path)
            .and_then(|new| directories::carry_attributes(&self.target.open, &new));
        if !carried.map_err(|e| self.error(e))? {
            return Ok(false);
        }
        let synced = self.system.sync_directory(&self.path);
        let exchanged = synced.and_then(|()| self.system.exchange(&self.path, &self.target.path));
        exchanged.map_err(|e| self.error(e))?;
        self.exchanged = true;
        let open = self.target.open.metadata();
        let is_old = fs::symlink_metadata(&self.path)
            .is_ok_and(|old| open.is_ok_and(|open| is_same(&old, &open)));
        if !is_old {
            // renamed by another process, which has given the name to one that this run knows nothing of
            let returned = self.system.exchange(&self.path, &self.target.path);
            self.exchanged = returned.is_err();
            let what = "another process has renamed the directory";
            let error = Error::from(io::Error::new(ErrorKind::NotFound, what));
            return Err(error.in_file(&self.target.path));
        }
        Ok(true)
    }

    /// Removes the old directory after the exchange: files of names in `replaced`, and those in `kept`, by name and inode,
    /// which the new one has too. Files that another process has placed there since they were listed are moved to the new
    /// one.
    pub(super) fn remove_old(
        &self,
        replaced: &BTreeSet<OsString>,
        kept: &BTreeMap<OsString, u64>,
    ) -> Result<()> {
        let parent = directory_of(&self.path);
        let sync = |directory: &Path| {
            let synced = self.system.sync_directory(directory);
            synced.map_err(|e| Error::from(e).in_file(directory))
        };
        // an old directory that returns after a loss of power must have its files
        sync(parent)?;
        // a process that has opened the old directory may give a file its name there until it is removed
        for _ in 0..ATTEMPTS {
            let mut names = Vec::new();
            for NamedInode { name, inode, .. } in self.target.entries()? {
                if name == self.name() {
                    continue;
                }
                if !replaced.contains(&name) && kept.get(&name) != Some(&inode) {
                    self.move_to_new(&name, kept.contains_key(&name))?;
                }
                names.push(name);
            }
            if names.is_empty() {
                break;
            }
            self.remove_names(&names).map_err(|e| self.error(e))?;
        }
        self.remove_directory(kept)?;
        remove_if_there(&*self.system, &self.target.path.join(self.name()))?;
        sync(parent)?;
        sync(&self.target.path)
    }

    fn remove_names(&self, names: &[OsString]) -> io::Result<()> {
        remove_names(&*self.system, &self.target.open, &self.path, names)
    }

    /// Removes the marker and the old directory, and moves what has got a name in it in the last moment.
    fn remove_directory(&self, kept: &BTreeMap<OsString, u64>) -> Result<()> {
        let directory = &self.target.open;
        let mut removed = remove_marker(&*self.system, directory, &self.path);
        for _ in 0..ATTEMPTS {
            match removed {
                Err(e) if e.kind() == ErrorKind::DirectoryNotEmpty => {}
                removed => return removed.map_err(|e| self.error(e)),
            }
            for NamedInode { name, .. } in self.target.entries()? {
                self.move_to_new(&name, kept.contains_key(&name))?;
            }
            removed = self.system.remove_directory(&self.path);
        }
        removed.map_err(|e| self.error(e))
    }

    fn move_to_new(&self, name: &OsStr, replaces: bool) -> Result<()> {
        let (from, to) = (self.path.join(name), self.target.path.join(name));
        let moved = if replaces {
            self.system.rename(&from, &to)
        } else {
            self.system.rename_new(&from, &to)
        };
        // the process that has written it has moved or removed it
        if moved
            .as_ref()
            .is_err_and(|e| e.kind() == ErrorKind::NotFound)
        {
            return Ok(());
        }
        moved.map_err(|e| {
            // without it, the next run leaves the directory
            let _ = self
                .system
                .remove_from(&self.target.open, &self.marker_path());
            Error::from(e).in_file(&from)
        })
    }

    /// Removes the directory and what was added to it.
    fn discard(&mut self) {
        if !std::mem::take(&mut self.is_created) {
            return;
        }
        let remove = |path: &Path| remove_if_there(&*self.system, path).is_ok();
        let mut emptied = true;
        for name in self.names.drain(..) {
            emptied &= remove(&self.path.join(name));
        }
        // the next run finds the marker of anything that cannot be removed now
        if emptied && remove(&self.marker_path()) {
            let _ = self.system.remove_directory(&self.path);
        }
        if self.marker.take().is_some() {
            let marker = self.target.path.join(self.name());
            // where another process has renamed the directory, or has moved the marker to one that it has exchanged
            if self.system.remove_from(&self.target.open, &marker).is_err() {
                remove(&marker);
            }
        }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.exchanged {
            // a destructor cannot report a failure
            self.discard();
        }
    }
}

fn is_same(a: &fs::Metadata, b: &fs::Metadata) -> bool {
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// Removes these files from a directory.
fn remove_names(
    system: &dyn FileOperations,
    directory: &File,
    path: &Path,
    names: &[OsString],
) -> io::Result<()> {
    for name in names {
        match system.remove_from(directory, &path.join(name)) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    system.sync_directory(path)
}

/// Removes the marker of a directory that has nothing else in it, and the directory.
fn remove_marker(system: &dyn FileOperations, directory: &File, path: &Path) -> io::Result<()> {
    let marker = path.join(path.file_name().unwrap_or_default());
    system.remove_from(directory, &marker)?;
    system.remove_directory(path)
}

/// Removes the directories that dead runs to this target left, and their markers.
///
/// Leftovers that cannot be removed do not keep the run from writing, so that failures are not reported.
pub(super) fn remove_abandoned(system: &dyn FileOperations, target: &Path) {
    let path = files::resolved(target);
    let Some(names) = staging_names(&path) else {
        return;
    };
    for directory in names.directories().into_iter().flatten() {
        let _ = remove_abandoned_directory(system, &directory);
    }
    let markers = path
        .file_name()
        .map(|name| PartNames::new(&path, name).abandoned());
    for marker in markers.into_iter().flatten().flatten() {
        let _ = system.remove(&marker.path);
    }
}

fn remove_abandoned_directory(system: &dyn FileOperations, path: &Path) -> io::Result<()> {
    let directory = directories::open(path)?;
    if directory.metadata()?.uid() != rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let entries = directories::entries(&directory)?;
    if entries.is_empty() {
        // the process ended before it had marked the directory
        return system.remove_directory(path);
    }
    let marker = path.file_name().unwrap_or_default();
    let is_ours = entries.iter().all(|entry| entry.is_file_or_link);
    let lock = directories::lock_abandoned(&directory, marker);
    if !is_ours || lock.is_none() {
        return Ok(());
    }
    // the exchange may not outlive a loss of power yet, and the old directory would return
    system.sync_directory(directory_of(path))?;
    let names = entries.into_iter().map(|entry| entry.name);
    let names: Vec<OsString> = names.filter(|name| name != marker).collect();
    remove_names(system, &directory, path, &names)?;
    remove_marker(system, &directory, path)
}
