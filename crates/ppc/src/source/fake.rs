//! Events that a test pushes.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{drained, readable};
use crate::error::Result;
use crate::event::{Event, EventSource, Inode, Sight, Waker};

/// A source that tells what its [`Hand`] gives it.
///
/// ```
/// use std::time::Duration;
/// use anamnesis_ppc::{Event, EventSource, Inode, Kind, source::Fake};
///
/// let (mut source, hand) = Fake::new()?;
/// let inode = Inode { dev: 1, ino: 2 };
/// source.watch(&[inode])?;
/// hand.push(&[Event { kind: Kind::Miss, inode, start: 0, len: 4096, pid: 1, tid: 1, time: 1 }]);
/// let mut events = Vec::new();
/// assert!(source.wait(Duration::ZERO, &mut events)?);
/// assert_eq!(events.len(), 1);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Fake {
    state: Arc<Mutex<State>>,
    files: Option<HashSet<Inode>>,
    waker: Waker,
    wake: Arc<OwnedFd>,
}

/// Gives events to a [`Fake`], from any thread.
#[derive(Clone, Debug)]
pub struct Hand {
    state: Arc<Mutex<State>>,
    waker: Waker,
}

#[derive(Debug, Default)]
struct State {
    events: Vec<Event>,
    lost: u64,
    ended: bool,
    watched: Vec<Inode>,
}

impl Fake {
    /// A source and its hand.
    ///
    /// # Errors
    ///
    /// The system has no descriptor left.
    pub fn new() -> io::Result<(Self, Hand)> {
        let state = Arc::new(Mutex::new(State::default()));
        let (waker, wake) = Waker::new()?;
        let hand = Hand {
            state: Arc::clone(&state),
            waker: waker.clone(),
        };
        Ok((
            Self {
                state,
                files: None,
                waker,
                wake,
            },
            hand,
        ))
    }
}

impl Hand {
    /// Tells these, of the files that are watched, and ends a wait.
    pub fn push(&self, events: &[Event]) {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .events
            .extend_from_slice(events);
        self.waker.wake();
    }

    /// As if so many events had been lost.
    pub fn lose(&self, events: u64) {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .lost += events;
    }

    /// There will be no more.
    pub fn end(&self) {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .ended = true;
        self.waker.wake();
    }

    /// What the source was told to watch last.
    pub fn watched(&self) -> Vec<Inode> {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .watched
            .clone()
    }
}

impl EventSource for Fake {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn sight(&self) -> Sight {
        Sight {
            read_misses: true,
            map_misses: true,
            reads: true,
            maps: true,
            blind: "everything that is not pushed",
        }
    }

    fn watch(&mut self, files: &[Inode]) -> Result<()> {
        self.files = Some(files.iter().copied().collect());
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .watched = files.to_vec();
        Ok(())
    }

    fn wait(&mut self, timeout: Duration, into: &mut Vec<Event>) -> io::Result<bool> {
        let (before, mut timeout) = (into.len(), timeout);
        loop {
            let woken = drained(&self.wake);
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
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
            readable(&[&self.wake], timeout)?;
            timeout = Duration::ZERO;
        }
    }

    fn lost(&self) -> u64 {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .lost
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }
}
