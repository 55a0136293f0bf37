//! Finds the directory of an archive from the end record, at the end of the file.
//!
//! Specification: PKWARE APPNOTE 6.3, sections 4.3.14 to 4.3.16. With zip64, a locator before the end record points to a
//! second end record with 64-bit fields; both must agree.

use super::{u16_at, u32_at, u64_at};
use crate::base::error::{Error, Result};
use crate::read::source::cursor::Cursor;

const LOCAL: &[u8; 4] = b"PK\x03\x04";
const END: &[u8; 4] = b"PK\x05\x06";
const END_LEN: usize = 22;
const LOCATOR: &[u8] = b"PK\x06\x07";
const LOCATOR_LEN: usize = 20;
const END64: &[u8] = b"PK\x06\x06";
const END64_LEN: usize = 56;

/// The byte range of the directory and the number of its entries.
pub(super) struct DirectoryLocation {
    pub(super) at: u64,
    pub(super) size: u64,
    /// Number of entries. Only the bits of `count_mask` are meaningful: writers without zip64 let the 16-bit field wrap.
    pub(super) count: u64,
    pub(super) count_mask: u64,
}

/// The fields of an end record: number of entries, size and offset of the directory.
struct EndRecord {
    count: u64,
    size: u64,
    offset: u64,
}

pub(super) fn find(cursor: &mut Cursor<'_>) -> Result<DirectoryLocation> {
    let len = cursor.len().ok_or_else(|| {
        Error::unsupported(
            "a zip archive has its directory at the end and cannot be read from a stream; save it to a file",
        )
    })?;
    let end_at = find_end(cursor, len)?;
    cursor.seek(end_at);
    let end = cursor.array::<END_LEN>("the zip end record")?;
    // the number of this disk, and of the one with the directory
    if u16_at(&end, 4) != 0 || u16_at(&end, 6) != 0 {
        return Err(several_disks(end_at));
    }
    let mut claim = EndRecord {
        count: u64::from(u16_at(&end, 10)),
        size: u64::from(u32_at(&end, 12)),
        offset: u64::from(u32_at(&end, 16)),
    };
    // writers without zip64 let the field wrap, so it is compared modulo 2¹⁶; Python's `zipfile` writes a zip64
    // record beyond 65 535 members
    let mut count_mask = 0xffff;
    let mut directory_end = end_at;
    if let Some((wide, at)) = find_end64(cursor, end_at)? {
        // an all-ones field defers to the zip64 record. Any other value must repeat it: readers without zip64 would
        // otherwise see another directory
        let same = |narrow: u64, wide: u64, most: u64| narrow == most || narrow == wide;
        if !same(claim.count, wide.count, 0xffff)
            || !same(claim.size, wide.size, 0xffff_ffff)
            || !same(claim.offset, wide.offset, 0xffff_ffff)
        {
            return Err(Error::malformed("the two zip end records disagree").at(at));
        }
        claim = wide;
        count_mask = u64::MAX;
        directory_end = at;
    }
    let EndRecord {
        count,
        size,
        offset,
    } = claim;
    // the directory ends where its end record begins, also if bytes precede the archive and its offsets are too small
    let at = directory_end.checked_sub(size);
    let (Some(at), Some(preceding)) = (at, at.and_then(|at| at.checked_sub(offset))) else {
        return Err(Error::malformed(format!(
            "the zip directory does not fit before its end record: offset {offset}, {size} bytes, end record at {directory_end}"
        ))
        .at(end_at));
    };
    if preceding > 0 {
        return Err(preceded(cursor, preceding));
    }
    Ok(DirectoryLocation {
        at,
        size,
        count,
        count_mask,
    })
}

/// The error for bytes in front of an archive: a reader that begins at the first byte finds something else than one that
/// begins at the last. An archive in front of an archive is what torch.distributed.checkpoint writes.
pub(super) fn preceded(cursor: &mut Cursor<'_>, bytes: u64) -> Error {
    cursor.seek(0);
    let mut first = [0; 4];
    let several = cursor.peek_into(&mut first).is_ok_and(|_| &first == LOCAL);
    Error::malformed(if several {
        format!(
            "several zip archives in one file: {bytes} bytes precede the last one. A `.distcp` file of \
             torch.distributed.checkpoint is such a file; open its directory"
        )
    } else {
        format!("{bytes} bytes precede the zip archive; remove them to read the archive alone")
    })
    .at(0)
}

fn several_disks(at: u64) -> Error {
    Error::unsupported("the zip archive spans several disks").at(at)
}

/// The offset of the end record: 22 bytes and a comment of up to 64 KiB, which end the file.
fn find_end(cursor: &mut Cursor<'_>, len: u64) -> Result<u64> {
    let mut stray = None;
    // first the last 4 KiB, which hold the directory of a small archive too; then as far as the longest comment
    // comments are rare, so that the second, longer read is
    for most in [4 << 10, END_LEN as u64 + 0xffff] {
        let from = len.saturating_sub(most);
        cursor.seek(from);
        cursor.expect(len - from);
        let tail = cursor.take(
            usize::try_from(len - from).expect("at most 64 KiB"),
            "the zip end record",
        )?;
        // the signature can also occur inside a comment or inside a member; only the record whose comment ends the
        // file is one
        let ends_file = |at: usize| at + END_LEN + usize::from(u16_at(tail, at + 20)) == tail.len();
        let mut starts = (0..(tail.len() + 1).saturating_sub(END_LEN)).rev();
        let found = starts.find(|&at| {
            let record = tail[at..].starts_with(END);
            if record {
                // remembered for the error only: bytes behind the archive are refused, since a reader that searches
                // backwards for the signature would accept them
                stray.get_or_insert(from + at as u64);
            }
            record && ends_file(at)
        });
        if let Some(at) = found {
            return Ok(from + at as u64);
        }
        if from == 0 {
            break;
        }
    }
    Err(match stray {
        Some(at) => Error::malformed("bytes follow the zip end record and its comment").at(at),
        None => {
            Error::malformed("the file has no zip end record: it is cut off or not a zip archive")
                .at(len)
        }
    })
}

/// The zip64 end record and its offset, if a zip64 locator precedes the end record.
fn find_end64(cursor: &mut Cursor<'_>, end_at: u64) -> Result<Option<(EndRecord, u64)>> {
    let Some(locator_at) = end_at.checked_sub(LOCATOR_LEN as u64) else {
        return Ok(None);
    };
    cursor.seek(locator_at);
    let locator = cursor.array::<LOCATOR_LEN>("the zip64 locator")?;
    if !locator.starts_with(LOCATOR) {
        return Ok(None);
    }
    // the disk of the record, and the number of disks, which some writers leave at 0
    if u32_at(&locator, 4) != 0 || u32_at(&locator, 16) > 1 {
        return Err(several_disks(locator_at));
    }
    let offset = u64_at(&locator, 8);
    let lost =
        || Error::malformed("the zip64 locator does not point to an end record").at(locator_at);
    // First directly before the locator, which also finds the record if bytes precede the archive and its offsets are too
    // small. A record with an extension is longer, so it is found only at the offset in the locator.
    let adjacent = locator_at
        .checked_sub(END64_LEN as u64)
        .filter(|&at| offset <= at);
    for at in [adjacent, Some(offset)].into_iter().flatten() {
        if at
            .checked_add(END64_LEN as u64)
            .is_none_or(|end| end > locator_at)
        {
            continue;
        }
        cursor.seek(at);
        let end64 = cursor.array::<END64_LEN>("the zip64 end record")?;
        // the record states its length without the first 12 bytes, and must end at the locator: nothing may be hidden
        // between
        if !end64.starts_with(END64) || u64_at(&end64, 4).checked_add(at + 12) != Some(locator_at) {
            continue;
        }
        if u32_at(&end64, 16) != 0 || u32_at(&end64, 20) != 0 {
            return Err(several_disks(at));
        }
        let claim = EndRecord {
            count: u64_at(&end64, 32),
            size: u64_at(&end64, 40),
            offset: u64_at(&end64, 48),
        };
        return Ok(Some((claim, at)));
    }
    Err(lost())
}
