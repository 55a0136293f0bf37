//! The files of a model that a policy manages: their names, whether a template describes them, and the service id.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anamnesis_ppc::cache::read_uncached;
use anamnesis_ppc::{FileEntry, Namespace};
use anamnesis_template::{ContentKey, File, ServiceId, Template, is_weight_file};

/// The files of one model in a namespace.
#[derive(Debug)]
pub(crate) struct ModelFiles {
    namespace: Arc<Namespace>,
    /// The directory that names are relative to.
    under: PathBuf,
    /// The part of the names that distinguishes the model from others in the same directory; empty if it is the whole
    /// directory.
    family: Box<str>,
    /// For each path in the namespace, the name relative to the model.
    names: HashMap<Arc<Path>, Box<str>>,
    /// Files that were read for the service id.
    probed: HashMap<Box<str>, File>,
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

/// Whether a file has the extension of weights.
pub(crate) fn is_weight(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    // nothing here reads ONNX, and programs load their weights from it
    let is_onnx = path
        .extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("onnx"));
    is_onnx || name.is_some_and(is_weight_file)
}

impl ModelFiles {
    /// All files below `under`.
    pub(crate) fn new(namespace: &Arc<Namespace>, under: &Path) -> Self {
        // Files of a model may be links to another directory of the namespace, as in a cache of a model hub.
        let below = namespace
            .names()
            .filter(|(name, _)| name.starts_with(under));
        let below = below.map(|(name, entry)| (&**name, entry)).collect();
        Self::of(namespace, under, "", below)
    }

    /// These files, by their names in the namespace.
    pub(crate) fn of(
        namespace: &Arc<Namespace>,
        under: &Path,
        family: &str,
        files: BTreeMap<&Path, &FileEntry>,
    ) -> Self {
        let mut names = HashMap::new();
        for (name, entry) in files {
            // the names of a template are text
            if let Some(name) = name.strip_prefix(under).ok().and_then(Path::to_str) {
                // the first of several names of one file
                names
                    .entry(Arc::clone(&entry.path))
                    .or_insert_with(|| name.into());
            }
        }
        Self {
            namespace: Arc::clone(namespace),
            under: under.into(),
            family: family.into(),
            names,
            probed: HashMap::new(),
        }
    }

    /// Returns the path of the model relative to the namespace's root, by which it is known between scans.
    pub(crate) fn path(&self) -> PathBuf {
        match &*self.family {
            "" => self.under.clone(),
            family => self.under.join(family),
        }
    }

    /// Returns the paths of its weights in the namespace.
    pub(crate) fn weights(&self) -> impl Iterator<Item = &Arc<Path>> {
        let all = self.names.iter();
        all.filter_map(|(path, name)| is_weight(Path::new(&**name)).then_some(path))
    }

    /// Returns the paths of all files in the namespace.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Arc<Path>> {
        self.names.keys()
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
        if let Some(known) = self.probed.get(name) {
            return Some(known.clone());
        }
        let opened = self.namespace.open(self.entry(name)?).ok()?;
        let metadata = opened.metadata().ok()?;
        File::of(
            name,
            &metadata,
            &read_uncached(opened, ContentKey::HEAD).ok()?,
        )
        .ok()
    }

    /// Returns in words how the files differ from the files of a template, by length and content key, and by modification
    /// time where the template has no key; `None` if they do not.
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
        &mut self,
        parameters: impl IntoIterator<Item = (&'p str, &'p str)>,
    ) -> ServiceId {
        let any_weights = self
            .names
            .values()
            .any(|name| is_weight(Path::new(&**name)));
        let files: Vec<File> = self
            .names
            .values()
            .filter(|name| !any_weights || is_weight(Path::new(&***name)))
            .filter_map(|name| self.probe(name))
            .collect();
        let id = anamnesis_template::service_id(&files, parameters);
        // a recording needs them at the first access of each file, while a reader waits
        self.probed = files
            .into_iter()
            .map(|file| (file.path.clone(), file))
            .collect();
        id
    }
}
