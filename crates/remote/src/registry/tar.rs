//! Where the members of an uncompressed archive are, by its headers alone (POSIX.1-2017, `pax`, "ustar Interchange Format" and
//! "pax Extended Header"; GNU tar's manual, "Basic Tar Format").

use super::layers::checked;
use crate::error::{Error, ErrorKind, Result};

const BLOCK: u64 = 512;
/// A header takes one block.
const HEADER: usize = 512;
/// Headers of an archive.
const MOST: usize = 200_000;
/// Bytes of an extended header or of a long name.
const LONGEST: u64 = 64 << 10;

/// The place of a file in an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TarMember {
    pub(crate) start: u64,
    pub(crate) len: u64,
}

/// Lists the files of an archive of `len` bytes, of whose names `room` bytes may be kept. `read` fills its buffer from a place on.
pub(crate) fn members(
    len: u64,
    mut room: u64,
    read: &mut dyn FnMut(u64, &mut [u8]) -> Result<()>,
) -> Result<Vec<(String, TarMember)>> {
    let mut found = Vec::new();
    let mut at = 0u64;
    // from extended headers, for the next file
    let (mut name, mut size) = (None, None);
    for _ in 0..MOST {
        if at >= len {
            return Ok(found);
        }
        if len - at < BLOCK {
            return Err(wrong("ends in a header", at));
        }
        let mut header = [0; HEADER];
        read(at, &mut header)?;
        if header.iter().all(|&byte| byte == 0) {
            return Ok(found);
        }
        check_sum(&header, at)?;
        let kind = header[156];
        // the size of an extended header is its own
        let nbytes = match size {
            Some(size) if !matches!(kind, b'x' | b'g' | b'L' | b'K') => size,
            _ => number(&header[124..136])
                .ok_or_else(|| wrong("has a size that is no number", at))?,
        };
        let start = at + BLOCK;
        let end = start.checked_add(nbytes).filter(|end| *end <= len);
        let end = end.ok_or_else(|| wrong("has a member that ends behind it", at))?;
        match kind {
            b'x' | b'L' => {
                if nbytes > LONGEST {
                    return Err(wrong("has an extended header of more than 64 KiB", at));
                }
                let mut text = vec![0; usize::try_from(nbytes).expect("64 KiB")];
                read(start, &mut text)?;
                if kind == b'L' {
                    name = Some(until_zero(&text));
                } else {
                    let records = records(&text)
                        .ok_or_else(|| wrong("has an extended header that is none", at))?;
                    for (key, value) in records {
                        match key {
                            b"path" => name = Some(value.to_vec()),
                            b"size" => {
                                size = Some(
                                    decimal(value)
                                        .ok_or_else(|| wrong("has a size that is no number", at))?,
                                )
                            }
                            _ if key.starts_with(b"GNU.sparse.") => return Err(sparse(at)),
                            _ => {}
                        }
                    }
                }
            }
            b'S' => return Err(sparse(at)),
            b'0' | b'\0' | b'7' => {
                let bytes = name.take().unwrap_or_else(|| own_name(&header));
                let text = String::from_utf8(bytes)
                    .map_err(|_| wrong("has a name that is not UTF-8", at))?;
                let path = checked(&text)?;
                let cost = (2 * size_of::<(String, TarMember)>() + path.len()) as u64;
                room = room
                    .checked_sub(cost)
                    .ok_or_else(|| wrong("has more names than the memory for them", at))?;
                found.push((path, TarMember { start, len: nbytes }));
                size = None;
            }
            // global headers, long names of links
            b'g' | b'K' => {}
            // directories, links and devices have no bytes of a model
            _ => (name, size) = (None, None),
        }
        // blocks are whole, and the last one may be missing
        let Some(next) = end.checked_next_multiple_of(BLOCK) else {
            return Ok(found);
        };
        at = next;
    }
    Err(wrong("has more than 200 000 headers", at))
}

fn wrong(what: &str, at: u64) -> Error {
    Error::refused(format!("the archive {what}, at offset {at} of its layer"))
}

fn sparse(at: u64) -> Error {
    let what = format!(
        "the archive has a sparse file at offset {at} of its layer, whose bytes are not there as a whole: pull the model"
    );
    Error::new(ErrorKind::Unsupported, what)
}

/// The sum of a header's bytes, with spaces in the place of the sum.
fn check_sum(header: &[u8; HEADER], at: u64) -> Result<()> {
    let sum = |range: std::ops::Range<usize>| -> u64 {
        header[range].iter().map(|&byte| u64::from(byte)).sum()
    };
    let found = sum(0..148) + 8 * u64::from(b' ') + sum(156..512);
    if number(&header[148..156]) == Some(found) {
        return Ok(());
    }
    Err(wrong("has a header with a wrong checksum, or is none", at))
}

/// A number of a header: octal digits, or base 256 behind a byte of 0x80.
fn number(field: &[u8]) -> Option<u64> {
    if field[0] == 0x80 {
        let (high, low) = field.split_at(field.len() - 8);
        let is_zero = high[1..].iter().all(|&byte| byte == 0);
        return is_zero.then(|| u64::from_be_bytes(low.try_into().expect("8 bytes")));
    }
    let text = field.trim_ascii_start();
    let end = text.iter().position(|byte| !(b'0'..=b'7').contains(byte));
    let (digits, behind) = text.split_at(end.unwrap_or(text.len()));
    let is_padding = behind.iter().all(|byte| matches!(byte, 0 | b' '));
    let value = |value: u64, digit: &u8| value.checked_mul(8)?.checked_add(u64::from(digit - b'0'));
    (is_padding && !digits.is_empty()).then(|| digits.iter().try_fold(0, value))?
}

fn decimal(text: &[u8]) -> Option<u64> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    is_number.then(|| std::str::from_utf8(text).ok()?.parse().ok())?
}

fn until_zero(bytes: &[u8]) -> Vec<u8> {
    bytes
        .split(|&byte| byte == 0)
        .next()
        .unwrap_or_default()
        .to_vec()
}

/// The name in a header, behind the prefix that POSIX has for long ones.
fn own_name(header: &[u8; HEADER]) -> Vec<u8> {
    let name = until_zero(&header[..100]);
    // GNU's own headers have times there
    let is_posix = &header[257..263] == b"ustar\0";
    let prefix = if is_posix {
        until_zero(&header[345..500])
    } else {
        Vec::new()
    };
    match prefix.is_empty() {
        true => name,
        false => [prefix, name].join(&b'/'),
    }
}

/// The records of an extended header: `LENGTH KEY=VALUE` and the end of a line.
fn records(mut text: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let mut found = Vec::new();
    while !text.is_empty() {
        let space = text.iter().position(|&byte| byte == b' ')?;
        let len = usize::try_from(decimal(&text[..space])?).ok()?;
        let record = text.get(space + 1..len)?.strip_suffix(b"\n")?;
        let equals = record.iter().position(|&byte| byte == b'=')?;
        found.push((&record[..equals], &record[equals + 1..]));
        text = &text[len..];
    }
    Some(found)
}
