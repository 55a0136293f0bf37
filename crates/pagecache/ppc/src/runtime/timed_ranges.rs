//! Disjoint byte ranges of a file, each with the time at which it was added.

use std::collections::BTreeMap;
use std::ops::Range;

/// Adjacent ranges are joined if they were added within this time, in nanoseconds: a file that is read in order is few ranges.
const JOINED_WITHIN: u64 = 1_000_000_000;

/// The end of a range, and when its first and its last bytes were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TimedRange {
    end: u64,
    first: u64,
    last: u64,
}

/// Disjoint ranges by their starts.
#[derive(Debug, Default)]
pub(super) struct TimedRanges(BTreeMap<u64, TimedRange>);

impl TimedRanges {
    /// Number of ranges.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds a range. Where it overlaps others, it replaces them.
    pub(super) fn add(&mut self, range: Range<u64>, time: u64) {
        if range.is_empty() {
            return;
        }
        self.remove(range.clone());
        let mut start = range.start;
        let mut added = TimedRange {
            end: range.end,
            first: time,
            last: time,
        };
        // compared with the first bytes, so that a joined range spans a limited time
        let is_near = |other: &TimedRange| time.abs_diff(other.first) < JOINED_WITHIN;
        let before = self.0.range(..start).next_back();
        if let Some((&left, other)) = before
            && other.end == start
            && is_near(other)
        {
            (start, added.first) = (left, other.first.min(time));
            added.last = other.last.max(time);
        }
        if let Some(other) = self.0.get(&range.end).copied().filter(is_near) {
            self.0.remove(&range.end);
            added.end = other.end;
            (added.first, added.last) = (added.first.min(other.first), added.last.max(other.last));
        }
        self.0.insert(start, added);
    }

    /// Removes all bytes of a range.
    pub(super) fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let first = self.0.range(..=range.start).next_back();
        let first = first.map_or(range.start, |(&start, _)| start);
        let overlapping: Vec<(u64, TimedRange)> = self
            .0
            .range(first..range.end)
            .filter(|(_, of)| of.end > range.start)
            .map(|(&start, of)| (start, *of))
            .collect();
        for (start, of) in overlapping {
            self.0.remove(&start);
            if start < range.start {
                let end = range.start;
                self.0.insert(start, TimedRange { end, ..of });
            }
            if of.end > range.end {
                self.0.insert(range.end, of);
            }
        }
    }

    /// The end of the range that has this byte, if it was added before `time`.
    pub(super) fn end_of(&self, byte: u64, time: u64) -> Option<u64> {
        let (_, of) = self.0.range(..=byte).next_back()?;
        // events arrive late: a miss from before the prefetch says nothing about it
        (byte < of.end && of.last < time).then_some(of.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compared with an array of bytes, over a sequence of pseudo-random changes.
    #[test]
    fn ranges_are_those_that_were_added_and_not_removed() {
        let (mut ranges, mut bytes) = (TimedRanges::default(), [None; 64]);
        let mut random = 1u64;
        let mut next = |below: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % below
        };
        for step in 0..20_000u64 {
            let start = next(64);
            let range = start..(start + next(12)).min(64);
            // far apart: no two are joined
            let time = step * JOINED_WITHIN;
            let of = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
            if next(2) == 0 {
                bytes[of].fill(Some(time));
                ranges.add(range, time);
            } else {
                bytes[of].fill(None);
                ranges.remove(range);
            }
            for (byte, added) in (0..).zip(bytes) {
                let end = ranges.end_of(byte, u64::MAX);
                assert_eq!(end.is_some(), added.is_some(), "{step}: {ranges:?}");
                // not before the time at which it was added
                assert_eq!(ranges.end_of(byte, added.unwrap_or(0)), None);
            }
            assert!(ranges.0.values().all(|of| of.first == of.last));
        }
    }

    #[test]
    fn ranges_that_are_added_in_order_are_joined() {
        let mut ranges = TimedRanges::default();
        for number in 0..100 {
            ranges.add(number * 10..number * 10 + 10, number);
        }
        // a second thread is behind the first
        ranges.add(1010..1020, 100);
        ranges.add(1000..1010, 101);
        assert_eq!((ranges.len(), ranges.end_of(5, 102)), (1, Some(1020)));
        assert_eq!(ranges.end_of(5, 101), None);
        ranges.add(1020..1030, JOINED_WITHIN);
        assert_eq!(ranges.len(), 2);
    }
}
