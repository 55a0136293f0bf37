//! Which requests are repeated because they are late: a pure function of how long others took.

use std::time::Duration;

/// Times of first bytes that are remembered.
const SAMPLES: usize = 64;
/// Times that must be known before any request is late.
const LEAST_SAMPLES: usize = 8;
/// A request is late after this many times the 95th percentile.
const FACTOR: u32 = 3;
/// No request is late before this: a second one costs the server as much as the first.
const LEAST_PATIENCE: Duration = Duration::from_millis(100);
/// One of this many requests may be repeated.
const ONE_OF: u64 = 20;

/// The requests of a load, and how many of them were repeated. A server that is slow as a whole does not get more requests than
/// one in twenty for that.
#[derive(Debug, Default)]
pub(super) struct Hedges {
    /// The last times, in a ring.
    samples: Vec<Duration>,
    next: usize,
    requests: u64,
    repeated: u64,
}

impl Hedges {
    /// A request was started.
    pub(super) fn started(&mut self) {
        self.requests += 1;
    }

    /// A request was started a second time.
    pub(super) fn repeated(&mut self) {
        self.repeated += 1;
    }

    /// The first byte of a request took this long.
    pub(super) fn first_byte(&mut self, time: Duration) {
        if self.samples.len() < SAMPLES {
            self.samples.push(time);
        } else {
            self.samples[self.next] = time;
        }
        self.next = (self.next + 1) % SAMPLES;
    }

    /// How long a request may be silent before it is repeated; `None` while none may be.
    pub(super) fn patience(&self) -> Option<Duration> {
        let may_repeat = (self.repeated + 1) * ONE_OF <= self.requests;
        if !may_repeat || self.samples.len() < LEAST_SAMPLES {
            return None;
        }
        // few enough to be sorted each time
        let mut sorted = self.samples.clone();
        sorted.sort_unstable();
        let p95 = sorted[(sorted.len() * 95).div_ceil(100) - 1];
        Some(p95.saturating_mul(FACTOR).max(LEAST_PATIENCE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_in_twenty_is_repeated_at_most() {
        let mut hedges = Hedges::default();
        let mut repeated = 0;
        for n in 1..=1000 {
            hedges.started();
            hedges.first_byte(Duration::from_millis(50));
            // all of them are late
            while hedges.patience().is_some() {
                hedges.repeated();
                repeated += 1;
            }
            assert_eq!(repeated, n / 20, "of {n}");
        }
    }

    #[test]
    fn patience_is_three_times_the_95th_percentile() {
        let mut hedges = Hedges::default();
        for _ in 0..100 {
            hedges.started();
        }
        for millis in 1..=7 {
            hedges.first_byte(Duration::from_millis(millis));
        }
        assert_eq!(hedges.patience(), None, "too few samples");
        hedges.first_byte(Duration::from_millis(8));
        assert_eq!(hedges.patience(), Some(LEAST_PATIENCE));
        // the last 64: 1037 to 1100 ms
        for millis in 1001..=1100 {
            hedges.first_byte(Duration::from_millis(millis));
        }
        assert_eq!(hedges.patience(), Some(Duration::from_millis(3 * 1097)));
    }
}
