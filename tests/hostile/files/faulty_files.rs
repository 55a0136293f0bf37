//! A file system in memory whose operations fail as a test decides (FUSE).

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    AccessFlags, BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType,
    Filesystem, FopenFlags, Generation, INodeNo, LockOwner, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs,
    ReplyWrite, Request, TimeOrNow, WriteFlags,
};

/// A call of the kernel, before it is performed. `number` counts the calls of its kind since the last
/// [`fail`](FaultyFiles::fail).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileCall {
    Open {
        direct: bool,
    },
    Read {
        number: u64,
        start: u64,
        len: usize,
    },
    Write {
        number: u64,
        start: u64,
        len: usize,
    },
    Sync {
        number: u64,
    },
    SyncDirectory {
        number: u64,
    },
    /// Creates a file or a directory, or gives a file another name.
    Create {
        number: u64,
    },
    /// Renames or exchanges.
    Rename {
        number: u64,
    },
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Success,
    /// Reads or writes at most this many bytes.
    AtMost(usize),
    /// Fails with this error number.
    Error(i32),
}

type Faults = Box<dyn Fn(FileCall) -> Outcome + Send + Sync>;

/// A mounted file system, unmounted when it is dropped.
pub struct FaultyFiles {
    mountpoint: PathBuf,
    shared: Arc<Shared>,
    session: Option<BackgroundSession>,
}

impl FaultyFiles {
    /// Mounts an empty file system.
    ///
    /// # Errors
    /// The errors of mounting: FUSE or the privilege is missing.
    pub fn mount(mountpoint: &Path) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let mut config = Config::default();
        // several calls at once, as delayed ones must not delay the others
        config.n_threads = Some(3);
        let server = Server(Arc::clone(&shared));
        let session = fuser::spawn_mount(server, mountpoint, &config)?;
        Ok(Self {
            mountpoint: mountpoint.to_owned(),
            shared,
            session: Some(session),
        })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.mountpoint.join(name)
    }

    /// Sets the content of a file, without a call of the kernel.
    pub fn write(&self, name: &str, content: Vec<u8>) {
        let mut tree = self.shared.tree();
        match tree.child(1, name.as_ref()) {
            Some(number) => tree.nodes.get_mut(&number).unwrap().content = Content::File(content),
            None => drop(tree.add(1, name.as_ref(), Content::File(content))),
        }
    }

    /// Makes a file shorter, as another machine does on a network file system: the kernel is not notified.
    pub fn truncate(&self, name: &str, len: usize) {
        let mut tree = self.shared.tree();
        let number = tree.child(1, name.as_ref()).unwrap();
        tree.file(number).unwrap().truncate(len);
    }

    /// Whether files that are opened from now on are read through the page cache. Otherwise the results of calls are the
    /// system calls' own. Default on.
    pub fn use_page_cache(&self, cached: bool) {
        self.shared.uncached.store(!cached, Ordering::SeqCst);
    }

    /// Whether the kernel keeps the cached pages of files that are opened from now on, instead of discarding those that it has.
    /// Default off.
    pub fn keep_pages(&self, kept: bool) {
        self.shared.keeps_pages.store(kept, Ordering::SeqCst);
    }

    /// Decides the outcome of all calls from now on, and counts from 0.
    pub fn fail(&self, faults: impl Fn(FileCall) -> Outcome + Send + Sync + 'static) {
        *lock(&self.shared.faults) = Some(Arc::new(Box::new(faults)));
        for count in &self.shared.counts {
            count.store(0, Ordering::SeqCst);
        }
    }

    /// Ends the faults.
    pub fn succeed(&self) {
        self.fail(|_| Outcome::Success);
    }

    /// Reads since the last [`fail`](Self::fail).
    pub fn reads(&self) -> u64 {
        self.shared.counts[CallKind::Read as usize].load(Ordering::SeqCst)
    }

    /// All names below the root with the bytes of the files, sorted.
    pub fn content(&self) -> Vec<(String, Option<Vec<u8>>)> {
        let tree = self.shared.tree();
        let mut found = Vec::new();
        let mut open = vec![(1, String::new())];
        while let Some((number, path)) = open.pop() {
            match &tree.nodes[&number].content {
                Content::File(bytes) => found.push((path, Some(bytes.clone()))),
                Content::Directory(names) => {
                    for (name, child) in names {
                        open.push((*child, format!("{path}/{}", name.to_string_lossy())));
                    }
                    found.push((path, None));
                }
            }
        }
        found.sort();
        found
    }

    /// Removes everything, without a call of the kernel.
    pub fn clear(&self) {
        self.shared.tree().nodes.get_mut(&1).unwrap().content = Content::Directory(BTreeMap::new());
    }
}

impl Drop for FaultyFiles {
    fn drop(&mut self) {
        // answers what is in progress
        self.succeed();
        // also where a file is still open, as in a test that has panicked
        let _ = rustix::mount::unmount(&self.mountpoint, rustix::mount::UnmountFlags::DETACH);
        drop(self.session.take());
    }
}

#[derive(Clone, Copy)]
enum CallKind {
    Read,
    Write,
    Sync,
    SyncDirectory,
    Create,
    Rename,
}

#[derive(Default)]
struct Shared {
    tree: Mutex<Tree>,
    faults: Mutex<Option<Arc<Faults>>>,
    counts: [AtomicU64; 6],
    uncached: AtomicBool,
    keeps_pages: AtomicBool,
}

impl Shared {
    fn tree(&self) -> MutexGuard<'_, Tree> {
        lock(&self.tree)
    }

    fn count(&self, kind: CallKind) -> u64 {
        self.counts[kind as usize].fetch_add(1, Ordering::SeqCst)
    }

    /// The number of bytes, at most `len`, that the call is to transfer.
    fn outcome(&self, call: FileCall, len: usize) -> Result<usize, Errno> {
        // called without the lock, as it may wait
        let faults = lock(&self.faults).clone();
        match faults.map_or(Outcome::Success, |faults| faults(call)) {
            Outcome::Success => Ok(len),
            Outcome::AtMost(most) => Ok(len.min(most)),
            Outcome::Error(code) => Err(Errno::from_i32(code)),
        }
    }

    fn open_flags(&self) -> FopenFlags {
        if self.uncached.load(Ordering::SeqCst) {
            FopenFlags::FOPEN_DIRECT_IO
        } else if self.keeps_pages.load(Ordering::SeqCst) {
            FopenFlags::FOPEN_KEEP_CACHE
        } else {
            FopenFlags::empty()
        }
    }
}

/// The files, by the number of their inode. The root has number 1. Files without a name are kept, as they may be open.
struct Tree {
    nodes: HashMap<u64, Node>,
}

struct Node {
    content: Content,
    links: u32,
}

enum Content {
    File(Vec<u8>),
    Directory(BTreeMap<OsString, u64>),
}

impl Default for Tree {
    fn default() -> Self {
        let root = Node {
            content: Content::Directory(BTreeMap::new()),
            links: 1,
        };
        Self {
            nodes: HashMap::from([(1, root)]),
        }
    }
}

impl Tree {
    fn names(&mut self, directory: u64) -> Result<&mut BTreeMap<OsString, u64>, Errno> {
        match self.nodes.get_mut(&directory).map(|node| &mut node.content) {
            Some(Content::Directory(names)) => Ok(names),
            _ => Err(Errno::ENOTDIR),
        }
    }

    fn file(&mut self, number: u64) -> Result<&mut Vec<u8>, Errno> {
        match self.nodes.get_mut(&number).map(|node| &mut node.content) {
            Some(Content::File(bytes)) => Ok(bytes),
            _ => Err(Errno::EISDIR),
        }
    }

    fn child(&mut self, directory: u64, name: &OsStr) -> Option<u64> {
        self.names(directory).ok()?.get(name).copied()
    }

    fn add(&mut self, directory: u64, name: &OsStr, content: Content) -> Result<FileAttr, Errno> {
        let number = self.nodes.len() as u64 + 1;
        let names = self.names(directory)?;
        if names.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        names.insert(name.to_owned(), number);
        self.nodes.insert(number, Node { content, links: 1 });
        self.attributes(number)
    }

    fn remove(&mut self, directory: u64, name: &OsStr) -> Result<(), Errno> {
        let number = self.child(directory, name).ok_or(Errno::ENOENT)?;
        let node = self.nodes.get_mut(&number).ok_or(Errno::ENOENT)?;
        if matches!(&node.content, Content::Directory(names) if !names.is_empty()) {
            return Err(Errno::ENOTEMPTY);
        }
        node.links -= 1;
        self.names(directory)?.remove(name);
        Ok(())
    }

    fn rename(
        &mut self,
        from: (u64, &OsStr),
        to: (u64, &OsStr),
        replace: bool,
    ) -> Result<(), Errno> {
        let number = self.child(from.0, from.1).ok_or(Errno::ENOENT)?;
        if self.child(to.0, to.1).is_some() {
            if !replace {
                return Err(Errno::EEXIST);
            }
            self.remove(to.0, to.1)?;
        }
        self.names(from.0)?.remove(from.1);
        self.names(to.0)?.insert(to.1.to_owned(), number);
        Ok(())
    }

    fn exchange(&mut self, a: (u64, &OsStr), b: (u64, &OsStr)) -> Result<(), Errno> {
        let of = |tree: &mut Self, at: (u64, &OsStr)| tree.child(at.0, at.1).ok_or(Errno::ENOENT);
        let (of_a, of_b) = (of(self, a)?, of(self, b)?);
        self.names(a.0)?.insert(a.1.to_owned(), of_b);
        self.names(b.0)?.insert(b.1.to_owned(), of_a);
        Ok(())
    }

    fn link(&mut self, number: u64, to: (u64, &OsStr)) -> Result<FileAttr, Errno> {
        let names = self.names(to.0)?;
        if names.contains_key(to.1) {
            return Err(Errno::EEXIST);
        }
        names.insert(to.1.to_owned(), number);
        self.nodes.get_mut(&number).ok_or(Errno::ENOENT)?.links += 1;
        self.attributes(number)
    }

    fn attributes(&self, number: u64) -> Result<FileAttr, Errno> {
        let node = self.nodes.get(&number).ok_or(Errno::ENOENT)?;
        let (kind, size, perm) = match &node.content {
            Content::File(bytes) => (FileType::RegularFile, bytes.len() as u64, 0o644),
            Content::Directory(_) => (FileType::Directory, 0, 0o755),
        };
        Ok(FileAttr {
            ino: INodeNo(number),
            size,
            blocks: size.div_ceil(512),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: node.links,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }
}

/// How long the kernel may keep names and attributes: not at all, as tests change files without it.
const TTL: Duration = Duration::ZERO;
/// Files do not get the number of another one.
const GENERATION: Generation = Generation(0);

struct Server(Arc<Shared>);

impl Filesystem for Server {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let mut tree = self.0.tree();
        let found = tree.child(parent.0, name).ok_or(Errno::ENOENT);
        match found.and_then(|number| tree.attributes(number)) {
            Ok(attributes) => reply.entry(&TTL, &attributes, GENERATION),
            Err(error) => reply.error(error),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.0.tree().attributes(ino.0) {
            Ok(attributes) => reply.attr(&TTL, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut tree = self.0.tree();
        if let (Some(size), Ok(bytes)) = (size, tree.file(ino.0)) {
            bytes.resize(usize::try_from(size).unwrap(), 0);
        }
        match tree.attributes(ino.0) {
            Ok(attributes) => reply.attr(&TTL, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let number = self.0.count(CallKind::Create);
        let directory = Content::Directory(BTreeMap::new());
        let added = self
            .0
            .outcome(FileCall::Create { number }, 0)
            .and_then(|_| self.0.tree().add(parent.0, name, directory));
        match added {
            Ok(attributes) => reply.entry(&TTL, &attributes, GENERATION),
            Err(error) => reply.error(error),
        }
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        end(self.0.tree().remove(parent.0, name), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        end(self.0.tree().remove(parent.0, name), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let number = self.0.count(CallKind::Rename);
        let replace = !flags.contains(RenameFlags::RENAME_NOREPLACE);
        let renamed = self
            .0
            .outcome(FileCall::Rename { number }, 0)
            .and_then(|_| {
                let mut tree = self.0.tree();
                let (from, to) = ((parent.0, name), (newparent.0, newname));
                if flags.contains(RenameFlags::RENAME_EXCHANGE) {
                    tree.exchange(from, to)
                } else {
                    tree.rename(from, to, replace)
                }
            });
        end(renamed, reply);
    }

    fn link(
        &self,
        _: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let number = self.0.count(CallKind::Create);
        let linked = self
            .0
            .outcome(FileCall::Create { number }, 0)
            .and_then(|_| self.0.tree().link(ino.0, (newparent.0, newname)));
        match linked {
            Ok(attributes) => reply.entry(&TTL, &attributes, GENERATION),
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let direct = rustix::fs::OFlags::from_bits_retain(flags.0.cast_unsigned())
            .contains(rustix::fs::OFlags::DIRECT);
        match self.0.outcome(FileCall::Open { direct }, 0) {
            Ok(_) => reply.opened(FileHandle(0), self.0.open_flags()),
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let (start, len) = (offset, size as usize);
        let number = self.0.count(CallKind::Read);
        let outcome = self.0.outcome(FileCall::Read { number, start, len }, len);
        let mut tree = self.0.tree();
        match outcome.and_then(|len| Ok((len, tree.file(ino.0)?))) {
            Ok((len, bytes)) => {
                let from = bytes.len().min(usize::try_from(offset).unwrap());
                reply.data(&bytes[from..][..len.min(bytes.len() - from)]);
            }
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let (start, len) = (offset, data.len());
        let number = self.0.count(CallKind::Write);
        let outcome = self.0.outcome(FileCall::Write { number, start, len }, len);
        let mut tree = self.0.tree();
        match outcome.and_then(|len| Ok((len, tree.file(ino.0)?))) {
            Ok((len, bytes)) => {
                let from = usize::try_from(offset).unwrap();
                bytes.resize(bytes.len().max(from + len), 0);
                bytes[from..][..len].copy_from_slice(&data[..len]);
                reply.written(u32::try_from(len).unwrap());
            }
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let number = self.0.count(CallKind::Sync);
        end(self.0.outcome(FileCall::Sync { number }, 0), reply);
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let number = self.0.count(CallKind::SyncDirectory);
        end(self.0.outcome(FileCall::SyncDirectory { number }, 0), reply);
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let tree = self.0.tree();
        let Some(Content::Directory(names)) = tree.nodes.get(&ino.0).map(|node| &node.content)
        else {
            return reply.error(Errno::ENOTDIR);
        };
        let mut entries = vec![
            (ino.0, FileType::Directory, OsStr::new(".")),
            (1, FileType::Directory, OsStr::new("..")),
        ];
        for (name, number) in names {
            let kind = match tree.nodes[number].content {
                Content::File(_) => FileType::RegularFile,
                Content::Directory(_) => FileType::Directory,
            };
            entries.push((*number, kind, name));
        }
        for (next, (number, kind, name)) in
            (1u64..).zip(entries).skip(usize::try_from(offset).unwrap())
        {
            if reply.add(INodeNo(number), next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let blocks = 1 << 20;
        reply.statfs(blocks, blocks, blocks, blocks, blocks, 4096, 255, 4096);
    }

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        reply.ok();
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let number = self.0.count(CallKind::Create);
        let added = self
            .0
            .outcome(FileCall::Create { number }, 0)
            .and_then(|_| self.0.tree().add(parent.0, name, Content::File(Vec::new())));
        match added {
            Ok(attributes) => reply.created(
                &TTL,
                &attributes,
                GENERATION,
                FileHandle(0),
                self.0.open_flags(),
            ),
            Err(error) => reply.error(error),
        }
    }
}

/// Answers a call that returns nothing.
fn end<T>(outcome: Result<T, Errno>, reply: ReplyEmpty) {
    match outcome {
        Ok(_) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // a test that panics in a callback still unmounts
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
