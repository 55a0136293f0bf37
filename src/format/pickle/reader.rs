//! Opcodes and their arguments, from a cursor.
//!
//! A pickle is read in thousands of steps of a byte or two. What the cursor lends of a mapped file
//! is therefore kept at hand, and the cursor asked again only when that is used up.

use crate::error::Result;
use crate::limits::Budget;
use crate::source::cursor::Cursor;

const ARGUMENT: &str = "an opcode's argument";

pub(super) struct Reader<'c, 's> {
    cursor: &'c mut Cursor<'s>,
    /// Bytes from the current position on that the cursor has lent; it has not moved over them.
    ahead: &'s [u8],
    /// Position behind `ahead`.
    end: u64,
}

impl<'c, 's> Reader<'c, 's> {
    pub(super) fn new(cursor: &'c mut Cursor<'s>) -> Self {
        let end = cursor.pos();
        Self {
            cursor,
            ahead: &[],
            end,
        }
    }

    pub(super) fn budget(&self) -> &'s Budget {
        self.cursor.budget()
    }

    #[inline]
    pub(super) fn pos(&self) -> u64 {
        self.end - self.ahead.len() as u64
    }

    pub(super) fn remaining(&mut self) -> u64 {
        self.settled().remaining()
    }

    /// The cursor, moved to the current position.
    pub(super) fn settled(&mut self) -> &mut Cursor<'s> {
        let pos = self.pos();
        (self.ahead, self.end) = (&[], pos);
        self.cursor.seek(pos);
        self.cursor
    }

    #[inline]
    pub(super) fn opcode(&mut self) -> Result<u8> {
        match self.ahead.split_first() {
            Some((&first, rest)) => {
                self.ahead = rest;
                Ok(first)
            }
            None => self.next("the next opcode of the pickle"),
        }
    }

    #[inline]
    pub(super) fn u8(&mut self) -> Result<u8> {
        self.array().map(|[byte]| byte)
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        if let Some((&first, rest)) = self.ahead.split_first_chunk() {
            self.ahead = rest;
            return Ok(first);
        }
        let bytes = self.settled().array(ARGUMENT)?;
        self.end = self.cursor.pos();
        Ok(bytes)
    }

    /// Takes bytes whose number the pickle decides.
    #[inline]
    pub(super) fn take(&mut self, n: u64, what: &str) -> Result<&[u8]> {
        if let Some((first, rest)) = usize::try_from(n)
            .ok()
            .and_then(|n| self.ahead.split_at_checked(n))
        {
            self.ahead = rest;
            return Ok(first);
        }
        self.settled();
        let bytes = self.cursor.take_long(n, what)?;
        self.end += n;
        Ok(bytes)
    }

    /// Takes one byte, and what comes with it.
    #[cold]
    fn next(&mut self, what: &str) -> Result<u8> {
        let cursor = self.settled();
        let lent = cursor.peek(1, what)?.len();
        let byte = cursor.u8(what)?;
        let pos = cursor.pos();
        self.end = pos;
        let rest = self.cursor.in_memory().zip(usize::try_from(pos).ok());
        if let Some(ahead) = rest.and_then(|(map, from)| map.get(from..from + lent - 1)) {
            (self.ahead, self.end) = (ahead, pos + ahead.len() as u64);
        }
        Ok(byte)
    }
}
