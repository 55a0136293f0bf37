//! Failures of a remote file.

use std::borrow::Cow;
use std::fmt;
use std::io;

/// Result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure: what kind, and a message that says what to do about it where something can be done. Messages name neither
/// tokens nor the queries of URLs, which may be signatures.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

/// The kinds of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The URL is none that this crate opens.
    Invalid,
    /// There is no such file, repository or revision.
    NotFound,
    /// The server requires credentials, or others than it got.
    Denied,
    /// The server limits the rate of requests for longer than is waited for.
    RateLimited,
    /// The file is not the one that was opened.
    Changed,
    /// The server lacks what is needed, such as ranges or a listing.
    Unsupported,
    /// The server's answer breaks the protocol, or leads where it must not.
    Refused,
    /// No connection, or the answer broke off, more often than is retried.
    Network,
    /// [`RemoteOptions::offline`](crate::RemoteOptions::offline) is set, and no cache on this machine has what is read.
    Offline,
    /// The server is too slow.
    TimedOut,
    /// An object exists that is not to be replaced.
    Exists,
    /// The caller ended the operation.
    Cancelled,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { kind, message }
    }

    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Refused, message)
    }

    pub(crate) fn changed(what: &str) -> Self {
        let message = format!("the file changed since it was opened ({what}); open it again");
        Self::new(ErrorKind::Changed, message)
    }

    /// The error of a request that is not sent.
    pub(crate) fn offline() -> Self {
        Self::new(
            ErrorKind::Offline,
            "no request is sent (offline), and no cache on this machine has this: allow requests, or download it",
        )
    }

    pub(crate) fn cancelled() -> Self {
        Self::new(ErrorKind::Cancelled, "cancelled")
    }

    /// The kind of failure.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error.kind {
            ErrorKind::Invalid => io::ErrorKind::InvalidInput,
            ErrorKind::NotFound => io::ErrorKind::NotFound,
            ErrorKind::Denied => io::ErrorKind::PermissionDenied,
            ErrorKind::RateLimited => io::ErrorKind::QuotaExceeded,
            ErrorKind::Changed => io::ErrorKind::StaleNetworkFileHandle,
            ErrorKind::Unsupported => io::ErrorKind::Unsupported,
            ErrorKind::Refused => io::ErrorKind::InvalidData,
            ErrorKind::Network => io::ErrorKind::ConnectionAborted,
            ErrorKind::Offline => io::ErrorKind::NetworkDown,
            ErrorKind::TimedOut => io::ErrorKind::TimedOut,
            ErrorKind::Exists => io::ErrorKind::AlreadyExists,
            // not `Interrupted`, which readers of `std` take as a request to try again
            ErrorKind::Cancelled => io::ErrorKind::ConnectionAborted,
        };
        Self::new(kind, error)
    }
}

/// Text of a server or of a library in a message: at most 240 characters of one line, control characters escaped, without the
/// query of any URL, without what follows a name of credentials, and without the credentials of the environment, which a
/// server may repeat.
pub(crate) fn shown(text: &str) -> String {
    const MOST: usize = 240;
    let text = &*without_credentials(text, &secrets_of_environment());
    let mut out = String::new();
    let mut query = false;
    // bounded in front too: most of a hostile text may be a query, of which nothing is shown
    for c in text.chars().take(8 * MOST) {
        if out.chars().count() >= MOST {
            out.push('…');
            break;
        }
        match c {
            '?' => query = true,
            c if query && !(c.is_whitespace() || matches!(c, ')' | '"' | '\'' | '>')) => continue,
            _ => query = false,
        }
        if c.is_control() {
            out.extend(c.escape_default());
        } else if !query {
            out.push(c);
        }
    }
    out
}

/// An error with its causes, in one line.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        // several libraries repeat their cause in their own message
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    shown(&without_answer(&text))
}

/// The part of an error of `object_store` that it has made itself: the text of an answer is the server's, which may repeat what
/// was sent. A code that is known says why a request was refused.
fn without_answer(text: &str) -> Cow<'_, str> {
    /// The words in front of an answer's text; the first ones are followed by the status.
    const STATUS: &str = "Server returned non-2xx status code: ";
    const ANSWER: &str = "Server returned error response: ";
    let start = match (text.find(STATUS), text.find(ANSWER)) {
        (Some(at), _) => {
            let status = at + STATUS.len();
            text[status..]
                .find(": ")
                .map_or(text.len(), |end| status + end)
        }
        (None, Some(at)) => at + ANSWER.len() - ": ".len(),
        (None, None) => return Cow::Borrowed(text),
    };
    let (own, answer) = text.split_at(start);
    let code = CODES
        .iter()
        .find(|code| answer.contains(&format!("<Code>{code}</Code>")));
    Cow::Owned(match code {
        Some(code) => format!("{own}: {code}"),
        None => own.to_owned(),
    })
}

/// Codes of errors of S3, of the Google Cloud and of Azure that say what can be done.
static CODES: [&str; 28] = [
    "AccessDenied",
    "AccountIsDisabled",
    "AllAccessDisabled",
    "AuthenticationFailed",
    "AuthorizationFailure",
    "AuthorizationHeaderMalformed",
    "AuthorizationPermissionMismatch",
    "ContainerNotFound",
    "EntityTooLarge",
    "EntityTooSmall",
    "ExpiredToken",
    "InternalError",
    "InvalidAccessKeyId",
    "InvalidBucketName",
    "InvalidToken",
    "MethodNotAllowed",
    "NoSuchBucket",
    "NoSuchKey",
    "NoSuchUpload",
    "OperationAborted",
    "PermanentRedirect",
    "QuotaExceeded",
    "RequestTimeTooSkewed",
    "RequestTimeout",
    "ServerBusy",
    "ServiceUnavailable",
    "SignatureDoesNotMatch",
    "SlowDown",
];

/// The values of variables that hold credentials of buckets and hubs.
fn secrets_of_environment() -> Vec<String> {
    const SERVICES: [&str; 8] = [
        "AWS_",
        "GOOGLE_",
        "AZURE_",
        "HF_",
        "HUGGING",
        "GCP_",
        "MINIO_",
        "ANAMNESIS_",
    ];
    const KINDS: [&str; 6] = ["TOKEN", "KEY", "SECRET", "SAS", "PASSWORD", "CREDENTIAL"];
    /// A shorter value is in half of all texts.
    const SHORTEST: usize = 4;
    let variables = std::env::vars_os();
    let named = variables.filter(|(name, _)| {
        let name = name.to_string_lossy().to_ascii_uppercase();
        SERVICES.iter().any(|service| name.starts_with(service))
            && KINDS.iter().any(|kind| name.contains(kind))
            // files that hold them, whose paths an error has to name
            && !["FILE", "PATH", "APPLICATION_CREDENTIALS"].iter().any(|end| name.ends_with(end))
    });
    let values = named.filter_map(|(_, value)| value.into_string().ok());
    // `ANAMNESIS_TOKENS` has several, each behind its host
    let values = values.flat_map(|value| {
        let listed = value.split_whitespace();
        let listed = listed.filter_map(|entry| Some(entry.split_once('=')?.1.to_owned()));
        listed.chain([value.clone()]).collect::<Vec<_>>()
    });
    let mut values: Vec<String> = values.filter(|value| value.len() >= SHORTEST).collect();
    // one that is a part of another one would leave the rest
    values.sort_by_key(|value| std::cmp::Reverse(value.len()));
    values
}

/// A text without these secrets, and without the words that follow a name of credentials.
fn without_credentials(text: &str, secrets: &[String]) -> String {
    const NAMES: [&str; 8] = [
        "authorization",
        "bearer",
        "basic",
        "credential",
        "password",
        "secret",
        "signature",
        "token",
    ];
    const HIDDEN: &str = "…";
    let mut text = text.to_owned();
    for secret in secrets {
        text = text.replace(secret.as_str(), HIDDEN);
    }
    let is_sign = |c: char| {
        c.is_whitespace()
            || matches!(
                c,
                '=' | ':' | ',' | ';' | '<' | '>' | '(' | ')' | '"' | '\''
            )
    };
    let (mut out, mut rest, mut hides) = (String::new(), &*text, false);
    while !rest.is_empty() {
        let word = &rest[..rest.find(is_sign).unwrap_or(rest.len())];
        let behind = &rest[word.len()..];
        let signs = &behind[..behind.find(|c| !is_sign(c)).unwrap_or(behind.len())];
        let lower = word.to_ascii_lowercase();
        let is_name = NAMES.iter().any(|name| lower.ends_with(name));
        out.push_str(if hides && !is_name && !word.is_empty() {
            HIDDEN
        } else {
            word
        });
        out.push_str(signs);
        // `Authorization: Bearer x`, `token=x`; not the word of a sentence, behind which is a space
        hides = is_name && (signs.contains(['=', ':']) || matches!(&*lower, "bearer" | "basic"));
        rest = &behind[signs.len()..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_and_control_characters_are_not_shown() {
        let text = "no answer (https://h/a?X-Signature=secret) \u{1b}[31m";
        assert_eq!(shown(text), "no answer (https://h/a) \\u{1b}[31m");
        assert_eq!(shown(&"x".repeat(1000)).chars().count(), 241);
    }

    #[test]
    fn credentials_are_not_shown() {
        let secrets = ["S3SSION".to_owned()];
        for (text, shown) in [
            ("no answer (S3SSION)", "no answer (…)"),
            (
                "a Authorization: Bearer abc, b",
                "a Authorization: Bearer …, b",
            ),
            ("x-amz-security-token=abc d", "x-amz-security-token=… d"),
            (
                "Credential=AKIA/x, Signature=ff",
                "Credential=…, Signature=…",
            ),
            ("<Token>abc</Token>", "<Token>abc</Token>"),
            ("invalid token at line 3", "invalid token at line 3"),
        ] {
            assert_eq!(without_credentials(text, &secrets), shown);
        }
    }

    #[test]
    fn the_text_of_an_answer_is_not_shown() {
        for (text, shown) in [
            (
                "a: Server returned non-2xx status code: 403 Forbidden: token=abc",
                "a: Server returned non-2xx status code: 403 Forbidden",
            ),
            (
                "Server returned non-2xx status code: 403 Forbidden: <Error><Code>AccessDenied</Code>abc",
                "Server returned non-2xx status code: 403 Forbidden: AccessDenied",
            ),
            (
                "Server returned non-2xx status code: 403 Forbidden: <Code>abc</Code>",
                "Server returned non-2xx status code: 403 Forbidden",
            ),
            (
                "Server returned error response: abc",
                "Server returned error response",
            ),
            ("no route to host", "no route to host"),
        ] {
            assert_eq!(without_answer(text), shown);
        }
    }
}
