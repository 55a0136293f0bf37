//! Threads of which one runs at a time, in an order that a test chooses: each waits before every operation on files until it
//! is its turn. A thread may also be killed before an operation: that one and all after it change nothing.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use anamnesis_os::directory_lock::DirectoryLock;
use anamnesis_os::range_copier::{CopiedRange, RangeCopier};

use super::TestDirectory;
use crate::base::error::Result;
use crate::base::limits::{Budget, TemporaryCharge};
use crate::base::progress::CancelToken;
use crate::engine::sink::files::operations::{FileOperations, SystemFiles};
use crate::read::source::Source;
use crate::read::source::file_system::{FileSystem, MapMode, NamedPath, OpenedPath};
use crate::read::source::files::Files;

/// The number of a thread.
pub(super) type ThreadNumber = usize;

/// Where a schedule leaves the default, which is that a thread runs to its end, and then the next one.
#[derive(Clone, Debug, Default)]
pub(super) struct TurnSchedule {
    /// At which step which thread goes on.
    pub(super) switches: Vec<(usize, ThreadNumber)>,
    /// The thread that is killed before this operation of its own.
    pub(super) kill: Option<(ThreadNumber, usize)>,
}

/// The steps so far, and the thread that runs.
#[derive(Debug)]
struct TurnState {
    schedule: TurnSchedule,
    /// The thread that runs.
    current: ThreadNumber,
    /// Threads that have not ended.
    live: Vec<bool>,
    /// Operations of each thread.
    operations: Vec<usize>,
    steps: usize,
}

/// The turns of the threads of one run.
#[derive(Debug)]
pub(super) struct Turns {
    state: Mutex<TurnState>,
    changed: Condvar,
}

impl Turns {
    pub(super) fn new(threads: usize, schedule: TurnSchedule) -> Arc<Self> {
        let state = TurnState {
            schedule,
            current: 0,
            live: vec![true; threads],
            operations: vec![0; threads],
            steps: 0,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
        })
    }

    /// A step of a thread: another one may go on first. Whether the thread lives.
    fn step(&self, thread: ThreadNumber) -> bool {
        let mut state = self.state.lock().unwrap();
        if state.current == thread {
            let step = state.steps;
            state.steps += 1;
            let switches = state.schedule.switches.iter();
            let to = switches.clone().find(|(at, _)| *at == step);
            if let Some(&(_, to)) = to.filter(|(_, to)| state.live[*to]) {
                state.current = to;
                self.changed.notify_all();
            }
        }
        let mut state = self
            .changed
            .wait_while(state, |state| state.current != thread)
            .unwrap();
        let operation = state.operations[thread];
        state.operations[thread] += 1;
        let kill = state.schedule.kill;
        !kill.is_some_and(|(killed, at)| killed == thread && operation >= at)
    }

    /// Waits for the first turn of a thread, which lasts until what is returned is dropped, also by a panic.
    pub(super) fn begin(&self, thread: ThreadNumber) -> impl Drop {
        let state = self.state.lock().unwrap();
        let waited = self.changed.wait_while(state, |s| s.current != thread);
        drop(waited.unwrap());
        Turn(self, thread)
    }

    /// The steps of all threads, and the operations of each.
    pub(super) fn counts(&self) -> (usize, Vec<usize>) {
        let state = self.state.lock().unwrap();
        (state.steps, state.operations.clone())
    }
}

/// The time in which a thread has turns.
struct Turn<'t>(&'t Turns, ThreadNumber);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock().unwrap();
        state.live[self.1] = false;
        let next = state.live.iter().position(|&live| live);
        state.current = next.unwrap_or(self.1);
        self.0.changed.notify_all();
    }
}

/// The operations of a writer, a step each.
#[derive(Debug)]
pub(super) struct WriterTurns {
    pub(super) turns: Arc<Turns>,
    pub(super) thread: ThreadNumber,
    pub(super) system: SystemFiles,
    /// Another directory that is locked in the place of the right one, to show what the lock prevents.
    pub(super) wrong_lock: Option<TestDirectory>,
}

impl WriterTurns {
    fn step(&self) -> io::Result<()> {
        match self.turns.step(self.thread) {
            true => Ok(()),
            false => Err(io::Error::other("killed")),
        }
    }
}

impl FileOperations for WriterTurns {
    fn create_unnamed(&self, directory: &Path) -> io::Result<Option<File>> {
        self.step()?;
        self.system.create_unnamed(directory)
    }

    fn create(&self, path: &Path) -> io::Result<Option<File>> {
        self.step()?;
        self.system.create(path)
    }

    fn write(&self, file: &File, start: u64, bytes: &[u8]) -> io::Result<()> {
        // a file that no other run can find: its bytes are in no order with the operations of others
        self.system.write(file, start, bytes)
    }

    fn copy(&self, copier: &mut RangeCopier, range: CopiedRange<'_>, to: &File) -> io::Result<u64> {
        // as a write
        self.system.copy(copier, range, to)
    }

    fn sync(&self, _: &File) -> io::Result<()> {
        // all runs are on one running system: a sync changes nothing that one of them can see
        Ok(())
    }

    fn link(&self, file: &File, to: &Path) -> io::Result<()> {
        self.step()?;
        self.system.link(file, to)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        self.system.rename(from, to)
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        self.system.rename_new(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        self.system.remove(path)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        self.system.create_directory(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        self.system.remove_directory(path)
    }

    fn lock_directory(&self, path: &Path) -> io::Result<Option<DirectoryLock>> {
        self.step()?;
        let wrong = self.wrong_lock.as_ref().map(|directory| &*directory.0);
        self.system.lock_directory(wrong.unwrap_or(path))
    }

    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        // a step without an effect: others may look between two operations, and after the last one
        self.step()
    }

    fn open_existing(&self, path: &Path) -> io::Result<Option<File>> {
        self.step()?;
        self.system.open_existing(path)
    }

    fn insert(&self, file: &File, len: u64) -> io::Result<()> {
        self.step()?;
        self.system.insert(file, len)
    }

    fn share(&self, from: &File, start: u64, to: &File, at: u64) -> io::Result<()> {
        self.step()?;
        self.system.share(from, start, to, at)
    }

    fn create_private_directory(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        self.system.create_private_directory(path)
    }

    fn link_existing(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        self.system.link_existing(from, to)
    }

    fn exchange(&self, a: &Path, b: &Path) -> io::Result<()> {
        self.step()?;
        self.system.exchange(a, b)
    }

    fn remove_from(&self, directory: &File, path: &Path) -> io::Result<()> {
        self.step()?;
        self.system.remove_from(directory, path)
    }
}

/// The accesses of a reader to local files, a step each.
pub(super) struct ReaderTurns {
    pub(super) turns: Arc<Turns>,
    pub(super) thread: ThreadNumber,
    pub(super) files: Files,
}

impl ReaderTurns {
    fn step(&self) -> &Files {
        self.turns.step(self.thread);
        &self.files
    }
}

impl FileSystem for ReaderTurns {
    fn is_directory(&self, path: &Path) -> bool {
        self.step().is_directory(path)
    }

    fn is_file(&self, path: &Path) -> bool {
        self.step().is_file(path)
    }

    fn exists(&self, path: &Path) -> bool {
        self.step().exists(path)
    }

    fn list(
        &self,
        directory: &Path,
        wanted: &dyn Fn(&OsStr) -> bool,
        each: &mut dyn FnMut(OsString) -> Result<()>,
    ) -> Result<()> {
        self.step().list(directory, wanted, &mut |name| {
            // the system lists a directory in pieces, between which it may change
            self.step();
            each(name)
        })
    }

    fn open_path(
        &self,
        path: &Path,
        mapping: MapMode,
        cancel: Option<&CancelToken>,
        budget: &Budget,
    ) -> Result<OpenedPath> {
        self.step().open_path(path, mapping, cancel, budget)
    }

    fn open_named(
        &self,
        path: NamedPath<'_>,
        mapping: MapMode,
        budget: &Budget,
    ) -> Result<Arc<dyn Source>> {
        self.step().open_named(path, mapping, budget)
    }

    fn read_whole<'b>(
        &self,
        path: NamedPath<'_>,
        budget: &'b Budget,
        what: &str,
    ) -> Result<(Vec<u8>, TemporaryCharge<'b>)> {
        self.step().read_whole(path, budget, what)
    }

    fn read_held<'b>(
        &self,
        path: NamedPath<'_>,
        budget: &'b Budget,
        what: &str,
    ) -> Result<(Vec<u8>, TemporaryCharge<'b>, Option<File>)> {
        self.step().read_held(path, budget, what)
    }

    fn is_local(&self) -> bool {
        true
    }
}
