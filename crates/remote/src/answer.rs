//! The answer to a request for a range: what its header says, and its body, held to that.

use std::time::{Duration, Instant};

use bytes::Bytes;
use reqwest::header::{self, HeaderMap};
use reqwest::{Response, StatusCode};

use crate::error::{Error, ErrorKind, Result, with_causes};
use crate::options::RemoteOptions;
use crate::stats::RequestCounters;

/// The bytes that a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestedRange {
    /// From the first to before the second.
    Between(u64, u64),
    /// The last bytes.
    Last(u64),
}

impl RequestedRange {
    pub(crate) fn header(self) -> String {
        match self {
            Self::Between(start, end) => format!("bytes={start}-{}", end - 1),
            Self::Last(n) => format!("bytes=-{n}"),
        }
    }
}

/// The identity of a file's content: it is the same in all answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileVersion {
    pub(crate) len: u64,
    pub(crate) etag: Option<String>,
    /// Where there is no ETag.
    pub(crate) modified: Option<String>,
}

impl FileVersion {
    /// A member without bytes of an archive.
    pub(crate) const EMPTY: Self = Self {
        len: 0,
        etag: None,
        modified: None,
    };

    fn of(headers: &HeaderMap, len: u64) -> Self {
        let text = |name| {
            let value = headers.get(name)?.to_str().ok()?;
            // longer than any server's, and short enough to be kept for each file
            (value.len() <= 1024).then(|| value.to_owned())
        };
        let etag = text(header::ETAG);
        // a time is in seconds, so that two versions may share it: it counts only where there is nothing better
        let modified = text(header::LAST_MODIFIED).filter(|_| etag.is_none());
        Self {
            len,
            etag,
            modified,
        }
    }

    /// The ETag, if it can be a condition: weak ones are compared and not sent.
    pub(crate) fn condition(&self) -> Option<&str> {
        // `If-Match` compares strongly, so that a weak ETag never matches (RFC 9110, section 13.1.1)
        self.etag.as_deref().filter(|etag| !etag.starts_with("W/"))
    }

    /// Refuses an answer about another content.
    pub(crate) fn check(&self, other: &Self) -> Result<()> {
        if self.len != other.len {
            let what = format!("it had {} bytes and has {}", self.len, other.len);
            return Err(Error::changed(&what));
        }
        if self.etag != other.etag {
            return Err(Error::changed("its ETag is another one"));
        }
        if self.modified != other.modified {
            return Err(Error::changed("its time of modification is another one"));
        }
        Ok(())
    }
}

/// An answer with the bytes from `start` to `end`.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) version: FileVersion,
    pub(crate) start: u64,
    pub(crate) end: u64,
    body: AnswerBody,
}

impl Answer {
    /// Checks the header of an answer of status 200, 206 or 416 against the request. `stated` is the length of the file, where something else
    /// says it.
    pub(crate) fn new(
        response: Response,
        range: RequestedRange,
        stated: Option<u64>,
        options: &RemoteOptions,
    ) -> Result<Self> {
        let headers = response.headers();
        if let Some(encoding) = headers.get(header::CONTENT_ENCODING)
            // offsets would count compressed bytes
            && encoding != "identity"
        {
            let encoding = crate::error::shown(&String::from_utf8_lossy(encoding.as_bytes()));
            return Err(Error::refused(format!(
                "the server sends the file with Content-Encoding {encoding}, whose bytes are not those of the file"
            )));
        }
        let content_range = headers
            .get(header::CONTENT_RANGE)
            .and_then(|value| value.to_str().ok())
            .map(content_range);
        let (start, end, len) = match (response.status(), content_range) {
            (StatusCode::PARTIAL_CONTENT, Some(Some(found))) => found,
            (StatusCode::PARTIAL_CONTENT, Some(None)) => {
                return Err(Error::refused(
                    "the server's Content-Range is none, or does not say the length of the file",
                ));
            }
            (StatusCode::PARTIAL_CONTENT, None) => {
                return Err(Error::refused(
                    "the server answers a range without Content-Range",
                ));
            }
            (StatusCode::RANGE_NOT_SATISFIABLE, _) => {
                // the only range that an empty file has
                let empty = headers
                    .get(header::CONTENT_RANGE)
                    .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"bytes */0"));
                if !empty {
                    return Err(Error::changed("it has no byte at the place that is read"));
                }
                (0, 0, 0)
            }
            _ => whole(&response, range, stated)?,
        };
        let asked = match range {
            // less than was requested is allowed, and continued; other bytes would be read as these
            RequestedRange::Between(from, to) => start == from.min(len) && end <= to,
            RequestedRange::Last(n) => end == len && len - start <= n,
        };
        if !asked {
            return Err(Error::refused(format!(
                "the server answers the request for {} with the bytes {start} to {end} of {len}",
                range.header()
            )));
        }
        let version = FileVersion::of(headers, len);
        let body = AnswerBody::new(response, end - start, options);
        Ok(Self {
            version,
            start,
            end,
            body,
        })
    }

    /// The next bytes; `None` at the end of the range. Nothing behind it is read.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>> {
        self.body.next().await
    }
}

/// The range of an answer that holds the whole file, as servers without ranges send it.
fn whole(
    response: &Response,
    range: RequestedRange,
    stated: Option<u64>,
) -> Result<(u64, u64, u64)> {
    let most = match range {
        RequestedRange::Between(0, most) => most,
        _ => 0,
    };
    // texts of ModelScope may come in chunks
    match response.content_length().or(stated) {
        // a small file without ranges is as good; a large one would be received whole for each read
        Some(len) if len <= most => Ok((0, len, len)),
        _ => Err(Error::new(
            ErrorKind::Unsupported,
            "the server does not answer requests for ranges; download the file",
        )),
    }
}

/// Parses `bytes 0-99/1000` into the first byte, the one behind the last, and the length of the file. The range lies in the
/// file and is not empty.
fn content_range(text: &str) -> Option<(u64, u64, u64)> {
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        // `parse` alone accepts a plus sign
        digits.then(|| text.parse::<u64>().ok()).flatten()
    };
    let (unit, rest) = text.trim().split_once(' ')?;
    let (range, len) = rest.trim().split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last, len) = (number(first)?, number(last)?, number(len)?);
    (unit.eq_ignore_ascii_case("bytes") && first <= last && last < len)
        .then(|| (first, last + 1, len))
}

/// A body of a known number of bytes, or of a bounded one.
#[derive(Debug)]
pub(crate) struct AnswerBody {
    response: Response,
    left: u64,
    idle: Duration,
    counters: RequestCounters,
    /// When the body must have ended, if its bytes arrive at the least rate; `None` without such a rate.
    deadline: Option<Instant>,
}

impl AnswerBody {
    pub(crate) fn new(response: Response, len: u64, options: &RemoteOptions) -> Self {
        // a rate of 0 is no bound
        let time = len.checked_div(options.least_rate).map(Duration::from_secs);
        let time = time.map(|time| time.saturating_add(options.slow));
        Self {
            response,
            left: len,
            idle: options.idle,
            counters: options.counters.clone().unwrap_or_default(),
            deadline: time.and_then(|time| Instant::now().checked_add(time)),
        }
    }

    /// The next bytes; `None` when `len` bytes were returned. A body that ends before is an error of the network.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            if self.left == 0 {
                return Ok(None);
            }
            let rest = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
            let rest = self.deadline.map_or(Duration::MAX, rest);
            // two bounds: silence, and a server that sends a byte now and then to hold the connection
            let Ok(part) = tokio::time::timeout(self.idle.min(rest), self.response.chunk()).await
            else {
                return Err(Error::new(
                    ErrorKind::TimedOut,
                    "the server sends too slowly: given up",
                ));
            };
            match part {
                Ok(Some(part)) if part.is_empty() => {}
                Ok(Some(part)) => {
                    let n =
                        usize::try_from(self.left).map_or(part.len(), |left| left.min(part.len()));
                    self.left -= n as u64;
                    self.counters.received(n);
                    // more than was announced is not an error: some servers end a body without a length late
                    return Ok(Some(part.slice(..n)));
                }
                Ok(None) => {
                    let what = format!("the body ended {} bytes too early", self.left);
                    return Err(Error::new(ErrorKind::Network, what));
                }
                Err(e) => {
                    let what = format!("the connection broke off: {}", with_causes(&e));
                    return Err(Error::new(ErrorKind::Network, what));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_ranges() {
        assert_eq!(content_range("bytes 0-99/1000"), Some((0, 100, 1000)));
        assert_eq!(content_range("Bytes 5-5/6"), Some((5, 6, 6)));
        for wrong in [
            "bytes 0-99/*",
            "bytes */100",
            "bytes 9-5/10",
            "bytes 0-10/10",
            "items 0-1/2",
            "bytes 0-18446744073709551615/5",
            "bytes -1-2/3",
            "bytes +1-2/3",
            "bytes 1-2",
            "",
            "bytes 0-1/99999999999999999999",
        ] {
            assert_eq!(content_range(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn versions_differ_by_length_etag_or_time() {
        let version = |len, etag: Option<&str>, modified: Option<&str>| FileVersion {
            len,
            etag: etag.map(str::to_owned),
            modified: modified.map(str::to_owned),
        };
        let strong = version(1, Some("\"a\""), None);
        assert!(strong.check(&strong.clone()).is_ok());
        for other in [
            version(2, Some("\"a\""), None),
            version(1, Some("\"b\""), None),
            version(1, None, None),
        ] {
            assert_eq!(strong.check(&other).unwrap_err().kind(), ErrorKind::Changed);
        }
        let dated = version(1, None, Some("Mon"));
        assert_eq!(
            dated
                .check(&version(1, None, Some("Tue")))
                .unwrap_err()
                .kind(),
            ErrorKind::Changed
        );
        assert_eq!(strong.condition(), Some("\"a\""));
        assert_eq!(version(1, Some("W/\"a\""), None).condition(), None);
    }
}
