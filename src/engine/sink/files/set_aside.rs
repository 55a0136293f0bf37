//! Hidden names, by which a checkpoint is replaced together with its companion files where no directory can be exchanged.
//!
//! Tensors have their commit, the rename of the file that readers open first. Companion files (`config.json`) have names of
//! their own, and are renamed one by one. From the moment in which the first of them leaves its name until the last has it
//! again, the directory says which files belong together, in names that any run understands:
//!
//! | hidden name | is |
//! |---|---|
//! | `….model.safetensors.index.json.new-index` | the record: the new file that readers open first. While it is there, nothing is committed. An index's name has the numbers of the new shards too |
//! | `….config.json.new-index` | a new companion file; the end says which first file it belongs to |
//! | `….config.json.old` | an old companion file |
//!
//! [`settle`] finishes what a directory says: with a record the old companion files get their names back and the new files are
//! removed; without one the new companion files get their names. It ends a run that succeeds, one that fails and, at the begin
//! of the next, one that was killed.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use super::companion_files::plain_name;
use super::names::{PartNames, ShardNames, Stem};
use super::operations::FileOperations;

/// The file that readers open first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstFile {
    Index,
    Single,
}

impl FirstFile {
    fn name(self, stem: &Stem) -> String {
        match self {
            Self::Index => stem.index(),
            Self::Single => stem.single(),
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Index => Self::Single,
            Self::Single => Self::Index,
        }
    }
}

/// The part of a hidden file in a replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HiddenRole {
    Old,
    /// New, and of the checkpoint with this first file.
    New(FirstFile),
}

const ROLES: [HiddenRole; 3] = [
    HiddenRole::Old,
    HiddenRole::New(FirstFile::Index),
    HiddenRole::New(FirstFile::Single),
];

impl HiddenRole {
    fn end(self) -> &'static str {
        match self {
            Self::Old => ".old",
            Self::New(FirstFile::Index) => ".new-index",
            Self::New(FirstFile::Single) => ".new-single",
        }
    }
}

/// A hidden name for a file of this name.
pub(super) fn hidden_name(parts: &PartNames, role: HiddenRole, name: &OsStr) -> PathBuf {
    hidden(parts, role, None, name)
}

/// The hidden name of the record.
pub(super) fn record_name(
    parts: &PartNames,
    stem: &Stem,
    first: FirstFile,
    shards: Option<ShardNames>,
) -> PathBuf {
    let name = first.name(stem);
    hidden(parts, HiddenRole::New(first), shards, name.as_ref())
}

fn hidden(
    parts: &PartNames,
    role: HiddenRole,
    shards: Option<ShardNames>,
    name: &OsStr,
) -> PathBuf {
    // with the numbers of the shards, and without `.part`
    let mut hidden = parts.unused(shards).with_extension("").into_os_string();
    hidden.push(".");
    hidden.push(name);
    hidden.push(role.end());
    hidden.into()
}

/// A file that was found under a hidden name.
#[derive(Debug)]
struct HiddenFile {
    path: PathBuf,
    /// Its own name.
    name: String,
    role: HiddenRole,
}

impl HiddenFile {
    fn find_all(parts: &PartNames) -> io::Result<Vec<Self>> {
        let mut found = Vec::new();
        for role in ROLES {
            let named = parts.with_end(role.end())?.into_iter();
            // a name that leads out of the directory is not this library's
            let named = named.filter(|(_, name)| plain_name(name).is_ok());
            found.extend(named.map(|(path, name)| Self { path, name, role }));
        }
        Ok(found)
    }

    /// The numbers of the new shards, if this is the record; `Some(None)` of a single file.
    fn record(&self, stem: &Stem) -> Option<Option<ShardNames>> {
        let HiddenRole::New(first) = self.role else {
            return None;
        };
        let rest = self.name.strip_suffix(&first.name(stem))?;
        match rest.strip_suffix('.') {
            None if rest.is_empty() => Some(None),
            Some(numbers) => ShardNames::parse(numbers).map(Some),
            None => None,
        }
    }
}

/// Finishes a replacement that the hidden names in a directory tell of. Called under the directory's lock.
pub(super) fn settle(
    system: &dyn FileOperations,
    parts: &PartNames,
    stem: &Stem,
) -> io::Result<()> {
    let files = HiddenFile::find_all(parts)?;
    if files.is_empty() {
        return Ok(());
    }
    let record = files
        .iter()
        .find_map(|file| Some((file, file.record(stem)?)));
    match record {
        Some((record, shards)) => {
            let others: Vec<&HiddenFile> = files.iter().filter(|f| f.path != record.path).collect();
            take_back(system, parts, &others)?;
            if let Some(names) = shards {
                for shard in stem.shards(parts.directory(), |found| found == names)? {
                    remove(system, &shard)?;
                }
            }
            // the record is the last to go, also by a loss of power
            system.sync_directory(parts.directory())?;
            remove(system, &record.path)
        }
        None => complete(system, parts, stem, &files),
    }
}

/// Before the commit: the old companion files get their names back, and the new ones are removed.
fn take_back(
    system: &dyn FileOperations,
    parts: &PartNames,
    files: &[&HiddenFile],
) -> io::Result<()> {
    for file in files {
        match file.role {
            HiddenRole::Old => system.rename(&file.path, &parts.directory().join(&file.name))?,
            HiddenRole::New(_) => remove(system, &file.path)?,
        }
    }
    Ok(())
}

/// After the commit: the first file of the old checkpoint goes, the new companion files get their names, and the old ones go,
/// each when the step before outlives a loss of power.
fn complete(
    system: &dyn FileOperations,
    parts: &PartNames,
    stem: &Stem,
    files: &[HiddenFile],
) -> io::Result<()> {
    let directory = parts.directory();
    system.sync_directory(directory)?;
    let first = files.iter().find_map(|file| match file.role {
        HiddenRole::New(first) => Some(first),
        HiddenRole::Old => None,
    });
    if let Some(first) = first {
        // some readers prefer the index and some the single file: all find the new checkpoint before its companions
        remove(system, &directory.join(first.other().name(stem)))?;
        system.sync_directory(directory)?;
        for file in files.iter().filter(|f| f.role != HiddenRole::Old) {
            system.rename(&file.path, &directory.join(&file.name))?;
        }
        system.sync_directory(directory)?;
    }
    let old = files.iter().filter(|f| f.role == HiddenRole::Old);
    old.map(|file| &file.path)
        .try_for_each(|path| remove(system, path))
}

/// Removes a file that may not be there.
fn remove(system: &dyn FileOperations, path: &Path) -> io::Result<()> {
    match system.remove(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn hidden_names_say_what_they_hide() {
        let name = format!("anamnesis-hidden-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir(&directory).unwrap();
        let stem = Stem::new("model", "safetensors").unwrap();
        let parts = PartNames::new(&directory, stem.single().as_ref());
        let shards = ShardNames {
            generation: 2,
            count: 3,
        };
        let new = HiddenRole::New(FirstFile::Index);
        let companions = ["config.json", "a..b.json", "2-of-3.json"];
        let mut paths = vec![
            record_name(&parts, &stem, FirstFile::Index, Some(shards)),
            record_name(&parts, &stem, FirstFile::Single, None),
        ];
        for name in companions {
            paths.push(hidden_name(&parts, new, name.as_ref()));
            paths.push(hidden_name(&parts, HiddenRole::Old, name.as_ref()));
        }
        // names that lead elsewhere, and of another target
        for name in ["..", "."] {
            paths.push(hidden_name(&parts, HiddenRole::Old, name.as_ref()));
        }
        let other = PartNames::new(&directory, "other".as_ref());
        paths.push(hidden_name(&other, new, "config.json".as_ref()));
        paths.iter().for_each(|path| fs::write(path, "").unwrap());
        let found = HiddenFile::find_all(&parts).unwrap();
        let of = |role| {
            let files = found.iter().filter(|file| file.role == role);
            let plain = files.filter(|file| file.record(&stem).is_none());
            let mut names: Vec<&str> = plain.map(|file| &*file.name).collect();
            names.sort_unstable();
            names
        };
        assert_eq!(
            of(HiddenRole::Old),
            ["2-of-3.json", "a..b.json", "config.json"]
        );
        assert_eq!(of(new), of(HiddenRole::Old));
        assert_eq!(found.len(), 8);
        let records: Vec<_> = found.iter().filter_map(|file| file.record(&stem)).collect();
        assert_eq!(records, [Some(shards), None]);
        fs::remove_dir_all(&directory).unwrap();
    }
}
