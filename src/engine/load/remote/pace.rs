//! How many requests are under way at a time: a pure function of what has arrived.

use std::time::Duration;

/// Requests at first. A server that is 30 ms away and sends 50 MB/s on each connection then sends 0.7 GB/s in pieces of 8 MiB.
const FIRST: usize = 16;
/// Requests that are added as long as the rate grows.
const STEP: usize = 4;
/// How long a rate is measured before it is compared.
const INTERVAL: Duration = Duration::from_millis(500);
/// Intervals without a change, after more requests did not help, or the server refused some.
const REST: u32 = 8;

/// The number of requests that may be under way. It grows while the rate does, and shrinks when the server refuses requests.
#[derive(Debug)]
pub(super) struct Pace {
    limit: usize,
    most: usize,
    /// When the current interval began, and what had arrived then.
    begun: Duration,
    arrived: u64,
    /// Bytes per second of the last interval, once there was one in which the limit was reached.
    rate: Option<f64>,
    /// Whether the limit grew at the end of the last interval.
    grew: bool,
    /// Intervals for which the limit stays.
    rest: u32,
    /// Whether the limit was reached in the current interval: otherwise its rate says nothing about the limit.
    is_reached: bool,
    /// When the limit shrank last.
    shrunk: Option<Duration>,
}

impl Pace {
    /// At most `most` requests, and at least one.
    pub(super) fn new(most: usize) -> Self {
        let most = most.max(1);
        Self {
            limit: FIRST.min(most),
            most,
            begun: Duration::ZERO,
            arrived: 0,
            rate: None,
            grew: false,
            rest: 0,
            is_reached: false,
            shrunk: None,
        }
    }

    /// Requests that may be under way.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Notes how many bytes have arrived, and how many requests are under way. `now` is a time since the beginning.
    pub(super) fn observe(&mut self, now: Duration, arrived: u64, under_way: usize) {
        self.is_reached |= under_way >= self.limit;
        let time = now.saturating_sub(self.begun);
        if time < INTERVAL {
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let rate = arrived.saturating_sub(self.arrived) as f64 / time.as_secs_f64();
        (self.begun, self.arrived) = (now, arrived);
        if !std::mem::take(&mut self.is_reached) {
            return;
        }
        // replaced during a rest too: rates are compared with the interval just before
        let before = self.rate.replace(rate);
        if self.rest > 0 {
            self.rest -= 1;
            return;
        }
        // 5 %: less is within what rates vary by
        let is_more = before.is_none_or(|before| rate > before * 1.05);
        if self.grew && !is_more {
            // the last step gained nothing: it is taken back, and none is tried for a while
            self.limit = self.limit.saturating_sub(STEP).max(1);
            (self.grew, self.rest) = (false, REST);
        } else if self.limit < self.most {
            self.limit = (self.limit + STEP).min(self.most);
            self.grew = true;
        } else {
            self.grew = false;
        }
    }

    /// Shrinks the limit by a quarter, because the server refused a request or failed. Requests that were refused together
    /// count once.
    pub(super) fn delayed(&mut self, now: Duration) {
        let is_recent = |shrunk| now.saturating_sub(shrunk) < INTERVAL;
        if self.shrunk.is_some_and(is_recent) {
            return;
        }
        self.limit = (self.limit - self.limit.div_ceil(4)).max(1);
        (self.shrunk, self.grew, self.rest) = (Some(now), false, REST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Runs for this many intervals on a network where each request gets 50 MiB/s, and all of them at most `most`.
    fn run(pace: &mut Pace, from: u64, intervals: u64, most: u64) -> Vec<usize> {
        let mut arrived = pace.arrived;
        let interval = |n: u64| INTERVAL * u32::try_from(n).unwrap();
        let mut limits = Vec::new();
        for n in from..from + intervals {
            arrived += (pace.limit() as u64 * 50 * MIB).min(most) / 2;
            pace.observe(interval(n + 1), arrived, pace.limit());
            limits.push(pace.limit());
        }
        limits
    }

    #[test]
    fn it_grows_while_the_rate_grows() {
        let mut pace = Pace::new(64);
        assert_eq!(pace.limit(), 16);
        // 40 requests fill the network
        let limits = run(&mut pace, 0, 40, 40 * 50 * MIB);
        assert!(
            limits[..6].is_sorted() && limits.contains(&40),
            "{limits:?}"
        );
        assert!(limits.iter().all(|limit| *limit <= 44), "{limits:?}");
        assert!(limits[10..].iter().all(|limit| *limit >= 40), "{limits:?}");
        // without a bound by the network
        let mut pace = Pace::new(64);
        assert_eq!(run(&mut pace, 0, 20, u64::MAX).last(), Some(&64));
    }

    #[test]
    fn it_stays_where_more_requests_do_not_help() {
        let mut pace = Pace::new(64);
        let limits = run(&mut pace, 0, 40, 50 * MIB);
        assert!(limits.iter().all(|limit| *limit <= 20), "{limits:?}");
    }

    #[test]
    fn it_shrinks_when_requests_are_refused_and_recovers() {
        let mut pace = Pace::new(64);
        let now = Duration::from_secs(10);
        for _ in 0..16 {
            pace.delayed(now);
        }
        assert_eq!(pace.limit(), 12);
        pace.delayed(now + INTERVAL);
        assert_eq!(pace.limit(), 9);
        for n in 2..20 {
            pace.delayed(now + INTERVAL * n);
        }
        assert_eq!(pace.limit(), 1);
        // after a rest
        let limits = run(&mut pace, 100, 20, u64::MAX);
        assert_eq!(limits[..7], [1; 7]);
        assert!(*limits.last().unwrap() > 16, "{limits:?}");
    }

    #[test]
    fn rates_below_the_limit_say_nothing_about_it() {
        let mut pace = Pace::new(64);
        for n in 1..20 {
            pace.observe(INTERVAL * n, u64::from(n) * MIB, 3);
        }
        assert_eq!(pace.limit(), 16);
        assert_eq!((Pace::new(0).limit(), Pace::new(5).limit()), (1, 5));
    }
}
