//! Starting an extent: getting its buffer, and splitting it into requests.

use std::time::Instant;

use zeropool::{Buffer, GetError};

use super::super::POOL_TIMEOUT;
use super::stop_reason::StopReason;
use super::{ExtentState, ReadAhead, ReadAheadState, ReadRequest};
use crate::base::sync::MutexGuard;

impl ReadAhead<'_> {
    /// Gets the buffer of the next extent and splits it into requests. Releases the mutex while it waits for the
    /// buffer. Changes nothing if the pool is exhausted and `wait` is not set.
    pub(super) fn start<'b>(
        &'b self,
        mut state: MutexGuard<'b, ReadAheadState>,
        wait: bool,
    ) -> MutexGuard<'b, ReadAheadState> {
        let extent = state.started;
        let bytes = self.list.extents[extent].bytes;
        state.is_starting = true;
        // getting a buffer may map memory or wait for one to be returned; completions and consumers must go on
        // meanwhile. `is_starting` keeps the order of extents
        drop(state);
        let start = bytes.start / self.layout.align * self.layout.align;
        let len = bytes.end().next_multiple_of(self.layout.align) - start;
        let parts = self
            .buffer(len, wait)
            .map(|buffer| buffer.map(|buffer| buffer.split(self.layout.size)));
        let mut state = self.state.lock();
        state.is_starting = false;
        match parts {
            Ok(None) => {}
            Ok(Some(parts)) => {
                state.started += 1;
                state.outstanding = state.outstanding.saturating_add(bytes.len);
                let none = std::iter::repeat_with(|| None).take(parts.len()).collect();
                state.extents[extent] = ExtentState::Filling {
                    missing: parts.len(),
                    parts: none,
                };
                let requests = parts.into_iter().enumerate().map(|(index, part)| {
                    let start = start + part.offset() as u64;
                    let needed = usize::try_from(bytes.end() - start)
                        .unwrap_or(usize::MAX)
                        .min(part.len());
                    let request = ReadRequest {
                        extent,
                        index,
                        file: bytes.file,
                        start,
                        needed,
                    };
                    (request, part)
                });
                state.requests.extend(requests);
            }
            Err(reason) => {
                state.stopped.get_or_insert(reason);
                self.extent_changed.notify_all();
            }
        }
        // also without a new request: readers that waited for `is_starting` look at the state again
        self.request_available.notify_all();
        state
    }

    /// A buffer of `len` bytes. Waits while the pool is exhausted, but fails once a consumer has been blocked on an
    /// extent that is not started for [`POOL_TIMEOUT`]: the consumer may hold the very buffers that are waited for.
    fn buffer(&self, len: u64, wait: bool) -> Result<Option<Buffer>, StopReason> {
        let failed = |text: String, os| {
            let budget = self.pool.budget() as u64;
            StopReason::Pool {
                needed: len,
                text,
                os,
                budget,
            }
        };
        let size = usize::try_from(len)
            .map_err(|_| failed("more than this machine can address".into(), None))?;
        let mut last = None;
        // since when a consumer has been blocked
        let mut blocked_since = None;
        loop {
            if !self.is_consumer_blocked() {
                blocked_since = None;
            } else if blocked_since.get_or_insert_with(Instant::now).elapsed() >= POOL_TIMEOUT {
                return Err(failed(last.unwrap_or_default(), None));
            }
            let found = if wait {
                // in short waits, because the queue may stop, or a consumer may start to wait, in between
                self.pool.get_timeout(size, POOL_TIMEOUT / 50)
            } else {
                self.pool.try_get(size)
            };
            match found {
                Ok(buffer) => return Ok(Some(buffer)),
                Err(GetError::BudgetExhausted { .. } | GetError::TimedOut { .. }) if !wait => {
                    return Ok(None);
                }
                Err(e @ (GetError::BudgetExhausted { .. } | GetError::TimedOut { .. })) => {
                    last = Some(e.to_string())
                }
                Err(
                    GetError::OutOfMemory { source, .. }
                    | GetError::Pin { source, .. }
                    | GetError::Register { source, .. },
                ) => {
                    return Err(failed(source.to_string(), source.raw_os_error()));
                }
                Err(e) => return Err(failed(e.to_string(), None)),
            }
            if self.state.lock().stopped.is_some() {
                return Err(StopReason::Finished);
            }
        }
    }

    /// Whether a consumer is blocked on an extent that was not started.
    fn is_consumer_blocked(&self) -> bool {
        let state = self.state.lock();
        state.needed > state.started
    }
}
