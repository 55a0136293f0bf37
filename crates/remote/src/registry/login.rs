//! The headers for a registry: given ones, or a token of the service that it names.
//!
//! A registry that requires a token answers 401 and names the service in `WWW-Authenticate: Bearer realm="…",service="…"`, which
//! gives tokens for a scope, also without a login (<https://distribution.github.io/distribution/spec/auth/token/>). The scope is
//! always the reading of the repository that is opened, whatever the registry names. A login goes to the service if that is on the
//! registry's host, or on one of its domain, as `auth.docker.io` is for `registry-1.docker.io`: it is the registry's own secret.

use std::sync::{Mutex, PoisonError};

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use serde::de::{IgnoredAny, MapAccess};
use url::{Host, Url};

use crate::credentials::is_private_way;
use crate::error::{Error, ErrorKind, Result};
use crate::json_fields::{ObjectFields, read_whole};

/// The login at one registry for one repository.
pub(crate) struct RegistryLogin {
    origin: Url,
    repository: String,
    /// The headers of the command, a token of the environment, or a login of netrc.
    given: HeaderMap,
    /// Whether the server may name a service of tokens.
    has_service: bool,
    /// The token of a service.
    token: Mutex<Option<HeaderValue>>,
    /// One request for a token at a time.
    turn: tokio::sync::Mutex<()>,
}

impl RegistryLogin {
    pub(crate) fn new(origin: Url, repository: String, given: HeaderMap) -> Self {
        Self {
            origin,
            repository,
            given,
            has_service: true,
            token: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// The login at a server that gives no tokens.
    pub(crate) fn fixed(origin: Url, given: HeaderMap) -> Self {
        Self {
            has_service: false,
            ..Self::new(origin, String::new(), given)
        }
    }

    /// The headers of a request to the registry.
    pub(crate) fn headers(&self) -> HeaderMap {
        let mut headers = self.given.clone();
        if let Some(token) = self.token() {
            headers.insert(AUTHORIZATION, token);
        }
        headers
    }

    fn token(&self) -> Option<HeaderValue> {
        let token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        token.clone()
    }

    /// Waits until no other request for a token is under way.
    pub(crate) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// The token, if it is another one than was sent.
    pub(crate) fn other_token(&self, sent: Option<&HeaderValue>) -> Option<HeaderValue> {
        self.token().filter(|token| Some(token) != sent)
    }

    /// The request for a token, and the headers of the login for it, that an answer of status 401 leads to; `None` if the answer
    /// names no service of tokens.
    pub(crate) fn token_request(&self, headers: &HeaderMap) -> Result<Option<(Url, HeaderMap)>> {
        if !self.has_service {
            return Ok(None);
        }
        let challenges = headers.get_all(WWW_AUTHENTICATE).iter();
        let mut challenges = challenges.filter_map(|value| challenge(value.to_str().ok()?));
        let Some((realm, service)) = challenges.next() else {
            return Ok(None);
        };
        let mut url = self.service(&realm)?;
        {
            let mut query = url.query_pairs_mut();
            if let Some(service) = service {
                query.append_pair("service", &service);
            }
            query.append_pair("scope", &format!("repository:{}:pull", self.repository));
        }
        let mut login = HeaderMap::new();
        if let Some(value) = self.given.get(AUTHORIZATION)
            && is_related(&self.origin, &url)
        {
            login.insert(AUTHORIZATION, value.clone());
        }
        Ok(Some((url, login)))
    }

    /// Takes the token of an answer of the service.
    pub(crate) fn take_token(&self, text: &[u8]) -> Result<HeaderValue> {
        let token = parse_token(text)?;
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(token.clone());
        Ok(token)
    }

    /// The URL of the service that a registry names.
    fn service(&self, realm: &str) -> Result<Url> {
        let refused =
            |what: &str| Error::refused(format!("the registry's service of tokens {what}"));
        let url = Url::parse(realm).map_err(|_| refused("has no URL"))?;
        if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return Err(refused("has no http or https URL"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refused("has a URL with credentials"));
        }
        // by http only from this machine to this machine
        if !is_private_way(&url) || (self.origin.scheme() == "https" && url.scheme() == "http") {
            return Err(refused("is to be reached by http"));
        }
        Ok(url)
    }
}

/// Whether a service is on the host of a registry or on another one of its domain.
fn is_related(registry: &Url, service: &Url) -> bool {
    if registry.origin() == service.origin() {
        return true;
    }
    let (Some(Host::Domain(registry)), Some(Host::Domain(service))) =
        (registry.host(), service.host())
    else {
        return false;
    };
    // `registry.example.org` has `example.org` and its hosts, and `example.org` its own hosts
    let domain = match registry.split_once('.') {
        Some((_, domain)) if domain.contains('.') => domain,
        _ => registry,
    };
    service == domain
        || service
            .strip_suffix(domain)
            .is_some_and(|host| host.ends_with('.'))
}

/// The service and its name in a challenge of the scheme `Bearer` (RFC 9110, section 11.6.1).
fn challenge(text: &str) -> Option<(String, Option<String>)> {
    let lower = text.to_ascii_lowercase();
    // several challenges may stand in one header
    let at = lower.find("bearer ")?;
    let mut rest = text.get(at + "bearer ".len()..)?;
    let (mut realm, mut service) = (None, None);
    while let Some((key, behind)) = rest.split_once('=') {
        let (value, behind) = match behind.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => behind.split_at(behind.find(',').unwrap_or(behind.len())),
        };
        match key.trim().to_ascii_lowercase().as_str() {
            "realm" => realm = Some(value.to_owned()),
            "service" => service = Some(value.to_owned()),
            _ => {}
        }
        rest = behind.trim_start().trim_start_matches(',').trim_start();
    }
    Some((realm?, service))
}

/// The header of the token in an answer.
fn parse_token(text: &[u8]) -> Result<HeaderValue> {
    let refused = || Error::refused("the registry's service of tokens sends no token");
    let mut fields = TokenFields::default();
    read_whole(text, &mut fields).map_err(|_| refused())?;
    let token = Some(fields.token).filter(|token| !token.is_empty());
    let token = token.unwrap_or(fields.access_token);
    if token.is_empty() {
        return Err(refused());
    }
    let value = HeaderValue::from_str(&format!("Bearer {token}"));
    let mut value = value.map_err(|_| {
        let what = "the registry's token holds characters that no header has";
        Error::new(ErrorKind::Refused, what)
    })?;
    // not shown where headers are logged
    value.set_sensitive(true);
    Ok(value)
}

/// Two names of one token, as services of OAuth have the second.
#[derive(Default)]
struct TokenFields {
    token: String,
    access_token: String,
}

impl ObjectFields for TokenFields {
    fn field<'de, M: MapAccess<'de>>(&mut self, key: &str, map: &mut M) -> Result<(), M::Error> {
        match key {
            "token" => self.token = map.next_value()?,
            "access_token" => self.access_token = map.next_value()?,
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_name_a_service() {
        for (text, expected) in [
            (
                r#"Bearer realm="https://auth.example/token",service="r.example",scope="repository:a/b:pull,push""#,
                Some(("https://auth.example/token", Some("r.example"))),
            ),
            (
                r#"Basic realm="x", bearer realm=https://a/t"#,
                Some(("https://a/t", None)),
            ),
            (r#"Basic realm="x""#, None),
            ("Bearer service=x", None),
            (r#"Bearer realm="https://a"#, None),
        ] {
            let found = challenge(text);
            let found = found
                .as_ref()
                .map(|(realm, service)| (&**realm, service.as_deref()));
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn logins_go_to_services_of_the_registrys_domain_alone() {
        let is = |registry: &str, service: &str| {
            let url = |host: &str| Url::parse(&format!("https://{host}/")).unwrap();
            is_related(&url(registry), &url(service))
        };
        assert!(is("registry-1.docker.io", "auth.docker.io"));
        assert!(is("registry.example.org", "example.org"));
        assert!(is("example.org", "auth.example.org") && is("a.b", "a.b"));
        assert!(!is("registry.example.org", "example.com"));
        assert!(!is("example.org", "other.org") && !is("r.example.org", "evilexample.org"));
        assert!(!is("10.0.0.1", "10.0.0.2"));
    }

    #[test]
    fn tokens_are_read_under_either_name() {
        let read = |text: &str| {
            parse_token(text.as_bytes())
                .ok()
                .map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(
            read(r#"{"token":"a","expires_in":60}"#).as_deref(),
            Some("Bearer a")
        );
        assert_eq!(
            read(r#"{"access_token":"b","token":""}"#).as_deref(),
            Some("Bearer b")
        );
        for wrong in [
            "{}",
            "[]",
            r#"{"token":1}"#,
            "{\"token\":\"a\\n\"}",
            r#"{"token":"a"} x"#,
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
