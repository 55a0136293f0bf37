//! The companion files that are written beside the tensors, and the old files that they replace.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use crate::base::error::{Error, Result};
use crate::base::limits::{Budget, Limits};
use crate::engine::companions::{CompanionContent, CompanionFile, open_companion};
use crate::read::json::{JsonReader, Tree};
use crate::read::source::FileSource;
use crate::read::source::regular::read_regular;

use super::copied::{CopiedRun, CopyTools};
use super::file::Shard;
use super::names::{PartNames, Stem};
use super::operations::FileOperations;

/// A companion file that has been written, and what has its name.
#[derive(Debug)]
pub(super) struct Companion {
    file: Shard,
    existing: Existing,
}

/// The thing that has the name of a companion file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Existing {
    Nothing,
    /// A file with the same bytes, which stays.
    Equal,
    Different,
}

impl Companion {
    /// Writes a companion file, without its name. A file of that name with other bytes is refused by `check_free`.
    pub(super) fn create(
        system: &Arc<dyn FileOperations>,
        parts: &PartNames,
        companion: &CompanionFile,
        check_free: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<Self> {
        let target = parts.directory().join(plain_name(&companion.name)?);
        let file = match &companion.content {
            CompanionContent::Bytes(bytes) => {
                Shard::create(system, parts, &target, bytes, bytes.len() as u64)?
            }
            CompanionContent::Copy(from) => copy(system, parts, &target, from)?,
        };
        let equal = || file.equals(&target);
        let existing = match target.symlink_metadata() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Existing::Nothing,
            Err(e) => return Err(Error::from(e).in_file(&target)),
            // also where nothing may be replaced: another run from the same source is no conflict
            Ok(_) if equal().map_err(|e| Error::from(e).in_file(&target))? => Existing::Equal,
            Ok(_) => {
                check_free(&target)?;
                Existing::Different
            }
        };
        Ok(Self { file, existing })
    }

    /// Whether a file of other bytes is replaced.
    pub(super) fn replaces(&self) -> bool {
        self.existing == Existing::Different
    }

    /// The written file.
    #[cfg(target_os = "linux")]
    pub(super) fn file(&self) -> &Shard {
        &self.file
    }

    /// The same, unless the existing one stays.
    #[cfg(target_os = "linux")]
    pub(super) fn new_file(&mut self) -> Option<&mut Shard> {
        (self.existing != Existing::Equal).then_some(&mut self.file)
    }

    /// The name of the file, if it is to be named: an equal one stays.
    pub(super) fn name_to_get(&self) -> Option<&OsStr> {
        let is_new = self.existing != Existing::Equal;
        is_new.then_some(self.file.target().file_name()).flatten()
    }

    /// Gives the file a hidden name that stays, of which [`settle`](super::set_aside::settle) makes its own.
    pub(super) fn record_as(&mut self, name: impl Fn() -> PathBuf) -> Result<()> {
        // a file of its name is replaced later, by the name alone
        self.file.carry_permissions()?;
        self.file.record_as(name)
    }

    /// Lets `take` move or remove the file of other bytes that has the name.
    pub(super) fn make_room(&mut self, take: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        if self.replaces() {
            // its successor has its permissions
            self.file.carry_permissions()?;
            take(self.file.target())?;
            self.existing = Existing::Nothing;
        }
        Ok(())
    }

    pub(super) fn sync(&self) -> Result<()> {
        self.file.sync()
    }

    /// Gives the file its name, and replaces what has it.
    pub(super) fn publish(&mut self) -> Result<()> {
        match self.existing {
            // the file of another process is refused
            Existing::Nothing => self.file.publish_new(),
            Existing::Equal => Ok(()),
            Existing::Different => self.file.publish_over(),
        }
    }

    /// Removes a published file that has replaced none, because a later one failed.
    pub(super) fn remove(&self) {
        // the bytes of a replaced file are gone, so its successor is better than nothing
        if self.existing == Existing::Nothing {
            self.file.remove();
        }
    }
}

/// Removes a file; whether there was one.
pub(super) fn remove_if_there(system: &dyn FileOperations, path: &Path) -> Result<bool> {
    match system.remove(path) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(Error::from(e).in_file(path)),
    }
}

/// The name of a companion file, which must not lead out of the directory.
pub(super) fn plain_name(name: &str) -> Result<&str> {
    // one rule for all systems: a backslash separates directories on Windows
    let is_plain =
        !name.is_empty() && !name.contains(['/', '\\', '\0']) && name != "." && name != "..";
    is_plain.then_some(name).ok_or_else(|| {
        Error::invalid_argument("the name of a companion file is not a plain file name")
    })
}

fn copy(
    system: &Arc<dyn FileOperations>,
    parts: &PartNames,
    target: &Path,
    from: &Path,
) -> Result<Shard> {
    let in_source = |e: Error| e.in_file(from);
    let (source, len) = open_companion(from).map_err(in_source)?;
    let source = FileSource::new(source).map_err(|e| in_source(e.into()))?;
    let file = Shard::create(system, parts, target, &[], len)?;
    let run = CopiedRun {
        source: &source,
        path: Some(from),
        start: 0,
        at: 0,
        len,
    };
    run.copy_to(&file, &mut CopyTools::default(), None, &|_| Ok(()))?;
    Ok(file)
}

/// The files that the index in a directory names, and that a new checkpoint there replaces. An index that cannot be read
/// names none: readers cannot follow it either.
pub(super) fn files_of_index(directory: &Path, stem: &Stem) -> BTreeSet<PathBuf> {
    // not charged to the run: the old index is not part of the checkpoint that is written
    let budget = Budget::new(Limits::default());
    let index = directory.join(stem.index());
    let Ok((text, _charge)) = read_regular(&index, &budget, "the old index") else {
        return BTreeSet::new();
    };
    let names = names_in(&text, &budget);
    names.map(|name| directory.join(name)).collect()
}

/// The names of files in the text of an old index.
#[cfg(feature = "remote")]
pub(super) fn index_files(text: &[u8]) -> BTreeSet<String> {
    names_in(text, &Budget::new(Limits::default())).collect()
}

fn names_in(text: &[u8], budget: &Budget) -> impl Iterator<Item = String> {
    let reader = JsonReader::new(budget, "the old index");
    let malformed = |e: serde_json::Error| Error::malformed(e.to_string());
    let tree = std::str::from_utf8(text)
        .ok()
        .and_then(|text| reader.parse(text, Tree(&reader), malformed).ok());
    let map = match tree {
        Some(Value::Object(mut index)) => index.remove("weight_map"),
        _ => None,
    };
    let map = match map {
        Some(Value::Object(map)) => map,
        _ => serde_json::Map::new(),
    };
    let names = map.into_iter().filter_map(|(_, name)| match name {
        Value::String(name) => Some(name),
        _ => None,
    });
    // the files are removed: an index must not name others than shards in its directory
    names.filter(|name| name.ends_with(".safetensors") && plain_name(name).is_ok())
}
