//! Requests: redirects that are followed under conditions, retries that wait as long as the server says.

mod tokens;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hyper_util::client::legacy::connect::HttpInfo;
use reqwest::header::{self, HeaderMap, HeaderValue};
use reqwest::{Response, StatusCode};
use url::{Host, Url};

use crate::address::{Allowed, is_public};
use crate::answer::{Answer, AnswerBody, FileVersion, RequestedRange};
use crate::connections::Connections;
use crate::error::{Error, ErrorKind, Result, shown, with_causes};
use crate::options::{CancelCheck, RemoteOptions};
use crate::resource::{ResolvedUrl, Resource};
use crate::stats::RequestCounters;
use crate::status;

/// Redirects that are followed.
// more than hubs and storage services need, and few enough that a circle ends soon
const REDIRECTS: usize = 5;

/// Requests under one set of options.
pub(crate) struct Client {
    connections: Arc<Connections>,
    pub(crate) options: RemoteOptions,
    pub(crate) counters: RequestCounters,
    /// Whether the files are open: waits are not cancelled any more.
    opened: AtomicBool,
}

/// Why a request has no answer.
enum RequestFailure {
    /// It may pass; after this time, if the server names one.
    Passing(Option<Duration>, Error),
    /// The URL that a redirect named is refused: its signature may have expired.
    Expired(Error),
    Final(Error),
}

impl Client {
    pub(crate) fn new(mut options: RemoteOptions) -> Self {
        let connections = Connections::with_timeout(options.connect);
        let counters = options.counters.get_or_insert_default().clone();
        Self {
            connections,
            options,
            counters,
            opened: AtomicBool::new(false),
        }
    }

    pub(crate) fn set_opened(&self) {
        // relaxed: it publishes no other data
        self.opened.store(true, Ordering::Relaxed);
    }

    /// Fails if the caller has cancelled.
    pub(crate) fn check_wanted(&self) -> Result<()> {
        let is_cancelled = self
            .options
            .cancel
            .as_ref()
            .is_some_and(CancelCheck::is_cancelled);
        if is_cancelled && !self.opened.load(Ordering::Relaxed) {
            return Err(Error::cancelled());
        }
        Ok(())
    }

    /// Refuses to send a request, if none is to be sent.
    pub(crate) fn check_online(&self) -> Result<()> {
        if self.options.offline {
            return Err(Error::offline());
        }
        Ok(())
    }

    /// The client that connects to these addresses.
    pub(crate) fn to(&self, allowed: Allowed) -> Result<&reqwest::Client> {
        self.connections.to(allowed)
    }

    /// Requests a range of a file, of the version that is known. Invokes `on_delay` before each wait for a server that refuses
    /// requests or fails.
    pub(crate) async fn range(
        &self,
        resource: &Resource,
        range: RequestedRange,
        version: Option<&FileVersion>,
        on_delay: &mut (dyn FnMut() + Send),
    ) -> Result<Answer> {
        if version.is_some() && self.options.offline {
            return Err(Error::new(
                ErrorKind::Offline,
                "no request is sent (offline), and the cache of headers holds what opening has read and no tensors: \
                 allow requests, or download the file",
            ));
        }
        let wanted = resource.range_to_request(range);
        let mut headers = of_range(wanted);
        if let Some(etag) = version.and_then(FileVersion::condition)
            && let Ok(etag) = HeaderValue::from_str(etag)
        {
            headers.insert(header::IF_MATCH, etag);
        }
        let response = self.get(resource, &headers, on_delay).await?;
        let answer = self.answer(resource, response, wanted)?;
        if let Some(version) = version {
            version.check(&answer.version)?;
        }
        Ok(answer)
    }

    /// Requests a range of a file unless its ETag is this one; `None` if it is.
    pub(crate) async fn changed_range(
        &self,
        resource: &Resource,
        range: RequestedRange,
        etag: &str,
    ) -> Result<Option<Answer>> {
        let wanted = resource.range_to_request(range);
        let mut headers = of_range(wanted);
        if let Ok(etag) = HeaderValue::from_str(etag) {
            headers.insert(header::IF_NONE_MATCH, etag);
        }
        let response = self.get(resource, &headers, &mut || {}).await?;
        if response.status() != StatusCode::NOT_MODIFIED {
            return self.answer(resource, response, wanted).map(Some);
        }
        let found = response.headers().get(header::ETAG);
        if found.is_some_and(|found| found != etag) {
            // it contradicts itself: without a condition, it has nothing to compare
            return self
                .range(resource, range, None, &mut || {})
                .await
                .map(Some);
        }
        Ok(None)
    }

    fn answer(
        &self,
        resource: &Resource,
        response: Response,
        range: RequestedRange,
    ) -> Result<Answer> {
        let stated = resource.whole_blob().map(|blob| blob.len);
        let mut answer = Answer::new(response, range, stated, &self.options)?;
        resource.adjust(&mut answer)?;
        self.counters.requested(answer.end - answer.start);
        Ok(answer)
    }

    /// Reads a document whole, which has at most this many bytes.
    pub(crate) async fn document(&self, resource: &Resource, most: u64) -> Result<Vec<u8>> {
        let response = self.get(resource, &HeaderMap::new(), &mut || {}).await?;
        if response.status() != StatusCode::OK {
            return Err(Error::refused(
                "the server answers a part without being asked for it",
            ));
        }
        let announced = response.content_length();
        if announced.is_some_and(|len| len > most) {
            return Err(Error::refused(format!(
                "the listing is longer than {most} bytes"
            )));
        }
        // without a length, the body ends where the connection does
        let len = announced.unwrap_or(most);
        let mut body = AnswerBody::new(response, len, &self.options);
        let mut text = Vec::new();
        loop {
            match body.next().await {
                Ok(Some(part)) => text.extend_from_slice(&part),
                Ok(None) if announced.is_some() => break,
                Ok(None) => {
                    return Err(Error::refused(format!(
                        "the listing is longer than {most} bytes"
                    )));
                }
                Err(e) if announced.is_none() && e.kind() == ErrorKind::Network => break,
                Err(e) => return Err(e),
            }
        }
        self.counters.requested(text.len() as u64);
        self.counters.used(text.len() as u64);
        Ok(text)
    }

    /// The answer of status 200, 206 or 416 (and 304, to a request under a condition), after redirects and retries.
    async fn get(
        &self,
        resource: &Resource,
        headers: &HeaderMap,
        on_delay: &mut (dyn FnMut() + Send),
    ) -> Result<Response> {
        self.check_online()?;
        let (mut tried, mut renewed) = (0, false);
        loop {
            let failure = match self.follow(resource, headers).await {
                Ok(response) => return Ok(response),
                Err(failure) => failure,
            };
            match failure {
                RequestFailure::Final(e) => return Err(e),
                // once: a URL that is refused right after it was renewed is refused for another reason
                RequestFailure::Expired(_) if !renewed => {
                    renewed = true;
                    self.counters.retried();
                    resource.resolve_to(None);
                }
                RequestFailure::Expired(e) => return Err(e),
                RequestFailure::Passing(_, e) if tried == self.options.retries => return Err(e),
                RequestFailure::Passing(after, e) => {
                    // a server may name an hour, and a caller would rather see the error than a hanging load
                    if after.is_some_and(|after| after > self.options.retry_after) {
                        return Err(e);
                    }
                    on_delay();
                    let own = pause(self.options.pause, tried);
                    // also if the server names no time to come
                    tokio::time::sleep(after.map_or(own, |after| after.max(own))).await;
                    self.counters.retried();
                    tried += 1;
                }
            }
        }
    }

    /// One request, and those that its redirects name.
    async fn follow(
        &self,
        resource: &Resource,
        headers: &HeaderMap,
    ) -> Result<Response, RequestFailure> {
        let known = resource.resolved();
        let is_resolved = known.is_some();
        let (mut url, mut allowed, mut own) = match known {
            Some(known) => (known.url, known.allowed, known.headers),
            None => {
                let first = resource.first_access().await;
                let first = first.map_err(RequestFailure::Final)?;
                (first.url, first.allowed, first.headers)
            }
        };
        // the host that the caller named; of a bucket, the one that the environment names
        let origin = resource.url().unwrap_or(&url).clone();
        let mut has_login = false;
        for _ in 0..=REDIRECTS {
            let mut all = headers.clone();
            all.extend(own.clone());
            let response = self.send(resource, &url, allowed, all).await?;
            // on every hop: the hub names the commit on its own answer, and the storage that it redirects to does not
            resource
                .check_commit(response.headers())
                .map_err(RequestFailure::Final)?;
            if !has_login
                && response.status() == StatusCode::UNAUTHORIZED
                && let Some(login) = resource.login().filter(|_| url.origin() == origin.origin())
                && let Some(given) = self
                    .renewed_token(
                        login,
                        &origin,
                        own.get(header::AUTHORIZATION),
                        response.headers(),
                    )
                    .await
                    .map_err(RequestFailure::Final)?
            {
                has_login = true;
                own.insert(header::AUTHORIZATION, given);
                continue;
            }
            // an answer, and no redirect, to a request under this condition
            let is_unchanged = response.status() == StatusCode::NOT_MODIFIED
                && headers.contains_key(header::IF_NONE_MATCH);
            if !is_unchanged
                && response.status().is_redirection()
                && response.headers().contains_key(header::LOCATION)
            {
                let to = location(&url, response.headers()).map_err(RequestFailure::Final)?;
                if to.origin() != url.origin() {
                    // credentials go to no other host
                    own.clear();
                }
                // once a redirect has left the named host, all that follow are held to the rule, back to the first host
                // too
                if to.origin() != url.origin() || allowed != Allowed::Any {
                    allowed = self
                        .rule_for(&origin, &to)
                        .await
                        .map_err(RequestFailure::Final)?;
                }
                url = to;
                continue;
            }
            let failure = match is_unchanged {
                true => None,
                false => status::failure(resource.is_on_hub(), &response),
            };
            return match failure {
                None => {
                    if resource.url() != Some(&url) {
                        // further ranges go to the last URL at once: each redirect would cost a round trip
                        resource.resolve_to(Some(ResolvedUrl {
                            url,
                            allowed,
                            headers: own,
                        }));
                    }
                    Ok(response)
                }
                Some(status::StatusFailure {
                    error,
                    retry: Some(after),
                }) => Err(RequestFailure::Passing(after, error)),
                Some(status::StatusFailure { error, retry: None })
                    if is_resolved && error.kind() != ErrorKind::Changed =>
                {
                    Err(RequestFailure::Expired(error))
                }
                Some(status::StatusFailure { error, retry: None }) => {
                    Err(RequestFailure::Final(error))
                }
            };
        }
        Err(RequestFailure::Final(Error::refused(format!(
            "more than {REDIRECTS} redirects"
        ))))
    }

    async fn send(
        &self,
        resource: &Resource,
        url: &Url,
        allowed: Allowed,
        headers: HeaderMap,
    ) -> Result<Response, RequestFailure> {
        let client = self.to(allowed).map_err(RequestFailure::Final)?;
        let mut request = client.get(url.clone()).headers(headers);
        if let Some(token) = resource.token_for(url) {
            request = request.header(header::AUTHORIZATION, token);
        }
        let sent = Instant::now();
        self.counters.sent();
        match tokio::time::timeout(self.options.first_byte, request.send()).await {
            Ok(Ok(response)) => {
                let connection = response.extensions().get::<HttpInfo>();
                let connection = connection.map(HttpInfo::local_addr);
                self.counters.answered(sent, connection);
                Ok(response)
            }
            Ok(Err(e)) => {
                let text = format!(
                    "no answer from {}: {}",
                    host(url),
                    // the URL may hold a signature
                    with_causes(&e.without_url())
                );
                Err(RequestFailure::Passing(
                    None,
                    Error::new(ErrorKind::Network, text),
                ))
            }
            Err(_) => {
                let text = format!(
                    "{} did not answer within {} s",
                    host(url),
                    self.options.first_byte.as_secs_f32()
                );
                // not repeated: the caller has waited the whole time already, and would wait it again
                Err(RequestFailure::Final(Error::new(ErrorKind::TimedOut, text)))
            }
        }
    }

    /// The addresses that a redirect to another host, or its address of tokens, may lead to.
    async fn rule_for(&self, origin: &Url, to: &Url) -> Result<Allowed> {
        let rule = if origin_is_public(origin).await {
            Allowed::Public
        } else {
            Allowed::NotLinkLocal
        };
        // addresses that stand in the URL are not resolved
        let literal: Option<IpAddr> = match to.host() {
            Some(Host::Ipv4(v4)) => Some(v4.into()),
            Some(Host::Ipv6(v6)) => Some(v6.into()),
            _ => None,
        };
        if literal.is_some_and(|address| !rule.allows(address)) {
            return Err(Error::refused(format!(
                "the server redirects to an address inside of a network: {}",
                host(to)
            )));
        }
        Ok(rule)
    }
}

/// Whether all addresses of the host that the caller named belong to the internet.
async fn origin_is_public(url: &Url) -> bool {
    let addresses: Vec<IpAddr> = match url.host() {
        Some(Host::Ipv4(v4)) => vec![v4.into()],
        Some(Host::Ipv6(v6)) => vec![v6.into()],
        Some(Host::Domain(name)) => match tokio::net::lookup_host((name, 0)).await {
            Ok(found) => found.map(|address| address.ip()).collect(),
            // reached through a proxy, which resolves names
            Err(_) => return true,
        },
        None => return true,
    };
    addresses.into_iter().all(is_public)
}

fn of_range(range: RequestedRange) -> HeaderMap {
    let value = HeaderValue::from_str(&range.header()).expect("digits");
    HeaderMap::from_iter([(header::RANGE, value)])
}

/// The URL that a redirect names.
fn location(from: &Url, headers: &HeaderMap) -> Result<Url> {
    let to = headers
        .get(header::LOCATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| from.join(text).ok())
        .ok_or_else(|| Error::refused("the server redirects to what is no URL"))?;
    if !matches!(to.scheme(), "http" | "https") {
        let scheme = shown(to.scheme());
        return Err(Error::refused(format!(
            "the server redirects to a {scheme}: URL"
        )));
    }
    if from.scheme() == "https" && to.scheme() == "http" {
        return Err(Error::refused("the server redirects from https to http"));
    }
    if !to.username().is_empty() || to.password().is_some() {
        return Err(Error::refused(
            "the server redirects to a URL with credentials",
        ));
    }
    Ok(to)
}

fn host(url: &Url) -> &str {
    url.host_str().unwrap_or_default()
}

/// How long is waited before a further attempt, if the server does not say: `first`, and twice as much each time, up to 64
/// times as much. Different for each request, so that those that failed together are not repeated together.
fn pause(first: Duration, tried: u32) -> Duration {
    use std::hash::{BuildHasher, RandomState};
    let most = first.saturating_mul(1 << tried.min(6));
    let random = RandomState::new().hash_one(tried) % 1024;
    let share = u32::try_from(random).expect("below 1024");
    // between half and all of the pause, so that it still grows with each attempt
    most / 2 + most / 2048 * share
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_lead_to_no_other_scheme_and_never_from_https_to_http() {
        let to = |from: &str, to: &str| {
            let headers = HeaderMap::from_iter([(header::LOCATION, to.parse().unwrap())]);
            location(&Url::parse(from).unwrap(), &headers).map(|url| url.to_string())
        };
        assert_eq!(to("https://h/a", "/b?c").unwrap(), "https://h/b?c");
        assert_eq!(to("http://h/a", "https://g/").unwrap(), "https://g/");
        for (from, refused) in [
            ("https://h/a", "http://h/a"),
            ("http://h/a", "file:///etc/hostname"),
            ("http://h/a", "ftp://h/a"),
            ("http://h/a", "https://user:secret@h/a"),
            ("http://h/a", "http://"),
        ] {
            let error = to(from, refused).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Refused, "{refused}: {error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn pauses_double_up_to_64_times_the_first() {
        for (tried, most) in [(0, 100), (1, 200), (6, 6400), (60, 6400)] {
            let pause = pause(Duration::from_millis(100), tried);
            let range = Duration::from_millis(most / 2)..=Duration::from_millis(most);
            assert!(range.contains(&pause), "{tried}: {pause:?}");
        }
        assert_eq!(pause(Duration::ZERO, 3), Duration::ZERO);
    }
}
