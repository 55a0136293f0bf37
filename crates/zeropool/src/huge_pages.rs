//! Whether new regions get huge pages: as long as the system has them quickly.
//!
//! A hypervisor may take the free memory of its guest (free page reporting of virtio-balloon and of Hyper-V). A page of it
//! is given back when the guest touches it, 4 KiB at a time, so that zeroing a huge page of 2 MiB takes milliseconds instead
//! of a tenth of one. Small pages are then several times as fast, as the kernel takes them from memory that the guest still
//! has. Nothing says in advance which memory a page will be; so the first page of each region is touched, which a buffer
//! would do next, and the time decides about the region and about those that follow (experiment 51 in
//! docs/perf-experiments.md).

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A huge page that takes longer than this to touch is slower than 512 small ones, which take 0.6 ms; one of memory that the
/// machine has takes 0.1 to 0.3 ms.
const SLOW: Duration = Duration::from_millis(1);

/// Most regions between two attempts.
const MOST_WITHOUT: u32 = 64;

/// The attempts of this process. Threads that meet here may attempt once more or once less, which costs a page.
pub(crate) static HUGE_PAGES: HugePageAttempts = HugePageAttempts::new();

/// How many regions get small pages before huge ones are attempted again: twice as many after each slow one.
#[derive(Debug)]
pub(crate) struct HugePageAttempts {
    left_without: AtomicU32,
    next_without: AtomicU32,
}

impl HugePageAttempts {
    const fn new() -> Self {
        Self {
            left_without: AtomicU32::new(0),
            next_without: AtomicU32::new(1),
        }
    }

    /// Whether the next region is to have huge pages, of which the first is to be touched and its time recorded.
    pub(crate) fn attempt(&self) -> bool {
        let left = self.left_without.load(Relaxed);
        self.left_without.store(left.saturating_sub(1), Relaxed);
        left == 0
    }

    /// Records how long the first huge page took. False if the rest of the region is to have small pages.
    pub(crate) fn record(&self, took: Duration) -> bool {
        let fast = took <= SLOW;
        let next = if fast {
            1
        } else {
            let without = self.next_without.load(Relaxed);
            self.left_without.store(without, Relaxed);
            (2 * without).min(MOST_WITHOUT)
        };
        self.next_without.store(next, Relaxed);
        fast
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The regions with huge pages among the first `n`, if each attempt takes this long.
    fn attempts(pages: &HugePageAttempts, n: usize, took: Duration) -> Vec<usize> {
        let attempted = (0..n).filter(|_| {
            let attempted = pages.attempt();
            if attempted {
                assert_eq!(pages.record(took), took <= SLOW);
            }
            attempted
        });
        attempted.collect()
    }

    #[test]
    fn slow_pages_are_attempted_ever_less_often() {
        let pages = HugePageAttempts::new();
        let slow = attempts(&pages, 300, 5 * SLOW);
        assert_eq!(slow, [0, 2, 5, 10, 19, 36, 69, 134, 199, 264]);
    }

    #[test]
    fn fast_pages_are_used_by_every_region_again() {
        let pages = HugePageAttempts::new();
        attempts(&pages, 20, 5 * SLOW);
        let fast = attempts(&pages, 100, SLOW / 10);
        let (first, rest) = (fast[0], fast.len());
        assert_eq!(rest, 100 - first, "after the next attempt, all");
        assert_eq!(attempts(&pages, 4, 5 * SLOW), [0, 2], "from the beginning");
    }
}
