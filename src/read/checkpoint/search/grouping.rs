//! Which names of a directory are one model.
//!
//! | names | one model |
//! |---|---|
//! | an index, and the files that it names | yes |
//! | `x-00001-of-00003`, `x_00001_of_00003`, all with one `x` and one number behind | yes, with or without an index |
//! | `shard-00001-model-…`, pieces of tensors | yes |
//! | `consolidated.00.pth` and `consolidated.01.pth`, `rank0` and `rank1`: a rank each, from 0 on | yes |
//! | `.metadata` and `.distcp` | yes |
//! | `style-000001.safetensors` and `style-000002.safetensors`, `model.safetensors` and `model.fp16.safetensors` | each |
//!
//! A directory with a configuration is shown in the place of the model that opening it chooses.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;

use crate::base::error::Error;
use crate::base::limits::Budget;
use crate::base::template::weight_ending;
use crate::read::checkpoint::OpenOptions;
use crate::read::checkpoint::directory::{deepspeed, shard_set};
use crate::read::checkpoint::distributed::{EXTENSION, METADATA};
use crate::read::checkpoint::named_files::{INDEX, name_below, split_name};
use crate::read::checkpoint::other_files::{
    UNFINISHED, is_index_name, is_model_file, is_training_state, reason,
};
use crate::read::checkpoint::ranks::{is_deepspeed, rank_of};
use crate::read::checkpoint::set_key::{SetKey, SetKind};
use crate::read::checkpoint::shards::read_index;
use crate::read::source::file_system::NamedPath;

use super::found::{FilesOfModel, FoundEvidence};
use super::searched_directory::{DirectoryModel, SearchedDirectory};

const WHAT: &str = "the files of an index";

/// Files that describe the model of their directory.
const CONFIGURATIONS: [&str; 2] = ["config.json", "params.json"];

/// Words in the names of models that have an ending of many kinds of files.
const MODEL_WORDS: [&str; 6] = ["model", "weights", "adapter", "lora", "ggml", "checkpoint"];

/// The models of a directory, and the files in directories below it that its indexes name.
pub(super) struct GroupedModels {
    pub(super) models: Vec<DirectoryModel>,
    pub(super) below: BTreeSet<PathBuf>,
}

/// All models of a directory. `of_others`: names of files in it that belong to a model of a directory above.
pub(super) fn models_of(
    directory: &SearchedDirectory,
    of_others: &BTreeSet<OsString>,
    options: &OpenOptions,
    budget: &Budget,
) -> GroupedModels {
    let all = directory.names.all.iter();
    let mut grouping = Grouping {
        directory,
        options,
        budget,
        taken: all.map(|name| of_others.contains(&**name)).collect(),
        models: Vec::new(),
        below: BTreeSet::new(),
    };
    grouping.indexes();
    grouping.distributed();
    grouping.sets();
    grouping.single_files();
    let mut models = grouping.models;
    let is_configured = CONFIGURATIONS.iter().any(|name| directory.has(name));
    if is_configured && let Ok(chosen) = directory.chosen(options, budget) {
        let main = models
            .iter_mut()
            .find(|model| directory.is_same(model, &chosen));
        if let Some(main) = main {
            main.is_directory = true;
        }
    }
    let below = grouping.below;
    GroupedModels { models, below }
}

/// The models of a directory while they are put together.
struct Grouping<'d> {
    directory: &'d SearchedDirectory,
    options: &'d OpenOptions,
    budget: &'d Budget,
    /// SearchedNames that belong to a model.
    taken: Vec<bool>,
    models: Vec<DirectoryModel>,
    below: BTreeSet<PathBuf>,
}

impl Grouping<'_> {
    /// The files by name that belong to no model yet.
    fn free(&self) -> Vec<(u32, Cow<'_, str>)> {
        let files = self.directory.names.files.iter();
        let free = files.filter(|&&file| !self.taken[file as usize]);
        free.map(|&file| (file, self.directory.text(file)))
            .filter(|(_, name)| is_model_file(name))
            .collect()
    }

    fn take(&mut self, names: &[u32]) {
        for &name in names {
            self.taken[name as usize] = true;
        }
    }

    /// Indexes, and the shards that they name.
    fn indexes(&mut self) {
        let indexes: Vec<u32> = self
            .free()
            .iter()
            .filter(|(_, name)| is_index_name(name))
            .map(|(file, _)| *file)
            .collect();
        for index in indexes {
            let name = self.directory.text(index).into_owned();
            let stem = name.strip_suffix(INDEX).unwrap_or(&name);
            let (prefix, ending) = stem.rsplit_once('.').unwrap_or((stem, ""));
            let (numbered, others): (Vec<_>, Vec<_>) = self
                .free()
                .into_iter()
                .filter(|(file, name)| *file != index && weight_ending(name) == Some(ending))
                .map(|(file, name)| (file, name.into_owned()))
                .partition(|(_, name)| split_name(name).is_some_and(|(own, ..)| own == prefix));
            // the index is read only where something else than shards by its name is there, or all may be in folders
            let may_be_below = numbered.is_empty() && !self.directory.names.folders.is_empty();
            let named = match others.is_empty() && !may_be_below {
                true => BTreeSet::new(),
                false => self.named_by(index),
            };
            for name in named.iter().filter(|name| name.contains('/')) {
                if self.budget.text(name.len(), WHAT).is_ok() {
                    self.below.insert(self.directory.path.join(name));
                }
            }
            let named = others.iter().filter(|(_, name)| named.contains(name));
            let mut taken: Vec<u32> = numbered
                .iter()
                .chain(named)
                .map(|(file, _)| *file)
                .collect();
            taken.push(index);
            self.take(&taken);
            self.models
                .push(DirectoryModel::file(index, FoundEvidence::Name));
        }
    }

    /// The files that an index names; none if it cannot be read, which opening it reports.
    fn named_by(&self, index: u32) -> BTreeSet<String> {
        let path = self.directory.entry(index);
        let named = NamedPath::below(&self.directory.root, &path);
        let budget = self.options.budget();
        let Ok((index, _)) = read_index(&self.directory.files, named, &budget) else {
            return BTreeSet::new();
        };
        let names = index.weight_map.iter();
        let names = names.filter_map(|(_, file)| name_below(file).ok());
        names.map(|name| name.into_owned()).collect()
    }

    /// Checkpoints of torch.distributed.checkpoint and of DeepSpeed, each of which is one in a directory.
    fn distributed(&mut self) {
        let of = |wanted: &dyn Fn(&str) -> bool, grouping: &Self| -> Vec<u32> {
            let files = grouping.free();
            let found = files.iter().filter(|(_, name)| wanted(name));
            found.map(|(file, _)| *file).collect()
        };
        let parts = of(&|name| weight_ending(name) == Some(EXTENSION), self);
        if let Some(&first) = parts.first() {
            let metadata = self.directory.path.join(METADATA);
            self.take(&parts);
            let model = DirectoryModel::of_directory(first, FilesOfModel::Path(metadata));
            self.models.push(model);
        }
        let parts = of(&is_deepspeed, self);
        if let Some(&first) = parts.first() {
            self.take(&parts);
            let model = DirectoryModel::of_directory(first, FilesOfModel::Fault(deepspeed()));
            self.models.push(model);
        }
    }

    /// Files whose names have numbers of a set.
    fn sets(&mut self) {
        let mut sets: BTreeMap<SetKey, Vec<u32>> = BTreeMap::new();
        for (file, name) in self.free() {
            if let Some(key) = SetKey::of(&name) {
                sets.entry(key).or_default().push(file);
            }
        }
        for (key, files) in sets {
            let Some(content) = self.content_of(&key, &files) else {
                continue;
            };
            self.take(&files);
            self.models.push(DirectoryModel::of(files[0], content));
        }
    }

    /// The model of a set of files; `None` if each is one of its own.
    fn content_of(&self, key: &SetKey, files: &[u32]) -> Option<FilesOfModel> {
        let paths = || {
            files
                .iter()
                .map(|&file| self.directory.entry(file))
                .collect()
        };
        match key.kind {
            SetKind::Pieces if files.len() > 1 => Some(FilesOfModel::Together(paths())),
            SetKind::Shards { of } if of > 1 || files.len() > 1 => Some({
                // any file of a split finds the others
                if key.ending == "gguf" {
                    FilesOfModel::Path(self.directory.entry(files[0]))
                } else {
                    match self.missing(key, files) {
                        Some(error) => FilesOfModel::Fault(error),
                        None => self.shards(files),
                    }
                }
            }),
            SetKind::Underscored { of } if of > 1 => Some(match self.missing(key, files) {
                None => FilesOfModel::Together(paths()),
                Some(error) => FilesOfModel::Fault(error),
            }),
            SetKind::Ranks { of } => {
                let mut ranks: Vec<u64> = files
                    .iter()
                    .filter_map(|&file| Some(rank_of(&self.directory.text(file))?.0))
                    .collect();
                ranks.sort_unstable();
                let is_whole = ranks.iter().copied().eq(0..files.len() as u64);
                if files.len() < 2 && !key.is_set_of(files.len()) {
                    return None;
                }
                match self.missing(key, files) {
                    Some(error) => Some(FilesOfModel::Fault(error)),
                    // the numbers are no ranks
                    None if of.is_none() && !is_whole => None,
                    None => Some(FilesOfModel::Ranks(paths())),
                }
            }
            SetKind::Pieces | SetKind::Shards { .. } | SetKind::Underscored { .. } => None,
        }
    }

    /// The shards of a set without an index.
    fn shards(&self, files: &[u32]) -> FilesOfModel {
        let names: Vec<String> = files
            .iter()
            .map(|&file| self.directory.text(file).into_owned())
            .collect();
        let names: Vec<&String> = names.iter().collect();
        let directory = self.directory;
        let set = shard_set(
            &directory.files,
            &directory.path,
            &names,
            self.options,
            self.budget,
        );
        match set {
            Ok((paths, _)) => FilesOfModel::Together(paths),
            Err(error) => FilesOfModel::Fault(error),
        }
    }

    /// The error of a set that lacks files.
    fn missing(&self, key: &SetKey, files: &[u32]) -> Option<Error> {
        let names: Vec<_> = files
            .iter()
            .map(|&file| self.directory.text(file))
            .collect();
        let names: Vec<&str> = names.iter().map(|name| &**name).collect();
        Some(key.missing(&names)?.error(&self.directory.path))
    }

    /// The rest: each file is a model of its own, or none.
    fn single_files(&mut self) {
        let names = &self.directory.names;
        for &file in &names.files {
            if self.taken[file as usize] {
                continue;
            }
            let name = self.directory.text(file);
            if let Some(evidence) = evidence(&name, self.directory.files.is_local()) {
                self.models.push(DirectoryModel::file(file, evidence));
            }
        }
        for &file in &names.special {
            // not opened: the end of a pipe waits for what it sends
            if is_model_file(&self.directory.text(file)) {
                let error = Error::unsupported(
                    "a pipe, a socket or a device is in the place of a regular file",
                );
                self.models
                    .push(DirectoryModel::of(file, FilesOfModel::Fault(error)));
            }
        }
    }
}

/// The evidence that a name is; `None` if it says that the file is no model.
fn evidence(name: &str, is_local: bool) -> Option<FoundEvidence> {
    if is_model_file(name) {
        let lower = name.to_ascii_lowercase();
        let is_general = weight_ending(name) == Some("bin");
        let is_named = MODEL_WORDS.iter().any(|word| lower.contains(word));
        return Some(match is_general && !is_named {
            true => FoundEvidence::Ending,
            false => FoundEvidence::Name,
        });
    }
    // a request for each file of a bucket would be too many
    let is_unknown = is_local && !is_training_state(name) && !name.starts_with('.');
    let why = reason(name, true);
    // downloads and earlier versions look like models by what is in them
    (is_unknown && (why == "unknown" || why == UNFINISHED)).then_some(FoundEvidence::Content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_whether_a_file_may_be_a_model() {
        for (name, wanted) in [
            ("model.safetensors", Some(FoundEvidence::Name)),
            ("pytorch_model.bin", Some(FoundEvidence::Name)),
            ("firmware.bin", Some(FoundEvidence::Ending)),
            ("sha256-abc", Some(FoundEvidence::Content)),
            ("model.gguf.part", Some(FoundEvidence::Content)),
            ("README.md", None),
            ("vocab.json", None),
            ("optimizer.pt", None),
            (".model.safetensors", None),
        ] {
            assert_eq!(evidence(name, true), wanted, "{name}");
        }
        assert_eq!(evidence("sha256-abc", false), None);
    }
}
