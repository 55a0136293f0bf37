//! Numbers of variable length: LEB128, seven bits per byte, least significant first; signed numbers
//! in zigzag.

use crate::error::{Error, Result};

/// Appends `n`: 1 byte below 128, at most 10 bytes.
pub(super) fn put(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n.to_le_bytes()[0] | 0x80);
        n >>= 7;
    }
    out.push(n.to_le_bytes()[0]);
}

/// Maps 0, −1, 1, −2, … to 0, 1, 2, 3, …, so that numbers near 0 are short.
pub(super) fn zigzag(n: i64) -> u64 {
    ((n << 1) ^ (n >> 63)).cast_unsigned()
}

pub(super) fn unzigzag(n: u64) -> i64 {
    (n >> 1).cast_signed() ^ -(n & 1).cast_signed()
}

/// Reads the bytes of a template from first to last.
#[derive(Debug)]
pub(super) struct TemplateCursor<'b> {
    rest: &'b [u8],
    /// Offset of `rest` in the file.
    pos: u64,
}

impl<'b> TemplateCursor<'b> {
    pub(super) fn new(bytes: &'b [u8]) -> Self {
        Self {
            rest: bytes,
            pos: 0,
        }
    }

    pub(super) fn pos(&self) -> u64 {
        self.pos
    }

    /// The number of remaining bytes.
    pub(super) fn remaining(&self) -> u64 {
        self.rest.len() as u64
    }

    pub(super) fn read(&mut self, n: u64, what: &str) -> Result<&'b [u8]> {
        let split = usize::try_from(n)
            .ok()
            .and_then(|n| self.rest.split_at_checked(n));
        let Some((bytes, rest)) = split else {
            let remaining = self.remaining();
            return Err(Error::malformed(format!(
                "{what} has {n} bytes, but {remaining} are left"
            ))
            .at(self.pos));
        };
        self.rest = rest;
        self.pos += n;
        Ok(bytes)
    }

    pub(super) fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        Ok(*self
            .read(N as u64, what)?
            .first_chunk()
            .expect("N bytes were read"))
    }

    pub(super) fn byte(&mut self, what: &str) -> Result<u8> {
        Ok(self.array::<1>(what)?[0])
    }

    /// Reads a number. Only its shortest form is accepted, so that every template has one encoding.
    pub(super) fn number(&mut self, what: &str) -> Result<u64> {
        let start = self.pos;
        let mut n = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte(what)?;
            let bits = u64::from(byte & 0x7f);
            // the tenth byte has one bit left; a last byte of zero adds nothing, so a shorter form exists
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

    /// Reads a number of at most 32 bits.
    pub(super) fn small(&mut self, what: &str) -> Result<u32> {
        let start = self.pos;
        let n = self.number(what)?;
        u32::try_from(n).map_err(|_| {
            Error::malformed(format!("{what} is {n}, which exceeds 32 bits")).at(start)
        })
    }

    /// Reads the number of items that follow, each of which takes at least `least` bytes.
    pub(super) fn count(&mut self, least: u64, what: &str) -> Result<u64> {
        let start = self.pos;
        let n = self.number(what)?;
        if n > self.remaining() / least {
            let reason = format!(
                "{what} is {n}, but only {} bytes are left",
                self.remaining()
            );
            return Err(Error::malformed(reason).at(start));
        }
        Ok(n)
    }
}
