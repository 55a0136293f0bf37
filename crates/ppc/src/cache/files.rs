//! Descriptors of a namespace's files, a few at a time.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use crate::cache::list::same;
use crate::error::{Error, ErrorKind, Result};
use crate::{Entry, Inode, Namespace};

/// The files that were used last, of one snapshot of a namespace.
#[derive(Debug)]
pub(super) struct Files {
    namespace: Arc<Namespace>,
    most: usize,
    /// The last one is at the end.
    open: Vec<Open>,
}

/// An open file, under the name it was asked for by.
#[derive(Debug)]
pub(super) struct Open {
    path: Arc<Path>,
    pub(super) entry: Entry,
    pub(super) file: File,
    /// How many bytes the kernel reads ahead at once.
    pub(super) ahead: u64,
}

impl Files {
    /// At most this many, and at least one.
    pub(super) fn new(namespace: &Arc<Namespace>, most: usize) -> Self {
        Self {
            namespace: Arc::clone(namespace),
            most,
            open: Vec::new(),
        }
    }

    pub(super) fn namespace(&self) -> &Arc<Namespace> {
        &self.namespace
    }

    /// A file, if it is still the one that was scanned.
    pub(super) fn open(&mut self, path: &Arc<Path>) -> Result<&Open> {
        let used = match self.open.iter().position(|open| same(&open.path, path)) {
            Some(at) => self.open.remove(at).check()?,
            None => {
                let Some(entry) = self.namespace.get(path) else {
                    return Err(
                        Error::invalid("no file of the namespace has this name").in_file(path)
                    );
                };
                let file = self.namespace.open(entry)?;
                if self.open.len() >= self.most {
                    self.open.remove(0);
                }
                Open {
                    path: Arc::clone(path),
                    entry: entry.clone(),
                    ahead: read_ahead(entry.inode),
                    file,
                }
            }
        };
        self.open.push(used);
        let at = self.open.len() - 1;
        Ok(&self.open[at])
    }

    /// Whether this file was used last.
    pub(super) fn is_at(&self, path: &Arc<Path>) -> bool {
        self.open.last().is_some_and(|open| same(&open.path, path))
    }
}

impl Open {
    /// Whether it still has a name and its length; what its name leads to is known only to who opens it anew.
    fn check(self) -> Result<Self> {
        let stat = rustix::fs::fstat(&self.file)?;
        if stat.st_nlink == 0 || u64::try_from(stat.st_size) != Ok(self.entry.len) {
            let what =
                "the file was replaced or changed since the directory was scanned; scan it again";
            return Err(Error::new(ErrorKind::Stale(what.into())).in_file(&self.path));
        }
        Ok(self)
    }
}

/// Of the device of a file; 8 MiB where it does not say, as more does no harm.
pub(super) fn read_ahead(inode: Inode) -> u64 {
    let (major, minor) = (inode.dev >> 20, inode.dev & 0xf_ffff);
    let kib = std::fs::read_to_string(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb")).ok();
    kib.and_then(|kib| kib.trim().parse::<u64>().ok()?.checked_mul(1024))
        .unwrap_or(8 << 20)
        .min(1 << 30)
}
