//! Identity: of a file by its first bytes, of a service by its model and parameters.

use std::collections::BTreeSet;
use std::fmt;

use sha2::{Digest, Sha256};

use crate::File;
use crate::error::{Error, Result};

/// SHA-256 of a file's first 64 KiB (of all of it, if it is shorter), cut to 16 bytes. That covers what says where
/// tensors lie, or most of it, and needs one small read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentKey(pub [u8; 16]);

/// Which inference service a template is for: 32 hexadecimal digits. See [`service_id`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceId(pub [u8; 16]);

impl ContentKey {
    /// How many of a file's first bytes are hashed.
    pub const HEAD: u64 = 64 << 10;

    /// The key of a file that begins with `head`: its first [`HEAD`](Self::HEAD) bytes. More are not looked at.
    pub fn of(head: &[u8]) -> Self {
        let head = &head[..head.len().min(64 << 10)];
        Self(cut(Sha256::digest(head).as_slice()))
    }
}

/// The id of a service: the same for the same model served with the same parameters, on every machine, in every
/// version of this crate.
///
/// The model is its files: paths, lengths and content keys. Times do not count, nor does the order of files or
/// parameters, and what is given twice counts once. Parameters are what decides who reads which bytes:
/// `("tp", "4")`, `("loader", "safetensors")`.
///
/// SHA-256, cut to 16 bytes, of: `"anamnesis service id 1\0"`; the number of files; for each, ascending by path,
/// the path, the length in bytes, and 0, or 1 and the 16 bytes of the key; the number of parameters; for each,
/// ascending, key and value. Numbers are 8 bytes, little endian; a string is its number of bytes and its UTF-8.
///
/// ```
/// use anamnesis_template::{File, service_id};
///
/// let files = [File::new("model.safetensors", 988_097_824).unwrap()];
/// let id = service_id(&files, [("tp", "4"), ("loader", "vllm")]);
/// assert_eq!(id, service_id(&files, [("loader", "vllm"), ("tp", "4")]));
/// assert_ne!(id, service_id(&files, [("tp", "2"), ("loader", "vllm")]));
/// ```
pub fn service_id<'f, 'p>(
    files: impl IntoIterator<Item = &'f File>,
    parameters: impl IntoIterator<Item = (&'p str, &'p str)>,
) -> ServiceId {
    let files: BTreeSet<_> = files
        .into_iter()
        .map(|file| (&*file.path, file.nbytes, file.key))
        .collect();
    let parameters: BTreeSet<_> = parameters.into_iter().collect();
    let mut hash = Sha256::new();
    hash.update(b"anamnesis service id 1\0");
    hash.update((files.len() as u64).to_le_bytes());
    for (path, nbytes, key) in files {
        text(&mut hash, path);
        hash.update(nbytes.to_le_bytes());
        hash.update([u8::from(key.is_some())]);
        hash.update(key.as_ref().map_or(&[][..], |key| &key.0));
    }
    hash.update((parameters.len() as u64).to_le_bytes());
    for (key, value) in parameters {
        text(&mut hash, key);
        text(&mut hash, value);
    }
    ServiceId(cut(hash.finalize().as_slice()))
}

fn text(hash: &mut Sha256, text: &str) {
    hash.update((text.len() as u64).to_le_bytes());
    hash.update(text);
}

fn cut(digest: &[u8]) -> [u8; 16] {
    *digest.first_chunk().expect("SHA-256 has 32 bytes")
}

fn hex(bytes: &[u8; 16], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

fn unhex(text: &str) -> Result<[u8; 16]> {
    let wrong = || {
        Error::invalid(format!(
            "{} is not 32 hexadecimal digits",
            crate::error::quote(text)
        ))
    };
    let digits: Vec<u8> = text
        .chars()
        .take(33)
        .map(|c| match c {
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

macro_rules! hexadecimal {
    ($($name:ident)*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                hex(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                hex(&self.0, f)
            }
        }

        impl std::str::FromStr for $name {
            type Err = Error;

            /// 32 lower-case hexadecimal digits.
            fn from_str(text: &str) -> Result<Self> {
                unhex(text).map(Self)
            }
        }
    )*};
}
hexadecimal!(ContentKey ServiceId);
