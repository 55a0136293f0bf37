//! File operations that are made and recorded, of which one fails, or that end in the middle as a killed process does.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anamnesis_os::range_copier::{CopiedRange, RangeCopier};
use rustix::io::Errno;

use crate::engine::sink::files::operations::{FileOperations, SystemFiles};

/// Number of a file, in the order of creation.
pub(super) type FileNumber = usize;

#[derive(Clone, Debug)]
pub(super) enum Operation {
    Create(FileNumber),
    /// A file that exists, and is changed where it is.
    Open(FileNumber, PathBuf),
    /// Zeros in front of the bytes of a file.
    Insert(FileNumber, u64),
    Write(FileNumber, u64, Vec<u8>),
    Sync(FileNumber),
    Link(FileNumber, PathBuf),
    LinkExisting(PathBuf, PathBuf),
    Rename(PathBuf, PathBuf),
    Exchange(PathBuf, PathBuf),
    Remove(PathBuf),
    CreateDirectory(PathBuf),
    RemoveDirectory(PathBuf),
    SyncDirectory(PathBuf),
}

/// Makes the calls, except those that sync, and records all of them.
#[derive(Debug)]
pub(super) struct RecordingFiles {
    system: SystemFiles,
    operations: Mutex<Vec<Operation>>,
    numbers: Mutex<HashMap<RawFd, FileNumber>>,
    /// Calls until one fails.
    calls_left: AtomicUsize,
    /// Its error; without one, that call and all after it change nothing, as if the process were killed.
    error: Mutex<Option<Errno>>,
    /// An act of another process right before an exchange.
    before_exchange: Mutex<Option<fn(&Path)>>,
}

impl RecordingFiles {
    pub(super) fn new(unnamed: bool) -> Self {
        Self {
            system: SystemFiles { unnamed },
            operations: Mutex::default(),
            numbers: Mutex::default(),
            calls_left: AtomicUsize::new(usize::MAX),
            error: Mutex::default(),
            before_exchange: Mutex::default(),
        }
    }

    /// Makes this many calls, and no more until this is called again.
    pub(super) fn end_after(&self, calls: usize) {
        self.calls_left.store(calls, Ordering::Relaxed);
    }

    /// Makes this many calls, lets the next one fail, and makes the others.
    pub(super) fn fail_after(&self, calls: usize, error: Errno) {
        self.calls_left.store(calls, Ordering::Relaxed);
        *self.error.lock().unwrap() = Some(error);
    }

    /// Calls a function with the second directory of the first exchange before it.
    pub(super) fn before_exchange(&self, call: fn(&Path)) {
        *self.before_exchange.lock().unwrap() = Some(call);
    }

    /// Whether the call of [`fail_after`](Self::fail_after) has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.error.lock().unwrap().is_none()
    }

    pub(super) fn operations(&self) -> Vec<Operation> {
        self.operations.lock().unwrap().clone()
    }

    /// Counts a call.
    fn call(&self) -> io::Result<()> {
        match self.calls_left.load(Ordering::Relaxed) {
            0 => match self.error.lock().unwrap().take() {
                Some(error) => {
                    self.calls_left.store(usize::MAX, Ordering::Relaxed);
                    Err(error.into())
                }
                None => Err(io::Error::other("killed")),
            },
            left => {
                self.calls_left.store(left - 1, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    fn record(&self, operation: Operation) {
        self.operations.lock().unwrap().push(operation);
    }

    fn number(&self, file: &File) -> FileNumber {
        self.numbers.lock().unwrap()[&file.as_raw_fd()]
    }

    fn record_new(&self, file: &File) -> FileNumber {
        self.record_numbered(file, Operation::Create)
    }

    fn record_numbered(
        &self,
        file: &File,
        operation: impl Fn(FileNumber) -> Operation,
    ) -> FileNumber {
        let mut operations = self.operations.lock().unwrap();
        // unique and ascending; that numbers are left out makes no difference
        let number = operations.len();
        operations.push(operation(number));
        // a descriptor is used again once its file is closed
        self.numbers
            .lock()
            .unwrap()
            .insert(file.as_raw_fd(), number);
        number
    }
}

impl FileOperations for RecordingFiles {
    fn create_unnamed(&self, directory: &Path) -> io::Result<Option<File>> {
        self.call()?;
        let file = self.system.create_unnamed(directory)?;
        if let Some(file) = &file {
            self.record_new(file);
        }
        Ok(file)
    }

    fn create(&self, path: &Path) -> io::Result<Option<File>> {
        self.call()?;
        let file = self.system.create(path)?;
        if let Some(file) = &file {
            // two operations, since the name may be lost where the file is not
            let number = self.record_new(file);
            self.record(Operation::Link(number, path.to_owned()));
        }
        Ok(file)
    }

    fn write(&self, file: &File, start: u64, bytes: &[u8]) -> io::Result<()> {
        self.call()?;
        self.system.write(file, start, bytes)?;
        self.record(Operation::Write(self.number(file), start, bytes.to_vec()));
        Ok(())
    }

    fn copy(&self, copier: &mut RangeCopier, range: CopiedRange<'_>, to: &File) -> io::Result<u64> {
        use std::os::unix::fs::FileExt;
        self.call()?;
        let copied = self.system.copy(copier, range, to)?;
        // to the replay a write like others, of the bytes that have arrived
        let mut bytes = vec![0; usize::try_from(copied).unwrap()];
        to.read_exact_at(&mut bytes, range.at)?;
        self.record(Operation::Write(self.number(to), range.at, bytes));
        Ok(copied)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.call()?;
        // not made: the replay decides what it keeps, and hundreds of them would take long
        self.record(Operation::Sync(self.number(file)));
        Ok(())
    }

    fn link(&self, file: &File, to: &Path) -> io::Result<()> {
        self.call()?;
        self.system.link(file, to)?;
        self.record(Operation::Link(self.number(file), to.to_owned()));
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call()?;
        self.system.rename(from, to)?;
        self.record(Operation::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call()?;
        self.system.rename_new(from, to)?;
        // to the replay a rename like others: the call has verified that the name was free
        self.record(Operation::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call()?;
        self.system.remove(path)?;
        self.record(Operation::Remove(path.to_owned()));
        Ok(())
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.call()?;
        self.system.create_directory(path)?;
        self.record(Operation::CreateDirectory(path.to_owned()));
        Ok(())
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.call()?;
        self.system.remove_directory(path)?;
        self.record(Operation::RemoveDirectory(path.to_owned()));
        Ok(())
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.call()?;
        self.record(Operation::SyncDirectory(path.to_owned()));
        Ok(())
    }

    fn open_existing(&self, path: &Path) -> io::Result<Option<File>> {
        self.call()?;
        let file = self.system.open_existing(path)?;
        if let Some(file) = &file {
            self.record_numbered(file, |number| Operation::Open(number, path.to_owned()));
        }
        Ok(file)
    }

    fn insert(&self, file: &File, len: u64) -> io::Result<()> {
        self.call()?;
        self.system.insert(file, len)?;
        self.record(Operation::Insert(self.number(file), len));
        Ok(())
    }

    fn share(&self, from: &File, start: u64, to: &File, at: u64) -> io::Result<()> {
        use std::os::unix::fs::FileExt;
        self.call()?;
        self.system.share(from, start, to, at)?;
        // to the replay a write like others
        let len = from.metadata()?.len() - start;
        let mut bytes = vec![0; usize::try_from(len).unwrap()];
        from.read_exact_at(&mut bytes, start)?;
        self.record(Operation::Write(self.number(to), at, bytes));
        Ok(())
    }

    fn create_private_directory(&self, path: &Path) -> io::Result<()> {
        self.call()?;
        self.system.create_private_directory(path)?;
        // permissions play no part in the replay
        self.record(Operation::CreateDirectory(path.to_owned()));
        Ok(())
    }

    fn link_existing(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call()?;
        self.system.link_existing(from, to)?;
        self.record(Operation::LinkExisting(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn exchange(&self, a: &Path, b: &Path) -> io::Result<()> {
        self.call()?;
        let call = self.before_exchange.lock().unwrap().take();
        if let Some(call) = call {
            call(b);
        }
        self.system.exchange(a, b)?;
        self.record(Operation::Exchange(a.to_owned(), b.to_owned()));
        Ok(())
    }

    fn remove_from(&self, directory: &File, path: &Path) -> io::Result<()> {
        self.call()?;
        self.system.remove_from(directory, path)?;
        self.record(Operation::Remove(path.to_owned()));
        Ok(())
    }
}
