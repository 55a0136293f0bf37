//! How objects are cut into parts: arithmetic only.

use crate::error::{Error, ErrorKind, Result};

/// The most parts that an upload may have, of all services the least.
const MOST_PARTS: u64 = 10_000;
/// The longest part that S3 accepts.
const LONGEST_PART: u64 = 5 << 30;
/// Parts longer than usual are a multiple of this.
const MIB: u64 = 1 << 20;

/// The parts of one object. All but the last are of one length, as some services require.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ObjectParts {
    /// Bytes of the object.
    pub(super) len: u64,
    /// Bytes of a part.
    part: u64,
    /// The number of its first part among the parts of all objects.
    pub(super) first: usize,
    pub(super) count: usize,
}

/// A part of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UploadPart {
    pub(super) file: usize,
    /// Its number in the object.
    pub(super) number: usize,
    /// Its first byte.
    pub(super) start: u64,
    pub(super) len: u64,
}

impl ObjectParts {
    /// The parts of an object of `len` bytes: of `part` bytes, or of more if they would be more than an upload may have.
    fn new(len: u64, part: u64, first: usize) -> Result<Self> {
        let least = len.div_ceil(MOST_PARTS).max(1);
        let part = if least <= part {
            part
        } else {
            least.next_multiple_of(MIB)
        };
        if part > LONGEST_PART {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("an object of {len} bytes is longer than any that is stored: write shards"),
            ));
        }
        // an object without bytes has one part without bytes
        let count = usize::try_from(len.div_ceil(part).max(1)).expect("at most 10 000");
        Ok(Self {
            len,
            part,
            first,
            count,
        })
    }

    /// The number of the part with a byte, among the parts of all objects.
    pub(super) fn part_of(&self, byte: u64) -> usize {
        self.first + usize::try_from(byte / self.part).expect("at most 10 000")
    }
}

/// The parts of all objects, one object after the other.
pub(super) fn cut(lens: impl Iterator<Item = u64>, part: u64) -> Result<Vec<ObjectParts>> {
    let mut first = 0;
    let next = |len| {
        let parts = ObjectParts::new(len, part, first)?;
        first += parts.count;
        Ok(parts)
    };
    lens.map(next).collect()
}

/// A part by its number among the parts of all objects; `None` behind the last.
pub(super) fn part(files: &[ObjectParts], number: usize) -> Option<UploadPart> {
    let file = files
        .partition_point(|file| file.first <= number)
        .checked_sub(1)?;
    let parts = &files[file];
    let number = number - parts.first;
    let start = parts.part * number as u64;
    (number < parts.count).then(|| UploadPart {
        file,
        number,
        start,
        len: parts.part.min(parts.len - start),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: u64 = 8 * MIB;

    #[test]
    fn parts_grow_only_as_their_number_requires() {
        let of = |len| {
            let parts = cut(std::iter::once(len), PART).unwrap()[0];
            (parts.part, parts.count)
        };
        assert_eq!(of(0), (PART, 1));
        assert_eq!(of(1), (PART, 1));
        assert_eq!(of(PART + 1), (PART, 2));
        assert_eq!(of(10_000 * PART), (PART, 10_000));
        let (part, count) = of(10_000 * PART + 1);
        assert_eq!((part, count), (9 * MIB, 8889));
        assert_eq!(of(10_000 * LONGEST_PART), (LONGEST_PART, 10_000));
        for len in [10_000 * LONGEST_PART + 1, u64::MAX] {
            let error = cut(std::iter::once(len), PART).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        }
    }

    #[test]
    fn parts_cover_the_objects_in_order() {
        let lens = [10, 0, 7, 21];
        let files = cut(lens.into_iter(), 5).unwrap();
        let mut covered = [0; 4];
        let mut number = 0;
        while let Some(found) = part(&files, number) {
            assert_eq!(found.start, covered[found.file]);
            covered[found.file] += found.len;
            if found.len > 0 {
                let last = found.start + found.len - 1;
                assert_eq!(files[found.file].part_of(last), number);
            }
            number += 1;
        }
        assert_eq!(covered, lens);
        assert_eq!(number, 2 + 1 + 2 + 5);
    }
}
