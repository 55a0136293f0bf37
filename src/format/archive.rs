//! The directory of a zip archive, as NPZ and PyTorch files use it.
//!
//! Source: PKWARE APPNOTE 6.3, sections 4.3 to 4.5. Where two readers could see two archives in one
//! file (members that overlap or share a name, counts and sizes that disagree, a comment that does
//! not end the file) it is refused. What a local header repeats of the directory is not compared,
//! except the name and, where the header is visited, the method: writers leave sizes and checksum
//! out of it.

mod end;
mod entry;
mod local;

use std::borrow::Cow;
use std::io::{ErrorKind, Read};

use hashbrown::HashSet;

use crate::catalog::{ByteRange, Guard, Member, quote};
use crate::error::{Error, Result};
use crate::source::cursor::Cursor;
use crate::source::range::{Content, RangeReader};
use crate::source::read_exact_at;

pub(crate) use entry::Entry;
pub(crate) use local::local_payload;

/// Length of a local header without name and extra fields.
const LOCAL_LEN: usize = 30;

/// PyTorch aligns each payload to this many bytes (`kFieldAlignment` of its archive writer).
const TORCH_ALIGNMENT: u64 = 64;

/// The members of an archive, in the order of its directory. Names are unique, but for those of
/// directories.
#[derive(Debug)]
pub(crate) struct Archive {
    pub(crate) entries: Vec<Entry>,
    /// Where the next thing after each entry begins: the next local header, or the directory.
    ends: Vec<u64>,
    /// Whether members with data descriptors are aligned as PyTorch aligns them.
    aligned: bool,
}

impl Archive {
    /// Reads the directory. The source must know its length.
    pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<Self> {
        let place = end::find(cursor)?;
        let end = place.at + place.size;
        let mut entries = Vec::with_capacity(
            usize::try_from(place.count)
                .unwrap_or(usize::MAX)
                .min(1 << 10),
        );
        cursor.seek(place.at);
        cursor.expect(place.size);
        while cursor.pos() < end {
            entries.push(Entry::read(cursor, place.prefix)?);
        }
        if cursor.pos() != end {
            return Err(cursor.malformed("the zip directory does not end where its size says"));
        }
        let found = entries.len() as u64;
        if found & place.count_mask != place.count & place.count_mask {
            let what = format!(
                "the zip directory announces {} members and lists {found}",
                place.count
            );
            return Err(cursor.malformed(what));
        }
        unique(&entries)?;
        let ends = ends(&entries, place.at)?;
        let mut archive = Self {
            entries,
            ends,
            aligned: false,
        };
        archive.aligned = archive.is_aligned();
        Ok(archive)
    }

    /// Where a member's bytes lie, by the arithmetic of the directory, with what proves it: what
    /// stands in front of them is checked when they are first read.
    ///
    /// Without a data descriptor the bytes end where the next header begins. With one (PyTorch
    /// streams its archives) that must be PyTorch's. When neither decides the local header is visited
    /// here.
    pub(crate) fn member(&self, cursor: &mut Cursor<'_>, row: usize) -> Result<Member> {
        let entry = &self.entries[row];
        entry.check()?;
        let first = entry.earliest();
        let last = self.ends[row] - entry.packed; // `ends` checked that the member fits
        let start = if entry.has_descriptor() {
            self.before_descriptor(row).filter(|_| self.aligned)
        } else {
            // more than extra fields can take: there is a gap, and arithmetic does not help
            (last - first <= u64::from(u16::MAX)).then_some(last)
        };
        let start = match start {
            Some(start) => start,
            None => local_payload(cursor, entry.header_at, &entry.name)?,
        };
        // PyTorch can leave checksums out (`set_crc32_options(False)`): then they are 0
        self.place(row, start, (entry.crc32 != 0).then_some(entry.crc32))
    }

    /// Where a member's bytes begin if PyTorch's data descriptor follows them: 16 bytes, or 24 where
    /// something needs 64 bits.
    fn before_descriptor(&self, row: usize) -> Option<u64> {
        let entry = &self.entries[row];
        let descriptor = if entry.wide() { 24 } else { 16 };
        let start = (self.ends[row] - entry.packed).checked_sub(descriptor);
        start.filter(|&start| start >= entry.earliest() && entry.packed > 0)
    }

    /// One aligned member may be so by chance. If all are, and they are not few, PyTorch wrote them.
    fn is_aligned(&self) -> bool {
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

    /// As [`member`](Self::member), but visits the local header in any case, and stands behind it.
    pub(crate) fn visit(&self, cursor: &mut Cursor<'_>, row: usize) -> Result<Member> {
        let entry = &self.entries[row];
        entry.check()?;
        let local = local::read(cursor, entry.header_at, &entry.name)?;
        if local.method != entry.method {
            return Err(Error::malformed(format!(
                "member {} has zip method {} in the directory and {} in its own header",
                quote(&entry.name),
                entry.method,
                local.method
            ))
            .at(entry.header_at));
        }
        self.place(row, local.payload, Some(entry.crc32))
    }

    fn place(&self, row: usize, start: u64, crc32: Option<u32>) -> Result<Member> {
        let entry = &self.entries[row];
        if start > self.ends[row] - entry.packed {
            let what = format!("member {} runs into what follows it", quote(&entry.name));
            return Err(Error::malformed(what).at(entry.header_at));
        }
        Ok(Member {
            bytes: ByteRange::new(start, entry.packed),
            inflated: entry.inflated,
            guard: Guard::ZipLocal {
                at: entry.header_at,
                name: entry.name.clone(),
                crc32,
            },
        })
    }

    /// The whole content of a small member (a pickle, a version number), inflated if need be and
    /// checked against its length and checksum. Borrowed where it lies in memory as it is; else
    /// charged, as it grows if it is deflated, whatever the directory claims.
    pub(crate) fn content<'s>(&self, cursor: &mut Cursor<'s>, row: usize) -> Result<Cow<'s, [u8]>> {
        let member = self.visit(cursor, row)?;
        let entry = &self.entries[row];
        let what = format!("member {}", quote(&entry.name));
        let at = member.bytes.start;
        let out = if entry.deflated() {
            Cow::Owned(inflate(cursor, &member, &what)?)
        } else {
            stored(cursor, &member, &what)?
        };
        if out.len() as u64 != entry.inflated {
            return Err(Error::malformed(format!(
                "{what} holds {} bytes of the {} it claims",
                out.len(),
                entry.inflated
            ))
            .at(at));
        }
        // PyTorch can leave checksums out (`set_crc32_options(False)`): then they are 0.
        if entry.crc32 != 0 && crc32fast::hash(&out) != entry.crc32 {
            return Err(Error::malformed(format!("{what} does not match its checksum")).at(at));
        }
        Ok(out)
    }
}

/// The bytes of a stored member.
fn stored<'s>(cursor: &Cursor<'s>, member: &Member, what: &str) -> Result<Cow<'s, [u8]>> {
    let (at, end) = (member.bytes.start, member.bytes.end());
    let beyond = || Error::malformed(format!("{what} is larger than memory")).at(at);
    let [from, to] = [at, end].map(usize::try_from);
    if let Some(bytes) = cursor.in_memory() {
        let lent = from
            .ok()
            .zip(to.ok())
            .and_then(|(from, to)| bytes.get(from..to));
        return lent.map(Cow::Borrowed).ok_or_else(beyond);
    }
    cursor
        .budget()
        .memory(member.bytes.len, what)
        .map_err(|e| e.at(at))?;
    let mut out = vec![0; usize::try_from(member.bytes.len).map_err(|_| beyond())?];
    read_exact_at(cursor.source(), at, &mut out).map_err(|e| Error::from(e).at(at))?;
    Ok(Cow::Owned(out))
}

/// Inflates a member. Room is made by doubling, and never for more than one byte more than claimed.
fn inflate(cursor: &Cursor<'_>, member: &Member, what: &str) -> Result<Vec<u8>> {
    let at = member.bytes.start;
    let claimed = usize::try_from(member.inflated).unwrap_or(usize::MAX);
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
                "{what} holds more than the {claimed} bytes it claims"
            ))
            .at(at));
        }
        if n < step {
            return Ok(out);
        }
    }
}

/// Two members of one name make two readers see two archives.
fn unique(entries: &[Entry]) -> Result<()> {
    let mut names = HashSet::with_capacity(entries.len());
    for entry in entries {
        if !entry.name.ends_with('/') && !names.insert(&*entry.name) {
            return Err(
                Error::malformed(format!("two members are named {}", quote(&entry.name)))
                    .at(entry.header_at),
            );
        }
    }
    Ok(())
}

/// Where each member must have ended: at the next local header, or at the directory. Members that
/// overlap make two readers see two archives, and small files expand to huge ones: refused.
fn ends(entries: &[Entry], directory_at: u64) -> Result<Vec<u64>> {
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by_key(|&i| entries[i].header_at);
    let mut ends = vec![directory_at; entries.len()];
    for (k, &i) in order.iter().enumerate() {
        let entry = &entries[i];
        let end = order
            .get(k + 1)
            .map_or(directory_at, |&next| entries[next].header_at);
        let need = entry.earliest().checked_add(entry.packed);
        if need.is_none_or(|need| need > end) {
            return Err(Error::malformed(format!(
                "member {} runs into what follows it at byte {end}",
                quote(&entry.name)
            ))
            .at(entry.header_at));
        }
        ends[i] = end;
    }
    Ok(ends)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(*bytes[at..].first_chunk().expect("a fixed-size record"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("a fixed-size record"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("a fixed-size record"))
}

#[cfg(test)]
#[path = "archive/tests.rs"]
mod tests;
