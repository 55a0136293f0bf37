//! A source for tests, whose events are pushed by hand.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::poll::{drain, wait_readable};
use crate::error::Result;
use crate::event::{Capabilities, Event, EventSource, Inode, Waker};

/// A source that reports the events pushed through its [`FakeSourceHandle`].
///
/// ```
/// use std::time::Duration;
/// use anamnesis_ppc::{Event, EventKind, EventSource, Inode, source::FakeSource};
///
/// let (mut source, handle) = FakeSource::new()?;
/// let inode = Inode { dev: 1, ino: 2 };
/// source.watch(&[inode])?;
/// handle.push(&[Event { kind: EventKind::Miss, inode, start: 0, len: 4096, pid: 1, tid: 1, time: 1 }]);
/// let mut events = Vec::new();
/// assert!(source.wait(Duration::ZERO, &mut events)?);
/// assert_eq!(events.len(), 1);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FakeSource {
    state: Arc<Mutex<FakeState>>,
    files: Option<HashSet<Inode>>,
    waker: Waker,
    wake_fd: Arc<OwnedFd>,
}

/// Pushes events into a [`FakeSource`], from any thread.
#[derive(Clone, Debug)]
pub struct FakeSourceHandle {
    state: Arc<Mutex<FakeState>>,
    waker: Waker,
}

#[derive(Debug, Default)]
struct FakeState {
    events: Vec<Event>,
    lost: u64,
    ended: bool,
    watched: Vec<Inode>,
}

fn lock(state: &Mutex<FakeState>) -> MutexGuard<'_, FakeState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FakeSource {
    /// A source and its handle.
    ///
    /// # Errors
    ///
    /// The process has no descriptor left.
    pub fn new() -> io::Result<(Self, FakeSourceHandle)> {
        let state = Arc::new(Mutex::new(FakeState::default()));
        let (waker, wake_fd) = Waker::new()?;
        let handle = FakeSourceHandle {
            state: Arc::clone(&state),
            waker: waker.clone(),
        };
        let source = Self {
            state,
            files: None,
            waker,
            wake_fd,
        };
        Ok((source, handle))
    }
}

impl FakeSourceHandle {
    /// Adds events and ends the source's wait. Events of files that are not watched are discarded.
    pub fn push(&self, events: &[Event]) {
        lock(&self.state).events.extend_from_slice(events);
        // after the events, so that the wait which it ends finds them
        self.waker.wake();
    }

    /// Increases the number of lost events.
    pub fn lose(&self, events: u64) {
        lock(&self.state).lost += events;
    }

    /// Ends the source: its next wait reports that there are no more events.
    pub fn end(&self) {
        lock(&self.state).ended = true;
        self.waker.wake();
    }

    /// The files that the source watches.
    pub fn watched(&self) -> Vec<Inode> {
        lock(&self.state).watched.clone()
    }
}

impl EventSource for FakeSource {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            read_misses: true,
            map_misses: true,
            reads: true,
            first_touches: true,
            limitations: "anything but the events pushed by hand",
        }
    }

    fn watch(&mut self, files: &[Inode]) -> Result<()> {
        self.files = Some(files.iter().copied().collect());
        lock(&self.state).watched = files.to_vec();
        Ok(())
    }

    fn wait(&mut self, timeout: Duration, into: &mut Vec<Event>) -> io::Result<bool> {
        let (before, mut timeout) = (into.len(), timeout);
        loop {
            // before the events are looked at: a wake that comes after this ends the next wait
            let woken = drain(&self.wake_fd);
            let mut state = lock(&self.state);
            let ended = state.ended;
            let watched = |event: &Event| {
                self.files
                    .as_ref()
                    .is_some_and(|files| files.contains(&event.inode))
            };
            into.extend(state.events.drain(..).filter(watched));
            drop(state);
            if woken || ended || into.len() > before || timeout.is_zero() {
                return Ok(!ended);
            }
            wait_readable(&[&self.wake_fd], timeout)?;
            // the second look ends the wait, whatever it finds
            timeout = Duration::ZERO;
        }
    }

    fn lost(&self) -> u64 {
        lock(&self.state).lost
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }
}
