//! The mapped file, lent as it is.

use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use zeropool::BufferPool;

use super::way::{By, Direct, Way};
use super::{Body, Chunk, Coming, Feed, Loader, Reading};
use crate::catalog::ByteRange;
use crate::checkpoint::Checkpoint;
use crate::error::{Error, ErrorKind, Result};
use crate::execute::{STEP, unless_stopped};
use crate::source::read_exact_at;

/// Lends bytes where files are mapped, and reads the others one by one.
#[derive(Clone, Copy, Debug)]
pub struct Mapped {
    window: u64,
    drop_behind: bool,
}

impl Default for Mapped {
    fn default() -> Self {
        Self {
            window: 32 << 20,
            drop_behind: false,
        }
    }
}

impl Mapped {
    /// Asks for 32 MiB ahead, and keeps what was passed.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes that the system is asked to bring before they are touched; 0 leaves it to its own read-ahead.
    #[must_use]
    pub fn window(mut self, bytes: u64) -> Self {
        self.window = bytes;
        self
    }

    /// Whether pages that were passed are given back, from this process and from the page cache: for what is read
    /// once and is larger than memory.
    #[must_use]
    pub fn drop_behind(mut self, drop: bool) -> Self {
        self.drop_behind = drop;
        self
    }
}

impl Loader for Mapped {
    fn name(&self) -> &'static str {
        "mmap"
    }

    fn run<'c>(
        &self,
        reading: &Reading<'c>,
        reads: &[ByteRange],
        body: Body<'_, 'c>,
    ) -> Result<()> {
        let window = self.window.min(reading.ahead.max(1 << 20));
        let Reading {
            checkpoint, pool, ..
        } = reading;
        let (taken, front, read) = (AtomicU64::new(0), Mutex::default(), AtomicBool::new(false));
        body(&Maps {
            checkpoint,
            pool,
            reads,
            window,
            drop_behind: self.drop_behind,
            taken,
            front,
            read,
        })
    }
}

/// How far the reads were asked for and given back.
#[derive(Default)]
struct Front {
    /// Reads in front of this one were asked for: so many bytes.
    asked: usize,
    asked_bytes: u64,
    /// Reads in front of this one were given back: so many bytes.
    passed: usize,
    passed_bytes: u64,
}

struct Maps<'r, 'c> {
    checkpoint: &'c Checkpoint,
    pool: &'r BufferPool,
    reads: &'r [ByteRange],
    window: u64,
    drop_behind: bool,
    /// Bytes that were taken.
    taken: AtomicU64,
    front: Mutex<Front>,
    /// Something could not be lent.
    read: AtomicBool,
}

impl<'c> Feed<'c> for Maps<'_, 'c> {
    fn take(&self, read: usize) -> Result<Chunk<'c>> {
        self.take_watched(read, &mut |_| ControlFlow::Continue(()))
    }

    fn take_watched(&self, read: usize, watch: Coming<'_>) -> Result<Chunk<'c>> {
        let bytes = *self
            .reads
            .get(read)
            .ok_or_else(|| Error::misuse(format!("there is no read {read}")))?;
        self.advise(read, bytes.len, watch)?;
        let source = self.checkpoint.source(bytes.file);
        let gone = || Error::new(ErrorKind::Io(super::pread::shrunk())).at(bytes.start);
        let Some(map) = source.mapped() else {
            return self.read(bytes, watch);
        };
        let range = usize::try_from(bytes.start)
            .ok()
            .zip(usize::try_from(bytes.end()).ok());
        let lent = range.and_then(|(start, end)| map.get(start..end));
        lent.map(Chunk::Lent)
            .ok_or_else(|| self.checkpoint.place(gone(), bytes.file))
    }

    fn way(&self) -> Option<Way> {
        let read = self.read.load(Ordering::Relaxed);
        let instead = read.then(|| "not mapped: read one by one".to_owned());
        Some(Way {
            by: if read { By::Threads } else { By::Map },
            direct: Direct::No,
            instead,
        })
    }
}

impl<'c> Maps<'_, 'c> {
    fn read(&self, bytes: ByteRange, watch: Coming<'_>) -> Result<Chunk<'c>> {
        self.read.store(true, Ordering::Relaxed);
        let mut buffer = super::room(self.pool, bytes.len, &mut || watch(0))?;
        let mut come = 0;
        for out in buffer.chunks_mut(STEP) {
            if come > 0 {
                unless_stopped(watch(come))?;
            }
            let start = bytes.start + come;
            let read = read_exact_at(self.checkpoint.source(bytes.file), start, out);
            read.map_err(|e| self.checkpoint.place(Error::from(e).at(start), bytes.file))?;
            come += out.len() as u64;
        }
        Ok(Chunk::Pooled(buffer.freeze()))
    }

    /// Asks for what comes, half a window at a time; gives back what two windows were taken after.
    fn advise(&self, read: usize, len: u64, watch: Coming<'_>) -> Result<()> {
        let taken = self
            .taken
            .fetch_add(len, Ordering::Relaxed)
            .saturating_add(len);
        // who finds it taken goes on: another thread is asking
        let Ok(mut front) = self.front.try_lock() else {
            return Ok(());
        };
        if self.window > 0 && front.asked_bytes.saturating_sub(taken) <= self.window / 2 {
            while front.asked_bytes.saturating_sub(taken) < self.window
                && let Some(next) = self.reads.get(front.asked)
            {
                front.asked += 1;
                front.asked_bytes = front.asked_bytes.saturating_add(next.len);
                // what is being taken needs no asking for
                if front.asked > read + 1 {
                    self.ask(*next, watch)?;
                }
            }
        }
        let behind = 2 * self.window.max(1 << 20);
        while self.drop_behind
            && front.passed < read
            && taken.saturating_sub(front.passed_bytes) > behind
        {
            let past = self.reads[front.passed];
            self.checkpoint
                .source(past.file)
                .passed(past.start, past.len);
            front.passed += 1;
            front.passed_bytes = front.passed_bytes.saturating_add(past.len);
        }
        Ok(())
    }

    /// Asks for a read that comes; the system may take its time over a large one.
    fn ask(&self, bytes: ByteRange, watch: Coming<'_>) -> Result<()> {
        let mut asked = 0;
        while asked < bytes.len {
            let step = (STEP as u64).min(bytes.len - asked);
            self.checkpoint
                .source(bytes.file)
                .will_need(bytes.start + asked, step);
            asked += step;
            if asked < bytes.len {
                unless_stopped(watch(0))?;
            }
        }
        Ok(())
    }
}
