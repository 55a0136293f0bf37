//! How far one tensor of a load is: what its bytes tell the watcher, and where they stop.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{STEP, unless_stopped};
use crate::error::Result;
use crate::execute::{Failure, Watch};

/// What the tensors of a load share.
pub(super) struct Course<'r> {
    pub(super) watch: Watch<'r>,
    pub(super) failure: Failure,
    /// Bytes that are there, of all tensors.
    done: AtomicU64,
}

impl<'r> Course<'r> {
    pub(super) fn new(watch: Watch<'r>) -> Self {
        Self { watch, failure: Failure::default(), done: AtomicU64::new(0) }
    }

    /// A tensor of so many bytes.
    pub(super) fn begin(&self, nbytes: u64) -> Pace<'_, 'r> {
        Pace { course: self, nbytes, come: 0, worked: 0 }
    }

    fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
}

/// How far one tensor is.
pub(super) struct Pace<'p, 'r> {
    course: &'p Course<'r>,
    nbytes: u64,
    /// Its bytes that are there.
    come: u64,
    /// Bytes that were worked on since anybody was asked.
    worked: usize,
}

impl Pace<'_, '_> {
    /// So many of its bytes are there.
    pub(super) fn come(&mut self, bytes: u64) {
        // what comes beside them counts for nothing
        let more = bytes.min(self.nbytes).saturating_sub(self.come);
        if more > 0 {
            self.course.done.fetch_add(more, Ordering::Relaxed);
            self.come += more;
        }
    }

    /// Asks whether to go on.
    pub(super) fn flow(&mut self) -> ControlFlow<()> {
        self.worked = 0;
        // what others failed at ends this too
        if self.course.failure.is_seen() { ControlFlow::Break(()) } else { self.course.watch.ask(self.course.done()) }
    }

    /// Something was done with so many bytes more: asks after every step whether to go on.
    pub(super) fn work(&mut self, bytes: usize) -> Result<()> {
        self.worked = self.worked.saturating_add(bytes);
        if self.worked < STEP { Ok(()) } else { unless_stopped(self.flow()) }
    }

    /// Copies bytes of the tensor, in front of which are so many others.
    pub(super) fn copy(&mut self, before: u64, from: &[u8], out: &mut [u8]) -> Result<()> {
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
    pub(super) fn end(mut self) -> Result<()> {
        self.come(self.nbytes);
        unless_stopped(self.course.watch.tell(self.course.done()))
    }
}
