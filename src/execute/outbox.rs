//! Made tiles on their way to a sink that takes them one at a time.
//!
//! A file takes one write at a time, whoever waits for it. So a worker that has made a tile leaves it here;
//! if nobody is writing it writes what is here, and else goes on to the next tile. Nobody waits but for
//! a buffer, of which there are few.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::Result;

/// A tile that was made.
pub(super) struct Made {
    pub(super) job: usize,
    pub(super) start: u64,
    /// Its first `nbytes` are the tile.
    pub(super) buffer: Vec<u8>,
    pub(super) nbytes: usize,
}

/// Tiles that wait, and buffers that are free.
pub(super) struct Outbox {
    state: Mutex<State>,
    freed: Condvar,
}

struct State {
    waiting: VecDeque<Made>,
    free: Vec<Vec<u8>>,
    /// Buffers that may still be made.
    unmade: usize,
    writing: bool,
    /// Nothing more will be written.
    closed: bool,
}

impl Outbox {
    /// For so many workers: two buffers each, and one more, so that the writer is never short of work.
    pub(super) fn new(workers: usize) -> Self {
        let state = State {
            waiting: VecDeque::new(),
            free: Vec::new(),
            unmade: 2 * workers + 1,
            writing: false,
            closed: false,
        };
        Self { state: Mutex::new(state), freed: Condvar::new() }
    }

    /// A buffer to make a tile in. Waits until there is one; `None` once it is [closed](Self::close).
    pub(super) fn buffer(&self) -> Option<Vec<u8>> {
        let mut state = self.state();
        loop {
            if state.closed {
                return None;
            }
            if let Some(buffer) = state.free.pop() {
                return Some(buffer);
            }
            if state.unmade > 0 {
                state.unmade -= 1;
                return Some(Vec::new());
            }
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Leaves a tile, and writes what waits unless someone does.
    pub(super) fn leave(&self, made: Made, mut write: impl FnMut(&Made) -> Result<()>) -> Result<()> {
        let mut state = self.state();
        state.waiting.push_back(made);
        if state.writing {
            return Ok(());
        }
        state.writing = true;
        while let Some(made) = state.waiting.pop_front() {
            drop(state);
            let written = write(&made);
            state = self.state();
            if let Err(error) = written {
                state.writing = false;
                return Err(error);
            }
            state.free.push(made.buffer);
            self.freed.notify_one();
        }
        state.writing = false;
        Ok(())
    }

    /// Wakes whoever waits for a buffer: something failed.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.freed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
