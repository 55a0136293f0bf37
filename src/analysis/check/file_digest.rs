//! A digest of a file, of one of the kinds that are compared.

use std::fmt;

use crate::read::digest::{FileDigests, GitObjectId, Sha256Digest, Sha512Digest};

/// A digest that a file should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileDigest {
    Sha256(Sha256Digest),
    Sha512(Sha512Digest),
    /// The id of the git object of a file that is not in LFS.
    Git(GitObjectId),
}

impl FileDigest {
    /// Reads an etag or the name of a blob: 64 digits are a SHA-256, 40 the id of a git object.
    pub(super) fn from_etag(text: &str) -> Option<Self> {
        // servers put a weak mark and quotes around an ETag
        let text = text.trim().trim_start_matches("W/").trim_matches('"');
        let sha256 = text.parse().ok().map(Self::Sha256);
        sha256.or_else(|| GitObjectId::from_text(text).map(Self::Git))
    }

    /// Reads the digits of a manifest: 64 are a SHA-256, 128 a SHA-512.
    pub(super) fn from_manifest(text: &str) -> Option<Self> {
        let sha256 = text.parse().ok().map(Self::Sha256);
        sha256.or_else(|| Sha512Digest::from_text(text).map(Self::Sha512))
    }

    /// Whether a file has this digest.
    pub(super) fn is_of(&self, made: &FileDigests) -> bool {
        match self {
            Self::Sha256(digest) => made.sha256 == *digest,
            Self::Sha512(digest) => made.sha512 == Some(*digest),
            Self::Git(id) => made.git == Some(*id),
        }
    }
}

impl fmt::Display for FileDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sha256(digest) => digest.fmt(f),
            Self::Sha512(digest) => write!(f, "sha512:{digest}"),
            Self::Git(id) => write!(f, "sha1:{id}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etags_are_digests() {
        let git = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391";
        assert!(matches!(
            FileDigest::from_etag(&format!("W/\"{git}\"")),
            Some(FileDigest::Git(_))
        ));
        assert!(matches!(
            FileDigest::from_etag(&"0".repeat(64)),
            Some(FileDigest::Sha256(_))
        ));
        assert_eq!(FileDigest::from_etag("\"5f3-612\""), None);
    }
}
