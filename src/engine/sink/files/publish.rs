//! How written files get their names, and what a loss of power or a killed run leaves.
//!
//! Files are written without a name (`O_TMPFILE`), or under a temporary one where the file system has no such files. A
//! temporary file is locked while its process lives, and the next run to the same target removes those that are not
//! locked. Where an overwrite changes companion files (`config.json`) too, the directory is exchanged for a new one
//! (`exchange.rs`), and a reader finds the complete old checkpoint or the complete new one at any time. Everything else is
//! done by the following calls, also such an overwrite where no exchange is possible. After any prefix of them a reader finds
//! the tensors of the old checkpoint or of the new one, and beside them no companion file of the other:
//!
//! 1. Each file is synced.
//! 2. Where no companion file would get other bytes: the index gets a temporary name that records the names of the shards.
//!    Otherwise the index, or the only file, gets a hidden name that records them, and then the new companion files theirs
//!    (`set_aside.rs`).
//! 3. For several shards: the shards get names that no shard in the directory has (`ShardNames::generation`), so that the
//!    index which is still in place keeps its shards. The directory and the parents of new directories are synced.
//! 4. Companion files get their names. Where some of them would get other bytes, the old ones get hidden names instead: from
//!    here until step 6 the directory lacks them, so that no client finds tensors beside the configuration of others.
//! 5. The index, or the only file, gets its name by one rename or link. This is the commit. The directory is synced.
//! 6. The companion files that do not have their names yet get them, when the first file of the old checkpoint has gone.
//! 7. The old checkpoint's leftovers are removed: the old companion files, those that its index names, and all numbered
//!    shards. Some readers prefer the index to `model.safetensors`, some the reverse: a new index is in place before the old
//!    single file goes, and a new single file before the old index. An old index is removed, and the directory synced, before
//!    its shards are.
//!
//! An error before 5 undoes the steps. A run that is killed before 5 leaves shards without an index, and perhaps hidden
//! companion files; the names of step 2 let the next run remove the first and give the names back to the others. After one
//! that is killed between 5 and 7 the next run gives the new companion files their names. A directory of
//! numbered shards without an index has no such commit: until step 5 it contains two numbered sets, which readers refuse as
//! ambiguous.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anamnesis_os::files;

use crate::base::error::{Error, Result};

use super::companion_files::{Companion, remove_if_there};
use super::file::Shard;
use super::local::LocalOutput;
use super::names::{PartNames, Stem};
use super::set_aside::{self, FirstFile, HiddenRole, hidden_name, record_name};
#[cfg(target_os = "linux")]
use super::staging;
use super::{Sharding, directory_of};

impl LocalOutput {
    /// Removes what dead runs to this target left. An overwrite leaves their shards, and the record of them, until its own
    /// checkpoint is in place: they may have become part of the old one.
    ///
    /// A file that cannot be removed does not keep the run from writing, so that failures are not reported.
    pub(super) fn remove_abandoned(&self, parts: &PartNames, stem: &Stem) {
        #[cfg(target_os = "linux")]
        staging::remove_abandoned(&*self.system, &self.target);
        for part in parts.abandoned().into_iter().flatten() {
            if part.shards.is_none() || !self.overwrite {
                let _ = part.remove_with_shards(&*self.system, parts.directory(), stem);
            }
        }
    }

    /// Finishes a replacement that hidden names in the directory tell of: of a killed run, or of this one. Called under the
    /// directory's lock.
    pub(super) fn settle_set_aside(&self, parts: &PartNames, stem: &Stem) -> Result<()> {
        let settled = set_aside::settle(&*self.system, parts, stem);
        settled.map_err(|e| Error::from(e).in_file(parts.directory()))
    }

    /// Whether the file that readers open first has its name.
    fn is_committed(&self) -> bool {
        match &self.index {
            Some((index, _)) => index.is_published(),
            None => self.shards.iter().all(Shard::is_published),
        }
    }

    pub(super) fn sync_directory(&self, directory: &Path) -> Result<()> {
        let synced = self.system.sync_directory(directory);
        synced.map_err(|e| Error::from(e).in_file(directory))
    }

    /// Names the files, or removes those that nothing refers to.
    pub(super) fn name_all(&mut self, parts: &PartNames) -> Result<()> {
        let replaces = self.companions.iter().any(Companion::replaces);
        if self.overwrite && matches!(self.sharding, Sharding::Shards(_)) {
            self.carry_old_permissions(parts.directory())?;
        }
        #[cfg(target_os = "linux")]
        if replaces && self.exchange_directories(parts)? {
            return Ok(());
        }
        if replaces {
            return self.replace_by_hidden_names(parts);
        }
        let named = self.name_files(parts);
        if named.is_err() {
            // A single file is not removed: it may have replaced another. Shards have replaced none, and without their
            // index nothing refers to them.
            if let Some((index, _)) = &self.index
                && !index.is_published()
            {
                self.shards.iter().for_each(Shard::remove);
            }
            if !self.is_committed() {
                self.companions.iter().for_each(Companion::remove);
            }
        }
        named
    }

    /// The steps where companion files get other bytes and no exchange is possible.
    fn replace_by_hidden_names(&mut self, parts: &PartNames) -> Result<()> {
        let stem = self.stem()?;
        let committed = self.commit_by_hidden_names(parts, &stem);
        // after an error too: before the commit this undoes the steps, and after it completes them
        let settled = self.settle_set_aside(parts, &stem);
        if settled.is_err() {
            // between its steps are names of both checkpoints: what failed once is tried again, and else left to the next run
            let _ = self.settle_set_aside(parts, &stem);
        }
        committed.and(settled)
    }

    /// Steps 2 to 5 of the protocol, with hidden names.
    fn commit_by_hidden_names(&mut self, parts: &PartNames, stem: &Stem) -> Result<()> {
        let directory = parts.directory();
        let (first, shards) = match &self.index {
            Some((_, names)) => (FirstFile::Index, Some(*names)),
            None => (FirstFile::Single, None),
        };
        let record = || record_name(parts, stem, first, shards);
        self.first_files()
            .try_for_each(|file| file.record_as(record))?;
        // new companion files without a record would be taken for a checkpoint that is in place
        self.sync_directory(directory)?;
        for companion in &mut self.companions {
            let Some(name) = companion.name_to_get().map(OsStr::to_owned) else {
                continue;
            };
            let role = HiddenRole::New(first);
            companion.record_as(|| hidden_name(parts, role, &name))?;
        }
        if self.index.is_some() {
            self.shards.iter_mut().try_for_each(Shard::publish_new)?;
        }
        self.sync_directory(directory)?;
        let system = &*self.system;
        for companion in &mut self.companions {
            companion.make_room(|path| {
                let name = path.file_name().unwrap_or_default();
                let moved = system.rename(path, &hidden_name(parts, HiddenRole::Old, name));
                moved.map_err(|e| Error::from(e).in_file(path))
            })?;
        }
        self.sync_directory(directory)?;
        self.first_files().try_for_each(Shard::publish_over)
    }

    /// The files whose names are the commit: the index, and without one the only file.
    fn first_files(&mut self) -> impl Iterator<Item = &mut Shard> {
        match &mut self.index {
            Some((index, _)) => std::slice::from_mut(index).iter_mut(),
            None => self.shards.iter_mut(),
        }
    }

    /// Lets the files of tensors have the permissions of the old ones, whose names may be others: private weights stay private.
    fn carry_old_permissions(&mut self, directory: &Path) -> Result<()> {
        let stem = self.stem()?;
        let mut old = vec![directory.join(stem.index()), directory.join(stem.single())];
        old.extend(self.old_shards(directory)?);
        let found = old.iter().filter_map(|path| path.symlink_metadata().ok());
        let found = found.filter(fs::Metadata::is_file);
        if let Some(like) = found.min_by_key(files::permitted) {
            let index = self.index.as_mut().map(|(index, _)| index);
            let written = self.shards.iter_mut().chain(index);
            written.for_each(|file| file.set_like(&like));
        }
        Ok(())
    }

    /// Steps 2 to 5 of the protocol, where no companion file gets other bytes.
    fn name_files(&mut self, parts: &PartNames) -> Result<()> {
        let directory = parts.directory();
        for created in &self.created_directories {
            self.sync_directory(directory_of(created))?;
        }
        if let Some((index, names)) = &mut self.index {
            index.name_temporarily(Some(*names))?;
        }
        if self.index.is_some() {
            self.shards.iter_mut().try_for_each(Shard::publish_new)?;
            self.sync_directory(directory)?;
        }
        if !self.companions.is_empty() {
            self.companions
                .iter_mut()
                .try_for_each(Companion::publish)?;
            self.sync_directory(directory)?;
        }
        let overwrite = self.overwrite;
        self.first_files().try_for_each(|file| match overwrite {
            true => file.publish_over(),
            false => file.publish_new(),
        })?;
        self.sync_directory(directory)
    }

    /// The files of tensors of the old checkpoint that the new one has no file for: those that its index names, and all
    /// numbered shards.
    pub(super) fn old_shards(&self, directory: &Path) -> Result<Vec<PathBuf>> {
        let new = self.index.as_ref().map(|(_, names)| *names);
        let old = self.stem()?.shards(directory, |found| Some(found) != new);
        let mut old = old.map_err(|e| Error::from(e).in_file(directory))?;
        let named = self.old_files.iter().filter(|old| {
            let is_file = fs::symlink_metadata(old).is_ok_and(|meta| !meta.is_dir());
            is_file && !self.shards.iter().any(|shard| shard.target() == *old)
        });
        old.extend(named.cloned());
        Ok(old)
    }

    /// Removes the shards of the old checkpoint; whether there were any.
    fn remove_old_shards(&self, directory: &Path) -> Result<bool> {
        let mut removed = false;
        for path in self.old_shards(directory)? {
            removed |= remove_if_there(&*self.system, &path)?;
        }
        Ok(removed)
    }

    /// Removes what the old checkpoint left: step 7 of the protocol.
    pub(super) fn remove_old(&self, parts: &PartNames) -> Result<()> {
        let (directory, stem) = (parts.directory(), self.stem()?);
        let remove = |path: &Path| remove_if_there(&*self.system, path);
        let mut removed = false;
        if self.index.is_some() {
            removed |= remove(&directory.join(stem.single()))?;
        } else if remove(&directory.join(stem.index()))? {
            // an index that returns after a loss of power must find its shards
            self.sync_directory(directory)?;
        }
        removed |= self.remove_old_shards(directory)?;
        // their shards were among the old ones, or have the names of the new ones
        for part in parts.abandoned().into_iter().flatten() {
            removed |= remove(&part.path).unwrap_or(false);
        }
        if removed {
            self.sync_directory(directory)?;
        }
        Ok(())
    }
}
