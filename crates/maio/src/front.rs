//! How far a worker has come.

use std::ops::Range;

/// Places away from the front that are remembered.
const TRAILS: usize = 4;
/// Accesses in sequence that make a trail one to follow.
const STEPS: u32 = 3;

/// The position up to which a worker has read, as far as its accesses tell. Not the farthest one ever seen: an access
/// is the front's if it is within reach. One elsewhere begins a trail, and only when a trail went on for as far as the
/// reach while nothing moved the front, the front is there. So a second look at a header does not move it, nor does
/// one thread of several that is far ahead.
#[derive(Clone, Debug, Default)]
pub(crate) struct Front {
    at: u64,
    trails: [Trail; TRAILS],
    next: usize,
    jumps: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Trail {
    at: u64,
    gained: u64,
    steps: u32,
}

/// What an access did to the front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    No,
    On,
    Jumped,
}

impl Front {
    /// The position.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// How often it moved elsewhere.
    pub(crate) fn jumps(&self) -> u64 {
        self.jumps
    }

    /// The worker accessed these positions.
    pub(crate) fn observe(&mut self, span: &Range<u64>, reach: u64) -> Moved {
        if span.start <= self.at.saturating_add(reach)
            && span.start.saturating_add(reach) >= self.at
        {
            if span.end <= self.at {
                return Moved::No;
            }
            self.at = span.end;
            self.trails
                .iter_mut()
                .for_each(|trail| (trail.gained, trail.steps) = (0, 0));
            return Moved::On;
        }
        let near = |trail: &&mut Trail| {
            trail.at > 0
                && span.start <= trail.at.saturating_add(reach)
                && span.start.saturating_add(reach) >= trail.at
        };
        let Some(trail) = self.trails.iter_mut().find(near) else {
            self.trails[self.next] = Trail {
                at: span.end,
                gained: span.end - span.start,
                steps: 1,
            };
            self.next = (self.next + 1) % TRAILS;
            return Moved::No;
        };
        trail.gained += span.end.saturating_sub(trail.at);
        trail.steps = trail.steps.saturating_add(1);
        trail.at = trail.at.max(span.end);
        if trail.steps < STEPS || trail.gained < reach {
            return Moved::No;
        }
        let there = trail.at;
        self.jump(there);
        Moved::Jumped
    }

    /// The worker is there.
    pub(crate) fn jump(&mut self, at: u64) {
        *self = Self {
            at,
            jumps: self.jumps + 1,
            ..Self::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REACH: u64 = 64;

    #[test]
    fn strays_do_not_move_it() {
        let mut front = Front::default();
        for at in (0..1000).step_by(10) {
            front.observe(&(at..at + 10), REACH);
            front.observe(&(5000..5008), REACH);
            front.observe(&(9000 + at..9010 + at), REACH); // a thread that is far ahead
            front.observe(&(at / 2..at / 2 + 1), REACH);
        }
        assert_eq!((front.at(), front.jumps()), (1000, 0));
    }

    #[test]
    fn it_follows_where_the_reader_goes() {
        let mut front = Front::default();
        front.observe(&(0..100), REACH);
        for at in (4000..4100).step_by(10) {
            front.observe(&(at..at + 10), REACH);
        }
        assert_eq!((front.at(), front.jumps()), (4100, 1));
        for at in (0..100).step_by(10) {
            front.observe(&(at..at + 10), REACH);
        }
        assert_eq!((front.at(), front.jumps()), (100, 2));
    }

    #[test]
    fn gaps_and_threads_are_within_reach() {
        let mut front = Front::default();
        for at in [0, 20, 10, 50, 90, 30, 100, 60] {
            front.observe(&(at..at + 5), REACH);
        }
        assert_eq!(front.at(), 105);
    }
}
