//! Names of the files that the sink writes, final and temporary, and which files in a directory have such names.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anamnesis_os::files::is_abandoned;

use super::operations::FileOperations;

/// The stem of the files in a directory, by which clients find them: `model`, `adapter_model` (peft) or
/// `diffusion_pytorch_model` (diffusers).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stem {
    stem: Box<str>,
    /// The ending of the files.
    extension: &'static str,
}

impl Stem {
    /// `None` for a stem that is not part of a file name.
    pub(super) fn new(stem: &str, extension: &'static str) -> Option<Self> {
        let sound = !stem.is_empty() && !stem.contains(['/', '\\', '\0']) && !stem.starts_with('.');
        sound.then(|| Self {
            stem: stem.into(),
            extension,
        })
    }

    /// The name of the only file: `model.safetensors`.
    pub(super) fn single(&self) -> String {
        format!("{}.{}", self.stem, self.extension)
    }

    /// The name of the index of several: `model.safetensors.index.json`.
    pub(super) fn index(&self) -> String {
        format!("{}.{}.index.json", self.stem, self.extension)
    }

    /// The name of a shard; `number` counts from 1.
    pub(super) fn shard(&self, names: ShardNames, number: u64) -> String {
        let Self { stem, extension } = self;
        let ShardNames { generation, count } = names;
        if generation == 1 {
            format!("{stem}-{number:05}-of-{count:05}.{extension}")
        } else {
            format!("{stem}-{generation}-{number:05}-of-{count:05}.{extension}")
        }
    }

    /// The set of shards that has this name.
    pub(super) fn parse(&self, name: &OsStr) -> Option<ShardNames> {
        let name = name.to_str()?;
        let middle = name
            .strip_prefix(&*self.stem)?
            .strip_prefix('-')?
            .strip_suffix(self.extension)?
            .strip_suffix('.')?;
        let (head, count) = middle.split_once("-of-")?;
        let (generation, number) = head.split_once('-').unwrap_or(("1", head));
        let names = ShardNames {
            generation: generation.parse().ok()?,
            count: count.parse().ok()?,
        };
        let number: u64 = number.parse().ok()?;
        // the exact form only: `model-02-1-of-3.safetensors` is another program's
        (self.shard(names, number) == name).then_some(names)
    }

    /// The first generation of which a directory contains no shard.
    pub(super) fn free_generation(&self, directory: &Path) -> io::Result<u32> {
        let mut used = BTreeSet::new();
        for entry in fs::read_dir(directory)? {
            used.extend(
                self.parse(&entry?.file_name())
                    .map(|names| names.generation),
            );
        }
        Ok((1..=u32::MAX)
            .find(|generation| !used.contains(generation))
            // not reached: a directory has fewer files
            .unwrap_or(u32::MAX))
    }

    /// The shards in a directory that are of these names, or are not. Directories, pipes and devices are not listed.
    pub(super) fn shards(
        &self,
        directory: &Path,
        of: impl Fn(ShardNames) -> bool,
    ) -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            // files in a cache of the hub are links
            if (kind.is_file() || kind.is_symlink())
                && self.parse(&entry.file_name()).is_some_and(&of)
            {
                found.push(entry.path());
            }
        }
        Ok(found)
    }
}

/// The numbers in the names of the shards of one checkpoint: `model-00001-of-00003.safetensors`, and of the second
/// generation `model-2-00001-of-00003.safetensors`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShardNames {
    /// From 1. Shards that replace others are of another generation, so that no file of the old checkpoint is replaced.
    pub(super) generation: u32,
    pub(super) count: u64,
}

impl ShardNames {
    /// The numbers as the name of a record has them: `2-of-3`.
    pub(super) fn parse(numbers: &str) -> Option<Self> {
        let (generation, count) = numbers.split_once("-of-")?;
        Some(Self {
            generation: generation.parse().ok()?,
            count: count.parse().ok()?,
        })
    }
}

/// Names of files under construction for one target: `.anamnesis-TARGET-PROCESS-NUMBER.part`, where TARGET is a hash of
/// the target's name, so that the name is short whatever the target's length.
#[derive(Clone, Debug)]
pub(super) struct PartNames {
    directory: PathBuf,
    prefix: String,
}

/// A file under construction that a process left.
#[derive(Debug)]
pub(super) struct AbandonedPart {
    pub(super) path: PathBuf,
    /// The shards that the process was naming when it ended.
    pub(super) shards: Option<ShardNames>,
}

impl PartNames {
    /// The names for the target `name` in `directory`.
    pub(super) fn new(directory: &Path, name: &OsStr) -> Self {
        // FNV-1a: the same in every version of this library
        let hash = name
            .as_encoded_bytes()
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
            });
        Self {
            directory: directory.to_owned(),
            prefix: format!(".anamnesis-{hash:016x}-"),
        }
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The part of a name between the target and `.part`; `None` if it belongs to no file under construction for this
    /// target.
    fn middle<'n>(&self, name: &'n OsStr) -> Option<&'n str> {
        name.to_str()?
            .strip_prefix(&self.prefix)?
            .strip_suffix(".part")
    }

    /// Whether one of these names is of a file under construction for this target. They are sorted.
    pub(super) fn is_any_part(&self, names: &[String]) -> bool {
        let first = names.partition_point(|name| *name < self.prefix);
        names
            .get(first)
            .is_some_and(|name| self.is_part(name.as_ref()))
    }

    /// Whether this is the name of a file under construction for this target.
    pub(super) fn is_part(&self, name: &OsStr) -> bool {
        self.middle(name).is_some()
    }

    /// The directories with such names.
    #[cfg(target_os = "linux")]
    pub(super) fn directories(&self) -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            if self.is_part(&entry.file_name()) && entry.file_type()?.is_dir() {
                found.push(entry.path());
            }
        }
        Ok(found)
    }

    /// A name that this process has not used yet. `shards` are those that are named while this file exists.
    pub(super) fn unused(&self, shards: Option<ShardNames>) -> PathBuf {
        // one count for all sinks of the process, whose targets may be the same
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        let shards = shards
            .map(|names| format!(".{}-of-{}", names.generation, names.count))
            .unwrap_or_default();
        self.directory
            .join(format!("{}{process}-{number}{shards}.part", self.prefix))
    }

    /// The files in the directory whose names are `.anamnesis-TARGET-PROCESS-NUMBER.NAME` and this end, each with its NAME.
    pub(super) fn with_end(&self, end: &str) -> io::Result<Vec<(PathBuf, String)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let own = name.to_str().and_then(|name| {
                let rest = name.strip_prefix(&self.prefix)?.strip_suffix(end)?;
                rest.split_once('.').map(|(_, own)| own)
            });
            // others may have made a directory of such a name
            if let Some(own) = own
                && !entry.file_type()?.is_dir()
            {
                found.push((entry.path(), own.to_owned()));
            }
        }
        found.sort();
        Ok(found)
    }

    /// The files under construction of processes that have ended.
    pub(super) fn abandoned(&self) -> io::Result<Vec<AbandonedPart>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(middle) = self.middle(&name) else {
                continue;
            };
            let path = entry.path();
            if is_abandoned(&path) {
                let shards = middle.split_once('.');
                let shards = shards.and_then(|(_, numbers)| ShardNames::parse(numbers));
                found.push(AbandonedPart { path, shards });
            }
        }
        Ok(found)
    }
}

impl AbandonedPart {
    /// Removes the shards that the process had named, and then the record of them.
    pub(super) fn remove_with_shards(
        &self,
        system: &dyn FileOperations,
        directory: &Path,
        stem: &Stem,
    ) -> io::Result<()> {
        if let Some(names) = self.shards {
            for shard in stem.shards(directory, |found| found == names)? {
                system.remove(&shard)?;
            }
            // before the record is removed: after a loss of power it must still name what is left
            system.sync_directory(directory)?;
        }
        match system.remove(&self.path) {
            // another run removes the same files
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_shards_are_recognised_exactly() {
        let stem = Stem::new("model", "safetensors").unwrap();
        for generation in [1, 2, 10] {
            for number in [1, 3, 123_456] {
                let names = ShardNames {
                    generation,
                    count: 3,
                };
                let name = stem.shard(names, number);
                assert_eq!(stem.parse(name.as_ref()), Some(names), "{name}");
            }
        }
        for other in [
            "model.safetensors",
            "model-1-00001-of-00003.safetensors",
            "model-02-00001-of-00003.safetensors",
            "model-1-of-3.safetensors",
            "model-00001-of-00003.bin",
            "other-00001-of-00003.safetensors",
            "model00001-of-00003.safetensors",
            "model-00001-of-99999999999999999999999.safetensors",
        ] {
            assert_eq!(stem.parse(other.as_ref()), None, "{other}");
        }
    }

    #[test]
    fn stems_are_parts_of_file_names() {
        for stem in ["", "a/b", "..", ".model", "a\\b", "a\0"] {
            assert_eq!(Stem::new(stem, "safetensors"), None, "{stem:?}");
        }
        let stem = Stem::new("diffusion_pytorch_model.fp16", "safetensors").unwrap();
        assert_eq!(stem.single(), "diffusion_pytorch_model.fp16.safetensors");
    }

    #[cfg(unix)]
    #[test]
    fn a_part_is_abandoned_when_its_process_has_ended() {
        let name = format!("anamnesis-parts-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir(&directory).unwrap();
        let parts = PartNames::new(&directory, "out".as_ref());
        let names = ShardNames {
            generation: 2,
            count: 3,
        };
        let (held, left) = (parts.unused(None), parts.unused(Some(names)));
        let lock = fs::File::create(&held).unwrap();
        lock.try_lock().unwrap();
        fs::write(&left, "").unwrap();
        // neither a link nor a part of another target
        std::os::unix::fs::symlink("/etc/passwd", parts.unused(None)).unwrap();
        let other = PartNames::new(&directory, "other".as_ref());
        fs::write(other.unused(None), "").unwrap();
        let found = parts.abandoned().unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((&found[0].path, found[0].shards), (&left, Some(names)));
        drop(lock);
        assert_eq!(parts.abandoned().unwrap().len(), 2);
        fs::remove_dir_all(&directory).unwrap();
    }
}
