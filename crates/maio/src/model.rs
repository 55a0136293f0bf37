//! The model that a policy decides for: its files, and which service it is served by.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anamnesis_ppc::cache::peek;
use anamnesis_ppc::{Entry, Namespace};
use anamnesis_template::{ContentKey, File, ServiceId, Template, service_id};

/// Endings of files that hold weights.
const WEIGHTS: [&str; 9] = [
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
/// Directories below each other.
const DEPTH: usize = 16;

/// A directory of a namespace, as a model.
#[derive(Debug)]
pub(crate) struct Model {
    namespace: Arc<Namespace>,
    under: PathBuf,
    /// Names relative to the model, of files as the namespace names them.
    names: HashMap<Arc<Path>, Box<str>>,
}

/// The id under which the template of a model and its run-time parameters is kept: [`service_id`] of its files of
/// weights (of all its files, if none has such an ending) with lengths and content keys. `model` is relative to the
/// namespace's root.
///
/// ```
/// use std::path::Path;
/// use std::sync::Arc;
///
/// use anamnesis_maio::service;
/// use anamnesis_ppc::Namespace;
///
/// # let models = tempfile::tempdir()?;
/// # std::fs::write(models.path().join("model.safetensors"), [0; 4096])?;
/// let namespace = Arc::new(Namespace::scan(models.path())?);
/// let id = service(&namespace, Path::new(""), [("tp", "4")]);
/// println!("{id}.iot");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn service<'p>(
    namespace: &Arc<Namespace>,
    model: &Path,
    parameters: impl IntoIterator<Item = (&'p str, &'p str)>,
) -> ServiceId {
    Model::new(namespace, model).service(parameters)
}

impl Model {
    pub(crate) fn new(namespace: &Arc<Namespace>, under: &Path) -> Self {
        let mut names = HashMap::new();
        if under.as_os_str().is_empty() {
            let name = |entry: &Entry| Some((Arc::clone(&entry.path), entry.path.to_str()?.into()));
            names.extend(namespace.entries().iter().filter_map(name));
        } else {
            // files of a model may be links to elsewhere in the namespace
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

    /// The file of a name relative to the model.
    pub(crate) fn entry(&self, name: &str) -> Option<&Entry> {
        self.namespace.get(&self.under.join(name))
    }

    /// A file of the namespace, relative to the model, if it is part of it.
    pub(crate) fn name(&self, path: &Path) -> Option<&str> {
        self.names.get(path).map(|name| &**name)
    }

    /// Bytes of its files.
    pub(crate) fn nbytes(&self) -> u64 {
        let lens = self
            .names
            .values()
            .filter_map(|name| self.entry(name))
            .map(|entry| entry.len);
        lens.fold(0, u64::saturating_add)
    }

    /// What a file is now: length, time and key. Reads its first 64 KiB, and leaves the page cache as it was.
    pub(crate) fn probe(&self, name: &str) -> Option<File> {
        let opened = self.namespace.open(self.entry(name)?).ok()?;
        let about = opened.metadata().ok()?;
        File::of(name, &about, &peek(opened, ContentKey::HEAD).ok()?).ok()
    }

    /// Which of a template's files are not these, by length and key; by time where the template has no key. In words;
    /// `None` if all are.
    pub(crate) fn differs(&self, template: &Template) -> Option<String> {
        let same = |file: &&File| {
            let Some(now) = self.probe(&file.path) else {
                return false;
            };
            let older = file.key.is_none() && file.mtime.is_some() && file.mtime != now.mtime;
            file.same(&now) && !older
        };
        let wrong: Vec<_> = template.files().iter().filter(|file| !same(file)).collect();
        let first = wrong.first()?;
        let found = match self.entry(&first.path) {
            None => "is not there".into(),
            Some(entry) if entry.len != first.nbytes => {
                format!("has {} bytes, not {}", entry.len, first.nbytes)
            }
            Some(_) => "has another content".to_owned(),
        };
        let all = template.files().len();
        Some(format!(
            "{} of {all} files differ; {:?} {found}",
            wrong.len(),
            first.path
        ))
    }

    pub(crate) fn service<'p>(
        &self,
        parameters: impl IntoIterator<Item = (&'p str, &'p str)>,
    ) -> ServiceId {
        let weights = |name: &&str| {
            let ending = Path::new(name)
                .extension()
                .and_then(|ending| ending.to_str());
            ending.is_some_and(|ending| WEIGHTS.contains(&ending.to_ascii_lowercase().as_str()))
        };
        let all: Vec<&str> = self.names.values().map(|name| &**name).collect();
        let some: Vec<&str> = all.iter().copied().filter(weights).collect();
        let files: Vec<File> = if some.is_empty() { all } else { some }
            .iter()
            .filter_map(|name| self.probe(name))
            .collect();
        service_id(&files, parameters)
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
            if depth < DEPTH {
                walk(namespace, under, &name, depth + 1, found);
            }
        } else if let (Some(file), Some(text)) = (namespace.get(&under.join(&name)), name.to_str())
        {
            found.insert(text.into(), Arc::clone(&file.path));
        }
    }
}
