//! The position up to which a worker has read its schedule, derived from its accesses.

use std::ops::Range;

/// Number of positions elsewhere that are tracked as candidates.
const CANDIDATES: usize = 4;
/// Consecutive accesses after which a candidate can become the position.
const MIN_STEPS: u32 = 3;

/// The read position of a worker.
///
/// It is not the farthest position seen. An access within reach of the position advances it. An
/// access elsewhere starts or advances a candidate; a candidate becomes the position once it has
/// advanced by the reach while the position did not move. So neither a second read of a header nor
/// a thread that is far ahead moves the position.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadPosition {
    at: u64,
    candidates: [Candidate; CANDIDATES],
    next: usize,
    jumps: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Candidate {
    at: u64,
    gained: u64,
    steps: u32,
}

/// How an access changed the position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Movement {
    Unmoved,
    Forward,
    Jumped,
}

impl ReadPosition {
    /// Returns the position in bytes from the beginning of the schedule.
    pub(crate) fn current(&self) -> u64 {
        self.at
    }

    /// Returns how often the position jumped.
    pub(crate) fn jumps(&self) -> u64 {
        self.jumps
    }

    /// Updates the position after an access to these positions.
    pub(crate) fn observe(&mut self, span: &Range<u64>, reach: u64) -> Movement {
        if span.start <= self.at.saturating_add(reach)
            && span.start.saturating_add(reach) >= self.at
        {
            if span.end <= self.at {
                return Movement::Unmoved;
            }
            self.at = span.end;
            // candidates count only what they gain while the position stands still
            self.candidates
                .iter_mut()
                .for_each(|candidate| (candidate.gained, candidate.steps) = (0, 0));
            return Movement::Forward;
        }
        let within_reach = |candidate: &&mut Candidate| {
            // zero marks an unused entry
            candidate.at > 0
                && span.start <= candidate.at.saturating_add(reach)
                && span.start.saturating_add(reach) >= candidate.at
        };
        let Some(candidate) = self.candidates.iter_mut().find(within_reach) else {
            // the oldest candidate is replaced, so that scattered accesses cannot fill the table
            self.candidates[self.next] = Candidate {
                at: span.end,
                gained: span.end - span.start,
                steps: 1,
            };
            self.next = (self.next + 1) % CANDIDATES;
            return Movement::Unmoved;
        };
        candidate.gained += span.end.saturating_sub(candidate.at);
        candidate.steps = candidate.steps.saturating_add(1);
        candidate.at = candidate.at.max(span.end);
        if candidate.steps < MIN_STEPS || candidate.gained < reach {
            return Movement::Unmoved;
        }
        let at = candidate.at;
        self.jump(at);
        Movement::Jumped
    }

    /// Sets the position.
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
    fn isolated_accesses_do_not_move_the_position() {
        let mut position = ReadPosition::default();
        for at in (0..1000).step_by(10) {
            position.observe(&(at..at + 10), REACH);
            position.observe(&(5000..5008), REACH);
            position.observe(&(9000 + at..9010 + at), REACH); // a thread far ahead
            position.observe(&(at / 2..at / 2 + 1), REACH);
        }
        assert_eq!((position.current(), position.jumps()), (1000, 0));
    }

    #[test]
    fn the_position_jumps_to_a_continued_candidate() {
        let mut position = ReadPosition::default();
        position.observe(&(0..100), REACH);
        for at in (4000..4100).step_by(10) {
            position.observe(&(at..at + 10), REACH);
        }
        assert_eq!((position.current(), position.jumps()), (4100, 1));
        for at in (0..100).step_by(10) {
            position.observe(&(at..at + 10), REACH);
        }
        assert_eq!((position.current(), position.jumps()), (100, 2));
    }

    #[test]
    fn accesses_of_several_threads_within_reach_advance_the_position() {
        let mut position = ReadPosition::default();
        for start in [0, 20, 10, 50, 90, 30, 100, 60] {
            position.observe(&(start..start + 5), REACH);
        }
        assert_eq!(position.current(), 105);
    }
}
