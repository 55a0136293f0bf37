//! The directory of a zip archive, as NPZ and PyTorch files use it.
//!
//! Source: PKWARE APPNOTE 6.3, sections 4.3 to 4.5. Members are located by the arithmetic of the
//! directory, without visiting each; what stands in front of a member's bytes is checked when they
//! are first read ([`Guard::ZipLocal`](crate::catalog::Guard)).

use std::io::Read;

use crate::catalog::{ByteRange, Guard, Member, quote};
use crate::error::{Error, Result};
use crate::source::cursor::Cursor;
use crate::source::range::{Content, RangeReader};

const END: &[u8; 4] = b"PK\x05\x06";
const END_LEN: u64 = 22;
const LOCATOR: &[u8; 4] = b"PK\x06\x07";
const LOCATOR_LEN: u64 = 20;
const END64: &[u8; 4] = b"PK\x06\x06";
const END64_LEN: u64 = 56;
const ENTRY: &[u8; 4] = b"PK\x01\x02";
const ENTRY_LEN: usize = 46;
const LOCAL: &[u8; 4] = b"PK\x03\x04";
pub(crate) const LOCAL_LEN: u64 = 30;

const STORED: u16 = 0;
const DEFLATED: u16 = 8;
const FLAG_ENCRYPTED: u16 = 1;
const FLAG_DESCRIPTOR: u16 = 1 << 3;
const FLAG_UTF8: u16 = 1 << 11;

/// PyTorch aligns each payload to this many bytes (`kFieldAlignment` of its archive writer).
const TORCH_ALIGNMENT: u64 = 64;

/// The members of an archive, in the order of its directory.
#[derive(Debug)]
pub(crate) struct Archive {
    pub(crate) entries: Vec<Entry>,
    /// Where the next thing after each entry begins: the next local header, or the directory.
    ends: Vec<u64>,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: Box<str>,
    pub(crate) method: u16,
    flags: u16,
    pub(crate) crc32: u32,
    /// Stored size.
    pub(crate) packed: u64,
    /// Size of the content, as the directory claims.
    pub(crate) inflated: u64,
    header_at: u64,
    /// Length of the name as stored, which is what the local header repeats.
    name_len: u16,
}

impl Entry {
    pub(crate) fn deflated(&self) -> bool {
        self.method == DEFLATED
    }

    /// Refuses what cannot be read: encrypted members and methods other than stored and deflate.
    pub(crate) fn check(&self) -> Result<()> {
        let name = quote(&self.name);
        if self.flags & FLAG_ENCRYPTED != 0 {
            return Err(Error::unsupported(format!("member {name} is encrypted")).at(self.header_at));
        }
        match self.method {
            STORED if self.packed != self.inflated => Err(Error::malformed(format!(
                "member {name} is stored, yet takes {} bytes for {}",
                self.packed, self.inflated
            ))
            .at(self.header_at)),
            STORED | DEFLATED => Ok(()),
            other => Err(Error::unsupported(format!(
                "member {name} is packed with zip method {other}{}; re-pack the archive stored or deflated",
                match other {
                    9 => " (deflate64)",
                    12 => " (bzip2)",
                    14 => " (lzma)",
                    93 => " (zstd)",
                    95 => " (xz)",
                    _ => "",
                }
            ))
            .at(self.header_at)),
        }
    }
}

impl Archive {
    /// Reads the directory. The source must know its length.
    pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<Self> {
        let place = find_directory(cursor)?;
        let mut entries = Vec::new();
        cursor.seek(place.at);
        cursor.expect(place.size);
        while cursor.pos() < place.at + place.size {
            entries.push(read_entry(cursor, &place)?);
        }
        if cursor.pos() != place.at + place.size {
            return Err(cursor.malformed("the zip directory does not end where its size says"));
        }
        let entry_count = entries.len() as u64;
        if entry_count & place.count_mask != place.count & place.count_mask {
            return Err(cursor
                .malformed(format!("the zip directory announces {} members and lists {entry_count}", place.count)));
        }
        let ends = ends(&entries, place.at)?;
        Ok(Self { entries, ends })
    }

    /// Row of the only member with this name.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.entries.iter().position(|e| *e.name == *name)
    }

    /// Where a member's bytes lie, with what proves it.
    ///
    /// Without a data descriptor the bytes end where the next header begins. With one (PyTorch
    /// streams its archives) the descriptor takes 12, 16, 20 or 24 bytes; PyTorch's alignment then
    /// leaves one answer. Only when neither decides is the local header visited here.
    pub(crate) fn member(&self, cursor: &mut Cursor<'_>, row: usize) -> Result<Member> {
        let entry = &self.entries[row];
        entry.check()?;
        let first = entry.header_at + LOCAL_LEN + u64::from(entry.name_len);
        let last = self.ends[row] - entry.packed; // `ends` checked that the member fits
        let start = if entry.flags & FLAG_DESCRIPTOR == 0 {
            Some(last)
        } else {
            [16, 24, 12, 20]
                .into_iter()
                .filter_map(|descriptor| last.checked_sub(descriptor))
                .find(|&start| start >= first && start.is_multiple_of(TORCH_ALIGNMENT))
        };
        let start = match start {
            Some(start) => start,
            None => local_payload(cursor, entry.header_at, &entry.name)?,
        };
        if start > last {
            return Err(Error::malformed(format!("member {} runs into what follows it", quote(&entry.name)))
                .at(entry.header_at));
        }
        Ok(Member {
            bytes: ByteRange::new(start, entry.packed),
            inflated: entry.inflated,
            guard: Guard::ZipLocal {
                at: entry.header_at,
                name: entry.name.clone(),
                crc32: (entry.crc32 != 0).then_some(entry.crc32),
            },
        })
    }

    /// As [`member`](Self::member), but visits the local header in any case.
    pub(crate) fn visit(&self, cursor: &mut Cursor<'_>, row: usize) -> Result<Member> {
        let entry = &self.entries[row];
        entry.check()?;
        let start = local_payload(cursor, entry.header_at, &entry.name)?;
        if start.saturating_add(entry.packed) > self.ends[row] {
            return Err(Error::malformed(format!("member {} runs into what follows it", quote(&entry.name)))
                .at(entry.header_at));
        }
        Ok(Member {
            bytes: ByteRange::new(start, entry.packed),
            inflated: entry.inflated,
            guard: Guard::ZipLocal { at: entry.header_at, name: entry.name.clone(), crc32: Some(entry.crc32) },
        })
    }

    /// The whole content of a small member (a pickle, a version number), inflated if need be and
    /// checked against its length and checksum. Charged as it grows, whatever the directory claims.
    pub(crate) fn content(&self, cursor: &mut Cursor<'_>, row: usize) -> Result<Vec<u8>> {
        let member = self.visit(cursor, row)?;
        let entry = &self.entries[row];
        let what = format!("member {}", quote(&entry.name));
        let at = member.bytes.start;
        let bytes = RangeReader::new(cursor.source(), at, member.bytes.len);
        let mut content = Content::new(bytes, entry.deflated());
        let mut out = Vec::new();
        loop {
            // grow by doubling, and never past one byte more than claimed
            let claimed = usize::try_from(entry.inflated).unwrap_or(usize::MAX);
            let step = out.len().clamp(4 << 10, 4 << 20).min((claimed - out.len()).saturating_add(1));
            cursor.budget().memory(step as u64, &what).map_err(|e| e.at(at))?;
            let old = out.len();
            let n = (&mut content)
                .take(step as u64)
                .read_to_end(&mut out)
                .map_err(|e| Error::malformed(format!("{what} does not inflate: {e}")).at(at))?;
            if out.len() > claimed {
                return Err(Error::malformed(format!("{what} holds more than the {claimed} bytes it claims")).at(at));
            }
            if n < step {
                debug_assert_eq!(out.len(), old + n);
                break;
            }
        }
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

/// Where each member must have ended: at the next local header, or at the directory. Members that
/// overlap make two readers see two archives, and small files expand to huge ones: refused.
fn ends(entries: &[Entry], directory_at: u64) -> Result<Vec<u64>> {
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by_key(|&i| entries[i].header_at);
    let mut ends = vec![directory_at; entries.len()];
    for (k, &i) in order.iter().enumerate() {
        let entry = &entries[i];
        let end = order.get(k + 1).map_or(directory_at, |&next| entries[next].header_at);
        let least = LOCAL_LEN + u64::from(entry.name_len);
        let need = entry.header_at.checked_add(least).and_then(|n| n.checked_add(entry.packed));
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

/// Reads a local header and returns where the member's bytes begin.
pub(crate) fn local_payload(cursor: &mut Cursor<'_>, header_at: u64, name: &str) -> Result<u64> {
    cursor.seek(header_at);
    let head = cursor.array::<{ LOCAL_LEN as usize }>("a zip local header")?;
    let bad = |what: &str| Err(Error::malformed(format!("member {}: {what}", quote(name))).at(header_at));
    if head[..4] != *LOCAL {
        return bad("no zip local header where the directory says");
    }
    let flags = u16_at(&head, 6);
    if flags & FLAG_ENCRYPTED != 0 {
        return bad("is encrypted");
    }
    let (name_len, extra_len) = (u16_at(&head, 26), u16_at(&head, 28));
    let stored = cursor.take(usize::from(name_len), "the name in a zip local header")?;
    if decode_name(stored, flags) != name {
        return bad("the local header carries another name");
    }
    Ok(header_at + LOCAL_LEN + u64::from(name_len) + u64::from(extra_len))
}

struct Directory {
    at: u64,
    size: u64,
    count: u64,
    count_mask: u64,
    /// Bytes in front of the archive: all its offsets are short by this.
    prefix: u64,
}

fn find_directory(cursor: &mut Cursor<'_>) -> Result<Directory> {
    let len = cursor.len().ok_or_else(|| {
        Error::unsupported(
            "a zip archive keeps its directory at the end, which a stream cannot reach: save it to a file",
        )
    })?;
    let end_at = find_end(cursor, len)?;
    cursor.seek(end_at);
    let end = cursor.array::<{ END_LEN as usize }>("the zip end record")?;
    if u16_at(&end, 4) != 0 || u16_at(&end, 6) != 0 {
        return Err(Error::unsupported("a zip archive over several disks").at(end_at));
    }
    let count = u64::from(u16_at(&end, 10));
    let mut found = Directory { at: 0, size: u64::from(u32_at(&end, 12)), count, count_mask: 0xffff, prefix: 0 };
    let mut offset = u64::from(u32_at(&end, 16));
    let mut behind = end_at;
    if let Some(locator_at) = end_at.checked_sub(LOCATOR_LEN) {
        cursor.seek(locator_at);
        let locator = cursor.array::<{ LOCATOR_LEN as usize }>("the zip64 locator")?;
        if locator[..4] == *LOCATOR {
            let at = locator_at
                .checked_sub(END64_LEN)
                .ok_or_else(|| Error::malformed("no room for the zip64 end record").at(locator_at))?;
            cursor.seek(at);
            let end64 = cursor.array::<{ END64_LEN as usize }>("the zip64 end record")?;
            if end64[..4] != *END64 || u64_at(&locator, 8) > at {
                return Err(Error::malformed("the zip64 locator does not lead to an end record").at(locator_at));
            }
            found.count = u64_at(&end64, 32);
            found.count_mask = u64::MAX;
            found.size = u64_at(&end64, 40);
            offset = u64_at(&end64, 48);
            behind = at;
        }
    }
    let at = behind.checked_sub(found.size);
    let (Some(at), Some(prefix)) = (at, at.and_then(|at| at.checked_sub(offset))) else {
        return Err(Error::malformed(format!(
            "the zip directory should begin at byte {offset} and take {} bytes, and its end record is at {behind}",
            found.size
        ))
        .at(end_at));
    };
    Ok(Directory { at, prefix, ..found })
}

/// Offset of the end record: the last 22 bytes, or further up before a comment.
fn find_end(cursor: &mut Cursor<'_>, len: u64) -> Result<u64> {
    const COMMENT_MAX: u64 = 65_535;
    let none = || Error::malformed("no zip end record: the archive is cut off, or not an archive").at(len);
    let last = len.checked_sub(END_LEN).ok_or_else(none)?;
    cursor.seek(last);
    if cursor.take(4, "the zip end record")? == END {
        return Ok(last);
    }
    let from = last.saturating_sub(COMMENT_MAX);
    cursor.seek(from);
    cursor.expect(len - from);
    let tail_len = usize::try_from(len - from).expect("at most 64 KiB");
    let tail = cursor.take(tail_len, "the zip end record")?;
    let found = tail.windows(4).rposition(|w| w == END).ok_or_else(none)?;
    if tail.len() - found < END_LEN as usize {
        return Err(none());
    }
    Ok(from + found as u64)
}

fn read_entry(cursor: &mut Cursor<'_>, place: &Directory) -> Result<Entry> {
    let at = cursor.pos();
    let head = cursor.array::<ENTRY_LEN>("an entry of the zip directory")?;
    if head[..4] != *ENTRY {
        return Err(Error::malformed("no entry where the zip directory should have one").at(at));
    }
    let flags = u16_at(&head, 8);
    let (name_len, extra_len, comment_len) = (u16_at(&head, 28), u16_at(&head, 30), u16_at(&head, 32));
    cursor.budget().memory(size_of::<Entry>() as u64 + 16 + u64::from(name_len), "the zip directory")?;
    let mut wide = [u32_at(&head, 24), u32_at(&head, 20), u32_at(&head, 42)].map(u64::from);
    let tail_len = usize::from(name_len) + usize::from(extra_len) + usize::from(comment_len);
    let tail = cursor.take(tail_len, "an entry of the zip directory")?;
    let name = decode_name(&tail[..usize::from(name_len)], flags).into_boxed_str();
    read_zip64(&tail[usize::from(name_len)..][..usize::from(extra_len)], &mut wide)
        .map_err(|what| Error::malformed(format!("member {}: {what}", quote(&name))).at(at))?;
    let [inflated, packed, header_at] = wide;
    let header_at = header_at.saturating_add(place.prefix);
    Ok(Entry {
        name,
        method: u16_at(&head, 10),
        flags,
        crc32: u32_at(&head, 16),
        packed,
        inflated,
        header_at,
        name_len,
    })
}

/// Replaces the sizes and offset that did not fit in 32 bits by those of the zip64 extra field.
fn read_zip64(mut extra: &[u8], wide: &mut [u64; 3]) -> Result<(), &'static str> {
    const ZIP64: u16 = 1;
    const ABSENT: u64 = 0xffff_ffff;
    let mut found: &[u8] = &[];
    while extra.len() >= 4 {
        let len = usize::from(u16_at(extra, 2));
        let field = extra[4..].get(..len).ok_or("an extra field runs past its end")?;
        if u16_at(extra, 0) == ZIP64 {
            found = field;
        }
        extra = &extra[4 + len..];
    }
    for value in wide.iter_mut().filter(|v| **v == ABSENT) {
        let (first, rest) = found.split_first_chunk::<8>().ok_or("a 64-bit size is announced and missing")?;
        *value = u64::from_le_bytes(*first);
        found = rest;
    }
    Ok(())
}

/// Names are UTF-8 where flagged, else code page 437.
fn decode_name(bytes: &[u8], flags: u16) -> String {
    const CP437: &str = "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u{a0}";
    if flags & FLAG_UTF8 != 0 || bytes.is_ascii() {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    let high: Vec<char> = CP437.chars().collect();
    bytes.iter().map(|&b| if b < 0x80 { char::from(b) } else { high[usize::from(b) - 0x80] }).collect()
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("a fixed-size record"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("a fixed-size record"))
}
