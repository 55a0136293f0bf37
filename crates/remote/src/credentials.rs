//! The headers by which a web server knows its client: given ones, a token of the environment, or a login of netrc.
//!
//! They are sent to the host of the URL that was opened and follow no redirect to another one. Tokens and logins that are found, and
//! not given, are sent by https alone: by http only to this machine.

use std::path::PathBuf;

use anamnesis_os::whole_file;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use url::{Host, Url};

use crate::error::{Error, ErrorKind, Result};
use crate::options::RemoteOptions;

/// `HOST=TOKEN`, or `HOST:PORT=TOKEN`, several with spaces between them.
pub(crate) const TOKENS: &str = "ANAMNESIS_TOKENS";

/// Bytes of a netrc file, of which people write a few lines.
const LONGEST_NETRC: u64 = 1 << 20;

/// The headers for the host of a URL.
///
/// # Errors
/// [`Invalid`](ErrorKind::Invalid) for a header, a token or a netrc file that cannot be understood.
pub(crate) fn headers_for(
    url: &Url,
    options: &RemoteOptions,
    variables: &dyn Fn(&str) -> Option<String>,
) -> Result<HeaderMap> {
    let mut headers = options.headers.checked()?;
    if headers.contains_key(AUTHORIZATION) || !is_private_way(url) {
        return Ok(headers);
    }
    let authorization = match token(url, variables)? {
        Some(token) => Some(format!("Bearer {token}")),
        None => login(url, variables)?.map(|login| format!("Basic {}", STANDARD.encode(login))),
    };
    if let Some(text) = authorization {
        let value = HeaderValue::from_str(&text);
        let mut value = value.map_err(|_| {
            invalid("the token or login of this host holds characters that no header has")
        })?;
        // not shown where headers are logged
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Ok(headers)
}

fn invalid(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, what)
}

/// Whether a request cannot be read on its way.
pub(crate) fn is_private_way(url: &Url) -> bool {
    let is_here = match url.host() {
        Some(Host::Ipv4(v4)) => v4.is_loopback(),
        Some(Host::Ipv6(v6)) => v6.is_loopback(),
        Some(Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
        None => false,
    };
    url.scheme() == "https" || is_here
}

/// The token of the environment for this host. An entry with a port is for that port alone.
fn token(url: &Url, variables: &dyn Fn(&str) -> Option<String>) -> Result<Option<String>> {
    let (Some(text), Some(host)) = (variables(TOKENS), url.host_str()) else {
        return Ok(None);
    };
    let with_port = url.port_or_known_default();
    let with_port = with_port.map(|port| format!("{host}:{port}"));
    let mut found = None;
    for entry in text.split_whitespace() {
        let Some((name, token)) = entry.split_once('=') else {
            // the entry may be a token
            return Err(invalid(format!(
                "an entry of {TOKENS} is not HOST=TOKEN or HOST:PORT=TOKEN"
            )));
        };
        if with_port
            .as_deref()
            .is_some_and(|own| name.eq_ignore_ascii_case(own))
        {
            return Ok(Some(token.to_owned()));
        }
        if name.eq_ignore_ascii_case(host) {
            found = Some(token.to_owned());
        }
    }
    Ok(found)
}

/// The login of this host in the netrc file: of its own entry, since a `default` one would go to every server.
fn login(url: &Url, variables: &dyn Fn(&str) -> Option<String>) -> Result<Option<String>> {
    let set = |name: &str| variables(name).filter(|value| !value.is_empty());
    let named = set("NETRC").map(PathBuf::from);
    let is_named = named.is_some();
    let own = || {
        let name = if cfg!(windows) { "_netrc" } else { ".netrc" };
        let home = set("HOME").or_else(|| set("USERPROFILE"))?;
        Some(PathBuf::from(home).join(name))
    };
    let (Some(path), Some(host)) = (named.or_else(own), url.host_str()) else {
        return Ok(None);
    };
    let read = || {
        let text = whole_file::read(&path, LONGEST_NETRC).ok()?;
        let text = String::from_utf8(text).ok()?;
        login_of(host, &text)
    };
    match read() {
        Some(login) => Ok(login),
        // most people have none, and one that other programs read otherwise must not stand in front of public files
        None if !is_named => Ok(None),
        None => Err(invalid(format!(
            "NETRC: {} is no netrc file of lines `machine HOST login NAME password WORD`",
            path.display()
        ))),
    }
}

/// `NAME:WORD` of the first entry of a host in the text of a netrc file; `None` if it is none. The libraries for this bring eight
/// crates along.
fn login_of(host: &str, text: &str) -> Option<Option<String>> {
    let mut lines = text.lines();
    // host, name and password of the entry that is read
    let mut entry: (Option<&str>, &str, &str) = (None, "", "");
    let mut found = None;
    let mut finish = |(machine, name, word): (Option<&str>, &str, &str)| {
        if machine.is_some_and(|machine| machine.eq_ignore_ascii_case(host)) && found.is_none() {
            found = Some(format!("{name}:{word}"));
        }
    };
    while let Some(line) = lines.next() {
        let mut words = line.split_whitespace();
        while let Some(word) = words.next() {
            match word {
                "machine" => {
                    finish(entry);
                    entry = (Some(words.next()?), "", "");
                }
                "default" => {
                    finish(entry);
                    entry = (None, "", "");
                }
                "login" => entry.1 = unquoted(words.next()?),
                "password" => entry.2 = unquoted(words.next()?),
                "account" => {
                    words.next()?;
                }
                // a macro of ftp ends with an empty line
                "macdef" => {
                    lines.by_ref().find(|line| line.trim().is_empty());
                    break;
                }
                comment if comment.starts_with('#') => break,
                _ => return None,
            }
        }
    }
    finish(entry);
    Some(found)
}

fn unquoted(word: &str) -> &str {
    let inner = word
        .strip_prefix('"')
        .and_then(|word| word.strip_suffix('"'));
    inner.unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authorization(url: &str, variables: &[(&str, &str)]) -> Result<Option<String>> {
        let get = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let url = Url::parse(url).unwrap();
        let headers = headers_for(&url, &RemoteOptions::default(), &get)?;
        let found = headers.get(AUTHORIZATION);
        Ok(found.map(|value| value.to_str().unwrap().to_owned()))
    }

    #[test]
    fn tokens_are_of_their_host_and_port() {
        let tokens = [(TOKENS, "a.example=A a.example:8443=B\nlocalhost=C")];
        for (url, expected) in [
            ("https://a.example/x", Some("Bearer A")),
            ("https://A.example:8443/x", Some("Bearer B")),
            ("https://b.a.example/x", None),
            ("https://a.example.evil/x", None),
            ("http://a.example/x", None),
            ("http://localhost:1/x", Some("Bearer C")),
        ] {
            let found = authorization(url, &tokens).unwrap();
            assert_eq!(found.as_deref(), expected, "{url}");
        }
        let error = authorization("https://a.example/x", &[(TOKENS, "s3cret")]).unwrap_err();
        assert!(!error.to_string().contains("s3cret"), "{error}");
    }

    #[test]
    fn logins_are_of_the_hosts_own_entry() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".netrc");
        let text = "# of work\nmachine ftp.example macdef init\n machine a.example login macro\n\n\
                    machine a.example # build\n  login \"me\"\n  account x password p4ss\n\
                    machine a.example login second password no\ndefault login you password no\n";
        std::fs::write(&path, text).unwrap();
        let home = folder.path().to_str().unwrap();
        let of = |url: &str| authorization(url, &[("HOME", home)]).unwrap();
        let login = format!("Basic {}", STANDARD.encode("me:p4ss"));
        assert_eq!(of("https://a.example/x"), Some(login));
        assert_eq!(of("https://b.example/x"), None);
        assert_eq!(of("http://a.example/x"), None);
        // one that is named has to be one
        std::fs::write(&path, "s3cret").unwrap();
        assert_eq!(of("https://a.example/x"), None);
        for named in [path.to_str().unwrap(), "/nowhere/netrc"] {
            let error = authorization("https://a.example/x", &[("NETRC", named)]).unwrap_err();
            assert!(error.to_string().contains(named), "{error}");
            assert!(!error.to_string().contains("s3cret"), "{error}");
        }
    }
}
