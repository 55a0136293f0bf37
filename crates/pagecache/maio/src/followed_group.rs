//! The state of one template group, that is of one worker, while the template is followed.
//!
//! It combines the worker's schedule (`schedule.rs`), its read position (`read_position.rs`) and
//! what is being prefetched for it (`prefetch_state.rs`), and turns a miss or an access into a
//! prefetch request.

use std::ops::Range;

use anamnesis_ppc::PrefetchRequest;

use crate::prefetch_state::{MissVerdict, PrefetchState};
use crate::read_position::{Movement, ReadPosition};
use crate::schedule::{AccessPosition, Schedule};
use crate::window_sizes::WindowSizes;
use anamnesis_template::FileSpan;

/// One group of the template and the progress of its worker.
#[derive(Debug)]
pub(crate) struct FollowedGroup {
    pub(crate) rank: u32,
    pub(crate) name: Box<str>,
    pub(crate) schedule: Schedule,
    pub(crate) position: ReadPosition,
    pub(crate) prefetch: PrefetchState,
    /// The eviction cursor: the first chunk that was not yet returned for eviction.
    pub(crate) cursor: usize,
    /// Chunks that were prefetched before the worker went back and lie beyond its new window:
    /// candidates for eviction.
    pub(crate) leftover: Range<usize>,
    /// The previous access and its position.
    last: Option<(FileSpan, AccessPosition)>,
    /// Bytes that were returned for eviction.
    pub(crate) evicted: u64,
    /// The process that last read for this group.
    pub(crate) pid: Option<u32>,
}

/// An access that was attributed to this group.
#[derive(Clone, Debug)]
pub(crate) struct ObservedAccess {
    pub(crate) position: AccessPosition,
    /// Whether it is a small read at the beginning of a file, such as of a header.
    pub(crate) head: bool,
    pub(crate) time: u64,
}

impl FollowedGroup {
    pub(crate) fn new(rank: u32, name: &str, schedule: Schedule) -> Self {
        let (position, prefetch) = (ReadPosition::default(), PrefetchState::default());
        Self {
            rank,
            name: name.into(),
            schedule,
            position,
            prefetch,
            cursor: 0,
            leftover: 0..0,
            last: None,
            evicted: 0,
            pid: None,
        }
    }

    /// Returns where in the schedule these bytes are.
    pub(crate) fn find(&mut self, bytes: &FileSpan, sizes: &WindowSizes) -> Option<AccessPosition> {
        // The runtime may report one read twice, as a miss and as an access. The second report must
        // not be searched again: the position has moved, and the search could find a later read of
        // the same bytes.
        if let Some((last, found)) = &self.last
            && last == bytes
        {
            return Some(found.clone());
        }
        let found = self
            .schedule
            .find(bytes, self.position.current(), sizes.reach)?;
        self.last = Some((*bytes, found.clone()));
        Some(found)
    }

    /// Returns the first position whose bytes must stay in memory. Everything before it was read,
    /// and is far enough behind that no slower thread reads it and no transfer to the accelerator
    /// still uses its pages.
    pub(crate) fn keep_from(&self, sizes: &WindowSizes) -> u64 {
        self.position.current().saturating_sub(sizes.distance)
    }

    /// Handles a miss. `tracks_accesses` says whether accesses without a miss are reported as well.
    /// Returns the chunk at which prefetching must restart; `None` if the running prefetch
    /// continues.
    pub(crate) fn miss(
        &mut self,
        access: &ObservedAccess,
        sizes: &WindowSizes,
        tracks_accesses: bool,
    ) -> Option<usize> {
        let before = self.position.current();
        self.observe(access, sizes);
        if access.head && !self.prefetch.has_begun() {
            // A loader may inspect any header first, and then loads from the beginning of its
            // schedule.
            return Some(self.schedule.chunk_at(self.position.current()));
        }
        let verdict = self.prefetch.judge(
            &access.position,
            access.head,
            access.time,
            before,
            &self.schedule,
            sizes,
        );
        if verdict == MissVerdict::Keep {
            return None;
        }
        // Without access events, misses are the only evidence of the position. The bytes between
        // were resident, and so were read without a miss.
        if verdict == MissVerdict::WentBack
            || (!tracks_accesses
                && !access.head
                && access.position.positions.end > self.position.current())
        {
            self.position.jump(access.position.positions.end);
            self.jumped(before, sizes);
        }
        Some(access.position.first_chunk)
    }

    /// Restarts prefetching at chunk `first`, up to the end of the window.
    pub(crate) fn begin(
        &mut self,
        first: usize,
        time: u64,
        sizes: &WindowSizes,
    ) -> PrefetchRequest {
        let chunks =
            self.prefetch
                .begin(first, time, self.position.current(), &self.schedule, sizes);
        PrefetchRequest {
            ranges: self.schedule.ranges(chunks),
            queue: self.rank,
        }
    }

    /// Restarts prefetching with exactly these chunks.
    pub(crate) fn begin_only(&mut self, chunks: Range<usize>, time: u64) -> PrefetchRequest {
        self.prefetch
            .restart(chunks.clone(), time, self.position.current());
        PrefetchRequest {
            ranges: self.schedule.ranges(chunks),
            queue: self.rank,
        }
    }

    /// Handles an access. Returns a request if the window advanced by a step or the position
    /// jumped.
    pub(crate) fn access(
        &mut self,
        access: &ObservedAccess,
        sizes: &WindowSizes,
    ) -> Option<PrefetchRequest> {
        let moved = self.observe(access, sizes);
        let position = self.position.current();
        let chunks = match moved {
            Movement::Unmoved => return None,
            Movement::Forward => {
                self.prefetch
                    .extend(Some(access.time), position, &self.schedule, sizes)?
            }
            Movement::Jumped => self.prefetch.begin(
                self.schedule.chunk_at(position),
                access.time,
                position,
                &self.schedule,
                sizes,
            ),
        };
        if chunks.is_empty() {
            return None;
        }
        Some(PrefetchRequest {
            ranges: self.schedule.ranges(chunks),
            queue: self.rank,
        })
    }

    /// Returns the request with which prefetching begins before the first miss.
    pub(crate) fn start(&mut self, sizes: &WindowSizes) -> Option<PrefetchRequest> {
        let chunks = self
            .prefetch
            .extend(None, self.position.current(), &self.schedule, sizes)?;
        Some(PrefetchRequest {
            ranges: self.schedule.ranges(chunks),
            queue: self.rank,
        })
    }

    fn observe(&mut self, access: &ObservedAccess, sizes: &WindowSizes) -> Movement {
        let before = self.position.current();
        let moved = self
            .position
            .observe(&access.position.positions, sizes.reach);
        if moved == Movement::Jumped {
            self.jumped(before, sizes);
        }
        moved
    }

    /// Updates the eviction state after the position jumped from `before`. After a jump backwards,
    /// the chunks that are read again must be evicted again, and chunks that were prefetched beyond
    /// the new window are the first to evict if memory is short.
    fn jumped(&mut self, before: u64, sizes: &WindowSizes) {
        let position = self.position.current();
        // a jump ahead needs nothing: the chunks in between are behind the reader and evicted like
        // others
        if position < before {
            self.cursor = self.cursor.min(self.schedule.chunk_at(position));
            self.leftover = self.schedule.chunks_up_to(self.window_end(sizes))
                ..self.schedule.chunks_up_to(before);
        }
    }

    /// Returns the position at which the window ends.
    pub(crate) fn window_end(&self, sizes: &WindowSizes) -> u64 {
        sizes.window.map_or(u64::MAX, |window| {
            self.position.current().saturating_add(window)
        })
    }
}
