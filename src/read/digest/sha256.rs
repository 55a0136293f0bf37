//! A SHA-256 as a value: 64 hexadecimal digits in text.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};
use sha2::{Digest, Sha256};

use crate::base::error::Error;

/// A SHA-256. Its text is 64 lower-case hexadecimal digits; digits of either case are read.
///
/// ```
/// use anamnesis::digest::Sha256Digest;
///
/// let text = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
/// let of_nothing: Sha256Digest = text.parse()?;
/// assert_eq!(of_nothing.to_string(), text);
/// # Ok::<(), anamnesis::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sha256Digest([u8; 32]);

/// A SHA-256 that is being computed.
#[derive(Clone, Default)]
pub(super) struct Sha256State(Sha256);

impl Sha256State {
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(super) fn finish(self) -> Sha256Digest {
        Sha256Digest(self.0.finalize().into())
    }
}

/// Bytes of hexadecimal digits of either case; `None` if the text is anything else.
pub(super) fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.as_chunks::<2>().0) {
        let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
        *byte = u8::try_from(high? * 16 + low?).ok()?;
    }
    Some(bytes)
}

impl FromStr for Sha256Digest {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bytes = hex(text).ok_or_else(|| {
            Error::invalid_argument("a SHA-256 is 64 hexadecimal digits".to_owned())
        })?;
        Ok(Self(bytes))
    }
}

impl fmt::Display for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Sha256Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_bytes_are_the_same_digest() {
        let mut state = Sha256State::default();
        state.update(b"abc");
        let digest = state.finish();
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest.to_string(), text);
        assert_eq!(text.to_uppercase().parse::<Sha256Digest>().unwrap(), digest);
        for wrong in [
            "",
            "ba78",
            &text[1..],
            &format!("{text}0"),
            &text.replace('b', "g"),
        ] {
            assert!(wrong.parse::<Sha256Digest>().is_err(), "{wrong}");
        }
    }
}
