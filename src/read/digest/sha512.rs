//! A SHA-512 as a value: 128 hexadecimal digits in text. Lists of digests may have it; nothing here writes it.

use std::fmt;

use super::sha256::hex;

/// A SHA-512.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sha512Digest([u8; 64]);

impl Sha512Digest {
    pub(super) fn of(bytes: [u8; 64]) -> Self {
        Self(bytes)
    }

    /// Reads 128 hexadecimal digits.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        hex(text).map(Self)
    }
}

impl fmt::Display for Sha512Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Sha512Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
