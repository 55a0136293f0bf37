//! A bounded read-ahead queue: readers take requests and return them filled; consumers get complete extents in order.
//!
//! Extents are started in list order, as many as [`LoadContext::read_ahead`] allows. Each gets one pool buffer, which is
//! split into requests that readers fill independently and in any order. A consumer blocks until the last request of
//! its extent is filled. The first failure stops the queue, and every blocked consumer returns it.
//!
//! One mutex guards all of the state. It is held for bookkeeping only: buffers are allocated and callbacks are called
//! with the mutex released. `is_starting` keeps a second reader from starting the same extent meanwhile.

mod start;
mod stop_reason;

use std::collections::VecDeque;
use std::io;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use zeropool::{BufferPart, BufferPool, DividedBuffer, SharedBuffer};

use super::coalesce::Coalesced;
use super::report::{IoReport, ReportBuilder};
use super::{Chunk, Feed, LoadContext, OnBytes, WAIT_INTERVAL};
use crate::base::error::{Error, Result};
use crate::base::progress::{CHECK_INTERVAL, check_cancelled};
use crate::base::sync::{Condvar, Mutex};
use crate::read::catalog::ByteRange;
use crate::read::checkpoint::Checkpoint;
use stop_reason::StopReason;

/// How extents are split into requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestLayout {
    /// Bytes of a request.
    pub(super) size: usize,
    /// Offsets and lengths of requests are multiples of it. The last request of a file may reach beyond its end.
    pub(super) align: u64,
}

/// One read of a file, into the buffer part that is handed out with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadRequest {
    extent: usize,
    /// Index among the requests of the extent.
    index: usize,
    /// Index of the file.
    pub(super) file: u32,
    /// Offset in the file.
    pub(super) start: u64,
    /// Bytes that must be read. The buffer part may be longer, for alignment.
    pub(super) needed: usize,
}

pub(super) struct ReadAhead<'c> {
    checkpoint: &'c Checkpoint,
    pool: BufferPool,
    /// Bytes of extents that may be started and not consumed.
    limit: u64,
    layout: RequestLayout,
    list: Coalesced,
    report: Arc<ReportBuilder>,
    state: Mutex<ReadAheadState>,
    /// Signalled when a request may be available, or the queue has stopped.
    request_available: Condvar,
    /// Signalled when an extent is complete or has made progress, or the queue has stopped.
    extent_changed: Condvar,
}

#[derive(Default)]
struct ReadAheadState {
    requests: VecDeque<(ReadRequest, BufferPart)>,
    extents: Vec<ExtentState>,
    /// Extents that were started.
    started: usize,
    /// Whether a reader is getting the buffer of the next extent.
    is_starting: bool,
    /// A consumer is blocked on an extent in front of this one.
    needed: usize,
    /// Bytes of extents that were started and not consumed.
    outstanding: u64,
    stopped: Option<StopReason>,
}

enum ExtentState {
    NotStarted,
    Filling {
        /// Requests that are not filled.
        missing: usize,
        parts: Vec<Option<BufferPart>>,
    },
    Complete {
        bytes: ExtentBytes,
        /// Reads of the extent that were not consumed.
        reads: u32,
    },
    Consumed,
}

/// The bytes of a complete extent.
enum ExtentBytes {
    /// Each read gets the only view of its bytes, which becomes writable again.
    Divided(DividedBuffer),
    /// Reads have bytes in common.
    Shared(SharedBuffer),
}

impl ExtentBytes {
    /// `None` if the bytes of a divided extent were consumed before.
    fn get(&mut self, range: Range<usize>) -> Option<SharedBuffer> {
        match self {
            Self::Divided(bytes) => bytes.part(range).map(BufferPart::freeze),
            Self::Shared(bytes) => Some(bytes.slice(range)),
        }
    }
}

impl ExtentState {
    /// Bytes that have arrived, of an extent that is not complete. Counts whole requests, though the last one of an
    /// extent may be shorter.
    fn arrived(&self, layout: &RequestLayout) -> usize {
        match self {
            Self::Filling { missing, parts } => (parts.len() - missing).saturating_mul(layout.size),
            Self::NotStarted | Self::Complete { .. } | Self::Consumed => 0,
        }
    }
}

/// The answer to a reader that looks for work.
pub(super) enum NextRequest {
    Request(ReadRequest, BufferPart),
    /// No request until an extent is consumed.
    Full,
    /// Every extent was started, or the queue has stopped.
    Finished,
}

impl<'c> ReadAhead<'c> {
    pub(super) fn new(
        context: &LoadContext<'c>,
        list: Coalesced,
        layout: RequestLayout,
        report: Arc<ReportBuilder>,
    ) -> Self {
        let extents = list
            .extents
            .iter()
            .map(|_| ExtentState::NotStarted)
            .collect();
        let state = ReadAheadState {
            extents,
            ..ReadAheadState::default()
        };
        Self {
            checkpoint: context.checkpoint,
            pool: context.pool.clone(),
            limit: context.read_ahead,
            layout,
            list,
            report,
            state: Mutex::new(state),
            request_available: Condvar::new(),
            extent_changed: Condvar::new(),
        }
    }

    /// Whether one request reads everything.
    pub(super) fn is_one_request(&self) -> bool {
        let start = |bytes: &ByteRange| bytes.start / self.layout.align * self.layout.align;
        match &*self.list.extents {
            [] => true,
            [only] => {
                only.bytes.end().saturating_sub(start(&only.bytes)) <= self.layout.size as u64
            }
            _ => false,
        }
    }

    /// The next request. If the read-ahead limit is reached, blocks if `wait` is set, and returns
    /// [`NextRequest::Full`] otherwise.
    pub(super) fn next(&self, wait: bool) -> NextRequest {
        let mut state = self.state.lock();
        loop {
            if state.stopped.is_some() {
                return NextRequest::Finished;
            }
            // requests of extents that were started come first: a consumer waits for whole extents
            if let Some((request, part)) = state.requests.pop_front() {
                return NextRequest::Request(request, part);
            }
            let Some(extent) = self.list.extents.get(state.started) else {
                return NextRequest::Finished;
            };
            // the limit yields to a consumer that is blocked, and to an extent that is longer than the limit
            let fits = state.outstanding.saturating_add(extent.bytes.len) <= self.limit;
            let may_start = fits || state.outstanding == 0 || state.started < state.needed;
            if !state.is_starting && may_start {
                // `start` releases the mutex, so the state is examined again from the beginning of the loop
                let before = state.started;
                state = self.start(state, wait);
                if !wait && state.started == before && state.stopped.is_none() {
                    return NextRequest::Full;
                }
            } else if wait || state.is_starting {
                self.request_available.wait(&mut state);
            } else {
                return NextRequest::Full;
            }
        }
    }

    /// Returns a request whose needed bytes were read.
    pub(super) fn complete(&self, request: ReadRequest, part: BufferPart) {
        let mut state = self.state.lock();
        let ExtentState::Filling { missing, parts } = &mut state.extents[request.extent] else {
            return;
        };
        parts[request.index] = Some(part);
        *missing -= 1;
        let arrived = (parts.len() - *missing).saturating_mul(self.layout.size);
        if *missing > 0 {
            // wakes consumers once per check interval, not once per request
            if arrived / CHECK_INTERVAL > (arrived - self.layout.size) / CHECK_INTERVAL {
                self.extent_changed.notify_all();
            }
            return;
        }
        let parts: Vec<BufferPart> = parts.iter_mut().filter_map(Option::take).collect();
        // readers fill parts without the mutex and take it in `complete`, so a consumer that holds it sees the bytes
        // of all parts
        let buffer = BufferPart::join(parts)
            .unwrap_or_else(|_| unreachable!("all parts of one buffer, each at its index"));
        let extent = &self.list.extents[request.extent];
        let bytes = if extent.is_disjoint {
            ExtentBytes::Divided(buffer.divide())
        } else {
            ExtentBytes::Shared(buffer.freeze())
        };
        state.extents[request.extent] = ExtentState::Complete {
            bytes,
            reads: extent.reads,
        };
        self.extent_changed.notify_all();
    }

    /// Stops the queue because a read failed.
    pub(super) fn fail(&self, file: u32, offset: u64, error: io::Error) {
        self.stop(StopReason::Read {
            file,
            offset,
            error: error.into(),
        });
    }

    /// Keeps the first reason, and wakes every reader and consumer.
    fn stop(&self, reason: StopReason) {
        let mut state = self.state.lock();
        state.stopped.get_or_insert(reason);
        // dropping the parts returns their buffers to the pool, which a blocked consumer may need
        state.requests.clear();
        self.request_available.notify_all();
        self.extent_changed.notify_all();
    }

    /// Whether the queue has stopped: no request is needed any more.
    pub(super) fn is_stopped(&self) -> bool {
        self.state.lock().stopped.is_some()
    }

    /// A value that stops the queue when it is dropped. The thread of the consumer holds it, so that the readers end
    /// whether the consumer returns or panics.
    pub(super) fn stop_on_drop(&self) -> StopReadAhead<'_, 'c> {
        StopReadAhead(self)
    }

    /// A value that stops the queue if it is dropped by a panic. Every reader holds one, so that consumers do not wait
    /// for a request that no reader will complete.
    pub(super) fn stop_on_panic(&self) -> StopOnPanic<'_, 'c> {
        StopOnPanic(self)
    }
}

impl<'c> Feed<'c> for ReadAhead<'c> {
    fn get(&self, read: usize) -> Result<Chunk<'c>> {
        self.get_cancellable(read, &mut |_| ControlFlow::Continue(()))
    }

    fn get_cancellable(&self, read: usize, on_bytes: OnBytes<'_>) -> Result<Chunk<'c>> {
        let unknown = || {
            let count = self.list.slices.len();
            Error::invalid_argument(format!("read {read} does not exist; the list has {count}"))
        };
        let slice = *self.list.slices.get(read).ok_or_else(unknown)?;
        let consumed_before =
            || Error::invalid_argument(format!("read {read} was consumed before"));
        if slice.len == 0 {
            return Ok(Chunk::Borrowed(&[]));
        }
        let mut state = self.state.lock();
        // the bytes that were reported, and whether the last wait timed out
        let (mut reported, mut timed_out) = (0, false);
        loop {
            if let ExtentState::Complete { bytes, reads } = &mut state.extents[slice.extent] {
                let ByteRange { start, len, .. } = self.list.extents[slice.extent].bytes;
                // bytes in front of the extent that were read for alignment
                let lead = start % self.layout.align;
                let from = usize::try_from(lead + slice.start).expect("within a buffer");
                let to = from + usize::try_from(slice.len).expect("within a buffer");
                let chunk = bytes.get(from..to).ok_or_else(consumed_before)?;
                // extents are shared by reads, and each read is consumed once
                *reads -= 1;
                if *reads == 0 {
                    state.extents[slice.extent] = ExtentState::Consumed;
                    // bytes that a consumer keeps after its last read of the extent no longer count as read-ahead
                    state.outstanding = state.outstanding.saturating_sub(len);
                    self.request_available.notify_all();
                }
                return Ok(Chunk::Pooled(chunk));
            }
            if matches!(state.extents[slice.extent], ExtentState::Consumed) {
                return Err(consumed_before());
            }
            if let Some(reason) = &state.stopped {
                return Err(reason.clone().into_error(self.checkpoint));
            }
            if state.needed <= slice.extent {
                // lets `next` exceed the limit up to this extent, so that no order of consumption deadlocks
                state.needed = slice.extent + 1;
                self.request_available.notify_all();
            }
            let arrived = state.extents[slice.extent].arrived(&self.layout);
            if timed_out || arrived >= reported + CHECK_INTERVAL {
                // the callback is the caller's and may take long, so that it is called without the mutex
                drop(state);
                check_cancelled(on_bytes(slice.len.min(arrived as u64)))?;
                (reported, timed_out) = (arrived, false);
                state = self.state.lock();
                continue;
            }
            timed_out = self
                .extent_changed
                .wait_for(&mut state, WAIT_INTERVAL)
                .timed_out();
        }
    }

    fn report(&self) -> Option<IoReport> {
        Some(self.report.report())
    }
}

/// See [`ReadAhead::stop_on_drop`].
pub(super) struct StopReadAhead<'b, 'c>(&'b ReadAhead<'c>);

impl Drop for StopReadAhead<'_, '_> {
    fn drop(&mut self) {
        self.0.stop(StopReason::Finished);
    }
}

/// See [`ReadAhead::stop_on_panic`].
pub(super) struct StopOnPanic<'b, 'c>(&'b ReadAhead<'c>);

impl Drop for StopOnPanic<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop(StopReason::ReaderPanicked);
        }
    }
}
