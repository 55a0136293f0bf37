//! Known facts about the files of a store, so that they are not requested again: configurations, which several parts of a
//! program read, and the names in a directory that was listed.

use std::collections::{HashSet, VecDeque};

use crate::error::{Error, ErrorKind, Result};
use crate::file::{KnownFile, RemoteFile};

/// Configurations of which what is known is kept.
const FILES: usize = 16;
/// Bytes of names of a directory.
const NAMES: usize = 1 << 20;

/// Known facts about the files of a store.
#[derive(Default)]
pub(super) struct KnownFiles {
    /// Configurations by path, in the order in which they were requested.
    files: VecDeque<(String, KnownFile)>,
    /// The directory that was listed last, and its names; without names, nothing is known of it.
    directory: String,
    names: HashSet<String>,
}

impl KnownFiles {
    /// A file that needs no request; `None` if it needs one.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) for a name that the listed directory does not have.
    pub(super) fn find(&self, path: &str) -> Result<Option<RemoteFile>> {
        let (directory, name) = path.rsplit_once('/').unwrap_or_default();
        // no names: nothing was listed, or more than is kept
        let is_listed = !self.names.is_empty() && directory == self.directory;
        if is_listed && is_simple(name) && !self.names.contains(name) {
            let what = "the list of its directory has no such file";
            return Err(Error::new(ErrorKind::NotFound, what));
        }
        let mut files = self.files.iter();
        let known = files.find(|(known, _)| known == path);
        Ok(known.and_then(|(_, file)| file.open()))
    }

    /// Notes that a file was requested.
    pub(super) fn requested(&mut self, path: &str, file: &RemoteFile) {
        if !path.ends_with(".json") || path.ends_with(".index.json") {
            return;
        }
        self.files.retain(|(known, _)| known != path);
        if self.files.len() == FILES {
            self.files.pop_front();
        }
        self.files.push_back((path.to_owned(), file.known()));
    }

    /// The names in the directory that was listed last, if they are kept.
    pub(super) fn names(&self, directory: &str) -> Option<Vec<String>> {
        let is_listed = !self.names.is_empty() && directory == self.directory;
        is_listed.then(|| self.names.iter().cloned().collect())
    }

    /// Notes the names of all files in a directory, unless they are long.
    pub(super) fn listed(&mut self, directory: &str, names: &[String]) {
        directory.clone_into(&mut self.directory);
        self.names.clear();
        if names.iter().map(String::len).sum::<usize>() <= NAMES {
            self.names.extend(names.iter().cloned());
        }
    }
}

/// Whether a list has the name as it is: services encode others in different forms.
fn is_simple(name: &str) -> bool {
    let is_simple = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    name.bytes().all(is_simple)
}
