//! Text from files and paths, made safe to show.
//!
//! Names and metadata come from untrusted files. An escape sequence in one acts on the terminal that shows it, a change
//! of writing direction rewrites the line, and an invisible character makes two names look alike.
//!
//! A URL may have a signature in its query and a password in front of its host. Both open what they name to anyone who reads a
//! log, so every path and every message is shown by the functions here.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// Characters of a name that a message shows: longer names would hide the rest of the line.
const MAX_CHARS: usize = 120;

/// The text with every [hidden](is_hidden) character as a Rust escape (`\u{1b}`).
///
/// ```
/// use anamnesis::quote::escape;
///
/// assert_eq!(escape("layer\u{202e}.0"), r"layer\u{202e}.0");
/// ```
pub fn escape(text: &str) -> Cow<'_, str> {
    // most names are printable ASCII
    if text.bytes().all(|b| (0x20..0x7f).contains(&b)) || !text.chars().any(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    text.chars().for_each(|c| push_escaped(&mut out, c));
    Cow::Owned(out)
}

/// Whether a terminal acts on the character or shows nothing for it: control and format characters (Unicode categories
/// Cc and Cf), line and paragraph separators, variation selectors and fillers.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}'
            | '\u{890}' | '\u{891}' | '\u{8e2}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Quotes a name for a message: between backticks, escaped, cut after [`MAX_CHARS`].
pub(crate) fn quote(name: &str) -> String {
    let mut out = String::from("`");
    for (i, c) in name.chars().enumerate() {
        // counted in characters, so that the cut is never inside one
        if i == MAX_CHARS {
            out.push('…');
            break;
        }
        push_escaped(&mut out, c);
    }
    out.push('`');
    out
}

/// A path as it is shown: a URL without query, fragment and credentials, which may be secrets. Also one that was made the
/// end of another path.
///
/// ```
/// use std::path::Path;
/// use anamnesis::source::shown_path;
///
/// let signed = Path::new("https://name:word@host/model.gguf?Signature=secret");
/// assert_eq!(shown_path(signed), Path::new("https://host/model.gguf"));
/// assert_eq!(shown_path(Path::new("a?b")), Path::new("a?b"));
/// ```
pub fn shown_path(path: &Path) -> Cow<'_, Path> {
    // a path that is not UTF-8 is no URL
    match path.to_str().map(|text| without_secrets(text, |_| false)) {
        None | Some(Cow::Borrowed(_)) => Cow::Borrowed(path),
        Some(Cow::Owned(text)) => Cow::Owned(PathBuf::from(text)),
    }
}

/// The text of a path, with bytes that are not UTF-8 as escapes (`\\xff`), by which names that differ are shown differently.
///
/// ```
/// use std::path::Path;
/// use anamnesis::quote::path_text;
///
/// assert_eq!(path_text(Path::new("a/b.gguf")), "a/b.gguf");
/// # #[cfg(unix)]
/// # {
/// use std::os::unix::ffi::OsStrExt;
/// let name = std::ffi::OsStr::from_bytes(b"a\xff.gguf");
/// assert_eq!(path_text(name.as_ref()), r"a\xff.gguf");
/// # }
/// ```
pub fn path_text(path: &Path) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_encoded_bytes().utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// A message as it is shown: the URLs in it without query, fragment and credentials.
///
/// ```
/// use anamnesis::quote::shown_text;
///
/// let message = "moved to https://name:word@host/a.gguf?Signature=secret, which is refused";
/// assert_eq!(shown_text(message), "moved to https://host/a.gguf which is refused");
/// ```
pub fn shown_text(text: &str) -> Cow<'_, str> {
    without_secrets(text, |c| c.is_whitespace() || matches!(c, '"' | '\'' | '`'))
}

/// Schemes of URLs that are opened. In messages they are known also with one slash: the system's functions for paths join several
/// to one.
pub(crate) static SCHEMES: &[&str] = &[
    "http", "https", "s3", "gs", "az", "abfs", "abfss", "hf", "ms", "oci", OLLAMA,
];

/// Its URLs begin with a model and a tag.
const OLLAMA: &str = "ollama";

/// The text, its URLs without secrets; a URL goes on to a character at which it `ends`.
fn without_secrets(text: &str, ends: impl Fn(char) -> bool) -> Cow<'_, str> {
    let mut out = String::new();
    let (mut copied, mut at) = (0, 0);
    while let Some(found) = text[at..].find(":/") {
        let colon = at + found;
        at = colon + 1;
        let is_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        let scheme = &text[text[..colon].trim_end_matches(is_scheme).len()..colon];
        let rest = text[at..].trim_start_matches('/');
        let slashes = text.len() - at - rest.len();
        let is_known = SCHEMES
            .iter()
            .any(|known| known.eq_ignore_ascii_case(scheme));
        // drives have one letter
        if scheme.len() < 2 || (slashes < 2 && !is_known) {
            continue;
        }
        let url = &rest[..rest.find(&ends).unwrap_or(rest.len())];
        let begin = text.len() - rest.len();
        at = begin + url.len();
        let is_azure = scheme.to_ascii_lowercase().starts_with("abfs");
        let has_host = !scheme.eq_ignore_ascii_case(OLLAMA) || url.contains('@');
        let shown = match has_host {
            true => location(url, is_azure),
            false => without_parameters(without_query(url)),
        };
        if shown != url {
            out.push_str(&text[copied..begin]);
            out.push_str(&shown);
            copied = at;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

/// A path without the parameters of its parts: a server may take a token from `/models;token=…/a.gguf`.
fn without_parameters(path: &str) -> Cow<'_, str> {
    // a key of a bucket may have a semicolon, and no parameter
    let has_one = |part: &str| part.split(';').skip(1).any(|rest| rest.contains('='));
    if !path.split('/').any(has_one) {
        return path.into();
    }
    let parts = path.split('/').map(|part| match has_one(part) {
        true => part.split(';').next().unwrap_or_default(),
        false => part,
    });
    parts.collect::<Vec<_>>().join("/").into()
}

fn without_query(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or_default()
}

/// Host and path of a URL whose scheme is left out.
fn location(url: &str, is_azure: bool) -> Cow<'_, str> {
    let place = without_query(url);
    let (host, path) = place.split_at(place.find('/').unwrap_or(place.len()));
    let plain = match host.rsplit_once('@') {
        // in URLs of Azure, the container stands in front of the account's host
        Some((container, _)) if is_azure && !container.contains(':') => {
            return without_parameters(place);
        }
        Some((_, host)) => host,
        // the revision of a repository of the hub stands behind its name, and so behind a slash
        None => host,
    };
    let port = plain.rsplit_once(':').map_or("", |(_, port)| port);
    let is_address = plain.starts_with('[');
    if !is_address && !port.bytes().all(|b| b.is_ascii_digit()) {
        // a password with a slash or a question mark in it looks like the port of a host
        return "…".into();
    }
    if plain.len() == host.len() {
        return without_parameters(place);
    }
    format!("{plain}{}", without_parameters(path)).into()
}

fn push_escaped(out: &mut String, c: char) {
    if is_hidden(c) {
        out.extend(c.escape_default());
    } else {
        out.push(c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_a_url_are_not_shown() {
        for (url, expected) in [
            ("https://h/a?sig=x y#z", "https://h/a"),
            ("https://user:secret@h:80/a", "https://h:80/a"),
            ("HTTPS://user:se/cret@h/a", "HTTPS://…"),
            ("https://user:se?cret@h/a", "https://…"),
            ("https://[::1]:80/a?x", "https://[::1]:80/a"),
            ("ftp://user:secret@h/a", "ftp://h/a"),
            ("/data/https:/user:secret@h/a?x", "/data/https:/h/a"),
            ("hf://org/model@v1/a.gguf", "hf://org/model@v1/a.gguf"),
            ("oci:/user:secret@h/a:t?x", "oci:/h/a:t"),
            ("oci://h:80/a:t@sha256:1/b", "oci://h:80/a:t@sha256:1/b"),
            ("ollama://model:8b/a.gguf?x", "ollama://model:8b/a.gguf"),
            ("ollama://user:se/cret@h/a", "ollama://…"),
            ("abfss://container@account/a", "abfss://container@account/a"),
            ("abfss://name:secret@account/a", "abfss://account/a"),
            ("s3://bucket", "s3://bucket"),
            (
                "https://h/m;token=x;v=1/a.gguf;sig=y=",
                "https://h/m/a.gguf",
            ),
            ("https://u:p@h/m;token=x/a#t=z", "https://h/m/a"),
            ("https://h;token=x/a", "https://h/a"),
            ("s3://bucket/a;b/c", "s3://bucket/a;b/c"),
            ("a?b", "a?b"),
            ("C:/a?b", "C:/a?b"),
        ] {
            assert_eq!(shown_path(Path::new(url)), Path::new(expected), "{url}");
        }
        let text = "`https://u:p@h/a?s` and s3://b/k#x and a:/b";
        assert_eq!(shown_text(text), "`https://h/a` and s3://b/k and a:/b");
        assert!(matches!(shown_text("nothing: /a?b"), Cow::Borrowed(_)));
    }

    #[test]
    fn hidden_characters_are_escaped() {
        assert_eq!(
            escape("a\u{1b}[2Jb\u{202e}c\u{200b}\n\u{9b}\r\u{7f}"),
            "a\\u{1b}[2Jb\\u{202e}c\\u{200b}\\n\\u{9b}\\r\\u{7f}"
        );
        assert!(matches!(escape("Ünïcödé 数値"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_quoted_name_is_short_and_has_no_hidden_character() {
        let quoted = quote(&"\u{feff}x".repeat(1000));
        assert!(
            quoted.starts_with("`\\u{feff}x") && quoted.ends_with("…`"),
            "{quoted}"
        );
        assert!(quoted.len() < 1000 && !quoted.chars().any(is_hidden));
    }
}
