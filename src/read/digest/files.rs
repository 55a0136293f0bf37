//! The digests of whole files.

use std::fmt;

use sha1::{Digest, Sha1};
use sha2::Sha512;

use crate::base::error::Result;
use crate::read::source::{Source, read_exact_at};

use super::sha256::{Sha256State, hex};
use super::{Sha256Digest, Sha512Digest};

/// Bytes of a piece: small enough for the second-level cache, where all digests of it are computed.
const PIECE: usize = 256 << 10;

/// The id of a git object that is a file: the SHA-1 of its length and content.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct GitObjectId([u8; 20]);

impl GitObjectId {
    /// Reads 40 hexadecimal digits.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        hex(text).map(Self)
    }
}

impl fmt::Display for GitObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for GitObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The digests of one file that are computed in one pass.
pub(crate) struct FileHashes {
    sha256: Sha256State,
    git: Option<Sha1>,
    sha512: Option<Sha512>,
}

/// The digests of a file, of which the last two are computed only where they are compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileDigests {
    pub(crate) sha256: Sha256Digest,
    pub(crate) git: Option<GitObjectId>,
    pub(crate) sha512: Option<Sha512Digest>,
}

impl FileHashes {
    /// With the id of its git object if its length is given, and with its SHA-512.
    pub(crate) fn new(git: Option<u64>, sha512: bool) -> Self {
        // git hashes an object with its kind and length in front
        let header = |nbytes| Sha1::new().chain_update(format!("blob {nbytes}\0"));
        Self {
            sha256: Sha256State::default(),
            git: git.map(header),
            sha512: sha512.then(Sha512::default),
        }
    }

    /// Reads a source from its first byte to its last; `each` receives the lengths of pieces. Mapped bytes are not copied.
    ///
    /// # Errors
    /// I/O, and what `each` returns.
    pub(crate) fn read(
        &mut self,
        source: &dyn Source,
        nbytes: u64,
        each: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        let mut update = |bytes: &[u8]| {
            self.sha256.update(bytes);
            if let Some(git) = &mut self.git {
                git.update(bytes);
            }
            if let Some(sha512) = &mut self.sha512 {
                sha512.update(bytes);
            }
            each(bytes.len())
        };
        if let Some(bytes) = source.mapped().filter(|bytes| bytes.len() as u64 == nbytes) {
            return bytes.chunks(PIECE).try_for_each(update);
        }
        let len = usize::try_from(nbytes).unwrap_or(PIECE).min(PIECE);
        let (mut buffer, mut at) = (vec![0; len], 0);
        while at < nbytes {
            let n = usize::try_from(nbytes - at).unwrap_or(PIECE).min(PIECE);
            read_exact_at(source, at, &mut buffer[..n])?;
            update(&buffer[..n])?;
            at += n as u64;
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> FileDigests {
        let sha512 = |state: Sha512| Sha512Digest::of(state.finalize().into());
        FileDigests {
            sha256: self.sha256.finish(),
            git: self.git.map(|git| GitObjectId(git.finalize().into())),
            sha512: self.sha512.map(sha512),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::source::MemorySource;

    #[test]
    fn ids_are_those_of_git() {
        let mut state = FileHashes::new(Some(6), true);
        state
            .read(&MemorySource::new(b"hello\n".to_vec()), 6, &mut |_| Ok(()))
            .unwrap();
        let made = state.finish();
        // git hash-object
        assert_eq!(
            made.git.unwrap().to_string(),
            "ce013625030ba8dba906f756967f9e9ca394464a"
        );
        // sha512sum
        let sha512 = made.sha512.unwrap().to_string();
        assert!(
            sha512.starts_with("e7c22b994c59d9cf2b48e549b1e24666"),
            "{sha512}"
        );
        assert!(
            made.sha256
                .to_string()
                .starts_with("5891b5b522d5df086d0ff0b110fbd9d2")
        );
    }
}
