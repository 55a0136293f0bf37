//! The end record, from which an archive is read backwards.

use super::{u16_at, u32_at, u64_at};
use crate::error::{Error, Result};
use crate::source::cursor::Cursor;

const END: &[u8; 4] = b"PK\x05\x06";
const END_LEN: usize = 22;
const LOCATOR: &[u8] = b"PK\x06\x07";
const LOCATOR_LEN: usize = 20;
const END64: &[u8] = b"PK\x06\x06";
const END64_LEN: usize = 56;

/// Where the directory lies.
pub(super) struct Place {
    pub(super) at: u64,
    pub(super) size: u64,
    /// Number of entries, in the bits of `count_mask`: writers without zip64 let it overflow.
    pub(super) count: u64,
    pub(super) count_mask: u64,
    /// Bytes in front of the archive: all its offsets are short by this.
    pub(super) prefix: u64,
}

/// What an end record says of the directory.
struct Claim {
    count: u64,
    size: u64,
    offset: u64,
}

pub(super) fn find(cursor: &mut Cursor<'_>) -> Result<Place> {
    let len = cursor.len().ok_or_else(|| {
        Error::unsupported(
            "a zip archive keeps its directory at the end, which a stream cannot reach: save it to a file",
        )
    })?;
    let end_at = find_end(cursor, len)?;
    cursor.seek(end_at);
    let end = cursor.array::<END_LEN>("the zip end record")?;
    if u16_at(&end, 4) != 0 || u16_at(&end, 6) != 0 {
        return Err(several_disks(end_at));
    }
    let mut claim = Claim {
        count: u64::from(u16_at(&end, 10)),
        size: u64::from(u32_at(&end, 12)),
        offset: u64::from(u32_at(&end, 16)),
    };
    let mut count_mask = 0xffff;
    let mut behind = end_at;
    if let Some((wide, at)) = find_end64(cursor, end_at)? {
        let same = |narrow: u64, wide: u64, most: u64| narrow == most || narrow == wide;
        if !same(claim.count, wide.count, 0xffff)
            || !same(claim.size, wide.size, 0xffff_ffff)
            || !same(claim.offset, wide.offset, 0xffff_ffff)
        {
            return Err(Error::malformed("the two zip end records disagree").at(at));
        }
        claim = wide;
        count_mask = u64::MAX;
        behind = at;
    }
    let Claim {
        count,
        size,
        offset,
    } = claim;
    let at = behind.checked_sub(size);
    let (Some(at), Some(prefix)) = (at, at.and_then(|at| at.checked_sub(offset))) else {
        return Err(Error::malformed(format!(
            "the zip directory should begin at byte {offset} and take {size} bytes, and its end record is at {behind}"
        ))
        .at(end_at));
    };
    Ok(Place {
        at,
        size,
        count,
        count_mask,
        prefix,
    })
}

fn several_disks(at: u64) -> Error {
    Error::unsupported("a zip archive over several disks").at(at)
}

/// Offset of the end record: 22 bytes and a comment, which end the file.
fn find_end(cursor: &mut Cursor<'_>, len: u64) -> Result<u64> {
    let mut stray = None;
    // first what one read brings, with the directory of a small archive; then as far as a comment reaches
    for most in [4 << 10, END_LEN as u64 + 0xffff] {
        let from = len.saturating_sub(most);
        cursor.seek(from);
        cursor.expect(len - from);
        let tail = cursor.take(
            usize::try_from(len - from).expect("at most 64 KiB"),
            "the zip end record",
        )?;
        let ends_file = |at: usize| at + END_LEN + usize::from(u16_at(tail, at + 20)) == tail.len();
        let mut starts = (0..(tail.len() + 1).saturating_sub(END_LEN)).rev();
        let found = starts.find(|&at| {
            let record = tail[at..].starts_with(END);
            if record {
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
        Some(at) => {
            Error::malformed("the zip end record and its comment do not end the file").at(at)
        }
        None => {
            Error::malformed("no zip end record: the archive is cut off, or not an archive").at(len)
        }
    })
}

/// The zip64 end record and its offset, if a locator stands before the end record.
fn find_end64(cursor: &mut Cursor<'_>, end_at: u64) -> Result<Option<(Claim, u64)>> {
    let Some(locator_at) = end_at.checked_sub(LOCATOR_LEN as u64) else {
        return Ok(None);
    };
    cursor.seek(locator_at);
    let locator = cursor.array::<LOCATOR_LEN>("the zip64 locator")?;
    if !locator.starts_with(LOCATOR) {
        return Ok(None);
    }
    if u32_at(&locator, 4) != 0 || u32_at(&locator, 16) > 1 {
        return Err(several_disks(locator_at));
    }
    let offset = u64_at(&locator, 8);
    let lost =
        || Error::malformed("the zip64 locator does not lead to an end record").at(locator_at);
    // right before the locator, which is right for archives with a prefix too; or, if the record was
    // extended, where the locator says
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
        if !end64.starts_with(END64) || u64_at(&end64, 4).checked_add(at + 12) != Some(locator_at) {
            continue;
        }
        if u32_at(&end64, 16) != 0 || u32_at(&end64, 20) != 0 {
            return Err(several_disks(at));
        }
        let claim = Claim {
            count: u64_at(&end64, 32),
            size: u64_at(&end64, 40),
            offset: u64_at(&end64, 48),
        };
        return Ok(Some((claim, at)));
    }
    Err(lost())
}
