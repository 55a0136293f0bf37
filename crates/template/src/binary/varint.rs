//! Numbers of variable length: LEB128, seven bits a byte, least significant first; signed ones in zigzag.

use crate::error::{Error, Result};

/// Appends `n`: 1 byte below 128, at most 10.
pub(super) fn put(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n.to_le_bytes()[0] | 0x80);
        n >>= 7;
    }
    out.push(n.to_le_bytes()[0]);
}

/// Small for numbers near 0: 0, −1, 1, −2, … become 0, 1, 2, 3, ….
pub(super) fn zigzag(n: i64) -> u64 {
    ((n << 1) ^ (n >> 63)).cast_unsigned()
}

pub(super) fn unzigzag(n: u64) -> i64 {
    (n >> 1).cast_signed() ^ -(n & 1).cast_signed()
}

/// Takes a template's bytes from first to last.
#[derive(Debug)]
pub(super) struct Cursor<'b> {
    rest: &'b [u8],
    /// Offset of `rest` in the file.
    pos: u64,
}

impl<'b> Cursor<'b> {
    pub(super) fn new(bytes: &'b [u8]) -> Self {
        Self {
            rest: bytes,
            pos: 0,
        }
    }

    pub(super) fn pos(&self) -> u64 {
        self.pos
    }

    /// Bytes that are left.
    pub(super) fn left(&self) -> u64 {
        self.rest.len() as u64
    }

    pub(super) fn take(&mut self, n: u64, what: &str) -> Result<&'b [u8]> {
        let split = usize::try_from(n)
            .ok()
            .and_then(|n| self.rest.split_at_checked(n));
        let Some((taken, rest)) = split else {
            let left = self.left();
            return Err(
                Error::malformed(format!("{what} of {n} bytes where {left} are left")).at(self.pos),
            );
        };
        self.rest = rest;
        self.pos += n;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        Ok(*self
            .take(N as u64, what)?
            .first_chunk()
            .expect("so many were taken"))
    }

    pub(super) fn byte(&mut self, what: &str) -> Result<u8> {
        Ok(self.array::<1>(what)?[0])
    }

    /// A number; in its shortest form only, so that every template has one encoding.
    pub(super) fn number(&mut self, what: &str) -> Result<u64> {
        let start = self.pos;
        let mut n = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte(what)?;
            let bits = u64::from(byte & 0x7f);
            if (shift == 63 && bits > 1) || (shift > 0 && byte == 0) {
                break;
            }
            n |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(n);
            }
        }
        Err(Error::malformed(format!(
            "{what} is not a number of up to 64 bits in its shortest form"
        ))
        .at(start))
    }

    /// A number of 32 bits.
    pub(super) fn small(&mut self, what: &str) -> Result<u32> {
        let start = self.pos;
        let n = self.number(what)?;
        u32::try_from(n)
            .map_err(|_| Error::malformed(format!("{what} is {n}, more than 32 bits")).at(start))
    }

    /// A number of things, each of which takes at least `least` of the bytes that are left.
    pub(super) fn count(&mut self, least: u64, what: &str) -> Result<u64> {
        let start = self.pos;
        let n = self.number(what)?;
        if n > self.left() / least {
            let why = format!("{what} is {n}, and {} bytes are left", self.left());
            return Err(Error::malformed(why).at(start));
        }
        Ok(n)
    }
}
