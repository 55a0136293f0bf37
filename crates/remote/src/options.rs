//! How long is waited and how often is tried.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};

use crate::error::{Error, ErrorKind, Result};
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
    /// The time that an answer may take beyond the time of its bytes at [`least_rate`](Self::least_rate). Default 10 s.
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
    /// The longest that a listing of a bucket takes, over all its pages. Default 60 s.
    pub listing: Duration,
    /// Whether no request is sent: what a cache on this machine has is read, and everything else is an error of kind
    /// [`Offline`](crate::ErrorKind::Offline). Default off; `HF_HUB_OFFLINE` sets it for the hub.
    pub offline: bool,
    /// A directory that keeps what opening reads of files, by URL and ETag (or commit, on the hub), and no tensors: opening such a file
    /// again costs one request without a body, and with [`offline`](Self::offline) none. It is made for this user alone if it
    /// does not exist. URLs are kept as digests, and credentials not at all. Default none.
    pub header_cache: Option<PathBuf>,
    /// Bytes of [`header_cache`](Self::header_cache): entries that were used longest ago are evicted. Default 256 MiB.
    pub header_cache_size: u64,
    /// Ends waits for answers while a checkpoint is opened. Default none.
    pub cancel: Option<CancelCheck>,
    /// Bytes of a part of an upload, except the last of an object. An object of more than 10 000 of them has longer ones. Most
    /// services refuse parts of less than 5 MiB. Default 8 MiB.
    pub part: u64,
    /// Bytes of memory for the parts of uploads that are filled or under way: at least one part. Default 40 MiB.
    pub upload_memory: u64,
    /// Variables that replace the environment's, such as the credentials of a bucket. Default none.
    pub variables: Variables,
    /// Sent to the host of an `http(s)` URL, and to no other: for private servers. Default none; then a token of the variable
    /// `ANAMNESIS_TOKENS` (`HOST=TOKEN`, several with spaces between them) or a login of `~/.netrc` (`NETRC`) is sent to its host.
    pub headers: RequestHeaders,
    /// Counts what is requested. Default none.
    pub counters: Option<RequestCounters>,
}

/// A function that returns true once waits for answers have to end. It is called at least every 50 ms by each waiting thread, until
/// [`Store::opened`](crate::Store::opened).
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use anamnesis_remote::{CancelCheck, RemoteOptions};
///
/// let cancelled = Arc::new(AtomicBool::new(false));
/// let mut options = RemoteOptions::default();
/// let seen = Arc::clone(&cancelled);
/// options.cancel = Some(CancelCheck::new(move || seen.load(Ordering::Relaxed)));
/// ```
#[derive(Clone)]
pub struct CancelCheck(Arc<dyn Fn() -> bool + Send + Sync>);

impl CancelCheck {
    /// A check by this function.
    pub fn new(is_cancelled: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(is_cancelled))
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        (self.0)()
    }
}

impl fmt::Debug for CancelCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelCheck").finish_non_exhaustive()
    }
}

/// Headers of requests. `Debug` does not show them, as they may be secrets.
///
/// ```
/// use anamnesis_remote::RequestHeaders;
///
/// let mut headers = RequestHeaders::default();
/// headers.add("Authorization: Bearer secret");
/// assert!(!format!("{headers:?}").contains("secret"));
/// ```
#[derive(Clone, Default)]
pub struct RequestHeaders {
    map: HeaderMap,
    /// Why one of them is none: opening a URL fails with it.
    wrong: Option<&'static str>,
}

/// Headers that a request has of its own.
static OWN: &[HeaderName] = &[
    header::ACCEPT_ENCODING,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::HOST,
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_RANGE,
    header::RANGE,
    header::TRANSFER_ENCODING,
];

impl RequestHeaders {
    /// Adds `NAME: VALUE`. Opening a URL fails with [`Invalid`](crate::ErrorKind::Invalid) if it is written otherwise, or is a header
    /// that requests have of their own, such as `Range`.
    pub fn add(&mut self, header: &str) {
        let parsed = header.split_once(':').and_then(|(name, value)| {
            let name: HeaderName = name.trim().parse().ok()?;
            let value = HeaderValue::from_str(value.trim()).ok()?;
            (!value.is_empty()).then_some((name, value))
        });
        // the text may be a secret, and is not repeated
        match parsed {
            None => self.wrong = Some("a header is not written NAME: VALUE"),
            Some((name, _)) if OWN.contains(&name) => {
                self.wrong =
                    Some("a header is one that requests have of their own, such as Range or Host");
            }
            Some((name, mut value)) => {
                value.set_sensitive(true);
                self.map.append(name, value);
            }
        }
    }

    pub(crate) fn checked(&self) -> Result<HeaderMap> {
        match self.wrong {
            Some(why) => Err(Error::new(ErrorKind::Invalid, why)),
            None => Ok(self.map.clone()),
        }
    }
}

impl fmt::Debug for RequestHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.map.keys()).finish()
    }
}

/// Names and values of variables. `Debug` does not show the values, which may be secrets.
///
/// ```
/// use anamnesis_remote::Variables;
///
/// let variables = Variables::from_iter([("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "secret")]);
/// assert_eq!(variables.get("AWS_ACCESS_KEY_ID"), Some("id"));
/// assert!(!format!("{variables:?}").contains("secret"));
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Variables(Vec<(String, String)>);

impl Variables {
    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut found = self.0.iter().filter(|(known, _)| known == name);
        found.next_back().map(|(_, value)| value.as_str())
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Variables {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let pairs = pairs.into_iter();
        Self(
            pairs
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }
}

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(name, _)| name))
            .finish()
    }
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
            listing: Duration::from_secs(60),
            offline: false,
            header_cache: None,
            header_cache_size: 256 << 20,
            cancel: None,
            part: 8 << 20,
            upload_memory: 40 << 20,
            variables: Variables::default(),
            headers: RequestHeaders::default(),
            counters: None,
        }
    }
}
