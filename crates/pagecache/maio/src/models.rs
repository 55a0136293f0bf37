//! The models of a directory: which files belong together, from their names alone.
//!
//! A directory with weights and a `config.json` or an index is one model, with everything below it; so is the directory of a
//! pipeline, whose `model_index.json` names components in directories below it. In any other directory, weights whose
//! names differ in numbers only are one model, as the files of ranks and layers are (`consolidated.00.pth`); of GGUF, only the
//! files of one split are, since each file is complete otherwise.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use anamnesis_ppc::{FileEntry, Namespace};

use crate::model_files::{ModelFiles, is_weight};

/// Files by their names in the namespace.
type NamedFiles<'n> = BTreeMap<&'n Path, &'n FileEntry>;

/// Returns the models below `under`, in the order of their paths. If there are no weights, all files are one model. Files
/// that are links to files of an earlier model are no other model, as snapshots of the same weights.
pub(crate) fn models_below(namespace: &Arc<Namespace>, under: &Path) -> Vec<ModelFiles> {
    let files: NamedFiles = namespace
        .names()
        .map(|(name, entry)| (&**name, entry))
        .filter(|(name, _)| name.starts_with(under))
        .collect();
    if !files.keys().any(|name| is_weight(name)) {
        return vec![ModelFiles::new(namespace, under)];
    }
    let mut found = Vec::new();
    let mut pending = vec![(under.to_owned(), files)];
    while let Some((directory, files)) = pending.pop() {
        if !files.keys().any(|name| is_weight(name)) {
            continue;
        }
        let (direct, deeper): (NamedFiles, NamedFiles) = files
            .iter()
            .map(|(&name, &entry)| (name, entry))
            .partition(|(name, _)| name.parent() == Some(&directory));
        if is_one_model(&direct) {
            found.push(ModelFiles::of(namespace, &directory, "", files));
            continue;
        }
        let mut families = BTreeMap::<String, NamedFiles>::new();
        for (name, entry) in direct {
            if is_weight(name) {
                families
                    .entry(family(name))
                    .or_default()
                    .insert(name, entry);
            }
        }
        for (family, files) in families {
            found.push(ModelFiles::of(namespace, &directory, &family, files));
        }
        let mut directories = BTreeMap::<&Path, NamedFiles>::new();
        for (name, entry) in deeper {
            let mut below = name.strip_prefix(&directory).into_iter().flatten();
            if let Some(first) = below.next() {
                directories
                    .entry(Path::new(first))
                    .or_default()
                    .insert(name, entry);
            }
        }
        pending.extend(
            directories
                .into_iter()
                .map(|(name, files)| (directory.join(name), files)),
        );
    }
    found.sort_by_key(ModelFiles::path);
    let mut owned = HashSet::new();
    found.retain(|model| {
        let any_new = model.weights().any(|path| !owned.contains(path));
        owned.extend(model.weights().map(Arc::clone));
        any_new
    });
    found
}

/// Whether a directory with these files is a model with everything below it.
fn is_one_model(direct: &NamedFiles) -> bool {
    let mut names = direct.keys().filter_map(|name| name.file_name()?.to_str());
    let is_marked = |name: &str| name == "config.json" || name.ends_with(".index.json");
    let any_weights = direct.keys().any(|name| is_weight(name));
    names.any(|name| name == "model_index.json" || (any_weights && is_marked(name)))
}

/// The name of a weight file without what distinguishes the files of one model.
fn family(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_gguf = name.to_ascii_lowercase().ends_with(".gguf");
    if !is_gguf {
        return without_numbers(&name);
    }
    let stem = &name[..name.len() - ".gguf".len()];
    // `-00001-of-00005`
    let split = stem
        .rsplit_once("-of-")
        .and_then(|(before, of)| Some((before.rsplit_once('-')?, of)));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match split {
        Some(((before, number), of)) if digits(number) && digits(of) => {
            format!("{before}-#-of-{of}.gguf")
        }
        _ => name.into_owned(),
    }
}

/// Replaces each number by `#`.
fn without_numbers(name: &str) -> String {
    let mut text = String::new();
    for c in name.chars() {
        match c {
            '0'..='9' if text.ends_with('#') => {}
            '0'..='9' => text.push('#'),
            c => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The paths of the models below a directory with these files, and how many files each has.
    fn models(names: &[&str]) -> Vec<(String, usize)> {
        let dir = tempfile::tempdir().unwrap();
        for name in names {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, b"1").unwrap();
        }
        let namespace = Arc::new(Namespace::scan(dir.path()).unwrap());
        models_below(&namespace, Path::new(""))
            .iter()
            .map(|model| (model.path().display().to_string(), model.paths().count()))
            .collect()
    }

    fn expected(models: &[(&str, usize)]) -> Vec<(String, usize)> {
        models
            .iter()
            .map(|&(path, files)| (path.to_owned(), files))
            .collect()
    }

    #[test]
    fn the_topmost_directory_with_weights_and_a_configuration_is_a_model() {
        let names = [
            "llama/config.json",
            "llama/model-00001-of-00002.safetensors",
            "llama/model-00002-of-00002.safetensors",
            "llama/original/consolidated.00.pth",
            "org/qwen/config.json",
            "org/qwen/model.safetensors",
            "README",
        ];
        assert_eq!(models(&names), expected(&[("llama", 4), ("org/qwen", 2)]));
        let pipeline = [
            "sd/model_index.json",
            "sd/unet/config.json",
            "sd/unet/a.safetensors",
            "sd/vae/b.safetensors",
            "other/pytorch_model.bin.index.json",
            "other/pytorch_model-1.bin",
            "other/adapter.bin",
        ];
        assert_eq!(models(&pipeline), expected(&[("other", 3), ("sd", 4)]));
        // the root itself is a model, whatever is below it
        let root = ["config.json", "a.safetensors", "b/c.gguf", "b/config.json"];
        assert_eq!(models(&root), expected(&[("", 4)]));
    }

    #[test]
    fn loose_files_are_models_of_their_own_unless_they_differ_in_numbers_only() {
        let names = [
            "sd_xl.safetensors",
            "flux.safetensors",
            "notes.txt",
            "llama-7b.gguf",
            "llama-13b.gguf",
            "big-00001-of-00002.gguf",
            "big-00002-of-00002.gguf",
            "ranks/consolidated.00.pth",
            "ranks/consolidated.01.pth",
        ];
        let of = [
            ("big-#-of-00002.gguf", 2),
            ("flux.safetensors", 1),
            ("llama-13b.gguf", 1),
            ("llama-7b.gguf", 1),
            ("ranks/consolidated.#.pth", 2),
            ("sd_xl.safetensors", 1),
        ];
        assert_eq!(models(&names), expected(&of));
    }

    #[test]
    fn without_weights_all_files_are_one_model() {
        assert_eq!(models(&["a", "b/c.json"]), expected(&[("", 2)]));
    }

    #[test]
    fn snapshots_of_the_same_blobs_are_one_model() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir(root.join("blobs")).unwrap();
        for blob in ["weights", "old", "new"] {
            fs::write(root.join("blobs").join(blob), blob).unwrap();
        }
        for (snapshot, config) in [("s/1", "old"), ("s/2", "new")] {
            fs::create_dir_all(root.join(snapshot)).unwrap();
            for (name, blob) in [("config.json", config), ("model.safetensors", "weights")] {
                let target = Path::new("../../blobs").join(blob);
                std::os::unix::fs::symlink(target, root.join(snapshot).join(name)).unwrap();
            }
        }
        let models = || -> Vec<_> {
            let namespace = Arc::new(Namespace::scan(root).unwrap());
            let models = models_below(&namespace, Path::new(""));
            models.iter().map(ModelFiles::path).collect()
        };
        assert_eq!(models(), [Path::new("s/1")]);
        // other weights
        fs::write(root.join("s/2/adapter.safetensors"), b"2").unwrap();
        assert_eq!(models(), [Path::new("s/1"), Path::new("s/2")]);
    }
}
