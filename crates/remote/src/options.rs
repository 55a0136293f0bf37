//! How long is waited and how often is tried.

use std::time::Duration;

/// Bounds on the time and the number of requests.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RemoteOptions {
    /// For a connection. Default 10 s.
    pub connect: Duration,
    /// For the first byte of an answer. Default 30 s.
    pub first_byte: Duration,
    /// Between two parts of an answer. Default 15 s.
    pub idle: Duration,
    /// An answer may take this long, and a second more per 64 KiB. Default 10 s.
    pub slow: Duration,
    /// The longest that a server's `Retry-After` is followed. Default 60 s.
    pub retry_after: Duration,
    /// How often a request is repeated after a failure that may pass. Default 4.
    pub retries: u32,
    /// Requests of one store at a time. Default 32.
    pub requests: usize,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_secs(30),
            idle: Duration::from_secs(15),
            slow: Duration::from_secs(10),
            retry_after: Duration::from_secs(60),
            retries: 4,
            requests: 32,
        }
    }
}
