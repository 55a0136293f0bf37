//! The files of the model that a policy manages: their names, whether a template describes them,
//! and the service id.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anamnesis_ppc::cache::read_uncached;
use anamnesis_ppc::{FileEntry, Namespace};
use anamnesis_template::{ContentKey, File, ServiceId, Template};

/// File name extensions of weights.
const WEIGHT_EXTENSIONS: [&str; 9] = [
    "safetensors",
    "gguf",
    "bin",
    "pt",
    "pth",
    "ckpt",
    "npz",
    "npy",
    "onnx",
];
/// Deepest nesting of directories that is searched for files of a model.
const MAX_DEPTH: usize = 16;

/// A directory of a namespace that holds a model.
#[derive(Debug)]
pub(crate) struct ModelFiles {
    namespace: Arc<Namespace>,
    under: PathBuf,
    /// For each path in the namespace, the name relative to the model.
    names: HashMap<Arc<Path>, Box<str>>,
}

/// Returns the id under which the template of a model with these run-time parameters is stored.
///
/// It is [`anamnesis_template::service_id`] of the model's weight files (of all files, if none has
/// the extension of a weight file), with their lengths and content keys. `model` is relative to the
/// namespace's root.
pub fn model_service_id<'p>(
    namespace: &Arc<Namespace>,
    model: &Path,
    parameters: impl IntoIterator<Item = (&'p str, &'p str)>,
) -> ServiceId {
    ModelFiles::new(namespace, model).service_id(parameters)
}

impl ModelFiles {
    pub(crate) fn new(namespace: &Arc<Namespace>, under: &Path) -> Self {
        let mut names = HashMap::new();
        if under.as_os_str().is_empty() {
            let name =
                |entry: &FileEntry| Some((Arc::clone(&entry.path), entry.path.to_str()?.into()));
            names.extend(namespace.entries().iter().filter_map(name));
        } else {
            // Files of a model may be links to another directory of the namespace, as in a cache of
            // a model hub.
            let mut found = BTreeMap::new();
            walk(namespace, under, Path::new(""), 0, &mut found);
            for (name, path) in found {
                names.entry(path).or_insert(name);
            }
        }
        Self {
            namespace: Arc::clone(namespace),
            under: under.into(),
            names,
        }
    }

    /// Returns the file with this name relative to the model.
    pub(crate) fn entry(&self, name: &str) -> Option<&FileEntry> {
        self.namespace.get(&self.under.join(name))
    }

    /// Returns the name of a file relative to the model; `None` if it is not part of it.
    pub(crate) fn name(&self, path: &Path) -> Option<&str> {
        self.names.get(path).map(|name| &**name)
    }

    /// Returns the number of bytes of all files.
    pub(crate) fn nbytes(&self) -> u64 {
        let lens = self
            .names
            .values()
            .filter_map(|name| self.entry(name))
            .map(|entry| entry.len);
        lens.fold(0, u64::saturating_add)
    }

    /// Returns a file's current length, modification time and content key. Reads its first 64 KiB
    /// and leaves the page cache unchanged: with read-ahead, this read once hid the service's first
    /// miss (docs/page-cache.md, "What was found").
    pub(crate) fn probe(&self, name: &str) -> Option<File> {
        let opened = self.namespace.open(self.entry(name)?).ok()?;
        let metadata = opened.metadata().ok()?;
        File::of(
            name,
            &metadata,
            &read_uncached(opened, ContentKey::HEAD).ok()?,
        )
        .ok()
    }

    /// Returns in words how the files differ from those of a template, by length and content key,
    /// and by modification time where the template has no key; `None` if they do not.
    pub(crate) fn difference(&self, template: &Template) -> Option<String> {
        let same = |file: &&File| {
            let Some(now) = self.probe(&file.path) else {
                return false;
            };
            // a copied model has other times and the same content, so times count only where there
            // is no key
            let older = file.key.is_none() && file.mtime.is_some() && file.mtime != now.mtime;
            file.same(&now) && !older
        };
        let wrong: Vec<_> = template.files().iter().filter(|file| !same(file)).collect();
        let first = wrong.first()?;
        let found = match self.entry(&first.path) {
            None => self.absent(&first.path),
            Some(entry) if entry.len != first.nbytes => {
                format!("has {} bytes instead of {}", entry.len, first.nbytes)
            }
            Some(_) => "has different content".to_owned(),
        };
        let all = template.files().len();
        Some(format!(
            "{} of {all} files differ; {:?} {found}",
            wrong.len(),
            first.path
        ))
    }

    /// Returns in words why the namespace has no file of this name.
    fn absent(&self, name: &str) -> String {
        let path = self.namespace.root().join(&self.under).join(name);
        match std::fs::read_link(path) {
            Ok(target) => format!("is a link to {target:?}, which is not followed"),
            Err(_) => "does not exist".to_owned(),
        }
    }

    pub(crate) fn service_id<'p>(
        &self,
        parameters: impl IntoIterator<Item = (&'p str, &'p str)>,
    ) -> ServiceId {
        let weights = |name: &&str| {
            let ending = Path::new(name)
                .extension()
                .and_then(|ending| ending.to_str());
            ending.is_some_and(|ending| {
                WEIGHT_EXTENSIONS.contains(&ending.to_ascii_lowercase().as_str())
            })
        };
        let all: Vec<&str> = self.names.values().map(|name| &**name).collect();
        let some: Vec<&str> = all.iter().copied().filter(weights).collect();
        let files: Vec<File> = if some.is_empty() { all } else { some }
            .iter()
            .filter_map(|name| self.probe(name))
            .collect();
        anamnesis_template::service_id(&files, parameters)
    }
}

fn walk(
    namespace: &Namespace,
    under: &Path,
    at: &Path,
    depth: usize,
    found: &mut BTreeMap<Box<str>, Arc<Path>>,
) {
    let Ok(entries) = std::fs::read_dir(namespace.root().join(under).join(at)) else {
        return;
    };
    for entry in entries.flatten() {
        let name = at.join(entry.file_name());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if depth < MAX_DEPTH {
                walk(namespace, under, &name, depth + 1, found);
            }
        } else if let (Some(file), Some(text)) = (namespace.get(&under.join(&name)), name.to_str())
        {
            found.insert(text.into(), Arc::clone(&file.path));
        }
    }
}
