//! Counts of requests, for people who want to know what an opening or a load costs.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The requests of servers, at one time.
///
/// Requests for credentials and listings of buckets are not counted, nor repetitions of writing requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestStats {
    /// Requests that were sent, including redirects and repetitions.
    pub requests: u64,
    /// Included: repetitions after a failure that may pass, and continuations of answers that broke off.
    pub retries: u64,
    /// Included: second requests for ranges whose first request was late.
    pub hedges: u64,
    /// Bytes of the ranges that were answered, as far as files have them. A request that is given up or breaks off is
    /// counted in full, though not all of its bytes arrive.
    pub requested: u64,
    /// Bytes of answers that arrived, without their headers.
    pub received: u64,
    /// Included: bytes that were read. A block that was read ahead counts from the first to the last byte that was read; a
    /// range that was requested twice because it was late counts for both requests.
    pub used: u64,
    /// Bytes of objects that were uploaded.
    pub uploaded: u64,
    /// Round trips that followed one another: the longest chain of requests none of which was sent before the one in front was
    /// answered.
    pub depth: u64,
    /// Connections that the answers came over.
    pub connections: u64,
    /// The time from a request to the beginning of its answer, of half of the requests; `None` without an answer. Rounded up by
    /// at most a quarter.
    pub first_byte_median: Option<Duration>,
    /// Like [`first_byte_median`](Self::first_byte_median), for 95 % of the requests.
    pub first_byte_p95: Option<Duration>,
    /// URLs that the hub's cache on this machine had, so that nothing was requested for them.
    pub from_cache: u64,
    /// Files whose header was read from the [cache of headers](crate::RemoteOptions::header_cache).
    pub cached_headers: u64,
}

/// Counts what is requested, of all stores whose [options](crate::RemoteOptions::counters) have it. Clones share one count.
///
/// ```
/// use anamnesis_remote::{RemoteOptions, RequestCounters};
///
/// let counters = RequestCounters::default();
/// let mut options = RemoteOptions::default();
/// options.counters = Some(counters.clone());
/// // … open stores with these options and read their files
/// assert_eq!(counters.stats().requests, 0);
/// ```
#[derive(Clone, Debug, Default)]
pub struct RequestCounters(Arc<SharedCounters>);

#[derive(Debug, Default)]
struct SharedCounters {
    /// Apart from the others: counted for each part of an answer.
    received: AtomicU64,
    used: AtomicU64,
    requested: AtomicU64,
    uploaded: AtomicU64,
    others: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    requests: u64,
    retries: u64,
    hedges: u64,
    from_cache: u64,
    cached_headers: u64,
    depth: u64,
    /// When the last request of the longest chain was answered.
    chain_end: Option<Instant>,
    /// This machine's ends of the connections: at most as many as it has ports.
    connections: HashSet<SocketAddr>,
    first_bytes: FirstByteTimes,
}

impl RequestCounters {
    /// The counts so far.
    pub fn stats(&self) -> RequestStats {
        let counts = self.lock();
        RequestStats {
            requests: counts.requests,
            retries: counts.retries,
            hedges: counts.hedges,
            // relaxed: the numbers publish no other data
            requested: self.0.requested.load(Ordering::Relaxed),
            received: self.0.received.load(Ordering::Relaxed),
            used: self.0.used.load(Ordering::Relaxed),
            uploaded: self.0.uploaded.load(Ordering::Relaxed),
            depth: counts.depth,
            connections: counts.connections.len() as u64,
            first_byte_median: counts.first_bytes.quantile(50),
            first_byte_p95: counts.first_bytes.quantile(95),
            from_cache: counts.from_cache,
            cached_headers: counts.cached_headers,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        // each critical section leaves numbers that are correct by themselves
        self.0.others.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn sent(&self) {
        self.lock().requests += 1;
    }

    pub(crate) fn retried(&self) {
        self.lock().retries += 1;
    }

    pub(crate) fn hedged(&self) {
        self.lock().hedges += 1;
    }

    pub(crate) fn found_in_cache(&self) {
        self.lock().from_cache += 1;
    }

    pub(crate) fn header_found(&self) {
        self.lock().cached_headers += 1;
    }

    pub(crate) fn requested(&self, bytes: u64) {
        self.0.requested.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn used(&self, bytes: u64) {
        self.0.used.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.0.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn uploaded(&self, bytes: u64) {
        self.0.uploaded.fetch_add(bytes, Ordering::Relaxed);
    }

    /// After the beginning of the answer to a request that was sent at `sent`, over the connection with this end.
    pub(crate) fn answered(&self, sent: Instant, connection: Option<SocketAddr>) {
        let mut counts = self.lock();
        // within the lock, so that answers are in the order of their times
        let now = Instant::now();
        counts.first_bytes.add(now.saturating_duration_since(sent));
        counts.connections.extend(connection);
        if counts.chain_end.is_none_or(|end| sent >= end) {
            counts.depth += 1;
            counts.chain_end = Some(now);
        }
    }
}

/// Times in classes, four per doubling: the end of a class exceeds its times by at most a quarter.
#[derive(Debug)]
struct FirstByteTimes {
    classes: [u64; Self::CLASSES],
}

impl Default for FirstByteTimes {
    fn default() -> Self {
        Self {
            classes: [0; Self::CLASSES],
        }
    }
}

impl FirstByteTimes {
    /// Up to 2³⁰ µs, which is a quarter of an hour.
    const CLASSES: usize = 4 * 30;

    fn add(&mut self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let class = (0..Self::CLASSES - 1).find(|class| micros <= Self::end_of(*class));
        self.classes[class.unwrap_or(Self::CLASSES - 1)] += 1;
    }

    /// The longest time of a class in microseconds: 1, 1, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 10, …
    fn end_of(class: usize) -> u64 {
        ((4 + class as u64 % 4) << (class / 4)) / 4
    }

    /// The end of the class in which this per cent of the times lies.
    fn quantile(&self, percent: u64) -> Option<Duration> {
        let all: u64 = self.classes.iter().sum();
        let wanted = (all * percent).div_ceil(100).max(1);
        let mut sum = 0;
        let class = self.classes.iter().position(|count| {
            sum += count;
            sum >= wanted
        })?;
        Some(Duration::from_micros(Self::end_of(class)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_rounded_up_by_at_most_a_quarter() {
        let mut times = FirstByteTimes::default();
        assert_eq!(times.quantile(50), None);
        for millis in 1..=100 {
            times.add(Duration::from_millis(millis));
        }
        for (percent, millis) in [(50, 50), (95, 95), (100, 100), (1, 1)] {
            let found = times.quantile(percent).unwrap();
            let exact = Duration::from_millis(millis);
            let range = exact..exact * 5 / 4 + Duration::from_micros(1);
            assert!(range.contains(&found), "{percent} %: {found:?}");
        }
        times.add(Duration::MAX);
        times.add(Duration::ZERO);
        assert!(times.quantile(100).unwrap() > Duration::from_secs(500));
        assert_eq!(times.quantile(0), Some(Duration::from_micros(1)));
    }

    #[test]
    fn requests_side_by_side_are_one_round() {
        let counters = RequestCounters::default();
        let sent = Instant::now();
        let address = |port| Some(SocketAddr::from(([127, 0, 0, 1], port)));
        for port in [1, 2, 1] {
            counters.sent();
            counters.answered(sent, address(port));
        }
        let stats = counters.stats();
        assert_eq!((stats.requests, stats.depth, stats.connections), (3, 1, 2));
        counters.answered(Instant::now(), address(1));
        assert_eq!(counters.clone().stats().depth, 2);
    }
}
