//! Entries of the directory.

use std::borrow::Cow;
use std::sync::Arc;

use super::{LOCAL_LEN, u16_at, u32_at};
use crate::catalog::quote;
use crate::error::{Error, Result};
use crate::source::cursor::Cursor;

const ENTRY: &[u8] = b"PK\x01\x02";
const ENTRY_LEN: usize = 46;

const STORED: u16 = 0;
const DEFLATED: u16 = 8;
/// The most that one byte can inflate to: 258 bytes for every two bits.
const DEFLATE_MOST: u64 = 1032;
pub(super) const FLAG_ENCRYPTED: u16 = 1;
const FLAG_DESCRIPTOR: u16 = 1 << 3;
const FLAG_UTF8: u16 = 1 << 11;

#[derive(Debug)]
pub(crate) struct Entry {
    /// Shared with what guards the member.
    pub(crate) name: Arc<str>,
    pub(crate) method: u16,
    flags: u16,
    pub(crate) crc32: u32,
    /// Stored size.
    pub(crate) packed: u64,
    /// Size of the content, as the directory claims.
    pub(crate) inflated: u64,
    pub(super) header_at: u64,
    /// Length of the name as stored, which is what the local header repeats.
    name_len: u16,
}

impl Entry {
    /// Reads the entry at the cursor. All offsets are short by `prefix`.
    pub(super) fn read(cursor: &mut Cursor<'_>, prefix: u64) -> Result<Self> {
        let at = cursor.pos();
        let head = cursor.array::<ENTRY_LEN>("an entry of the zip directory")?;
        if !head.starts_with(ENTRY) {
            return Err(
                Error::malformed("no entry where the zip directory should have one").at(at),
            );
        }
        let flags = u16_at(&head, 8);
        let (name_len, extra_len, comment_len) =
            (u16_at(&head, 28), u16_at(&head, 30), u16_at(&head, 32));
        // the row, its `end`, its place while rows are put in order, and its name twice
        let memory = size_of::<Self>() as u64 + 32 + 2 * u64::from(name_len);
        cursor
            .budget()
            .memory(memory, "the zip directory")
            .map_err(|e| e.at(at))?;
        let [name_is, extra_is, comment_is] = [name_len, extra_len, comment_len].map(usize::from);
        let tail = cursor.take(
            name_is + extra_is + comment_is,
            "an entry of the zip directory",
        )?;
        let (name, rest) = tail.split_at(name_is);
        let bad =
            |what: &str| Error::malformed(format!("member {}: {what}", quote(&ascii(name)))).at(at);
        let name = decode_name(name, flags)
            .ok_or_else(|| bad("a name that is flagged as UTF-8 and is not"))?;
        let mut wide = [u32_at(&head, 24), u32_at(&head, 20), u32_at(&head, 42)].map(u64::from);
        read_zip64(&rest[..extra_is], &mut wide).map_err(bad)?;
        if !matches!(u16_at(&head, 34), 0 | 0xffff) {
            return Err(Error::unsupported(format!(
                "member {} lies on another disk",
                quote(&name)
            ))
            .at(at));
        }
        let [inflated, packed, header_at] = wide;
        Ok(Self {
            method: u16_at(&head, 10),
            flags,
            crc32: u32_at(&head, 16),
            packed,
            inflated,
            header_at: header_at.saturating_add(prefix),
            name_len,
            name: name.into(),
        })
    }

    pub(crate) fn deflated(&self) -> bool {
        self.method == DEFLATED
    }

    /// Whether sizes follow the bytes, because the writer could not go back.
    pub(super) fn has_descriptor(&self) -> bool {
        self.flags & FLAG_DESCRIPTOR != 0
    }

    /// Whether a size or the offset needs 64 bits.
    pub(super) fn wide(&self) -> bool {
        self.inflated.max(self.packed).max(self.header_at) >= 0xffff_ffff
    }

    /// The first offset at which its bytes can begin: right behind a local header without extra fields.
    pub(super) fn earliest(&self) -> u64 {
        self.header_at
            .saturating_add(LOCAL_LEN as u64 + u64::from(self.name_len))
    }

    /// Refuses what cannot be read: encrypted members and methods other than stored and deflate.
    pub(crate) fn check(&self) -> Result<()> {
        let name = || quote(&self.name);
        let error = if self.flags & FLAG_ENCRYPTED != 0 {
            Error::unsupported(format!("member {} is encrypted", name()))
        } else {
            match self.method {
                STORED if self.packed != self.inflated => Error::malformed(format!(
                    "member {} is stored, yet takes {} bytes for {}",
                    name(),
                    self.packed,
                    self.inflated
                )),
                DEFLATED if self.inflated > self.packed.saturating_mul(DEFLATE_MOST) => {
                    Error::malformed(format!(
                        "member {} claims to inflate from {} bytes to {}, which deflate cannot",
                        name(),
                        self.packed,
                        self.inflated
                    ))
                }
                STORED | DEFLATED => return Ok(()),
                other => Error::unsupported(format!(
                    "member {} is packed with zip method {other}{}; re-pack the archive stored or deflated",
                    name(),
                    method_name(other)
                )),
            }
        };
        Err(error.at(self.header_at))
    }
}

fn method_name(method: u16) -> &'static str {
    match method {
        9 => " (deflate64)",
        12 => " (bzip2)",
        14 => " (lzma)",
        93 => " (zstd)",
        95 => " (xz)",
        99 => " (encrypted with AES)",
        _ => "",
    }
}

/// Replaces the sizes and offset that did not fit in 32 bits by those of the zip64 extra field.
fn read_zip64(mut extra: &[u8], wide: &mut [u64; 3]) -> Result<(), &'static str> {
    const ZIP64: u16 = 1;
    const ABSENT: u64 = 0xffff_ffff;
    let mut found: Option<&[u8]> = None;
    while extra.len() >= 4 {
        let len = usize::from(u16_at(extra, 2));
        let field = extra[4..]
            .get(..len)
            .ok_or("an extra field runs past its end")?;
        if u16_at(extra, 0) == ZIP64 && found.replace(field).is_some() {
            return Err("two zip64 fields");
        }
        extra = &extra[4 + len..];
    }
    let mut values = found.unwrap_or_default();
    for value in wide.iter_mut().filter(|v| **v == ABSENT) {
        let (first, rest) = values
            .split_first_chunk::<8>()
            .ok_or("a 64-bit size is announced and missing")?;
        *value = u64::from_le_bytes(*first);
        values = rest;
    }
    Ok(())
}

/// Names are UTF-8 where flagged, else code page 437. `None` if flagged and not.
pub(super) fn decode_name(bytes: &[u8], flags: u16) -> Option<Cow<'_, str>> {
    const CP437: &str = "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u{a0}";
    if flags & FLAG_UTF8 != 0 || bytes.is_ascii() {
        return std::str::from_utf8(bytes).ok().map(Cow::Borrowed);
    }
    let high: Vec<char> = CP437.chars().collect();
    let decoded = bytes.iter().map(|&b| {
        if b < 0x80 {
            char::from(b)
        } else {
            high[usize::from(b) - 0x80]
        }
    });
    Some(Cow::Owned(decoded.collect()))
}

/// A name for a message before it is decoded.
fn ascii(name: &[u8]) -> String {
    name.escape_ascii().to_string()
}
