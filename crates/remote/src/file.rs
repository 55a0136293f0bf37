//! A remote file: blocks that arrive, and readers that wait for them.

mod cached;
mod fetch;
mod kept_header;
mod read_ranges;
mod started;
mod state;
mod straight;
mod stream;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::answer::{FileVersion, RequestedRange};
use crate::blocks::{BlockAt, BlockMemory, Blocks};
use crate::client::Client;
use crate::error::Result;
use crate::guess::FirstRequests;
use crate::resource::Resource;
use crate::runtime::LOOK;

use cached::Beginning;
pub(crate) use kept_header::HeaderPlace;
pub use started::{RangeReceiver, StartedRange};
use state::FileState;

/// The most that one request reads.
const PIECE: u64 = 8 << 20;
/// A read of this length goes past the blocks, straight into the caller's buffer.
const STRAIGHT: usize = 1 << 20;
/// The least that a read at a new place requests, and where reading forward begins to double.
const STEP: u64 = 64 << 10;
/// Bytes between two announced ranges that cost less than a request of their own.
const GAP: u64 = 64 << 10;
/// Blocks that one file keeps.
const KEPT: u64 = 64 << 20;
/// The share of a store's memory that a file may keep when it is dropped: one of this many.
const SHORT: u64 = 16;
/// Announced bytes that are requested ahead of their reader.
const AHEAD: u64 = 32 << 20;

/// A file of a [`Store`](crate::Store), of one version: its length and ETag come from the first answer, and every further
/// answer is compared with them.
pub struct RemoteFile {
    shared: Arc<SharedFile>,
}

/// A file that may need no further request.
pub(crate) struct KnownFile(Arc<SharedFile>);

struct SharedFile {
    client: Arc<Client>,
    resource: Resource,
    /// Requests of the store that may run at a time.
    slots: Arc<Semaphore>,
    /// Whether there is a cache of headers.
    keeps_header: bool,
    state: Mutex<FileState>,
    changed: Condvar,
}

impl RemoteFile {
    /// Requests the first and last bytes, as far as the cache of headers has no use for them, and returns at once.
    pub(crate) fn begin(
        client: Arc<Client>,
        slots: Arc<Semaphore>,
        memory: Arc<BlockMemory>,
        resource: Resource,
        first: FirstRequests,
        place: Option<HeaderPlace>,
    ) -> Self {
        /// Enough for the names and lengths with which files begin.
        const LEAST: u64 = 4 << 10;
        let head = first.head.min(memory.room().max(LEAST));
        let tail = first.tail.min(memory.room().saturating_sub(head));
        let shared = Arc::new(SharedFile {
            client,
            resource,
            slots,
            keeps_header: place.is_some(),
            state: Mutex::new(FileState::new(Blocks::new(memory))),
            changed: Condvar::new(),
        });
        {
            let mut state = shared.lock();
            if shared.resource.is_empty_member() {
                state.version = Some(FileVersion::EMPTY);
                drop(state);
                return Self { shared };
            }
            let whole = shared.resource.whole_blob();
            state.awaits_digest = whole.is_some_and(|blob| (1..=head).contains(&blob.len));
            let beginning = match place {
                Some(place) => shared.look_up(&mut state, place),
                None => Beginning::Requests,
            };
            let first = RequestedRange::Between(0, head);
            match beginning {
                Beginning::Kept => {}
                Beginning::Comparison => {
                    state.blocks.request(0, head, head);
                    shared.spawn_comparison(&mut state, first, tail);
                }
                Beginning::Requests => {
                    state.blocks.request(0, head, head);
                    shared.spawn(&mut state, first);
                    if tail > 0 {
                        state.tail = tail;
                        shared.spawn(&mut state, RequestedRange::Last(tail));
                    }
                }
            }
        }
        Self { shared }
    }

    /// The knowledge about the file that stays after this one is dropped.
    pub(crate) fn known(&self) -> KnownFile {
        KnownFile(Arc::clone(&self.shared))
    }

    /// The length in bytes. Waits for the first answer.
    ///
    /// # Errors
    /// The errors of the first request.
    pub fn len(&self) -> Result<u64> {
        Ok(self.shared.known(self.shared.lock())?.0)
    }

    /// Whether the file has no bytes. Waits for the first answer.
    ///
    /// # Errors
    /// The errors of the first request.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Reads into `buf` from `start` on and returns the number of bytes: less only at the end of the file.
    ///
    /// # Errors
    /// The errors of the requests; an error of kind [`Changed`](crate::ErrorKind::Changed) if an answer is about another
    /// content.
    pub fn read_at(&self, start: u64, buf: &mut [u8]) -> Result<usize> {
        let n = self.read(start, buf)?;
        if self.shared.keeps_header
            && let Some(kept) = &mut self.shared.lock().kept
        {
            // the bytes that the parser has read, which are fewer than arrived: only they are needed again
            kept.read.add(start, &buf[..n]);
        }
        Ok(n)
    }

    fn read(&self, start: u64, buf: &mut [u8]) -> Result<usize> {
        let shared = &self.shared;
        let (len, mut state) = shared.known(shared.lock())?;
        let rest = len.saturating_sub(start);
        let n = usize::try_from(rest).map_or(buf.len(), |rest| rest.min(buf.len()));
        let buf = &mut buf[..n];
        // the lock is released first: a straight read takes as long as its bytes
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
                        // memory is the store's: what this file keeps for later gives way before a read bypasses the
                        // blocks
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
        // an announcement is often longer than what is read, which the cache of headers has
        if state.kept.as_ref().is_some_and(|kept| kept.is_filled) {
            return;
        }
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

    /// The header is parsed: gives up what is requested and frees what has arrived, except of a file that is there as a whole.
    /// Bytes that were read until now are kept in the [cache of headers](crate::RemoteOptions::header_cache), if there is
    /// one.
    pub fn settled(&self) {
        let mut state = self.shared.lock();
        if state.awaits_digest {
            // short, and not to be read without its digest
            return;
        }
        state.stop();
        let kept = state.kept.take().map(|kept| (kept, state.version.clone()));
        if !state.is_whole() {
            state.blocks.clear();
        }
        // the header was read forward; tensors are read elsewhere
        state.step = 0;
        drop(state);
        // a reader on another thread requests again what it waited for
        self.shared.changed.notify_all();
        if let Some((kept, version)) = kept {
            self.shared.keep(kept, version);
        }
    }
}

impl Drop for RemoteFile {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.stop();
        // for a `KnownFile`, if it is short
        if !state.is_whole() || state.blocks.nbytes() > state.blocks.memory().most() / SHORT {
            state.blocks.clear();
        }
        let is_absent = state.is_absent();
        let kept = state.kept.take().filter(|_| is_absent);
        drop(state);
        if let Some(kept) = kept {
            self.shared.keep_absence(&kept);
        }
    }
}

impl KnownFile {
    /// The file, if reading it sends no request: it is in memory as a whole, or there is no such file.
    pub(crate) fn open(&self) -> Option<RemoteFile> {
        let state = self.0.lock();
        let is_known = state.is_whole() || state.is_absent();
        is_known.then(|| RemoteFile {
            shared: Arc::clone(&self.0),
        })
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
        // a cancellation notifies no condition, so that it is looked for in intervals
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
            if let Some(version) = &state.version
                && !state.awaits_digest
            {
                return Ok((version.len, state));
            }
            state = self.wait(state)?;
        }
    }

    /// Requests the parts of a range that are neither here nor requested.
    fn request(self: &Arc<Self>, state: &mut FileState, range: Range<u64>) {
        for (start, end) in state.blocks.request(range.start, range.end, PIECE) {
            self.spawn(state, RequestedRange::Between(start, end));
        }
    }

    fn request_announced(self: &Arc<Self>, state: &mut FileState) {
        // the list would grow with every request of a long load
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
}
