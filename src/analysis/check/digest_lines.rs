//! The forms of lists of digests: encodings, signed text, and the lines that programs write.

use std::borrow::Cow;

use crate::read::digest::{Sha256Digest, Sha512Digest};

use super::file_digest::FileDigest;

/// The text of a list: UTF-8 or UTF-16 (as redirections of PowerShell write), with a byte order mark or without. `None` for
/// anything else.
pub(super) fn text_of(bytes: &[u8]) -> Option<Cow<'_, str>> {
    let utf16 = |bytes: &[u8], unit: fn([u8; 2]) -> u16| {
        let (pairs, rest) = bytes.as_chunks::<2>();
        let units = pairs.iter().map(|pair| unit(*pair));
        let text = char::decode_utf16(units).collect::<Result<String, _>>();
        text.ok().filter(|_| rest.is_empty()).map(Cow::Owned)
    };
    match bytes {
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes),
        // a list begins with a digit, a letter or a space, of which UTF-16 has a zero beside it
        [first, 0, ..] if *first != 0 => utf16(bytes, u16::from_le_bytes),
        [0, first, ..] if *first != 0 => utf16(bytes, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] => std::str::from_utf8(rest).ok().map(Cow::Borrowed),
        _ => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
    }
}

/// Whether [`text_of`] makes the text anew.
pub(super) fn is_utf16(bytes: &[u8]) -> bool {
    match bytes {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => true,
        [first, second, ..] => (*first == 0) != (*second == 0),
        _ => false,
    }
}

/// The lines of a list with their numbers, without comments, without empty lines, and without what a signature of OpenPGP
/// puts around them. Returns whether there was a signature.
pub(super) fn lines(text: &str) -> (Vec<(usize, &str)>, bool) {
    enum TextPart {
        Text,
        /// Behind the first line of a signed text, up to an empty line.
        Head,
        Signed,
        Signature,
    }
    let (mut part, mut found, mut is_signed) = (TextPart::Text, Vec::new(), false);
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_end_matches('\r');
        match (&part, line.trim_end()) {
            (TextPart::Text, "-----BEGIN PGP SIGNED MESSAGE-----") => {
                (part, is_signed) = (TextPart::Head, true);
            }
            (TextPart::Text | TextPart::Signed, "-----BEGIN PGP SIGNATURE-----") => {
                (part, is_signed) = (TextPart::Signature, true);
            }
            (TextPart::Head, "") => part = TextPart::Signed,
            (TextPart::Signature, "-----END PGP SIGNATURE-----") => part = TextPart::Text,
            (TextPart::Head | TextPart::Signature, _) => {}
            (_, rest) if rest.is_empty() || line.starts_with('#') => {}
            // a line that begins with a dash is written so in a signed text
            (TextPart::Signed, _) => found.push((number, line.strip_prefix("- ").unwrap_or(line))),
            (TextPart::Text, _) => found.push((number, line)),
        }
    }
    (found, is_signed)
}

/// The form of a line.
pub(super) enum LineForm<'l> {
    /// A digest of a file, or of a tensor of one.
    Entry {
        file: Cow<'l, str>,
        tensor: Option<&'l str>,
        digest: FileDigest,
    },
    /// A digest of a kind that is not computed, of this file.
    OtherDigest(&'l str),
    Unknown,
}

fn digest_of(text: &str) -> Option<FileDigest> {
    let sha256 = text.parse::<Sha256Digest>().ok().map(FileDigest::Sha256);
    sha256.or_else(|| Sha512Digest::from_text(text).map(FileDigest::Sha512))
}

/// Whether a text has the form of a digest of another kind: CRC-32, MD5, SHA-1, SHA-224, SHA-384.
fn is_other_digest(text: &str) -> bool {
    matches!(text.len(), 8 | 16 | 32 | 40 | 56 | 96) && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Reads a line.
pub(super) fn parse_line(line: &str) -> LineForm<'_> {
    tagged(line)
        .or_else(|| of_gguf_hash(line))
        .unwrap_or_else(|| of_sha256sum(line))
}

/// `SHA256 (NAME) = DIGEST` of BSD's programs and `sha256sum --tag`; `SHA2-256(NAME)= DIGEST` of OpenSSL.
fn tagged(line: &str) -> Option<LineForm<'_>> {
    let (kind, rest) = line.split_once('(')?;
    let kind = kind.trim_end();
    let is_kind = |c: char| c.is_ascii_alphanumeric() || "-/_".contains(c);
    if kind.is_empty() || !kind.chars().all(is_kind) {
        return None;
    }
    // from the right: a name may contain these characters, a digest does not
    let (file, digest) = rest.rsplit_once('=')?;
    let file = file.trim_end().strip_suffix(')')?;
    let found = match kind.to_ascii_uppercase().as_str() {
        "SHA256" | "SHA2-256" | "SHA-256" => {
            let digest = digest.trim().parse().ok();
            digest.map(FileDigest::Sha256)
        }
        "SHA512" | "SHA2-512" | "SHA-512" => {
            Sha512Digest::from_text(digest.trim()).map(FileDigest::Sha512)
        }
        _ => return Some(LineForm::OtherDigest(file)),
    };
    Some(found.map_or(LineForm::Unknown, |digest| LineForm::Entry {
        file: Cow::Borrowed(file),
        tensor: None,
        digest,
    }))
}

/// `llama-gguf-hash`: the algorithm, the digest, and `FILE:TENSOR` or `FILE`.
fn of_gguf_hash(line: &str) -> Option<LineForm<'_>> {
    let (kind, rest) = line.split_once(char::is_whitespace)?;
    if !["sha256", "sha1", "xxh64", "uuid"].contains(&kind) {
        return None;
    }
    let rest = rest.trim_start();
    let (digest, name) = rest.split_once("  ").unwrap_or((rest.trim(), ""));
    if kind != "sha256" {
        return Some(LineForm::OtherDigest(name));
    }
    // names of tensors have no colon, paths may
    let (file, tensor) = match name.rsplit_once(':') {
        Some((file, tensor)) => (file, Some(tensor)),
        None => (name, None),
    };
    let digest = digest.parse().ok().map(FileDigest::Sha256);
    Some(digest.map_or(LineForm::Unknown, |digest| LineForm::Entry {
        file: Cow::Borrowed(file),
        tensor,
        digest,
    }))
}

/// `DIGEST  NAME`, of `sha256sum`, `sha512sum` and `shasum`; also with `sha256:` in front, and without a name.
fn of_sha256sum(line: &str) -> LineForm<'_> {
    let (first, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let (escaped, digest) = match first.strip_prefix('\\') {
        Some(digest) => (true, digest),
        None => (false, first),
    };
    let plain = digest
        .strip_prefix("sha256:")
        .or_else(|| digest.strip_prefix("sha512:"));
    // a second space is text mode, a star binary mode
    let name = rest.strip_prefix([' ', '*']).unwrap_or(rest);
    match digest_of(plain.unwrap_or(digest)) {
        Some(digest) => LineForm::Entry {
            file: match escaped {
                true => Cow::Owned(unescaped(name)),
                false => Cow::Borrowed(name),
            },
            tensor: None,
            digest,
        },
        None if is_other_digest(digest) => LineForm::OtherDigest(name),
        None => LineForm::Unknown,
    }
}

/// A name as GNU coreutils escape it: one pass, as `\\n` is a backslash and an `n`.
fn unescaped(name: &str) -> String {
    let (mut text, mut rest) = (String::with_capacity(name.len()), name.chars());
    while let Some(c) = rest.next() {
        text.push(match (c, c == '\\') {
            (_, true) => match rest.next() {
                Some('n') => '\n',
                Some('r') => '\r',
                Some(other) => other,
                None => '\\',
            },
            (c, false) => c,
        });
    }
    text
}
