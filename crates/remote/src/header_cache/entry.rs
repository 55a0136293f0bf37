//! The form of an entry on disk. Numbers are little endian:
//!
//! 1. `ANMHDR1\n`, and the SHA-256 of the key and of all that follows;
//! 2. 1 byte: 0 for a file that does not exist, 1 for one that does; of the latter:
//! 3. its length in 8 bytes; its ETag, its time of modification and its commit, each of which may be empty;
//! 4. the number of ranges in 4 bytes; for each, ascending, its first byte and its length in 8 bytes; then their bytes.
//!
//! A text is its length in 4 bytes, then its UTF-8.

use sha2::{Digest as _, Sha256};

use crate::answer::FileVersion;

const MAGIC: &[u8] = b"ANMHDR1\n";
const CHECKSUM: usize = 32;
/// The longest text in bytes: an answer's header may be as long.
const LONGEST_TEXT: usize = 1024;

/// The most ranges: each takes 32 bytes of memory, of 17 bytes of an entry.
const MOST_RANGES: usize = 1 << 16;

/// The entry of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CacheEntry {
    File(CachedFile),
    /// The server has no such file. Used without a network alone.
    Absent,
}

/// The entry of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CachedFile {
    pub(crate) version: FileVersion,
    /// The commit of a file of the hub.
    pub(crate) commit: Option<String>,
    /// Ascending ranges with gaps in between: the first byte of each, and its bytes, of which it has some.
    pub(crate) ranges: Vec<(u64, Vec<u8>)>,
}

pub(crate) fn encode(key: &str, entry: &CacheEntry) -> Vec<u8> {
    let mut body = Vec::new();
    let text = |body: &mut Vec<u8>, text: &str| {
        // such a text is refused when it is read
        let len = u32::try_from(text.len()).unwrap_or(u32::MAX);
        body.extend(len.to_le_bytes());
        body.extend(text.as_bytes());
    };
    match entry {
        CacheEntry::Absent => body.push(0),
        CacheEntry::File(file) => {
            body.push(1);
            let version = &file.version;
            body.extend(version.len.to_le_bytes());
            for value in [&version.etag, &version.modified, &file.commit] {
                text(&mut body, value.as_deref().unwrap_or_default());
            }
            let count = u32::try_from(file.ranges.len()).unwrap_or(u32::MAX);
            body.extend(count.to_le_bytes());
            for (start, bytes) in &file.ranges {
                body.extend(start.to_le_bytes());
                body.extend((bytes.len() as u64).to_le_bytes());
            }
            file.ranges.iter().for_each(|(_, bytes)| body.extend(bytes));
        }
    }
    sealed(key, &body)
}

/// An entry of this body, with the checksum in front of it.
pub(crate) fn sealed(key: &str, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(MAGIC.len() + CHECKSUM + body.len());
    out.extend(MAGIC);
    out.extend(checksum(key, body));
    out.extend(body);
    out
}

/// The entry of a key; `None` for anything else.
pub(crate) fn decode(key: &str, bytes: &[u8]) -> Option<CacheEntry> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (checksum, body) = rest.split_at_checked(CHECKSUM)?;
    if self::checksum(key, body) != checksum {
        return None;
    }
    let mut input = Input(body);
    let entry = match input.take(1)? {
        [0] => CacheEntry::Absent,
        [1] => CacheEntry::File(input.file()?),
        _ => return None,
    };
    // trailing bytes would be a second form of one entry
    input.0.is_empty().then_some(entry)
}

/// The key is a part of it, and not of the entry: it may have a secret.
pub(super) fn checksum(key: &str, body: &[u8]) -> [u8; CHECKSUM] {
    let digest = Sha256::new()
        .chain_update((key.len() as u64).to_le_bytes())
        .chain_update(key)
        .chain_update(body);
    digest.finalize().into()
}

/// The part of an entry that is not read yet.
struct Input<'b>(&'b [u8]);

impl<'b> Input<'b> {
    fn take(&mut self, len: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    /// A text; `None` inside for an empty one.
    fn text(&mut self) -> Option<Option<String>> {
        let len = usize::try_from(self.u32()?).ok()?;
        let bytes = self.take(len).filter(|_| len <= LONGEST_TEXT)?;
        let text = std::str::from_utf8(bytes).ok()?;
        Some((!text.is_empty()).then(|| text.to_owned()))
    }

    fn file(&mut self) -> Option<CachedFile> {
        let len = self.u64()?;
        let version = FileVersion {
            len,
            etag: self.text()?,
            modified: self.text()?,
        };
        let commit = self.text()?;
        let count = usize::try_from(self.u32()?).ok()?;
        if count > MOST_RANGES {
            return None;
        }
        // the places of all ranges are in front of their bytes
        let mut places = Self(self.take(count.checked_mul(16)?)?);
        let mut ranges = Vec::with_capacity(count);
        let mut end = 0;
        for number in 0..count {
            let (start, nbytes) = (places.u64()?, places.u64()?);
            // with a gap in between: adjacent ranges would have been written as one
            let is_ascending = number == 0 || start > end;
            end = start.checked_add(nbytes)?;
            if !is_ascending || nbytes == 0 || end > len {
                return None;
            }
            let bytes = self.take(usize::try_from(nbytes).ok()?)?;
            ranges.push((start, bytes.to_vec()));
        }
        Some(CachedFile {
            version,
            commit,
            ranges,
        })
    }
}
