//! The directory of a zip archive, for NPZ and PyTorch files.
//!
//! Specification: PKWARE APPNOTE 6.3, sections 4.3 to 4.5.
//!
//! ```text
//! [local header, content, (data descriptor)]…  [directory entry]…  (zip64 end record, locator)  end record, comment
//! ```
//!
//! An archive is read from its end: end record, directory, members. The directory alone determines the offset of a member,
//! because visiting 300 local headers of a cold file costs 300 disk reads. It is trusted only until the member's bytes
//! are first read: the local header is then compared with it (`IntegrityCheck::ZipLocal`), and a disagreement is an error.
//!
//! Refused: everything in which two readers could see two archives in one file (members that overlap or share a name,
//! counts and sizes that disagree, bytes before the first member or after the comment), encrypted members, and methods other than stored and
//! deflate. A local header is compared in its name and method only: streaming writers leave sizes and checksum out of it.

mod end_record;
mod entry;
mod local_header;

use std::borrow::Cow;
use std::io::{ErrorKind, Read};

use hashbrown::HashSet;

use crate::base::error::{Error, Result};
use crate::read::catalog::{ByteRange, IntegrityCheck, Member, quote};
use crate::read::source::cursor::Cursor;
use crate::read::source::range_reader::{Content, RangeReader};
use crate::read::source::read_exact_at;

pub(crate) use entry::DirectoryEntry;
pub(crate) use local_header::local_payload;

/// Length of a local header without name and extra fields.
const LOCAL_LEN: usize = 30;

/// Bytes from a local header on that hold it and the header of an NPY file: one window of the cursor and what a window
/// keeps of a page.
const OPENING: u64 = (4 << 10) + 512;

/// PyTorch aligns each payload to this many bytes (`kFieldAlignment` of its archive writer).
const TORCH_ALIGNMENT: u64 = 64;

/// The directory of an archive: its members, in stored order. The names of members that are not directories are unique.
#[derive(Debug)]
pub(crate) struct Archive {
    pub(crate) entries: Vec<DirectoryEntry>,
    /// Per entry, the offset that its bytes may reach at most: the next local header or the directory.
    limits: Vec<u64>,
    /// Whether all members with data descriptors are aligned as PyTorch aligns them; see [`Self::is_aligned`].
    aligned: bool,
}

impl Archive {
    /// Reads the directory. The source must know its length.
    pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<Self> {
        let directory = end_record::find(cursor)?;
        let end = directory.at + directory.size;
        // the count is an attacker's, so it only hints at the capacity; what is read below decides
        let mut entries = Vec::with_capacity(
            usize::try_from(directory.count)
                .unwrap_or(usize::MAX)
                .min(1 << 10),
        );
        cursor.seek(directory.at);
        // the directory is read to its end in any case, so windows may be as large as it is
        cursor.expect(directory.size);
        let budget = cursor.budget();
        while cursor.pos() < end {
            let entry = DirectoryEntry::read(cursor)?;
            budget.push(&mut entries, entry, "the zip directory")?;
        }
        if cursor.pos() != end {
            return Err(cursor.malformed("the zip directory does not end where its size says"));
        }
        let found = entries.len() as u64;
        // a reader that trusts the count would find another number of members
        if found & directory.count_mask != directory.count & directory.count_mask {
            let what = format!(
                "the zip end record counts {} members, but the directory has {found}",
                directory.count
            );
            return Err(cursor.malformed(what));
        }
        // the offsets may also count from the first byte of the file, with other bytes or another archive there
        let first = entries.iter().map(|entry| entry.header_at).min();
        match first.unwrap_or(directory.at) {
            0 => {}
            preceding => return Err(end_record::preceded(cursor, preceding)),
        }
        // the limits; and the names and the order while they are compared
        budget.memory(8 * found, "the zip directory")?;
        let checks = budget.temporary(64 * found, "the zip directory")?;
        unique(&entries)?;
        let limits = payload_limits(&entries, directory.at)?;
        drop(checks);
        let mut archive = Self {
            entries,
            limits,
            aligned: false,
        };
        archive.aligned = archive.is_aligned();
        Ok(archive)
    }

    /// The ranges that visiting the members reads, one by one: local header, name, extra fields, and the beginning of the
    /// content.
    pub(crate) fn openings(&self) -> impl Iterator<Item = (u64, u64)> {
        (0..self.entries.len()).map(|row| self.opening(row, OPENING))
    }

    /// The range that reading a member as a whole reads.
    #[inline]
    pub(crate) fn extent(&self, row: usize) -> (u64, u64) {
        self.opening(row, u64::MAX)
    }

    #[inline]
    fn opening(&self, row: usize, most: u64) -> (u64, u64) {
        let start = self.entries[row].header_at;
        (start, self.limits[row].saturating_sub(start).min(most))
    }

    /// Locates a member from the directory alone, without a read of its local header. The returned guard makes the first
    /// read of the bytes compare the local header with the directory.
    ///
    /// Without a data descriptor, the bytes end where the next local header begins. With one (PyTorch writes its archives as
    /// streams), the length of the descriptor is ambiguous, so its layout must be the layout of PyTorch's writer. If neither
    /// determines the offset, the local header is read here.
    pub(crate) fn member(&self, cursor: &mut Cursor<'_>, row: usize) -> Result<Member> {
        let entry = &self.entries[row];
        entry.check()?;
        // the bytes begin after the local header and end before what follows: both bounds come from the directory
        let first = entry.earliest_payload();
        let last = self.limits[row] - entry.packed; // `payload_limits` checked that the member fits
        let start = if entry.has_descriptor() {
            self.before_descriptor(row).filter(|_| self.aligned)
        } else {
            // an extra field has at most 65 535 bytes: a longer distance is a gap between members, whose bytes then
            // cannot be located from their end
            (last - first <= u64::from(u16::MAX)).then_some(last)
        };
        let start = match start {
            Some(start) => start,
            None => local_payload(cursor, entry.header_at, &entry.name)?,
        };
        // PyTorch omits checksums after `set_crc32_options(False)`: they are 0 then, and are not compared
        self.member_at(row, start, (entry.crc32 != 0).then_some(entry.crc32))
    }

    /// The offset of a member's bytes if they are followed by a data descriptor as PyTorch writes it: 16 bytes, or 24 if a
    /// size or offset needs 64 bits.
    #[inline]
    fn before_descriptor(&self, row: usize) -> Option<u64> {
        let entry = &self.entries[row];
        let descriptor = if entry.wide() { 24 } else { 16 };
        let start = (self.limits[row] - entry.packed).checked_sub(descriptor);
        start.filter(|&start| start >= entry.earliest_payload() && entry.packed > 0)
    }

    /// Whether the archive was written by PyTorch, by the alignment of its members. One member is aligned by chance with
    /// probability 1/64, so all of them must be, and at least `FEW` must exist.
    fn is_aligned(&self) -> bool {
        // PyTorch pads the extra field of each local header so that storages can be mapped (`getPadding` in
        // `caffe2/serialize/inline_container.cc`); an archive of another writer with data descriptors fits by chance only
        const FEW: usize = 4;
        let mut count = 0;
        for (row, entry) in self.entries.iter().enumerate() {
            if entry.has_descriptor() && entry.packed > 0 {
                if !self
                    .before_descriptor(row)
                    .is_some_and(|start| start.is_multiple_of(TORCH_ALIGNMENT))
                {
                    return false;
                }
                count += 1;
            }
        }
        count >= FEW
    }

    /// Locates a member by its local header, and compares the header with the directory. Leaves the cursor after the
    /// header.
    pub(crate) fn verified_member(&self, cursor: &mut Cursor<'_>, row: usize) -> Result<Member> {
        let entry = &self.entries[row];
        entry.check()?;
        let local = local_header::read(cursor, entry.header_at, &entry.name)?;
        if local.method != entry.method {
            return Err(Error::malformed(format!(
                "member {} has zip method {} in the directory and {} in its local header",
                quote(&entry.name),
                entry.method,
                local.method
            ))
            .at(entry.header_at));
        }
        self.member_at(row, local.payload, Some(entry.crc32))
    }

    /// Bytes of the archive that belong to no member: between the end of one, with its data descriptor, and what follows.
    /// Reads the local header of each member.
    pub(crate) fn gaps(&self, cursor: &mut Cursor<'_>) -> Result<u64> {
        let mut gaps = 0;
        for (entry, &limit) in self.entries.iter().zip(&self.limits) {
            let start = local_payload(cursor, entry.header_at, &entry.name)?;
            let behind = limit.saturating_sub(start.saturating_add(entry.packed));
            // with or without a signature, and with sizes of 32 or 64 bits
            let descriptor = [24, 20, 16, 12].into_iter().find(|&len| behind == len);
            let descriptor = match descriptor {
                _ if !entry.has_descriptor() => 0,
                Some(len) => len,
                None => behind.min(16),
            };
            gaps += behind - descriptor;
        }
        Ok(gaps)
    }

    #[inline]
    fn member_at(&self, row: usize, start: u64, crc32: Option<u32>) -> Result<Member> {
        let entry = &self.entries[row];
        // an extra field of the local header that is longer than the directory's shifts the bytes into the next
        // member
        if start > self.limits[row] - entry.packed {
            let what = format!(
                "member {} runs into what follows it: its bytes begin too late for its size",
                quote(&entry.name)
            );
            return Err(Error::malformed(what).at(entry.header_at));
        }
        Ok(Member {
            bytes: ByteRange::new(start, entry.packed),
            inflated: entry.inflated,
            check: IntegrityCheck::ZipLocal {
                at: entry.header_at,
                name: entry.name.clone(),
                crc32,
            },
        })
    }

    /// The whole content of a small member (a pickle, a version number), inflated if it is deflated, and checked against
    /// its length and checksum. A stored member of a source in memory is borrowed. Otherwise the memory is charged to
    /// the budget: in steps while a member is inflated, because the size in the directory is not trusted.
    pub(crate) fn content<'s>(&self, cursor: &mut Cursor<'s>, row: usize) -> Result<Cow<'s, [u8]>> {
        let member = self.verified_member(cursor, row)?;
        let entry = &self.entries[row];
        let what = format!("member {}", quote(&entry.name));
        let at = member.bytes.start;
        let out = if entry.deflated() {
            Cow::Owned(inflate(cursor, &member, &what)?)
        } else {
            stored(cursor, &member, &what)?
        };
        // checked before the checksum, because a length names the fault and a checksum does not
        if out.len() as u64 != entry.inflated {
            return Err(Error::malformed(format!(
                "{what} holds {} bytes of the {} that the directory claims",
                out.len(),
                entry.inflated
            ))
            .at(at));
        }
        // PyTorch omits checksums after `set_crc32_options(False)`: they are 0 then
        if entry.crc32 != 0 && crc32fast::hash(&out) != entry.crc32 {
            return Err(Error::malformed(format!(
                "the CRC-32 of {what} does not match its checksum in the directory"
            ))
            .at(at));
        }
        Ok(out)
    }
}

/// The bytes of a stored member, borrowed from a source in memory, else read.
fn stored<'s>(cursor: &Cursor<'s>, member: &Member, what: &str) -> Result<Cow<'s, [u8]>> {
    let (at, end) = (member.bytes.start, member.bytes.end());
    let beyond = || Error::malformed(format!("{what} does not fit in the address space")).at(at);
    let [from, to] = [at, end].map(usize::try_from);
    // borrowed: the pickle of a mapped file is parsed in place
    if let Some(bytes) = cursor.in_memory() {
        let borrowed = from
            .ok()
            .zip(to.ok())
            .and_then(|(from, to)| bytes.get(from..to));
        return borrowed.map(Cow::Borrowed).ok_or_else(beyond);
    }
    cursor
        .budget()
        .memory(member.bytes.len, what)
        .map_err(|e| e.at(at))?;
    let mut out = vec![0; usize::try_from(member.bytes.len).map_err(|_| beyond())?];
    // past the cursor's window, which would grow to the size of the member
    read_exact_at(cursor.source(), at, &mut out).map_err(|e| Error::from(e).at(at))?;
    Ok(Cow::Owned(out))
}

/// Inflates a member. The buffer doubles as it fills, up to one byte more than the directory claims: the extra byte shows
/// that the content is too long without inflating the rest of it.
fn inflate(cursor: &Cursor<'_>, member: &Member, what: &str) -> Result<Vec<u8>> {
    let at = member.bytes.start;
    let claimed = usize::try_from(member.inflated).unwrap_or(usize::MAX);
    // the size in the directory is an attacker's: the buffer grows with what really arrives, so a claim of terabytes
    // costs nothing and a bomb is stopped at the budget
    let mut content = Content::new(
        RangeReader::new(cursor.source(), at, member.bytes.len),
        true,
    );
    let mut out = Vec::new();
    loop {
        let step = out
            .len()
            .clamp(4 << 10, 4 << 20)
            .min((claimed - out.len()).saturating_add(1));
        cursor
            .budget()
            .memory(step as u64, what)
            .map_err(|e| e.at(at))?;
        out.reserve_exact(step);
        let n = (&mut content)
            .take(step as u64)
            .read_to_end(&mut out)
            .map_err(|e| match e.kind() {
                ErrorKind::InvalidInput => {
                    Error::malformed(format!("{what} does not inflate: {e}")).at(at)
                }
                _ => Error::from(e).at(at),
            })?;
        if out.len() > claimed {
            return Err(Error::malformed(format!(
                "{what} holds more than the {claimed} bytes that the directory claims"
            ))
            .at(at));
        }
        // fewer bytes than requested is the end of the deflate stream
        if n < step {
            return Ok(out);
        }
    }
}

/// Refuses two members with one name: readers differ in which of them they return.
fn unique(entries: &[DirectoryEntry]) -> Result<()> {
    let mut names = HashSet::with_capacity(entries.len());
    for entry in entries {
        // directories hold no bytes, and some writers repeat them
        if !entry.name.ends_with('/') && !names.insert(&*entry.name) {
            return Err(
                Error::malformed(format!("two members are named {}", quote(&entry.name)))
                    .at(entry.header_at),
            );
        }
    }
    Ok(())
}

/// The offset at which each member must end: the next local header, or the directory. Refuses members that overlap:
/// readers could differ in what they contain, and overlapping members are how a small file inflates to a huge one.
fn payload_limits(entries: &[DirectoryEntry], directory_at: u64) -> Result<Vec<u64>> {
    let mut order: Vec<usize> = (0..entries.len()).collect();
    // the directory need not list members in the order of their bytes
    order.sort_by_key(|&i| entries[i].header_at);
    let mut limits = vec![directory_at; entries.len()];
    for (k, &i) in order.iter().enumerate() {
        let entry = &entries[i];
        let end = order
            .get(k + 1)
            .map_or(directory_at, |&next| entries[next].header_at);
        // the local header has at least the length of its name, so that this is the least that the member occupies
        let need = entry.earliest_payload().checked_add(entry.packed);
        if need.is_none_or(|need| need > end) {
            return Err(Error::malformed(format!(
                "member {} runs into what follows it at byte {end}",
                quote(&entry.name)
            ))
            .at(entry.header_at));
        }
        limits[i] = end;
    }
    Ok(limits)
}

#[inline]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(*bytes[at..].first_chunk().expect("a fixed-size record"))
}

#[inline]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("a fixed-size record"))
}

#[inline]
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("a fixed-size record"))
}

#[cfg(test)]
mod tests;
