//! Identifies the content of a file by a hash of its first bytes, and provides the 16-byte hashes that
//! both kinds of id consist of.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};

/// SHA-256 of a file's first 64 KiB (of the whole file if it is shorter), truncated to 16 bytes.
/// These contain the tensor index of most formats, or most of it, and need one small read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentKey(pub [u8; 16]);

impl ContentKey {
    /// Number of a file's first bytes that are hashed.
    // a constant of the format: keys in stored templates were made with it
    pub const HEAD: u64 = 64 << 10;

    /// Returns the key of a file that begins with `head`. Bytes after the first
    /// [`HEAD`](Self::HEAD) are ignored.
    pub fn of(head: &[u8]) -> Self {
        let head = &head[..head.len().min(64 << 10)];
        Self(truncated(Sha256::digest(head).as_slice()))
    }
}

/// Truncates a SHA-256 digest to 16 bytes.
pub(crate) fn truncated(digest: &[u8]) -> [u8; 16] {
    *digest.first_chunk().expect("SHA-256 has 32 bytes")
}

pub(crate) fn hex(bytes: &[u8; 16], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

pub(crate) fn unhex(text: &str) -> Result<[u8; 16]> {
    let wrong = || {
        Error::invalid(format!(
            "{} is not 32 hexadecimal digits",
            crate::error::quote(text)
        ))
    };
    let digits: Vec<u8> = text
        .chars()
        // one digit more than a key has: enough to refuse any longer text, however long it is
        .take(33)
        .map(|c| match c {
            // lower case alone: a key has one text
            '0'..='9' | 'a'..='f' => c
                .to_digit(16)
                .and_then(|d| u8::try_from(d).ok())
                .ok_or_else(wrong),
            _ => Err(wrong()),
        })
        .collect::<Result<_>>()?;
    let digits: [u8; 32] = digits.try_into().map_err(|_| wrong())?;
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    Ok(bytes)
}

/// Implements `Display`, `Debug` and `FromStr` as 32 lower-case hexadecimal digits.
macro_rules! hexadecimal {
    ($($name:ident)*) => {$(
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $crate::content_key::hex(&self.0, f)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $crate::content_key::hex(&self.0, f)
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::Error;

            /// 32 lower-case hexadecimal digits.
            fn from_str(text: &str) -> $crate::Result<Self> {
                $crate::content_key::unhex(text).map(Self)
            }
        }
    )*};
}
hexadecimal!(ContentKey);
pub(crate) use hexadecimal;
