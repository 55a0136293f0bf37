//! Where a search finds names: the directories of this machine, the list of a bucket, or the one directory of a repository at a URL.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use anamnesis_os::entries::{EntryKind, list_below};

use crate::base::error::{Error, Result};
use crate::base::limits::{Budget, Limits, text_cost};
use crate::read::source::files::Files;

use super::listed_files::ListedFiles;
use super::names::SearchedNames;

const WHAT: &str = "the names of a directory";

/// Memory for the names of one directory, and for the list of a bucket.
pub(super) const NAMES_MEMORY: u64 = 48 << 20;

/// A list of names that is charged.
struct ChargedNames<'b> {
    entries: Vec<(OsString, EntryKind)>,
    budget: &'b Budget,
}

impl ChargedNames<'_> {
    fn push(&mut self, name: OsString, kind: EntryKind) -> Result<()> {
        self.budget.memory(text_cost(name.len()), WHAT)?;
        self.budget.push(&mut self.entries, (name, kind), WHAT)
    }
}

/// The place that is searched.
pub(crate) struct SearchPlace {
    root: Arc<Path>,
    kind: PlaceKind,
}

enum PlaceKind {
    Local,
    /// A place that lists one directory at a time.
    Directory(Files),
    /// A list of everything below the root.
    Tree(Files, KeyTree),
}

impl SearchPlace {
    /// A directory of this machine.
    pub(crate) fn local(root: &Path) -> Self {
        Self {
            root: root.into(),
            kind: PlaceKind::Local,
        }
    }

    /// A directory of a place, which is listed here where that is one request for many files.
    ///
    /// # Errors
    /// The errors of the list, and one of more names than fit in memory.
    pub(crate) fn of(files: Files, root: &Path) -> Result<Self> {
        let root: Arc<Path> = root.into();
        if files.is_local() {
            return Ok(Self::local(&root));
        }
        let kind = match KeyTree::of(&files, &root).map_err(|e| e.in_file(&root))? {
            Some(tree) => PlaceKind::Tree(files, tree),
            None => PlaceKind::Directory(files),
        };
        Ok(Self { root, kind })
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn root_arc(&self) -> Arc<Path> {
        Arc::clone(&self.root)
    }

    pub(crate) fn is_local(&self) -> bool {
        matches!(self.kind, PlaceKind::Local)
    }

    /// The names in a directory.
    pub(super) fn names(&self, directory: &Path, budget: &Budget) -> Result<SearchedNames> {
        let mut names = ChargedNames {
            entries: Vec::new(),
            budget,
        };
        let listed = match &self.kind {
            PlaceKind::Local => {
                let mut refused = None;
                let listed = list_below(&self.root, directory, &mut |name, kind| {
                    refused = names.push(name, kind).err();
                    refused.is_none()
                });
                refused.map_or(listed.map_err(Error::from), Err)
            }
            PlaceKind::Directory(files) => files.list(directory, &|_| true, &mut |name| {
                names.push(name, EntryKind::File)
            }),
            PlaceKind::Tree(_, tree) => tree.each_in(&self.key_of(directory), |name, kind| {
                names.push(name.into(), kind)
            }),
        };
        listed.map_err(|e| e.in_file(directory))?;
        Ok(SearchedNames::sorted(names.entries))
    }

    /// The key of a directory below the root, which ends in a slash unless it is the root's.
    fn key_of(&self, directory: &Path) -> String {
        let below = directory.strip_prefix(&self.root).unwrap_or(Path::new(""));
        let mut key = below.to_string_lossy().into_owned();
        if !key.is_empty() {
            key.push('/');
        }
        key
    }

    /// The files of a directory, as they are opened: where each access is a request, none is made for what the list says.
    pub(super) fn files_of(&self, directory: &Path, names: &SearchedNames) -> Files {
        match &self.kind {
            PlaceKind::Local => Files::default(),
            PlaceKind::Directory(files) | PlaceKind::Tree(files, _) => {
                Files::from_system(Arc::new(ListedFiles::new(files, directory, names)))
            }
        }
    }
}

/// The keys below a prefix of a bucket, sorted, in one text.
struct KeyTree {
    text: String,
    /// Where each key begins in the text, and one more for the end.
    starts: Vec<u32>,
}

impl KeyTree {
    /// The list of a place; `None` if it lists one directory at a time.
    fn of(files: &Files, root: &Path) -> Result<Option<Self>> {
        let budget = Budget::new(Limits {
            memory: NAMES_MEMORY,
            ..Limits::default()
        });
        let mut keys: Vec<Box<str>> = Vec::new();
        let is_listed = files.list_below(root, &mut |key| {
            budget.memory(text_cost(key.len()), WHAT)?;
            budget.push(&mut keys, key.into(), WHAT)
        })?;
        if !is_listed {
            return Ok(None);
        }
        keys.sort_unstable();
        let mut tree = Self {
            text: String::with_capacity(keys.iter().map(|key| key.len()).sum()),
            starts: vec![0],
        };
        for key in keys {
            tree.text.push_str(&key);
            let end = u32::try_from(tree.text.len()).expect("the limit on memory is below 4 GiB");
            tree.starts.push(end);
        }
        Ok(Some(tree))
    }

    fn key(&self, at: usize) -> &str {
        &self.text[self.starts[at] as usize..self.starts[at + 1] as usize]
    }

    /// The number of keys below `end` of which `is_before` holds; the keys are divided by it.
    fn first(&self, from: usize, is_before: impl Fn(&str) -> bool) -> usize {
        let (mut low, mut high) = (from, self.starts.len() - 1);
        while low < high {
            let middle = low + (high - low) / 2;
            match is_before(self.key(middle)) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }

    /// Calls `each` with the names directly behind a prefix.
    fn each_in(
        &self,
        prefix: &str,
        mut each: impl FnMut(&str, EntryKind) -> Result<()>,
    ) -> Result<()> {
        let mut at = self.first(0, |key| key < prefix);
        while at + 1 < self.starts.len() {
            let Some(below) = self.key(at).strip_prefix(prefix) else {
                break;
            };
            let Some((folder, _)) = below.split_once('/') else {
                each(below, EntryKind::File)?;
                at += 1;
                continue;
            };
            each(folder, EntryKind::Folder)?;
            // the keys of a folder follow one another
            let inside = format!("{prefix}{folder}/");
            at = self.first(at, |key| key.starts_with(&inside) || *key < *inside);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_keys_has_directories() {
        let keys = ["a", "a-b", "a.c/x", "a/b/c", "a/b/d", "a/e", "z/y/x"];
        let mut tree = KeyTree {
            text: String::new(),
            starts: vec![0],
        };
        for key in keys {
            tree.text.push_str(key);
            tree.starts.push(u32::try_from(tree.text.len()).unwrap());
        }
        let names = |prefix: &str| {
            let mut names = Vec::new();
            tree.each_in(prefix, |name, kind| {
                names.push((name.to_owned(), kind == EntryKind::Folder));
                Ok(())
            })
            .unwrap();
            names
        };
        let wanted = |names: &[(&str, bool)]| -> Vec<(String, bool)> {
            let owned = names.iter();
            owned.map(|(name, is)| ((*name).to_owned(), *is)).collect()
        };
        let root = [
            ("a", false),
            ("a-b", false),
            ("a.c", true),
            ("a", true),
            ("z", true),
        ];
        assert_eq!(names(""), wanted(&root));
        assert_eq!(names("a/"), wanted(&[("b", true), ("e", false)]));
        assert_eq!(names("a/b/"), wanted(&[("c", false), ("d", false)]));
        assert_eq!(names("z/"), wanted(&[("y", true)]));
        assert_eq!(names("n/"), wanted(&[]));
    }
}
