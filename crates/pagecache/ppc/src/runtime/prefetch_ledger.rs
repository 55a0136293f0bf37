//! The bytes that were prefetched for each policy, and how many of them had left memory before they were read.
//!
//! The kernel does not report that a cached byte is read. A prefetched byte that is missed later was prefetched in vain, which is
//! what is counted here. Bytes that a policy evicts again are not: they were read, as far as it knows.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use super::timed_ranges::TimedRanges;
use crate::RangeList;

/// A file that was not prefetched and not missed for this long, in nanoseconds, belongs to an earlier load: what is missed then was
/// read since, and other programs needed the memory.
const FORGOTTEN_AFTER: u64 = 600_000_000_000;
/// Limit on the ranges that are kept of a file. Beyond it, all are dropped, and their later misses are not counted.
const MAX_RANGES: usize = 1 << 16;
/// Limit on the files that are counted one by one.
const MAX_FILES: usize = 1 << 20;

/// Bytes that were prefetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PrefetchedBytes {
    /// Bytes that were read into the page cache.
    pub prefetched: u64,
    /// Bytes of them that were missed afterwards: they had left memory before they were read. Bytes that were never read are not
    /// known to be.
    pub wasted: u64,
}

impl PrefetchedBytes {
    fn add(&mut self, other: Self) {
        self.prefetched = self.prefetched.saturating_add(other.prefetched);
        self.wasted = self.wasted.saturating_add(other.wasted);
    }
}

#[derive(Debug, Default)]
struct FileLedger {
    bytes: PrefetchedBytes,
    /// Ranges that were prefetched, and neither missed nor evicted since.
    ranges: TimedRanges,
    /// When it was last prefetched or missed.
    last: u64,
}

impl FileLedger {
    /// Forgets an earlier load.
    fn advance(&mut self, time: u64) {
        if time.saturating_sub(self.last) > FORGOTTEN_AFTER || self.ranges.len() > MAX_RANGES {
            self.ranges = TimedRanges::default();
        }
        // events of several CPUs may arrive out of order
        self.last = self.last.max(time);
    }
}

#[derive(Debug, Default)]
struct PolicyLedger {
    bytes: PrefetchedBytes,
    files: HashMap<Arc<Path>, FileLedger>,
}

/// The prefetched ranges, by the directories of policies. Times are in nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Debug, Default)]
pub(super) struct PrefetchLedger(Mutex<HashMap<PathBuf, PolicyLedger>>);

impl PrefetchLedger {
    fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, PolicyLedger>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of a file were read into the page cache for the policy of `root`.
    pub(super) fn prefetched(&self, root: &Path, path: &Arc<Path>, range: Range<u64>, time: u64) {
        let bytes = PrefetchedBytes {
            prefetched: range.end.saturating_sub(range.start),
            wasted: 0,
        };
        let mut policies = self.lock();
        // not `entry`, which would copy the path for each read
        if !policies.contains_key(root) {
            policies.insert(root.to_owned(), PolicyLedger::default());
        }
        let Some(policy) = policies.get_mut(root) else {
            return;
        };
        policy.bytes.add(bytes);
        // the policy's sum counts on; only the file's own is lost
        if policy.files.len() >= MAX_FILES && !policy.files.contains_key(path) {
            return;
        }
        let file = policy.files.entry(Arc::clone(path)).or_default();
        file.advance(time);
        file.bytes.add(bytes);
        file.ranges.add(range, time);
    }

    /// A process missed bytes of a file. It is certain of the first of them only; those after it are taken to be missing as far as
    /// they were prefetched together with it.
    pub(super) fn missed(&self, root: &Path, path: &Path, range: Range<u64>, time: u64) {
        let mut policies = self.lock();
        let Some(policy) = policies.get_mut(root) else {
            return;
        };
        let Some(file) = policy.files.get_mut(path) else {
            return;
        };
        file.advance(time);
        let Some(end) = file.ranges.end_of(range.start, time) else {
            return;
        };
        let missed = range.start..range.end.min(end);
        let bytes = PrefetchedBytes {
            prefetched: 0,
            wasted: missed.end - missed.start,
        };
        file.ranges.remove(missed);
        file.bytes.add(bytes);
        policy.bytes.add(bytes);
    }

    /// The policy evicted these ranges.
    pub(super) fn evicted(&self, root: &Path, ranges: &RangeList) {
        let mut policies = self.lock();
        let Some(policy) = policies.get_mut(root) else {
            return;
        };
        for range in ranges.iter() {
            if let Some(file) = policy.files.get_mut(&range.path) {
                let end = range.start.saturating_add(range.len);
                file.ranges.remove(range.start..end);
            }
        }
    }

    /// The registration of this directory has ended.
    pub(super) fn forget(&self, root: &Path) {
        self.lock().remove(root);
    }

    /// The bytes that were prefetched for a policy, and of each of these lists of files.
    pub(super) fn totals<'f>(
        &self,
        root: &Path,
        lists: impl Iterator<Item = &'f [Arc<Path>]>,
    ) -> (PrefetchedBytes, Vec<PrefetchedBytes>) {
        let policies = self.lock();
        let policy = policies.get(root);
        let of_files = lists.map(|files| {
            let mut sum = PrefetchedBytes::default();
            let known = files.iter().filter_map(|path| policy?.files.get(path));
            known.for_each(|file| sum.add(file.bytes));
            sum
        });
        let of_files = of_files.collect();
        (
            policy.map(|policy| policy.bytes).unwrap_or_default(),
            of_files,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileRange;

    #[test]
    fn bytes_that_are_missed_after_they_were_prefetched_are_wasted() {
        let ledger = PrefetchLedger::default();
        let (root, a, b) = (
            Path::new("/m"),
            Path::new("a").into(),
            Path::new("b").into(),
        );
        let sums = || {
            let files = [Arc::clone(&a), Arc::clone(&b)];
            let (all, each) = ledger.totals(root, [&files[..1], &files[1..]].into_iter());
            let pair = |bytes: PrefetchedBytes| (bytes.prefetched, bytes.wasted);
            (pair(all), pair(each[0]), pair(each[1]))
        };
        assert_eq!(sums(), ((0, 0), (0, 0), (0, 0)));
        // missed first: the reason of the prefetch, whose event is delivered after it
        ledger.prefetched(root, &a, 0..1000, 10);
        ledger.missed(root, &a, 0..100, 9);
        assert_eq!(sums(), ((1000, 0), (1000, 0), (0, 0)));
        // missed later, up to the end of what was prefetched
        ledger.missed(root, &a, 900..2000, 20);
        assert_eq!(sums(), ((1000, 100), (1000, 100), (0, 0)));
        // counted once; and what begins outside is not known to be missing further on
        ledger.missed(root, &a, 900..2000, 30);
        ledger.prefetched(root, &b, 500..600, 30);
        ledger.missed(root, &b, 400..600, 40);
        assert_eq!(sums(), ((1100, 100), (1000, 100), (100, 0)));
        // evicted by the policy, which knows that it was read
        let evicted = FileRange {
            path: Arc::clone(&a),
            start: 0,
            len: 500,
            device: None,
        };
        ledger.evicted(root, &vec![evicted].into());
        ledger.missed(root, &a, 0..100, 50);
        assert_eq!(sums().0, (1100, 100));
        // a miss of an earlier load
        ledger.missed(root, &a, 600..700, 50 + FORGOTTEN_AFTER + 1);
        assert_eq!(sums().0, (1100, 100));
        ledger.forget(root);
        assert_eq!(sums(), ((0, 0), (0, 0), (0, 0)));
    }
}
