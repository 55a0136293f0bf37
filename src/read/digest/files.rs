//! The digests of whole files.

use std::fmt;

use sha1::{Digest, Sha1};

use crate::base::error::Result;
use crate::read::source::{Source, read_exact_at};

use super::Sha256Digest;
use super::sha256::{Sha256State, hex};

/// Bytes of a piece: small enough for the second-level cache, where both digests of it are computed.
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
}

impl FileHashes {
    /// With the id of its git object if its length is given.
    pub(crate) fn new(git: Option<u64>) -> Self {
        // git hashes an object with its kind and length in front
        let header = |nbytes| Sha1::new().chain_update(format!("blob {nbytes}\0"));
        Self {
            sha256: Sha256State::default(),
            git: git.map(header),
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

    pub(crate) fn finish(self) -> (Sha256Digest, Option<GitObjectId>) {
        let git = self.git.map(|git| GitObjectId(git.finalize().into()));
        (self.sha256.finish(), git)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::source::MemorySource;

    #[test]
    fn ids_are_those_of_git() {
        let mut state = FileHashes::new(Some(6));
        state
            .read(&MemorySource::new(b"hello\n".to_vec()), 6, &mut |_| Ok(()))
            .unwrap();
        let (sha256, git) = state.finish();
        // git hash-object
        assert_eq!(
            git.unwrap().to_string(),
            "ce013625030ba8dba906f756967f9e9ca394464a"
        );
        assert!(
            sha256
                .to_string()
                .starts_with("5891b5b522d5df086d0ff0b110fbd9d2")
        );
    }
}
