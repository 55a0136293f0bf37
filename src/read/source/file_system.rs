//! The access to names, directories and files that opening has, wherever they are.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::error::Result;
use crate::base::limits::{Budget, TemporaryCharge};
use crate::base::progress::CancelToken;

use super::Source;

/// A path, and who named it, which decides about its links: a path of the caller's is followed wherever it leads. The
/// files that a directory holds, or a file in it names, may be another user's, and links lead only where
/// [`anamnesis_os::links::open_below`] follows them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NamedPath<'p> {
    /// The caller's own path.
    Given(&'p Path),
    /// A path below a directory, whose contents name it.
    Below { directory: &'p Path, path: &'p Path },
}

impl<'p> NamedPath<'p> {
    /// A path below `directory`; of any other path, what is in its own directory.
    pub(crate) fn below(directory: &'p Path, path: &'p Path) -> Self {
        Self::Below { directory, path }
    }

    /// An entry of the directory that its path says.
    pub(crate) fn in_its_directory(path: &'p Path) -> Self {
        let directory = path.parent().unwrap_or(Path::new(""));
        Self::Below { directory, path }
    }

    /// The whole path.
    pub(crate) fn path(self) -> &'p Path {
        match self {
            Self::Given(path) | Self::Below { path, .. } => path,
        }
    }
}

/// The operations that opening needs of the place where files are.
pub(crate) trait FileSystem: Send + Sync {
    /// Whether a path is a directory. A path that does not exist is none.
    fn is_directory(&self, path: &Path) -> bool;

    /// Whether a path is a file, as far as this is known without opening it.
    fn is_file(&self, path: &Path) -> bool;

    /// Whether something has this path. `true` where only opening it would answer that: the error then comes from there.
    fn exists(&self, path: &Path) -> bool;

    /// Passes the `wanted` names in a directory that are not directories to `each`, in an unspecified order.
    fn list(
        &self,
        directory: &Path,
        wanted: &dyn Fn(&OsStr) -> bool,
        each: &mut dyn FnMut(OsString) -> Result<()>,
    ) -> Result<()>;

    /// The names in a directory, where they are known from an earlier list. Listing would be a request of its own.
    fn known_names(&self, directory: &Path) -> Option<Vec<String>> {
        let _ = directory;
        None
    }

    /// Passes all names in a directory to `each`, with whether each is a directory, in an unspecified order.
    fn list_with_folders(
        &self,
        directory: &Path,
        each: &mut dyn FnMut(OsString, bool) -> Result<()>,
    ) -> Result<()> {
        self.list(directory, &|_| true, &mut |name| each(name, false))
    }

    /// Passes all files at any depth below a directory to `each`, by their paths below it, in an unspecified order. `false`: this place lists one directory at a time.
    fn list_below(
        &self,
        directory: &Path,
        each: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<bool> {
        let _ = (directory, each);
        Ok(false)
    }

    /// Opens a path of the caller's, which may also be a directory or, locally, a pipe, whose reads end when the token is
    /// cancelled.
    fn open_path(
        &self,
        path: &Path,
        mapping: MapMode,
        cancel: Option<&CancelToken>,
        budget: &Budget,
    ) -> Result<OpenedPath> {
        let _ = cancel;
        if self.is_directory(path) {
            return Ok(OpenedPath::Directory);
        }
        let source = self.open_named(NamedPath::Given(path), mapping, budget)?;
        Ok(OpenedPath::File(source))
    }

    /// Checks that the links of a directory below another one are followed.
    fn check_directory(&self, directory: &Path, path: &Path) -> Result<()> {
        let _ = (directory, path);
        Ok(())
    }

    /// Opens a file that an index or a directory names, which must be a regular one.
    fn open_named(
        &self,
        path: NamedPath<'_>,
        mapping: MapMode,
        budget: &Budget,
    ) -> Result<Arc<dyn Source>>;

    /// Reads a regular file whole, and charges its length while the second value lives.
    fn read_whole<'b>(
        &self,
        path: NamedPath<'_>,
        budget: &'b Budget,
        what: &str,
    ) -> Result<(Vec<u8>, TemporaryCharge<'b>)>;

    /// The same, and the open file where it is of the operating system: while it is open, no other file gets its number.
    fn read_held<'b>(
        &self,
        path: NamedPath<'_>,
        budget: &'b Budget,
        what: &str,
    ) -> Result<(Vec<u8>, TemporaryCharge<'b>, Option<File>)> {
        let (text, charge) = self.read_whole(path, budget, what)?;
        Ok((text, charge, None))
    }

    /// Announces files that will be opened or read whole, in this order, so that their requests run side by side. A hint;
    /// never an error.
    fn begin(&self, paths: &mut dyn Iterator<Item = PathBuf>) {
        let _ = paths;
    }

    /// Opening has ended: cancelling it has no effect on later reads.
    fn opened(&self) {}

    /// The digest that the place states of a file, without a look at its bytes.
    fn stated_digest(&self, _path: &Path) -> Option<String> {
        None
    }

    /// Whether the files belong to the operating system, by the same paths.
    fn is_local(&self) -> bool {
        false
    }
}

/// How local files are mapped; elsewhere without effect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapMode {
    /// See [`OpenOptions::mmap`](crate::OpenOptions::mmap).
    pub(crate) mmap: bool,
    /// See [`OpenOptions::private`](crate::OpenOptions::private).
    pub(crate) private: bool,
}

/// An opened path.
pub(crate) enum OpenedPath {
    Directory,
    File(Arc<dyn Source>),
}
