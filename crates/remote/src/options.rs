//! How long is waited and how often is tried.

use std::time::Duration;

use crate::stats::RequestCounters;

/// Bounds on the time and the number of requests. The defaults are for networks that are slow and not broken: a program that
/// would rather fail early shortens them.
///
/// ```
/// use std::time::Duration;
/// use anamnesis_remote::RemoteOptions;
///
/// let mut options = RemoteOptions::default();
/// options.first_byte = Duration::from_secs(2);
/// options.retries = 0;
/// assert_eq!(options.connect, Duration::from_secs(10));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RemoteOptions {
    /// The longest that a connection takes. Default 10 s.
    pub connect: Duration,
    /// The longest that is waited for the first byte of an answer. Default 30 s.
    pub first_byte: Duration,
    /// The longest that is waited between two parts of an answer. Default 15 s.
    pub idle: Duration,
    /// What an answer may take beyond the time of its bytes at [`least_rate`](Self::least_rate). Default 10 s.
    pub slow: Duration,
    /// Bytes per second below which an answer is given up, once [`slow`](Self::slow) is over. Default 64 KiB; 0 for no bound.
    pub least_rate: u64,
    /// The longest that a server's `Retry-After` or `RateLimit` is followed, for each repetition; if it names a longer time,
    /// the request fails at once. Default 60 s.
    pub retry_after: Duration,
    /// The pause before the first repetition, where the server names none. It doubles with each further one, and half of it is
    /// random. Default 100 ms.
    pub pause: Duration,
    /// How often a request is repeated after a failure that may pass. Default 4.
    pub retries: u32,
    /// Requests of one store at a time, without [started](crate::RemoteFile::start) ones. Default 32.
    pub requests: usize,
    /// Bytes of memory for what the files of one store have read ahead. Beyond it, reads are requested one by one; the first
    /// bytes of a file are at least 4 KiB in any case. Default 160 MiB.
    pub memory: u64,
    /// Counts what is requested. Default none.
    pub counters: Option<RequestCounters>,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_secs(30),
            idle: Duration::from_secs(15),
            slow: Duration::from_secs(10),
            least_rate: 64 << 10,
            retry_after: Duration::from_secs(60),
            pause: Duration::from_millis(100),
            retries: 4,
            requests: 32,
            memory: 160 << 20,
            counters: None,
        }
    }
}
