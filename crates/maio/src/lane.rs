//! What is being prefetched for a worker, and when that changes.

use std::ops::Range;

use crate::route::{Route, Spot};
use crate::share::Share;

/// A second miss that asks for the same within this time, in nanoseconds, says nothing new.
pub(crate) const REPEAT: u64 = 1_000_000_000;
/// Misses in sequence that are believed when they lie behind.
const STEPS: u32 = 3;

/// The prefetch that was asked for last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lane {
    /// The pieces.
    asked: Range<usize>,
    /// Whether anything was asked for.
    begun: bool,
    /// When it was made to begin where it does, if that is known.
    time: Option<u64>,
    /// Where the front was then.
    left: u64,
    /// Misses behind: the position, and how many in sequence.
    behind: Option<(u64, u32)>,
    restarts: u64,
}

/// What a miss means for what is being prefetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Go on.
    Keep,
    /// Begin at the miss.
    Restart,
    /// Begin at the miss: the worker went back.
    Back,
}

impl Lane {
    /// How often it began anew.
    pub(crate) fn restarts(&self) -> u64 {
        self.restarts
    }

    /// Whether anything was asked for.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Whether what was asked for last begins farther than `reach` ahead of the front.
    pub(crate) fn is_ahead(&self, front: u64, route: &Route, reach: u64) -> bool {
        self.begun && route.begin(self.asked.start) > front.saturating_add(reach)
    }

    /// Judges a miss. `head`: it is a look at a file's first bytes. `front` is where the worker was before.
    pub(crate) fn judge(
        &mut self,
        spot: &Spot,
        head: bool,
        time: u64,
        front: u64,
        route: &Route,
        share: &Share,
    ) -> Verdict {
        let at = spot.span.start;
        let newest = route.begin(self.asked.start);
        if !self.begun {
            return Verdict::Restart;
        }
        // when the service starts no time is known: the first miss tells it
        if spot.first == self.asked.start
            && time.saturating_sub(*self.time.get_or_insert(time)) < REPEAT
        {
            return Verdict::Keep;
        }
        if at < newest {
            if newest - at <= share.reach {
                return Verdict::Keep; // a thread that lags
            }
            if !head && front.max(newest).saturating_add(share.reach) >= route.nbytes() {
                return Verdict::Back; // it was done, and begins again
            }
            let (last, steps) = self.behind.unwrap_or((at, 0));
            let goes_on = last <= at && at - last <= share.reach;
            let steps = if goes_on { steps + 1 } else { 1 };
            self.behind = Some((at, steps));
            return if steps < STEPS {
                Verdict::Keep
            } else {
                Verdict::Back
            };
        }
        let near = at <= front.max(newest).saturating_add(share.reach);
        if head && !near {
            Verdict::Keep
        } else {
            Verdict::Restart
        }
    }

    /// Begins at a piece, and gives the pieces to ask for.
    pub(crate) fn begin(
        &mut self,
        first: usize,
        time: u64,
        front: u64,
        route: &Route,
        share: &Share,
    ) -> Range<usize> {
        let ahead = route.begin(first).max(front.min(route.begin(first + 1)));
        let last = share.end(ahead).map_or(route.len(), |end| route.up_to(end));
        self.restart(first..last, time, front);
        self.asked.clone()
    }

    /// These pieces are asked for.
    pub(crate) fn restart(&mut self, asked: Range<usize>, time: u64, front: u64) {
        let restarts = self.restarts + u64::from(self.begun);
        *self = Self {
            asked,
            begun: true,
            time: Some(time),
            left: front,
            behind: None,
            restarts,
        };
    }

    /// These pieces come with those of other workers.
    pub(crate) fn join(&mut self, asked: Range<usize>, time: Option<u64>) {
        (self.asked, self.begun, self.time, self.behind) = (asked, true, time, None);
    }

    /// What comes with those of others was asked for anew because of this worker.
    pub(crate) fn restarted(&mut self) {
        self.restarts += 1;
    }

    /// The front moved without a miss: the pieces to ask for, if that changes them.
    pub(crate) fn extend(
        &mut self,
        time: Option<u64>,
        front: u64,
        route: &Route,
        share: &Share,
    ) -> Option<Range<usize>> {
        let first = route.at(front);
        let last = share.end(front).map_or(route.len(), |end| route.up_to(end));
        if first >= last {
            return None;
        }
        if self.is_ahead(front, route, share.reach) {
            // somebody missed far ahead; who reads here goes on
            let goes_on = front.saturating_sub(self.left) >= share.reach;
            return goes_on.then(|| self.begin(first, time.unwrap_or(0), front, route, share));
        }
        let grown = route
            .begin(last)
            .saturating_sub(route.begin(self.asked.end));
        let ends = last == route.len() && self.asked.end < last;
        if self.begun && grown < share.step && !ends {
            return None;
        }
        // what the loader had not come to is asked for again; what is there costs it nothing
        (self.begun, self.time, self.left, self.asked) = (true, time, front, first..last);
        Some(first..last)
    }
}
