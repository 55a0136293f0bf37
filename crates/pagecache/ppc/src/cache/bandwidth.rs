//! A limit on bytes per second.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Books reads on a time line at a fixed rate. A thread that was scheduled late may use up to [`BURST`] of the past
/// time, so that the rate is reached and not only not exceeded.
#[derive(Debug)]
pub(super) struct BandwidthLimit(Mutex<Timeline>);

#[derive(Debug)]
struct Timeline {
    /// Bytes per second; `None`: unlimited.
    rate: Option<u64>,
    /// When the next read may begin.
    next: Instant,
}

/// Past time whose unused bandwidth may still be used.
const BURST: Duration = Duration::from_millis(20);

impl BandwidthLimit {
    pub(super) fn new(rate: Option<u64>) -> Self {
        Self(Mutex::new(Timeline {
            rate,
            next: Instant::now(),
        }))
    }

    /// Sets the limit in bytes per second; `None`: unlimited.
    pub(super) fn set(&self, rate: Option<u64>) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *inner = Timeline {
            rate,
            next: Instant::now(),
        };
    }

    /// Books a read of `bytes`, and returns when it may begin.
    pub(super) fn book(&self, bytes: u64, now: Instant) -> Instant {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(duration) = inner.time_of(bytes) else {
            return now;
        };
        // only the time is booked under the lock; the caller waits without it, so threads share the time line and not a
        // queue
        let at = now
            .checked_sub(BURST)
            .map_or(inner.next, |earliest| inner.next.max(earliest));
        inner.next = at + duration;
        at
    }

    /// Cancels the booking of a read that was not made.
    pub(super) fn cancel(&self, bytes: u64) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(duration) = inner.time_of(bytes) {
            inner.next = inner.next.checked_sub(duration).unwrap_or(inner.next);
        }
    }
}

impl Timeline {
    fn time_of(&self, bytes: u64) -> Option<Duration> {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.rate?.max(1));
        // a limit on the duration keeps the addition to an `Instant` from overflowing
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
    fn reads_are_spaced_by_the_rate_after_a_burst() {
        let bandwidth = BandwidthLimit::new(Some(1_000_000));
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
        // a rate of 0 does not overflow; no rate does not delay
        bandwidth.set(Some(0));
        bandwidth.book(u64::MAX, start);
        bandwidth.set(None);
        assert_eq!(bandwidth.book(u64::MAX, start), start);
    }
}
