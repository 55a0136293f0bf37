//! Requests that fill the blocks of a file.

use std::sync::Arc;

use super::SharedFile;
use super::state::FileState;
use super::stream::RangeEvent;
use crate::answer::RequestedRange;
use crate::blocks::BlockAt;
use crate::error::{ErrorKind, Result};

impl SharedFile {
    /// Requests a range into its blocks.
    pub(super) fn spawn(self: &Arc<Self>, state: &mut FileState, range: RequestedRange) {
        let (shared, epoch) = (Arc::clone(self), state.epoch);
        state.run(async move { shared.fetch(range, None, epoch).await });
    }

    /// Requests the first bytes unless the file is the one whose header was kept, and in that case its last ones too.
    pub(super) fn spawn_comparison(
        self: &Arc<Self>,
        state: &mut FileState,
        head: RequestedRange,
        tail: u64,
    ) {
        let (shared, epoch) = (Arc::clone(self), state.epoch);
        state.run(async move { shared.fetch(head, Some(tail), epoch).await });
    }

    /// `compared`: whether the cache of headers offers the file, and how many of its last bytes are requested if it is another
    /// one.
    async fn fetch(self: Arc<Self>, range: RequestedRange, compared: Option<u64>, epoch: u64) {
        // ends the blocks of the range in any case, also if the task panics
        let _pending = PendingRange {
            shared: &self,
            range,
            epoch,
        };
        let _slot = self.slot().await;
        let result = self.fetch_into_blocks(range, compared, epoch).await;
        let result = result.and_then(|()| self.compare_digest());
        let Err(error) = result else {
            return;
        };
        let mut state = self.lock();
        if state.epoch != epoch {
            // given up meanwhile: the error concerns no reader
            return;
        }
        match range {
            _ if error.kind() == ErrorKind::Changed && state.version.is_some() => {
                state.failed = Some(error)
            }
            // its readers wait for all of it
            _ if state.awaits_digest => state.failed = Some(error),
            // the first request decides whether the file can be read; servers need not know ranges from the end
            RequestedRange::Between(0, _) if state.version.is_none() => state.failed = Some(error),
            RequestedRange::Between(start, end) => {
                state.failures.insert(start, (end, error));
            }
            // the bytes are requested by their place when they are read
            RequestedRange::Last(_) => {}
        }
    }

    async fn fetch_into_blocks(
        self: &Arc<Self>,
        range: RequestedRange,
        compared: Option<u64>,
        epoch: u64,
    ) -> Result<()> {
        let first = match compared {
            None => None,
            Some(tail) => {
                let Some(answer) = self.compare(range, epoch).await? else {
                    return Ok(());
                };
                self.request_last(tail, epoch);
                Some(answer)
            }
        };
        let deliver = |event| {
            let RangeEvent::Bytes(at, part) = event else {
                return true;
            };
            let mut state = self.lock();
            if state.epoch != epoch {
                return false;
            }
            state.blocks.put(at, &part);
            if let Some(kept) = &mut state.kept {
                kept.is_new = true;
            }
            drop(state);
            self.changed.notify_all();
            true
        };
        self.stream_from(first, range, deliver).await
    }

    /// Compares a file that has arrived as a whole with its digest, and lets its readers go on.
    fn compare_digest(&self) -> Result<()> {
        let mut state = self.lock();
        if !state.awaits_digest || !state.is_whole() {
            return Ok(());
        }
        if let (Some(blob), BlockAt::Arrived(bytes)) =
            (self.resource.whole_blob(), state.blocks.at(0))
        {
            blob.digest.check(bytes)?;
        }
        state.awaits_digest = false;
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Requests the last bytes, while the length is not known.
    fn request_last(self: &Arc<Self>, tail: u64, epoch: u64) {
        let mut state = self.lock();
        if tail > 0 && state.epoch == epoch {
            state.tail = tail;
            self.spawn(&mut state, RequestedRange::Last(tail));
        }
    }
}

/// A range that a task requests. Bytes that have not arrived when the task ends are given up.
struct PendingRange<'s> {
    shared: &'s SharedFile,
    range: RequestedRange,
    epoch: u64,
}

impl Drop for PendingRange<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        // blocks of this range may belong to a later request
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
