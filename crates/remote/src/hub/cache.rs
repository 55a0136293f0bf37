//! Files that huggingface_hub has downloaded to this machine.

use std::path::{Component, Path, PathBuf};

use anamnesis_os::whole_file;

use super::listing::all_files_of_index;
use super::{HubPath, HubSettings, is_commit};

/// The longest index: names of a few hundred thousand tensors.
const MAX_INDEX: u64 = 64 << 20;

impl HubPath {
    /// Where huggingface_hub has put this file, or this repository if it is there as a whole. An index of more than a half
    /// of `memory` bytes is not read, as its names may be as long.
    pub(crate) fn cached(&self, settings: &HubSettings, memory: u64) -> Option<PathBuf> {
        let most = MAX_INDEX.min(memory / 2);
        let folder = format!("models--{}--{}", self.owner, self.name);
        let repository = settings.cache.as_ref()?.join(folder);
        // snapshots are named by commits; `refs` has the branches and tags
        let commit = if is_commit(&self.revision) {
            self.revision.clone()
        } else {
            let path = repository.join("refs").join(&self.revision);
            // one short line
            let text = String::from_utf8(whole_file::read(&path, 4096).ok()?).ok()?;
            let text = text.trim();
            // the text becomes a part of the path
            is_commit(text).then(|| text.to_owned())?
        };
        let place = repository.join("snapshots").join(commit).join(&self.file);
        if self.is_file() {
            return is_whole(&place, most).then_some(place);
        }
        is_whole_checkpoint(&place, most).then_some(place)
    }
}

/// Whether a file is there, and if it is an index, all files that it lists as well.
fn is_whole(path: &Path, most: u64) -> bool {
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    if !name.ends_with(".index.json") {
        return path.is_file();
    }
    let Some(folder) = path.parent() else {
        return false;
    };
    let Ok(index) = whole_file::read(path, most) else {
        return false;
    };
    all_files_of_index(&index, &mut |file| {
        let file = Path::new(file);
        let mut parts = file.components();
        // an index must not lead out of its folder
        let plain = matches!(
            (parts.next(), parts.next()),
            (Some(Component::Normal(_)), None)
        );
        plain && folder.join(file).is_file()
    })
}

/// Whether a folder of the cache holds a checkpoint with all its files. Single files are downloaded as well, so that a folder
/// may hold a part of it.
fn is_whole_checkpoint(folder: &Path, most: u64) -> bool {
    let indexes = [
        "model.safetensors.index.json",
        "pytorch_model.bin.index.json",
    ];
    if let Some(index) = indexes
        .iter()
        .map(|name| folder.join(name))
        .find(|path| path.exists())
    {
        return is_whole(&index, most);
    }
    ["model.safetensors", "pytorch_model.bin"]
        .iter()
        .any(|name| folder.join(name).is_file())
}
