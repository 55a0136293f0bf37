//! Open descriptors of a namespace's files.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use crate::cache::pieces::same_path;
use crate::error::{Error, ErrorKind, Result};
use crate::{FileEntry, Inode, Namespace};

/// The most recently used files of one snapshot of a namespace.
#[derive(Debug)]
pub(super) struct DescriptorCache {
    namespace: Arc<Namespace>,
    capacity: usize,
    /// In the order of use; the latest is at the end.
    open: Vec<OpenFile>,
}

/// An open file, and the path under which it was requested.
#[derive(Debug)]
pub(super) struct OpenFile {
    path: Arc<Path>,
    pub(super) entry: FileEntry,
    pub(super) file: File,
    /// Read-ahead of its device in bytes.
    pub(super) read_ahead: u64,
}

impl DescriptorCache {
    /// A cache of at most `capacity` descriptors, and at least one.
    pub(super) fn new(namespace: &Arc<Namespace>, capacity: usize) -> Self {
        Self {
            namespace: Arc::clone(namespace),
            capacity,
            open: Vec::new(),
        }
    }

    pub(super) fn namespace(&self) -> &Arc<Namespace> {
        &self.namespace
    }

    /// Opens a file, or returns its cached descriptor.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Stale`] if the file is not the one that was scanned; [`ErrorKind::Invalid`] if the namespace has
    /// no file of this name; the system's error of opening it.
    pub(super) fn open(&mut self, path: &Arc<Path>) -> Result<&OpenFile> {
        let file = match self
            .open
            .iter()
            .position(|open| same_path(&open.path, path))
        {
            Some(at) => self.open.remove(at).check()?,
            None => {
                let Some(entry) = self.namespace.get(path) else {
                    return Err(
                        Error::invalid("no file of the namespace has this name").in_file(path)
                    );
                };
                let file = self.namespace.open(entry)?;
                if self.open.len() >= self.capacity {
                    // the file that was used longest ago
                    self.open.remove(0);
                }
                OpenFile {
                    path: Arc::clone(path),
                    entry: entry.clone(),
                    read_ahead: read_ahead(entry.inode),
                    file,
                }
            }
        };
        self.open.push(file);
        let at = self.open.len() - 1;
        Ok(&self.open[at])
    }

    /// Whether this file was used last.
    pub(super) fn is_latest(&self, path: &Arc<Path>) -> bool {
        self.open
            .last()
            .is_some_and(|open| same_path(&open.path, path))
    }
}

impl OpenFile {
    /// Returns an error if the file was unlinked or its length has changed. A rename that put another file at the
    /// path is not detected, because this descriptor still refers to the scanned file.
    fn check(self) -> Result<Self> {
        // by the descriptor and not by the path, which costs no look-up; see above for what this misses
        let stat = rustix::fs::fstat(&self.file)?;
        if stat.st_nlink == 0 || u64::try_from(stat.st_size) != Ok(self.entry.len) {
            let what =
                "the file was replaced or changed since the directory was scanned; scan it again";
            return Err(Error::new(ErrorKind::Stale(what.into())).in_file(&self.path));
        }
        Ok(self)
    }
}

/// Read-ahead in bytes of the device that holds an inode. 8 MiB if it is unknown: a value that is too large only
/// means that fewer threads read a queue, and that more cached bytes are read again.
pub(super) fn read_ahead(inode: Inode) -> u64 {
    let (major, minor) = (inode.dev >> 20, inode.dev & 0xf_ffff);
    let kib = std::fs::read_to_string(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb")).ok();
    kib.and_then(|kib| kib.trim().parse::<u64>().ok()?.checked_mul(1024))
        .unwrap_or(8 << 20)
        .min(1 << 30)
}
