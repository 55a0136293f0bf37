//! The entries of the directory, one per member.
//!
//! Specification: PKWARE APPNOTE 6.3, sections 4.3.12, 4.4 and 4.5.3 (zip64).

use std::borrow::Cow;
use std::sync::Arc;

use super::{LOCAL_LEN, u16_at, u32_at};
use crate::base::error::{Error, Result};
use crate::base::limits::text_cost;
use crate::read::catalog::quote;
use crate::read::source::cursor::Cursor;

const ENTRY: &[u8] = b"PK\x01\x02";
const ENTRY_LEN: usize = 46;

const STORED: u16 = 0;
const DEFLATED: u16 = 8;
/// Upper bound of deflate's expansion: one byte holds four matches of two bits, each of at most 258 bytes.
const DEFLATE_MOST: u64 = 1032;
pub(super) const FLAG_ENCRYPTED: u16 = 1;
const FLAG_DESCRIPTOR: u16 = 1 << 3;
const FLAG_UTF8: u16 = 1 << 11;

/// One member as the directory describes it.
#[derive(Debug)]
pub(crate) struct DirectoryEntry {
    /// The decoded name, shared with the guard of the member.
    pub(crate) name: Arc<str>,
    pub(crate) method: u16,
    flags: u16,
    pub(crate) crc32: u32,
    /// Stored size in bytes.
    pub(crate) packed: u64,
    /// Size of the content in bytes, as the directory claims.
    pub(crate) inflated: u64,
    pub(crate) header_at: u64,
    /// Length of the name as stored, in bytes, which the local header repeats.
    name_len: u16,
}

impl DirectoryEntry {
    /// Reads the entry at the cursor.
    pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Self> {
        let at = cursor.pos();
        let head = cursor.array::<ENTRY_LEN>("an entry of the zip directory")?;
        if !head.starts_with(ENTRY) {
            return Err(Error::malformed("the zip directory has no entry signature here").at(at));
        }
        let flags = u16_at(&head, 8);
        let (name_len, extra_len, comment_len) =
            (u16_at(&head, 28), u16_at(&head, 30), u16_at(&head, 32));
        let budget = cursor.budget();
        let [name_is, extra_is, comment_is] = [name_len, extra_len, comment_len].map(usize::from);
        let tail = cursor.take(
            name_is + extra_is + comment_is,
            "an entry of the zip directory",
        )?;
        let (name, rest) = tail.split_at(name_is);
        // a character of code page 437 becomes up to three bytes
        let decoded = if name.is_ascii() { 1 } else { 3 };
        budget
            .memory(decoded * text_cost(name.len()), "the zip directory")
            .map_err(|e| e.at(at))?;
        let bad =
            |what: &str| Error::malformed(format!("member {}: {what}", quote(&ascii(name)))).at(at);
        let name = decode_name(name, flags)
            .ok_or_else(|| bad("the name is flagged as UTF-8 but is not valid UTF-8"))?;
        // in the order in which a zip64 field holds them: content size, stored size, header offset
        let mut wide = [u32_at(&head, 24), u32_at(&head, 20), u32_at(&head, 42)].map(u64::from);
        read_zip64(&rest[..extra_is], &mut wide).map_err(bad)?;
        // 0xffff defers to the zip64 field, which is not read for this: archives of several disks are refused in the
        // end record already
        if !matches!(u16_at(&head, 34), 0 | 0xffff) {
            return Err(Error::unsupported(format!(
                "member {} is on another disk of a multi-disk archive",
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
            header_at,
            name_len,
            name: name.into(),
        })
    }

    pub(crate) fn deflated(&self) -> bool {
        self.method == DEFLATED
    }

    /// Whether a data descriptor with sizes and checksum follows the bytes. Writers to streams use it, because they cannot
    /// go back to the local header.
    pub(super) fn has_descriptor(&self) -> bool {
        self.flags & FLAG_DESCRIPTOR != 0
    }

    /// Whether a size or the offset needs 64 bits (zip64).
    pub(super) fn wide(&self) -> bool {
        self.inflated.max(self.packed).max(self.header_at) >= 0xffff_ffff
    }

    /// The first offset at which the bytes can begin: after a local header without extra fields.
    pub(super) fn earliest_payload(&self) -> u64 {
        self.header_at
            .saturating_add(LOCAL_LEN as u64 + u64::from(self.name_len))
    }

    /// Refuses members that cannot be read (encrypted, or a method other than stored and deflate) and sizes that the
    /// method cannot produce.
    pub(crate) fn check(&self) -> Result<()> {
        let name = || quote(&self.name);
        let error = if self.flags & FLAG_ENCRYPTED != 0 {
            Error::unsupported(format!("member {} is encrypted", name()))
        } else {
            match self.method {
                // readers differ in which of the two sizes they trust
                STORED if self.packed != self.inflated => Error::malformed(format!(
                    "member {} is stored uncompressed, but its sizes differ: {} bytes stored, {} bytes of content",
                    name(),
                    self.packed,
                    self.inflated
                )),
                // refused before any byte is inflated: no stream expands further, so the claim is false in any case
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

/// Replaces the sizes and the offset that do not fit in 32 bits, which are then `0xffffffff`, by the values of the zip64
/// extra field. The field holds only the replaced values, in this order.
fn read_zip64(mut extra: &[u8], wide: &mut [u64; 3]) -> Result<(), &'static str> {
    const ZIP64: u16 = 1;
    const ABSENT: u64 = 0xffff_ffff;
    let mut found: Option<&[u8]> = None;
    while extra.len() >= 4 {
        let len = usize::from(u16_at(extra, 2));
        let field = extra[4..]
            .get(..len)
            .ok_or("an extra field exceeds the extra data")?;
        // the first and the last of two fields are both taken by some reader
        if u16_at(extra, 0) == ZIP64 && found.replace(field).is_some() {
            return Err("more than one zip64 field");
        }
        extra = &extra[4 + len..];
    }
    let mut values = found.unwrap_or_default();
    for value in wide.iter_mut().filter(|v| **v == ABSENT) {
        let (first, rest) = values
            .split_first_chunk::<8>()
            .ok_or("the zip64 field lacks a 64-bit size")?;
        *value = u64::from_le_bytes(*first);
        values = rest;
    }
    Ok(())
}

/// Decodes a name: UTF-8 if it is flagged as such, else code page 437. `None` if it is flagged as UTF-8 but is not.
pub(super) fn decode_name(bytes: &[u8], flags: u16) -> Option<Cow<'_, str>> {
    const CP437: &str = "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u{a0}";
    // ASCII is the same in both encodings. Python's `zipfile` decodes all other names without the flag as code page
    // 437
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

/// A name for an error message, before it is known in which encoding it is.
fn ascii(name: &[u8]) -> String {
    name.escape_ascii().to_string()
}
