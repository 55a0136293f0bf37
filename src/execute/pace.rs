//! How far a run is, shared by those who work at it: what is done, whether somebody failed, and whether to go on.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Failure, Watch};
use crate::error::{Error, ErrorKind, Result};

/// Bytes of one read or copy after which is asked whether to go on.
pub(crate) const STEP: usize = 16 << 20;

/// Whether to go on, as a result.
pub(crate) fn unless_stopped(flow: ControlFlow<()>) -> Result<()> {
    if flow.is_break() {
        Err(Error::new(ErrorKind::Cancelled))
    } else {
        Ok(())
    }
}

/// What the workers of a run share.
pub(crate) struct Course<'w> {
    watch: Watch<'w>,
    pub(crate) failure: Failure,
    /// Bytes that are there.
    done: AtomicU64,
}

impl<'w> Course<'w> {
    pub(crate) fn new(watch: Watch<'w>) -> Self {
        Self {
            watch,
            failure: Failure::default(),
            done: AtomicU64::new(0),
        }
    }

    /// One of the things that are worked at, of so many bytes.
    pub(crate) fn begin(&self, nbytes: u64) -> Pace<'_, 'w> {
        Pace {
            course: self,
            nbytes,
            come: 0,
            worked: 0,
        }
    }

    /// So many bytes more are there: tells it now and then, and stops where someone asked for it.
    pub(crate) fn add(&self, nbytes: u64) -> Result<()> {
        let done = self.done.fetch_add(nbytes, Ordering::Relaxed) + nbytes;
        unless_stopped(self.watch.tell(done))
    }

    /// Whether to go on, asked by who waits for bytes or works at many for long.
    pub(crate) fn flow(&self) -> ControlFlow<()> {
        // what others failed at ends this too
        let ask = || self.watch.ask(self.done.load(Ordering::Relaxed));
        if self.failure.is_seen() {
            ControlFlow::Break(())
        } else {
            ask()
        }
    }

    /// All is done.
    pub(crate) fn finish(&self) {
        self.watch.finish();
    }
}

/// How far one of the things is.
pub(crate) struct Pace<'p, 'w> {
    course: &'p Course<'w>,
    nbytes: u64,
    /// Its bytes that are there.
    come: u64,
    /// Bytes that were worked on since anybody was asked.
    worked: usize,
}

impl Pace<'_, '_> {
    /// So many of its bytes are there.
    pub(crate) fn come(&mut self, bytes: u64) {
        let more = self.more(bytes);
        self.course.done.fetch_add(more, Ordering::Relaxed);
    }

    /// Notes that so many are, and says how many of them were not. What comes beside its own counts for nothing.
    fn more(&mut self, bytes: u64) -> u64 {
        let more = bytes.min(self.nbytes).saturating_sub(self.come);
        self.come += more;
        more
    }

    /// Asks whether to go on.
    pub(crate) fn flow(&mut self) -> ControlFlow<()> {
        self.worked = 0;
        self.course.flow()
    }

    /// Something was done with so many bytes more: asks after every step whether to go on.
    pub(crate) fn work(&mut self, bytes: usize) -> Result<()> {
        self.worked = self.worked.saturating_add(bytes);
        if self.worked < STEP {
            Ok(())
        } else {
            unless_stopped(self.flow())
        }
    }

    /// Copies bytes of it, in front of which are so many others.
    pub(crate) fn copy(&mut self, before: u64, from: &[u8], out: &mut [u8]) -> Result<()> {
        let mut done = 0;
        for (from, out) in from.chunks(STEP).zip(out.chunks_mut(STEP)) {
            out.copy_from_slice(from);
            done += from.len() as u64;
            self.come(before.saturating_add(done));
            self.work(from.len())?;
        }
        Ok(())
    }

    /// All of it is there.
    pub(crate) fn end(mut self) -> Result<()> {
        let more = self.more(self.nbytes);
        self.course.add(more)
    }
}
