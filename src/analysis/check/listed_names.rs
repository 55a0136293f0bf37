//! The names in a list of digests, and the files of a model that they mean.

use std::collections::{HashMap, HashSet};
use std::path::{Component, Path};

use crate::base::error::Result;
use crate::base::limits::Budget;

use super::checked_model::CheckedModel;
use super::digest_list::DigestList;
use super::places::{below, weight_stem};

const WHAT: &str = "the names in the list of digests";

/// The file of an entry.
pub(super) enum FoundFile {
    /// Its path below the model's directory.
    File(String),
    Missing,
    /// Several entries could be about the file.
    Ambiguous,
}

/// The files of a model as a list may name them.
pub(super) struct ListedNames<'m> {
    model: &'m CheckedModel<'m>,
    shown: HashSet<String>,
    /// The number of entries with each last part of a name.
    entries: HashMap<&'m str, usize>,
    /// The last parts of names with an entry in a directory that is called as the model's.
    own: HashSet<&'m str>,
    /// The name of the model's directory.
    folder: Option<String>,
}

impl<'m> ListedNames<'m> {
    pub(super) fn new(
        model: &'m CheckedModel<'m>,
        list: &'m DigestList,
        budget: &Budget,
    ) -> Result<Self> {
        const ROW: u64 = 2 * size_of::<(&str, usize)>() as u64;
        budget.memory(ROW * list.entries.len() as u64, WHAT)?;
        let paths = model.paths.iter();
        let shown: HashSet<String> = paths.map(|path| below(model.root, path)).collect();
        budget.memory(shown.iter().map(|name| 64 + name.len() as u64).sum(), WHAT)?;
        let folder = std::fs::canonicalize(model.root).ok();
        let folder = folder.as_deref().and_then(Path::file_name);
        let folder = folder.map(|name| name.to_string_lossy().into_owned());
        let (mut entries, mut own) = (HashMap::new(), HashSet::new());
        for entry in list.entries.iter().filter(|entry| entry.tensor.is_none()) {
            let last = last_part(&entry.file);
            *entries.entry(last).or_default() += 1;
            if folder.as_deref() == Some(folder_of(&entry.file)) {
                own.insert(last);
            }
        }
        Ok(Self {
            model,
            shown,
            entries,
            own,
            folder,
        })
    }

    fn is_there(&self, name: &str) -> bool {
        self.shown.contains(name)
            || (self.model.whole && self.model.files.exists(&self.model.root.join(name)))
    }

    /// The file of weights whose name is this one and an ending: `m.safetensors` of `m.sha256`.
    fn of_stem(&self, stem: &str) -> FoundFile {
        let names = self.shown.iter();
        let mut found = names.filter(|name| weight_stem(name) == Some(stem));
        match (found.next(), found.next()) {
            (Some(only), None) => FoundFile::File(only.clone()),
            (Some(_), Some(_)) => FoundFile::Ambiguous,
            (None, _) => FoundFile::Missing,
        }
    }

    pub(super) fn find(&self, name: &str, subject: Option<&str>) -> FoundFile {
        if name.is_empty() {
            let only = || self.shown.iter().next().filter(|_| self.shown.len() == 1);
            let file = subject.or_else(|| only().map(String::as_str));
            return match file.filter(|file| self.is_there(file)) {
                Some(file) => FoundFile::File(file.to_owned()),
                None => subject.map_or(FoundFile::Missing, |stem| self.of_stem(stem)),
            };
        }
        if let Some(name) = plain(name).filter(|name| self.is_there(name)) {
            return FoundFile::File(name);
        }
        // a list that was made elsewhere has that machine's paths, or those below another directory
        let last = last_part(name);
        if last.len() == name.len() || !self.shown.contains(last) {
            return FoundFile::Missing;
        }
        if self.own.contains(last) {
            return match self.folder.as_deref() == Some(folder_of(name)) {
                true => FoundFile::File(last.to_owned()),
                // a file of the same name of another model
                false => FoundFile::Missing,
            };
        }
        match self.entries.get(last) {
            Some(1) => FoundFile::File(last.to_owned()),
            _ => FoundFile::Ambiguous,
        }
    }
}

/// The name of the directory that a name has its last part in.
fn folder_of(name: &str) -> &str {
    let parent = &name[..name.len() - last_part(name).len()];
    last_part(parent.trim_end_matches(['/', '\\']))
}

/// The part of a name behind its last separator, of either kind of system.
fn last_part(name: &str) -> &str {
    name.rsplit(['/', '\\']).next().unwrap_or(name)
}

/// A name as a path below the model's directory; `None` if it is anything else.
fn plain(name: &str) -> Option<String> {
    let mut parts = Vec::new();
    for part in Path::new(name).components() {
        match part {
            Component::Normal(part) => parts.push(part.to_str()?),
            Component::CurDir => {}
            // absolute paths and `..` would compare files outside of the model
            _ => return None,
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_below_the_directory() {
        assert_eq!(plain("./a/b.bin").as_deref(), Some("a/b.bin"));
        for outside in ["../a", "/a", "a/../../b", ""] {
            assert_eq!(plain(outside), None, "{outside}");
        }
    }
}
