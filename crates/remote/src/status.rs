//! The meaning of a status that is no success, and its remedy.

use std::time::{Duration, SystemTime};

use reqwest::header::HeaderMap;
use reqwest::{Response, StatusCode};

use crate::error::{Error, ErrorKind, shown};
use crate::retry_after::wait;

/// The failure of an answer.
pub(crate) struct StatusFailure {
    pub(crate) error: Error,
    /// Whether it may pass, and after which time if the server says so.
    pub(crate) retry: Option<Option<Duration>>,
}

/// The failure of a status; `None` for those that are answers to a range.
pub(crate) fn failure(hub: bool, response: &Response) -> Option<StatusFailure> {
    let status = response.status();
    let headers = response.headers();
    if matches!(
        status,
        StatusCode::OK | StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE
    ) {
        return None;
    }
    let code = if hub {
        text(headers, "x-error-code")
    } else {
        None
    };
    let final_ = |kind, message: String| {
        Some(StatusFailure {
            error: Error::new(kind, message),
            retry: None,
        })
    };
    match (status.as_u16(), code.as_deref()) {
        (_, Some("GatedRepo")) => final_(
            ErrorKind::Denied,
            "the repository is gated: request access on its page, then set HF_TOKEN to a token of that account".into(),
        ),
        (401, Some("RepoNotFound")) | (401, None) if hub => final_(
            ErrorKind::Denied,
            "there is no such public repository: check its name; if it is private, set HF_TOKEN".into(),
        ),
        (_, Some("RepoNotFound")) => final_(ErrorKind::NotFound, "there is no such repository; check its name".into()),
        (_, Some("RevisionNotFound")) => final_(
            ErrorKind::NotFound,
            "the repository has no such revision; check the part behind `@`".into(),
        ),
        (_, Some("EntryNotFound")) => final_(
            ErrorKind::NotFound,
            "the repository has no such file at this revision".into(),
        ),
        (401, _) => final_(
            ErrorKind::Denied,
            "the server requires credentials, or others (401): give a header, a token of the host in ANAMNESIS_TOKENS (HOST=TOKEN), or \
             its login in ~/.netrc"
                .into(),
        ),
        (403, _) => final_(
            ErrorKind::Denied,
            "the server denies access (403); a signed URL may have expired".into(),
        ),
        (301, _) => final_(
            ErrorKind::Refused,
            "the server names no new place (301); of a bucket, set AWS_REGION to the region that it is in".into(),
        ),
        (404 | 410, _) => final_(ErrorKind::NotFound, format!("the server has no such file ({})", status.as_u16())),
        (412, _) => Some(StatusFailure {
            error: Error::changed("its ETag is another one"),
            retry: None,
        }),
        (408 | 425 | 429 | 500 | 502 | 503 | 504, _) => {
            let after = wait(headers, SystemTime::now());
            let limited = matches!(status.as_u16(), 429 | 503) && after.is_some();
            let message = match after {
                Some(after) if limited => format!(
                    "the server limits the rate of requests ({}) and allows the next one in {} s",
                    status.as_u16(),
                    after.as_secs()
                ),
                _ => format!("the server fails ({status})"),
            };
            let kind = if limited { ErrorKind::RateLimited } else { ErrorKind::Network };
            Some(StatusFailure {
                error: Error::new(kind, message),
                retry: Some(after),
            })
        }
        _ => final_(ErrorKind::Refused, format!("the server answers {}", shown(&status.to_string()))),
    }
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}
