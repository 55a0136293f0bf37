//! A worker's group while it is followed: its way, where the worker is, what was brought and what was let go.

use std::ops::Range;

use anamnesis_ppc::Prefetch;

use crate::front::{Front, Moved};
use crate::lane::{Lane, Verdict};
use crate::pieces::Range as Bytes;
use crate::route::{Route, Spot};
use crate::share::Share;

/// One group of the template.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) rank: u32,
    pub(crate) name: Box<str>,
    pub(crate) route: Route,
    pub(crate) front: Front,
    pub(crate) lane: Lane,
    /// The first piece that was not let go.
    pub(crate) cursor: usize,
    /// What may still be there from before the worker went back, and will not be needed soon.
    pub(crate) leftover: Range<usize>,
    /// The access before, and where it was.
    last: Option<(Bytes, Spot)>,
    /// Bytes that were let go.
    pub(crate) evicted: u64,
    /// The process that reads it, as far as one was seen.
    pub(crate) pid: Option<u32>,
}

/// An access of the group's worker.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) spot: Spot,
    /// It is a look at a file's first bytes.
    pub(crate) head: bool,
    pub(crate) time: u64,
}

impl Group {
    pub(crate) fn new(rank: u32, name: &str, route: Route) -> Self {
        let (front, lane) = (Front::default(), Lane::default());
        Self {
            rank,
            name: name.into(),
            route,
            front,
            lane,
            cursor: 0,
            leftover: 0..0,
            last: None,
            evicted: 0,
            pid: None,
        }
    }

    /// Where on its way these bytes are.
    pub(crate) fn find(&mut self, bytes: &Bytes, share: &Share) -> Option<Spot> {
        // a miss and an access may tell of the same read: that is no second one, even if one comes soon
        if let Some((last, spot)) = &self.last
            && last == bytes
        {
            return Some(spot.clone());
        }
        let spot = self.route.find(bytes, self.front.at(), share.reach)?;
        self.last = Some((*bytes, spot.clone()));
        Some(spot)
    }

    /// The first position that may still be read. What lies before it was read, and is so far behind that no thread
    /// lags there and nothing of it is still on its way to the accelerator.
    pub(crate) fn passed(&self, share: &Share) -> u64 {
        self.front.at().saturating_sub(share.distance)
    }

    /// The worker waits for bytes. `told`: it also tells of accesses that do not wait. Gives the piece that prefetching
    /// is to begin with, unless it goes on.
    pub(crate) fn miss(&mut self, seen: &Seen, share: &Share, told: bool) -> Option<usize> {
        let before = self.front.at();
        self.observe(seen, share);
        if seen.head && !self.lane.has_begun() {
            // it may look at any file first, and will load from the beginning
            return Some(self.route.at(self.front.at()));
        }
        let verdict = self
            .lane
            .judge(&seen.spot, seen.head, seen.time, before, &self.route, share);
        if verdict == Verdict::Keep {
            return None;
        }
        // else a miss is all that tells of the front; what lies between was there
        if verdict == Verdict::Back || (!told && !seen.head && seen.spot.span.end > self.front.at())
        {
            self.front.jump(seen.spot.span.end);
            self.jumped(before, share);
        }
        Some(seen.spot.first)
    }

    /// Prefetching begins with a piece.
    pub(crate) fn begin(&mut self, first: usize, time: u64, share: &Share) -> Prefetch {
        let pieces = self
            .lane
            .begin(first, time, self.front.at(), &self.route, share);
        Prefetch {
            ios: self.route.ios(pieces),
            lane: self.rank,
        }
    }

    /// Prefetching begins, and ends, with these pieces.
    pub(crate) fn bring(&mut self, pieces: Range<usize>, time: u64) -> Prefetch {
        self.lane.restart(pieces.clone(), time, self.front.at());
        Prefetch {
            ios: self.route.ios(pieces),
            lane: self.rank,
        }
    }

    /// The worker accessed bytes.
    pub(crate) fn touch(&mut self, seen: &Seen, share: &Share) -> Option<Prefetch> {
        let moved = self.observe(seen, share);
        let front = self.front.at();
        let pieces = match moved {
            Moved::No => return None,
            Moved::On => self
                .lane
                .extend(Some(seen.time), front, &self.route, share)?,
            Moved::Jumped => {
                self.lane
                    .begin(self.route.at(front), seen.time, front, &self.route, share)
            }
        };
        if pieces.is_empty() {
            return None;
        }
        Some(Prefetch {
            ios: self.route.ios(pieces),
            lane: self.rank,
        })
    }

    /// The service begins.
    pub(crate) fn start(&mut self, share: &Share) -> Option<Prefetch> {
        let pieces = self
            .lane
            .extend(None, self.front.at(), &self.route, share)?;
        Some(Prefetch {
            ios: self.route.ios(pieces),
            lane: self.rank,
        })
    }

    fn observe(&mut self, seen: &Seen, share: &Share) -> Moved {
        let before = self.front.at();
        let moved = self.front.observe(&seen.spot.span, share.reach);
        if moved == Moved::Jumped {
            self.jumped(before, share);
        }
        moved
    }

    /// The front is elsewhere than `before`. If it went back, what is read again is let go again, and what was
    /// brought far ahead may have to make room.
    fn jumped(&mut self, before: u64, share: &Share) {
        let front = self.front.at();
        if front < before {
            self.cursor = self.cursor.min(self.route.at(front));
            self.leftover = self.route.up_to(self.soon(share))..self.route.up_to(before);
        }
    }

    /// Up to where bytes are brought.
    pub(crate) fn soon(&self, share: &Share) -> u64 {
        share
            .window
            .map_or(u64::MAX, |window| self.front.at().saturating_add(window))
    }
}
