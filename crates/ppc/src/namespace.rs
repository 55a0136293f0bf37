//! A directory whose files a policy decides for: which inode is which file, and nothing outside.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags, Stat, openat2};
use rustix::io::Errno;

use crate::error::{Error, ErrorKind, Result};
use crate::event::Inode;
use crate::io::Io;

/// Files of one namespace; more is a directory that was not meant.
const FILES: usize = 1 << 20;
/// Directories below each other.
const DEPTH: usize = 64;
/// A file that was written to so lately may not be whole.
const YOUNG: Duration = Duration::from_secs(1);
/// For reading; a pipe is not waited for.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NOCTTY).union(OFlags::NONBLOCK);

/// A regular file of a [`Namespace`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Relative to the root. A file that several names or symbolic links lead to has the first by order.
    pub path: Arc<Path>,
    /// As events name it.
    pub inode: Inode,
    /// Bytes, when it was scanned.
    pub len: u64,
}

impl Entry {
    /// All of its bytes.
    pub fn whole(&self) -> Io {
        Io {
            path: Arc::clone(&self.path),
            start: 0,
            len: self.len,
            device: None,
        }
    }
}

/// A directory, as it was when it was scanned.
///
/// Symbolic links are followed as far as they stay beneath the root (as in a model hub's cache, whose snapshots link to
/// its blobs); what leads out of it is not part of the namespace, and cannot be opened through it.
#[derive(Debug)]
pub struct Namespace {
    root: PathBuf,
    dir: File,
    entries: Vec<Entry>,
    inodes: HashMap<Inode, usize>,
    paths: HashMap<Arc<Path>, usize>,
    /// Relative to the root, which is the first.
    dirs: Vec<(PathBuf, Inode)>,
}

impl Namespace {
    /// Scans a directory. Names are taken in order, so that two scans of the same tree are equal.
    ///
    /// # Errors
    ///
    /// `root` is no directory or cannot be read; more than 2²⁰ files.
    pub fn scan(root: &Path) -> Result<Self> {
        Self::scan_after(root, None).map(|(namespace, _)| namespace)
    }

    /// Scans it again: what it has now, if that is something else, and whether it has files that are not whole yet. Those
    /// that are new or changed and were written to a moment ago are left out.
    ///
    /// # Errors
    ///
    /// As [`scan`](Self::scan).
    pub(crate) fn again(&self) -> Result<(Option<Self>, bool)> {
        let (now, young) = Self::scan_after(&self.root, Some(self))?;
        let same = now.entries == self.entries && now.paths == self.paths && now.dirs == self.dirs;
        Ok(((!same).then_some(now), young))
    }

    fn scan_after(root: &Path, before: Option<&Self>) -> Result<(Self, bool)> {
        let in_root = |error: Error| error.in_file(root);
        let root = std::fs::canonicalize(root).map_err(|e| in_root(e.into()))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(&root, flags, Mode::empty()).map_err(|e| in_root(e.into()))?;
        let (entries, inodes, paths, dirs) =
            (Vec::new(), HashMap::new(), HashMap::new(), Vec::new());
        let mut namespace = Self {
            root,
            dir: dir.into(),
            entries,
            inodes,
            paths,
            dirs,
        };
        let young = namespace.fill(before)?;
        Ok((namespace, young))
    }

    /// The directory, without symbolic links.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Its files, by name.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Which file an inode is.
    pub fn find(&self, inode: Inode) -> Option<&Entry> {
        self.inodes.get(&inode).map(|&entry| &self.entries[entry])
    }

    /// The file of a name relative to the root; any of its names.
    pub fn get(&self, path: &Path) -> Option<&Entry> {
        self.paths.get(path).map(|&entry| &self.entries[entry])
    }

    /// Names of its files, and which they are.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&Arc<Path>, &Entry)> {
        self.paths
            .iter()
            .map(|(name, &entry)| (name, &self.entries[entry]))
    }

    /// Its directories, the root first.
    pub(crate) fn dirs(&self) -> impl Iterator<Item = PathBuf> {
        self.dirs.iter().map(|(path, _)| self.root.join(path))
    }

    /// Opens a file for reading, if it is still the one that was scanned.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Stale`] if another file has its name by now, or its length changed; the system's errors.
    pub fn open(&self, entry: &Entry) -> Result<File> {
        let file = self
            .beneath(&entry.path, READ)
            .map_err(|e| Error::from(e).in_file(&entry.path))?;
        let stat = rustix::fs::fstat(&file)?;
        let len = u64::try_from(stat.st_size).unwrap_or(0);
        if Inode::of(&stat) != entry.inode || len != entry.len {
            let what =
                "the file was replaced or changed since the directory was scanned; scan it again";
            return Err(Error::new(ErrorKind::Stale(what.into())).in_file(&entry.path));
        }
        Ok(file)
    }

    /// Opens what has this name, unless that leads out of the root.
    fn beneath(&self, path: &Path, flags: OFlags) -> Result<File, Errno> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        openat2(
            &self.dir,
            path,
            flags | OFlags::CLOEXEC,
            Mode::empty(),
            resolve,
        )
        .map(File::from)
    }

    /// Whether something was left out that is new or changed since `before`, and young.
    fn fill(&mut self, before: Option<&Self>) -> Result<bool> {
        let mut left = vec![(PathBuf::new(), 0)];
        let (mut seen, mut left_out) = (HashSet::new(), false);
        while let Some((at, depth)) = left.pop() {
            let name = if at.as_os_str().is_empty() {
                Path::new(".")
            } else {
                &at
            };
            let Ok(dir) = self.beneath(name, READ | OFlags::DIRECTORY) else {
                continue;
            }; // gone, or closed to us
            let stat = rustix::fs::fstat(&dir)?;
            if !seen.insert(Inode::of(&stat)) {
                continue; // a link to where we have been
            }
            self.dirs.push((at.clone(), Inode::of(&stat)));
            let mut names = Vec::new();
            for entry in Dir::read_from(&dir)? {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                if name != b"." && name != b".." {
                    names.push(
                        at.join(
                            <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(name),
                        ),
                    );
                }
            }
            names.sort_unstable();
            let first = left.len();
            for path in names {
                // gone, or out of the root
                let Ok(file) = self.beneath(&path, OFlags::PATH) else {
                    continue;
                };
                let stat = rustix::fs::fstat(&file)?;
                match FileType::from_raw_mode(stat.st_mode) {
                    FileType::RegularFile
                        if before.is_some_and(|before| {
                            before.lacks(&path, &stat) && is_young(&file)
                        }) =>
                    {
                        left_out = true;
                    }
                    FileType::RegularFile => self.add(&path, &stat)?,
                    FileType::Directory if depth < DEPTH => left.push((path, depth + 1)),
                    _ => {}
                }
            }
            // the first is next
            left[first..].reverse();
        }
        Ok(left_out)
    }

    fn lacks(&self, path: &Path, stat: &Stat) -> bool {
        let same = |entry: &Entry| {
            entry.inode == Inode::of(stat) && u64::try_from(stat.st_size) == Ok(entry.len)
        };
        !self.get(path).is_some_and(same)
    }

    fn add(&mut self, path: &Path, stat: &Stat) -> Result<()> {
        if self.paths.len() == FILES {
            let what = format!("more than {FILES} files; give the directory of the models");
            return Err(Error::new(ErrorKind::Limit(what)).in_file(&self.root));
        }
        let path: Arc<Path> = path.into();
        let inode = Inode::of(stat);
        let entry = *self.inodes.entry(inode).or_insert(self.entries.len());
        if entry == self.entries.len() {
            let len = u64::try_from(stat.st_size).unwrap_or(0);
            self.entries.push(Entry {
                path: Arc::clone(&path),
                inode,
                len,
            });
        }
        self.paths.insert(path, entry);
        Ok(())
    }
}

/// A clock that is ahead, as of another machine, makes nothing young.
fn is_young(file: &File) -> bool {
    let written = file.metadata().and_then(|meta| meta.modified());
    written.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < YOUNG))
}
