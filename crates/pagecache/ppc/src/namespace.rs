//! A scanned directory: which inode is which file. Outside of it, only files can be opened through it that links in it lead
//! to (`outside.rs` has the rule).

mod outside;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anamnesis_os::files::directory_of;
use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags, Stat, openat2};
use rustix::io::Errno;

use crate::error::{Error, ErrorKind, Result};
use crate::event::Inode;
use crate::file_range::FileRange;
use outside::OutsideFile;

/// Maximum number of files in a namespace. More indicate that the wrong directory was given, such as `/`.
const MAX_FILES: usize = 1 << 20;
/// Maximum depth of the directory tree.
const MAX_DEPTH: usize = 64;
/// A new file that was modified more recently than this is taken to be still in the process of being written.
const SETTLE_TIME: Duration = Duration::from_secs(1);
/// `NONBLOCK`, because opening a named pipe would otherwise wait for a writer.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NOCTTY).union(OFlags::NONBLOCK);

/// A regular file of a [`Namespace`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEntry {
    /// The path relative to the root. If several names or symbolic links lead to the file, the first in scan order.
    pub path: Arc<Path>,
    /// The inode, as events identify it.
    pub inode: Inode,
    /// Length in bytes at the time of the scan.
    pub len: u64,
}

impl FileEntry {
    /// The range that covers the whole file.
    pub fn whole(&self) -> FileRange {
        FileRange {
            path: Arc::clone(&self.path),
            start: 0,
            len: self.len,
            device: None,
        }
    }
}

/// The files of a directory tree at the time of a scan.
///
/// Symbolic links below the root are followed. A model hub's cache relies on that: its snapshots link to its blobs. A link to
/// a regular file outside of the root is followed if it was made by root, by the user of this process, or by the owner of
/// that file; [`outside`](Self::outside) lists these files. Other files outside of the root are not part of the namespace and
/// cannot be opened through it.
#[derive(Debug)]
pub struct Namespace {
    root: PathBuf,
    dir: File,
    entries: Vec<FileEntry>,
    /// Indices into `entries`.
    by_inode: HashMap<Inode, usize>,
    /// Indices into `entries`; several names may lead to one entry.
    by_path: HashMap<Arc<Path>, usize>,
    /// Where the files outside of the root are, by their names below it.
    outside: BTreeMap<Arc<Path>, PathBuf>,
    /// All directories, relative to the root, which is the first.
    dirs: Vec<(PathBuf, Inode)>,
    /// Whether the caller named the files: see [`of_files`](Self::of_files).
    is_named: bool,
}

impl Namespace {
    /// Scans a directory tree. Names are visited in sorted order, so that two scans of the same tree are equal.
    ///
    /// # Errors
    ///
    /// `root` is no directory or cannot be read, or the tree has more than 2²⁰ files.
    pub fn scan(root: &Path) -> Result<Self> {
        Self::scan_after(root, None).map(|(namespace, _)| namespace)
    }

    /// Scans the directory again. Returns the new state if it differs from this one, and whether files were skipped because
    /// they are still being written: those that are new or changed and were modified within the last second.
    ///
    /// # Errors
    ///
    /// The errors of [`scan`](Self::scan).
    pub(crate) fn rescan(&self) -> Result<(Option<Self>, bool)> {
        let (now, incomplete) = Self::scan_after(&self.root, Some(self))?;
        let unchanged =
            now.entries == self.entries && now.by_path == self.by_path && now.dirs == self.dirs;
        Ok(((!unchanged).then_some(now), incomplete))
    }

    /// The files with these paths relative to `root`, and no others: those that a catalog or a template names. Links are
    /// followed wherever they lead, because the caller names each file itself; what they lead to must be a regular file.
    ///
    /// # Errors
    ///
    /// `root` is no directory, or a file does not exist or is not a regular one.
    ///
    /// ```
    /// use std::path::Path;
    /// use anamnesis_ppc::Namespace;
    ///
    /// let dir = tempfile::tempdir()?;
    /// std::fs::write(dir.path().join("blob"), [0; 100])?;
    /// std::fs::create_dir(dir.path().join("snapshot"))?;
    /// std::os::unix::fs::symlink("../blob", dir.path().join("snapshot/model.gguf"))?;
    /// let namespace = Namespace::of_files(&dir.path().join("snapshot"), ["model.gguf"])?;
    /// assert_eq!(namespace.entries()[0].len, 100);
    /// assert!(namespace.outside().all(|(_, path)| path.ends_with("blob")));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn of_files(
        root: &Path,
        paths: impl IntoIterator<Item = impl AsRef<Path>>,
    ) -> Result<Self> {
        let mut namespace = Self {
            is_named: true,
            ..Self::empty(root)?
        };
        for path in paths {
            let path = path.as_ref();
            let resolved = outside::resolve_named(&namespace.dir, path).map_err(|e| match e {
                Errno::INVAL => Error::invalid("not a regular file"),
                e => e.into(),
            });
            let resolved = resolved.map_err(|e| e.in_file(&namespace.root.join(path)))?;
            // without links it is opened as every file below the root is
            let outside = namespace
                .open_beneath(path, OFlags::PATH)
                .is_err()
                .then_some(resolved.path);
            namespace.add(path, &resolved.stat, outside)?;
        }
        Ok(namespace)
    }

    fn scan_after(root: &Path, before: Option<&Self>) -> Result<(Self, bool)> {
        let mut namespace = Self::empty(root)?;
        let incomplete = namespace.walk(before)?;
        Ok((namespace, incomplete))
    }

    /// A directory of which no file is known yet.
    fn empty(root: &Path) -> Result<Self> {
        let in_root = |error: Error| error.in_file(root);
        let root = std::fs::canonicalize(root).map_err(|e| in_root(e.into()))?;
        // held open: all later paths are resolved from this directory, even if it is renamed
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(&root, flags, Mode::empty()).map_err(|e| in_root(e.into()))?;
        Ok(Self {
            root,
            dir: dir.into(),
            entries: Vec::new(),
            by_inode: HashMap::new(),
            by_path: HashMap::new(),
            outside: BTreeMap::new(),
            dirs: Vec::new(),
            is_named: false,
        })
    }

    /// The absolute path of the directory, without symbolic links.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// All files, in scan order.
    pub fn entries(&self) -> &[FileEntry] {
        &self.entries
    }

    /// The file with this inode.
    pub fn find(&self, inode: Inode) -> Option<&FileEntry> {
        self.by_inode.get(&inode).map(|&entry| &self.entries[entry])
    }

    /// The file with this path relative to the root; any of its names will do.
    pub fn get(&self, path: &Path) -> Option<&FileEntry> {
        self.by_path.get(path).map(|&entry| &self.entries[entry])
    }

    /// All names relative to the root, in no particular order, with the file that each leads to.
    pub fn names(&self) -> impl Iterator<Item = (&Arc<Path>, &FileEntry)> {
        self.by_path
            .iter()
            .map(|(name, &entry)| (name, &self.entries[entry]))
    }

    /// The names that are links to files outside of the root, and the paths of those files without links.
    pub fn outside(&self) -> impl ExactSizeIterator<Item = (&Path, &Path)> {
        self.outside.iter().map(|(name, path)| (&**name, &**path))
    }

    /// The absolute paths of all directories, the root first, and of those that files outside of the root are in.
    pub(crate) fn dirs(&self) -> impl Iterator<Item = PathBuf> {
        let outside: BTreeSet<&Path> = self
            .outside
            .values()
            .filter_map(|path| path.parent())
            .collect();
        let below = self.dirs.iter().map(|(path, _)| self.root.join(path));
        below.chain(outside.into_iter().map(Path::to_owned))
    }

    /// Opens a file for reading, provided that it is still the one that was scanned.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Stale`] if another file has its name by now or its length changed; otherwise the error of the system
    /// call.
    pub fn open(&self, entry: &FileEntry) -> Result<File> {
        let in_file = |e: Errno| Error::from(e).in_file(&entry.path);
        let opened = if self.outside.contains_key(&entry.path) {
            let resolved = if self.is_named {
                outside::resolve_named(&self.dir, &entry.path)
            } else {
                self.parent(&entry.path)
                    .and_then(|(parent, name)| outside::resolve(&parent, name))
            };
            outside::open(&resolved.map_err(in_file)?, entry.inode).map_err(in_file)?
        } else {
            Some(self.open_beneath(&entry.path, READ).map_err(in_file)?)
        };
        let stale = || {
            let what =
                "the file was replaced or changed since the directory was scanned; scan it again";
            Error::new(ErrorKind::Stale(what.into())).in_file(&entry.path)
        };
        let file = opened.ok_or_else(stale)?;
        let stat = rustix::fs::fstat(&file)?;
        let len = u64::try_from(stat.st_size).unwrap_or(0);
        if Inode::of(&stat) != entry.inode || len != entry.len {
            return Err(stale());
        }
        Ok(file)
    }

    /// The directory that a path is in, opened, and its last component.
    fn parent<'p>(&self, path: &'p Path) -> Result<(File, &'p Path), Errno> {
        let name = path.file_name().ok_or(Errno::INVAL)?;
        let parent = self.open_beneath(directory_of(path), OFlags::PATH | OFlags::DIRECTORY)?;
        Ok((parent, Path::new(name)))
    }

    /// Opens `path`, unless it leads out of the root. The kernel checks that while it resolves the path (`BENEATH`), so
    /// that a link exchanged at the same time cannot escape.
    fn open_beneath(&self, path: &Path, flags: OFlags) -> Result<File, Errno> {
        // `NO_MAGICLINKS`: links of `/proc`, such as `/proc/self/fd/3`, lead anywhere and are not paths. Symbolic links
        // below the root are followed, since model hubs use them
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

    /// Visits the tree, depth first, and adds its files. Skips files that are new or changed since `before` and still
    /// being written; returns whether there were any.
    fn walk(&mut self, before: Option<&Self>) -> Result<bool> {
        let mut pending = vec![(PathBuf::new(), 0)];
        let (mut visited, mut incomplete) = (HashSet::new(), false);
        while let Some((dir_path, depth)) = pending.pop() {
            let name = if dir_path.as_os_str().is_empty() {
                Path::new(".")
            } else {
                &dir_path
            };
            let Ok(dir) = self.open_beneath(name, READ | OFlags::DIRECTORY) else {
                continue; // removed meanwhile, or not permitted
            };
            let stat = rustix::fs::fstat(&dir)?;
            if !visited.insert(Inode::of(&stat)) {
                continue; // a link to a directory that was visited already, perhaps a cycle
            }
            self.dirs.push((dir_path.clone(), Inode::of(&stat)));
            let mut names = Vec::new();
            for entry in Dir::read_from(&dir)? {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                if name != b"." && name != b".." {
                    names.push(dir_path.join(OsStr::from_bytes(name)));
                }
            }
            names.sort_unstable();
            let first = pending.len();
            for path in names {
                // `O_PATH`: a `stat` of whatever the name leads to, without opening pipes or devices
                let (file, stat, outside) = match self.open_beneath(&path, OFlags::PATH) {
                    Ok(file) => {
                        let stat = rustix::fs::fstat(&file)?;
                        (file, stat, None)
                    }
                    // it leads out of the root
                    Err(Errno::XDEV) => match self.resolve_outside(&dir, &path, before.is_none()) {
                        Some(OutsideFile { file, stat, path }) => (file, stat, Some(path)),
                        None => continue,
                    },
                    Err(_) => continue, // removed meanwhile, or not permitted
                };
                match FileType::from_raw_mode(stat.st_mode) {
                    FileType::RegularFile => {
                        if before.is_some_and(|before| {
                            before.is_changed(&path, &stat) && is_being_written(&file)
                        }) {
                            incomplete = true;
                        } else {
                            self.add(&path, &stat, outside)?;
                        }
                    }
                    FileType::Directory if depth < MAX_DEPTH => pending.push((path, depth + 1)),
                    _ => {}
                }
            }
            // `pending` is a stack: reversed, the first subdirectory is visited next
            pending[first..].reverse();
        }
        Ok(incomplete)
    }

    /// The file outside of the root that a link in `dir` leads to, if it may be followed.
    fn resolve_outside(&self, dir: &File, path: &Path, warns: bool) -> Option<OutsideFile> {
        let resolved = outside::resolve(dir, Path::new(path.file_name()?));
        if let (Err(Errno::ACCESS), true) = (&resolved, warns) {
            tracing::warn!(
                "{} is a link to a file outside of the directory that belongs to neither the owner of the link nor \
                 root; it is not followed",
                self.root.join(path).display()
            );
        }
        resolved.ok()
    }

    /// Whether `path` is new, or another file or length than in this namespace.
    fn is_changed(&self, path: &Path, stat: &Stat) -> bool {
        let same = |entry: &FileEntry| {
            entry.inode == Inode::of(stat) && u64::try_from(stat.st_size) == Ok(entry.len)
        };
        !self.get(path).is_some_and(same)
    }

    fn add(&mut self, path: &Path, stat: &Stat, outside: Option<PathBuf>) -> Result<()> {
        if self.by_path.len() == MAX_FILES {
            let what = format!(
                "the directory has more than {MAX_FILES} files; give the directory of the models"
            );
            return Err(Error::new(ErrorKind::Limit(what)).in_file(&self.root));
        }
        let path: Arc<Path> = path.into();
        let inode = Inode::of(stat);
        // one entry per inode, as events carry nothing else
        let entry = *self.by_inode.entry(inode).or_insert(self.entries.len());
        if entry == self.entries.len() {
            let len = u64::try_from(stat.st_size).unwrap_or(0);
            self.entries.push(FileEntry {
                path: Arc::clone(&path),
                inode,
                len,
            });
        }
        if let Some(outside) = outside {
            self.outside.insert(Arc::clone(&path), outside);
        }
        self.by_path.insert(path, entry);
        Ok(())
    }
}

/// Whether the file was modified within [`SETTLE_TIME`]. A time in the future, from the clock of another machine, does
/// not count, or the file would be skipped until then.
fn is_being_written(file: &File) -> bool {
    let modified = file.metadata().and_then(|meta| meta.modified());
    modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < SETTLE_TIME))
}
