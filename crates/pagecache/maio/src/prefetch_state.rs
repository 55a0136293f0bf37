//! The running prefetch of a worker, and when a miss or an advance of the worker changes it.
//!
//! The state holds the last requested chunks. [`PrefetchState::judge`] decides for a miss whether
//! the running prefetch will reach it soon or must be interrupted and restarted;
//! [`PrefetchState::extend`] moves the window with the worker.

use std::ops::Range;

use crate::schedule::{AccessPosition, Schedule};
use crate::window_sizes::WindowSizes;

/// Within this time, in nanoseconds, a miss of the first requested chunk confirms the running
/// request. After a second, the chunk should have arrived, so the miss restarts the request.
pub(crate) const REPEAT_NS: u64 = 1_000_000_000;
/// Consecutive misses behind the request, after which the worker has gone back. Fewer may come from
/// a slower thread or a second read of a header.
const MIN_STEPS_BACK: u32 = 3;

/// The last prefetch request.
#[derive(Clone, Debug, Default)]
pub(crate) struct PrefetchState {
    /// The requested chunks.
    requested: Range<usize>,
    /// Whether anything was requested yet.
    has_begun: bool,
    /// The time in nanoseconds at which the first requested chunk was chosen, if known.
    time: Option<u64>,
    /// The read position at that time.
    position_at_request: u64,
    /// The last miss behind the request: its position, and the number of consecutive ones.
    behind: Option<(u64, u32)>,
    restarts: u64,
}

/// The effect of a miss on the running prefetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MissVerdict {
    /// The running prefetch continues.
    Keep,
    /// Restart at the miss.
    Restart,
    /// Restart at the miss: the worker went back.
    WentBack,
}

impl PrefetchState {
    /// How often prefetching was restarted.
    pub(crate) fn restarts(&self) -> u64 {
        self.restarts
    }

    /// Whether anything was requested yet.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Whether the last request begins more than `reach` ahead of the position.
    pub(crate) fn is_ahead(&self, position: u64, schedule: &Schedule, reach: u64) -> bool {
        self.has_begun && schedule.start_of(self.requested.start) > position.saturating_add(reach)
    }

    /// Decides what a miss changes. `head` marks a small read at the beginning of a file;
    /// `position` is the read position before the miss.
    pub(crate) fn judge(
        &mut self,
        access: &AccessPosition,
        head: bool,
        time: u64,
        position: u64,
        schedule: &Schedule,
        sizes: &WindowSizes,
    ) -> MissVerdict {
        let start = access.positions.start;
        let newest = schedule.start_of(self.requested.start);
        if !self.has_begun {
            return MissVerdict::Restart;
        }
        // A request at the start of the service has no time. The first miss of its first chunk sets
        // it.
        if access.first_chunk == self.requested.start
            && time.saturating_sub(*self.time.get_or_insert(time)) < REPEAT_NS
        {
            return MissVerdict::Keep;
        }
        if start < newest {
            if newest - start <= sizes.reach {
                return MissVerdict::Keep; // a slower thread of the worker
            }
            if !head && position.max(newest).saturating_add(sizes.reach) >= schedule.nbytes() {
                return MissVerdict::WentBack; // the load was complete and begins again
            }
            let (last, steps) = self.behind.unwrap_or((start, 0));
            let continues = last <= start && start - last <= sizes.reach;
            let steps = if continues { steps + 1 } else { 1 };
            self.behind = Some((start, steps));
            return if steps < MIN_STEPS_BACK {
                MissVerdict::Keep
            } else {
                MissVerdict::WentBack
            };
        }
        let within_reach = start <= position.max(newest).saturating_add(sizes.reach);
        if head && !within_reach {
            MissVerdict::Keep
        } else {
            MissVerdict::Restart
        }
    }

    /// Restarts at chunk `first` and returns the chunks to request.
    pub(crate) fn begin(
        &mut self,
        first: usize,
        time: u64,
        position: u64,
        schedule: &Schedule,
        sizes: &WindowSizes,
    ) -> Range<usize> {
        let ahead = schedule
            .start_of(first)
            .max(position.min(schedule.start_of(first + 1)));
        let last = sizes
            .end(ahead)
            .map_or(schedule.len(), |end| schedule.chunks_up_to(end));
        self.restart(first..last, time, position);
        self.requested.clone()
    }

    /// Replaces the request by these chunks.
    pub(crate) fn restart(&mut self, requested: Range<usize>, time: u64, position: u64) {
        let restarts = self.restarts + u64::from(self.has_begun);
        *self = Self {
            requested,
            has_begun: true,
            time: Some(time),
            position_at_request: position,
            behind: None,
            restarts,
        };
    }

    /// These chunks are prefetched by the merged schedule.
    pub(crate) fn set_merged(&mut self, requested: Range<usize>, time: Option<u64>) {
        (self.requested, self.has_begun, self.time, self.behind) = (requested, true, time, None);
    }

    /// Counts a restart of the merged schedule that this worker's miss caused.
    pub(crate) fn count_restart(&mut self) {
        self.restarts += 1;
    }

    /// Returns the chunks to request after the position advanced without a miss; `None` if the
    /// request stays as it is.
    pub(crate) fn extend(
        &mut self,
        time: Option<u64>,
        position: u64,
        schedule: &Schedule,
        sizes: &WindowSizes,
    ) -> Option<Range<usize>> {
        let first = schedule.chunk_at(position);
        let last = sizes
            .end(position)
            .map_or(schedule.len(), |end| schedule.chunks_up_to(end));
        if first >= last {
            return None;
        }
        if self.is_ahead(position, schedule, sizes.reach) {
            // A thread missed far ahead and moved the request there. If the position has since
            // advanced by the reach, the main reader still reads here, and the request returns to
            // it.
            let continues = position.saturating_sub(self.position_at_request) >= sizes.reach;
            return continues
                .then(|| self.begin(first, time.unwrap_or(0), position, schedule, sizes));
        }
        let grown = schedule
            .start_of(last)
            .saturating_sub(schedule.start_of(self.requested.end));
        let ends = last == schedule.len() && self.requested.end < last;
        if self.has_begun && grown < sizes.step && !ends {
            return None;
        }
        // Chunks that the prefetcher has not yet reached are requested again; resident ones are
        // skipped at no cost.
        (
            self.has_begun,
            self.time,
            self.position_at_request,
            self.requested,
        ) = (true, time, position, first..last);
        Some(first..last)
    }
}
