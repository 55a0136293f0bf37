//! Two sets of bytes of one file: [`ByteSet`], to which ranges are added, and [`RangeUnion`], which
//! is iterated in ascending order without storing its runs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::StridedRange;

/// A set of bytes to which ranges are added. Maps the start to the end of disjoint ranges that do
/// not touch.
#[derive(Debug, Default)]
pub(crate) struct ByteSet(BTreeMap<u64, u64>);

impl ByteSet {
    /// Adds `range` and returns the parts of it that were not in the set: `range` itself if none of it was.
    pub(crate) fn take_new(&mut self, range: &StridedRange) -> Vec<StridedRange> {
        let mut new = Vec::new();
        let covering = range.covering();
        // a strided range that is new as a whole stays one range instead of one per run
        if range.count > 1 && !self.touches(&covering) {
            new.push(*range);
        } else {
            for start in range.starts() {
                let missing = self.missing(start, start + range.len);
                new.extend(
                    missing
                        .into_iter()
                        .map(|(start, end)| StridedRange::contiguous(start, end - start)),
                );
            }
        }
        self.add(range);
        new
    }

    /// Adds all runs of `range`.
    pub(crate) fn add(&mut self, range: &StridedRange) {
        range
            .starts()
            .for_each(|start| self.insert(start, start + range.len));
    }

    /// Whether the set has any byte of `range`, which is contiguous.
    fn touches(&self, range: &StridedRange) -> bool {
        self.0
            .range(..range.end())
            .next_back()
            .is_some_and(|(_, &end)| end > range.start)
    }

    /// Adds `start..end`.
    pub(crate) fn insert(&mut self, mut start: u64, mut end: u64) {
        if start >= end {
            return;
        }
        // from the back: ranges in the set are disjoint, so the first that ends before `start` ends the search
        while let Some((&s, &e)) = self.0.range(..=end).next_back() {
            if e < start {
                break;
            }
            (start, end) = (start.min(s), end.max(e));
            self.0.remove(&s);
        }
        self.0.insert(start, end);
    }

    /// Returns the parts of `start..end` that are not in the set.
    pub(crate) fn missing(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        // a run that begins before the range may reach into it
        let from = self
            .0
            .range(..=start)
            .next_back()
            .map_or(start, |(&s, _)| s);
        let mut missing = Vec::new();
        let mut at = start;
        for (&s, &e) in self.0.range(from..end) {
            if s > at {
                missing.push((at, s));
            }
            at = at.max(e);
        }
        if at < end {
            missing.push((at, end));
        }
        missing
    }
}

/// The union of many ranges with strides, as disjoint contiguous ranges in ascending order that do
/// not touch. Needs memory for the accesses, not for their runs, whose number a template states
/// freely.
#[derive(Debug)]
pub(crate) struct RangeUnion {
    /// Ranges that were not reached yet, descending by start: the next one is the last.
    waiting: Vec<StridedRange>,
    /// Ranges that were reached, by the start of their next run.
    open: BinaryHeap<Reverse<(u64, StridedRange)>>,
    /// The first run after the last returned range.
    next_run: Option<(u64, u64)>,
}

impl RangeUnion {
    pub(crate) fn new(mut runs: Vec<StridedRange>) -> Self {
        // descending, so that the next range is taken from the end of the list
        runs.sort_unstable_by_key(|runs| Reverse(runs.start));
        let mut union = Self {
            waiting: runs,
            // a heap and no list of runs: a file of some bytes may state 2³² runs of one byte
            open: BinaryHeap::new(),
            next_run: None,
        };
        union.next_run = union.take_run();
        union
    }

    /// Returns the run that starts next.
    fn take_run(&mut self) -> Option<(u64, u64)> {
        while let Some(next) = self.waiting.last() {
            if self
                .open
                .peek()
                .is_some_and(|Reverse((start, _))| *start < next.start)
            {
                break;
            }
            self.open.push(Reverse((next.start, *next)));
            self.waiting.pop();
        }
        let Reverse((_, range)) = self.open.pop()?;
        let (run, rest) = range.split_first()?;
        if rest.count > 0 {
            self.open.push(Reverse((rest.start, rest)));
        }
        Some((run.start, run.end()))
    }
}

impl Iterator for RangeUnion {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        let (start, mut end) = self.next_run?;
        loop {
            self.next_run = self.take_run();
            match self.next_run {
                // ranges that touch are one: a caller counts or reads each run as a whole
                Some((s, e)) if s <= end => end = end.max(e),
                _ => return Some((start, end)),
            }
        }
    }
}

/// The sizes of two sets and of their intersection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Overlap {
    pub(crate) a: u64,
    pub(crate) b: u64,
    pub(crate) both: u64,
}

/// Returns the sizes of two sets and of their intersection.
pub(crate) fn overlap(mut a: RangeUnion, mut b: RangeUnion) -> Overlap {
    let mut sum = Overlap::default();
    let (mut left, mut right) = (a.next(), b.next());
    sum.a = left.map_or(0, |(s, e)| e - s);
    sum.b = right.map_or(0, |(s, e)| e - s);
    while left.is_some() || right.is_some() {
        if let (Some((s, e)), Some((t, f))) = (left, right) {
            sum.both += e.min(f).saturating_sub(s.max(t));
        }
        // the range that ends first is done: nothing later in the other set reaches back to it
        let is_left = match (left, right) {
            (Some((_, e)), Some((_, f))) => e <= f,
            (l, _) => l.is_some(),
        };
        if is_left {
            left = a.next();
            sum.a += left.map_or(0, |(s, e)| e - s);
        } else {
            right = b.next();
            sum.b += right.map_or(0, |(s, e)| e - s);
        }
    }
    sum
}
