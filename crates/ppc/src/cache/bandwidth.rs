//! A bound on bytes per second.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// When the next read may begin. Reads that come late may catch up by [`BURST`], so that the bound is also reached.
#[derive(Debug)]
pub(super) struct Bandwidth(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    rate: Option<u64>,
    next: Instant,
}

/// How far the past may be made up for.
const BURST: Duration = Duration::from_millis(20);

impl Bandwidth {
    pub(super) fn new(rate: Option<u64>) -> Self {
        Self(Mutex::new(Inner {
            rate,
            next: Instant::now(),
        }))
    }

    /// Bytes per second from now on; `None`: as many as come.
    pub(super) fn set(&self, rate: Option<u64>) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *inner = Inner {
            rate,
            next: Instant::now(),
        };
    }

    /// Books `bytes`, and says from when on they may be read.
    pub(super) fn book(&self, bytes: u64, now: Instant) -> Instant {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(took) = inner.time_of(bytes) else {
            return now;
        };
        let at = now
            .checked_sub(BURST)
            .map_or(inner.next, |least| inner.next.max(least));
        inner.next = at + took;
        at
    }

    /// Gives back what was booked and not read.
    pub(super) fn cancel(&self, bytes: u64) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(took) = inner.time_of(bytes) {
            inner.next = inner.next.checked_sub(took).unwrap_or(inner.next);
        }
    }
}

impl Inner {
    fn time_of(&self, bytes: u64) -> Option<Duration> {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.rate?.max(1));
        // a day is for ever
        Some(
            Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
                .min(Duration::from_secs(86_400)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_spaced_and_catch_up_a_little() {
        let bandwidth = Bandwidth::new(Some(1_000_000));
        let start = Instant::now() + Duration::from_secs(1);
        let first = bandwidth.book(1000, start); // a millisecond
        assert_eq!(start - first, BURST);
        let times = (0..40)
            .map(|_| bandwidth.book(1000, start))
            .collect::<Vec<_>>();
        assert!(
            times
                .windows(2)
                .all(|pair| pair[1] - pair[0] == Duration::from_millis(1))
        );
        assert_eq!(times[39] - first, Duration::from_millis(40));
        bandwidth.cancel(1000);
        assert_eq!(bandwidth.book(1000, start), times[39]);
        // a rate of nothing does not overflow, and none does not wait
        bandwidth.set(Some(0));
        bandwidth.book(u64::MAX, start);
        bandwidth.set(None);
        assert_eq!(bandwidth.book(u64::MAX, start), start);
    }
}
