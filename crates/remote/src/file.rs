//! A remote file: blocks that arrive, and readers that wait for them.

mod started;
mod state;
mod stream;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::answer::RequestedRange;
use crate::blocks::{BlockAt, BlockMemory, Blocks};
use crate::client::Client;
use crate::error::{Error, ErrorKind, Result};
use crate::guess::FirstRequests;
use crate::resource::Resource;
use crate::runtime::{LOOK, runtime};

pub use started::{RangeReceiver, StartedRange};
use state::FileState;
use stream::RangeEvent;

/// The most that one request reads.
const PIECE: u64 = 8 << 20;
/// A read of this length goes past the blocks, straight into the caller's buffer.
const STRAIGHT: usize = 1 << 20;
/// What a read at a new place requests at least, and where reading forward begins to double.
const STEP: u64 = 64 << 10;
/// Bytes between two announced ranges that cost less than a request of their own.
const GAP: u64 = 64 << 10;
/// Blocks that one file keeps.
const KEPT: u64 = 64 << 20;
/// Announced bytes that are requested ahead of their reader.
const AHEAD: u64 = 32 << 20;

/// A file of a [`Store`](crate::Store), of one version: its length and ETag are those of the first answer, and every further
/// answer is compared with them.
pub struct RemoteFile {
    shared: Arc<SharedFile>,
}

struct SharedFile {
    client: Arc<Client>,
    resource: Resource,
    /// Requests of the store that may run at a time.
    slots: Arc<Semaphore>,
    state: Mutex<FileState>,
    changed: Condvar,
}

impl RemoteFile {
    /// Requests the first and last bytes and returns at once.
    pub(crate) fn begin(
        client: Arc<Client>,
        slots: Arc<Semaphore>,
        memory: Arc<BlockMemory>,
        resource: Resource,
        first: FirstRequests,
    ) -> Self {
        /// Enough for the names and lengths with which files begin.
        const LEAST: u64 = 4 << 10;
        let head = first.head.min(memory.room().max(LEAST));
        let tail = first.tail.min(memory.room().saturating_sub(head));
        let shared = Arc::new(SharedFile {
            client,
            resource,
            slots,
            state: Mutex::new(FileState::new(Blocks::new(memory))),
            changed: Condvar::new(),
        });
        {
            let mut state = shared.lock();
            state.blocks.request(0, head, head);
            shared.spawn(&mut state, RequestedRange::Between(0, head));
            if tail > 0 {
                state.tail = tail;
                shared.spawn(&mut state, RequestedRange::Last(tail));
            }
        }
        Self { shared }
    }

    /// The length in bytes. Waits for the first answer.
    ///
    /// # Errors
    /// Those of the first request.
    pub fn len(&self) -> Result<u64> {
        Ok(self.shared.known(self.shared.lock())?.0)
    }

    /// Whether the file has no bytes. Waits for the first answer.
    ///
    /// # Errors
    /// Those of the first request.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Reads into `buf` from `start` on and returns the number of bytes: less only at the end of the file.
    ///
    /// # Errors
    /// Those of the requests; an error of kind [`Changed`](ErrorKind::Changed) if an answer is about another content.
    pub fn read_at(&self, start: u64, buf: &mut [u8]) -> Result<usize> {
        let shared = &self.shared;
        let (len, mut state) = shared.known(shared.lock())?;
        let rest = len.saturating_sub(start);
        let n = usize::try_from(rest).map_or(buf.len(), |rest| rest.min(buf.len()));
        let buf = &mut buf[..n];
        if n >= STRAIGHT && state.blocks.at(start) == BlockAt::Missing {
            drop(state);
            shared.read_straight(start, buf)?;
            return Ok(n);
        }
        let mut done = 0;
        while done < n {
            let at = start + done as u64;
            match state.blocks.at(at) {
                BlockAt::Arrived(bytes) => {
                    let m = bytes.len().min(n - done);
                    buf[done..done + m].copy_from_slice(&bytes[..m]);
                    let used = state.blocks.note_used(at, m as u64);
                    shared.client.counters.used(used);
                    done += m;
                    state.next = at + m as u64;
                }
                BlockAt::Requested => {
                    state = shared.wait(state)?;
                }
                BlockAt::Missing => {
                    state.failure_at(at)?;
                    if state.blocks.memory().room() < STEP {
                        state.blocks.evict(at, 0);
                    }
                    let room = state.blocks.memory().room();
                    if n - done >= STRAIGHT || room < STEP {
                        // long, or without memory for blocks
                        drop(state);
                        shared.read_straight(at, &mut buf[done..])?;
                        return Ok(n);
                    }
                    // reading forward requests twice as much each time
                    state.step = if at == state.next {
                        (state.step * 2).clamp(STEP, PIECE)
                    } else {
                        STEP
                    };
                    let end = (start + n as u64)
                        .max(at.saturating_add(state.step))
                        .min(at.saturating_add(room))
                        .min(len);
                    shared.request(&mut state, at..end);
                }
            }
        }
        shared.request_announced(&mut state);
        let keep = state.next;
        state.blocks.evict(keep, KEPT);
        Ok(n)
    }

    /// Bytes of memory for what was requested and not read yet, or is kept, of all files of the store.
    pub fn held(&self) -> u64 {
        self.shared.lock().blocks.memory().held()
    }

    /// Announces ranges that will be read, in any order: they are requested at once, as far as they fit in memory.
    pub fn scattered(&self, ranges: &mut dyn Iterator<Item = (u64, u64)>) {
        let shared = &self.shared;
        let Ok((len, mut state)) = shared.known(shared.lock()) else {
            return;
        };
        let mut sorted: Vec<Range<u64>> = ranges
            .map(|(start, n)| start.min(len)..start.saturating_add(n).min(len))
            .filter(|range| !range.is_empty())
            .collect();
        sorted.sort_unstable_by_key(|range| range.start);
        let mut merged: VecDeque<Range<u64>> = VecDeque::new();
        for range in sorted {
            match merged.back_mut() {
                Some(last) if range.start <= last.end.saturating_add(GAP) => {
                    last.end = last.end.max(range.end)
                }
                _ => merged.push_back(range),
            }
        }
        state.announced = merged;
        shared.request_announced(&mut state);
    }

    /// Gives up what is requested and frees what has arrived, except of a file that is there as a whole.
    pub fn settled(&self) {
        let mut state = self.shared.lock();
        state.stop();
        let whole = state
            .version
            .as_ref()
            .is_some_and(|version| state.blocks.holds(version.len));
        if !whole {
            state.blocks.clear();
        }
        state.step = 0;
        drop(state);
        // a reader on another thread requests again what it waited for
        self.shared.changed.notify_all();
    }
}

impl Drop for RemoteFile {
    fn drop(&mut self) {
        self.shared.lock().stop();
    }
}

impl SharedFile {
    fn lock(&self) -> MutexGuard<'_, FileState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a request of the store may run.
    async fn slot(&self) -> SemaphorePermit<'_> {
        let slot = self.slots.acquire().await;
        slot.expect("the semaphore is never closed")
    }

    /// Waits for a change, or for the time after which a cancelled opening is noticed.
    fn wait<'s>(&self, state: MutexGuard<'s, FileState>) -> Result<MutexGuard<'s, FileState>> {
        self.client.check_wanted()?;
        let waited = self.changed.wait_timeout(state, LOOK);
        Ok(waited.unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Waits for the first answer.
    fn known<'s>(
        &self,
        mut state: MutexGuard<'s, FileState>,
    ) -> Result<(u64, MutexGuard<'s, FileState>)> {
        loop {
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            if let Some(version) = &state.version {
                return Ok((version.len, state));
            }
            state = self.wait(state)?;
        }
    }

    /// Requests what of a range is neither here nor requested.
    fn request(self: &Arc<Self>, state: &mut FileState, range: Range<u64>) {
        for (start, end) in state.blocks.request(range.start, range.end, PIECE) {
            self.spawn(state, RequestedRange::Between(start, end));
        }
    }

    fn request_announced(self: &Arc<Self>, state: &mut FileState) {
        state.tasks.retain(|task| !task.is_finished());
        loop {
            let room = state.blocks.memory().room();
            if state.blocks.nbytes() >= AHEAD || room < STEP {
                return;
            }
            let Some(mut range) = state.announced.pop_front() else {
                return;
            };
            // a part of a long range, so that no announcement exceeds what is kept
            let end = range.end.min(range.start.saturating_add(PIECE.min(room)));
            self.request(state, range.start..end);
            if end < range.end {
                range.start = end;
                state.announced.push_front(range);
            }
        }
    }

    fn spawn(self: &Arc<Self>, state: &mut FileState, range: RequestedRange) {
        let (shared, epoch) = (Arc::clone(self), state.epoch);
        let task = runtime().spawn(async move { shared.fetch(range, epoch).await });
        state.tasks.push(task.abort_handle());
    }

    /// Requests a range into its blocks.
    async fn fetch(self: Arc<Self>, range: RequestedRange, epoch: u64) {
        // ends the blocks of the range in any case, also if the task panics
        let _pending = PendingRange {
            shared: &self,
            range,
            epoch,
        };
        let _slot = self.slot().await;
        let result = self
            .stream(range, |event| {
                let RangeEvent::Bytes(at, part) = event else {
                    return true;
                };
                let mut state = self.lock();
                if state.epoch != epoch {
                    return false;
                }
                state.blocks.put(at, &part);
                drop(state);
                self.changed.notify_all();
                true
            })
            .await;
        let Err(error) = result else {
            return;
        };
        let mut state = self.lock();
        if state.epoch != epoch {
            return;
        }
        match range {
            _ if error.kind() == ErrorKind::Changed && state.version.is_some() => {
                state.failed = Some(error)
            }
            // the first request decides whether the file can be read; servers need not know ranges from the end
            RequestedRange::Between(0, _) if state.version.is_none() => state.failed = Some(error),
            RequestedRange::Between(start, end) => {
                state.failures.insert(start, (end, error));
            }
            RequestedRange::Last(_) => {}
        }
    }

    /// A large read: pieces side by side, copied into the buffer as they arrive, kept nowhere.
    fn read_straight(self: &Arc<Self>, start: u64, buf: &mut [u8]) -> Result<()> {
        let (send, receive) = std::sync::mpsc::channel();
        let end = start + buf.len() as u64;
        let mut at = start;
        while at < end {
            let stop = end.min(at + PIECE);
            let (shared, send) = (Arc::clone(self), send.clone());
            let range = RequestedRange::Between(at, stop);
            runtime().spawn(async move {
                let _slot = shared.slot().await;
                let deliver = |event| match event {
                    RangeEvent::Bytes(at, part) => send.send(Ok((at, part))).is_ok(),
                    RangeEvent::Delayed => true,
                };
                if let Err(error) = shared.stream(range, deliver).await {
                    let _ = send.send(Err(error)); // the reader has failed already
                }
            });
            at = stop;
        }
        drop(send);
        let mut left = buf.len();
        while left > 0 {
            let (at, part): (u64, Bytes) = match receive.recv_timeout(LOOK) {
                Ok(part) => part?,
                Err(RecvTimeoutError::Timeout) => {
                    self.client.check_wanted()?;
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let what = "a request ended without an answer";
                    return Err(Error::new(ErrorKind::Network, what));
                }
            };
            let offset = usize::try_from(at - start).expect("inside of the buffer");
            buf[offset..offset + part.len()].copy_from_slice(&part);
            self.client.counters.used(part.len() as u64);
            left -= part.len();
        }
        Ok(())
    }
}

/// A range that a task requests. What has not arrived when the task ends is given up.
struct PendingRange<'s> {
    shared: &'s SharedFile,
    range: RequestedRange,
    epoch: u64,
}

impl Drop for PendingRange<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        // blocks of this range may be those of a later request
        if state.epoch != self.epoch {
            return;
        }
        if matches!(self.range, RequestedRange::Last(_)) {
            state.tail = 0;
        }
        let (start, end) = match (self.range, &state.version) {
            (RequestedRange::Between(start, end), _) => (start, end),
            (RequestedRange::Last(n), Some(version)) => {
                (version.len.saturating_sub(n), version.len)
            }
            (RequestedRange::Last(_), None) => return,
        };
        state.blocks.give_up(start, end);
        drop(state);
        self.shared.changed.notify_all();
    }
}
