//! Sets of bytes of one file: one that grows, and one that is walked.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::{ByteRange, Runs};

/// A set that grows: start → end of disjoint ranges that do not touch.
#[derive(Debug, Default)]
pub(crate) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Adds `runs` and gives what of them was not there: the runs as they are, where none was.
    pub(crate) fn take_new(&mut self, runs: &Runs) -> Vec<Runs> {
        let span = runs.span();
        let mut pieces = Vec::new();
        if runs.count > 1 && self.missing(span.start, span.end()).len() == 1 && !self.touches(span)
        {
            pieces.push(*runs);
        } else {
            for run in runs.iter() {
                let missing = self.missing(run.start, run.end());
                pieces.extend(missing.into_iter().map(|(start, end)| {
                    Runs::from(ByteRange {
                        file: runs.file,
                        start,
                        len: end - start,
                    })
                }));
            }
        }
        self.add(runs);
        pieces
    }

    /// Adds all of `runs`.
    pub(crate) fn add(&mut self, runs: &Runs) {
        runs.iter()
            .for_each(|run| self.insert(run.start, run.end()));
    }

    /// Whether any byte of it is there.
    fn touches(&self, range: ByteRange) -> bool {
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
        while let Some((&s, &e)) = self.0.range(..=end).next_back() {
            if e < start {
                break;
            }
            (start, end) = (start.min(s), end.max(e));
            self.0.remove(&s);
        }
        self.0.insert(start, end);
    }

    /// What of `start..end` is not there.
    pub(crate) fn missing(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
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

/// The union of many runs, walked from its first byte to its last: disjoint ranges that do not touch. Memory for the
/// accesses, not for their runs.
#[derive(Debug)]
pub(crate) struct Union {
    /// Descending by start: the next one is the last.
    waiting: Vec<Runs>,
    /// The runs that are being walked, by the start of the next.
    open: BinaryHeap<Reverse<(u64, Runs)>>,
    /// The first run that is not part of what was given yet.
    held: Option<(u64, u64)>,
}

impl Union {
    pub(crate) fn new(mut runs: Vec<Runs>) -> Self {
        runs.sort_unstable_by_key(|runs| Reverse(runs.start));
        let mut union = Self {
            waiting: runs,
            open: BinaryHeap::new(),
            held: None,
        };
        union.held = union.run();
        union
    }

    /// The run that starts next.
    fn run(&mut self) -> Option<(u64, u64)> {
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
        let Reverse((start, mut runs)) = self.open.pop()?;
        if runs.count > 1 {
            runs.count -= 1;
            runs.start += runs.stride;
            self.open.push(Reverse((runs.start, runs)));
        }
        Some((start, start + runs.len))
    }
}

impl Iterator for Union {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        let (start, mut end) = self.held?;
        loop {
            self.held = self.run();
            match self.held {
                Some((s, e)) if s <= end => end = end.max(e),
                _ => return Some((start, end)),
            }
        }
    }
}

/// Bytes of two sets, and of what they share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Overlap {
    pub(crate) a: u64,
    pub(crate) b: u64,
    pub(crate) both: u64,
}

/// Walks two sets side by side.
pub(crate) fn overlap(mut a: Union, mut b: Union) -> Overlap {
    let mut sum = Overlap::default();
    let (mut left, mut right) = (a.next(), b.next());
    sum.a = left.map_or(0, |(s, e)| e - s);
    sum.b = right.map_or(0, |(s, e)| e - s);
    while left.is_some() || right.is_some() {
        if let (Some((s, e)), Some((t, f))) = (left, right) {
            sum.both += e.min(f).saturating_sub(s.max(t));
        }
        let go_left = match (left, right) {
            (Some((_, e)), Some((_, f))) => e <= f,
            (l, _) => l.is_some(),
        };
        if go_left {
            left = a.next();
            sum.a += left.map_or(0, |(s, e)| e - s);
        } else {
            right = b.next();
            sum.b += right.map_or(0, |(s, e)| e - s);
        }
    }
    sum
}
