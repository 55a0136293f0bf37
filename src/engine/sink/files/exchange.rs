//! Replaces a checkpoint together with its companion files in one step, by an exchange of directories.
//!
//! Tensors and companion files have several names, and a rename changes one. Where a companion file is among those that
//! change, a new directory is filled beside the old one and takes its place:
//!
//! 1. A directory that other users cannot open is created in the parent of the old one (`staging.rs`).
//! 2. The new files get their final names there. Files that an overwrite does not remove from the old directory get a second
//!    name there: the same files, and links themselves.
//! 3. It gets the group and the mode of the old one, and is synced.
//! 4. `renameat2` exchanges the two. This is the commit. The parent is synced.
//! 5. The old files are removed under the hidden name, and the old directory.
//!
//! Before the commit nothing in the old directory has changed but for a marker, and whatever fails is undone. A condition
//! that makes an exchange impossible, or would make it change more than files, leaves the steps of `publish.rs`:
//!
//! - the directory contains directories, pipes or devices, or files that another run is writing;
//! - it is the current directory or contains it, or is the root of a file system or of a mount;
//! - its parent may not be written to, or may be by all users and is not sticky;
//! - a new directory has another owner, other extended attributes (access control lists, labels) or other flags;
//! - files of it cannot have a second name (another owner's, a file system without hard links), or the file system
//!   exchanges no directories.
//!
//! A process that has the old directory as its current one, or a mount that was made of it, keeps it: an empty directory
//! without a name.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anamnesis_os::directories;
use rustix::io::Errno;

use crate::base::error::{Error, ErrorKind, Result};

use super::companion_files::Companion;
use super::file::Shard;
use super::local::LocalOutput;
use super::names::PartNames;
use super::staging::{ReplacedDirectory, Staging, is_part_of_any};

/// Errors of a system, a file system or a directory that has not what an exchange needs. Others, of a device or for want of
/// space, end the run.
const IMPOSSIBLE: [Errno; 11] = [
    Errno::PERM,
    Errno::ACCESS,
    Errno::ROFS,
    Errno::NOSYS,
    Errno::OPNOTSUPP,
    Errno::INVAL,
    Errno::XDEV,
    Errno::BUSY,
    Errno::MLINK,
    Errno::NAMETOOLONG,
    Errno::LOOP,
];

fn is_impossible(error: &Error) -> bool {
    let ErrorKind::Io(error) = error.kind() else {
        return false;
    };
    let number = error.raw_os_error();
    IMPOSSIBLE
        .iter()
        .any(|impossible| number == Some(impossible.raw_os_error()))
}

impl LocalOutput {
    /// Replaces the directory. False, with nothing changed, where that is impossible.
    pub(super) fn exchange_directories(&mut self, parts: &PartNames) -> Result<bool> {
        let Some(target) = ReplacedDirectory::find(&self.target) else {
            return Ok(false);
        };
        let mut staging = match Staging::create(&self.system, target) {
            Err(e) if is_impossible(&e) => return Ok(false),
            created => created?,
        };
        if let Some(lock) = &mut self.lock {
            // a run that finds the new directory finds it locked
            let open = directories::open(staging.path());
            let extended = open.and_then(|open| lock.extend_to(open));
            if !extended.map_err(|e| Error::from(e).in_file(staging.path()))? {
                return Ok(false);
            }
        }
        let replaced = self.replaced_names(parts)?;
        match self.fill_and_exchange(&mut staging, parts, &replaced) {
            Ok(Some(kept)) => {
                self.files_to_name().for_each(Shard::set_published);
                staging.remove_old(&replaced, &kept)?;
                return Ok(true);
            }
            Err(e) if !is_impossible(&e) => return Err(e),
            Ok(None) | Err(_) => {}
        }
        // a file without a name cannot get one again once it has lost one: the files are moved, not removed
        let mut files = self.files_to_name();
        files.try_for_each(|file| file.unstage(staging.path()))?;
        Ok(false)
    }

    /// The files that get their names by the exchange.
    fn files_to_name(&mut self) -> impl Iterator<Item = &mut Shard> {
        let index = self.index.as_mut().map(|(index, _)| index);
        let companions = self.companions.iter_mut();
        self.shards
            .iter_mut()
            .chain(index)
            .chain(companions.filter_map(Companion::new_file))
    }

    /// The names in the old directory that the new one does not get from it.
    fn replaced_names(&self, parts: &PartNames) -> Result<BTreeSet<OsString>> {
        let stem = self.stem()?;
        let mut names = BTreeSet::from([stem.index().into(), stem.single().into()]);
        let companions = self.companions.iter();
        let companions = companions.clone().filter(|companion| companion.replaces());
        // files under construction that have a name, also of companion files that are equal
        let written = self
            .shards
            .iter()
            .chain(self.index.iter().map(|(index, _)| index))
            .chain(self.companions.iter().map(Companion::file));
        let abandoned = parts.abandoned().into_iter().flatten();
        let paths = self
            .old_shards(parts.directory())?
            .into_iter()
            .chain(abandoned.map(|part| part.path))
            .chain(companions.map(|companion| companion.file().target().to_owned()))
            .chain(
                written
                    .filter_map(Shard::temporary_name)
                    .map(Path::to_owned),
            );
        let name = |path: PathBuf| path.file_name().map(OsString::from);
        names.extend(paths.filter_map(name));
        Ok(names)
    }

    /// Steps 2 to 4; the names that were kept, with their inodes, or `None` where the directory shows that an exchange is
    /// impossible.
    fn fill_and_exchange(
        &mut self,
        staging: &mut Staging,
        parts: &PartNames,
        replaced: &BTreeSet<OsString>,
    ) -> Result<Option<BTreeMap<OsString, u64>>> {
        let mut kept = BTreeMap::new();
        // one of two runs sees the marker of the other, or not its own: each has placed it before it lists
        let entries = staging.target().entries()?;
        let is_own = |name: &OsStr| Some(name) == staging.path().file_name();
        if !entries.iter().any(|entry| is_own(&entry.name)) {
            return Ok(None);
        }
        for entry in entries {
            if replaced.contains(&entry.name) || is_own(&entry.name) {
                continue;
            }
            let is_written = parts.is_part(&entry.name)
                || staging.target().is_marker(&entry.name)
                || staging.target().is_being_written(&entry.name);
            if !entry.is_file_or_link || is_written {
                return Ok(None);
            }
            if is_part_of_any(&entry.name) {
                // a second name would stay, where its process gives it a name in this moment; it is moved
                continue;
            }
            kept.insert(entry.name, entry.inode);
        }
        for file in self.files_to_name() {
            staging.add_new(file)?;
        }
        for name in kept.keys() {
            staging.add_kept(name)?;
        }
        Ok(staging.exchange()?.then_some(kept))
    }
}
